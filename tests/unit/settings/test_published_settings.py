"""Each published run resolves to the published values, from this project's config and from the users' own file."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pytest

from settings.config_files import read_config
from settings.loading import load_config
from settings.schema import TrainingConfig
from tests.support.config_files import write
from tests.support.published_configs import CONFIGS, FOLDERS, ROWS, SIZES, TASKS, load
from utilities.errors import UserError

BATCH = ("replicas", "micro_batch_size", "grad_acc_steps_per_replica")
TOP = ("max_seq_length", "max_predictions_per_seq", "embedding_serialization_factor", "num_epochs", "seed")


def resolved(config: TrainingConfig) -> dict[str, Any]:
    batch, ipus, optimizer = config.global_batch, config.ipu_config, config.optimizer_opts
    values = {
        **batch.model_dump(include=set(BATCH)),
        **config.model_dump(include=set(TOP)),
        "pipeline_stages": [" ".join(stage) for stage in ipus.pipeline_stages],
        "device_mapping": ipus.pipeline_device_mapping,
        "matmul_memory_proportion": ipus.matmul_available_memory_proportion_per_pipeline_stage,
        "rts": ipus.replicated_tensor_sharding,
        "optimizer": optimizer.name,
        "weight_decay": optimizer.weight_decay_rate,
        "loss_scaling": optimizer.loss_scaling,
        "max_lr": optimizer.learning_rate.max_learning_rate,
        "warmup_frac": optimizer.learning_rate.warmup_frac,
    }
    model = config.bert_config
    if model is None:
        return {**values, "model": config.bert_model_name}
    assert config.bert_model_name is None
    shape = (model.num_hidden_layers, model.hidden_size, model.num_attention_heads, model.intermediate_size)
    return {
        **values,
        "model": next(name for name, size in SIZES.items() if size == shape),
        "vocab_size": model.vocab_size,
        "hidden_dropout": model.hidden_dropout_prob,
        "attention_dropout": model.attention_probs_dropout_prob,
    }


def assert_published(name: str, config: TrainingConfig) -> None:
    row, values = ROWS[name], resolved(config)
    assert {key: values[key] for key in row} == row
    assert config.optimizer_opts.learning_rate.schedule_name == "up_down"


@pytest.mark.parametrize("name", ROWS)
def test_config_has_the_published_values(name: str) -> None:
    config = load(name).config
    assert config.name == name and config.optimizer_state_offchip is not False
    assert_published(name, config)


def published_file(name: str) -> dict[str, Any]:
    """Return the users' file of a published run, which has neither the length of training nor the task."""
    row = ROWS[name]
    rate = {"schedule_name": "up_down", "max_learning_rate": row["max_lr"], "warmup_frac": row["warmup_frac"]}
    optimizer = {"name": row["optimizer"], "weight_decay_rate": row["weight_decay"], "learning_rate": rate}
    return {
        "dataset_dir": "/data/wikipedia/" if name.startswith("pretrain") else "./cache/",
        **published_model(row),
        **{key: row[key] for key in TOP if key in row},
        "global_batch": {key: row[key] for key in BATCH},
        "ipu_config": {
            "pipeline_stages": [stage.split() for stage in row["pipeline_stages"]],
            "pipeline_device_mapping": row["device_mapping"],
            "matmul_available_memory_proportion_per_pipeline_stage": row["matmul_memory_proportion"],
            "replicated_tensor_sharding": row["rts"],
        },
        "optimizer_opts": {**optimizer, **({"loss_scaling": row["loss_scaling"]} if "loss_scaling" in row else {})},
        "global_batches_per_log": 1,
        "enable_wandb": True,
        "wandb_tags": ["published"],
        "output_dir": "./output_dir_hf/",
    }


def published_model(row: dict[str, Any]) -> dict[str, Any]:
    if row["model"] not in SIZES:
        return {"bert_model_name": row["model"]}
    layers, hidden, heads, intermediate = SIZES[row["model"]]
    sizes = {
        "hidden_size": hidden,
        "vocab_size": row["vocab_size"],
        "num_attention_heads": heads,
        "num_hidden_layers": layers,
        "intermediate_size": intermediate,
        "hidden_dropout_prob": row["hidden_dropout"],
        "attention_probs_dropout_prob": row["attention_dropout"],
        "max_position_embeddings": 512,
        "type_vocab_size": 2,
        "initializer_range": 0.02,
        "layer_norm_eps": 1e-12,
        "position_embedding_type": "absolute",
    }
    return {"bert_config": sizes}


def row_length(name: str) -> int:
    """Return the published length; the files of fine-tuning have none, and the program pads to the model's, 512."""
    return int(ROWS[name].get("max_seq_length", 512))


@pytest.mark.parametrize("platform", ["auto", "graphcore"])
@pytest.mark.parametrize("name", ROWS)
def test_published_file_has_the_published_values(name: str, platform: str, tmp_path: Path) -> None:
    path, task = write(tmp_path, published_file(name), f"{name}.json"), TASKS[name.split("_")[0]]
    loaded = load_config(task, ["--config", str(path), "--execution.platform", platform])
    notes = [note.partition(":")[0] for note in loaded.notes]
    assert notes == ["optimizer_opts.decay_rule is unset"] * name.startswith("glue")
    assert loaded.config.name == name
    assert loaded.config.max_seq_length == row_length(name)
    assert_published(name, loaded.config)


@pytest.mark.parametrize("name", ROWS)
def test_the_published_path_of_a_config_gets_the_one_here(name: str) -> None:
    task = TASKS[name.split("_")[0]]
    with pytest.raises(UserError, match=r"did you mean .*configs/\w+/" + name + r"\.json\?$"):
        load_config(task, ["--config", f"configs/{name}.json"])


def test_samples_are_those_of_the_lamb_paper() -> None:
    # You et al. 2020: batches of 64k for 7,038 steps, then of 32k for 1,563.
    for model in ("base", "large"):
        assert load(f"pretrain_{model}_128_phase1").config.total_num_train_samples == 65536 * 7038
        assert load(f"pretrain_{model}_384_phase2").config.total_num_train_samples == 32768 * 1563


@pytest.mark.parametrize("folder", FOLDERS.values())
def test_every_config_states_its_command(folder: str) -> None:
    paths = list((CONFIGS / folder).glob("*.json"))
    assert paths, f"configs/{folder} has configs"
    for path in paths:
        about = json.loads(path.read_text(encoding="utf-8"))["about"]
        assert f"--config configs/{folder}/{path.name}" in about["command"]


def test_configs_do_not_repeat_values_that_they_inherit() -> None:
    contents = {path: json.loads(path.read_text(encoding="utf-8")) for path in CONFIGS.glob("*/*.json")}
    extending = {path: own for path, own in contents.items() if own.get("extends")}
    assert len(extending) > len(contents) / 2, "most configs extend others"
    for path, own in extending.items():
        bases = own.pop("extends")
        own.pop("about")
        inherited = read_config([path.parent / base for base in ([bases] if isinstance(bases, str) else bases)])
        assert not repeats(own, inherited.values), f"{path.name} repeats a value of its bases"


def repeats(own: dict, inherited: dict) -> bool:
    return any(
        repeats(value, inherited.get(key, {})) if isinstance(value, dict) else inherited.get(key) == value
        for key, value in own.items()
    )
