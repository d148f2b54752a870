"""World models: predictions in place of execution, of rewards, or of an environment's dynamics."""
