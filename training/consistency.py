"""What must be the same: the config of a resumed run and of its beginning, and the start of all processes of a run.

Each field of the config declares whether it may differ; see ``utilities.config.fields.Freedom``.
"""

from __future__ import annotations

from typing import Any, Dict, List, Mapping

from execution.processes import Processes
from training.run_folder import config_for_files
from utilities.config.fields import PER_REPLICA, Equivalent, Freedom, value_at
from utilities.config.schema import TrainingConfig, leaves
from utilities.errors import UserError

_BATCH = ("micro_batch_size", "replicas", "grad_acc_steps_per_replica")
_DROPOUT = ("hidden_dropout_prob", "attention_probs_dropout_prob")


def differences(config: TrainingConfig, recorded: Mapping[str, Any]) -> List[str]:
    """Describe each difference between two configs that would change the outcome of a resumed run.

    The global batch may be split differently if the update stays the same: over another number of replicas, and without
    dropout (whose masks belong to micro batches) into micro batches of another size.

    Args:
        config: the present config.
        recorded: the config that the run was begun with, as in its files.
    """
    present = config_for_files(config)
    found = []
    for name, leaf in leaves().items():
        if leaf.freedom is not Freedom.FIXED or leaf.path[0] == "global_batch":
            continue
        new, old = value_at(present, leaf.path), _recorded(recorded, leaf.path, leaf.default)
        same = leaf.mark(Equivalent)
        if new != old and not (same is not None and new in same.values and old in same.values):
            found.append(_described(name, new, old))
    return [*found, *_batch_differences(present, recorded)]


def refuse_differences(config: TrainingConfig, recorded: Mapping[str, Any], run: str) -> None:
    """Refuse to resume a run with another config.

    Raises:
        UserError: the config would change the outcome; the message names every field that does.
    """
    found = differences(config, recorded)
    if found:
        raise UserError(
            f"resume: {run} cannot be resumed with another config: {'; '.join(found)}. Set that back, or begin"
            " a new run under another --name"
        )


def harmless_changes(config: TrainingConfig, recorded: Mapping[str, Any]) -> Dict[str, Any]:
    """Return the changed fields that have no influence on the outcome: name → (before, now)."""
    present = config_for_files(config)
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
    return [_described(f"global_batch.{key}", new[key], old[key]) for key in found]


def _product(batch: Mapping[str, int]) -> int:
    product = 1
    for key in _BATCH:
        product *= batch[key]
    return product


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


def check_processes(processes: Processes, config: TrainingConfig, data: str, precision: str) -> None:
    """Compare the start of this process with the chief's; different ones would diverge, or wait for each other.

    Args:
        processes: all processes of the run.
        config: the config of this process.
        data: a checksum of the samples that it trains on.
        precision: the number format that it computes in.

    Raises:
        UserError: this process has another config, other data, or another number format.
    """
    if processes.is_single:
        return
    own = config_for_files(config)
    chief = processes.decide(lambda: {"config": own, "data": data, "precision": precision})
    for name, leaf in leaves().items():
        value, chief_value = value_at(own, leaf.path), value_at(chief["config"], leaf.path)
        if leaf.freedom is not PER_REPLICA and value != chief_value:
            raise UserError(
                f"{name} is {value} for replica {processes.index} and {chief_value} for replica 0; start all with the"
                " same config and flags"
            )
    if chief["precision"] != precision:
        raise UserError(
            f"execution.precision: replica {processes.index} computes in {precision}, replica 0 in"
            f" {chief['precision']}; name one that all machines have"
        )
    if chief["data"] != data:
        raise UserError(
            f"dataset_dir: {config.dataset_dir} of replica {processes.index} does not hold the data of replica 0; give"
            " all the same data set"
        )
