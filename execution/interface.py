"""The interface between BERT and the machine that trains it.

A :class:`Platform` provides layers, operations and a trainable model class. ``execution/software`` implements it with
stock TensorFlow on any CPU or GPU; IPUs have another. Model code uses this interface only.

A  micro batches of an update      V  vocabulary
B  samples of a micro batch        H  hidden size
"""

from __future__ import annotations

import abc
import contextlib
import functools
from dataclasses import dataclass
from typing import Any, Callable, ContextManager, Dict, NamedTuple, Optional, Protocol, Sequence, Tuple, Type

from execution.parts import Attention, LinearDropoutNorm
from keras_extensions.backend import keras, tf

Tensors = Dict[str, Any]


@dataclass(frozen=True)
class ExecutionOptions:
    """The config's settings of the machine; its schema describes those that are not listed here.

    Attributes:
        xla: whether to compile with XLA; None: whichever was measured to be faster.
        device_mapping: IPU of each pipeline stage; empty for a model without stages.
        executable_cache: folder in which compiled programs are kept for later runs; ``auto`` and None: they are not
            kept. Only IPUs keep them.
        has_fused_parts: whether the layers are those of this interface and dense, so that a machine may fuse parts of
            them.
        only_predicts: whether the model is never trained, and predicts batches of any shape in a graph.
        constant_weights: whether that graph may hold matrices a second time, as constants, which oneDNN reorders once.
    """

    platform: str = "software"
    device: str = "auto"
    xla: Optional[bool] = None
    threads: Optional[int] = None
    parallel_micro_batches: int = 1
    seed: int = 0
    micro_batch_size: int = 1
    precision: str = "auto"
    recompute: bool = False
    device_mapping: Tuple[int, ...] = ()
    pipeline_devices: Optional[int] = None
    pipeline_schedule: str = "grouped"
    replicas: int = 1
    matmul_proportions: Tuple[float, ...] = ()
    matmul_partials: str = "half"
    optimizer_state_offchip: bool = False
    replicated_tensor_sharding: bool = False
    stochastic_rounding: bool = False
    outlining: bool = False
    fp_exceptions: bool = False
    min_remote_tensor_size: int = 50000
    compile_only: bool = False
    executable_cache: Optional[str] = None
    has_fused_parts: bool = True
    only_predicts: bool = False
    constant_weights: bool = False


class HiddenMatrix(NamedTuple):
    """A matrix from hidden states to hidden states; its columns may be several ``parts``, as of Q, K and V."""

    variable: tf.Variable
    parts: int = 1


class OptimizerSettings(NamedTuple):
    """An optimizer and its hyperparameters.

    Attributes:
        weight_decay_rate: λ; one update decays a weight by learning rate × λ × w.
        muon_scale: spectral norm of a matrix's update at learning rate 1; None: as large as AdamW's updates.
    """

    name: str
    learning_rate: keras.optimizers.schedules.LearningRateSchedule
    weight_decay_rate: float = 0.01
    published_decay: bool = False
    beta_1: float = 0.9
    beta_2: float = 0.999
    epsilon: float = 1e-6
    max_gradient_norm: Optional[float] = None
    matrices: Sequence[HiddenMatrix] = ()
    muon_scale: Optional[float] = None


class Update(NamedTuple):
    """How the micro batches of one weight update are combined.

    Attributes:
        micro_batches: A, over all replicas of this process.
        virtual_replicas: number of the config's replicas that those micro batches stand for; a fraction if several
            processes share one replica.
        reduction: ``mean``, ``sum`` or ``running_mean`` over the micro batches of one replica.
    """

    micro_batches: int
    virtual_replicas: float = 1
    reduction: str = "mean"
    loss_scale: float = 1.0
    adaptive_loss_scale: bool = False


class Objective(Protocol):
    """A task's losses and metrics, as sums that can be split over micro batches and replicas.

    A term's mean is its sum divided by its count, both over the *whole* global batch, so the update depends neither on
    the micro batch size nor on the number of replicas. ``UpdateRule.loss_weights`` in
    ``execution/software/training_step.py`` computes the weights of the losses from the counts. IPUs average the losses
    in each micro batch instead.

    Attributes:
        losses: names of the terms whose means are minimised; other terms are only reported.
    """

    losses: Tuple[str, ...]

    def counts(self, batch: Tensors) -> Tensors:
        """Return the number of real tokens or sequences of each term, from the labels alone: name → float32 scalar."""

    def sums(self, outputs: Tensors, batch: Tensors) -> Tensors:
        """Return the sum of each term over one micro batch: name → float32 scalar."""


def cross_entropy(scores: tf.Tensor, labels: tf.Tensor) -> tf.Tensor:
    """Return the negative log-likelihood (…) of integer labels (…), in float32, given logits (…, classes)."""
    return tf.nn.sparse_softmax_cross_entropy_with_logits(labels, tf.cast(scores, tf.float32))


class Progress(Protocol):
    """What the trainer does between two calls of the compiled program, each of which makes one or more updates."""

    def next_call(self) -> int:
        """Return the number of updates that the next call makes, if the machine can choose it."""

    def after_call(self, updates: int, means: Callable[[], Dict[str, float]]) -> bool:
        """Log, save, evaluate, whatever is due, and return whether training continues.

        The ``means`` are those of each term of the objective, and other values, since the last call.
        """


class Platform(abc.ABC):
    """Layers, operations and training on one kind of machine.

    Attributes:
        precision: number format of weights and computation, ``float32``, ``float16`` or ``bfloat16``; or
            ``mixed_bfloat16``: bfloat16 computation with float32 weights.
        only_predicts: whether its models are blocks that are called, and joined in no Keras model.
        activation: Hugging Face's name of the GeLU of new models if the config does not specify one.
        batch_size: number of rows of a batch that its models accept; None: any.
        all_processes_predict: whether all processes must take part in predictions.
        has_fixed_calls: whether all calls of a compiled program make the same number of updates.
    """

    name: str
    precision: str = "float32"
    pipelined: bool = False
    on_gpu: bool = False
    only_predicts: bool = False
    activation: str = "gelu"
    batch_size: Optional[int] = None
    all_processes_predict: bool = False
    measures_losses: bool = True
    has_fixed_calls: bool = False

    @abc.abstractmethod
    def describe(self) -> str:
        """Return one line for the log that names devices and settings."""

    @abc.abstractmethod
    def scope(self) -> ContextManager[Any]:
        """Return the context in which variables must be created, like ``strategy.scope()``."""

    def stage(self, number: int) -> ContextManager[Any]:
        """Return the context in which a pipeline stage's blocks must first be called, which creates their weights."""
        return contextlib.nullcontext()

    def model_input(self, shape: Tuple[int, ...], dtype: str, name: str) -> tf.Tensor:
        """Create an input of a model, given the shape of one row of the batch."""
        return keras.Input(shape, dtype=dtype, name=name)

    # Layers

    @abc.abstractmethod
    def dropout(self, rate: float, name: str) -> keras.layers.Layer:
        """Create a layer that zeroes a share ``rate`` of the elements and scales the others by 1 / (1 - rate).

        At a rate of 0 the layer must not add any operation. ``execution/software/dropout.py`` draws the masks of stock
        TensorFlow.
        """

    @abc.abstractmethod
    def layer_normalization(self, epsilon: float, name: str) -> keras.layers.Layer:
        """Create a layer that normalises over the last axis, with weights ``gamma`` and ``beta`` (Ba et al. 2016)."""

    def dense(self, units: int, use_bias: bool, initializer: str, name: str) -> keras.layers.Layer:
        """Create a fully connected layer with ``units`` outputs; ``initializer`` is that of the matrix."""
        return keras.layers.Dense(units, use_bias=use_bias, kernel_initializer=initializer, name=name)

    # Parts of the model that a machine may compute in fewer steps

    def joined(self, layers: Sequence[keras.layers.Layer], x: tf.Tensor) -> Optional[tf.Tensor]:
        """Return the outputs (…, O) of dense layers for the same input side by side, if one product is faster."""
        return None

    def linear_gelu(self, units: int, approximate: bool, initializer: str, name: str) -> keras.layers.Layer:
        """Create gelu(dense(x)), a fully connected layer with a bias and GeLU; see :meth:`dense` and :meth:`gelu`."""
        gelu = functools.partial(self.gelu, approximate=approximate)
        return keras.layers.Dense(units, activation=gelu, kernel_initializer=initializer, name=name)

    def linear_dropout_norm(
        self,
        units: int,
        use_bias: bool,
        initializer: str,
        rate: float,
        epsilon: float,
        name: str,
        dense: Optional[keras.layers.Layer] = None,
    ) -> LinearDropoutNorm:
        """Create norm(residual + dropout(dense(x))), which is called with x and the residual.

        A given ``dense`` layer is used instead of a new one.
        """
        kind = LinearDropoutNorm
        if dense is None:
            kind, dense = self.linear_before_norm(units, use_bias, initializer)
        dropout, norm = self.dropout(rate, name="dropout"), self.layer_normalization(epsilon, name="norm")
        return kind(dense, dropout, norm, self.outlined, name=name)

    def linear_before_norm(
        self, units: int, use_bias: bool, initializer: str
    ) -> Tuple[Type[LinearDropoutNorm], keras.layers.Layer]:
        """Return the class of the layers of :meth:`linear_dropout_norm`, and the dense layer that it is made with."""
        return LinearDropoutNorm, self.dense(units, use_bias, initializer, "dense")

    def attention(self, rate: float, name: str) -> Attention:
        """Create the attention of given queries, keys and values, with a dropout ``rate`` for its weights."""
        return Attention(self.dropout(rate, name="dropout"), self.softmax, name=name)

    # Operations

    @abc.abstractmethod
    def gelu(self, x: tf.Tensor, approximate: bool) -> tf.Tensor:
        """Return x·Φ(x) (Hendrycks & Gimpel 2016), computed with erf or with the tanh approximation."""

    @abc.abstractmethod
    def embedding_lookup(self, table: tf.Tensor, ids: tf.Tensor, serialization_factor: int = 1) -> tf.Tensor:
        """Return the rows of ``table`` (V, H) with the numbers ``ids`` (…), as (…, H)."""

    def factor(self, weight: tf.Variable) -> tf.Tensor:
        """Return a weight matrix as a factor of a product, in the number format of the computation."""
        return tf.convert_to_tensor(weight)

    @abc.abstractmethod
    def serialized_matmul(self, x: tf.Tensor, table: tf.Tensor, serialization_factor: int = 1) -> tf.Tensor:
        """Multiply ``x`` (…, H) by the transpose of ``table`` (V, H).

        The result is (…, V). To save memory, ``serialization_factor`` slices of V are computed one after the other.
        """

    def swap_tokens_and_heads(self, x: tf.Tensor) -> tf.Tensor:
        """Return ``x`` (B, S, A, D) as (B, A, S, D), or the other way round."""
        return tf.transpose(x, (0, 2, 1, 3))

    def softmax(self, scores: tf.Tensor) -> tf.Tensor:
        return tf.nn.softmax(scores)

    def cross_entropy(self, scores: tf.Tensor, labels: tf.Tensor) -> tf.Tensor:
        """Return the negative log-likelihood (…) of integer labels (…), in float32, given logits (…, classes)."""
        return cross_entropy(scores, labels)

    @abc.abstractmethod
    def checkpointed(self, function: Callable[..., Any], *tensors: tf.Tensor) -> Any:
        """Call ``function`` on the tensors; if recomputation is on, do not store its activations."""

    @abc.abstractmethod
    def outlined(self, function: Callable[..., Any]) -> Callable[..., Any]:
        """Mark a repeated function, so that the machine may compile its code once and reuse it."""

    def runs_host_code(self) -> bool:
        """Return whether a training step may call functions of this process that are compiled for the host's CPU."""
        return False

    # Training

    @abc.abstractmethod
    def optimizer(self, settings: OptimizerSettings) -> keras.optimizers.Optimizer:
        """Create the machine's own optimizer."""

    @abc.abstractmethod
    def model(self, inputs: Tensors, outputs: Tensors, stages: Sequence[Sequence[str]]) -> keras.Model:
        """Create a functional Keras model of named blocks; stages are the names of their blocks."""

    @abc.abstractmethod
    def compile(
        self,
        model: keras.Model,
        optimizer: keras.optimizers.Optimizer,
        objective: Objective,
        update: Update,
        updates_per_call: int,
    ) -> None:
        """Prepare a model for :meth:`train`.

        Machines whose programs make a fixed number of updates make at most ``updates_per_call`` in one call.
        """

    @abc.abstractmethod
    def compile_evaluation(self, model: keras.Model, objective: Objective) -> None:
        """Prepare a model that is not trained for :meth:`evaluate`."""

    @abc.abstractmethod
    def compile_step(self, model: keras.Model, element_spec: Any) -> None:
        """Compile the training step for data sets with this ``element_spec``, without training."""

    @abc.abstractmethod
    def train(self, model: keras.Model, data: Any, updates: int, progress: Progress) -> None:
        """Call the compiled program as ``progress`` says, on data with an element (A, B, …) for each update."""

    def predict(self, model: keras.Model, data: Any, callbacks: Sequence[keras.callbacks.Callback]) -> Tensors:
        """Return the model's outputs by name, as arrays with a row for each row of ``data``; more rows may follow."""
        return model.predict(data, verbose=0, callbacks=list(callbacks))

    def evaluate(
        self, model: keras.Model, data: Any, callbacks: Sequence[keras.callbacks.Callback]
    ) -> Dict[str, float]:
        """Return the means of the terms of a compiled model's objective over all rows of ``data``."""
        return model.evaluate(data, verbose=0, return_dict=True, callbacks=list(callbacks))

    @abc.abstractmethod
    def shards(self, optimizer: keras.optimizers.Optimizer) -> Any:
        """Return access to the optimizer's moments: :class:`optimization.sharding.ShardedMoments`."""

    def state(self, optimizer: keras.optimizers.Optimizer) -> Any:
        """Return the trackable object with all state of a compiled model's optimizer, for checkpoints."""
        return optimizer

    def moments(self, optimizer: keras.optimizers.Optimizer, variable: tf.Variable) -> Tuple[tf.Variable, tf.Variable]:
        """Return this process' parts of the first and second moment of a weight of a compiled model."""
        return optimizer.moments(variable)

    def other_state(self) -> Dict[str, Any]:
        """Return further trackable objects of a compiled model that belong in checkpoints, by name."""
        return {}
