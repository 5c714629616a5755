"""The platform of IPU systems, and the only file that imports Graphcore's packages.

Keras' IPU extensions run ``fit`` as programs of many steps; a step is one micro batch on each replica. The data set's
elements, which are whole updates, are therefore split into micro batches, and one callback tells the trainer.
Losses, learning rates and metrics leave the IPU through outfeed queues.

A  micro batches of an update      B  samples of a micro batch
"""

from __future__ import annotations

import contextlib
import functools
import logging
from typing import Any, Callable, Dict, Iterator, NamedTuple, Optional, Sequence, Tuple

import popdist
from ipu_tensorflow_addons.keras.layers.dropout import Dropout
from ipu_tensorflow_addons.keras.layers.normalization import LayerNormalization
from ipu_tensorflow_addons.keras.optimizers.adam_optimizer import AdamIpuOptimizer
from ipu_tensorflow_addons.keras.optimizers.lamb_optimizer import LAMBIpuOptimizer
from popdist.tensorflow import set_ipu_config
from tensorflow.python.ipu import utils as ipu_utils
from tensorflow.python.ipu.config import DeviceConnectionType, IPUConfig, StochasticRoundingBehaviour
from tensorflow.python.ipu.distributed.host_collective_ops import allgather, allreduce
from tensorflow.python.ipu.distributed.popdist_strategy import PopDistStrategy
from tensorflow.python.ipu.gradient_accumulation import GradientAccumulationReductionMethod
from tensorflow.python.ipu.ipu_outfeed_queue import IPUOutfeedQueue
from tensorflow.python.ipu.ipu_strategy import IPUStrategyV1
from tensorflow.python.ipu.ops import embedding_ops, functional_ops, math_ops, nn_ops
from tensorflow.python.ipu.ops import pipelining_ops as pipelining

from execution.interface import ExecutionOptions, Objective, OptimizerSettings, Platform, Progress, Tensors, Update
from execution.parts import as_rows
from execution.processes import Processes
from graphcore import layout
from graphcore.optimizers import NOT_ADAPTED, NOT_DECAYED, DecoupledDecay, FullPrecision, constants
from graphcore.streams import OBJECTIVE, Calls, StreamedLoss, Terms, low_precision_cross_entropy
from keras_extensions.backend import keras, layers_in, tf
from optimization.sharding import UNSHARDED, ShardedMoments
from utilities.errors import UserError

logger = logging.getLogger(__name__)

PRECISIONS = {"auto": "float16", "float16": "float16", "float32": "float32"}
SCHEDULES = {
    "grouped": pipelining.PipelineSchedule.Grouped,
    "interleaved": pipelining.PipelineSchedule.Interleaved,
    "sequential": pipelining.PipelineSchedule.Sequential,
}
RECOMPUTATION = {  # of the modes that the schedule supports, the one that needs the least memory
    "grouped": pipelining.RecomputationMode.RecomputeAndBackpropagateInterleaved,
    "interleaved": pipelining.RecomputationMode.RecomputeThenBackpropagate,
    "sequential": pipelining.RecomputationMode.RecomputeAndBackpropagateInterleaved,
}
REDUCTIONS = {
    "mean": GradientAccumulationReductionMethod.MEAN,
    "sum": GradientAccumulationReductionMethod.SUM,
    "running_mean": GradientAccumulationReductionMethod.RUNNING_MEAN,
}
MOMENTS = ("m", "v")
SUM_BUFFER = 10 << 20  # bytes of gradients that are summed over replicas at once, as in the published BERT
SUM = tf.distribute.ReduceOp.SUM


class HostCollectives:
    """Collective operations of PopRun's processes on the hosts. The IPUs exchange gradients themselves."""

    def all_reduce_sum(self, values: tf.Tensor) -> tf.Tensor:
        return allreduce(values, SUM)

    def all_reduce_max(self, values: tf.Tensor) -> tf.Tensor:
        return tf.reduce_max(allgather(values), axis=0)


def instances() -> Processes:
    """Return the processes that PopRun started, which it calls instances, or only this one."""
    if not popdist.isPopdistEnvSet():
        return Processes()
    return Processes(popdist.getNumInstances(), popdist.getInstanceIndex(), HostCollectives())


def system_config(options: ExecutionOptions, replicas: Optional[int] = None) -> IPUConfig:
    """Return the configuration of the IPU system, not applied yet; ``replicas`` are 0 if PopRun chooses its IPUs."""
    config = IPUConfig()
    replicas = options.replicas if replicas is None else replicas
    if replicas:
        config.auto_select_ipus = layout.ipus_per_replica(options) * replicas
    config.allow_recompute = options.recompute
    # Every chip must use the same random numbers; replicas that round differently would diverge.
    config.compilation_poplar_options = {"target.deterministicWorkers": "portable"}
    config.matmuls.poplar_options = {"partialsType": options.matmul_partials}
    if not layout.is_pipelined(options) and options.matmul_proportions:
        config.matmuls.poplar_options = layout.matmul_options(options, 0)
    config.norms.use_stable_statistics = True
    floating_point = config.floating_point_behaviour
    floating_point.inv = floating_point.div0 = floating_point.oflo = floating_point.nanoo = options.fp_exceptions
    rounding = options.stochastic_rounding
    floating_point.esr = StochasticRoundingBehaviour.ON if rounding else StochasticRoundingBehaviour.OFF
    config.optimizations.minimum_remote_tensor_size = options.min_remote_tensor_size
    config.optimizations.merge_infeed_io_copies = True
    config.optimizations.maximum_cross_replica_sum_buffer_size = SUM_BUFFER
    config.device_connection.enable_remote_buffers = True
    config.device_connection.type = DeviceConnectionType.ON_DEMAND
    if options.compile_only:
        config.device_connection.type = DeviceConnectionType.PRE_COMPILE
        config.device_connection.version = "ipu2"
    return config


def pipelining_options(options: ExecutionOptions) -> Dict[str, Any]:
    """Return the arguments of ``set_pipelining_options`` that training and inference share."""
    stages = [
        pipelining.PipelineStageOptions(matmul_options=layout.matmul_options(options, ipu))
        for ipu in options.device_mapping
    ]
    return {
        "device_mapping": list(options.device_mapping),
        "pipeline_schedule": SCHEDULES[options.pipeline_schedule],
        "forward_propagation_stages_poplar_options": stages,
    }


def training_options(options: ExecutionOptions, update: Update, replicas: Optional[int] = None) -> Dict[str, Any]:
    """Return the arguments of ``set_pipelining_options`` or, without stages, ``set_gradient_accumulation_options``."""
    sharded = options.replicated_tensor_sharding
    chosen = {
        "gradient_accumulation_steps_per_replica": update.micro_batches // (replicas or options.replicas),
        "gradient_accumulation_reduction_method": REDUCTIONS[update.reduction],
        "offload_weight_update_variables": options.optimizer_state_offchip or sharded,  # required by sharding
        "replicated_optimizer_state_sharding": sharded,
    }
    if not layout.is_pipelined(options):
        return chosen
    shared = pipelining_options(options)
    chosen["backward_propagation_stages_poplar_options"] = shared["forward_propagation_stages_poplar_options"]
    if options.recompute:
        chosen["recomputation_mode"] = RECOMPUTATION[options.pipeline_schedule]
    return {**shared, **chosen}


class IpuLamb(FullPrecision, LAMBIpuOptimizer):
    """Graphcore's LAMB."""


class IpuAdamW(DecoupledDecay, AdamIpuOptimizer):
    """Graphcore's Adam, with decoupled decay."""


class IpuDropout(Dropout):
    """Graphcore's dropout, without its random operation at a rate of 0."""

    def call(self, inputs: tf.Tensor, training: Optional[bool] = None) -> tf.Tensor:
        return super().call(inputs, training=training) if self.rate else inputs


def make_optimizer(settings: OptimizerSettings, options: ExecutionOptions) -> keras.optimizers.Optimizer:
    """Return LAMB or AdamW with moments, norms and update in float32; LAMB's last product has the weights' format."""
    shared = constants(settings)
    if options.outlining and not options.replicated_tensor_sharding:  # outlined functions cannot use parts of variables
        shared.update(outline_apply_gradients=True, outline_apply_gradients_kwargs={"unique_sharding": True})
    if settings.name == "AdamW":
        return IpuAdamW(published_decay=settings.published_decay, optimizer_compute_precisions=(tf.float32,), **shared)
    return IpuLamb(
        optimizer_compute_precisions=(tf.float32, tf.as_dtype(PRECISIONS[options.precision])),
        exclude_from_weight_decay=list(NOT_DECAYED if settings.published_decay else NOT_ADAPTED),
        exclude_from_layer_adaptation=list(NOT_ADAPTED),
        **shared,
    )


class Job(NamedTuple):
    """The arguments of ``compile``."""

    optimizer: keras.optimizers.Optimizer
    objective: Objective
    update: Update
    updates_per_call: int


class GraphcorePlatform(Platform):
    """The IPUs of this process or, under PopRun, of several, which must have the config's replicas."""

    name = "graphcore"
    activation = "gelu_new"  # the only kind for which Poplar has a kernel
    all_processes_predict = True  # all IPUs of a run execute the same programs
    measures_losses = False
    has_fixed_calls = True

    def __init__(self, options: ExecutionOptions, processes: Optional[Processes] = None):
        for name in ("device", "xla", "threads", "pipeline_devices", "parallel_micro_batches"):
            if getattr(options, name) != getattr(ExecutionOptions, name):  # the default
                logger.warning("execution.%s does not apply to IPUs and is ignored", name)
        self.precision = PRECISIONS[options.precision]
        layout.use_executable_cache(options.executable_cache)
        tf.get_logger().propagate = False  # it prints by itself, so every line would appear twice
        self._options = options
        self._processes = instances() if processes is None else processes
        self._replicas = options.replicas // self._processes.count  # replicas of this process
        self.batch_size = options.micro_batch_size
        self._weights_made = False
        self._strategy: tf.distribute.Strategy
        if popdist.isPopdistEnvSet():
            self._strategy = self._joined_strategy()
        else:
            system_config(options).configure_ipu_system()
            self._strategy = IPUStrategyV1()
        ipu_utils.reset_ipu_seed(options.seed)

    def _joined_strategy(self) -> tf.distribute.Strategy:
        """Join the processes that PopRun started, and configure the IPUs that it gave to this one."""
        options, started = self._options, popdist.getNumTotalReplicas()
        if started != options.replicas:
            raise UserError(
                f"global_batch.replicas is {options.replicas}, but PopRun started {started};"
                f" start it with --num-replicas {options.replicas}"
            )
        strategy = PopDistStrategy()
        config = system_config(options, self._replicas if options.compile_only else 0)
        strategy.update_ipu_config(config)
        set_ipu_config(config, layout.ipus_per_replica(options), configure_device=not options.compile_only)
        config.configure_ipu_system()
        return strategy

    def describe(self) -> str:
        options = self._options
        stages, ipus = max(len(options.device_mapping), 1), layout.ipus_per_replica(options)
        chosen = (
            f"{options.replicas} × {ipus} IPUs, {stages} stages, {options.pipeline_schedule} schedule, {self.precision}"
        )
        return f"Graphcore's TensorFlow {tf.__version__}: {chosen}"

    @contextlib.contextmanager
    def scope(self) -> Iterator[None]:
        with layers_in(self.precision), self._strategy.scope():
            yield

    def model_input(self, shape: Tuple[int, ...], dtype: str, name: str) -> tf.Tensor:
        # The whole shape is given, because Keras would divide a batch size by the number of replicas.
        return keras.Input(batch_input_shape=(self.batch_size, *shape), dtype=dtype, name=name)

    # Layers and operations. They are marked for the compiler after the weights have been created, because weights
    # cannot be created inside a marked function.

    def dropout(self, rate: float, name: str) -> keras.layers.Layer:
        return IpuDropout(rate, name=name)

    def layer_normalization(self, epsilon: float, name: str) -> keras.layers.Layer:
        return LayerNormalization(epsilon=epsilon, name=name)

    def gelu(self, x: tf.Tensor, approximate: bool) -> tf.Tensor:
        return nn_ops.gelu(x, approximate=approximate)

    def embedding_lookup(self, table: tf.Tensor, ids: tf.Tensor, serialization_factor: int = 1) -> tf.Tensor:
        return embedding_ops.embedding_lookup(table, ids, serialization_factor=serialization_factor)

    def serialized_matmul(self, x: tf.Tensor, table: tf.Tensor, serialization_factor: int = 1) -> tf.Tensor:
        rows, table = as_rows(x), tf.cast(table, x.dtype)
        if serialization_factor == 1:
            product = tf.matmul(rows, table, transpose_b=True)
        else:
            product = math_ops.serialized_matmul(rows, table, serialization_factor, "b_rows", transpose_b=True)
        return tf.reshape(product, tf.concat([tf.shape(x)[:-1], [table.shape[0]]], axis=0))

    def cross_entropy(self, scores: tf.Tensor, labels: tf.Tensor) -> tf.Tensor:
        return low_precision_cross_entropy(scores, labels)

    def checkpointed(self, function: Callable[..., Any], *tensors: tf.Tensor) -> Any:
        result = function(*tensors)
        marked = self._weights_made and self._options.recompute and layout.is_pipelined(self._options)
        return pipelining.recomputation_checkpoint(result) if marked else result

    def outlined(self, function: Callable[..., Any]) -> Callable[..., Any]:
        marked = self._weights_made and self._options.outlining
        return functional_ops.outlined_function(function) if marked else function

    def optimizer(self, settings: OptimizerSettings) -> keras.optimizers.Optimizer:
        with self.scope():
            return make_optimizer(settings, self._options)

    def model(self, inputs: Tensors, outputs: Tensors, stages: Sequence[Sequence[str]]) -> keras.Model:
        self._inputs, self._outputs = inputs, outputs
        self._prediction_steps: Optional[int] = None  # of the program that was compiled for predictions
        self._stages = {name: number for number, names in enumerate(stages) for name in names}
        model = self._staged(keras.Model(inputs=inputs, outputs=outputs))
        self._weights_made = True
        return model

    def compile(
        self,
        model: keras.Model,
        optimizer: keras.optimizers.Optimizer,
        objective: Objective,
        update: Update,
        updates_per_call: int,
    ) -> None:
        assert not update.adaptive_loss_scale, "the rules of the config refuse it"
        self._job = Job(optimizer, objective, update, updates_per_call)
        optimizer.divisor = update.loss_scale * self._options.replicas
        with self.scope():
            self._moments = {
                moment: {variable.name: optimizer.add_slot(variable, moment) for variable in model.trainable_variables}
                for moment in MOMENTS
            }

    def compile_evaluation(self, model: keras.Model, objective: Objective) -> None:
        """Do nothing: IPUs do not measure losses of evaluation."""

    def compile_step(self, model: keras.Model, element_spec: Any) -> None:
        updates = self._job.updates_per_call
        zeros = {name: tf.zeros(spec.shape, spec.dtype) for name, spec in element_spec.items()}
        self._fit(model, tf.data.Dataset.from_tensors(zeros).repeat(updates), updates, None)

    def train(self, model: keras.Model, data: Any, updates: int, progress: Progress) -> None:
        self._fit(model, data, updates, progress)

    def predict(self, model: keras.Model, data: Any, callbacks: Sequence[keras.callbacks.Callback]) -> Dict[str, Any]:
        options = self._options
        names = list(self._inputs)
        batches = int(tf.data.experimental.cardinality(data))
        steps = layout.prediction_steps(options, -(-batches // self._replicas))
        block = steps * self._replicas
        with self.scope():
            if steps != self._prediction_steps:  # setting options would discard the compiled program
                if layout.is_pipelined(options):
                    model.set_pipelining_options(
                        gradient_accumulation_steps_per_replica=steps, **pipelining_options(options)
                    )
                model.compile(steps_per_execution=steps)
                self._prediction_steps = steps
            outputs = model.predict(
                data.map(lambda element: {name: element[name] for name in names}).repeat(),
                steps=-(-batches // block) * block,
                verbose=0,
                callbacks=list(callbacks),
            )
        return {name: values.astype("float32") for name, values in outputs.items()}

    def shards(self, optimizer: keras.optimizers.Optimizer) -> ShardedMoments:
        return UNSHARDED

    def state(self, optimizer: keras.optimizers.Optimizer) -> Any:
        return tf.train.Checkpoint(iterations=optimizer.iterations, **self._moments)

    def moments(self, optimizer: keras.optimizers.Optimizer, variable: tf.Variable) -> Tuple[tf.Variable, tf.Variable]:
        first, second = (self._moments[moment][variable.name] for moment in MOMENTS)
        return first, second

    def _fit(self, model: keras.Model, data: Any, updates: int, progress: Optional[Progress]) -> None:
        job, values, rates = self._job, IPUOutfeedQueue(), IPUOutfeedQueue()
        steps = job.update.micro_batches // self._replicas
        job.optimizer.report_rate = rates.enqueue
        updates_per_call = layout.largest_divisor(updates, job.updates_per_call)
        if updates_per_call < job.updates_per_call:
            logger.info("%d updates in a call, because all calls on IPUs have the same length", updates_per_call)
        with self.scope():
            trained, terms = self._trained(model, data.element_spec)
            set_options = trained.set_pipelining_options
            if not layout.is_pipelined(self._options):
                set_options = trained.set_gradient_accumulation_options
            set_options(**training_options(self._options, job.update, self._replicas))
            loss = StreamedLoss(terms, job.objective.losses, job.update.loss_scale, values.enqueue)
            trained.compile(optimizer=job.optimizer, loss=loss, steps_per_execution=updates_per_call * steps)
            callbacks = []
            if progress is not None:
                new_rates = functools.partial(rates.dequeue, wait_for_completion=True)
                callbacks = [Calls(progress, steps, terms, lambda: self._summed(values), new_rates)]
            trained.fit(
                layout.micro_batches(data, job.update.micro_batches),
                steps_per_epoch=updates * job.update.micro_batches,
                verbose=0,
                callbacks=callbacks,
            )

    def _trained(self, model: keras.Model, spec: Dict[str, tf.TensorSpec]) -> Any:
        """Return the model with the objective as its output, in the last stage, and the names of its terms."""
        labels = {
            name: self.model_input(tuple(feature.shape[2:]), feature.dtype.name, name)
            for name, feature in spec.items()
            if name not in self._inputs
        }
        batch, terms = {**self._inputs, **labels}, Terms(self._job.objective)
        result = terms({"outputs": self._outputs, "batch": batch})
        return self._staged(keras.Model(inputs=batch, outputs=result)), terms.names

    def _staged(self, model: Any) -> Any:
        """Assign a model's layers to pipeline stages, the objective to the last one, and return the model."""
        if layout.is_pipelined(self._options):
            last = max(self._stages.values())
            assignments = model.get_pipeline_stage_assignment()
            for assignment in assignments:
                name = assignment.layer.name
                assignment.pipeline_stage = last if name == OBJECTIVE else self._stages[name]
            model.set_pipeline_stage_assignment(assignments)
        return model

    def _summed(self, queue: IPUOutfeedQueue) -> Any:
        values = queue.dequeue(wait_for_completion=True)
        return values if self._processes.is_single else allreduce(values, SUM)
