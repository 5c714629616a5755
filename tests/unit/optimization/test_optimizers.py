"""AdamW, LAMB and Muon, compared with the papers' algorithms in numpy (float64), and with PyTorch if installed."""

from __future__ import annotations

import itertools

import numpy as np
import pytest

from keras_extensions.backend import keras, tf
from optimization.muon import Muon, orthogonalized
from optimization.optimizers import LAMB, AdamW

SHAPES = [(3, 4), (7,), (), (5, 2, 3), (1, 1), (6,)]
RATE, DECAY, BETA_1, BETA_2, EPSILON = 1e-2, 0.1, 0.9, 0.999, 1e-6


def reference(name, weights, gradients, rates, adapted):
    """Return one variable's weights after the updates, by the papers' algorithms in float64."""
    w = weights.astype(np.float64)
    m, v = np.zeros_like(w), np.zeros_like(w)
    for t, (g, rate) in enumerate(zip(gradients, rates, strict=True), start=1):
        g = g.astype(np.float64)
        m = BETA_1 * m + (1 - BETA_1) * g
        v = BETA_2 * v + (1 - BETA_2) * g**2
        r = (m / (1 - BETA_1**t)) / (np.sqrt(v / (1 - BETA_2**t)) + EPSILON)
        if name == "AdamW":
            w = w - rate * r - (rate * DECAY * w if adapted else 0)
            continue
        u = r + DECAY * w if adapted else r
        norms = np.linalg.norm(w.ravel()), np.linalg.norm(u.ravel())
        ratio = norms[0] / norms[1] if adapted and norms[0] > 0 and norms[1] > 0 else 1.0
        w = w - rate * ratio * u
    return w


def make(name, rate=RATE, **kwargs):
    return {"AdamW": AdamW, "LAMB": LAMB, "Muon": Muon}[name](
        rate, weight_decay_rate=DECAY, beta_1=BETA_1, beta_2=BETA_2, epsilon=EPSILON, **kwargs
    )


def run(optimizer, start, gradients, dtype="float32", wrap=lambda step: step):
    """Apply ``gradients[t][k]`` to variables with the initial values ``start[k]``; return the variables."""
    variables = [tf.Variable(w, dtype=dtype) for w in start]

    def step(values):
        optimizer.apply_gradients(list(zip(values, variables, strict=True)))

    step = wrap(step)
    for values in gradients:
        step([tf.constant(g, dtype) for g in values])
    return variables


@pytest.fixture(scope="module")
def problem():
    rng = np.random.default_rng(7)
    start = [np.asarray(rng.normal(size=shape), np.float32) for shape in SHAPES]
    scales = [1e-3, 1.0, 10.0, 1e-5, 1.0, 1e-2]
    gradients = [
        [np.asarray(rng.normal(size=s) * scale, np.float32) for s, scale in zip(SHAPES, scales, strict=True)]
        for _ in range(20)
    ]
    return start, gradients


def xla(function):
    return tf.function(function, jit_compile=True)


@pytest.mark.parametrize("name", ["AdamW", "LAMB"])
@pytest.mark.parametrize("wrap, scheduled", [(lambda f: f, False), (tf.function, False), (xla, True)])
def test_twenty_updates_follow_the_paper(problem, name, wrap, scheduled):
    """A schedule is called with the number of completed updates: 0 in the first update."""
    start, gradients = problem
    rates = [RATE * (1 - t / 40) if scheduled else RATE for t in range(20)]
    schedule = keras.optimizers.schedules.PolynomialDecay(RATE, 40, 0.0)
    optimizer = make(name, schedule if scheduled else RATE)
    for k, variable in enumerate(run(optimizer, start, gradients, wrap=wrap)):
        expected = reference(name, start[k], [g[k] for g in gradients], rates, adapted=start[k].ndim >= 2)
        np.testing.assert_allclose(variable.numpy(), expected, atol=1e-6, rtol=0)
    assert int(optimizer.iterations) == 20
    assert float(optimizer.learning_rate) == pytest.approx(rates[-1])


@pytest.mark.parametrize("wrap", [lambda f: f, tf.function, xla])
@pytest.mark.parametrize("state_device", [None, "CPU:0"])
def test_published_decay_of_adamw_is_that_of_tensorflow_addons(problem, wrap, state_device):
    """All variables are multiplied by 1 - λ, then Adam updates them: ``extend_with_decoupled_weight_decay``."""
    start, gradients = problem
    rates = [RATE * (1 - t / 40) for t in range(20)]
    schedule = keras.optimizers.schedules.PolynomialDecay(RATE, 40, 0.0)
    optimizer = make("AdamW", schedule, published_decay=True, state_device=state_device)
    for k, variable in enumerate(run(optimizer, start, gradients, wrap=wrap)):
        without = [reference("AdamW", start[k], [g[k] for g in gradients[:t]], rates[:t], False) for t in range(21)]
        expected = start[k].astype(np.float64)
        for before, after in itertools.pairwise(without):
            expected = expected * (1 - DECAY) + (after - before)
        np.testing.assert_allclose(variable.numpy(), expected, atol=1e-6, rtol=0)


@pytest.mark.parametrize("published", [False, True])
def test_published_decay_of_lamb_includes_gains(published):
    names = {"LayerNorm/gamma": published, "LayerNorm/beta": False, "dense/bias": False}
    rng = np.random.default_rng(3)
    variables = [tf.Variable(rng.normal(size=5).astype(np.float32), name=name) for name in names]
    start = [variable.numpy() for variable in variables]
    gradients = [rng.normal(size=5).astype(np.float32) for _ in names]
    make("LAMB", published_decay=published).apply_gradients(list(zip(map(tf.constant, gradients), variables)))
    for variable, before, gradient, decays in zip(variables, start, gradients, names.values()):
        expected = reference("LAMB", before, [gradient], [RATE], False) - (RATE * DECAY * before if decays else 0)
        np.testing.assert_allclose(variable.numpy(), expected, atol=1e-6, rtol=0)


@pytest.mark.parametrize("name", ["AdamW", "LAMB"])
@pytest.mark.parametrize("compiled", [False, True])
def test_weights_of_one_shape_share_one_trace(name, compiled):
    rng = np.random.default_rng(9)
    start = [rng.normal(size=(13, 3 + compiled)).astype(np.float32) for _ in range(3)]
    gradients = [[rng.normal(size=value.shape).astype(np.float32) for value in start] for _ in range(5)]
    optimizer = make(name)
    assert not compiled or optimizer.compile_steps()
    step = optimizer.compiled_step if compiled else optimizer.traced_step
    before = step.experimental_get_tracing_count()
    for k, variable in enumerate(run(optimizer, start, gradients, wrap=tf.function)):
        expected = reference(name, start[k], [g[k] for g in gradients], [RATE] * 5, adapted=True)
        np.testing.assert_allclose(variable.numpy(), expected, atol=1e-6, rtol=0)
    assert step.experimental_get_tracing_count() == before + 1


@pytest.mark.parametrize("wrap", [lambda f: f, tf.function, xla])
def test_adamws_first_updates_are_exact_to_float32(wrap):
    """With a constant gradient each update is η · g / (|g| + ε), whatever the rounding of the betas."""
    gradient = np.asarray([3.0, -1e-2, 0.5, 1e-4], np.float32)
    for updates in (1, 2, 10):
        (variable,) = run(make("AdamW"), [np.zeros(4, np.float32)], [[gradient]] * updates, wrap=wrap)
        exact = -updates * RATE * gradient / (np.abs(gradient.astype(np.float64)) + EPSILON)
        np.testing.assert_allclose(variable.numpy(), exact, rtol=1e-6)


@pytest.fixture
def torch():
    return pytest.importorskip("torch", reason="needs PyTorch: pip install -r requirements-bench.txt")


@pytest.fixture
def torch_with_muon(torch):
    if not hasattr(torch.optim, "Muon"):
        pytest.skip("needs PyTorch 2.9 or later")
    return torch


def test_adamw_equals_torch(problem, torch):
    start, gradients = problem
    variables = run(make("AdamW"), start, gradients)
    parameters = [torch.nn.Parameter(torch.tensor(w)) for w in start]
    groups = [
        {"params": [p for p in parameters if p.ndim >= 2], "weight_decay": DECAY},
        {"params": [p for p in parameters if p.ndim < 2], "weight_decay": 0.0},
    ]
    optimizer = torch.optim.AdamW(groups, lr=RATE, betas=(BETA_1, BETA_2), eps=EPSILON)
    for values in gradients:
        for parameter, gradient in zip(parameters, values, strict=True):
            parameter.grad = torch.tensor(gradient)
        optimizer.step()
    for variable, parameter in zip(variables, parameters, strict=True):
        np.testing.assert_allclose(variable.numpy(), parameter.detach().numpy(), atol=2e-6, rtol=0)


MATRICES = {"square": (24, 24), "tall": (40, 16), "wide": (16, 40)}


def newton_schulz(x):
    """Return an orthogonalized matrix, by Jordan et al. 2024 in float64; the smaller side is transposed to the rows."""
    if x.shape[0] > x.shape[1]:
        return newton_schulz(x.T).T
    x = x / np.linalg.norm(x)
    for _ in range(5):
        a = x @ x.T
        x = 3.4445 * x + (-4.7750 * a + 2.0315 * a @ a) @ x
    return x


def muon_reference(weights, gradients, scale=None):
    """Return a matrix after updates with momentum 0.95, and the scale and decay of Liu et al. 2025, in float64."""
    w, m = weights.astype(np.float64), 0.0
    scale = 0.2 * np.sqrt(max(w.shape)) if scale is None else scale
    for g in gradients:
        m = 0.95 * m + 0.05 * g.astype(np.float64)
        update = newton_schulz(0.95 * m + 0.05 * g) * scale
        w = w - RATE * (update + DECAY * w)
    return w


@pytest.fixture(scope="module")
def matrices():
    """Initial values, and the gradients of five updates, of matrices and of a table and a vector for AdamW."""
    rng = np.random.default_rng(8)
    shapes = [*MATRICES.values(), (30, 8), (9,)]
    start = [rng.normal(size=shape).astype(np.float32) for shape in shapes]
    return start, [[1e-3 * rng.normal(size=shape).astype(np.float32) for shape in shapes] for _ in range(5)]


def run_muon(start, gradients, parts=1, wrap=tf.function, dtype="float32", **options):
    """Return the variables and the optimizer after updates; those with names of ``MATRICES`` are Muon's."""
    variables = [tf.Variable(value, dtype=dtype) for value in start]
    pairs = [(variable, parts) for variable in variables[: len(MATRICES)]]
    optimizer = make("Muon", matrices=pairs, **options)
    step = wrap(lambda values: optimizer.apply_gradients(list(zip(values, variables, strict=True))))
    for values in gradients:
        step([tf.constant(value, dtype) for value in values])
    return variables, optimizer


@pytest.mark.parametrize("wrap, scale", [(tf.function, None), (xla, None), (tf.function, 3.0)])
def test_muon_follows_the_papers_and_other_variables_adamw(matrices, wrap, scale):
    start, gradients = matrices
    variables, optimizer = run_muon(start, gradients, wrap=wrap, scale=scale)
    for k, variable in enumerate(variables):
        of_variable = [values[k] for values in gradients]
        if k < len(MATRICES):
            expected = muon_reference(start[k], of_variable, scale)
        else:
            expected = reference("AdamW", start[k], of_variable, [RATE] * 5, start[k].ndim >= 2)
        np.testing.assert_allclose(variable.numpy(), expected, atol=1e-5, rtol=0)
        assert np.abs(expected - start[k]).max() > 1e-2
    first, second = optimizer.moments(variables[0])
    assert first.shape == (24, 24) and second.shape == (0,)


@pytest.mark.parametrize(
    "scale, options",
    [
        (None, {"lr": RATE, "weight_decay": DECAY, "adjust_lr_fn": "match_rms_adamw"}),
        (3.0, {"lr": 3.0 * RATE, "weight_decay": DECAY / 3.0, "adjust_lr_fn": "original"}),
    ],
)
def test_muon_equals_torch_within_bfloat16(matrices, scale, options, torch_with_muon):
    """PyTorch's "original" scale is larger for matrices with more rows than columns, which are left out."""
    torch = torch_with_muon
    start, gradients = matrices
    variables, _ = run_muon(start, gradients, product_dtype="bfloat16", scale=scale)
    compared = [k for k, (rows, columns) in enumerate(MATRICES.values()) if scale is None or rows <= columns]
    parameters = {k: torch.nn.Parameter(torch.tensor(start[k])) for k in compared}
    optimizer = torch.optim.Muon(parameters.values(), **options)
    for values in gradients:
        for k, parameter in parameters.items():
            parameter.grad = torch.tensor(values[k])
        optimizer.step()
    for k, parameter in parameters.items():
        variable, before, theirs = variables[k], start[k], parameter.detach().numpy()
        assert np.linalg.norm(variable.numpy() - theirs) < 0.02 * np.linalg.norm(theirs - before)


def test_muon_in_bfloat16_rounds_like_torch(torch_with_muon):
    """After 50 updates; with the coefficients in bfloat16 the distance from float32 was 3 %."""
    torch, rng = torch_with_muon, np.random.default_rng(2)
    start = [np.zeros((64, 96), np.float32)]
    gradients = [[rng.normal(size=(64, 96)).astype(np.float32)] for _ in range(50)]
    parameter = torch.nn.Parameter(torch.tensor(start[0]))
    optimizer = torch.optim.Muon([parameter], lr=RATE, weight_decay=DECAY, adjust_lr_fn="match_rms_adamw")
    for (values,) in gradients:
        parameter.grad = torch.tensor(values)
        optimizer.step()
    formats = ("float32", "bfloat16")
    ours = {dtype: run_muon(start, gradients, product_dtype=dtype)[0][0].numpy() for dtype in formats}
    theirs = np.linalg.norm(parameter.detach().numpy() - ours["float32"])
    assert np.linalg.norm(ours["bfloat16"] - ours["float32"]) < 2 * theirs
    assert theirs < 0.01 * np.linalg.norm(ours["float32"])


@pytest.mark.parametrize("shape", MATRICES.values(), ids=MATRICES)
@pytest.mark.parametrize("dtype", [tf.float32, tf.bfloat16])
def test_singular_values_of_an_orthogonalized_matrix(shape, dtype):
    """The band is that of Jordan et al. 2024; bfloat16 adds its roundings. Singular vectors stay."""
    rng, rank = np.random.default_rng(9), min(shape)
    u, v = (np.linalg.qr(rng.normal(size=(side, rank)))[0] for side in shape)
    x = (u * np.geomspace(1e-3, 2e-2, rank)) @ v.T
    values = u.T @ orthogonalized(tf.constant(x, tf.float32), dtype).numpy() @ v
    slack = 0.0 if dtype == tf.float32 else 0.05
    assert np.all((np.diag(values) > 0.68 - slack) & (np.diag(values) < 1.21 + slack))
    assert np.abs(values - np.diag(np.diag(values))).max() < 1e-5 + slack


def test_merged_matrices_are_updated_separately(matrices):
    start, gradients = matrices
    alone = [start[0][:, :8], start[0][:, 8:16], start[0][:, 16:]]
    separate_gradients = [[values[0][:, :8], values[0][:, 8:16], values[0][:, 16:]] for values in gradients]
    separate, _ = run_muon(alone, separate_gradients)
    merged, _ = run_muon(start[:1], [values[:1] for values in gradients], parts=3)
    np.testing.assert_allclose(merged[0].numpy(), np.concatenate(separate, axis=1), atol=1e-6)


def test_muon_in_low_precision_has_float32_momentum(matrices):
    start, gradients = matrices
    for dtype in ("float16", "bfloat16"):
        variables, optimizer = run_muon(start, gradients, dtype=dtype, rounding_seed=3)
        assert {moment.dtype for moment in optimizer.variables[2:]} == {tf.float32}
        for k, (variable, before) in enumerate(zip(variables[:3], start)):
            expected = muon_reference(before, [values[k] for values in gradients])
            difference = tf.cast(variable, tf.float32).numpy() - expected
            assert np.abs(difference).max() < 5 * (2**-8 if dtype == "bfloat16" else 2**-11) * np.abs(before).max()
            assert np.abs(difference.mean()) < np.abs(difference).max() / 10  # stochastic rounding has no bias


@pytest.mark.parametrize("name", ["AdamW", "LAMB"])
def test_float16_weights_have_float32_moments(name):
    """In float16 the second moment (1e-5)² would be 0, and the update of another size."""
    start, gradient = np.full((2, 3), 0.5, np.float16), np.full((2, 3), 1e-5, np.float16)
    optimizer = make(name)
    (variable,) = run(optimizer, [start], [[gradient]] * 3, dtype="float16")
    first, second = optimizer.moments(variable)
    assert first.dtype == second.dtype == tf.float32
    exact = float(gradient[0, 0])
    np.testing.assert_allclose(second.numpy(), exact**2 * (1 - BETA_2**3), rtol=1e-5)
    np.testing.assert_allclose(first.numpy(), exact * (1 - BETA_1**3), rtol=1e-5)
    w = start
    for t in range(1, 4):  # Each update starts from the weights rounded to float16.
        m, v = exact * (1 - BETA_1**t), exact**2 * (1 - BETA_2**t)
        u = (m / (1 - BETA_1**t)) / (np.sqrt(v / (1 - BETA_2**t)) + EPSILON) + DECAY * w.astype(np.float64)
        ratio = np.linalg.norm(w.astype(np.float64)) / np.linalg.norm(u) if name == "LAMB" else 1.0
        w = (w - RATE * ratio * u).astype(np.float16)
    np.testing.assert_array_equal(variable.numpy(), w)


@pytest.mark.parametrize("start, gradient", [(0.0, 1.0), (1.0, 0.0)], ids=["no weights", "no direction"])
def test_lamb_trust_ratio_is_one_where_a_norm_is_zero(start, gradient):
    optimizer = LAMB(RATE, weight_decay_rate=0.0, epsilon=EPSILON)
    (variable,) = run(optimizer, [np.full((2, 2), start)], [[np.full((2, 2), gradient)]])
    expected = start - RATE * (gradient / (abs(gradient) + EPSILON))
    np.testing.assert_allclose(variable.numpy(), expected, rtol=1e-6)


@pytest.mark.parametrize("name", ["AdamW", "LAMB"])
def test_global_norm_clipping(problem, name):
    start, gradients = problem
    clipped = []
    for values in gradients:
        norm = np.sqrt(sum(np.sum(g.astype(np.float64) ** 2) for g in values))
        clipped.append([(g * min(1.0, 0.5 / norm)).astype(np.float32) for g in values])
    variables = run(make(name, global_clipnorm=0.5), start, gradients)
    for k, variable in enumerate(variables):
        expected = reference(name, start[k], [g[k] for g in clipped], [RATE] * 20, adapted=start[k].ndim >= 2)
        np.testing.assert_allclose(variable.numpy(), expected, atol=2e-6, rtol=0)


@pytest.mark.parametrize("jit", [False, True], ids=["graph", "xla"])
def test_embedding_lookup_gradients_are_summed(jit):
    """Row 1 is looked up twice, row 2 never; the update equals that of the dense gradient, with decay of all rows."""
    start = np.arange(1.0, 9.0, dtype=np.float32).reshape(4, 2)
    table, optimizer = tf.Variable(start), make("AdamW")

    @tf.function(jit_compile=jit)
    def step():
        with tf.GradientTape() as tape:
            loss = tf.reduce_sum(tf.gather(table, [1, 1, 0, 3]))
        optimizer.apply_gradients([(tape.gradient(loss, table), table)])

    step()
    dense = np.array([[1, 1], [2, 2], [0, 0], [1, 1]], np.float32)
    np.testing.assert_allclose(table.numpy(), reference("AdamW", start, [dense], [RATE], True), atol=1e-6)
