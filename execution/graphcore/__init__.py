"""Graphcore's TensorFlow on IPU systems. Only ``platform`` imports Graphcore's packages."""
