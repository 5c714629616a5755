"""What a config of Graphcore's published program means: values on which it relies without naming them."""

from __future__ import annotations

from typing import Any, Dict, List, Optional

from model.architecture import Architecture
from model.tasks import CLASSIFICATION, PRETRAINING, SQUAD
from settings.fields import value_at
from settings.schema import TrainingConfig
from settings.sections import OptimizerOptions

# Samples, by sequence length, on which the program pre-trains if its config gives no length. The recipes for base and
# large here use those of the LAMB paper (You et al. 2020): 65,536 × 7,038 in phase 1, 32,768 × 1,563 in phase 2.
PUBLISHED_SAMPLES = {128: 460_849_152, 384: 34_239_360, 512: 34_239_360}

_LENGTH = 512  # tokens of a fine-tuning without a length, which is padded to that of the model
_TASK = "mrpc"  # of a classification that names none
_DECAY = "optimizer_opts.decay_rule"


def published_values(
    config: TrainingConfig, task: str, known: Optional[Architecture], origins: Dict[str, str]
) -> Dict[str, Any]:
    """Return the values, by dotted name, that a config leaves open and the program decides."""
    values: Dict[str, Any] = {}
    options, is_published, on_ipus = config.optimizer_opts, _is_published(config.optimizer_opts), config.runs_on_ipus
    if task == PRETRAINING and config.total_num_train_samples is None and config.num_epochs is None:
        samples = PUBLISHED_SAMPLES.get(config.max_seq_length)
        values.update({} if samples is None else {"total_num_train_samples": samples})
    for_ipus = [name for name in origins if name.startswith("ipu_config.") and value_at(config, name) is not None]
    if task == CLASSIFICATION and config.classification_data is None and config.glue_task is None and for_ipus:
        values["glue_task"] = _TASK
    if task in (SQUAD, CLASSIFICATION) and is_published and "max_seq_length" not in origins:
        values["max_seq_length"] = _LENGTH if known is None else known.max_position_embeddings
    is_open, is_lamb = options.decay_rule is None and options.name != "Muon", options.name == "LAMB"
    if is_open and not (is_lamb and on_ipus):  # whose decay was always the published one, unset in older runs
        values[_DECAY] = "published" if on_ipus or (is_lamb and is_published) else "usual"
    return values


def published_notes(options: OptimizerOptions, on_ipus: bool) -> List[str]:
    """Return a note if AdamW decays as published, or if it does so on IPUs alone."""
    rate = options.weight_decay_rate
    is_open = options.name == "AdamW" and rate > 0 and options.decay_rule is None
    if not is_open or not (on_ipus or _is_published(options)):
        return []
    usual = f"learning rate × {rate:g} of the matrices (usual)"
    published = f"{rate:g} of all variables, whatever the learning rate (published)"
    rules = f"{published}; elsewhere {usual}" if on_ipus else f"{usual}; on IPUs {published}"
    return [f"{_DECAY} is unset: an update takes {rules}; set it to have one rule"]


def decays_as_published(options: OptimizerOptions, on_ipus: bool) -> bool:
    """Return whether weights decay as in the program; see ``optimizer_opts.decay_rule``."""
    if options.name == "Muon":  # which the program does not have
        return False
    return on_ipus if options.decay_rule is None else options.decay_rule == "published"


def _is_published(options: OptimizerOptions) -> bool:
    """Return whether a config was written for the program, whose only schedule has this name."""
    return options.learning_rate.schedule_name == "up_down"
