"""What a run that goes on must have in common with what it goes on from."""

from __future__ import annotations

from typing import Any, Dict, List, Mapping

from utilities.config.fields import leaves, value_at
from utilities.config.schema import TrainingConfig
from utilities.errors import UserError
from utilities.training.run_folder import shown_config

# Fields without influence on the outcome: where files lie, what is shown and kept, how the same numbers are computed.
# The data is known by its content, not by its path, and the number format by what was chosen, not by how it was asked
# for. A new field is held to be one that has influence.
FREE = frozenset(
    """
    name resume output_dir save_ckpt_path dataset_dir vocab_file squad.cache_dir
    data.reader_threads data.prefetch data.verify_checksums data.on_corrupt
    data.max_corrupt_records
    execution.platform execution.device execution.precision execution.xla execution.threads execution.pipeline_devices
    execution.executable_cache
    ipu_config.pipeline_stages ipu_config.pipeline_device_mapping ipu_config.pipeline_schedule
    ipu_config.matmul_available_memory_proportion_per_pipeline_stage ipu_config.replicated_tensor_sharding
    sparsity.kernel
    use_outlining enable_recomputation optimizer_state_offchip embedding_serialization_factor min_remote_tensor_size
    fp_exceptions compile_only do_training do_validation do_test evaluation_batch_size
    squad.dev_file squad.n_best_size squad.max_answer_length
    ckpt_every_n_steps_per_execution checkpoint_minutes keep_last keep_every
    on_divergence max_rewinds exploding_loss_ratio
    global_batches_per_log logging show_accuracy tensorboard report report_every_minutes
    reference_curve reference_tolerance enable_wandb wandb_entity_name wandb_project_name wandb_tags
    """.split()  # noqa: SIM905 (a table to read)
)

# Values that lead to the same outcome but for rounding; unset is one of the two.
_SAME_MEAN = (None, "mean", "running_mean")

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
        if name in FREE or leaf.path[0] == "global_batch":
            continue
        new, old = value_at(present, leaf.path), _recorded(recorded, leaf.path, leaf.default)
        if name == "optimizer_opts.gradient_accumulation_reduction" and new in _SAME_MEAN and old in _SAME_MEAN:
            continue
        if new != old:
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
