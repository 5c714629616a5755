"""The block-sparse layer is a dense layer with a mask: outputs and gradients, in every way of multiplying."""

import numpy as np
import pytest

from keras_extensions.backend import keras, tf
from keras_extensions.sparse import native
from keras_extensions.sparse.blocks import all_blocks, dense_matrix, largest_blocks, norms
from keras_extensions.sparse.choice import choose
from keras_extensions.sparse.layer import BlockSparseDense, sparse_layers
from keras_extensions.sparse.probe import DenseGradients
from keras_extensions.sparse.products import product_of
from optimization.sparsity.pattern import Grid, random_pattern

WAYS = [("masked", False), ("masked", True), ("gather", False), ("gather", True), ("native", False)]


def skip_without(kernel, block_size):
    if kernel == "native" and block_size == 1:
        pytest.skip("single weights have no code of their own")
    if kernel == "native" and not native.is_available():
        pytest.skip("llvmlite is not installed")


def problem(block_size, rows=6, columns=10, tokens=37, kept=13, seed=0):
    """x (T, I), dy (T, O), positions, blocks, and W (I, O) filled block by block."""
    rng, b = np.random.default_rng(seed), block_size
    positions = random_pattern(Grid(rows, columns), kept, seed)
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
    """To 1e-5 of the largest number."""
    assert np.abs(np.asarray(actual) - expected).max() <= 1e-5 * np.abs(expected).max()


@pytest.mark.parametrize("block_size", [1, 4, 8, 16])
@pytest.mark.parametrize(("kernel", "xla"), WAYS)
def test_outputs_and_gradients_are_those_of_a_masked_dense_layer(kernel, xla, block_size):
    skip_without(kernel, block_size)
    x, dy, positions, blocks, matrix = problem(block_size)
    multiply = product_of(kernel, *matrix.shape, block_size)

    @tf.function(jit_compile=xla)
    def run(x, blocks, positions, dy):
        with tf.GradientTape() as tape:
            tape.watch([x, blocks])
            y = multiply(x, blocks, positions)
        return y, *tape.gradient(y, [x, blocks], dy)

    numbers = tf.constant(positions, tf.int64)
    y, dx, of_blocks = run(tf.constant(x), tf.constant(blocks), numbers, tf.constant(dy))
    assert_close(y, x.astype(np.float64) @ matrix)
    assert_close(dx, dy.astype(np.float64) @ matrix.T)
    assert_close(of_blocks, masked_gradient(x, dy, positions, block_size, 6))


@pytest.mark.parametrize("tokens", [1, 23, 24, 25, 130])
@pytest.mark.parametrize("block_size", [4, 8, 16])
def test_native_products_of_any_number_of_tokens(block_size, tokens):
    skip_without("native", block_size)
    x, dy, positions, blocks, matrix = problem(block_size, tokens=tokens)
    layout = native.layout_of(positions, 6, 10)
    assert_close(native.product(x, blocks, layout), x.astype(np.float64) @ matrix)
    assert_close(native.input_gradient(dy, blocks, layout), dy.astype(np.float64) @ matrix.T)
    expected = masked_gradient(x, dy, positions, block_size, 6)
    assert_close(native.weight_gradient(x, dy, layout, block_size), expected)


def test_native_products_where_columns_and_rows_are_empty():
    skip_without("native", 8)
    x, dy, positions, blocks, matrix = problem(8, kept=2)
    layout = native.layout_of(positions, 6, 10)
    assert_close(native.product(x, blocks, layout), x @ matrix)
    assert_close(native.input_gradient(dy, blocks, layout), dy @ matrix.T)


def test_a_pattern_that_changes_is_followed_without_a_new_graph():
    skip_without("native", 16)
    x, _, positions, blocks, matrix = problem(16)
    variables = tf.Variable(positions.astype(np.int64)), tf.Variable(blocks)
    multiply = product_of("native", *matrix.shape, 16)
    run = tf.function(lambda x: multiply(x, variables[1], variables[0]))
    assert_close(run(tf.constant(x)), x @ matrix)
    _, _, positions, blocks, matrix = problem(16, seed=1)
    variables[0].assign(positions)
    variables[1].assign(blocks)
    assert_close(run(tf.constant(x)), x @ matrix)
    assert run.experimental_get_tracing_count() == 1


@pytest.mark.parametrize("kernel", ["masked", "native"])
def test_the_layer_against_a_dense_layer(kernel):
    skip_without(kernel, 4)
    rng = np.random.default_rng(2)
    matrix, bias = rng.normal(size=(24, 40)).astype(np.float32), rng.normal(size=40).astype(np.float32)
    layer = BlockSparseDense(40, 4, count=11, kernel=kernel)
    x = rng.normal(size=(2, 3, 24)).astype(np.float32)
    layer(x)
    layer.choose_pattern(random_pattern(Grid(6, 10), 11, 3))
    layer.kernel.assign(matrix)
    layer.bias.assign(bias)
    dense = layer.dense()
    assert (dense != 0).sum() == 11 * 16 and set(dense[dense != 0]) <= set(matrix.ravel())
    assert_close(layer(x), x @ dense + bias)
    assert [tuple(v.shape) for v in layer.trainable_variables] == [(11, 4, 4), (40,)]


def test_without_a_pattern_the_largest_blocks_of_a_dense_matrix_are_taken():
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


def test_the_gradient_of_a_probe_is_the_dense_gradient():
    layer = BlockSparseDense(8, 4, count=3, kernel="masked")
    x = tf.random.stateless_normal((5, 16), (1, 2))
    layer(x)
    layer.kernel.assign(np.random.default_rng(4).normal(size=(16, 8)).astype(np.float32))
    before = layer(x).numpy()
    with tf.GradientTape() as tape:
        probe = tf.zeros((16, 8))
        tape.watch(probe)
        with layer.probing(probe):
            y = layer(x)
        loss = tf.reduce_sum(tf.sin(y))
    np.testing.assert_array_equal(y, before)
    np.testing.assert_allclose(tape.gradient(loss, probe), x.numpy().T @ np.cos(before), rtol=1e-5, atol=1e-6)
    assert sparse_layers(layer) == [layer]


class SumOfSines:
    """An objective of one term: the sum of sin(y) over so many numbers."""

    losses = ("sines",)

    def sums(self, outputs, batch):
        return {"sines": tf.reduce_sum(tf.sin(outputs))}

    def counts(self, batch):
        return {"sines": tf.constant(20.0)}


def test_norms_of_the_dense_gradient_by_block():
    inputs = keras.Input((16,), name="x")
    layer = BlockSparseDense(8, 4, count=3, kernel="masked", use_bias=False)
    model = keras.Model({"x": inputs}, layer(inputs))
    layer.kernel.assign(np.random.default_rng(6).normal(size=(16, 8)).astype(np.float32))
    x = np.random.default_rng(7).normal(size=(5, 16)).astype(np.float32)
    (found,) = DenseGradients(model, SumOfSines(), [layer]).block_norms({"x": tf.constant(x)})
    gradient = x.T @ np.cos(x @ layer.dense()) / 20
    expected = [
        np.linalg.norm(gradient[row * 4 : row * 4 + 4, column * 4 : column * 4 + 4])
        for column in range(2)
        for row in range(4)
    ]
    np.testing.assert_allclose(found, expected, rtol=1e-5)


def test_a_matrix_becomes_blocks_and_comes_back():
    rng = np.random.default_rng(5)
    matrix = rng.normal(size=(12, 20)).astype(np.float32)
    blocks = all_blocks(matrix, 4)
    np.testing.assert_array_equal(blocks[1], matrix[4:8, :4])  # down the first column
    np.testing.assert_array_equal(blocks[3], matrix[:4, 4:8])
    np.testing.assert_array_equal(dense_matrix(blocks, np.arange(15), (12, 20)), matrix)
    np.testing.assert_allclose(norms(blocks)[1], np.linalg.norm(matrix[4:8, :4]), rtol=1e-6)
    assert largest_blocks(np.array([3.0, 1.0, 3.0, 5.0]), 2).tolist() == [0, 3]


def test_the_choice_says_why():
    assert choose("auto", 16, 0.1, on_host=False).kernel == "gather"
    assert choose("auto", 16, 0.1, on_host=False, on_gpu=True).kernel == "masked"
    assert (
        choose("auto", 8, 0.1, on_host=False).reason
        == "with 8×8 blocks inside XLA masked dense is faster at any density"
    )
    assert choose("auto", 1, 0.1, on_host=True).kernel == "masked"
    assert choose("gather", 1, 0.1, on_host=True) == ("gather", "as sparsity.kernel says")
    dense = choose("auto", 16, 0.99, on_host=True)
    assert dense.kernel == "masked" and dense.reason
    if native.is_available():
        assert choose("auto", 16, 0.1, on_host=True).kernel == "native"
