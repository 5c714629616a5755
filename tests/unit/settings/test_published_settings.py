"""Each published run resolves to the published values, from this project's config and from the users' own file."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pytest

from settings.config_files import read_config
from settings.fields import value_at
from settings.schema import TrainingConfig
from tests.support.config_files import changed, load_config, write
from tests.support.published_configs import CONFIGS, FOLDERS, ROWS, SIZES, TASKS, load
from utilities.errors import UserError

RATE, BERT, IPUS = "optimizer_opts/learning_rate", "bert_config", "ipu_config"
PATHS = {  # the keys of a config by the names of the published table
    "max_seq_length": "max_seq_length", "max_predictions_per_seq": "max_predictions_per_seq", "seed": "seed",
    "num_epochs": "num_epochs", "embedding_serialization_factor": "embedding_serialization_factor",
    "replicas": "global_batch/replicas", "micro_batch_size": "global_batch/micro_batch_size",
    "grad_acc_steps_per_replica": "global_batch/grad_acc_steps_per_replica",
    "pipeline_stages": f"{IPUS}/pipeline_stages", "device_mapping": f"{IPUS}/pipeline_device_mapping",
    "matmul_memory_proportion": f"{IPUS}/matmul_available_memory_proportion_per_pipeline_stage",
    "rts": f"{IPUS}/replicated_tensor_sharding",
    "optimizer": "optimizer_opts/name", "weight_decay": "optimizer_opts/weight_decay_rate",
    "loss_scaling": "optimizer_opts/loss_scaling",
    "max_lr": f"{RATE}/max_learning_rate", "warmup_frac": f"{RATE}/warmup_frac",
    "vocab_size": f"{BERT}/vocab_size", "hidden_dropout": f"{BERT}/hidden_dropout_prob",
    "attention_dropout": f"{BERT}/attention_probs_dropout_prob",
}  # fmt: skip
SHAPE = ("num_hidden_layers", "hidden_size", "num_attention_heads", "intermediate_size")


def resolved(config: TrainingConfig, row: dict[str, Any]) -> dict[str, Any]:
    """Return the values of a config by the names of a row, with the model's name for its shape."""
    values = {name: value_at(config, PATHS[name].replace("/", ".")) for name in row if name != "model"}
    values["pipeline_stages"] = [" ".join(stage) for stage in values["pipeline_stages"]]
    if config.bert_config is None:
        return {**values, "model": config.bert_model_name}
    assert config.bert_model_name is None
    shape = tuple(getattr(config.bert_config, name) for name in SHAPE)
    return {**values, "model": next(name for name, sizes in SIZES.items() if sizes == shape)}


def assert_published(name: str, config: TrainingConfig) -> None:
    assert resolved(config, ROWS[name]) == ROWS[name]
    assert config.optimizer_opts.learning_rate.schedule_name == "up_down"


@pytest.mark.parametrize("name", ROWS)
def test_config_has_the_published_values(name: str) -> None:
    config = load(name).config
    assert config.name == name and config.optimizer_state_offchip is not False
    assert_published(name, config)


def published_file(name: str) -> dict[str, Any]:
    """Return the users' file of a published run, which has neither the length of training nor the task."""
    row, model = ROWS[name], ROWS[name]["model"]
    given = {PATHS[key]: value for key, value in row.items() if key != "model"}
    given[f"{IPUS}/pipeline_stages"] = [stage.split() for stage in row["pipeline_stages"]]
    if model in SIZES:
        usual = {"max_position_embeddings": 512, "type_vocab_size": 2, "initializer_range": 0.02}
        usual.update(layer_norm_eps=1e-12, position_embedding_type="absolute", **dict(zip(SHAPE, SIZES[model])))
        given.update({f"{BERT}/{key}": value for key, value in usual.items()})
    else:
        given["bert_model_name"] = model
    others: dict[str, Any] = {"output_dir": "./output_dir_hf/", "global_batches_per_log": 1}
    others.update(enable_wandb=True, wandb_tags=["x"])  # room: wandb
    folder = "/data/wikipedia/" if name.startswith("pretrain") else "./cache/"
    return changed({**others, "dataset_dir": folder}, {**given, f"{RATE}/schedule_name": "up_down"})


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


@pytest.mark.parametrize("name", ["pretrain_tiny_128_phase1", "squad_base", "glue_base"])
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
