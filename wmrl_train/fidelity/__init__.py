"""How well a world model predicts executed programs."""
