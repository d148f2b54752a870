"""Executions that happened before: the store that caches and replays, and the bank in one file."""
