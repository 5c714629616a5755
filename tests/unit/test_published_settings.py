"""Every published run, as its config resolves, against the published table; variants for other machines."""

from __future__ import annotations

import json
from pathlib import Path

import pytest

from tasks.demo import PHASES
from utilities.config.figures import training_steps
from utilities.config.loading import LoadedConfig, load_config

CONFIGS = Path(__file__).resolve().parents[2] / "configs"
ROWS = json.loads((Path(__file__).parent / "published_settings.json").read_text(encoding="utf-8"))["rows"]
FOLDERS = {"pretrain": "pretraining", "squad": "squad", "glue": "glue"}
TASKS = {"pretrain": "pretraining", "squad": "squad", "glue": "classification"}
SIZES = {  # layers, hidden, heads, intermediate
    "tiny": (2, 128, 2, 512),
    "base": (12, 768, 12, 3072),
    "large": (24, 1024, 16, 4096),
}


def load(name: str, *flags: str) -> LoadedConfig:
    kind = name.split("_")[0]
    return load_config(TASKS[kind], ["--config", str(CONFIGS / FOLDERS[kind] / f"{name}.json"), *flags])


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
    assert config.optimizer_state_offchip is not row["rts"]


def test_the_table_is_whole() -> None:
    assert sorted(name for name in ROWS if name.startswith("pretrain")) == sorted(
        path.stem
        for path in (CONFIGS / "pretraining").glob("*.json")
        if not path.stem.endswith(("_cpu", "_gpu", "_packed"))
    )


@pytest.mark.parametrize("model", ["tiny", "base", "large"])
@pytest.mark.parametrize(
    ("phase", "length", "predictions"),
    [("128_phase1", 128, 20), ("384_phase2", 384, 56), ("512_phase2", 512, 76)],
)
def test_cpu_and_gpu_variants(model: str, phase: str, length: int, predictions: int) -> None:
    cpu = load(f"pretrain_{model}_{phase}_cpu").config
    gpu = load(f"pretrain_{model}_{phase}_gpu").config
    for config, device in ((cpu, "cpu"), (gpu, "gpu")):
        assert config.execution.device == device
        assert (config.max_seq_length, config.max_predictions_per_seq) == (length, predictions)
        assert config.bert_config.num_hidden_layers == SIZES[model][0]
        assert len(config.ipu_config.pipeline_stages) == 1
        assert config.dataset_dir == f"/data/wikipedia/{length}"
    # Devlin et al. 2019, appendix A.2: batch 256, Adam, 1e-4, dropout 0.1 everywhere.
    assert cpu.samples_per_update == 256
    assert cpu.optimizer_opts.name == "AdamW"
    assert cpu.optimizer_opts.learning_rate.max_learning_rate == 1e-4
    assert cpu.bert_config.attention_probs_dropout_prob == 0.1
    assert not cpu.enable_recomputation
    if model != "tiny":
        published = load(f"pretrain_{model}_{phase}").config
        assert gpu.samples_per_update == published.samples_per_update
        assert gpu.optimizer_opts.learning_rate == published.optimizer_opts.learning_rate
        assert gpu.total_num_train_samples == published.total_num_train_samples
        assert training_steps(cpu) == (900_000 if length == 128 else 100_000)


def test_samples_are_those_of_the_lamb_paper() -> None:
    # You et al. 2020: batches of 64k for 7,038 steps, then of 32k for 1,563.
    for model in ("base", "large"):
        assert load(f"pretrain_{model}_128_phase1").config.total_num_train_samples == 65536 * 7038
        assert load(f"pretrain_{model}_384_phase2").config.total_num_train_samples == 32768 * 1563


def test_every_config_says_its_command() -> None:
    for folder in ("pretraining", "squad", "glue"):
        for path in (CONFIGS / folder).glob("*.json"):
            about = json.loads(path.read_text(encoding="utf-8"))["about"]
            assert f"--config configs/{folder}/{path.name}" in about["command"]


def test_demo_configs_load() -> None:
    phases = [
        load_config("pretraining", ["--config", str(CONFIGS / "demo" / f"{name}.json")]).config for name in PHASES
    ]
    assert [config.max_seq_length for config in phases] == [32, 128, 384]
    assert all(config.bert_config == phases[0].bert_config for config in phases)


def test_no_number_is_copied_between_sibling_configs() -> None:
    """A run's own file is a small delta: it never repeats what it would get from what it extends."""
    for path in (CONFIGS / "pretraining").glob("*.json"):
        own = json.loads(path.read_text(encoding="utf-8"))
        own.pop("about")
        bases = own.pop("extends")
        bare = path.parent / path.name
        assert bases and bare.exists()
        inherited = _merged(path.parent, bases)
        assert not _repeats(own, inherited), f"{path.name} repeats a value of its bases"


def _merged(folder: Path, bases: object) -> dict:
    merged: dict = {}
    for base in [bases] if isinstance(bases, str) else bases:
        path = folder / base
        values = json.loads(path.read_text(encoding="utf-8"))
        values.pop("about", None)
        layer = _merged(path.parent, values.pop("extends", []))
        for part in (layer, values):
            _lay(merged, part)
    return merged


def _lay(target: dict, values: dict) -> None:
    for key, value in values.items():
        if isinstance(value, dict):
            _lay(target.setdefault(key, {}), value)
        else:
            target[key] = value


def _repeats(own: dict, inherited: dict) -> bool:
    return any(
        _repeats(value, inherited.get(key, {})) if isinstance(value, dict) else inherited.get(key) == value
        for key, value in own.items()
    )
