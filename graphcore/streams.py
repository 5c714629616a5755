"""Computes the objective on an IPU, and passes its values to the trainer.

An IPU averages the losses in each micro batch, because it cannot read the whole update first. Reported values are
nevertheless means over whole updates, because the IPU outputs sums and counts, not means.

B  samples of a micro batch      T  terms of the objective
"""

from __future__ import annotations

from typing import Any, Callable, Dict, List, Sequence

import numpy as np

from execution.interface import Objective, Progress, Tensors
from keras_extensions.backend import keras, tf
from utilities.metric_names import LEARNING_RATE

OBJECTIVE = "objective"  # the layer's name


class Terms(keras.layers.Layer):
    """Computes the sums and then the counts of the objective's terms over one micro batch, (1, 2T) float32."""

    def __init__(self, objective: Objective):
        super().__init__(name=OBJECTIVE, dtype="float32")
        self._objective = objective
        self.names: List[str] = []

    def call(self, inputs: Dict[str, Tensors]) -> tf.Tensor:
        sums = self._objective.sums(inputs["outputs"], inputs["batch"])
        counts = self._objective.counts(inputs["batch"])
        self.names = sorted(sums)
        values = [part[name] for part in (sums, counts) for name in self.names]
        return tf.stack([tf.cast(value, tf.float32) for value in values])[None]


class StreamedLoss(keras.losses.Loss):
    """The scaled sum of the losses' means over a micro batch, whose sums and counts (2T,) go to ``report``."""

    def __init__(self, terms: Sequence[str], losses: Sequence[str], scale: float, report: Callable[[tf.Tensor], Any]):
        # Whether other reductions divide by the number of replicas depends on the strategy.
        super().__init__(reduction=keras.losses.Reduction.SUM, name="objective")
        self._indices = [list(terms).index(name) for name in losses]
        self._scale = scale
        self._report = report

    def call(self, y_true: tf.Tensor, y_pred: tf.Tensor) -> tf.Tensor:
        values = tf.reshape(y_pred, [-1])
        self._report(values)
        sums, counts = tf.split(values, 2)
        return self._scale * tf.gather(tf.math.divide_no_nan(sums, counts), self._indices)


def low_precision_cross_entropy(scores: tf.Tensor, labels: tf.Tensor) -> tf.Tensor:
    """Return the negative log-likelihood (…) of ``labels`` (…) given logits ``scores`` (…, V), in float32.

    Tensors as large as the scores keep their number format, because the IPU with the word embedding has no memory for a
    copy in float32. Only sums over V are float32.
    """
    largest = tf.stop_gradient(tf.reduce_max(scores, axis=-1, keepdims=True))
    shifted = scores - largest  # (…, V), which limits the exponentials to 1
    total = tf.cast(tf.reduce_sum(tf.exp(shifted), axis=-1), tf.float32)
    chosen = tf.reduce_sum(shifted * tf.one_hot(labels, scores.shape[-1], dtype=scores.dtype), axis=-1)
    return tf.math.log(total) - tf.cast(chosen, tf.float32)


class Calls(keras.callbacks.Callback):
    """Tells the trainer's progress of each call of the program, with the values that the IPU has output."""

    def __init__(
        self, progress: Progress, steps: int, terms: Sequence[str], values: Callable[[], Any], rates: Callable[[], Any]
    ):
        super().__init__()
        self._progress = progress
        self._steps = steps
        self._terms = terms
        self._values = values
        self._rates = rates
        self._made = 0  # updates
        self._totals = np.zeros(2 * len(terms))  # sums, then counts
        self._learning_rate = 0.0

    def on_train_batch_end(self, batch: int, logs: Any = None) -> None:
        self._totals += np.asarray(self._values(), np.float64).reshape(-1, len(self._totals)).sum(axis=0)
        self._learning_rate = float(np.ravel(np.asarray(self._rates()))[-1])
        made = (batch + 1) // self._steps
        updates, self._made = made - self._made, made
        if not self._progress.after_call(updates, self._means):
            self.model.stop_training = True

    def _means(self) -> Dict[str, float]:
        sums, counts = np.split(self._totals, 2)
        means = np.divide(sums, counts, out=np.zeros_like(sums), where=counts > 0)
        self._totals = np.zeros_like(self._totals)
        return {**dict(zip(self._terms, means.tolist())), LEARNING_RATE: self._learning_rate}
