"""On many nodes, through Ray (the extra [ray]): engines here, sandboxes in `wmrl_envs.execution.ray`. One machine needs none of it."""
