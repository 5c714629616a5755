"""Which configs may resume a run: those that would not change its outcome."""

from __future__ import annotations

import math
from typing import Any, Dict, Mapping, Set

from settings.architecture import OF_EMBEDDING
from settings.fields import Equivalent, ResumePolicy, value_at
from settings.rooms import KEPT_FIELDS
from settings.schema import TrainingConfig, leaves
from training.run_folder import config_for_files
from utilities.errors import UserError

LENGTHS = {"num_epochs", "total_num_train_samples"}  # fields of the length of training
_BATCH = ("micro_batch_size", "replicas", "grad_acc_steps_per_replica")
_DROPOUT = ("hidden_dropout_prob", "attention_probs_dropout_prob")


def differences(config: TrainingConfig, recorded: Mapping[str, Any]) -> Dict[str, str]:
    """Describe, by its field, each difference between two configs that would change the outcome of a resumed run.

    The global batch may be split differently if the update stays the same: over another number of replicas, and into
    micro batches of another size unless something depends on them: dropout's masks, and the wrong answers of sentence
    embeddings. Sizes that the weights decide are those of the run.
    """
    present = config_for_files(config)
    described: Dict[str, str] = {}
    kept = {name for fields in KEPT_FIELDS for name in fields(config)}
    of_weights = {f"bert_config.{size}" for size in config.open_sizes}
    of_weights |= {f"embedding.{name}" for name in OF_EMBEDDING if getattr(config.embedding, name) is None}
    for name, leaf in leaves().items():
        is_fixed = leaf.resume_policy is ResumePolicy.FIXED or name in kept
        if not is_fixed or leaf.path[0] == "global_batch" or name in of_weights:
            continue
        new, old = value_at(present, name), _recorded(recorded, leaf.path, leaf.default)
        equivalent = leaf.annotation(Equivalent)
        if new != old and not (equivalent is not None and new in equivalent.values and old in equivalent.values):
            described[name] = _described(name, new, old)
    return {**described, **_batch_differences(present, recorded, kept)}


def check_same_config(config: TrainingConfig, recorded: Mapping[str, Any], run: str) -> None:
    fields = differences(config, recorded)
    if config.new_length:
        fields = {name: text for name, text in fields.items() if name not in LENGTHS}
    changed = "; ".join(fields.values())
    if changed and LENGTHS.issuperset(fields):
        raise UserError(
            f"resume: {changed}, which decides every learning rate of {run}. Set that back, or let the learning"
            " rate go on where the new schedule has it: --new-length true"
        )
    if changed:
        raise UserError(
            f"resume: {run} cannot be resumed with another config: {changed}. Set that back, or begin"
            " a new run under another --name"
        )


def changed_fields(present: Mapping[str, Any], recorded: Mapping[str, Any]) -> Dict[str, Any]:
    """Return all changed fields, name → (before, now), which :func:`check_same_config` has let pass."""
    changes = {}
    for name, leaf in leaves().items():
        new, old = value_at(present, name), _recorded(recorded, leaf.path, leaf.default)
        if new != old and name not in ("name", "resume"):
            changes[name] = (old, new)
    return changes


def _batch_differences(present: Mapping[str, Any], recorded: Mapping[str, Any], kept: Set[str]) -> Dict[str, str]:
    new, old = present["global_batch"], {key: _recorded(recorded, ("global_batch", key), 1) for key in _BATCH}
    wrong = [key for key in _BATCH if type(old[key]) is not int]
    if wrong:
        return {f"global_batch.{key}": _described(f"global_batch.{key}", new[key], old[key]) for key in wrong}
    samples, samples_before = (math.prod(batch[key] for key in _BATCH) for batch in (new, old))
    if samples != samples_before:
        return {"global_batch": f"global_batch is {samples:,} samples and was {samples_before:,}"}
    fixed = [key for key in _BATCH if f"global_batch.{key}" in kept]
    model, embedding = present.get("bert_config"), present["embedding"]
    has_dropout = model is None or any(model[key] for key in _DROPOUT)
    has_negatives = embedding["train_file"] is not None and embedding["label"] is None
    if has_dropout or has_negatives:
        fixed.append("micro_batch_size")
    if present["optimizer_opts"]["gradient_accumulation_reduction"] == "sum":
        fixed.append("grad_acc_steps_per_replica")
    changed = [key for key in fixed if new[key] != old[key]]
    return {f"global_batch.{key}": _described(f"global_batch.{key}", new[key], old[key]) for key in changed}


def _recorded(recorded: Mapping[str, Any], path: Any, default: Any) -> Any:
    """Return a value of the recorded config. A field that did not exist yet had the effect of its default."""
    value: Any = recorded
    for key in path:
        if not isinstance(value, Mapping) or key not in value:
            return default if value is not None else None
        value = value[key]
    return value


def _described(name: str, new: Any, old: Any) -> str:
    return f"{name} is {_short(new)} and was {_short(old)}"


def _short(value: Any) -> str:
    text = "unset" if value is None else str(value)
    return text if len(text) <= 60 else text[:57] + "…"
