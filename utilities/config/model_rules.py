"""Rules of the model: sizes and layers, pipeline and optimizer state, sparse matrices."""

from __future__ import annotations

from typing import List

from model.architecture import BLOCK_NAMES, EMB, HEADS, HID, SPARSE_PARTS, accepted_blocks
from utilities.config.figures import LAYER_OPTIONS, bert_sizes, number_of_ipus, runs_on_ipus
from utilities.config.problems import FieldError, nearest, show
from utilities.config.schema import TrainingConfig

STAGES = "ipu_config.pipeline_stages"
DEVICES = "ipu_config.pipeline_device_mapping"
SCHEDULE = "ipu_config.pipeline_schedule"
PROPORTIONS = "ipu_config.matmul_available_memory_proportion_per_pipeline_stage"
ACCUMULATION = "global_batch.grad_acc_steps_per_replica"

BLOCK_SIZES = (1, 4, 8, 16)

# Sizes and layers


def heads_divide_hidden_size(config: TrainingConfig, task: str) -> None:
    """Attention heads share the hidden size evenly."""
    sizes = config.bert_config
    if sizes is None or sizes.hidden_size % sizes.num_attention_heads == 0:
        return
    near = _nearest_divisor(sizes.hidden_size, sizes.num_attention_heads)
    raise FieldError(
        ["bert_config.num_attention_heads", "bert_config.hidden_size"],
        "the heads must divide hidden_size",
        f"set num_attention_heads to {near}, or hidden_size to a multiple of {sizes.num_attention_heads}",
    )


def vocabulary_divides(config: TrainingConfig, task: str) -> None:
    """The tied embedding is cut into equal slices."""
    sizes, factor = config.bert_config, config.embedding_serialization_factor
    if sizes is None or sizes.vocab_size % factor == 0:
        return
    padded = -(-sizes.vocab_size // factor) * factor
    raise FieldError(
        ["embedding_serialization_factor", "bert_config.vocab_size"],
        "the factor must divide vocab_size",
        f"set embedding_serialization_factor to {_nearest_divisor(sizes.vocab_size, factor)}, or "
        f"vocab_size to {padded}",
    )


def _nearest_divisor(number: int, wish: int) -> int:
    """Return the divisor of ``number`` nearest to ``wish``, or 1 if it is far away."""
    wish = min(wish, number)
    for distance in range(min(number, 100_000)):
        for candidate in (wish - distance, wish + distance):
            if 0 < candidate <= number and number % candidate == 0:
                return candidate
    return 1


def sequence_fits_positions(config: TrainingConfig, task: str) -> None:
    """The model has an embedding for each position."""
    sizes = bert_sizes(config)
    if sizes is None or config.max_seq_length <= sizes.max_position_embeddings:
        return
    limit = sizes.max_position_embeddings
    own = config.bert_config is not None
    raise FieldError(
        ["max_seq_length", "bert_config.max_position_embeddings" if own else "bert_model_name"],
        f"sequences are longer than the model's {limit} positions",
        f"set max_seq_length to at most {limit}" + (", or raise max_position_embeddings" if own else ""),
    )


def qkv_bias_needs_split(config: TrainingConfig, task: str) -> None:
    """Biases exist on the separate matrices only."""
    if config.use_qkv_bias and not config.use_qkv_split:
        raise FieldError(
            ["use_qkv_bias", "use_qkv_split"],
            "use_qkv_bias needs use_qkv_split",
            "set use_qkv_split to true, or use_qkv_bias to false",
        )


def options_need_replaced_layers(config: TrainingConfig, task: str) -> None:
    """Hugging Face's own layers have every bias; only their replacements can do without."""
    if config.replace_layers:
        return
    switched_off = [name for name in LAYER_OPTIONS if getattr(config, name) is False]
    if switched_off:
        raise FieldError(
            ["replace_layers", switched_off[0]],
            "Hugging Face's own layers cannot leave it out",
            f"set replace_layers to true, or leave {switched_off[0]} unset",
        )


def narrow_formats_need_replaced_layers(config: TrainingConfig, task: str) -> None:
    """Hugging Face's own layers compute in float32."""
    if not config.replace_layers and config.execution.precision not in ("auto", "float32"):
        raise FieldError(
            ["execution.precision", "replace_layers"],
            "Hugging Face's own layers are float32",
            "set execution.precision to float32, or replace_layers to true",
        )


# Pipeline and optimizer state


def _blocks(config: TrainingConfig) -> List[str]:
    return [block for stage in config.ipu_config.pipeline_stages or [] for block in stage]


def blocks_are_known(config: TrainingConfig, task: str) -> None:
    """Every name in the stages is that of a block."""
    for number, stage in enumerate(config.ipu_config.pipeline_stages or []):
        for block in stage:
            if block not in BLOCK_NAMES:
                guess = nearest(block, BLOCK_NAMES)
                if " " in block:
                    guess = "the separate texts " + show(block.split())
                hint = f"did you mean {guess}?" if guess else f"use the blocks {', '.join(BLOCK_NAMES)}"
                raise FieldError([STAGES], f"stage {number} has an unknown block {show(block)}", hint)


def layers_match(config: TrainingConfig, task: str) -> None:
    """There are as many hid as the model has encoder layers."""
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
    """Each stage has a device."""
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
    """Each IPU has a memory proportion, if any has."""
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
            [SCHEDULE, DEVICES],
            "on IPUs the interleaved schedule cannot train with several stages on one IPU",
            "set pipeline_schedule to grouped",
        )


def sharded_state_is_offchip_on_ipus(config: TrainingConfig, task: str) -> None:
    """Graphcore's resource update shards only optimizer state that is kept off the chip."""
    sharded = config.ipu_config.replicated_tensor_sharding
    if sharded and not config.optimizer_state_offchip and runs_on_ipus(config):
        raise FieldError(
            ["optimizer_state_offchip", "ipu_config.replicated_tensor_sharding"],
            "on IPUs sharded optimizer state must be off the chip",
            "set optimizer_state_offchip to true, or replicated_tensor_sharding to false",
        )


# Sparse matrices


def blocks_fit(config: TrainingConfig, task: str) -> None:
    """Blocks come in four sizes and divide the encoder's matrices."""
    size, sizes = config.sparsity.block_size, bert_sizes(config)
    if size not in BLOCK_SIZES:
        raise FieldError(["sparsity.block_size"], "blocks are of 1, 4, 8 or 16 rows and columns", "set it to 16")
    if not config.sparsity.ratio or sizes is None:
        return
    for name in ("hidden_size", "intermediate_size"):
        if getattr(sizes, name) % size:
            fitting = max(b for b in BLOCK_SIZES if getattr(sizes, name) % b == 0)
            raise FieldError(
                ["sparsity.block_size", f"bert_config.{name}"],
                "blocks must divide the matrices",
                f"set it to {fitting}",
            )


def sparse_layers_are_known(config: TrainingConfig, task: str) -> None:
    """Only matrices that exist can be sparse."""
    unknown = [name for name in config.sparsity.layers if name not in SPARSE_PARTS]
    if unknown:
        known = ", ".join(SPARSE_PARTS)
        raise FieldError(["sparsity.layers"], f"{unknown[0]} is none of {known}", "name some of those")


def sparsity_needs_this_projects_layers(config: TrainingConfig, task: str) -> None:
    """Hugging Face's own layers are dense, and so are those of IPUs."""
    if not config.sparsity.ratio:
        return
    if not config.replace_layers:
        raise FieldError(
            ["sparsity.ratio", "replace_layers"], "Hugging Face's own layers are dense", "set replace_layers to true"
        )
    if runs_on_ipus(config):
        raise FieldError(
            ["sparsity.ratio", "execution.platform"],
            "sparse layers run on stock TensorFlow alone",
            "set execution.platform to software, or ratio to 0",
        )


def native_code_runs_outside_xla(config: TrainingConfig, task: str) -> None:
    """Native products cannot be called from a function that XLA compiles, and need blocks of several weights."""
    if not config.sparsity.ratio or config.sparsity.kernel != "native":
        return
    if config.execution.xla:
        raise FieldError(
            ["sparsity.kernel", "execution.xla"], "native products run outside of XLA", "set execution.xla to false"
        )
    if config.sparsity.block_size == 1:
        raise FieldError(
            ["sparsity.kernel", "sparsity.block_size"],
            "there are no native products of single weights",
            "set kernel to auto, or block_size to 4, 8 or 16",
        )


RULES = (
    blocks_fit,
    sparse_layers_are_known,
    sparsity_needs_this_projects_layers,
    native_code_runs_outside_xla,
    heads_divide_hidden_size,
    vocabulary_divides,
    sequence_fits_positions,
    blocks_are_known,
    layers_match,
    blocks_are_the_tasks,
    device_per_stage,
    devices_are_contiguous,
    tied_blocks_share_a_device,
    proportion_per_ipu,
    accumulation_fills_the_pipeline,
    interleaved_stages_have_their_own_ipus,
    options_need_replaced_layers,
    narrow_formats_need_replaced_layers,
    sharded_state_is_offchip_on_ipus,
    qkv_bias_needs_split,
)
