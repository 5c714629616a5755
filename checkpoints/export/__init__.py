"""Checkpoints out: as a Hugging Face folder that PyTorch's Transformers loads."""
