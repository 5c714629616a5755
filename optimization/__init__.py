"""Optimizers, gradient accumulation and loss scaling. They know no model."""
