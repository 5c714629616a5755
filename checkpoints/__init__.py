"""Checkpoints, which are written atomically and verified before use."""
