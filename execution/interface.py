"""The seam between BERT and the machine that trains it.

A :class:`Platform` offers layers, operations and a trainable model class. ``execution/software`` is stock TensorFlow on
any CPU or GPU; ``execution/graphcore`` is Graphcore's TensorFlow on IPUs. Model code sees this interface alone.
"""

from __future__ import annotations

import abc
import contextlib
from typing import Any, Callable, ContextManager, Dict, NamedTuple, Optional, Protocol, Sequence, Tuple

from keras_extensions.backend import keras, tf

Tensors = Dict[str, Any]


class Objective(Protocol):
    """What a task wants to be minimised and measured, as sums that may be split over micro batches and replicas.

    ``losses`` names the terms whose mean is minimised; the other terms are only reported. A term's mean is its sum
    divided by its count, both taken over the *whole* global batch, so that neither the micro batch size nor the number
    of replicas changes the update.
    """

    losses: Tuple[str, ...]

    def counts(self, batch: Tensors) -> Tensors:
        """Number of real tokens or sequences behind each term, from the labels alone: name → scalar float32."""

    def sums(self, outputs: Tensors, batch: Tensors) -> Tensors:
        """Sum of each term over one micro batch: name → scalar float32."""


def cross_entropy(scores: tf.Tensor, labels: tf.Tensor) -> tf.Tensor:
    """Negative log-likelihood of ``labels`` (…) under softmax of ``scores`` (…, classes), in float32."""
    return tf.nn.sparse_softmax_cross_entropy_with_logits(labels, tf.cast(scores, tf.float32))


class Update(NamedTuple):
    """How the micro batches of one weight update are combined.

    Attributes:
        micro_batches: micro batches per update over all replicas that share this process.
        virtual_replicas: how many of the config's replicas those micro batches stand for; where several processes share
            one replica, a part of it.
        reduction: ``mean``, ``sum`` or ``running_mean`` over the micro batches of one replica.
        loss_scale: factor on the loss before differentiation, taken off the gradients again.
        adaptive_loss_scale: begin with that factor and seek the largest at which gradients do not overflow.
    """

    micro_batches: int
    virtual_replicas: float = 1
    reduction: str = "mean"
    loss_scale: float = 1.0
    adaptive_loss_scale: bool = False


class OptimizerSettings(NamedTuple):
    """An optimizer, by its published constants.

    Attributes:
        name: ``AdamW`` or ``LAMB``.
        learning_rate: of the number of updates done.
        max_gradient_norm: clip the joint norm of the gradients to this; None: no clipping.
    """

    name: str
    learning_rate: keras.optimizers.schedules.LearningRateSchedule
    weight_decay_rate: float = 0.01
    beta_1: float = 0.9
    beta_2: float = 0.999
    epsilon: float = 1e-6
    max_gradient_norm: Optional[float] = None


class Platform(abc.ABC):
    """Layers, operations and training on one kind of machine.

    Attributes:
        name: ``software`` or ``graphcore``.
        precision: number format of weights and computation, ``float32``, ``float16`` or ``bfloat16``.
        pipelined: whether stages lie on devices of their own.
        on_gpu: whether weights are on a GPU.
        activation: Hugging Face's name of the GeLU that new models get, unless the config names one.
        reduction: over the micro batches of a replica, unless the config names one.
        batch_size: rows of a batch that its models take; None: any number.
        predicts_together: whether it takes all processes to predict.
    """

    name: str
    precision: str = "float32"
    pipelined: bool = False
    on_gpu: bool = False
    activation: str = "gelu"
    reduction: str = "mean"
    batch_size: Optional[int] = None
    predicts_together: bool = False

    @abc.abstractmethod
    def describe(self) -> str:
        """One line for the log: the devices and choices made."""

    @abc.abstractmethod
    def scope(self) -> ContextManager[Any]:
        """Where variables are created and ``fit`` is called (Keras' ``strategy.scope()``)."""

    def stage(self, number: int) -> ContextManager[Any]:
        """Where the blocks of a pipeline stage are called for the first time, and so their weights made."""
        return contextlib.nullcontext()

    def model_input(self, shape: Tuple[int, ...], dtype: str, name: str) -> tf.Tensor:
        """An input of a model.

        Args:
            shape: of one row of the batch.
        """
        return keras.Input(shape, dtype=dtype, name=name)

    # Layers

    @abc.abstractmethod
    def dropout(self, rate: float, name: str) -> keras.layers.Layer:
        """Dropout of a ``rate`` of the elements, the rest scaled by 1 / (1 - rate); at a rate of 0, no operation."""

    @abc.abstractmethod
    def layer_normalization(self, epsilon: float, name: str) -> keras.layers.Layer:
        """Normalisation over the last axis with weights ``gamma`` and ``beta`` (Ba et al. 2016)."""

    # Operations

    @abc.abstractmethod
    def gelu(self, x: tf.Tensor, approximate: bool) -> tf.Tensor:
        """x·Φ(x) (Hendrycks & Gimpel 2016), by erf or by the tanh approximation."""

    @abc.abstractmethod
    def embedding_lookup(self, table: tf.Tensor, ids: tf.Tensor, serialization_factor: int = 1) -> tf.Tensor:
        """Rows ``ids`` of ``table`` (V, H), shape ids.shape + (H,)."""

    @abc.abstractmethod
    def serialized_matmul(self, x: tf.Tensor, table: tf.Tensor, serialization_factor: int = 1) -> tf.Tensor:
        """``x`` (…, H) times the transpose of ``table`` (V, H), computed in that many slices of V where memory asks."""

    def softmax(self, scores: tf.Tensor) -> tf.Tensor:
        """Softmax over the last axis."""
        return tf.nn.softmax(scores)

    def cross_entropy(self, scores: tf.Tensor, labels: tf.Tensor) -> tf.Tensor:
        """Negative log-likelihood of ``labels`` (…) under softmax of ``scores`` (…, classes), in float32."""
        return cross_entropy(scores, labels)

    @abc.abstractmethod
    def checkpointed(self, function: Callable[..., Any], *tensors: tf.Tensor) -> Any:
        """Call ``function`` so that its inner activations are recomputed in the backward pass, not kept."""

    @abc.abstractmethod
    def outlined(self, function: Callable[..., Any]) -> Callable[..., Any]:
        """Mark a repeated function so that the machine may compile its code once and reuse it."""

    def runs_host_code(self) -> bool:
        """Whether a training step may call functions of this process, compiled for the machine's own processor."""
        return False

    # Training

    @abc.abstractmethod
    def optimizer(self, settings: OptimizerSettings) -> keras.optimizers.Optimizer:
        """The machine's own optimizer."""

    @abc.abstractmethod
    def model(self, inputs: Tensors, outputs: Tensors, stages: Sequence[Sequence[str]]) -> keras.Model:
        """A functional Keras model of named blocks, laid out in pipeline ``stages`` of block names."""

    @abc.abstractmethod
    def compile(
        self,
        model: keras.Model,
        optimizer: keras.optimizers.Optimizer,
        objective: Objective,
        update: Update,
        updates_per_execution: int,
    ) -> None:
        """Make ``model.fit`` train towards ``objective``; a step of ``fit`` is one weight update."""

    @abc.abstractmethod
    def compile_step(self, model: keras.Model, element_spec: Any) -> None:
        """Compile the training step of a compiled model for data of this form, without training.

        Args:
            element_spec: the ``element_spec`` of the data set that ``fit`` would get.
        """

    def fit(self, model: keras.Model, data: Any, updates: int, callbacks: Sequence[keras.callbacks.Callback]) -> None:
        """Train a compiled model with Keras' ``fit``.

        Args:
            data: one element of shape (A, B, …) per update.
            updates: how many to do.
            callbacks: see a step as an update.
        """
        model.fit(data, steps_per_epoch=updates, verbose=0, callbacks=list(callbacks))

    def predict(self, model: keras.Model, data: Any, callbacks: Sequence[keras.callbacks.Callback]) -> Tensors:
        """Outputs of the model by name, as arrays with a row for each row of ``data``, and perhaps more behind them."""
        return model.predict(data, verbose=0, callbacks=list(callbacks))

    def parts(self, optimizer: keras.optimizers.Optimizer) -> Any:
        """What of that is a part only, the rest being with other processes: ``checkpoints.state.Parts``."""
        return None

    def state(self, optimizer: keras.optimizers.Optimizer) -> Any:
        """All of a compiled model's optimizer that a checkpoint must hold, as an object that TensorFlow tracks."""
        return optimizer

    def other_state(self) -> Dict[str, Any]:
        """What else of a compiled model a checkpoint must hold: name → an object that TensorFlow tracks."""
        return {}
