"""Checkpoints of every origin into a model: Hugging Face's, Google's, and this project's own."""
