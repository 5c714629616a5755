"""Rules of the model: sizes and layers, pipeline and optimizer state."""

from __future__ import annotations

from typing import Iterator

from model.architecture import BLOCK_NAMES, EMB, HEADS, HID, LAYER_OPTIONS
from model.tasks import PRETRAINING, accepted_blocks
from settings.architecture import known_architecture, next_multiple
from settings.derived import DEVICES, PROPORTIONS, STAGES, fits_stages, number_of_ipus
from settings.problems import SettingError, nearest, show
from settings.published import runs_on_ipus
from settings.schema import TrainingConfig

SCHEDULE = "ipu_config.pipeline_schedule"
ACCUMULATION = "global_batch.grad_acc_steps_per_replica"


def model_sizes(config: TrainingConfig, task: str) -> Iterator[SettingError]:
    given, factor = config.bert_config, config.embedding_serialization_factor
    known = known_architecture(config, task)
    if given is None and known is not None and known.hidden_size % known.num_attention_heads:
        reason = f"its {known.num_attention_heads} heads do not divide its hidden_size, {known.hidden_size}"
        yield SettingError([config.weights_key], reason, "name a BERT with the file of its weights")
    if given is not None and given.hidden_size % given.num_attention_heads:
        near = _nearest_divisor(given.hidden_size, given.num_attention_heads)
        yield SettingError(
            ["bert_config.num_attention_heads", "bert_config.hidden_size"],
            "the heads must divide hidden_size",
            f"set num_attention_heads to {near}, or hidden_size to a multiple of {given.num_attention_heads}",
        )
    if given is not None and given.vocab_size % factor:
        padded = next_multiple(given.vocab_size, factor)
        yield SettingError(
            ["embedding_serialization_factor", "bert_config.vocab_size"],
            "the factor must divide vocab_size",
            f"set embedding_serialization_factor to {_nearest_divisor(given.vocab_size, factor)}, or "
            f"vocab_size to {padded}",
        )
    if known is not None and config.max_seq_length > known.max_position_embeddings:
        limit = known.max_position_embeddings
        yield SettingError(
            ["max_seq_length", "bert_config.max_position_embeddings" if given else config.weights_key],
            f"sequences are longer than the model's {limit} positions",
            f"set max_seq_length to at most {limit}" + (", or raise max_position_embeddings" if given else ""),
        )


def _nearest_divisor(number: int, target: int) -> int:
    """Return the divisor of ``number`` nearest to ``target``, or 1 if it is far away."""
    target = min(target, number)
    for distance in range(min(number, 100_000)):
        for candidate in (target - distance, target + distance):
            if 0 < candidate <= number and number % candidate == 0:
                return candidate
    return 1


def stage_blocks(config: TrainingConfig, task: str) -> Iterator[SettingError]:
    """Yield the problems of the blocks: an unknown one, their number, their order, a stage without any."""
    given = config.ipu_config.pipeline_stages or []
    blocks = [block for stage in given for block in stage]
    sizes = known_architecture(config, task)
    unknown = [(number, block) for number, stage in enumerate(given) for block in stage if block not in BLOCK_NAMES]
    for number, block in unknown[:1]:
        guess = "the separate texts " + show(block.split()) if " " in block else nearest(block, BLOCK_NAMES)
        hint = f"did you mean {guess}?" if guess else f"use the blocks {', '.join(BLOCK_NAMES)}"
        yield SettingError([STAGES], f"stage {number} has an unknown block {show(block)}", hint)
    layers = blocks.count(HID)
    if sizes is not None and not fits_stages(given or None, sizes):
        depth = "bert_config.num_hidden_layers"
        yield SettingError(
            [STAGES, depth if config.bert_config else config.weights_key],
            f"the stages have {layers} hid but the model has {sizes.num_hidden_layers} encoder layers",
            f"write {sizes.num_hidden_layers} hid in pipeline_stages"
            + (f", or set {depth} to {layers}" if config.bert_config else ""),
        )
    accepted = accepted_blocks(task, layers, config.use_next_sentence)
    if blocks and not unknown and blocks not in accepted:
        forms = " or ".join(" ".join(form).replace(" ".join([HID] * layers), "hid…") for form in accepted)
        reason = f"these are not the blocks of {task} in their order"
        yield SettingError([STAGES], reason, f"write, split as you like: {forms}")
    if [] in given:
        reason = "a stage has only pool, which is left out without next-sentence prediction"
        yield SettingError([STAGES, "use_next_sentence"], reason, "write pool in the stage of heads")


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
    """Yield the problems of memory proportions, accumulation and schedule."""
    ipu, ipus = config.ipu_config, number_of_ipus(config)
    given = ipu.matmul_available_memory_proportion_per_pipeline_stage
    if given is not None and len(given) != ipus:
        yield SettingError(
            [PROPORTIONS, DEVICES],
            f"{len(given)} proportions for {ipus} IPU{'s' if ipus > 1 else ''}",
            f"give one for each IPU of pipeline_device_mapping, {ipus} in all",
        )
    count, schedule = len(ipu.pipeline_stages or []), ipu.pipeline_schedule
    unit = {"grouped": 2 * count, "interleaved": count, "sequential": 1}[schedule]
    steps = config.global_batch.grad_acc_steps_per_replica
    if count > 1 and steps % unit:  # a schedule works through micro batches in rounds
        below, above = steps // unit * unit, (steps // unit + 1) * unit
        near = f"{below} or {above}" if below else f"{above}"
        rule = f"2 × {count} stages = {unit}" if schedule == "grouped" else f"{count} stages"
        reason = f"the {schedule} pipeline schedule needs a multiple of {rule}"
        yield SettingError([ACCUMULATION], reason, f"set it to {near}")
    devices = ipu.pipeline_device_mapping or []
    if schedule == "interleaved" and len(set(devices)) < len(devices) and runs_on_ipus(config):
        yield SettingError(
            [SCHEDULE, DEVICES],
            "on IPUs the interleaved schedule cannot train with several stages on one IPU",
            "set pipeline_schedule to grouped",
        )


def layer_options(config: TrainingConfig, task: str) -> Iterator[SettingError]:
    """Yield options that the layers do not support."""
    switched_off = [name for name in LAYER_OPTIONS if getattr(config, name) is False]
    if not config.replace_layers and switched_off:
        yield SettingError(
            ["replace_layers", switched_off[0]],
            "Hugging Face's own layers cannot leave it out",
            f"set replace_layers to true, or leave {switched_off[0]} unset",
        )
    if not config.replace_layers and config.execution.precision not in ("auto", "float32"):
        yield SettingError(
            ["execution.precision", "replace_layers"],
            "Hugging Face's own layers are float32",
            "set execution.precision to float32, or replace_layers to true",
        )
    if config.use_qkv_bias and not config.use_qkv_split:
        yield SettingError(
            ["use_qkv_bias", "use_qkv_split"],
            "use_qkv_bias needs use_qkv_split",
            "set use_qkv_split to true, or use_qkv_bias to false",
        )


def limits_of_ipus(config: TrainingConfig, task: str) -> Iterator[SettingError]:
    """Yield the number format, options of the optimizer, and evaluations that IPUs do not support."""
    if not runs_on_ipus(config):
        return
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


RULES = (
    model_sizes,
    stage_blocks,
    stage_devices,
    pipeline_schedule,
    layer_options,
    limits_of_ipus,
)
