"""Block-sparse training: the layer, its matrix products, and the patterns that change during training."""
