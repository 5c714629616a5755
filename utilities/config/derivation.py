"""Values that a config leaves open and that follow from the others."""

from __future__ import annotations

from typing import Any, Dict, List, Tuple

from model.architecture import CLASSIFICATION, HEADS, PRETRAINING, expected_blocks
from utilities.config.figures import PUBLISHED_SAMPLES, bert_sizes, is_packed, predictions_per_pack, runs_on_ipus
from utilities.config.problems import with_origin
from utilities.config.schema import TrainingConfig
from utilities.config.sections import IpuConfig


def derive(
    config: TrainingConfig, task: str, origins: Dict[str, str], file_stem: str
) -> Tuple[TrainingConfig, List[str], List[str]]:
    """Fills what follows from other values.

    Returns:
        the config, the dotted names that were derived, and a note for each setting that was overruled.
    """
    changes: Dict[str, Any] = {}
    notes: List[str] = []
    if config.name is None:
        changes["name"] = file_stem
    if task == CLASSIFICATION and config.glue_task is None:
        changes["glue_task"] = "mrpc"
    if config.total_num_train_samples is not None and config.num_epochs is not None:
        loser, note = _length_overruled(config, origins)
        changes[loser] = None
        notes.append(note)
    elif task == PRETRAINING and config.total_num_train_samples is None and config.num_epochs is None:
        samples = PUBLISHED_SAMPLES.get(config.max_seq_length)
        if samples is not None:
            changes["total_num_train_samples"] = samples
    pipeline = _pipeline(config, task)
    names = [*changes, *(f"ipu_config.{key}" for key in pipeline)]
    if pipeline:
        changes["ipu_config"] = config.ipu_config.model_copy(update=pipeline)
    if task == PRETRAINING and is_packed(config) and config.packing.max_predictions_per_pack is None:
        predictions = {"max_predictions_per_pack": predictions_per_pack(config)}
        changes["packing"] = config.packing.model_copy(update=predictions)
        names.append("packing.max_predictions_per_pack")
    if config.optimizer_opts.gradient_accumulation_reduction is None:
        reduction = {"gradient_accumulation_reduction": "running_mean" if runs_on_ipus(config) else "mean"}
        changes["optimizer_opts"] = config.optimizer_opts.model_copy(update=reduction)
        names.append("optimizer_opts.gradient_accumulation_reduction")
    return config.model_copy(update=changes), names, notes


def _length_overruled(config: TrainingConfig, origins: Dict[str, str]) -> Tuple[str, str]:
    """Of two lengths of training the one typed on the command line holds, else the number of samples."""
    samples, epochs = "total_num_train_samples", "num_epochs"
    typed = "command line"
    epochs_hold = origins.get(epochs) == typed and origins.get(samples) != typed
    loser, winner = (samples, epochs) if epochs_hold else (epochs, samples)
    lost = with_origin(loser, getattr(config, loser), origins)
    return (
        loser,
        f"{lost} has no effect: {with_origin(winner, getattr(config, winner), origins)} sets the length",
    )


def _pipeline(config: TrainingConfig, task: str) -> Dict[str, Any]:
    ipu: IpuConfig = config.ipu_config
    derived: Dict[str, Any] = {}
    stages = ipu.pipeline_stages
    if stages is None:
        sizes = bert_sizes(config)
        if sizes is None:
            return derived
        stages = [expected_blocks(task, sizes.num_hidden_layers)]
        derived["pipeline_stages"] = stages
    if ipu.pipeline_device_mapping is None:
        derived["pipeline_device_mapping"] = [
            0 if task == PRETRAINING and HEADS in stage else number for number, stage in enumerate(stages)
        ]
    return derived
