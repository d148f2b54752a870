"""Adapters that bring the correction into other people's trainers."""
