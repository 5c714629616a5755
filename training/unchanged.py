"""What a run that goes on must have in common with what it goes on from."""

from __future__ import annotations

from typing import Any, Dict, List, Mapping

from training.run_folder import shown_config
from utilities.config.fields import Equivalent, Freedom, value_at
from utilities.config.schema import TrainingConfig, leaves
from utilities.errors import UserError

_BATCH = ("micro_batch_size", "replicas", "grad_acc_steps_per_replica")
_DROPOUT = ("hidden_dropout_prob", "attention_probs_dropout_prob")


def differences(config: TrainingConfig, recorded: Mapping[str, Any]) -> List[str]:
    """What of a config would change the outcome of a run that was begun with another, each in words.

    The global batch may be split in another way, as far as its update is the same: over other numbers of replicas; into
    micro batches of another size only without dropout, whose masks belong to micro batches.

    Args:
        config: the present one.
        recorded: the one that the run was begun with, as its files show it.
    """
    present = shown_config(config)
    found = []
    for name, leaf in leaves().items():
        if leaf.freedom is not Freedom.FIXED or leaf.path[0] == "global_batch":
            continue
        new, old = value_at(present, leaf.path), _recorded(recorded, leaf.path, leaf.default)
        same = leaf.mark(Equivalent)
        if new != old and not (same is not None and new in same.values and old in same.values):
            found.append(_told(name, new, old))
    return [*found, *_batch_differences(present, recorded)]


def refuse_differences(config: TrainingConfig, recorded: Mapping[str, Any], run: str) -> None:
    """
    Raises:
        UserError: the config would change the outcome; every field that does is named.
    """
    found = differences(config, recorded)
    if found:
        raise UserError(
            f"resume: {run} cannot go on with another config: {'; '.join(found)}. Set that back, or begin a new run"
            " under another --name"
        )


def free_changes(config: TrainingConfig, recorded: Mapping[str, Any]) -> Dict[str, Any]:
    """Fields without influence that have another value than before: name → (before, now)."""
    present = shown_config(config)
    changes = {}
    for name, leaf in leaves().items():
        new, old = value_at(present, leaf.path), _recorded(recorded, leaf.path, leaf.default)
        if new != old and name not in ("name", "resume"):
            changes[name] = (old, new)
    return changes


def _batch_differences(present: Mapping[str, Any], recorded: Mapping[str, Any]) -> List[str]:
    new, old = present["global_batch"], {key: _recorded(recorded, ("global_batch", key), 1) for key in _BATCH}
    if _product(new) != _product(old):
        return [f"global_batch is {_product(new):,} samples and was {_product(old):,}"]
    found = []
    model = present.get("bert_config")
    if model is None or any(model[key] for key in _DROPOUT):
        found += [key for key in _BATCH[:1] if new[key] != old[key]]
    if present["optimizer_opts"]["gradient_accumulation_reduction"] == "sum":
        found += [key for key in _BATCH[2:] if new[key] != old[key]]
    return [_told(f"global_batch.{key}", new[key], old[key]) for key in found]


def _product(batch: Mapping[str, int]) -> int:
    product = 1
    for key in _BATCH:
        product *= batch[key]
    return product


def _recorded(recorded: Mapping[str, Any], path: Any, default: Any) -> Any:
    """A value of the config of before; a field that it does not have yet had its default's effect."""
    value: Any = recorded
    for key in path:
        if not isinstance(value, Mapping) or key not in value:
            return default if value is not None else None
        value = value[key]
    return value


def _told(name: str, new: Any, old: Any) -> str:
    return f"{name} is {_short(new)} and was {_short(old)}"


def _short(value: Any) -> str:
    text = "unset" if value is None else str(value)
    return text if len(text) <= 60 else text[:57] + "…"
