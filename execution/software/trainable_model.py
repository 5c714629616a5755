"""The model that is trained: it makes several updates in one graph, and sums what is reported of them.

An update is an :class:`Engine`'s. On a CPU, a graph loop makes one after the other. On a GPU, XLA compiles several as
one program, so that nothing between them waits for the host.

A  micro batches of an update in this process
B  samples of a micro batch
"""

from __future__ import annotations

from typing import Any, Callable, Dict, List, Protocol, Sequence, Tuple

from execution.interface import Objective, Tensors
from keras_extensions.backend import keras, tf

# Micro batches that a GPU gets at once: while it computes their updates, it waits for nothing from the host.
MICRO_BATCHES_PER_PROGRAM = 16


class Engine(Protocol):
    """Computes the gradients of an update and applies them; XLA may compile the whole update as ``one_program``."""

    one_program: bool

    def update(self, batch: Tensors) -> Tensors:
        """Make one update with a batch (A, B, …).

        Returns the sum of each term over the whole global batch, and what ``UpdateRule.apply`` reports.
        """

    def compile_step(self, element_spec: Tensors) -> None:
        """Compile the update for elements of this specification, without training."""


class RatioMetric(keras.metrics.Metric):
    """The sum of totals divided by the sum of counts."""

    def __init__(self, name: str):
        super().__init__(name=name, dtype="float32")
        self.total = self.add_weight("total", initializer="zeros")
        self.count = self.add_weight("count", initializer="zeros")

    def update_state(self, total: tf.Tensor, count: tf.Tensor) -> None:
        self.total.assign_add(total)
        self.count.assign_add(count)

    def result(self) -> tf.Tensor:
        return tf.math.divide_no_nan(self.total, self.count)


class TrainableModel(keras.Model):
    """A functional Keras model that is trained on elements of shape (A, B, …), one for each weight update."""

    def set_stages(self, stages: Sequence[Sequence[str]], results: Sequence[str]) -> None:
        """Set the names of the blocks of each pipeline stage, and of the model's outputs."""
        self.stages = tuple(tuple(stage) for stage in stages)
        self.results = tuple(results)

    def prepare(self, objective: Objective, engine: Engine, totals: Callable[[Tensors], Tensors]) -> None:
        """Set the engine that makes the updates, and what sums named scalars over all processes."""
        self.measure(objective)
        self._totals = totals
        self.engine = engine
        # A function, because TensorFlow traces the loop over the updates of a call up to four times.
        self._update = tf.function(engine.update, autograph=False, jit_compile=engine.one_program or None)
        self._loop = tf.function(self._step_in_turn)
        self._program = tf.function(self._step_in_program, autograph=False)
        self._updates = tf.function(self._update_in_turn, autograph=False, jit_compile=True)

    def make_updates(self, elements: tf.data.Iterator, count: int) -> None:
        """Make a number of weight updates, each with the next element, and wait for them."""
        if self.engine.one_program:
            if not self._training_ratios:  # a program must not create variables
                names = self._update.get_concrete_function(elements.element_spec).structured_outputs
                self._training_ratios.update({name: RatioMetric(name) for name in names})
            most = _updates_per_program(elements.element_spec)
            for begin in range(0, count, most):
                means = self._program(elements, tf.constant(min(most, count - begin)))
        else:
            means = self._loop(elements, tf.constant(count))
        self._means = {name: float(mean) for name, mean in means.items()}  # a GPU may still be at work before this

    def means(self) -> Dict[str, float]:
        """Return the means of the objective's terms, and other reported values, since this was called last.

        A term that nothing was counted for, such as the labels' loss of samples without a label, is left out.
        """
        means = {name: mean for name, mean in self._means.items() if float(self._training_ratios[name].count) > 0}
        for ratio in self._training_ratios.values():
            ratio.reset_state()
        return means

    def _step_in_turn(self, elements: tf.data.Iterator, count: tf.Tensor) -> Dict[str, tf.Tensor]:
        for _ in tf.range(count):  # one graph, with a loop
            means = self._step(elements)
        return means

    @tf.autograph.experimental.do_not_convert  # the graph contains its loops already; converting takes seconds
    def _step(self, elements: tf.data.Iterator) -> Dict[str, tf.Tensor]:
        return self._update_and_record(next(elements))

    def _update_and_record(self, element: Tensors) -> Dict[str, tf.Tensor]:
        counts = self._totals(self._objective.counts(element))
        return self._record(self._training_ratios, self._update(element), counts)

    def _step_in_program(self, elements: tf.data.Iterator, count: tf.Tensor) -> Dict[str, tf.Tensor]:
        """Collect the next elements and make their updates in one program, whose shapes do not depend on ``count``."""
        spec = elements.element_spec
        most = _updates_per_program(spec)
        arrays = {name: tf.TensorArray(values.dtype, most, element_shape=values.shape) for name, values in spec.items()}

        def collect(index: tf.Tensor, arrays: Dict[str, tf.TensorArray]) -> Any:
            element = next(elements)
            return index + 1, {name: array.write(index, element[name]) for name, array in arrays.items()}

        _, arrays = tf.while_loop(lambda index, _: index < count, collect, (tf.constant(0), arrays))
        self._updates({name: array.stack() for name, array in arrays.items()}, count)
        return {name: ratio.result() for name, ratio in self._training_ratios.items()}

    def _update_in_turn(self, collected: Tensors, count: tf.Tensor) -> None:
        """Make ``count`` updates, each with the next of the collected elements, tensors of shape (updates, A, B, …)."""

        def body(index: tf.Tensor) -> Tuple[tf.Tensor]:
            self._update_and_record({name: values[index] for name, values in collected.items()})
            return (index + 1,)

        tf.while_loop(lambda index: index < count, body, (tf.constant(0),), parallel_iterations=1)

    def measure(self, objective: Objective) -> None:
        """Set what ``evaluate`` measures; ``prepare`` does so too."""
        self._objective = objective
        self._ratios: Dict[str, RatioMetric] = {}  # of an evaluation
        self._training_ratios: Dict[str, RatioMetric] = {}  # of a logging period

    @property
    def metrics(self) -> List[keras.metrics.Metric]:
        return list(self._ratios.values())

    @tf.autograph.experimental.do_not_convert
    def test_step(self, data: Tensors) -> Dict[str, tf.Tensor]:
        sums = self._objective.sums(self.predict_step(data), data)
        return self._record(self._ratios, sums, self._objective.counts(data))

    @tf.autograph.experimental.do_not_convert
    def predict_step(self, data: Tensors) -> Tensors:
        outputs = self({name: data[name] for name in self.input_names}, training=False)
        return {name: tf.cast(values, tf.float32) for name, values in outputs.items()}

    @staticmethod
    def _record(ratios: Dict[str, RatioMetric], sums: Tensors, counts: Tensors) -> Dict[str, tf.Tensor]:
        """Add up metrics. Values other than the objective's terms, such as the loss scale, count once per update."""
        for name, total in sums.items():
            if name not in ratios:
                ratios[name] = RatioMetric(name)
            ratios[name].update_state(total, counts.get(name, 1.0))
        return {name: ratio.result() for name, ratio in ratios.items()}


def _updates_per_program(spec: Tensors) -> int:
    """Return the most updates of one program, given the specification of an element of shape (A, B, …)."""
    micro_batches = next(iter(spec.values())).shape[0]
    return max(1, MICRO_BATCHES_PER_PROGRAM // micro_batches)
