"""The rules of IPUs: their memory proportions, and what they do not support."""

from __future__ import annotations

from typing import Iterator

from model.tasks import PRETRAINING
from settings.derived import DEVICES, PROPORTIONS
from settings.problems import SettingError
from settings.schema import TrainingConfig
from settings.sections import IpuConfig


def number_of_ipus(ipu_config: IpuConfig) -> int:
    return max(ipu_config.pipeline_device_mapping or [0]) + 1


def proportions(config: TrainingConfig, task: str) -> Iterator[SettingError]:
    ipus = number_of_ipus(config.ipu_config)
    given = config.ipu_config.matmul_available_memory_proportion_per_pipeline_stage
    if given is not None and len(given) != ipus:
        yield SettingError(
            [PROPORTIONS, DEVICES],
            f"{len(given)} proportions for {ipus} IPU{'s' if ipus > 1 else ''}",
            f"give one for each IPU of pipeline_device_mapping, {ipus} in all",
        )


def limits_of_ipus(config: TrainingConfig, task: str) -> Iterator[SettingError]:
    """Yield the schedule, number format, options of the optimizer, and evaluations that IPUs do not support."""
    if not config.runs_on_ipus:
        return
    devices = config.ipu_config.pipeline_device_mapping or []
    if config.ipu_config.pipeline_schedule == "interleaved" and len(set(devices)) < len(devices):
        yield SettingError(
            ["ipu_config.pipeline_schedule", DEVICES],
            "on IPUs the interleaved schedule cannot train with several stages on one IPU",
            "set pipeline_schedule to grouped",
        )
    options, precision = config.optimizer_opts, config.execution.precision
    if precision not in ("auto", "float16", "float32"):
        yield SettingError(["execution.precision"], "IPUs lack this format", "set it to float16 or float32")
    if config.ipu_config.replicated_tensor_sharding and config.optimizer_state_offchip is False:
        yield SettingError(
            ["optimizer_state_offchip", "ipu_config.replicated_tensor_sharding"],
            "on IPUs sharded optimizer state must be off the chip",
            "set optimizer_state_offchip to true, or replicated_tensor_sharding to false",
        )
    if options.name == "Muon":
        yield SettingError(
            ["optimizer_opts.name", "execution.platform"],
            "Graphcore's TensorFlow has no Muon",
            "set name to AdamW or LAMB, or execution.platform to software",
        )
    if options.max_gradient_norm is not None and config.do_training:
        yield SettingError(
            ["optimizer_opts.max_gradient_norm"],
            "on IPUs gradients are not clipped (the norm of scaled float16 gradients overflows)",
            "set it to none",
        )
    if options.loss_scaling == "auto" and config.do_training:
        yield SettingError(
            ["optimizer_opts.loss_scaling"], "IPUs have no automatic loss scale", "give a number, as published: 4096"
        )
    needs_losses = config.evaluation.every is not None or not config.do_training
    if task == PRETRAINING and needs_losses and not (config.generated_dataset and config.do_training):
        yield SettingError(
            ["evaluation.every" if config.do_training else "do_training"],
            "IPUs do not measure losses on held-out text",
            "evaluate the run's checkpoints on a CPU or GPU",
        )
