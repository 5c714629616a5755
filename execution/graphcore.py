"""Graphcore's TensorFlow on IPU systems, the only file that imports Graphcore's packages.

The place of the adapter: it will implement :class:`execution.interface.Platform` with IPUStrategy, Keras' IPU
pipelining and ipu_tensorflow_addons. Until then :func:`execution.select.select_platform` refuses IPU runs plainly.
"""
