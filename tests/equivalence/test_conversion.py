"""The converted model has the outputs and gradients of Hugging Face's; test_updates.py compares training steps."""

from __future__ import annotations

import pytest

from keras_extensions.backend import tf
from tests.support.bert_pairs import (
    architecture,
    assert_same_gradients,
    assert_same_logits,
    batch,
    converted,
    loss_of,
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
