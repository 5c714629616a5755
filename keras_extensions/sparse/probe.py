"""The gradient of whole matrices of which only some blocks exist, as RigL needs it now and then."""

from __future__ import annotations

import contextlib
from typing import Any, Dict, List, Sequence

from keras_extensions.backend import keras, tf
from keras_extensions.sparse.layer import BlockSparseDense


class DenseGradients:
    """Norms of the blocks of ∂loss/∂W, of the blocks that exist and those that do not.

    Args:
        model: takes a batch's tensors by the names of its inputs.
        objective: has ``losses``, ``sums`` and ``counts``, see :class:`execution.interface.Objective`.
        layers: the sparse layers of the model.
    """

    def __init__(self, model: keras.Model, objective: Any, layers: Sequence[BlockSparseDense]):
        self._model = model
        self._objective = objective
        self._layers = list(layers)
        self.block_norms = tf.function(self._block_norms, autograph=False)

    def _block_norms(self, batch: Dict[str, tf.Tensor]) -> List[tf.Tensor]:
        """(R · C,) by the blocks' numbers, for each layer; the loss is the mean over ``batch``, without dropout."""
        objective = self._objective
        shapes = [(layer.grid[0] * layer.block_size, layer.units) for layer in self._layers]
        with tf.GradientTape() as tape, contextlib.ExitStack() as held:
            probes = [tf.zeros(shape) for shape in shapes]
            tape.watch(probes)
            for layer, probe in zip(self._layers, probes):
                held.enter_context(layer.probing(probe))
            outputs = self._model({name: batch[name] for name in self._model.input_names}, training=True)
            sums, counts = objective.sums(outputs, batch), objective.counts(batch)
            loss = tf.add_n([tf.math.divide_no_nan(sums[name], counts[name]) for name in objective.losses])
        gradients = tape.gradient(loss, probes, unconnected_gradients=tf.UnconnectedGradients.ZERO)
        return [_norms(gradient, layer) for gradient, layer in zip(gradients, self._layers)]


def _norms(gradient: tf.Tensor, layer: BlockSparseDense) -> tf.Tensor:
    (rows, columns), b = layer.grid, layer.block_size
    squares = tf.reduce_sum(tf.square(tf.reshape(gradient, (rows, b, columns, b))), axis=(1, 3))  # (R, C)
    return tf.sqrt(tf.reshape(tf.transpose(squares), (-1,)))
