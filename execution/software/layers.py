"""The layers that an IPU has its own versions of, on stock TensorFlow."""

from __future__ import annotations

from typing import Optional

from execution.software.exceptions import Watch
from execution.software.precision import wide
from execution.software.randomness import SeedScope, keep_mask
from keras_extensions.backend import keras, tf


class Dropout(keras.layers.Layer):
    """Dropout whose mask is a function of the micro batch's seed and of this layer's number."""

    def __init__(self, rate: float, seeds: SeedScope, name: str = "dropout"):
        super().__init__(name=name)
        self.rate = rate
        self._seeds = seeds
        self._number = seeds.register()

    def call(self, x: tf.Tensor, training: Optional[bool] = None) -> tf.Tensor:
        seed = self._seeds.layer_seed(self._number) if self.rate else None
        if seed is None:
            return x
        keep = keep_mask(tf.shape(x), self.rate, seed)
        return tf.where(keep, tf.cast(wide(x) * (1.0 / (1.0 - self.rate)), x.dtype), tf.zeros([], x.dtype))


class LayerNormalization(keras.layers.Layer):
    """(x - mean) / √(variance + ε) · gamma + beta over the last axis, in float32 whatever the format of ``x``."""

    def __init__(self, epsilon: float, name: str = "norm", watch: Optional[Watch] = None):
        super().__init__(name=name)
        self._epsilon = epsilon
        self._watch = watch or Watch(False)

    def build(self, input_shape) -> None:
        size = (input_shape[-1],)
        self.gamma = self.add_weight("gamma", size, initializer="ones")
        self.beta = self.add_weight("beta", size, initializer="zeros")
        super().build(input_shape)

    def call(self, x: tf.Tensor) -> tf.Tensor:
        values = wide(x)
        mean, variance = tf.nn.moments(values, axes=[-1], keepdims=True)
        normal = (values - mean) * tf.math.rsqrt(variance + self._epsilon)
        return self._watch(tf.cast(normal * wide(self.gamma) + wide(self.beta), x.dtype))
