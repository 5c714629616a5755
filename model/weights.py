"""How BERT's weights are created: as zeros, for the conversion fills each of them.

Random initial weights are Hugging Face's (truncated normal, Devlin et al. 2019), drawn once, in the source model.
"""

from __future__ import annotations

from keras_extensions.backend import keras

INITIALIZER = "zeros"


def dense(units: int, use_bias: bool = True, name: str = "dense") -> keras.layers.Dense:
    """A dense layer that waits for its weights."""
    return keras.layers.Dense(units, use_bias=use_bias, kernel_initializer=INITIALIZER, name=name)
