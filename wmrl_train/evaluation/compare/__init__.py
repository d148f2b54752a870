"""Runs and evaluations side by side: what differs in their settings, and by how much their scores do, task by task."""
