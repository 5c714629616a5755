"""Narrow number formats: what float32 computes, to the digits that they have; and what happens where they end."""

from __future__ import annotations

import functools

import numpy as np
import pytest

from execution.interface import OptimizerSettings, Update
from execution.software.platform import ONE_DEVICE, PipelineLayout, SoftwarePlatform
from execution.software.precision import Numerics
from keras_extensions.backend import keras, tf
from keras_extensions.schedules import UpDown
from model.architecture import PRETRAINING, SQUAD
from model.blocks import assemble
from model.conversion import convert
from model.huggingface import untrained
from model.losses import PretrainingObjective, SpanObjective
from tests.equivalence.bert_pairs import (
    architecture,
    batch,
    pretraining_shapes,
    source_with_random_weights,
    token_shapes,
)
from utilities.errors import UserError

ROUNDING = {"float16": 2.0**-11, "bfloat16": 2.0**-8}  # relative error of one rounding
NARROW = sorted(ROUNDING)
A = architecture()
SAMPLES = 8
COMPILED, RECOMPUTED, BOTH = {"xla": True}, {"recompute": True}, {"xla": True, "recompute": True}
UPDATES = [
    ("float16", BOTH),
    ("bfloat16", COMPILED),
    ("bfloat16", RECOMPUTED),
    pytest.param("float16", COMPILED, marks=pytest.mark.long),
    pytest.param("float16", RECOMPUTED, marks=pytest.mark.long),
    pytest.param("bfloat16", BOTH, marks=pytest.mark.long),
]


@functools.cache
def source():
    return source_with_random_weights(A)


@functools.cache
def span_source():
    model, random = untrained(SQUAD, A, seed=11), np.random.default_rng(5)
    for variable in model.weights:
        variable.assign(variable + random.normal(0, 0.05, variable.shape).astype("float32"))
    return model


def built(precision, xla=False, recompute=False, **numerics):
    """A platform, and a model on it, of the same weights in every format."""
    on = SoftwarePlatform(1, xla, recompute, numerics=Numerics(precision, **numerics))
    with on.scope():
        blocks, conversion = convert(PRETRAINING, source(), A, on)
    model = assemble(blocks, pretraining_shapes(24, 6), ("masked_lm", "next_sentence"), [[b.name for b in blocks]], on)
    conversion.carry_weights(source())
    return on, model


def trained(precision, update=None, steps=2, rate=0.02, spoil=lambda model: None, **options):
    """The model, its optimizer and the history after updates that are proportional to the gradient."""
    on, model = built(precision, **options)
    spoil(model)
    # With so large an epsilon the update is the gradient times a number, whose noise Adam would blow up.
    optimizer = on.optimizer(OptimizerSettings("AdamW", UpDown(rate, 8, 0.0), 0.0, epsilon=0.1))
    update = update or Update(2)
    on.compile(model, optimizer, PretrainingObjective(), update, 1)
    parts = [batch(A, SAMPLES, seed=step) for step in range(steps)]
    shaped = [
        {name: value.reshape(update.micro_batches, -1, *value.shape[1:]) for name, value in part.items()}
        for part in parts
    ]
    data = tf.data.Dataset.from_tensor_slices({name: np.stack([s[name] for s in shaped]) for name in shaped[0]})
    seen = keras.callbacks.History()
    on.fit(model, data, steps, [seen])
    return model, optimizer, {name: values[-1] for name, values in seen.history.items()}


def arrays(variables):
    return [tf.cast(variable, tf.float32).numpy() for variable in variables]


def difference(one, other):
    """Largest difference, as a share of the largest value."""
    return max(np.abs(a - b).max() / np.abs(b).max() for a, b in zip(arrays(one), arrays(other), strict=True))


@pytest.fixture(scope="module")
def whole():
    return trained("float32")


@pytest.mark.parametrize("precision", NARROW)
def test_weights_and_computation_are_narrow_and_logits_those_of_float32(precision):
    (_, wide), (_, narrow) = built("float32"), built(precision)
    assert {weight.dtype for weight in narrow.weights} == {tf.as_dtype(precision)}
    data = batch(A)
    theirs, ours = wide(data), narrow(data)
    for name, logits in ours.items():
        assert logits.dtype == tf.as_dtype(precision)
        expected = theirs[name].numpy()
        error = np.abs(tf.cast(logits, tf.float32).numpy() - expected).max() / np.abs(expected).max()
        assert 0 < error < 12 * ROUNDING[precision], "some twenty roundings one after the other, most of them smaller"


@pytest.mark.parametrize("precision, options", UPDATES, ids=str)
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


@pytest.mark.parametrize("options", [{}, COMPILED, RECOMPUTED, {"fp_exceptions": True}], ids=str)
def test_mixed_precision_is_float32_to_the_digits_of_bfloat16(whole, options):
    """Each weight's gradient, which the first moment holds, by its name; and the loss."""
    model, optimizer, history = trained("mixed_bfloat16", Update(2), **options)
    theirs_model, theirs, expected = whole
    assert {weight.dtype for weight in model.weights} == {tf.float32}
    # The floor is for the bias of keys, which changes no softmax: its gradient is 0.
    for weight, other in zip(model.trainable_variables, theirs_model.trainable_variables, strict=True):
        found, wanted = optimizer.moments(weight)[0].numpy(), theirs.moments(other)[0].numpy()
        largest, length = max(np.abs(wanted).max(), 1e-5), max(np.linalg.norm(wanted), 1e-5)
        assert np.abs(found - wanted).max() / largest < 12 * ROUNDING["bfloat16"], weight.name
        assert np.linalg.norm(found - wanted) / length < 8 * ROUNDING["bfloat16"], weight.name
    assert history["mlm_loss"] == pytest.approx(expected["mlm_loss"], rel=2 * ROUNDING["bfloat16"])
    assert "overflows" not in history


def test_at_random_and_to_nearest_are_one_rounding_apart(whole):
    rounded, _, _ = trained("float16", stochastic_rounding=True)
    again, _, _ = trained("float16", stochastic_rounding=True)
    nearest, _, _ = trained("float16")
    assert all(
        np.array_equal(a, b)
        for a, b in zip(arrays(rounded.trainable_variables), arrays(again.trainable_variables), strict=True)
    )
    assert 0 < difference(rounded.trainable_variables, nearest.trainable_variables) < 8 * ROUNDING["float16"]
    assert difference(rounded.trainable_variables, whole[0].trainable_variables) < 8 * ROUNDING["float16"]


@pytest.mark.parametrize(
    "precision, xla",
    [("float16", False), ("mixed_bfloat16", False), pytest.param("float16", True, marks=pytest.mark.long)],
)
def test_a_pipeline_is_the_sequence(precision, xla):
    if len(tf.config.list_logical_devices("CPU")) < 2:
        pytest.skip("needs two logical CPU devices, which can only be made before TensorFlow starts")
    layouts = (ONE_DEVICE, PipelineLayout(["/CPU:0", "/CPU:1"], "interleaved"))
    one, other = (spans(precision, layout, xla) for layout in layouts)
    # Where they differ in the last digit, a weight may be rounded to its other neighbour in each update.
    assert difference(one.trainable_variables, other.trainable_variables) < (
        8 * ROUNDING["float16" if precision == "float16" else "bfloat16"]
    )


def spans(precision, layout, xla):
    """A span model after two updates of four micro batches, with a loss scale that adapts."""
    on = SoftwarePlatform(1, xla, False, layout, Numerics(precision, stochastic_rounding=True))
    with on.scope():
        blocks, conversion = convert(SQUAD, span_source(), A, on, ["qa_head"])
    stages = [["emb", "hid"], ["hid", "qa_head"]] if layout.is_spread else [[b.name for b in blocks]]
    model = assemble(blocks, token_shapes(24), ("start_logits", "end_logits"), stages, on)
    conversion.carry_weights(span_source())
    optimizer = on.optimizer(OptimizerSettings("AdamW", UpDown(0.02, 8, 0.0), 0.0, epsilon=0.1))
    update = Update(4, loss_scale=1024.0, adaptive_loss_scale=True)
    on.compile(model, optimizer, SpanObjective(), update, 1)
    random, data = np.random.default_rng(2), []
    for step in range(2):
        part = {name: batch(A, SAMPLES, seed=step)[name] for name in ("input_ids", "input_mask", "segment_ids")}
        for name in ("start_positions", "end_positions"):
            part[name] = random.integers(0, 24, (SAMPLES, 1)).astype("int32")
        data.append({name: value.reshape(4, 2, *value.shape[1:]) for name, value in part.items()})
    stacked = {name: np.stack([part[name] for part in data]) for name in data[0]}
    on.fit(model, tf.data.Dataset.from_tensor_slices(stacked), 2, [])
    return model


@pytest.mark.parametrize("scaling", [{}, {"adaptive_loss_scale": True}], ids=["static", "automatic"])
def test_an_update_that_overflows_is_left_out_to_the_bit(scaling):
    before = built("float16")[1]
    model, optimizer, history = trained("float16", Update(2, loss_scale=2.0**24, **scaling), steps=1)
    assert history["overflows"] == 1.0
    assert int(optimizer.iterations) == 0
    assert not any(moment.numpy().any() for weight in model.trainable_variables for moment in optimizer.moments(weight))
    for one, other in zip(arrays(model.trainable_variables), arrays(before.trainable_variables), strict=True):
        np.testing.assert_array_equal(one, other)
    assert history.get("loss_scale") == (2.0**24 if scaling else None)


def test_a_scale_that_adapts_finds_one_that_fits():
    _, optimizer, history = trained("float16", Update(2, loss_scale=2.0**20, adaptive_loss_scale=True), steps=8)
    assert 1.0 <= history["loss_scale"] < 2.0**20
    assert 0 < int(optimizer.iterations) < 8


def test_in_float32_nothing_is_counted_and_nothing_adapts(whole):
    model, _, history = trained("float32", Update(2, loss_scale=1024.0, adaptive_loss_scale=True))
    assert not {"overflows", "loss_scale"} & history.keys()
    for one, other in zip(arrays(model.trainable_variables), arrays(whole[0].trainable_variables), strict=True):
        np.testing.assert_array_equal(one, other)


def spoiled(path):
    """Puts a NaN into a weight."""

    def spoil(model):
        variable = next(weight for weight in model.weights if path in weight.name)
        values = variable.numpy()
        values.flat[0] = np.nan
        variable.assign(values)

    return spoil


@pytest.mark.parametrize(
    "weight, layer",
    [
        ("hid_1/encoder_layer/attention/query/kernel", "hid_1/encoder_layer/attention gave NaN"),
        ("hid_0/encoder_layer/intermediate/dense/kernel", "hid_0/encoder_layer/intermediate gave NaN"),
        ("pooler/dense/kernel", "the model's output next_sentence gave NaN"),
    ],
)
def test_fp_exceptions_stop_at_the_layer(weight, layer):
    with pytest.raises(UserError, match=f"fp_exceptions: {layer}"):
        trained("float16", spoil=spoiled(weight), xla=True, fp_exceptions=True)


def test_fp_exceptions_look_at_gradients_too():
    with pytest.raises(UserError, match=r"fp_exceptions: .*, gradient gave Inf"):
        trained("float16", Update(2, loss_scale=2.0**24), fp_exceptions=True)
    trained("float16", Update(2, loss_scale=2.0**24, adaptive_loss_scale=True), fp_exceptions=True)
