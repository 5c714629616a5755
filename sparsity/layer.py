"""A dense layer that stores, trains and multiplies by its non-zero blocks alone.

B micro batch · S sequence · I inputs · O outputs · n blocks · b block size
"""

from __future__ import annotations

import contextlib
from typing import Any, Callable, Iterator, List, Optional, Sequence

import numpy as np

from keras_extensions.backend import keras, tf
from sparsity import blocks as as_blocks
from sparsity.choice import AUTO, choose
from sparsity.products import product_of

# rows x (T, I) and x · W (T, O) → the latter
Probe = Callable[[tf.Tensor, tf.Tensor], tf.Tensor]


class BlockSparseDense(keras.layers.Layer):
    """x · W + bias, of which the blocks ``positions`` of W exist and all others are zero.

    Weights: ``blocks`` (n, b, b), trained; ``positions`` (n,), their ascending numbers (column · I/b + row);
    ``explored``, a bit for each block that ever existed; ``matrix_shape`` (I, O), for who reads a checkpoint.

    Args:
        units: O.
        block_size: b, a divisor of I and O.
        count: n.
        use_bias: whether there is a bias.
        kernel: how to multiply; see :mod:`sparsity.choice`.
        on_host: see :func:`sparsity.choice.choose`.
        name: of the layer.
    """

    def __init__(
        self,
        units: int,
        block_size: int,
        count: int,
        use_bias: bool = True,
        kernel: str = AUTO,
        on_host: bool = True,
        name: str = "dense",
    ):
        super().__init__(name=name)
        self.units = units
        self.block_size = block_size
        self.count = count
        self.use_bias = use_bias
        self.kernel_wish = kernel
        self._on_host = on_host
        self._chosen = False
        self._probe: Optional[Probe] = None

    def build(self, input_shape: Any) -> None:
        inputs, b = int(input_shape[-1]), self.block_size
        assert inputs % b == 0 and self.units % b == 0, f"{b} does not divide {inputs} × {self.units}"
        self.grid = (inputs // b, self.units // b)
        size = self.grid[0] * self.grid[1]
        assert 0 < self.count <= size, f"{self.count} blocks of {size}"
        on_gpu = bool(tf.config.get_visible_devices("GPU"))
        self.choice = choose(self.kernel_wish, b, self.count / size, self._on_host, on_gpu)
        self._product = product_of(self.choice.kernel, inputs, self.units, b)
        self.blocks = self.add_weight("blocks", (self.count, b, b), initializer="zeros")
        fixed = {"trainable": False}
        # int64: TensorFlow keeps int32 variables in the host's memory, where code that XLA compiled for a GPU cannot
        # read.
        self.positions = self.add_weight("positions", (self.count,), tf.int64, _first_numbers, **fixed)
        self.explored = self.add_weight("explored", (-(-size // 8),), tf.uint8, "zeros", **fixed)
        shape = tf.constant_initializer([inputs, self.units])
        self.matrix_shape = self.add_weight("matrix_shape", (2,), tf.int64, shape, **fixed)
        self.bias = self.add_weight("bias", (self.units,), initializer="zeros") if self.use_bias else None
        self.kernel = DenseView(self)
        super().build(input_shape)

    def call(self, x: tf.Tensor) -> tf.Tensor:
        rows = tf.reshape(x, (-1, x.shape[-1]))  # (B·S, I)
        y = self._product(rows, tf.cast(self.blocks, x.dtype), self.positions)
        if self._probe is not None:
            y = self._probe(rows, y)
        y = tf.reshape(y, tf.concat([tf.shape(x)[:-1], [self.units]], axis=0))
        y.set_shape((*x.shape[:-1], self.units))
        return y if self.bias is None else y + tf.cast(self.bias, x.dtype)

    def describe(self) -> str:
        """Sizes, and how and why so it multiplies, in a line."""
        rows, columns = (number * self.block_size for number in self.grid)
        density, b = self.count / (self.grid[0] * self.grid[1]), self.block_size
        return f"{rows} × {columns}, {density:.1%} in {b}×{b} blocks: {self.choice.kernel}, {self.choice.reason}"

    def choose_pattern(self, positions: np.ndarray) -> None:
        """Take this pattern for the dense matrix that will be assigned to ``kernel``.

        Args:
            positions: (n,) ascending.
        """
        self.positions.assign(positions)
        self.mark_explored(positions)
        self._chosen = True

    def assign_dense(self, matrix: np.ndarray) -> None:
        """Take the weights of a dense matrix (I, O): of the pattern that was chosen, else its largest blocks."""
        every = as_blocks.all_blocks(np.asarray(matrix), self.block_size)
        if not self._chosen:
            self.choose_pattern(as_blocks.largest_blocks(as_blocks.norms(every), self.count))
        self.blocks.assign(every[self.positions.numpy()].astype(self.blocks.dtype.as_numpy_dtype))

    def dense(self) -> np.ndarray:
        """The whole matrix (I, O)."""
        shape = (self.grid[0] * self.block_size, self.units)
        return as_blocks.dense_matrix(self.blocks.numpy(), self.positions.numpy(), shape)

    def mark_explored(self, positions: np.ndarray) -> None:
        """Remember that these blocks existed."""
        bits = np.zeros(8 * self.explored.shape[0], np.uint8)
        bits[positions] = 1
        self.explored.assign(self.explored.numpy() | np.packbits(bits))

    def explored_count(self) -> int:
        """How many blocks ever existed."""
        return int(np.unpackbits(self.explored.numpy()).sum())

    @contextlib.contextmanager
    def probing(self, probe: Probe) -> Iterator[None]:
        """Within, what is computed goes through ``probe``, which changes nothing and sees the gradient."""
        self._probe = probe
        try:
            yield
        finally:
            self._probe = None


class DenseView:
    """The whole matrix of a layer, as something that can be assigned to.

    Attributes:
        parts: the variables that are set by it.
    """

    def __init__(self, layer: BlockSparseDense):
        self._assign = layer.assign_dense
        self.name = f"{layer.name}/kernel"
        self.parts = [layer.blocks, layer.positions, layer.explored, layer.matrix_shape]

    def assign(self, matrix: np.ndarray) -> None:
        """See :meth:`BlockSparseDense.assign_dense`."""
        self._assign(matrix)


def sparse_layers(layer: tf.Module) -> List[BlockSparseDense]:
    """All block-sparse layers in a model or layer, in the order in which they lie there."""
    found = [layer] if isinstance(layer, BlockSparseDense) else []
    return found + [part for part in layer.submodules if isinstance(part, BlockSparseDense)]


def sparse_layers_of(blocks: Sequence[tf.Module]) -> List[BlockSparseDense]:
    """The block-sparse layers of several layers, in order."""
    return [found for block in blocks for found in sparse_layers(block)]


def _first_numbers(shape: Sequence[int], dtype: Any = tf.int64, **_: Any) -> tf.Tensor:
    return tf.range(shape[0], dtype=dtype)
