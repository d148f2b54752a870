"""The environments: a step is propose, execute, observe."""
