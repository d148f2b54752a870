"""WMRL's trainer: GRPO that learns from executed and predicted rewards. Importing it does not import torch."""

__version__ = "0.1.0"
