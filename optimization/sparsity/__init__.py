"""Which blocks of a weight matrix exist, and how that changes during training; no model, no TensorFlow."""
