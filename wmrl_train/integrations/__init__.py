"""WMRL inside other people's trainers: TRL, verl, Stable-Baselines3. Each is imported where it is used."""
