"""The gradient of whole matrices of which only some blocks exist, as RigL needs it now and then.

A matrix' gradient is there for a moment only: what leaves the backward pass are the norms of its blocks, as the
"gradient" of a variable of that many zeros. Of a variable, for recomputation hands on the gradients of arguments and
variables alone.

T tokens · I inputs · O outputs · b block size · R = I/b rows of blocks · C = O/b columns of blocks
"""

from __future__ import annotations

import contextlib
from typing import Any, Callable, Dict, List, Sequence, Tuple

import numpy as np

from keras_extensions.backend import keras, tf
from sparsity.layer import BlockSparseDense, Probe

FIRST_SCALE, SCALE_STEP, SCALES = 2.0**15, 16.0, 12  # of the loss in float16, down to less than its smallest number


class DenseGradients:
    """L1 norms of the blocks of ∂loss/∂W, of the blocks that exist and those that do not.

    In float16 the loss is scaled for it, by as much as the gradients bear, for unscaled most are zero there.

    Args:
        model: takes a batch's tensors by the names of its inputs.
        objective: has ``losses``, ``sums`` and ``counts``, see :class:`execution.interface.Objective`.
        layers: the sparse layers of the model.
    """

    def __init__(self, model: keras.Model, objective: Any, layers: Sequence[BlockSparseDense]):
        self._model = model
        self._objective = objective
        self._layers = list(layers)
        self._zeros = [tf.Variable(tf.zeros([layer.grid[0] * layer.grid[1]])) for layer in layers]
        self._is_narrow = any(layer.blocks.dtype == tf.float16 for layer in layers)
        self._scaled_norms = tf.function(self._norms, autograph=False)

    def block_norms(self, batch: Dict[str, tf.Tensor]) -> List[np.ndarray]:
        """(R · C,) by the blocks' numbers, for each layer; the loss is the mean over ``batch``, without dropout.

        A loss that is no number gives zeros.
        """
        scale, norms = FIRST_SCALE if self._is_narrow else 1.0, []
        for _ in range(SCALES if self._is_narrow else 1):
            norms = [norm.numpy() / scale for norm in self._scaled_norms(batch, tf.constant(scale))]
            if all(np.isfinite(norm).all() for norm in norms):
                return norms
            scale /= SCALE_STEP
        return [np.nan_to_num(norm, nan=0.0, posinf=0.0) for norm in norms]

    def _norms(self, batch: Dict[str, tf.Tensor], scale: tf.Tensor) -> List[tf.Tensor]:
        objective = self._objective
        with tf.GradientTape() as tape, contextlib.ExitStack() as held:
            for layer, zeros in zip(self._layers, self._zeros):
                held.enter_context(layer.probing(_probe(layer, zeros)))
            outputs = self._model({name: batch[name] for name in self._model.input_names}, training=True)
            sums, counts = objective.sums(outputs, batch), objective.counts(batch)
            loss = scale * tf.add_n([tf.math.divide_no_nan(sums[name], counts[name]) for name in objective.losses])
            return tape.gradient(loss, self._zeros, unconnected_gradients=tf.UnconnectedGradients.ZERO)


def _probe(layer: BlockSparseDense, zeros: tf.Variable) -> Probe:
    (rows, columns), b = layer.grid, layer.block_size

    @tf.custom_gradient
    def watched(x: tf.Tensor, y: tf.Tensor, _: tf.Tensor) -> Tuple[tf.Tensor, Callable[..., Any]]:
        def gradients(dy: tf.Tensor) -> Tuple[tf.Tensor, tf.Tensor, tf.Tensor]:
            whole = tf.matmul(tf.cast(x, tf.float32), tf.cast(dy, tf.float32), transpose_a=True)  # (I, O)
            sums = tf.reduce_sum(tf.abs(tf.reshape(whole, (rows, b, columns, b))), axis=(1, 3))  # (R, C)
            return tf.zeros_like(x), dy, tf.reshape(tf.transpose(sums), (-1,))

        return tf.identity(y), gradients

    return lambda x, y: watched(x, y, zeros.read_value())
