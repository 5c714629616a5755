"""Values that follow from a config: defaults that depend on other fields, the model's shape, steps, IPUs."""

from __future__ import annotations

from pathlib import Path
from typing import Any, Dict, List, Optional, Sequence, Tuple

from model.architecture import (
    EMB,
    HEADS,
    HID,
    POOL,
    Architecture,
)
from model.tasks import PRETRAINING, SENTENCE_EMBEDDING, expected_blocks
from settings.architecture import known_architecture, weights_key
from settings.data_sections import OwnFiles
from settings.fields import value_at
from settings.metadata import manifest_count
from settings.problems import DERIVED, TYPED, with_origin
from settings.published import PUBLISHED_SAMPLES, published_notes, published_values, runs_on_ipus
from settings.schema import TrainingConfig

# Classes of each benchmark task: 1 for a regression, 2 for all others.
_LABELS = {"mnli": 3, "cmnli": 3, "stsb": 1, "tnews": 15, "iflytek": 119}

PADDED_TO = 128  # rows; vocabularies are padded to a multiple of 8, 64 or 128 for speed

STAGES = "ipu_config.pipeline_stages"
DEVICES = "ipu_config.pipeline_device_mapping"
PROPORTIONS = "ipu_config.matmul_available_memory_proportion_per_pipeline_stage"


def derive(
    config: TrainingConfig, task: str, origins: Dict[str, str], file_stem: str
) -> Tuple[TrainingConfig, List[str], List[str]]:
    """Fill in unset values of a config that follow from others.

    The result has the config, the dotted names that were derived, and a note for each setting that was overruled.
    """
    derived: Dict[str, Any] = {}
    if config.name is None:
        derived["name"] = file_stem
    derived.update(published_values(config, task, origins))
    length, notes = _length(config, task, origins)
    derived.update(length)
    notes += [*_unused_rows(config, task), *_overruled_options(config, origins), *_alike_classes(config)]
    notes += published_notes(config)
    derived.update(_pipeline(config, task, origins))
    if task == PRETRAINING and is_packed(config) and config.packing.max_predictions_per_pack is None:
        derived["packing.max_predictions_per_pack"] = predictions_per_pack(config)
    if config.optimizer_opts.gradient_accumulation_reduction is None:
        reduction = "running_mean" if runs_on_ipus(config) else "mean"
        derived["optimizer_opts.gradient_accumulation_reduction"] = reduction
    return with_values(config, {**_shorter_default(config, task, origins), **derived}), list(derived), notes


def _shorter_default(config: TrainingConfig, task: str, origins: Dict[str, str]) -> Dict[str, Any]:
    """Return the length of a fine-tuning that sets none if the model has fewer positions than the default."""
    name, sizes = "max_seq_length", known_architecture(config, task)
    if task == PRETRAINING or name in origins or sizes is None:
        return {}
    return {name: min(config.max_seq_length, sizes.max_position_embeddings)}


def _alike_classes(config: TrainingConfig) -> List[str]:
    """Return a note if classes are called alike but for capitals, as ``True`` and ``true``."""
    own = config.classification_data
    names = (own.classes if own is not None else None) or []
    plain = [name.strip().lower() for name in names]
    alike = [name for name, other in zip(names, plain) if plain.count(other) > 1]
    if not alike:
        return []
    what = f"classification_data.classes: {', '.join(alike[:8])} differ in capitals only, and are classes of their own"
    return [f"{what}; if they are not, write them alike in the file"]


def _length(config: TrainingConfig, task: str, origins: Dict[str, str]) -> Tuple[Dict[str, Any], List[str]]:
    """Return the length of training, by default the published one; if two are given, unset one and add a note."""
    samples, epochs = "total_num_train_samples", "num_epochs"
    if config.total_num_train_samples is None and config.num_epochs is None:
        published = PUBLISHED_SAMPLES.get(config.max_seq_length) if task == PRETRAINING else None
        return ({} if published is None else {samples: published}), []
    if config.total_num_train_samples is None or config.num_epochs is None:
        return {}, []
    typed_epochs = origins.get(epochs) in TYPED and origins.get(samples) not in TYPED
    overruled, used = (samples, epochs) if typed_epochs else (epochs, samples)
    without_effect = with_origin(overruled, getattr(config, overruled), origins)
    sets_it = with_origin(used, getattr(config, used), origins)
    return {overruled: None}, [f"{without_effect} has no effect: {sets_it} sets the length"]


def _unused_rows(config: TrainingConfig, task: str) -> List[str]:
    """Note a model's vocabulary that exceeds the data set's by more than padding, to 128 × serialization factor."""
    sizes, pieces = known_architecture(config, task), _manifest_count(config, "vocabulary", "size")
    unit = PADDED_TO * config.embedding_serialization_factor
    if task != PRETRAINING or sizes is None or not pieces or sizes.vocab_size <= -(-pieces // unit) * unit:
        return []
    rows = f"the model's vocabulary has {sizes.vocab_size:,} rows, that of the data set {pieces:,} pieces"
    return [f"{rows}: the other rows are never used; set bert_config.vocab_size to {pieces}, or use other data"]


def _overruled_options(config: TrainingConfig, origins: Dict[str, str]) -> List[str]:
    """Return a note for each option that has no effect because of another one."""
    options, rate, source = config.optimizer_opts, config.optimizer_opts.learning_rate, weights_key(config)
    overruled = []
    if options.muon_scale is not None and options.name != "Muon":
        overruled.append(("optimizer_opts.muon_scale", "optimizer_opts.name"))
    if options.decay_rule == "published" and options.name == "Muon":
        overruled.append(("optimizer_opts.decay_rule", "optimizer_opts.name"))
    if rate.power != 1 and rate.schedule_name != "polynomial":
        overruled.append(("optimizer_opts.learning_rate.power", "optimizer_opts.learning_rate.schedule_name"))
    # The recipe of a second part inherits it from the first.
    if config.word_vectors and source is not None and origins.get("word_vectors") in TYPED:
        overruled.append(("word_vectors", source))

    def described(name: str) -> str:
        return with_origin(name, value_at(config, tuple(name.split("."))), origins)

    return [f"{described(option)} has no effect: {described(other)}" for option, other in overruled]


def _pipeline(config: TrainingConfig, task: str, origins: Dict[str, str]) -> Dict[str, Any]:
    """Return the stages and their IPUs where they are unset, are another model's, or have a pooler for nothing."""
    derived: Dict[str, Any] = {}
    stages, source = config.ipu_config.pipeline_stages, weights_key(config)
    sizes = known_architecture(config, task)
    if stages is not None and sizes is not None and source is not None and not fits_stages(config, sizes):
        theirs = config.bert_config is None or origins.get("bert_config.num_hidden_layers") == DERIVED
        foreign = theirs and origins[source] != origins[STAGES]
        if foreign and runs_in_sequence(config):
            stages = [[EMB, *[HID] * sizes.num_hidden_layers, *head_layout(stages)]]
            derived[STAGES], derived[DEVICES], derived[PROPORTIONS] = stages, [0], None
    elif stages is None and sizes is not None:
        stages = [expected_blocks(task, sizes.num_hidden_layers, config.use_next_sentence)]
        derived[STAGES] = stages
    if task == PRETRAINING and not config.use_next_sentence and any(POOL in stage for stage in stages or []):
        assert stages is not None
        stages = [[block for block in stage if block != POOL] for stage in stages]
        derived[STAGES] = stages
    if config.ipu_config.pipeline_device_mapping is None and stages is not None:
        derived[DEVICES] = [
            0 if task == PRETRAINING and HEADS in stage else number for number, stage in enumerate(stages)
        ]
    return derived


def runs_in_sequence(config: TrainingConfig) -> bool:
    """Return whether one device runs all stages, as far as the config says."""
    in_sequence = not runs_on_ipus(config)
    in_sequence &= (config.execution.pipeline_devices or 1) == 1  # room: pipeline
    return in_sequence


def fits_stages(config: TrainingConfig, architecture: Architecture) -> bool:
    """Return whether ``pipeline_stages``, if given, have as many encoder layers as the model."""
    stages = config.ipu_config.pipeline_stages
    return stages is None or sum(stage.count(HID) for stage in stages) == architecture.num_hidden_layers


def head_layout(stages: Sequence[Sequence[str]]) -> List[str]:
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


def own_files(config: TrainingConfig, task: str) -> Tuple[str, Optional[OwnFiles]]:
    """Return the name and the values of the section that describes the user's own files; None if there are none."""
    if task == SENTENCE_EMBEDDING:
        return "embedding", config.embedding
    return "classification_data", config.classification_data


def number_of_labels(config: TrainingConfig) -> int:
    """Return the number of the classifier's outputs for the config's task; 1 for a regression."""
    own = config.classification_data
    if own is None:
        return _LABELS.get(config.glue_task or "", 2)
    return 1 if own.regression else len(own.classes or ()) or 2


def starts_from_checkpoint(config: TrainingConfig) -> bool:
    """Return whether the initial weights come from a checkpoint."""
    return weights_key(config) is not None


def derive_blocks(config: TrainingConfig, task: str) -> Optional[List[str]]:
    """Return the model's blocks in order: those of ``pipeline_stages``, else the task's; None if unknown."""
    stages = config.ipu_config.pipeline_stages
    if stages is not None:
        return [block for stage in stages for block in stage]
    model = known_architecture(config, task)
    return expected_blocks(task, model.num_hidden_layers, config.use_next_sentence) if model else None


def manifest_records(config: TrainingConfig) -> Optional[int]:
    """Return the number of records that the data set's ``manifest.json`` gives; None if it cannot be read."""
    return _manifest_count(config, "totals", "records")


def manifest_setting(config: TrainingConfig, name: str) -> Optional[int]:
    """Return a number that the data set was made with, as its ``manifest.json`` gives it; None if it does not."""
    return _manifest_count(config, "settings", name)


def _manifest_count(config: TrainingConfig, section: str, key: str) -> Optional[int]:
    if config.dataset_dir is None or config.generated_dataset:
        return None
    return manifest_count(Path(config.dataset_dir), section, key)


def is_packed(config: TrainingConfig) -> bool:
    """Return whether a row of the batch is a pack of sequences."""
    return config.packing.max_sequences_per_pack is not None


def packing_factor(config: TrainingConfig) -> Optional[float]:
    """Return the mean number of sequences in a row: 1 without packing; None if the data must be read to know it."""
    if not is_packed(config):
        return 1
    if config.generated_dataset:
        return config.packing.max_sequences_per_pack
    packs, sequences = manifest_records(config), _manifest_count(config, "totals", "sequences")
    return sequences / packs if packs and sequences else None


def predictions_per_pack(config: TrainingConfig) -> int:
    """Return the most masked positions of a pack: the manifest's, or those of a sequence plus one for each.

    The number of masked tokens is rounded in each sequence (arXiv 2107.02027, section 3.2).
    """
    assert config.packing.max_sequences_per_pack is not None
    known = _manifest_count(config, "settings", "max_predictions_per_pack")
    return known or config.max_predictions_per_seq + config.packing.max_sequences_per_pack


def training_samples(config: TrainingConfig, records: Optional[int]) -> Optional[int]:
    """Return the number of samples to train on; None if unknown.

    It is ``total_num_train_samples``, or ``num_epochs`` times the samples of all ``records``, which may be packs.
    """
    if config.total_num_train_samples is not None:
        return config.total_num_train_samples
    factor = packing_factor(config)
    if config.num_epochs is None or records is None or factor is None:
        return None
    return round(config.num_epochs * records * factor)


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


def warmup_steps(config: TrainingConfig, steps: int) -> int:
    """Return the number of weight updates of the warm-up: warmup_frac × steps, rounded as the schedule does."""
    rate = config.optimizer_opts.learning_rate
    return (int if rate.schedule_name == "up_down" else round)(rate.warmup_frac * steps)


def max_learning_rate(config: TrainingConfig) -> float:
    """Return the peak learning rate, after the linear scaling rule (Goyal et al. 2017, section 2.1) if it applies."""
    rate = config.optimizer_opts.learning_rate
    if rate.reference_global_batch is None:
        return rate.max_learning_rate
    return rate.max_learning_rate * config.samples_per_update / rate.reference_global_batch


def betas(config: TrainingConfig, factor: float) -> Tuple[float, float]:
    """Return the optimizer's decay constants; for packs, each to the power of the packing factor.

    An update on packs has ``factor`` times as many samples. β to that power makes the moments decay as much over one
    such update as over ``factor`` small ones. The learning rate is not scaled: that slowed convergence (arXiv
    2107.02027, on hyperparameters).

    Args:
        config: the optimizer's constants, and whether to adjust them.
        factor: mean number of samples in a row of the batch.
    """
    options = config.optimizer_opts
    power = factor if is_packed(config) and config.packing.adjust_betas else 1
    return options.beta_1**power, options.beta_2**power


def masked_positions(config: TrainingConfig, task: str) -> int:
    """Return the number of positions of a row that the masked-LM head computes; 0 outside pre-training."""
    if task != PRETRAINING:
        return 0
    if not is_packed(config):
        return config.max_predictions_per_seq
    return config.packing.max_predictions_per_pack or predictions_per_pack(config)
