"""Distillation: a classifier learns what a trained one, usually larger, answers."""
