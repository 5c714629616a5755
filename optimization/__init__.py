"""Optimizers, gradient accumulation and loss scaling, independent of any model."""
