"""The platform of stock TensorFlow on any CPU or GPU, with the semantics of an IPU run."""
