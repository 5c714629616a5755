"""The converted model has the outputs and gradients of Hugging Face's; test_updates.py compares training steps.

A layer option that is switched off equals Hugging Face's model with that part set to zero, or without it.
"""

from __future__ import annotations

import numpy as np
import pytest

from keras_extensions.backend import keras, tf
from model.architecture import total_parameters
from model.huggingface import build_hf_model
from model.tasks import PRETRAINING, expected_blocks
from tests.support.bert_pairs import (
    architecture,
    assert_same_gradients,
    assert_same_logits,
    batch,
    converted,
    hugging_face,
    loss_of,
    on_cpu,
    pair_of,
    source_outputs,
)

SIZES = {"tiny": {}, "four layers": {"num_hidden_layers": 4, "hidden_size": 64, "intermediate_size": 160}}


@pytest.mark.parametrize("size", SIZES)
def test_logits_and_gradients_equal_hugging_face(size):
    a = architecture(**SIZES[size])
    pair, data = converted(a), batch(a)
    with tf.GradientTape() as tape:
        theirs = source_outputs(pair.source, data)
        loss = loss_of(theirs, data)
    their_gradients = tape.gradient(loss, pair.source.trainable_variables)
    with tf.GradientTape() as tape:
        ours = pair(data)
        loss = loss_of(ours, data)
    our_gradients = tape.gradient(loss, pair.model.trainable_variables)
    assert_same_logits(ours, theirs)
    assert_same_gradients(pair, our_gradients, their_gradients)


# option switched off → the weights of the source that must not matter
LEFT_OUT = {
    "use_qkv_bias": ("query/bias", "key/bias", "value/bias"),
    "use_projection_bias": ("attention/output/dense/bias",),
    "use_prediction_bias": ("predictions/bias",),
}


def assert_equal_outputs(pair, data):
    assert_same_logits(pair(data), source_outputs(pair.source, data))


def zero(source, endings):
    for variable in source.weights:
        if any(ending in variable.name for ending in endings):
            variable.assign(tf.zeros_like(variable))


@pytest.mark.parametrize("option, merged", [*((option, False) for option in LEFT_OUT), ("use_qkv_bias", True)])
def test_a_bias_left_out_is_a_bias_of_zero(option, merged):
    """In the last case, queries, keys and values are also one product."""
    a = architecture(**{option: False, "use_qkv_split": not merged})
    pair = converted(a)
    zero(pair.source, LEFT_OUT[option])
    assert_equal_outputs(pair, batch(a))


def test_without_the_transform_layer_the_encoder_meets_the_table():
    a, data = architecture(use_cls_layer=False), batch(architecture())
    pair = converted(a)
    hidden = hugging_face(pair.source.bert, data).last_hidden_state.numpy()
    masked = np.take_along_axis(hidden, data["masked_lm_positions"][..., None], axis=1)
    table, bias = pair.source.bert.embeddings.weight.numpy(), pair.source.mlm.predictions.bias.numpy()
    np.testing.assert_allclose(pair(data)["masked_lm"], masked @ table.T + bias, atol=1e-5, rtol=1e-5)


@pytest.mark.parametrize("hidden_act", ["gelu_new", "relu", "silu", "tanh", "sigmoid"])
def test_another_activation(hidden_act):
    a = architecture(hidden_act=hidden_act)
    assert_equal_outputs(converted(a), batch(a))


def test_a_weight_that_no_rule_mentions_is_an_error():
    a = architecture()
    pair = pair_of(build_hf_model(PRETRAINING, a, seed=1), a, on_cpu(), transfer=False)
    pair.source.extra = keras.layers.Dense(2, name="forgotten_layer")
    pair.source.extra(tf.ones((1, 2)))
    with pytest.raises(AssertionError, match=r"weights: forgotten_layer/kernel:0, forgotten_layer/bias:0$"):
        pair.conversion.transfer_weights(pair.source)


def test_parameters_are_those_that_the_plan_counts():
    for options in ({}, {"use_qkv_bias": False, "use_qkv_split": False}, {"use_cls_layer": False}):
        a = architecture(**options)
        blocks = expected_blocks(PRETRAINING, a.num_hidden_layers)
        assert converted(a).model.count_params() == total_parameters(a, blocks)
