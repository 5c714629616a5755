"""Computes x · W for a block-sparse matrix W by one of three kernels, which give the same result.

``native`` is compiled for this processor and skips the absent blocks; a function that XLA compiles cannot call it.
``gather`` skips them too, using TensorFlow's operations. ``masked`` fills a dense matrix and multiplies by it.
Gradients are computed for the blocks that exist.

T tokens · I inputs · O outputs · n blocks · b block size · R = I/b rows of blocks · C = O/b columns of blocks
"""

from __future__ import annotations

from typing import Any, Callable, Dict, NamedTuple, Optional, Tuple

import numpy as np

from keras_extensions.backend import tf
from sparsity import native
from utilities.errors import UserError

NATIVE, GATHER, MASKED, AUTO = "native", "gather", "masked", "auto"
INSTALL = "pip install -r requirements-sparse.txt"

# The density below which a kernel is faster than masked dense, by block size, forward and backward together. From
# `make sparse-layer` at 768 × 3072 and 1024 tokens on 2 cores of an AMD EPYC with AVX-512; ``gather`` as XLA compiles
# it for a CPU. With a table instead of a measurement at the start of a run, a resumed run computes as it did before.
CROSSINGS = {NATIVE: {4: 0.28, 8: 0.53, 16: 0.54}, GATHER: {16: 0.17}}


class Choice(NamedTuple):
    """A kernel, and the reason for it."""

    kernel: str
    reason: str


def choose(requested: str, block_size: int, density: float, on_host: bool, on_gpu: bool = False) -> Choice:
    """Choose the kernel of a block-sparse product."""
    if requested == NATIVE and on_gpu:
        raise UserError("sparsity.kernel native is for CPUs only; set it to auto, or execution.device to cpu")
    if requested == NATIVE and not native.is_available():
        raise UserError(f"sparsity.kernel is native, which needs llvmlite: {INSTALL}, or set it to auto")
    if requested != AUTO:
        return Choice(requested, "set by sparsity.kernel")
    if on_gpu:
        return Choice(MASKED, "on a GPU no other kernel was measured to be faster")
    kernel, where = (NATIVE, "") if on_host else (GATHER, " inside XLA")
    if kernel == NATIVE and not native.is_available():
        return Choice(MASKED, "masked dense is faster without the package llvmlite")
    crossing = CROSSINGS[kernel].get(block_size, 0.0)
    if density >= crossing:
        above = f"above {crossing:.0%} density" if crossing else "at any density"
        return Choice(MASKED, f"with {block_size}×{block_size} blocks{where} masked dense is faster {above}")
    return Choice(kernel, f"about {density / crossing:.2f} of masked dense's time")


def missing_package(requested: str, block_size: int, density: float) -> bool:
    """Return whether ``auto`` would choose ``native`` on a CPU if its package was installed."""
    return requested == AUTO and density < CROSSINGS[NATIVE].get(block_size, 0.0) and not native.is_available()


# x (T, I), blocks (n, b, b) and their ascending numbers (n,) → (T, O)
Product = Callable[[tf.Tensor, tf.Tensor, tf.Tensor], tf.Tensor]


def make_product(kernel: str, inputs: int, outputs: int, block_size: int) -> Product:
    """Return the product function of a kernel; ``block_size`` divides ``inputs`` and ``outputs``."""
    kinds: Dict[str, Any] = {NATIVE: Native, GATHER: Gather, MASKED: Masked}
    return kinds[kernel](inputs, outputs, block_size)


class Masked:
    """One dense product, with zeros for absent blocks."""

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
    """Code compiled for this processor, which computes in float32 for any dtype of its arguments."""

    def __init__(self, inputs: int, outputs: int, block_size: int):
        self._inputs, self._outputs, self._size = inputs, outputs, block_size
        self._threads = tf.config.threading.get_intra_op_parallelism_threads()
        self._seen: Optional[Tuple[np.ndarray, native.Layout]] = None

    def __call__(self, x: tf.Tensor, blocks: tf.Tensor, positions: tf.Tensor) -> tf.Tensor:
        positions = tf.convert_to_tensor(positions)  # a variable inside would need a gradient

        @tf.custom_gradient
        def multiply(x: tf.Tensor, blocks: tf.Tensor) -> Tuple[tf.Tensor, Callable[..., Any]]:
            y = tf.numpy_function(self._product, [x, blocks, positions], tf.float32, stateful=False)
            y.set_shape((x.shape[0], self._outputs))

            def gradients(dy: tf.Tensor) -> Tuple[tf.Tensor, tf.Tensor]:
                dx, dblocks = tf.numpy_function(
                    self._gradients, [x, dy, blocks, positions], (tf.float32, tf.float32), stateful=False
                )
                dx.set_shape(x.shape)
                dblocks.set_shape(blocks.shape)
                return dx, dblocks

            return y, gradients

        y = multiply(tf.cast(x, tf.float32), tf.cast(blocks, tf.float32))
        return tf.cast(y, x.dtype)

    def _layout(self, positions: np.ndarray) -> native.Layout:
        """Return the layout of the pattern; the last one is cached, because patterns change rarely."""
        seen = self._seen
        if seen is None or not np.array_equal(seen[0], positions):
            layout = native.make_layout(positions, self._inputs // self._size, self._outputs // self._size)
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
