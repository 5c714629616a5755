"""What a config of Graphcore's published program means: values on which it relies without naming them."""

from __future__ import annotations

from typing import Any, Dict, List

from model.tasks import CLASSIFICATION, SQUAD
from settings.architecture import known_architecture
from settings.fields import value_at
from settings.schema import TrainingConfig
from utilities.environment import is_graphcore

# Samples, by sequence length, on which the program pre-trains if its config gives no length. The recipes for base and
# large here use those of the LAMB paper (You et al. 2020): 65,536 × 7,038 in phase 1, 32,768 × 1,563 in phase 2.
PUBLISHED_SAMPLES = {128: 460_849_152, 384: 34_239_360, 512: 34_239_360}

_LENGTH = 512  # tokens of a fine-tuning without a length, which is padded to that of the model
_TASK = "mrpc"  # of a classification that names none
_DECAY = "optimizer_opts.decay_rule"


def published_values(config: TrainingConfig, task: str, origins: Dict[str, str]) -> Dict[str, Any]:
    """Return the values, by dotted name, that a config leaves open and the program decides."""
    values: Dict[str, Any] = {}
    if task == CLASSIFICATION and config.classification_data is None and config.glue_task is None:
        values.update({"glue_task": _TASK} if _describes_ipus(config, origins) else {})
    if task in (SQUAD, CLASSIFICATION) and _is_published(config) and "max_seq_length" not in origins:
        known = known_architecture(config, task)
        values["max_seq_length"] = _LENGTH if known is None else known.max_position_embeddings
    name, on_ipus = config.optimizer_opts.name, runs_on_ipus(config)
    is_open = config.optimizer_opts.decay_rule is None and name != "Muon"
    if is_open and not (name == "LAMB" and on_ipus):  # whose decay was always the published one, unset in older runs
        is_published = on_ipus or (name == "LAMB" and _is_published(config))
        values[_DECAY] = "published" if is_published else "usual"
    return values


def published_notes(config: TrainingConfig) -> List[str]:
    """Return a note if AdamW decays as published, or if it does so on IPUs alone."""
    options, rate = config.optimizer_opts, config.optimizer_opts.weight_decay_rate
    on_ipus = runs_on_ipus(config)
    is_open = options.name == "AdamW" and rate > 0 and options.decay_rule is None
    if not is_open or not (on_ipus or _is_published(config)):
        return []
    usual = f"learning rate × {rate:g} of the matrices (usual)"
    published = f"{rate:g} of all variables, whatever the learning rate (published)"
    rules = f"{published}; elsewhere {usual}" if on_ipus else f"{usual}; on IPUs {published}"
    return [f"{_DECAY} is unset: an update takes {rules}; set it to have one rule"]


def decays_as_published(config: TrainingConfig) -> bool:
    """Return whether weights decay as in the program; see ``optimizer_opts.decay_rule``."""
    options = config.optimizer_opts
    if options.name == "Muon":  # which the program does not have
        return False
    return runs_on_ipus(config) if options.decay_rule is None else options.decay_rule == "published"


def runs_on_ipus(config: TrainingConfig) -> bool:
    """Return whether the run uses Graphcore's TensorFlow, without importing it."""
    return is_graphcore(config.execution.platform)


def _is_published(config: TrainingConfig) -> bool:
    """Return whether a config was written for the program, whose only schedule has this name."""
    return config.optimizer_opts.learning_rate.schedule_name == "up_down"


def _describes_ipus(config: TrainingConfig, origins: Dict[str, str]) -> bool:
    """Return whether a config was written for IPUs: whether it sets values of ``ipu_config``."""
    given = (name for name in origins if name.startswith("ipu_config."))
    return any(value_at(config, tuple(name.split("."))) is not None for name in given)
