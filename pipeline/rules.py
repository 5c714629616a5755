"""The rules of a pipeline: its devices, its schedule, and what it computes at the same time."""

from __future__ import annotations

from typing import Iterator

from model.architecture import EMB, HEADS
from settings.derived import DEVICES
from settings.problems import SettingError, show
from settings.schema import TrainingConfig

ACCUMULATION = "global_batch.grad_acc_steps_per_replica"


def stage_devices(config: TrainingConfig, task: str) -> Iterator[SettingError]:
    """Yield the problems of the stages' devices: their number, a gap, tied blocks on different devices."""
    stages, devices = config.ipu_config.pipeline_stages, config.ipu_config.pipeline_device_mapping or []
    if devices and stages is None:
        if len(devices) > 1:
            yield SettingError(
                [DEVICES], f"{len(devices)} devices but pipeline_stages is not given", "add pipeline_stages"
            )
    elif devices and stages is not None and len(stages) != len(devices):
        yield SettingError(
            [DEVICES],
            f"{len(devices)} devices for {len(stages)} of pipeline_stages",
            f"give one device for each stage, {len(stages)} in all",
        )
    numbers = sorted(set(devices))
    if numbers != list(range(len(numbers))):
        renumbered = [numbers.index(device) for device in devices]
        yield SettingError([DEVICES], "devices must be numbered from 0 without a gap", f"write {show(renumbered)}")
    if not stages or len(stages) != len(devices):
        return
    device_by_block = {block: device for stage, device in zip(stages, devices) for block in stage}
    emb, heads = device_by_block.get(EMB), device_by_block.get(HEADS)
    if emb is not None and heads is not None and emb != heads:
        corrected = [emb if HEADS in stage else device for stage, device in zip(stages, devices)]
        yield SettingError(
            [DEVICES],
            f"emb is on device {emb} and heads on device {heads}, but they share the embedding table",
            f"put both on one device, as in {show(corrected)}",
        )


def pipeline_schedule(config: TrainingConfig, task: str) -> Iterator[SettingError]:
    count, schedule = len(config.ipu_config.pipeline_stages or []), config.ipu_config.pipeline_schedule
    unit = {"grouped": 2 * count, "interleaved": count, "sequential": 1}[schedule]
    steps = config.global_batch.grad_acc_steps_per_replica
    if count > 1 and steps % unit:  # a schedule works through micro batches in rounds
        below, above = steps // unit * unit, (steps // unit + 1) * unit
        near = f"{below} or {above}" if below else f"{above}"
        rule = f"2 × {count} stages = {unit}" if schedule == "grouped" else f"{count} stages"
        reason = f"the {schedule} pipeline schedule needs a multiple of {rule}"
        yield SettingError([ACCUMULATION], reason, f"set it to {near}")


def parallel_micro_batches(config: TrainingConfig, task: str) -> Iterator[SettingError]:
    if config.execution.parallel_micro_batches and (config.execution.pipeline_devices or 1) > 1:
        fields = ["execution.parallel_micro_batches", "execution.pipeline_devices"]
        problem = "a pipeline computes micro batches at the same time by itself"
        yield SettingError(fields, problem, "set parallel_micro_batches to false, or pipeline_devices to 1")
