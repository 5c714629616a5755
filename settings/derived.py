"""Values that follow from a config: defaults that depend on other fields, the model's shape, steps, IPUs."""

from __future__ import annotations

from typing import Any, Dict, List, Optional, Sequence, Tuple

from model.architecture import EMB, HEADS, HID, POOL, Architecture
from model.tasks import PRETRAINING, expected_blocks
from settings.data_sections import Packing
from settings.metadata import manifest_count
from settings.problems import DERIVED, TYPED
from settings.published import published_values
from settings.schema import TrainingConfig
from settings.sections import LearningRate, OptimizerOptions

Stages = Sequence[Sequence[str]]  # of blocks

STAGES = "ipu_config.pipeline_stages"
DEVICES = "ipu_config.pipeline_device_mapping"
PROPORTIONS = "ipu_config.matmul_available_memory_proportion_per_pipeline_stage"


def derive(
    config: TrainingConfig, task: str, known: Optional[Architecture], origins: Dict[str, str], file_stem: str
) -> Tuple[TrainingConfig, List[str]]:
    """Fill in unset values that follow from others; return the config, and the dotted names that were derived."""
    packing, on_ipus = config.packing, config.runs_on_ipus
    derived: Dict[str, Any] = {"name": file_stem} if config.name is None else {}
    derived.update(published_values(config, task, known, origins))
    if config.total_num_train_samples is not None and config.num_epochs is not None:
        _, unused = used_length(origins)
        derived[unused] = None
    derived.update(_pipeline(config, task, known, origins))
    if task == PRETRAINING and packing.max_sequences_per_pack and packing.max_predictions_per_pack is None:
        # The number of masked tokens is rounded in each sequence (arXiv 2107.02027, section 3.2).
        made = manifest_count(config.data_folder, "settings", "max_predictions_per_pack")
        most = made or config.max_predictions_per_seq + packing.max_sequences_per_pack
        derived["packing.max_predictions_per_pack"] = most
    if config.optimizer_opts.gradient_accumulation_reduction is None:
        derived["optimizer_opts.gradient_accumulation_reduction"] = "running_mean" if on_ipus else "mean"
    shorter = {}  # stays a default, which the data may shorten
    if task != PRETRAINING and known is not None and "max_seq_length" not in origins:
        shorter["max_seq_length"] = min(config.max_seq_length, known.max_position_embeddings)
    return with_values(config, {**shorter, **derived}), list(derived)


def used_length(origins: Dict[str, str]) -> Tuple[str, str]:
    """Return the field of the length of training that is used if both are set, and the other one."""
    samples, epochs = "total_num_train_samples", "num_epochs"
    typed_epochs = origins.get(epochs) in TYPED and origins.get(samples) not in TYPED
    return (epochs, samples) if typed_epochs else (samples, epochs)


def _pipeline(
    config: TrainingConfig, task: str, sizes: Optional[Architecture], origins: Dict[str, str]
) -> Dict[str, Any]:
    """Return the stages and their IPUs where they are unset, are another model's, or have a pooler for nothing."""
    derived: Dict[str, Any] = {}
    stages, weights = config.ipu_config.pipeline_stages, config.weights
    if stages is not None and sizes is not None and weights is not None and not fits_stages(stages, sizes):
        theirs = config.bert_config is None or origins.get("bert_config.num_hidden_layers") == DERIVED
        foreign = theirs and origins[config.weights_key] != origins[STAGES]
        if foreign and config.runs_in_sequence:
            stages = [[EMB, *[HID] * sizes.num_hidden_layers, *head_layout(stages)]]
            derived[STAGES], derived[DEVICES], derived[PROPORTIONS] = stages, [0], None
    elif stages is None and sizes is not None:
        stages = [expected_blocks(task, sizes.num_hidden_layers, config.use_next_sentence)]
        derived[STAGES] = stages
    if task == PRETRAINING and not config.use_next_sentence and stages and any(POOL in stage for stage in stages):
        stages = [[block for block in stage if block != POOL] for stage in stages]
        derived[STAGES] = stages
    if config.ipu_config.pipeline_device_mapping is None and stages is not None:
        derived[DEVICES] = [
            0 if task == PRETRAINING and HEADS in stage else number for number, stage in enumerate(stages)
        ]
    return derived


def fits_stages(stages: Optional[Stages], architecture: Architecture) -> bool:
    """Return whether stages, if they are given, have as many encoder layers as the model."""
    return stages is None or sum(stage.count(HID) for stage in stages) == architecture.num_hidden_layers


def head_layout(stages: Stages) -> List[str]:
    """Return the blocks after the encoder layers."""
    return [block for stage in stages for block in stage if block not in (EMB, HID)]


def with_values(config: TrainingConfig, values: Dict[str, Any]) -> TrainingConfig:
    """Return a copy of the config with values for dotted names of at most two keys."""
    for name, value in values.items():
        section, _, key = name.rpartition(".")
        if section:
            name, value = section, getattr(config, section).model_copy(update={key: value})
        config = config.model_copy(update={name: value})
    return config


def packing_factor(config: TrainingConfig) -> Optional[float]:
    """Return the mean number of sequences in a row: 1 without packing; None if the data must be read to know it."""
    if not config.packing.is_on:
        return 1
    if config.generated_dataset:
        return config.packing.max_sequences_per_pack
    packs, sequences = (manifest_count(config.data_folder, "totals", name) for name in ("records", "sequences"))
    return sequences / packs if packs and sequences else None


def training_samples(
    samples: Optional[int], epochs: Optional[int], records: Optional[int], factor: Optional[float]
) -> Optional[int]:
    """Return the ``samples`` of the config, or its ``epochs`` times those of all ``records``; None if unknown.

    A record has ``factor`` samples on average.
    """
    if samples is not None:
        return samples
    return None if epochs is None or records is None or factor is None else round(epochs * records * factor)


def training_steps(
    config: TrainingConfig, records: Optional[int] = None, factor: Optional[float] = None
) -> Optional[int]:
    """Return the number of weight updates: samples / samples of a global batch, rounded down; None if unknown.

    ``factor`` is the mean number of samples in a record; None: that of :func:`packing_factor`.
    """
    rows = config.samples_per_update
    if config.total_num_train_samples is None:
        return None if config.num_epochs is None or records is None else config.num_epochs * records // rows
    factor = packing_factor(config) if factor is None else factor
    return None if factor is None else int(config.total_num_train_samples // (rows * factor))


def warmup_steps(rate: LearningRate, steps: int) -> int:
    """Return the number of weight updates of the warm-up: warmup_frac × steps, rounded as the schedule does."""
    return (int if rate.schedule_name == "up_down" else round)(rate.warmup_frac * steps)


def max_learning_rate(rate: LearningRate, samples_per_update: int) -> float:
    """Return the peak learning rate, after the linear scaling rule (Goyal et al. 2017, section 2.1) if it applies."""
    if rate.reference_global_batch is None:
        return rate.max_learning_rate
    return rate.max_learning_rate * samples_per_update / rate.reference_global_batch


def betas(options: OptimizerOptions, packing: Packing, factor: float) -> Tuple[float, float]:
    """Return the optimizer's decay constants; for packs, each to the power of the packing factor.

    An update on packs has ``factor`` times as many samples, the mean number in a row. β to that power makes the moments
    decay as much over one such update as over ``factor`` small ones. The learning rate is not scaled: that slowed
    convergence (arXiv 2107.02027, on hyperparameters).
    """
    power = factor if packing.is_on and packing.adjust_betas else 1
    return options.beta_1**power, options.beta_2**power
