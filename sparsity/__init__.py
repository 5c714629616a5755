"""Block-sparse training: the layer, its products on this machine, and the patterns that change during training."""
