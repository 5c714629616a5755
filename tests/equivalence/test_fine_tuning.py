"""Fine-tuning models have Hugging Face's logits, losses and gradients, with its layers and with ours."""

from __future__ import annotations

import numpy as np
import pytest

from keras_extensions.backend import tf
from model.losses import (
    ACCURACY,
    LOSS,
    ClassificationObjective,
    RegressionObjective,
    SpanObjective,
)
from model.tasks import CLASSIFICATION, SQUAD, TOKEN_CLASSIFICATION, accepted_blocks
from tasks.classification import balanced_weights
from tasks.token_classification import TagObjective
from tests.support.bert_pairs import (
    architecture,
    assert_same_gradients,
    assert_same_logits,
    batch,
    hugging_face,
    on_cpu,
    pair_of,
    source_with_random_weights,
    with_spans,
)
from tests.support.pytorch_losses import pytorch_losses
from tests.support.pytorch_process import NEEDS_PYTORCH

CLASSES = {SQUAD: 2, CLASSIFICATION: 3, TOKEN_CLASSIFICATION: 5}
FORMS = [
    (task, form, replace)
    for task in CLASSES
    for form in range(len(accepted_blocks(task, 1)))
    for replace in (True, False)
]


def pair_for(task, classes=None, form=0, replace=True):
    """Return both models, with the blocks after the encoder in one of the accepted forms."""
    a = architecture()
    source = source_with_random_weights(a, task, classes or CLASSES[task])
    return pair_of(source, a, on_cpu(), task, tail=accepted_blocks(task, 1)[form][2:], replace=replace)


@pytest.mark.parametrize("task, form, replace", FORMS)
def test_logits_equal_hugging_face(task, form, replace):
    pair, data = pair_for(task, form=form, replace=replace), batch(architecture())
    theirs = hugging_face(pair.source, data)
    ours = pair(data)
    assert_same_logits(ours, {name: theirs[name] for name in ours})


def labelled(task, classes):
    """Return a batch for this project's objective, and the labels for Hugging Face's."""
    random, data = np.random.default_rng(9), with_spans(batch(architecture()))
    if task == SQUAD:
        return data, {name: data[name][:, 0] for name in ("start_positions", "end_positions")}
    if task == TOKEN_CLASSIFICATION:
        tags = random.integers(0, classes + 1, data["input_ids"].shape) * data["input_mask"]
        return {**data, "labels": tags.astype("int32")}, {"labels": tf.constant(np.where(tags > 0, tags - 1, -100))}
    labels = random.integers(0, 5 if classes == 1 else classes, (4, 1)).astype("float32" if classes == 1 else "int32")
    return {**data, "labels": labels}, {"labels": tf.constant(labels[:, 0])}


@pytest.mark.parametrize(
    "task, classes, objective",
    [
        (SQUAD, 2, SpanObjective()),
        (CLASSIFICATION, 3, ClassificationObjective()),
        (CLASSIFICATION, 1, RegressionObjective()),
        (TOKEN_CLASSIFICATION, 5, TagObjective()),
    ],
    ids=["spans", "classes", "scores", "tags"],
)
def test_loss_and_gradients_equal_hugging_face(task, classes, objective):
    pair = pair_for(task, classes)
    data, labels = labelled(task, classes)
    with tf.GradientTape() as tape:
        outputs = hugging_face(pair.source, data, **labels)
        theirs = tf.reduce_mean(outputs.loss)
    their_gradients = tape.gradient(theirs, pair.source.trainable_variables)
    with tf.GradientTape() as tape:
        sums, counts = objective.sums(pair(data), data), objective.counts(data)
        ours = sums[LOSS] / counts[LOSS]
    our_gradients = tape.gradient(ours, pair.model.trainable_variables)
    np.testing.assert_allclose(ours, theirs, rtol=1e-5)
    assert_same_gradients(pair, our_gradients, their_gradients)
    if task == TOKEN_CLASSIFICATION:
        right = (np.argmax(outputs.logits, -1) == data["labels"] - 1)[data["labels"] > 0]
        assert float(sums[ACCURACY]) == right.sum() and float(counts[ACCURACY]) == right.size


def test_accuracies_are_counted_by_hand():
    scores = tf.constant([[0.0, 2.0, 1.0], [5.0, 0.0, 0.0]])
    data = {"start_positions": tf.constant([[1], [1]]), "end_positions": tf.constant([[2], [0]])}
    sums = SpanObjective().sums({"start_logits": scores, "end_logits": scores}, data)
    assert (float(sums["start_accuracy"]), float(sums["end_accuracy"])) == (1.0, 1.0)
    data = {"labels": tf.constant([[1], [0]])}
    assert float(ClassificationObjective().sums({"logits": scores}, data)["accuracy"]) == 2.0
    assert "accuracy" not in ClassificationObjective(accuracies=False).counts(data)


@NEEDS_PYTORCH
def test_class_weights_and_label_smoothing_are_those_of_pytorch():
    random = np.random.default_rng(3)
    logits, labels = random.normal(size=(7, 3)).astype("float32"), random.integers(0, 3, 7)
    options = [{"weights": w, "smoothing": s} for w in ([], [0.5, 2.0, 1.25]) for s in (0.0, 0.1)]
    shared = {"kind": "classes", "logits": logits.tolist(), "labels": labels.tolist()}
    data = {"labels": tf.constant(labels[:, None], tf.int32)}
    for option, theirs in zip(options, pytorch_losses([{**shared, **each} for each in options]), strict=True):
        objective = ClassificationObjective(True, option["weights"], option["smoothing"])
        with tf.GradientTape() as tape:
            scores = tf.Variable(logits)
            loss = objective.sums({"logits": scores}, data)[LOSS] / objective.counts(data)[LOSS]
        np.testing.assert_allclose(loss, theirs["loss"], rtol=1e-6, err_msg=str(option))
        np.testing.assert_allclose(tape.gradient(loss, scores), theirs["gradient"], atol=1e-7, err_msg=str(option))


def test_balanced_weights_give_each_class_the_same_sum():
    weights = np.array(balanced_weights(np.array([0, 0, 0, 0, 1, 1]), 3))
    np.testing.assert_allclose(weights[:2] * [4, 2], [2, 2])
