"""The block-sparse layer has the outputs and gradients of a dense layer with a mask, for every kernel."""

import sys

import numpy as np
import pytest

from keras_extensions.backend import keras, layers_in, tf
from sparsity import native
from sparsity.layer import BlockSparseDense, DenseGradients, sparse_layers
from sparsity.patterns import all_blocks, dense_matrix, largest_blocks, norms, random_pattern
from sparsity.products import INSTALL, choose, make_product
from sparsity.training import sparse_lines
from utilities.errors import UserError

SIZES = (1, 4, 8, 16)
VARIANTS = [(kernel, False, size) for kernel in ("masked", "gather") for size in SIZES]
VARIANTS += [("native", False, size) for size in SIZES[1:]]  # there is no native code for single weights
VARIANTS += [(kernel, True, size) for kernel in ("masked", "gather") for size in (1, 16)]  # XLA treats all sizes alike


def skip_without(kernel):
    if kernel == "native" and not native.is_available():
        pytest.skip("llvmlite is not installed")


def problem(block_size, rows=6, columns=10, tokens=37, kept=13, seed=0):
    """Return x (T, I), dy (T, O), positions, blocks, and W (I, O), which is filled block by block."""
    rng, b = np.random.default_rng(seed), block_size
    positions = random_pattern(rows * columns, kept, seed)
    blocks = rng.normal(size=(kept, b, b)).astype(np.float32)
    matrix = np.zeros((rows * b, columns * b), np.float32)
    for block, number in zip(blocks, positions):
        row, column = int(number) % rows, int(number) // rows
        matrix[row * b : (row + 1) * b, column * b : (column + 1) * b] = block
    x = rng.normal(size=(tokens, rows * b)).astype(np.float32)
    dy = rng.normal(size=(tokens, columns * b)).astype(np.float32)
    return x, dy, positions, blocks, matrix


def masked_gradient(x, dy, positions, block_size, rows):
    whole, b = x.astype(np.float64).T @ dy, block_size
    cut = [(int(n) % rows * b, int(n) // rows * b) for n in positions]
    return np.stack([whole[i : i + b, o : o + b] for i, o in cut])


def assert_close(actual, expected):
    """Check equality to 1e-5 of the largest number."""
    assert np.abs(np.asarray(actual) - expected).max() <= 1e-5 * np.abs(expected).max()


@pytest.mark.parametrize(("kernel", "xla", "block_size"), VARIANTS)
def test_products_equal_a_masked_dense_layer(kernel, xla, block_size):
    skip_without(kernel)
    x, dy, positions, blocks, matrix = problem(block_size)
    multiply = make_product(kernel, *matrix.shape, block_size)

    def run(x, blocks, positions, dy):
        with tf.GradientTape() as tape:
            tape.watch([x, blocks])
            y = multiply(x, blocks, positions)
        return y, *tape.gradient(y, [x, blocks], dy)

    run = tf.function(run, jit_compile=True) if xla else run
    numbers = tf.constant(positions, tf.int64)
    y, dx, of_blocks = run(tf.constant(x), tf.constant(blocks), numbers, tf.constant(dy))
    assert_close(y, x.astype(np.float64) @ matrix)
    assert_close(dx, dy.astype(np.float64) @ matrix.T)
    assert_close(of_blocks, masked_gradient(x, dy, positions, block_size, 6))


@pytest.mark.parametrize("tokens, kept", [(1, 13), (23, 13), (24, 13), (25, 13), (130, 13), (37, 2)])
@pytest.mark.parametrize("block_size", [4, 8, 16])
def test_native_products_of_any_number_of_tokens_and_blocks(block_size, tokens, kept):
    """Two blocks leave rows and columns empty."""
    skip_without("native")
    x, dy, positions, blocks, matrix = problem(block_size, tokens=tokens, kept=kept)
    layout = native.make_layout(positions, 6, 10)
    assert_close(native.product(x, blocks, layout), x.astype(np.float64) @ matrix)
    assert_close(native.input_gradient(dy, blocks, layout), dy.astype(np.float64) @ matrix.T)
    expected = masked_gradient(x, dy, positions, block_size, 6)
    assert_close(native.weight_gradient(x, dy, layout, block_size), expected)


def test_changed_pattern_needs_no_new_graph():
    skip_without("native")
    x, _, positions, blocks, matrix = problem(16)
    variables = tf.Variable(positions.astype(np.int64)), tf.Variable(blocks)
    multiply = make_product("native", *matrix.shape, 16)
    run = tf.function(lambda x: multiply(x, variables[1], variables[0]))
    assert_close(run(tf.constant(x)), x @ matrix)
    _, _, positions, blocks, matrix = problem(16, seed=1)
    variables[0].assign(positions)
    variables[1].assign(blocks)
    assert_close(run(tf.constant(x)), x @ matrix)
    assert run.experimental_get_tracing_count() == 1


@pytest.mark.parametrize("kernel", ["masked", "native"])
def test_layer_equals_a_dense_layer(kernel):
    skip_without(kernel)
    rng = np.random.default_rng(2)
    matrix, bias = rng.normal(size=(24, 40)).astype(np.float32), rng.normal(size=40).astype(np.float32)
    layer = BlockSparseDense(40, 4, count=11, kernel=kernel)
    x = rng.normal(size=(2, 3, 24)).astype(np.float32)
    layer(x)
    layer.choose_pattern(random_pattern(60, 11, 3))
    layer.kernel.assign(matrix)
    layer.bias.assign(bias)
    dense = layer.dense()
    assert (dense != 0).sum() == 11 * 16 and set(dense[dense != 0]) <= set(matrix.ravel())
    assert_close(layer(x), x @ dense + bias)
    assert [tuple(v.shape) for v in layer.trainable_variables] == [(11, 4, 4), (40,)]


def test_default_pattern_is_the_largest_blocks():
    rng = np.random.default_rng(3)
    matrix = rng.normal(size=(16, 8)).astype(np.float32)
    matrix[4:8, :4] *= 9
    matrix[12:, 4:] *= 7
    layer = BlockSparseDense(8, 4, count=2, kernel="masked")
    layer(np.zeros((1, 16), np.float32))
    layer.kernel.assign(matrix)
    expected = np.zeros_like(matrix)
    expected[4:8, :4], expected[12:, 4:] = matrix[4:8, :4], matrix[12:, 4:]
    np.testing.assert_array_equal(layer.dense(), expected)
    assert layer.explored_count() == 2


class SumOfSines:
    """An objective with one term: the sum of sin(y), divided by ``count``."""

    losses = ("sines",)

    def __init__(self, count):
        self._count = count

    def sums(self, outputs, batch):
        return {"sines": tf.reduce_sum(tf.sin(tf.cast(outputs, tf.float32)))}

    def counts(self, batch):
        return {"sines": tf.constant(self._count)}


@pytest.mark.parametrize(
    ("precision", "count", "tolerance"),
    [("float32", 20.0, 1e-5), ("float16", 20.0, 5e-3), ("float16", 1e9, 5e-3), ("float16", 1e-5, 5e-3)],
    ids=["float32", "float16", "too small for float16", "too large for float16"],
)
def test_norms_of_the_dense_gradient_by_block(precision, count, tolerance):
    inputs = keras.Input((16,), name="x", dtype=precision)
    with layers_in(precision):
        layer = BlockSparseDense(8, 4, count=3, kernel="masked", use_bias=False)
        model = keras.Model({"x": inputs}, layer(inputs))
    layer.kernel.assign(np.random.default_rng(6).normal(size=(16, 8)).astype(np.float32))
    assert layer.blocks.dtype == precision and sparse_layers([model]) == [layer]
    x = np.random.default_rng(7).normal(size=(5, 16)).astype(precision)
    before = model({"x": x}).numpy()
    (block_norms,) = DenseGradients(model, SumOfSines(count), [layer]).block_norms({"x": tf.constant(x)})
    gradient = x.astype(np.float64).T @ np.cos(x.astype(np.float64) @ layer.dense()) / count
    expected = [
        np.abs(gradient[row * 4 : row * 4 + 4, column * 4 : column * 4 + 4]).sum()
        for column in range(2)
        for row in range(4)
    ]
    np.testing.assert_allclose(block_norms, expected, rtol=tolerance)
    np.testing.assert_array_equal(model({"x": x}), before)


def test_matrix_to_blocks_and_back():
    rng = np.random.default_rng(5)
    matrix = rng.normal(size=(12, 20)).astype(np.float32)
    blocks = all_blocks(matrix, 4)
    np.testing.assert_array_equal(blocks[1], matrix[4:8, :4])  # down the first column
    np.testing.assert_array_equal(blocks[3], matrix[:4, 4:8])
    np.testing.assert_array_equal(dense_matrix(blocks, np.arange(15), (12, 20)), matrix)
    np.testing.assert_allclose(norms(blocks)[1], np.abs(matrix[4:8, :4]).sum(), rtol=1e-6)
    assert largest_blocks(np.array([3.0, 1.0, 3.0, 5.0]), 2).tolist() == [0, 3]


def test_kernel_choice():
    assert choose("auto", 16, 0.1, on_host=False).kernel == "gather"
    assert choose("auto", 16, 0.1, on_host=False, on_gpu=True).kernel == "masked"
    with pytest.raises(UserError, match="kernel native is for CPUs only; set it to auto"):
        choose("native", 16, 0.1, on_host=False, on_gpu=True)
    assert "8×8" in choose("auto", 8, 0.1, on_host=False).reason
    assert choose("auto", 1, 0.1, on_host=True).kernel == "masked"
    assert choose("gather", 1, 0.1, on_host=True) == ("gather", "set by sparsity.kernel")
    dense = choose("auto", 16, 0.99, on_host=True)
    assert dense.kernel == "masked" and dense.reason
    if native.is_available():
        assert choose("auto", 16, 0.1, on_host=True).kernel == "native"


def test_without_llvmlite_the_products_are_masked_and_one_line_says_so(monkeypatch):
    def lines(kernel="auto", block_size=4):
        layers = [BlockSparseDense(8, block_size, count=1, kernel=kernel) for _ in range(2)]
        for units, layer in zip((16, 32), layers):
            layer.build((None, units))
        return layers, sparse_lines(layers)

    monkeypatch.setitem(sys.modules, "llvmlite", None)  # as if it was not installed
    layers, described = lines()
    assert [layer.choice.kernel for layer in layers] == ["masked", "masked"]
    assert [line for line in described if INSTALL in line] == described[2:] and len(described) == 3
    assert not any(INSTALL in line for line in lines("masked")[1] + lines(block_size=1)[1])
    with pytest.raises(UserError, match=INSTALL):
        choose("native", 16, 0.1, on_host=True)
    monkeypatch.undo()
    assert not native.is_available() or len(lines()[1]) == 2
