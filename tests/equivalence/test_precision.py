"""Low-precision formats agree with float32 to their precision, and overflows are handled."""

from __future__ import annotations

import dataclasses
import functools

import numpy as np
import pytest

from checkpoints.state import by_name, variable_names
from execution.interface import OptimizerSettings, Update
from execution.software import trainable_model
from execution.software.platform import SoftwarePlatform
from execution.software.precision import Numerics
from keras_extensions.backend import tf
from keras_extensions.schedules import WarmUp
from model.blocks import hidden_matrices
from model.losses import PretrainingObjective
from model.tasks import PRETRAINING
from optimization.optimizers import AdamW
from pipeline.platform import PipelinePlatform  # room: pipeline
from tests.support.bert_pairs import (
    ROUNDING,
    architecture,
    batch,
    dataset_of,
    on_cpu,
    pair_of,
    source_with_random_weights,
)
from tests.support.updates import make_updates
from utilities.errors import UserError

pytestmark = pytest.mark.slow

LOW_PRECISION = sorted(ROUNDING)
A = architecture()
SAMPLES = 8
STAGES = [["emb", "hid_0"], ["hid_1"], ["enc_out", "pool", "heads"]]
# The words' table is in two stages.
PIPELINED = {"kind": functools.partial(PipelinePlatform, ["/CPU:0", "/CPU:1", "/CPU:0"])}  # room: pipeline
COMPILED, RECOMPUTED, BOTH = {"xla": True}, {"recompute": True}, {"xla": True, "recompute": True}
UPDATES = [("float16", BOTH), ("bfloat16", RECOMPUTED)]
OTHERS = [("bfloat16", COMPILED), ("float16", COMPILED), ("float16", RECOMPUTED), ("bfloat16", BOTH)]


@functools.cache
def source(task=PRETRAINING):
    return source_with_random_weights(A, task)


def built(precision, xla=False, recompute=False, kind=SoftwarePlatform, fused_float32=False, a=A, **numerics):
    options = {"xla": xla, "recompute": recompute, "kind": kind, "fused_float32": fused_float32}
    on = on_cpu(**options, numerics=Numerics(precision, **numerics))
    return pair_of(source(), a, on, stages=STAGES if on.pipelined else None)


def fitted(pair, objective, update, data, rate=0.02, name="AdamW"):
    """Return the optimizer and the metrics of the last update; updates are proportional to the gradient."""
    # With so large an epsilon the update is proportional to the gradient, whose noise Adam would amplify.
    settings = OptimizerSettings(name, WarmUp(rate, 8, 0.0), 0.0, epsilon=0.1, matrices=hidden_matrices(pair.blocks))
    optimizer = pair.platform.optimizer(settings)
    pair.platform.compile(pair.model, optimizer, objective, update, 1)
    (means,) = make_updates(pair.platform, pair.model, dataset_of(data, update.micro_batches), len(data))
    return optimizer, means


def trained(precision, update=None, steps=2, spoil=lambda model: None, name="AdamW", **options):
    pair = built(precision, **options)
    spoil(pair.model)
    data = [batch(A, SAMPLES, seed=step) for step in range(steps)]
    return (pair.model, *fitted(pair, PretrainingObjective(), update or Update(2), data, name=name))


def arrays(variables):
    return [tf.cast(variable, tf.float32).numpy() for variable in variables]


def difference(one, other):
    return max(np.abs(a - b).max() / np.abs(b).max() for a, b in zip(arrays(one), arrays(other), strict=True))


@pytest.fixture(scope="module")
def whole():
    return trained("float32")


@pytest.mark.parametrize("precision", LOW_PRECISION)
def test_weights_and_computation_have_the_format_and_logits_are_those_of_float32(precision):
    wide, narrow = built("float32").model, built(precision).model
    assert {weight.dtype for weight in narrow.weights} == {tf.as_dtype(precision)}
    data = batch(A)
    theirs, ours = wide(data), narrow(data)
    for name, logits in ours.items():
        assert logits.dtype == tf.as_dtype(precision)
        expected = theirs[name].numpy()
        error = np.abs(tf.cast(logits, tf.float32).numpy() - expected).max() / np.abs(expected).max()
        assert 0 < error < 12 * ROUNDING[precision], "some twenty roundings one after the other, most of them smaller"


@pytest.mark.parametrize(
    "precision, options", [*UPDATES, *(pytest.param(*case, marks=pytest.mark.long) for case in OTHERS)], ids=str
)
def test_updates_are_those_of_float32(whole, precision, options):
    model, optimizer, history = trained(precision, Update(2, loss_scale=128.0), **options)
    limit = 8 * ROUNDING[precision]
    assert difference(model.trainable_variables, whole[0].trainable_variables) < limit
    assert {variable.dtype for variable in optimizer.variables[2:]} == {tf.float32}
    moments = [(v.numpy(), w.numpy()) for v, w in zip(optimizer.variables, whole[1].variables, strict=True)]
    for ours, theirs in moments[2:]:
        scale = max(np.abs(theirs).max(), 1e-6)
        assert np.abs(ours - theirs).max() / scale < 40 * ROUNDING[precision]
    assert history["mlm_loss"] == pytest.approx(whole[2]["mlm_loss"], rel=limit)
    assert history["overflows"] == 0.0


@pytest.mark.parametrize(
    "options",
    [BOTH, {"fp_exceptions": True}, *(pytest.param(one, marks=pytest.mark.long) for one in ({}, COMPILED, RECOMPUTED))],
    ids=str,
)
def test_mixed_precision_is_float32_to_the_digits_of_bfloat16(whole, options):
    one = model, _, history = trained("mixed_bfloat16", Update(2), **options)
    assert {weight.dtype for weight in model.weights} == {tf.float32}
    assert_gradients(one, whole, largest=12, length=8)
    assert history["mlm_loss"] == pytest.approx(whole[2]["mlm_loss"], rel=2 * ROUNDING["bfloat16"])
    assert "overflows" not in history


def losses_in_float32(name="AdamW", **options):
    """Return the losses of ten updates on one batch, with dropout, and the names of the weights in a checkpoint."""
    a = dataclasses.replace(A, hidden_dropout_prob=0.1, attention_probs_dropout_prob=0.1)
    pair, objective = built("float32", a=a, **options), PretrainingObjective()
    settings = OptimizerSettings(name, WarmUp(0.002, 20, 0.0), 0.01, matrices=hidden_matrices(pair.blocks))
    pair.platform.compile(pair.model, pair.platform.optimizer(settings), objective, Update(2), 1)
    data = dataset_of([batch(A, SAMPLES)] * 10, 2)
    periods = make_updates(pair.platform, pair.model, data, 10, per_call=1)
    weights = [weight for block in pair.blocks for weight in block.weights]
    losses = [[period[name] for name in objective.losses] for period in periods]
    return np.array(losses), variable_names(weights, by_name(pair.blocks))


@pytest.fixture(scope="module")
def plain_losses():
    """A function that returns the losses of a plain graph and its names; each optimizer is trained once."""
    return functools.cache(losses_in_float32)


@pytest.mark.usefixtures("logical_devices")
@pytest.mark.parametrize(
    "options",
    [
        *({"name": "Muon"}, RECOMPUTED),
        PIPELINED,  # room: pipeline
        *(pytest.param(one, marks=pytest.mark.long) for one in ({}, {"name": "LAMB"})),
    ],
)
def test_fused_parts_have_the_losses_of_a_plain_graph(plain_losses, options):
    """And weights of the same names, so that either resumes a run of the other."""
    plain, names = plain_losses(options.get("name", "AdamW"))
    fused, theirs = losses_in_float32(fused_float32=True, **options)
    assert plain[-1, 0] < 0.98 * plain[0, 0]
    np.testing.assert_allclose(fused, plain, rtol=1e-6)
    assert theirs == names


def test_training_uses_what_compile_only_has_compiled():
    """Also for accumulated gradients; those of one micro batch have another format."""
    data, traced = [batch(A, SAMPLES)], []
    for compiles_only in (True, False):
        pair, before = built("mixed_bfloat16"), AdamW.compiled_step.experimental_get_tracing_count()
        optimizer = pair.platform.optimizer(OptimizerSettings("AdamW", WarmUp(0.01, 8, 0.0), beta_1=0.7))
        pair.platform.compile(pair.model, optimizer, PretrainingObjective(), Update(2), 1)
        if compiles_only:
            pair.platform.compile_step(pair.model, dataset_of(data, 2).element_spec)
        else:
            make_updates(pair.platform, pair.model, dataset_of(data, 2), 1)
        traced.append(AdamW.compiled_step.experimental_get_tracing_count() - before)
    assert traced[0] > 0 and traced[1] == 0


@pytest.mark.parametrize(
    ("precision", "name"),
    [
        ("float32", "Muon"),
        ("mixed_bfloat16", "AdamW"),
        *(pytest.param("float32", name, marks=pytest.mark.long) for name in ("AdamW", "LAMB")),
        pytest.param("float16", "AdamW", marks=pytest.mark.long),
    ],
)
def test_updates_that_are_one_program_as_on_gpus_are_the_same(monkeypatch, precision, name):
    """Three updates in two programs. In mixed precision, one product makes queries, keys and values, rounded once."""
    monkeypatch.setattr(trainable_model, "MICRO_BATCHES_PER_PROGRAM", 5)  # two updates of two
    pair, data = built(precision, xla=True), [batch(A, SAMPLES, seed=step) for step in range(3)]
    pair.platform.on_gpu = True
    update = Update(2, loss_scale=128.0, adaptive_loss_scale=precision == "float16")
    _, means = fitted(pair, PretrainingObjective(), update, data, name=name)
    model, _, expected = trained(precision, update, steps=3, xla=True, name=name)
    assert (pair.model.engine.one_program, model.engine.one_program) == (True, False)
    tolerance = ROUNDING["bfloat16"] / 2 if precision == "mixed_bfloat16" else 1e-5
    assert difference(pair.model.trainable_variables, model.trainable_variables) < tolerance
    assert means == pytest.approx(expected, rel=tolerance)


def assert_gradients(one, other, largest, length):
    """Compare each weight's gradient, the first moment, by its largest value and its norm, in roundings to bfloat16."""
    for weight, its in zip(one[0].trainable_variables, other[0].trainable_variables, strict=True):
        ours, expected = (result[1].moments(variable)[0].numpy() for result, variable in ((one, weight), (other, its)))
        # The floor is for the bias of keys, which changes no softmax: its gradient is 0.
        most, norm = max(np.abs(expected).max(), 1e-5), max(np.linalg.norm(expected), 1e-5)
        assert np.abs(ours - expected).max() / most < largest * ROUNDING["bfloat16"], weight.name
        assert np.linalg.norm(ours - expected) / norm < length * ROUNDING["bfloat16"], weight.name


def muon_updates(precision):
    before = arrays(built("float32").model.trainable_variables)
    scale = 128.0 if precision == "float16" else 1.0
    model, *_ = trained(precision, Update(2, loss_scale=scale), name="Muon", stochastic_rounding=True)
    return np.concatenate([(after - start).ravel() for after, start in zip(arrays(model.trainable_variables), before)])


@pytest.fixture(scope="module")
def muon_in_float32():
    return muon_updates("float32")


@pytest.mark.parametrize(
    "precision", ["mixed_bfloat16", *(pytest.param(one, marks=pytest.mark.long) for one in LOW_PRECISION)]
)
def test_updates_of_muon_are_those_of_float32(muon_in_float32, precision):
    """Where singular values of a gradient are as small as its noise, singular vectors differ, hence the low bound."""
    ours, theirs = muon_updates(precision), muon_in_float32
    assert ours @ theirs > 0.9 * np.linalg.norm(ours) * np.linalg.norm(theirs)
    assert np.linalg.norm(ours) == pytest.approx(np.linalg.norm(theirs), rel=0.05)


@pytest.fixture(scope="module")
def mixed():
    return trained("mixed_bfloat16", steps=1)


@pytest.mark.usefixtures("logical_devices")
@pytest.mark.parametrize(
    "options",
    [
        RECOMPUTED,
        PIPELINED,  # room: pipeline
    ],
)
def test_in_mixed_precision_recomputation_and_stages_change_gradients_by_roundings(mixed, options):
    """Where TensorFlow fuses other operations, another intermediate value is rounded to bfloat16."""
    assert_gradients(trained("mixed_bfloat16", steps=1, **options), mixed, largest=4, length=4)


def test_stochastic_rounding_and_rounding_to_nearest_differ_by_one_rounding(whole):
    """``tests/integration/test_precision.py`` has the same stochastic rounding after a resume."""
    rounded, _, _ = trained("float16", stochastic_rounding=True)
    nearest, _, _ = trained("float16")
    assert 0 < difference(rounded.trainable_variables, nearest.trainable_variables) < 8 * ROUNDING["float16"]
    assert difference(rounded.trainable_variables, whole[0].trainable_variables) < 8 * ROUNDING["float16"]


@pytest.mark.parametrize(
    "scaling, name", [({}, "AdamW"), ({"adaptive_loss_scale": True}, "Muon")], ids=["static", "automatic"]
)
def test_an_update_that_overflows_is_left_out_to_the_bit(scaling, name):
    before = built("float16").model
    model, optimizer, history = trained("float16", Update(2, loss_scale=2.0**24, **scaling), steps=1, name=name)
    assert history["overflows"] == 1.0
    assert int(optimizer.iterations) == 0
    assert not any(moment.numpy().any() for weight in model.trainable_variables for moment in optimizer.moments(weight))
    for one, other in zip(arrays(model.trainable_variables), arrays(before.trainable_variables), strict=True):
        np.testing.assert_array_equal(one, other)
    assert history.get("loss_scale") == (2.0**24 if scaling else None)


def test_in_float32_nothing_is_counted_and_nothing_adapts(whole):
    model, _, history = trained("float32", Update(2, loss_scale=1024.0, adaptive_loss_scale=True))
    assert not {"overflows", "loss_scale"} & history.keys()
    for one, other in zip(arrays(model.trainable_variables), arrays(whole[0].trainable_variables), strict=True):
        np.testing.assert_array_equal(one, other)


def spoiled(path):
    def spoil(model):
        variable = next(weight for weight in model.weights if path in weight.name)
        values = variable.numpy()
        values.flat[0] = np.nan
        variable.assign(values)

    return spoil


@pytest.mark.parametrize(
    "weight, layer",
    [
        ("hid_1/encoder_layer/attention/query/kernel", "hid_1/encoder_layer/attention/scaled_dot_product gave NaN"),
        pytest.param("pooler/dense/kernel", "the model's output next_sentence gave NaN", marks=pytest.mark.long),
        pytest.param(
            *("hid_0/encoder_layer/intermediate/dense/kernel", "hid_0/encoder_layer/intermediate/dense gave NaN"),
            marks=pytest.mark.long,
        ),
    ],
)
def test_fp_exceptions_stop_at_the_layer(weight, layer):
    with pytest.raises(UserError, match=f"fp_exceptions: {layer}"):
        trained("float16", spoil=spoiled(weight), xla=True, fp_exceptions=True)


def test_fp_exceptions_look_at_gradients_too():
    with pytest.raises(UserError, match=r"fp_exceptions: .*, gradient gave Inf"):
        trained("float16", Update(2, loss_scale=2.0**24), fp_exceptions=True)
    trained("float16", Update(2, loss_scale=2.0**24, adaptive_loss_scale=True), fp_exceptions=True)
