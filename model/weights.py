"""How BERT's weights are created (Devlin et al. 2019: truncated normal, biases zero)."""

from __future__ import annotations

from keras_extensions.backend import keras
from model.architecture import Architecture


def truncated_normal(architecture: Architecture) -> keras.initializers.Initializer:
    """A new initializer; one instance draws the same values for every weight, so no two weights may share it."""
    return keras.initializers.TruncatedNormal(stddev=architecture.initializer_range)


def dense(architecture: Architecture, units: int, use_bias: bool = True, name: str = "dense") -> keras.layers.Dense:
    """A dense layer with BERT's initialisation."""
    return keras.layers.Dense(units, use_bias=use_bias, kernel_initializer=truncated_normal(architecture), name=name)
