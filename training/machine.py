"""Translates a config for the machine: platform, processes, optimizer, and the combination of micro batches."""

from __future__ import annotations

import dataclasses
from typing import Sequence

from execution.interface import ExecutionOptions, HiddenMatrix, OptimizerSettings, Update
from execution.processes import SINGLE_PROCESS, Processes
from execution.select import processes_for
from keras_extensions.schedules import make_schedule
from model.architecture import Architecture
from optimization.loss_scaling import INITIAL_SCALE
from settings.derived import betas, max_learning_rate
from settings.published import decays_as_published
from settings.schema import TrainingConfig
from settings.sections import GlobalBatch, OptimizerOptions
from training.chief import shared_settings
from training.rooms import EXECUTION
from utilities.errors import UserError

# Weights of the encoder's matrices up to which predictions in bfloat16 hold them as constants, too. oneDNN reorders
# constants once, not for each batch: 6 × 384, with 10.6 million, predicts 1.4 to 1.75 times as fast, for 420 MiB and a
# second of tracing more. BERT-base, with 85 million, would be twice as fast, for 4,000 MiB and 8 s more.
CONSTANT_WEIGHTS = 16_000_000


def configured_processes(config: TrainingConfig) -> Processes:
    """Return the processes that train together, not yet joined."""
    processes = processes_for(config.execution.platform)
    parts = config.global_batch.micro_batches
    if parts % processes.count:
        batch = config.global_batch
        raise UserError(
            f"global_batch: {processes.count} processes cannot share {parts:,} micro batches evenly ({batch.replicas}"
            f" replicas × {batch.grad_acc_steps_per_replica} grad_acc_steps_per_replica); start a number of processes"
            " that divides them, or change grad_acc_steps_per_replica"
        )
    if not processes.is_single:
        processes.settings = shared_settings(config)
    return processes


def execution_options(config: TrainingConfig, processes: Processes = SINGLE_PROCESS) -> ExecutionOptions:
    execution, ipu, on_ipus = config.execution, config.ipu_config, config.runs_on_ipus
    own_micro_batches = config.global_batch.micro_batches // processes.count
    # Hugging Face's own layers compute in float32.
    precision = "float32" if execution.precision == "auto" and not config.replace_layers else execution.precision
    options = ExecutionOptions(
        platform=execution.platform,
        device=execution.device,
        xla=execution.xla,
        threads=execution.threads,
        parallel_micro_batches=own_micro_batches if execution.parallel_micro_batches else 1,
        seed=config.seed,
        micro_batch_size=config.global_batch.micro_batch_size,
        precision=precision,
        recompute=on_ipus if config.enable_recomputation is None else config.enable_recomputation,
        device_mapping=tuple(ipu.pipeline_device_mapping or ()),
        pipeline_devices=execution.pipeline_devices,  # room: pipeline
        pipeline_schedule=ipu.pipeline_schedule,
        replicas=config.global_batch.replicas,
        matmul_proportions=tuple(ipu.matmul_available_memory_proportion_per_pipeline_stage or ()),
        matmul_partials=config.matmul_partials_type,
        optimizer_state_offchip=on_ipus if config.optimizer_state_offchip is None else config.optimizer_state_offchip,
        replicated_tensor_sharding=ipu.replicated_tensor_sharding,
        stochastic_rounding=config.enable_stochastic_rounding,
        outlining=config.use_outlining,
        fp_exceptions=config.fp_exceptions,
        min_remote_tensor_size=config.min_remote_tensor_size,
        compile_only=config.compile_only,
        executable_cache=execution.executable_cache,
        has_fused_parts=config.replace_layers,
    )
    for changes in EXECUTION:
        options = dataclasses.replace(options, **changes(config))
    return options


def prediction_options(config: TrainingConfig, architecture: Architecture) -> ExecutionOptions:
    """Return the options for a model that is never trained."""
    weights = architecture.num_hidden_layers * architecture.matrix_weights()
    constant = config.execution.precision == "bfloat16" and weights <= CONSTANT_WEIGHTS
    return dataclasses.replace(execution_options(config), only_predicts=True, constant_weights=constant)


def optimizer_settings(
    config: TrainingConfig, updates: int, packing_factor: float = 1.0, matrices: Sequence[HiddenMatrix] = ()
) -> OptimizerSettings:
    """Return the config's optimizer with its schedule; a row has ``packing_factor`` samples on average."""
    options, rate = config.optimizer_opts, config.optimizer_opts.learning_rate
    peak = max_learning_rate(rate, config.samples_per_update)
    beta_1, beta_2 = betas(options, config.packing, packing_factor)
    return OptimizerSettings(
        name=options.name,
        learning_rate=make_schedule(rate.schedule_name, peak, updates, rate.warmup_frac, rate.power),
        weight_decay_rate=options.weight_decay_rate,
        published_decay=decays_as_published(options, config.runs_on_ipus),
        beta_1=beta_1,
        beta_2=beta_2,
        epsilon=options.epsilon,
        max_gradient_norm=options.max_gradient_norm,
        matrices=matrices,
        muon_scale=options.muon_scale,
    )


def update_settings(batch: GlobalBatch, options: OptimizerOptions, processes: Processes) -> Update:
    """Return how the micro batches of an update are combined."""
    scale, reduction = options.loss_scaling, options.gradient_accumulation_reduction
    assert reduction is not None, "set by settings.derived.derive"
    return Update(
        micro_batches=batch.micro_batches // processes.count,
        virtual_replicas=batch.replicas / processes.count,
        reduction=reduction,
        loss_scale=INITIAL_SCALE if scale == "auto" else scale or 1.0,
        adaptive_loss_scale=scale == "auto",
    )
