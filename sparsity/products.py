"""x · W for a matrix W of which some blocks exist, in three ways that give the same.

``native`` is compiled for this machine's processor and leaves out what is zero; it cannot stand inside a function that
XLA compiles. ``gather`` leaves it out as well, by TensorFlow's own operations. ``masked`` fills a dense matrix and
multiplies by that. Gradients are those of the blocks that exist.

T tokens · I inputs · O outputs · n blocks · b block size · R = I/b rows of blocks · C = O/b columns of blocks
"""

from __future__ import annotations

from typing import Any, Callable, Dict, Optional, Tuple

import numpy as np

from keras_extensions.backend import tf
from sparsity import native
from sparsity.choice import GATHER, MASKED, NATIVE

# x (T, I), blocks (n, b, b) and their ascending numbers (n,) → (T, O)
Product = Callable[[tf.Tensor, tf.Tensor, tf.Tensor], tf.Tensor]


def product_of(kernel: str, inputs: int, outputs: int, block_size: int) -> Product:
    """The function that multiplies.

    Args:
        kernel: ``native``, ``gather`` or ``masked``.
        inputs: I.
        outputs: O.
        block_size: b, a divisor of both.
    """
    kinds: Dict[str, Any] = {NATIVE: Native, GATHER: Gather, MASKED: Masked}
    return kinds[kernel](inputs, outputs, block_size)


class Masked:
    """A dense product, with zeros where no block exists."""

    def __init__(self, inputs: int, outputs: int, block_size: int):
        self._shape = (inputs, outputs)
        self._rows, self._columns, self._size = inputs // block_size, outputs // block_size, block_size

    def __call__(self, x: tf.Tensor, blocks: tf.Tensor, positions: tf.Tensor) -> tf.Tensor:
        whole = tf.scatter_nd(
            positions[:, tf.newaxis],
            blocks,
            tf.constant([self._rows * self._columns, self._size, self._size], positions.dtype),
        )
        cut = tf.reshape(whole, (self._columns, self._rows, self._size, self._size))
        matrix = tf.reshape(tf.transpose(cut, (1, 2, 0, 3)), self._shape)  # (I, O)
        return tf.matmul(x, matrix)


class Gather:
    """One product for each block, and a sum over the blocks of each column."""

    def __init__(self, inputs: int, outputs: int, block_size: int):
        self._rows, self._columns, self._size = inputs // block_size, outputs // block_size, block_size

    def __call__(self, x: tf.Tensor, blocks: tf.Tensor, positions: tf.Tensor) -> tf.Tensor:
        rows, columns = positions % self._rows, positions // self._rows
        parts = tf.transpose(tf.reshape(x, (-1, self._rows, self._size)), (1, 0, 2))  # (R, T, b)
        products = tf.matmul(tf.gather(parts, rows), blocks)  # (n, T, b)
        sums = tf.math.unsorted_segment_sum(products, columns, self._columns)  # (C, T, b)
        return tf.reshape(tf.transpose(sums, (1, 0, 2)), (-1, self._columns * self._size))


class Native:
    """This processor's own code, in float32 whatever comes in."""

    def __init__(self, inputs: int, outputs: int, block_size: int):
        self._inputs, self._outputs, self._size = inputs, outputs, block_size
        self._threads = tf.config.threading.get_intra_op_parallelism_threads()
        self._seen: Optional[Tuple[np.ndarray, native.Layout]] = None

    def __call__(self, x: tf.Tensor, blocks: tf.Tensor, positions: tf.Tensor) -> tf.Tensor:
        positions = tf.convert_to_tensor(positions)  # a variable inside would ask for a gradient

        @tf.custom_gradient
        def multiply(x: tf.Tensor, blocks: tf.Tensor):
            y = tf.numpy_function(self._product, [x, blocks, positions], tf.float32, stateful=False)
            y.set_shape((x.shape[0], self._outputs))

            def gradients(dy: tf.Tensor):
                dx, of_blocks = tf.numpy_function(
                    self._gradients, [x, dy, blocks, positions], (tf.float32, tf.float32), stateful=False
                )
                dx.set_shape(x.shape)
                of_blocks.set_shape(blocks.shape)
                return dx, of_blocks

            return y, gradients

        y = multiply(tf.cast(x, tf.float32), tf.cast(blocks, tf.float32))
        return tf.cast(y, x.dtype)

    def _layout(self, positions: np.ndarray) -> native.Layout:
        """The layout of the pattern; that of the last call is kept, for patterns change rarely."""
        seen = self._seen
        if seen is None or not np.array_equal(seen[0], positions):
            layout = native.layout_of(positions, self._inputs // self._size, self._outputs // self._size)
            seen = self._seen = (positions.copy(), layout)
        return seen[1]

    def _product(self, x: np.ndarray, blocks: np.ndarray, positions: np.ndarray) -> np.ndarray:
        return native.product(x, blocks, self._layout(positions), self._threads)

    def _gradients(
        self, x: np.ndarray, dy: np.ndarray, blocks: np.ndarray, positions: np.ndarray
    ) -> Tuple[np.ndarray, np.ndarray]:
        layout = self._layout(positions)
        dx = native.input_gradient(dy, blocks, layout, self._threads)
        return dx, native.weight_gradient(x, dy, layout, self._size, self._threads)
