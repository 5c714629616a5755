"""Every published run's resolved config has the values of the published table."""

from __future__ import annotations

import json
from collections.abc import Sequence
from pathlib import Path
from typing import Any

import pytest

from settings.loading import LoadedConfig, load_config, read_config
from tasks.demo import PHASES
from tests import ROOT

CONFIGS = ROOT / "configs"
ROWS = json.loads((Path(__file__).parent / "published_settings.json").read_text(encoding="utf-8"))["rows"]
FOLDERS = {"pretrain": "pretraining", "squad": "squad", "glue": "glue", "conll2003": "token_classification"}
TASKS = {
    "pretrain": "pretraining", "squad": "squad", "glue": "classification", "conll2003": "token_classification"
}  # fmt: skip
OWN = {  # recipes of this project
    "pretrain_tiny_128_phase1_packed", "pretrain_tiny_384_phase2", "pretrain_tiny_512_phase2",
    "pretrain_tiny_32_quick", "pretrain_tiny_128_quick",
}  # fmt: skip
SIZES = {  # layers, hidden, heads, intermediate
    "tiny": (2, 128, 2, 512),
    "base": (12, 768, 12, 3072),
    "large": (24, 1024, 16, 4096),
}


def load(name: str, *flags: str, over: Sequence[str] = ()) -> LoadedConfig:
    """Return the config of a recipe with overlays."""
    kind = name.split("_")[0]
    paths = [CONFIGS / FOLDERS[kind] / f"{name}.json", *(CONFIGS / f"{overlay}.json" for overlay in over)]
    return load_config(TASKS[kind], ["--config", *map(str, paths), *flags])


@pytest.fixture(autouse=True)
def _datasets_dir(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("DATASETS_DIR", "/data")


@pytest.mark.parametrize("name", sorted(ROWS))
def test_config_equals_its_published_row(name: str) -> None:
    row = ROWS[name]
    loaded = load(name)
    config = loaded.config
    assert config.name == name
    if row["model"] in SIZES:
        sizes = config.bert_config
        shape = (
            sizes.num_hidden_layers, sizes.hidden_size, sizes.num_attention_heads, sizes.intermediate_size,
        )  # fmt: skip
        assert shape == SIZES[row["model"]]
        assert config.bert_model_name is None
    else:
        assert config.bert_model_name == row["model"]
    seen = {
        "replicas": config.global_batch.replicas,
        "micro_batch_size": config.global_batch.micro_batch_size,
        "grad_acc_steps_per_replica": config.global_batch.grad_acc_steps_per_replica,
        "pipeline_stages": [" ".join(stage) for stage in config.ipu_config.pipeline_stages],
        "device_mapping": config.ipu_config.pipeline_device_mapping,
        "matmul_memory_proportion": config.ipu_config.matmul_available_memory_proportion_per_pipeline_stage,
        "rts": config.ipu_config.replicated_tensor_sharding,
        "optimizer": config.optimizer_opts.name,
        "weight_decay": config.optimizer_opts.weight_decay_rate,
        "loss_scaling": config.optimizer_opts.loss_scaling,
        "max_lr": config.optimizer_opts.learning_rate.max_learning_rate,
        "warmup_frac": config.optimizer_opts.learning_rate.warmup_frac,
        "embedding_serialization_factor": config.embedding_serialization_factor,
        "max_seq_length": config.max_seq_length,
        "max_predictions_per_seq": config.max_predictions_per_seq,
        "num_epochs": config.num_epochs,
        "seed": config.seed,
        "model": row["model"],
    }
    if config.bert_config is not None:
        seen["vocab_size"] = config.bert_config.vocab_size
        seen["hidden_dropout"] = config.bert_config.hidden_dropout_prob
        seen["attention_dropout"] = config.bert_config.attention_probs_dropout_prob
    assert {key: seen[key] for key in row} == row
    assert config.optimizer_state_offchip


def published_file(name: str) -> dict[str, Any]:
    """Return the users' config of a published row: one file, in which neither length nor task is set."""
    row = ROWS[name]
    rate = {"schedule_name": "up_down", "max_learning_rate": row["max_lr"], "warmup_frac": row["warmup_frac"]}
    optimizer = {"name": row["optimizer"], "weight_decay_rate": row["weight_decay"], "learning_rate": rate}
    if "loss_scaling" in row:
        optimizer["loss_scaling"] = row["loss_scaling"]
    batch = ("replicas", "micro_batch_size", "grad_acc_steps_per_replica")
    top = ("max_seq_length", "max_predictions_per_seq", "embedding_serialization_factor", "num_epochs", "seed")
    return {
        "dataset_dir": "$DATASETS_DIR/wikipedia/" if "max_seq_length" in row else "./cache/",
        **published_model(row),
        **{key: row[key] for key in top if key in row},
        "global_batch": {key: row[key] for key in batch},
        "ipu_config": {
            "pipeline_stages": [stage.split() for stage in row["pipeline_stages"]],
            "pipeline_device_mapping": row["device_mapping"],
            "matmul_available_memory_proportion_per_pipeline_stage": row["matmul_memory_proportion"],
            "replicated_tensor_sharding": row["rts"],
        },
        "optimizer_opts": optimizer,
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


def published_tests() -> dict[str, dict[str, Any]]:
    """Return the tiny configs of the published application's tests; SQuAD's has two keys in the wrong section."""
    tiny = published_file("pretrain_tiny_128_phase1")
    batch = {"replicas": 2, "micro_batch_size": 2, "grad_acc_steps_per_replica": 6}
    pretraining = {**tiny, "global_batch": batch, "total_num_train_samples": 540}
    fine_tuning = {key: tiny[key] for key in tiny if key not in ("max_seq_length", "max_predictions_per_seq")}
    glue_stages = {**tiny["ipu_config"], "pipeline_stages": [["emb"], ["hid", "hid"], ["pool", "glue_head"]]}
    squad_stages = {**tiny["ipu_config"], "pipeline_stages": [["emb"], ["hid", "hid"], ["qa_head"]]}
    squad_sizes = {"max_seq_length": 128, "max_predictions_per_seq": 20, **tiny["bert_config"], "vocab_size": 30528}
    squad = {**fine_tuning, "ipu_config": squad_stages, "bert_config": squad_sizes, "num_epochs": 1}
    return {
        "pretrain_tiny_test": pretraining,
        "glue_tiny_test": {**fine_tuning, "ipu_config": glue_stages, "num_epochs": 3},
        "squad_tiny_test": squad,
    }


@pytest.mark.parametrize("name", [*sorted(ROWS), "glue_tiny_test", "pretrain_tiny_test", "squad_tiny_test"])
@pytest.mark.parametrize("platform", ["auto", "graphcore"])
def test_published_files_run_by_their_own_command(name: str, platform: str, tmp_path: Path) -> None:
    values = published_file(name) if name in ROWS else published_tests()[name]
    path = tmp_path / f"{name}.json"
    path.write_text(json.dumps(values), encoding="utf-8")
    task = TASKS[name.split("_")[0]]
    loaded = load_config(task, ["--config", str(path), "--execution.platform", platform])
    assert loaded.config.name == name
    assert [note.split(" = ")[0] for note in loaded.notes] == (
        ["bert_config.max_seq_length", "bert_config.max_predictions_per_seq"] if name == "squad_tiny_test" else []
    )
    if task == "pretraining" and name in ROWS:
        length = values["max_seq_length"]
        assert loaded.config.total_num_train_samples == (460_849_152 if length == 128 else 34_239_360)
    if task == "classification":
        assert loaded.config.glue_task == "mrpc"


def test_the_table_is_whole() -> None:
    assert sorted(name for name in ROWS if name.startswith("pretrain")) == sorted(
        path.stem for path in (CONFIGS / "pretraining").glob("*.json") if path.stem not in OWN
    )


def test_samples_are_those_of_the_lamb_paper() -> None:
    # You et al. 2020: batches of 64k for 7,038 steps, then of 32k for 1,563.
    for model in ("base", "large"):
        assert load(f"pretrain_{model}_128_phase1").config.total_num_train_samples == 65536 * 7038
        assert load(f"pretrain_{model}_384_phase2").config.total_num_train_samples == 32768 * 1563


def test_every_config_says_its_command() -> None:
    for folder in ("pretraining", "squad", "glue", "token_classification"):
        for path in (CONFIGS / folder).glob("*.json"):
            about = json.loads(path.read_text(encoding="utf-8"))["about"]
            assert f"--config configs/{folder}/{path.name}" in about["command"]


def test_demo_configs_load() -> None:
    phases = [
        load_config("pretraining", ["--config", str(CONFIGS / "demo" / f"{name}.json")]).config for name in PHASES
    ]
    assert [config.max_seq_length for config in phases] == [32, 128, 384]
    assert all(config.bert_config == phases[0].bert_config for config in phases)


def test_a_config_repeats_nothing_of_what_it_extends() -> None:
    for path in CONFIGS.glob("*/*.json"):
        own = json.loads(path.read_text(encoding="utf-8"))
        bases = own.pop("extends", [])
        own.pop("about")
        if not bases:
            continue
        inherited, _ = read_config([path.parent / base for base in ([bases] if isinstance(bases, str) else bases)])
        assert not _repeats(own, inherited.values), f"{path.name} repeats a value of its bases"


def _repeats(own: dict, inherited: dict) -> bool:
    return any(
        _repeats(value, inherited.get(key, {})) if isinstance(value, dict) else inherited.get(key) == value
        for key, value in own.items()
    )
