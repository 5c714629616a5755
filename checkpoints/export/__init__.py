"""Writes a checkpoint as a Hugging Face folder, which PyTorch's Transformers loads."""
