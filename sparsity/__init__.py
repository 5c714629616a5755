"""Dynamic sparse training: block-sparse layers, their products, and the patterns that change while training."""
