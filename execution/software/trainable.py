"""A functional Keras model whose training step is one weight update over many micro batches.

A micro batches per update · B micro batch
"""

from __future__ import annotations

from typing import Callable, Dict, List, Protocol, Sequence

from execution.interface import Objective, Tensors
from keras_extensions.backend import keras, tf


class Engine(Protocol):
    """How gradients of an update are computed: in sequence, or over a pipeline."""

    def update(self, batch: Tensors) -> Tensors:
        """Train on elements of shape (A, B, …).

        Returns:
            The sum of each term of the objective over the update, and what else is to be told of it.
        """

    def compile_step(self, element_spec: Tensors) -> None:
        """Compile for elements of this form, without training."""


class RatioMetric(keras.metrics.Metric):
    """Sum of totals over sum of counts."""

    def __init__(self, name: str):
        super().__init__(name=name, dtype="float32")
        self.total = self.add_weight("total", initializer="zeros")
        self.count = self.add_weight("count", initializer="zeros")

    def update_state(self, total: tf.Tensor, count: tf.Tensor, sample_weight: None = None) -> None:
        self.total.assign_add(total)
        self.count.assign_add(count)

    def result(self) -> tf.Tensor:
        return tf.math.divide_no_nan(self.total, self.count)


class TrainableModel(keras.Model):
    """Trains on elements of shape (A, B, …); one step of ``fit`` is one weight update."""

    def lay_out(self, stages: Sequence[Sequence[str]], results: Sequence[str]) -> None:
        """Remember what the model is made of.

        Args:
            stages: names of the blocks of each pipeline stage.
            results: names of the tensors that the model gives.
        """
        self.stages = tuple(tuple(stage) for stage in stages)
        self.results = tuple(results)

    def prepare(
        self, objective: Objective, engine: Engine, totals: Callable[[Tensors], Tensors] = lambda tensors: tensors
    ) -> None:
        """Say what to train towards and how; call before ``compile``.

        Args:
            objective: what is minimised and measured.
            engine: computes updates.
            totals: makes sums over the whole update of those over the part of this process.
        """
        self._objective = objective
        self._totals = totals
        self.engine = engine
        self._ratios: Dict[str, RatioMetric] = {}
        # Keras traces its loop over the updates of an execution up to four times; a function in it is traced once.
        self._update = tf.function(engine.update, autograph=False)

    def _ratio(self, name: str) -> RatioMetric:
        if name not in self._ratios:
            self._ratios[name] = RatioMetric(name)
        return self._ratios[name]

    @property
    def metrics(self) -> List[keras.metrics.Metric]:
        return list(self._ratios.values())

    @tf.autograph.experimental.do_not_convert  # graph loops are written as such; rewriting the model takes seconds
    def train_step(self, data: Tensors) -> Dict[str, tf.Tensor]:
        return self._record(self._update(data), self._totals(self._objective.counts(data)))

    @tf.autograph.experimental.do_not_convert
    def test_step(self, data: Tensors) -> Dict[str, tf.Tensor]:
        return self._record(self._objective.sums(self.predict_step(data), data), self._objective.counts(data))

    @tf.autograph.experimental.do_not_convert
    def predict_step(self, data: Tensors) -> Tensors:
        outputs = self({name: data[name] for name in self.input_names}, training=False)
        return {name: tf.cast(values, tf.float32) for name, values in outputs.items()}

    def _record(self, sums: Tensors, counts: Tensors) -> Dict[str, tf.Tensor]:
        for name, total in sums.items():
            self._ratio(name).update_state(total, counts.get(name, 1.0))  # what is no term is told once an update
        return {name: ratio.result() for name, ratio in self._ratios.items()}
