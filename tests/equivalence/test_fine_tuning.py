"""Fine-tuning models are Hugging Face's: logits, the losses and gradients of its own call, with its layers and ours."""

from __future__ import annotations

import numpy as np
import pytest

from execution.software.platform import SoftwarePlatform
from keras_extensions.backend import tf
from model.architecture import accepted_blocks
from model.bert import assemble
from model.conversion import convert
from model.huggingface import untrained
from model.losses import LOSS, ClassificationObjective, RegressionObjective, SpanObjective
from tests.equivalence.bert_pairs import architecture, batch, token_shapes

S = 24
OUTPUTS = {"squad": ("start_logits", "end_logits"), "classification": ("logits",)}


def randomised(source):
    random = np.random.default_rng(5)
    for variable in source.weights:
        variable.assign(variable + random.normal(0, 0.05, variable.shape).astype("float32"))
    return source


def pair(task, classes=3, form=0, replace=True, **changes):
    """Hugging Face's model and ours, the blocks after the encoder in one of the accepted forms."""
    a = architecture(**changes)
    platform = SoftwarePlatform(seed=1, xla=False, recompute=False)
    tail = accepted_blocks(task, 1)[form][2:]
    source = randomised(untrained(task, a, seed=3, labels=2 if task == "squad" else classes))
    blocks, conversion = convert(task, source, a, platform, tail, replace)
    model = assemble(blocks, token_shapes(S), OUTPUTS[task], [[block.name for block in blocks]], platform)
    if conversion is not None:
        conversion.carry_weights(source)
    return a, source, model


def labelled(a, task, classes=3):
    data = batch(a, sequence_length=S)
    random = np.random.default_rng(9)
    for name in ("start_positions", "end_positions"):
        data[name] = random.integers(0, S, (4, 1)).astype("int32")
    kind = "float32" if classes == 1 else "int32"
    data["labels"] = random.integers(0, 5 if classes == 1 else max(classes, 2), (4, 1)).astype(kind)
    return data


def hugging_face(source, data, **labels):
    return source(
        input_ids=data["input_ids"], attention_mask=data["input_mask"], token_type_ids=data["segment_ids"], **labels
    )


FORMS = [
    (task, form, replace)
    for task in OUTPUTS
    for form in range(len(accepted_blocks(task, 1)))
    for replace in (True, False)
]


@pytest.mark.parametrize("task, form, replace", FORMS)
def test_logits_equal_hugging_face(task, form, replace):
    a, source, model = pair(task, form=form, replace=replace)
    data = labelled(a, task)
    ours, theirs = model({name: data[name] for name in model.input_names}), hugging_face(source, data)
    for name in OUTPUTS[task]:
        np.testing.assert_allclose(ours[name], theirs[name], atol=1e-5, rtol=1e-5)


@pytest.mark.parametrize("task, classes", [("squad", 0), ("classification", 3), ("classification", 1)])
def test_loss_and_gradient_norm_equal_hugging_face(task, classes):
    a, source, model = pair(task, classes)
    data = labelled(a, task, classes)
    if task == "squad":
        objective = SpanObjective()
        labels = {name: data[name][:, 0] for name in ("start_positions", "end_positions")}
    else:
        objective = RegressionObjective() if classes == 1 else ClassificationObjective()
        labels = {"labels": tf.constant(data["labels"][:, 0])}
    with tf.GradientTape() as tape:
        theirs = tf.reduce_mean(hugging_face(source, data, **labels).loss)
    their_gradients = tape.gradient(theirs, source.trainable_variables)
    with tf.GradientTape() as tape:
        outputs = model({name: data[name] for name in model.input_names})
        ours = objective.sums(outputs, data)[LOSS] / objective.counts(data)[LOSS]
    our_gradients = tape.gradient(ours, model.trainable_variables)
    np.testing.assert_allclose(ours, theirs, rtol=1e-5)
    np.testing.assert_allclose(norms(our_gradients), norms(their_gradients), rtol=1e-3, atol=1e-6)


def norms(gradients):
    """The norm of every gradient, sorted: the two models list their weights in different orders."""
    return sorted(float(tf.norm(tf.convert_to_tensor(gradient))) for gradient in gradients)


def test_accuracies_are_counted_by_hand():
    scores = tf.constant([[0.0, 2.0, 1.0], [5.0, 0.0, 0.0]])
    data = {"start_positions": tf.constant([[1], [1]]), "end_positions": tf.constant([[2], [0]])}
    sums = SpanObjective().sums({"start_logits": scores, "end_logits": scores}, data)
    assert (float(sums["start_accuracy"]), float(sums["end_accuracy"])) == (1.0, 1.0)
    data = {"labels": tf.constant([[1], [0]])}
    assert float(ClassificationObjective().sums({"logits": scores}, data)["accuracy"]) == 2.0
    assert "accuracy" not in ClassificationObjective(accuracies=False).counts(data)
