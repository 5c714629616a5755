"""Reads checkpoints of any origin: Hugging Face's, Google's, and this project's own."""
