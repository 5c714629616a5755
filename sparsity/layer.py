"""A dense layer that stores and trains only its non-zero blocks, also as saved, and the norms of its whole gradient.

B micro batch · S sequence · T = B·S tokens · I inputs · O outputs · n blocks · b block size
R = I/b rows of blocks · C = O/b columns of blocks
"""

from __future__ import annotations

import contextlib
import dataclasses
from typing import Any, Callable, Dict, Iterator, List, Optional, Sequence, Tuple

import numpy as np

from execution.interface import Platform
from execution.parts import as_rows, shaped
from keras_extensions.backend import keras, tf
from model.architecture import Architecture
from sparsity import patterns
from sparsity.figures import is_sparse, kept_blocks
from sparsity.products import AUTO, choose, make_product
from utilities.errors import UserError

BLOCKS, POSITIONS, SHAPE = "blocks", "positions", "matrix_shape"  # variables of a layer, also in checkpoints

# x (T, I) and x · W (T, O) → x · W
Probe = Callable[[tf.Tensor, tf.Tensor], tf.Tensor]

# Loss scales to try in float16, from the first one down to less than the smallest float16 number.
FIRST_SCALE, SCALE_STEP, SCALES = 2.0**15, 16.0, 12


class BlockSparseDense(keras.layers.Layer):
    """activation(x · W + bias), where only the blocks ``positions`` of W exist and all others are zero.

    Weights: ``blocks`` (n, b, b), which are trained; ``positions`` (n,), their ascending numbers; ``explored``, one bit
        per possible block, set if it ever existed; ``matrix_shape`` (I, O), for readers of a checkpoint.
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
        activation: Optional[Callable[[tf.Tensor], tf.Tensor]] = None,
    ):
        super().__init__(name=name)
        self.units = units
        self.block_size = block_size
        self.count = count
        self.use_bias = use_bias
        self.requested_kernel = kernel
        self._on_host = on_host
        self._activation = activation
        self._chosen = False
        self._probe: Optional[Probe] = None

    def build(self, input_shape: Any) -> None:
        inputs, b = int(input_shape[-1]), self.block_size
        assert inputs % b == 0 and self.units % b == 0, f"{b} does not divide {inputs} × {self.units}"
        self.size = (inputs // b) * (self.units // b)
        assert 0 < self.count <= self.size, f"{self.count} blocks of {self.size}"
        on_gpu = bool(tf.config.get_visible_devices("GPU"))
        self.choice = choose(self.requested_kernel, b, self.count / self.size, self._on_host, on_gpu)
        self._product = make_product(self.choice.kernel, inputs, self.units, b)
        self.blocks = self.add_weight(BLOCKS, (self.count, b, b), initializer="zeros")
        fixed = {"trainable": False}
        # int64: TensorFlow keeps int32 variables in the host's memory, where code that XLA compiled for a GPU cannot
        # read.
        self.positions = self.add_weight(POSITIONS, (self.count,), tf.int64, _first_numbers, **fixed)
        self.explored = self.add_weight("explored", (-(-self.size // 8),), tf.uint8, "zeros", **fixed)
        self.shape = (inputs, self.units)
        self.matrix_shape = self.add_weight(SHAPE, (2,), tf.int64, tf.constant_initializer(self.shape), **fixed)
        self.bias = self.add_weight("bias", (self.units,), initializer="zeros") if self.use_bias else None
        self.kernel = DenseView(self)
        super().build(input_shape)

    def call(self, x: tf.Tensor) -> tf.Tensor:
        rows = as_rows(x)  # (T, I)
        y = self._product(rows, tf.cast(self.blocks, x.dtype), self.positions)
        if self._probe is not None:
            y = self._probe(rows, y)
        y = shaped(y, x)
        y = y if self.bias is None else y + tf.cast(self.bias, x.dtype)
        return y if self._activation is None else self._activation(y)

    def describe(self) -> str:
        """Return one line with sizes, density and kernel."""
        (inputs, outputs), b = self.shape, self.block_size
        density = self.count / self.size
        return f"{inputs} × {outputs}, {density:.1%} in {b}×{b} blocks: {self.choice.kernel}, {self.choice.reason}"

    def choose_pattern(self, positions: np.ndarray) -> None:
        """Set the pattern (n,), ascending, for the dense matrix that will be assigned to ``kernel``."""
        self.positions.assign(positions)
        self.mark_explored(positions)
        self._chosen = True

    def assign_dense(self, matrix: np.ndarray) -> None:
        """Take blocks from a dense matrix (I, O): those of the chosen pattern, or else the largest ones."""
        every = patterns.all_blocks(np.asarray(matrix), self.block_size)
        if not self._chosen:
            self.choose_pattern(patterns.largest_blocks(patterns.norms(every), self.count))
        self.blocks.assign(every[self.positions.numpy()].astype(self.blocks.dtype.as_numpy_dtype))

    def dense(self) -> np.ndarray:
        return patterns.dense_matrix(self.blocks.numpy(), self.positions.numpy(), self.shape)

    def mark_explored(self, positions: np.ndarray) -> None:
        bits = np.zeros(8 * self.explored.shape[0], np.uint8)
        bits[positions] = 1
        self.explored.assign(self.explored.numpy() | np.packbits(bits))

    def explored_count(self) -> int:
        return int(np.unpackbits(self.explored.numpy()).sum())

    @contextlib.contextmanager
    def probing(self, probe: Probe) -> Iterator[None]:
        """Within the block, pass the product through ``probe``, which returns it unchanged and sees its gradient."""
        self._probe = probe
        try:
            yield
        finally:
            self._probe = None


class DenseView:
    """The whole matrix of a layer, which the conversion can assign like a weight."""

    def __init__(self, layer: BlockSparseDense):
        self.assign = layer.assign_dense
        self.name = f"{layer.name}/kernel"
        self.parts = [layer.blocks, layer.positions, layer.explored, layer.matrix_shape]


def sparse_dense(
    architecture: Architecture,
    platform: Platform,
    part: str,
    inputs: int,
    units: int,
    use_bias: bool,
    name: str,
    activation: Optional[Callable[[tf.Tensor], tf.Tensor]],
) -> Optional[BlockSparseDense]:
    """Return a layer for a part of the encoder; None if the part is dense. See :func:`model.layers.other_dense`."""
    if not is_sparse(architecture, part):
        return None
    count, kernel = kept_blocks(architecture, inputs, units), architecture.sparsity_kernel
    on_host = platform.runs_host_code()
    return BlockSparseDense(units, architecture.sparsity_block_size, count, use_bias, kernel, on_host, name, activation)


def sparse_layers(modules: Sequence[tf.Module]) -> List[BlockSparseDense]:
    """Return the block-sparse layers of several models or layers, in order."""
    return [part for each in modules for part in (each, *each.submodules) if isinstance(part, BlockSparseDense)]


def _first_numbers(shape: Sequence[int], dtype: Any = tf.int64, **_: Any) -> tf.Tensor:
    return tf.range(shape[0], dtype=dtype)


def with_dense_matrices(saved: Dict[str, Any], integers: Dict[str, Any]) -> Dict[str, Any]:
    """Replace the blocks of each sparse layer in a checkpoint by the dense matrix, with zeros where no block exists."""
    dense = dict(saved)
    for name in saved:
        if not name.endswith(f"/{BLOCKS}"):
            continue
        layer = name[: -len(BLOCKS)]
        positions, shape = integers.get(layer + POSITIONS), integers.get(layer + SHAPE)
        if positions is None or shape is None:
            raise UserError(f"{name} lacks its {POSITIONS} or {SHAPE}; name a whole checkpoint")
        dense[f"{layer}kernel"] = _dense_weight(dense.pop(name), positions, shape)
    return dense


def _dense_weight(blocks: Any, positions: Any, shape: Any) -> Any:
    inputs, outputs = (int(size) for size in shape.value())

    def read() -> np.ndarray:
        return patterns.dense_matrix(np.asarray(blocks.read()), np.asarray(positions.read()), (inputs, outputs))

    return dataclasses.replace(blocks, shape=(inputs, outputs), read=read)


class DenseGradients:
    """Computes L1 norms of all blocks of ∂loss/∂W, including absent ones, which RigL needs occasionally.

    The gradient of a whole matrix exists only briefly: the backward pass returns the norms of its blocks as the
    "gradient" of a variable of that many zeros. It must be a variable, because recomputation passes on only the
    gradients of arguments and variables. In float16 the loss scale is as large as possible without overflow, because
    most gradients would be zero otherwise.
    """

    def __init__(self, model: keras.Model, objective: Any, layers: Sequence[BlockSparseDense]):
        self._model = model
        self._objective = objective
        self._layers = list(layers)
        self._zeros = [tf.Variable(tf.zeros([layer.size])) for layer in layers]
        self._is_low_precision = any(layer.blocks.dtype == tf.float16 for layer in layers)
        self._scaled_norms = tf.function(self._norms, autograph=False)

    def block_norms(self, batch: Dict[str, tf.Tensor]) -> List[np.ndarray]:
        """Return norms (R · C,) for each layer, with the mean loss over ``batch``; one that is not finite becomes 0."""
        scale, norms = FIRST_SCALE if self._is_low_precision else 1.0, []
        for _ in range(SCALES if self._is_low_precision else 1):
            norms = [norm.numpy() / scale for norm in self._scaled_norms(batch, tf.constant(scale))]
            if all(np.isfinite(norm).all() for norm in norms):
                return norms
            scale /= SCALE_STEP
        return [np.nan_to_num(norm, nan=0.0, posinf=0.0) for norm in norms]

    def _norms(self, batch: Dict[str, tf.Tensor], scale: tf.Tensor) -> List[tf.Tensor]:
        objective = self._objective
        with tf.GradientTape() as tape, contextlib.ExitStack() as probes:
            for layer, zeros in zip(self._layers, self._zeros):
                probes.enter_context(layer.probing(_probe(layer, zeros)))
            outputs = self._model({name: batch[name] for name in self._model.input_names}, training=True)
            sums, counts = objective.sums(outputs, batch), objective.counts(batch)
            loss = scale * tf.add_n([tf.math.divide_no_nan(sums[name], counts[name]) for name in objective.losses])
            return tape.gradient(loss, self._zeros, unconnected_gradients=tf.UnconnectedGradients.ZERO)


def _probe(layer: BlockSparseDense, zeros: tf.Variable) -> Probe:
    b = layer.block_size
    rows, columns = (width // b for width in layer.shape)

    @tf.custom_gradient
    def watched(x: tf.Tensor, y: tf.Tensor, _: tf.Tensor) -> Tuple[tf.Tensor, Callable[..., Any]]:
        def gradients(dy: tf.Tensor) -> Tuple[tf.Tensor, tf.Tensor, tf.Tensor]:
            whole = tf.matmul(tf.cast(x, tf.float32), tf.cast(dy, tf.float32), transpose_a=True)  # (I, O)
            sums = tf.reduce_sum(tf.abs(tf.reshape(whole, (rows, b, columns, b))), axis=(1, 3))  # (R, C)
            return tf.zeros_like(x), dy, tf.reshape(tf.transpose(sums), (-1,))

        return tf.identity(y), gradients

    return lambda x, y: watched(x, y, zeros.read_value())
