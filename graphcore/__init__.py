"""The platform of IPU systems, with Graphcore's TensorFlow. Only ``platform`` imports Graphcore's packages."""
