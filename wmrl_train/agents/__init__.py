"""Agents: how an observation becomes a prompt and a completion becomes an action."""
