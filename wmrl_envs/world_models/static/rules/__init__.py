"""What the static world model knows of pandas, scikit-learn and the language: one module a subject."""
