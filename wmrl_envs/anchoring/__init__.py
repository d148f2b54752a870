"""Where a prediction meets an execution."""
