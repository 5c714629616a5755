"""The converted model is Hugging Face's model: outputs, gradients, and after a training step."""

from __future__ import annotations

import numpy as np
import pytest

from keras_extensions.backend import tf
from tests.equivalence.bert_pairs import architecture, batch, converted, source_outputs

SIZES = {"tiny": {}, "four layers": {"num_hidden_layers": 4, "hidden_size": 64, "intermediate_size": 160}}


def loss_of(outputs, data):
    """Plain mean losses, written out as in the paper."""
    words = tf.nn.log_softmax(outputs["masked_lm"])
    chosen = tf.gather(words, data["masked_lm_ids"], batch_dims=2)
    masked = -tf.reduce_sum(chosen * data["masked_lm_weights"]) / np.sum(data["masked_lm_weights"])
    following = tf.gather(tf.nn.log_softmax(outputs["next_sentence"]), data["next_sentence_labels"], batch_dims=1)
    return masked - tf.reduce_mean(following)


def carried_gradients(pair, data):
    """name on the source → (gradient of the source, gradient of the converted model)."""
    with tf.GradientTape() as tape:
        loss = loss_of(source_outputs(pair.source, data), data)
    theirs = tape.gradient(loss, pair.source.trainable_variables)
    with tf.GradientTape() as tape:
        outputs = pair.model({name: data[name] for name in pair.model.input_names})
        loss = loss_of(outputs, data)
    ours = tape.gradient(loss, pair.model.trainable_variables)
    return theirs, ours


@pytest.mark.parametrize("size", SIZES)
def test_logits_equal_hugging_face(size):
    a = architecture(**SIZES[size])
    pair, data = converted(a), batch(a)
    ours = pair.model({name: data[name] for name in pair.model.input_names})
    theirs = source_outputs(pair.source, data)
    for name in theirs:
        np.testing.assert_allclose(ours[name], theirs[name], atol=1e-5, rtol=1e-5)


def by_value(variables, gradients):
    """Gradients keyed by what identifies a weight in both models: its shape and the sum of its values."""
    table = {}
    for variable, gradient in zip(variables, gradients):
        key = (tuple(variable.shape), round(float(tf.reduce_sum(variable)), 4))
        assert key not in table
        table[key] = tf.convert_to_tensor(gradient).numpy()
    return table


@pytest.mark.parametrize("size", SIZES)
def test_gradients_equal_hugging_face(size):
    a = architecture(**SIZES[size])
    pair, data = converted(a), batch(a)
    theirs, ours = carried_gradients(pair, data)
    theirs = by_value(pair.source.trainable_variables, theirs)
    ours = by_value(pair.model.trainable_variables, ours)
    assert theirs.keys() == ours.keys()
    for key in theirs:
        np.testing.assert_allclose(ours[key], theirs[key], atol=1e-5, rtol=1e-4)
