"""A run's folder: checkpoints, logs, progress, metrics, report."""
