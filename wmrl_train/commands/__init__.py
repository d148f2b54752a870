"""The subcommands of `wmrl`; each module has `register(app)` and imports nothing heavy at import time."""
