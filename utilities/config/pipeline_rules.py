"""Rules of the pipeline: blocks against the model, stages against devices, accumulation against depth."""

from __future__ import annotations

from typing import List

from model.architecture import BLOCK_NAMES, EMB, HEADS, HID, accepted_blocks
from utilities.config.figures import bert_sizes, number_of_ipus, runs_on_ipus
from utilities.config.problems import FieldError, nearest, show
from utilities.config.schema import TrainingConfig

STAGES = "ipu_config.pipeline_stages"
DEVICES = "ipu_config.pipeline_device_mapping"
PROPORTIONS = "ipu_config.matmul_available_memory_proportion_per_pipeline_stage"
ACCUMULATION = "global_batch.grad_acc_steps_per_replica"


def _blocks(config: TrainingConfig) -> List[str]:
    return [block for stage in config.ipu_config.pipeline_stages or [] for block in stage]


def blocks_are_known(config: TrainingConfig, task: str) -> None:
    """Every name in the stages is a block."""
    for number, stage in enumerate(config.ipu_config.pipeline_stages or []):
        for block in stage:
            if block not in BLOCK_NAMES:
                guess = nearest(block, BLOCK_NAMES)
                if " " in block:
                    guess = "the separate texts " + show(block.split())
                hint = f"did you mean {guess}?" if guess else f"use the blocks {', '.join(BLOCK_NAMES)}"
                raise FieldError([STAGES], f"stage {number} has an unknown block {show(block)}", hint)


def layers_match(config: TrainingConfig, task: str) -> None:
    """As many hid as the model has encoder layers."""
    sizes, blocks = bert_sizes(config), _blocks(config)
    if sizes is None or not blocks or blocks.count(HID) == sizes.num_hidden_layers:
        return
    own = config.bert_config is not None
    depth = "bert_config.num_hidden_layers"
    raise FieldError(
        [STAGES, depth if own else "bert_model_name"],
        f"the stages hold {blocks.count(HID)} hid but the model has {sizes.num_hidden_layers} encoder layers",
        f"write {sizes.num_hidden_layers} hid in pipeline_stages"
        + (f", or set {depth} to {blocks.count(HID)}" if own else ""),
    )


def blocks_are_the_tasks(config: TrainingConfig, task: str) -> None:
    """Joined, the stages are the task's blocks in order."""
    blocks = _blocks(config)
    if not blocks or any(block not in BLOCK_NAMES for block in blocks):
        return
    accepted = accepted_blocks(task, blocks.count(HID))
    if blocks not in accepted:
        forms = " or ".join(" ".join(form).replace(" ".join([HID] * blocks.count(HID)), "hid…") for form in accepted)
        raise FieldError(
            [STAGES],
            f"these are not the blocks of {task} in their order",
            f"write, split as you like: {forms}",
        )


def device_per_stage(config: TrainingConfig, task: str) -> None:
    """One device for each stage."""
    stages, devices = config.ipu_config.pipeline_stages, config.ipu_config.pipeline_device_mapping
    if devices is None:
        return
    if stages is None:
        if len(devices) > 1:
            raise FieldError(
                [DEVICES], f"{len(devices)} devices but pipeline_stages is not given", "add pipeline_stages"
            )
        return
    if len(stages) != len(devices):
        raise FieldError(
            [DEVICES],
            f"{len(devices)} devices for {len(stages)} of pipeline_stages",
            f"give one device for each stage, {len(stages)} in all",
        )


def devices_are_contiguous(config: TrainingConfig, task: str) -> None:
    """Devices are numbered 0, 1, 2 … without a gap."""
    devices = config.ipu_config.pipeline_device_mapping
    if devices and set(devices) != set(range(len(set(devices)))):
        renumbered = [sorted(set(devices)).index(device) for device in devices]
        raise FieldError([DEVICES], "devices must be numbered from 0 without a gap", f"write {show(renumbered)}")


def tied_blocks_share_a_device(config: TrainingConfig, task: str) -> None:
    """Embedding and masked-LM head use one table, so they live on one device."""
    stages, devices = config.ipu_config.pipeline_stages, config.ipu_config.pipeline_device_mapping
    if not stages or not devices or len(stages) != len(devices):
        return
    place = {block: device for stage, device in zip(stages, devices) for block in stage}
    if EMB in place and HEADS in place and place[EMB] != place[HEADS]:
        corrected = [place[EMB] if HEADS in stage else device for stage, device in zip(stages, devices)]
        raise FieldError(
            [DEVICES],
            f"emb is on device {place[EMB]} and heads on device {place[HEADS]}, but they share the embedding table",
            f"put both on one device, as in {show(corrected)}",
        )


def proportion_per_ipu(config: TrainingConfig, task: str) -> None:
    """One memory proportion for each IPU."""
    given = config.ipu_config.matmul_available_memory_proportion_per_pipeline_stage
    ipus = number_of_ipus(config)
    if given is not None and len(given) != ipus:
        raise FieldError(
            [PROPORTIONS, DEVICES],
            f"{len(given)} proportions for {ipus} IPU{'s' if ipus > 1 else ''}",
            f"give one for each IPU of pipeline_device_mapping, {ipus} in all",
        )


def accumulation_fills_the_pipeline(config: TrainingConfig, task: str) -> None:
    """A pipeline schedule works through micro batches in rounds."""
    stages = config.ipu_config.pipeline_stages
    if not stages or len(stages) == 1:
        return
    schedule = config.ipu_config.pipeline_schedule
    unit = {"grouped": 2 * len(stages), "interleaved": len(stages), "sequential": 1}[schedule]
    steps = config.global_batch.grad_acc_steps_per_replica
    if steps % unit == 0:
        return
    below, above = steps // unit * unit, (steps // unit + 1) * unit
    near = f"{below} or {above}" if below else f"{above}"
    rule = f"2 × {len(stages)} stages = {unit}" if schedule == "grouped" else f"{len(stages)} stages"
    raise FieldError(
        [ACCUMULATION], f"the {schedule} pipeline schedule needs a multiple of {rule}", f"set it to {near}"
    )


def interleaved_stages_have_their_own_ipus(config: TrainingConfig, task: str) -> None:
    """Graphcore's interleaved schedule cannot train a pipeline that comes back to an IPU."""
    devices, schedule = config.ipu_config.pipeline_device_mapping or [], config.ipu_config.pipeline_schedule
    if schedule == "interleaved" and len(set(devices)) < len(devices) and runs_on_ipus(config):
        raise FieldError(
            ["ipu_config.pipeline_schedule", DEVICES],
            "on IPUs the interleaved schedule cannot train with several stages on one IPU",
            "set pipeline_schedule to grouped",
        )


RULES = (
    blocks_are_known,
    layers_match,
    blocks_are_the_tasks,
    device_per_stage,
    devices_are_contiguous,
    tied_blocks_share_a_device,
    proportion_per_ipu,
    accumulation_fills_the_pipeline,
    interleaved_stages_have_their_own_ipus,
)  # fmt: skip
