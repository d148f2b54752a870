"""Policies measured by real execution."""
