"""What every consumer of gradients needs first: dense tensors in float32."""

from __future__ import annotations

from keras_extensions.backend import tf


def dense_float32(gradient: tf.Tensor) -> tf.Tensor:
    """A gradient as a dense float32 tensor.

    An embedding lookup yields ``tf.IndexedSlices``. Their rows are added up here, because the usual
    de-duplication (``tf.unique``) has a shape that depends on the data, which XLA cannot compile, and because
    decay touches every row anyway.

    Args:
        gradient: a tensor or ``tf.IndexedSlices`` of any floating dtype.

    Returns:
        A float32 tensor of the variable's shape.
    """
    if isinstance(gradient, tf.IndexedSlices):
        gradient = tf.IndexedSlices(
            tf.cast(gradient.values, tf.float32), gradient.indices, dense_shape=gradient.dense_shape
        )
    return tf.cast(tf.convert_to_tensor(gradient), tf.float32)
