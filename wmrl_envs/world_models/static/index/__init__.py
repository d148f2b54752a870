"""Which names, signatures and parameter values the sandbox's libraries have."""
