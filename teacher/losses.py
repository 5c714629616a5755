"""The losses of a model that learns from labels and from a teacher.

B micro batch · N sequences of a row · C classes
"""

from __future__ import annotations

from typing import Tuple

from execution.interface import Tensors
from keras_extensions.backend import tf
from model.losses import LabelObjective, MultiLabelObjective, PackObjective, RegressionObjective, pack_weights
from utilities.metric_names import LOSS

LABEL_LOSS, TEACHER_LOSS = "label_loss", "teacher_loss"  # each times its share of the sum
TEACHER_LOGITS = "teacher_logits"


class DistillationObjective(PackObjective):
    """The mean loss of the labels, and the mean divergence from a teacher's outputs (Hinton et al. 2015, section 2).

    The update minimises (1 - w) · loss of the labels + w · divergence. Samples without a label are in the second mean
    only. The factor T² keeps the gradient of the divergence at one scale for all temperatures T.
    """

    losses: Tuple[str, ...] = (LABEL_LOSS, TEACHER_LOSS)

    def __init__(self, labels: LabelObjective, weight: float, temperature: float):
        self.terms = (*self.losses, *(name for name in labels.terms if name != LOSS))
        self._labels, self._weight, self._temperature = labels, weight, temperature

    def term_counts(self, batch: Tensors) -> Tensors:
        counts = self._labels.term_counts(batch)
        return {**counts, LABEL_LOSS: counts[LOSS], TEACHER_LOSS: tf.reduce_sum(_taught(batch))}

    def term_sums(self, outputs: Tensors, batch: Tensors) -> Tensors:
        sums = self._labels.term_sums(outputs, batch)
        scores = tf.cast(outputs["logits"], tf.float32)  # (B, C) or (B, N, C)
        teacher = tf.reshape(batch[TEACHER_LOGITS], tf.shape(scores))
        apart = divergence(self._labels, scores, teacher, self._temperature)  # (B,) or (B, N)
        return {
            **sums,
            LABEL_LOSS: (1 - self._weight) * sums[LOSS],
            TEACHER_LOSS: self._weight * tf.reduce_sum(_taught(batch) * apart),
        }


def divergence(labels: LabelObjective, scores: tf.Tensor, teacher: tf.Tensor, temperature: float) -> tf.Tensor:
    """Return how far outputs are from a teacher's, (…).

    That is T² times the Kullback-Leibler divergence from its classes, softened by T, or the mean of that of its labels;
    of numbers, the squared difference.
    """
    if isinstance(labels, RegressionObjective):
        return tf.square(scores - teacher)[..., 0]
    if isinstance(labels, MultiLabelObjective):
        wanted = tf.nn.sigmoid(teacher / temperature)
        loss, least = (
            tf.nn.sigmoid_cross_entropy_with_logits(wanted, logits / temperature) for logits in (scores, teacher)
        )
        return temperature**2 * tf.reduce_mean(loss - least, axis=-1)
    wanted, given = (tf.nn.log_softmax(logits / temperature, axis=-1) for logits in (teacher, scores))
    return temperature**2 * tf.reduce_sum(tf.exp(wanted) * (wanted - given), axis=-1)


def _taught(batch: Tensors) -> tf.Tensor:
    """Return the weights of a batch's sequences, with or without a label: (B, N) in packs, (B,) otherwise."""
    weights = pack_weights(batch)
    return tf.ones_like(batch[TEACHER_LOGITS][..., 0]) if weights is None else weights
