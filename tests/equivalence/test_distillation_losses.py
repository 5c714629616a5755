"""The losses and gradients of distillation are those of PyTorch."""

from __future__ import annotations

import numpy as np
import pytest

from keras_extensions.backend import tf
from model.losses import ACCURACY, ClassificationObjective, MultiLabelObjective, RegressionObjective
from teacher.losses import DistillationObjective
from tests.support.pytorch_losses import pytorch_losses
from tests.support.pytorch_process import NEEDS_PYTORCH

OBJECTIVES = {
    "classes": lambda: ClassificationObjective(True, [0.5, 2.0, 1.25], 0.1),
    "labels": MultiLabelObjective,
    "numbers": RegressionObjective,
}
CASES = [(kind, *each) for kind in OBJECTIVES for each in ((0.3, 1.0), (0.7, 4.0), (1.0, 2.0))]
KNOWN = 5  # of seven samples


def samples(kind):
    """Return the logits of a student and of its teacher, and labels."""
    random, classes = np.random.default_rng(4), 1 if kind == "numbers" else 3
    logits, teacher = (2 * random.normal(size=(7, classes)).astype("float32") for _ in range(2))
    labels = {
        "classes": random.integers(0, 3, (7, 1), "int32"),
        "labels": random.integers(0, 2, (7, 3), "int32"),
        "numbers": random.normal(size=(7, 1)).astype("float32"),
    }[kind]
    return logits, teacher, labels


@pytest.fixture(scope="module")
def pytorch():
    """The losses and gradients of all cases."""
    given, options = [], {"weights": [0.5, 2.0, 1.25], "smoothing": 0.1}
    for kind, share, temperature in CASES:
        logits, teacher, labels = samples(kind)
        known = (labels if kind == "labels" else labels[:, 0])[:KNOWN]
        case = {"kind": kind, "logits": logits.tolist(), "teacher": teacher.tolist(), "labels": known.tolist()}
        given.append({**case, **options, "share": share, "temperature": temperature})
    return dict(zip(CASES, pytorch_losses(given), strict=True))


@NEEDS_PYTORCH
@pytest.mark.parametrize("kind, share, temperature", CASES)
def test_distillation_is_that_of_pytorch(pytorch, kind, share, temperature):
    """Of seven samples five have labels; as rows, and as four packs whose last slot is empty."""
    (logits, teacher, labels), theirs = samples(kind), pytorch[kind, share, temperature]
    classes = logits.shape[1]
    rows = {"labels": labels, "teacher_logits": teacher, "labelled": (np.arange(7) < KNOWN).astype("int32")[:, None]}
    empty = {name: np.ones((1, values.shape[1]), values.dtype) for name, values in rows.items()}
    packs = {name: np.concatenate([values, empty[name]]).reshape(4, -1) for name, values in rows.items()}
    packs["sequence_weights"] = (np.arange(8) < 7).astype("float32").reshape(4, 2)
    packs["input_mask"] = np.ones((4, 6), "int32")
    packed = np.concatenate([logits, np.full((1, classes), 9, "float32")]).reshape(4, 2, classes)
    for data, values in ((rows, logits), (packs, packed)):
        objective = DistillationObjective(OBJECTIVES[kind](), share, temperature)
        batch, scores = {name: tf.constant(each) for name, each in data.items()}, tf.Variable(values)
        with tf.GradientTape() as tape:
            sums, counts = objective.sums({"logits": scores}, batch), objective.counts(batch)
            loss = tf.add_n([sums[name] / counts[name] for name in objective.losses])
        gradient = tape.gradient(loss, scores).numpy().reshape(-1, classes)
        np.testing.assert_allclose(loss, theirs["loss"], rtol=1e-5)
        np.testing.assert_allclose(gradient[:7], theirs["gradient"], atol=1e-6)
        assert not gradient[7:].any()
        if kind == "classes":
            right = logits[:KNOWN].argmax(axis=1) == labels[:KNOWN, 0]
            assert float(sums[ACCURACY]) == right.sum() and float(counts[ACCURACY]) == KNOWN
