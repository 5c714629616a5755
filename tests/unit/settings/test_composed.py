"""Each overlay over a recipe changes its own values, and nothing else."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest

from model.tasks import expected_blocks
from settings.derived import training_steps
from settings.fields import value_at
from settings.loading import LoadedConfig
from settings.schema import leaves
from tests.support.config_files import TINY, load_config, write
from tests.support.published_configs import CONFIGS, ROWS, SIZES, load

PHASES = {"128_phase1": (128, 20), "384_phase2": (384, 56), "512_phase2": (512, 76)}
PRETRAINING = [(model, phase) for model in SIZES for phase in PHASES]
GPU_BATCHES = {128: (128, 510), 384: (32, 510), 512: (16, 1020)}
BATCH = ("micro_batch_size", "replicas", "grad_acc_steps_per_replica")


def values_by_name(loaded: LoadedConfig) -> dict[str, Any]:
    return {name: value_at(loaded.config, name) for name in leaves()}


def one_device(task: str, layers: int, device: str) -> dict[str, Any]:
    return {
        "ipu_config.pipeline_stages": [expected_blocks(task, layers)],
        "ipu_config.pipeline_device_mapping": [0],
        "ipu_config.matmul_available_memory_proportion_per_pipeline_stage": None,
        "optimizer_opts.loss_scaling": None,
        "execution.platform": "software",
        "execution.device": device,
    }


DEVLIN = ["devlin", "systems/cpu"]


def batch(*sizes: int) -> dict[str, int]:
    return {f"global_batch.{key}": size for key, size in zip(BATCH, sizes, strict=True)}


@pytest.mark.parametrize(("model", "phase"), PRETRAINING)
def test_recipe_of_devlin_on_a_cpu(model: str, phase: str) -> None:
    """The recipe of Devlin et al. 2019, appendix A.2, is batch 256, Adam, 1e-4, and dropout 0.1 everywhere."""
    name = f"pretrain_{model}_{phase}"
    devlin = {
        "bert_config.attention_probs_dropout_prob": 0.1,
        "optimizer_opts.name": "AdamW",
        "optimizer_opts.decay_rule": "usual",
        "optimizer_opts.learning_rate.schedule_name": "linear",
        "optimizer_opts.learning_rate.max_learning_rate": 1e-4,
        "optimizer_opts.learning_rate.warmup_frac": 0.01,
        **batch(8, 1, 32),
        **one_device("pretraining", SIZES[model][0], "cpu"),
    }
    assert values_by_name(load(name, overlays=DEVLIN)) == {**values_by_name(load(name)), **devlin}
    samples, updates = (230_400_000, 900_000) if phase == "128_phase1" else (25_600_000, 100_000)
    whole = load(name, overlays=[*DEVLIN, f"devlin_{phase[-6:]}"])
    assert values_by_name(whole) == {**values_by_name(load(name)), **devlin, "total_num_train_samples": samples}
    assert training_steps(whole.config) == updates


@pytest.mark.parametrize(("model", "phase"), PRETRAINING)
def test_pretraining_on_a_gpu_makes_the_published_updates(model: str, phase: str) -> None:
    name, length = f"pretrain_{model}_{phase}", PHASES[phase][0]
    micro_batch, accumulation = GPU_BATCHES[length]
    plain, gpu = load(name), load(name, overlays=[f"systems/pretraining_gpu_{length}"])
    machine = one_device("pretraining", SIZES[model][0], "gpu")
    assert values_by_name(gpu) == {**values_by_name(plain), **machine, **batch(micro_batch, 1, accumulation)}
    if model != "tiny":
        assert gpu.config.samples_per_update == plain.config.samples_per_update


@pytest.mark.parametrize("system", [[], DEVLIN, ["systems/pretraining_gpu_{length}"]])
@pytest.mark.parametrize(("model", "phase"), PRETRAINING)
def test_packed_overlay_changes_only_the_packs(model: str, phase: str, system: list[str]) -> None:
    name, (length, predictions) = f"pretrain_{model}_{phase}", PHASES[phase]
    overlays = [overlay.format(length=length) for overlay in system]
    plain, packed = load(name, overlays=overlays), load(name, overlays=[*overlays, "packed"])
    packs = {"packing.max_sequences_per_pack": 3, "packing.max_predictions_per_pack": predictions + 3}
    assert values_by_name(packed) == {**values_by_name(plain), **packs}
    assert packed.config.packing.adjust_betas
    assert training_steps(packed.config, factor=2.0) == training_steps(plain.config) // 2


@pytest.mark.parametrize("device", ["cpu", "gpu"])
@pytest.mark.parametrize("name", [name for name in ROWS if not name.startswith("pretrain")])
def test_fine_tuning_on_one_device_makes_the_published_updates(name: str, device: str) -> None:
    kind, model = name.split("_")[:2]
    plain, one = load(name), load(name, overlays=[f"systems/{kind}_{device}"])
    sizes = {"squad": {"cpu": (8, 1, 40), "gpu": (32, 1, 10)}, "glue": {"cpu": (15, 1, 2), "gpu": (30, 1, 1)}}
    task = "squad" if kind == "squad" else "classification"
    machine = one_device(task, SIZES[model][0], device)
    assert values_by_name(one) == {**values_by_name(plain), **machine, **batch(*sizes[kind][device])}
    assert one.config.samples_per_update == plain.config.samples_per_update == (320 if kind == "squad" else 30)


@pytest.mark.parametrize("device", ["cpu", "gpu", "auto"])
def test_overlay_of_a_machine_keeps_the_update_of_a_recipe(device: str) -> None:
    for name in ("pretrain_base_128_phase1", "pretrain_large_128_phase1_POD64", "squad_large", "glue_base"):
        plain, one = load(name), load(name, overlays=[f"systems/{'local' if device == 'auto' else device}"])
        assert one.config.global_batch == plain.config.global_batch
        assert one.config.execution.device == device
        changed = {key for key, value in values_by_name(one).items() if values_by_name(plain)[key] != value}
        assert not any(key.startswith(("bert_config", "optimizer_opts.learning_rate", "total")) for key in changed)


@pytest.mark.parametrize(
    "task, data",
    [
        ("squad", []),
        ("classification", ["--classification-data.train-file", "reviews.csv"]),
        ("token_classification", ["--dataset-dir", "conll2003"]),
        ("sentence_embedding", ["--embedding.train-file", "pairs.csv"]),
    ],
)
def test_one_recipe_fine_tunes_for_every_task(task: str, data: list[str]) -> None:
    """It leaves the sizes to the weights; batch and rate are in the search of Turc et al. 2019, section 4.2."""
    path = str(CONFIGS / "fine_tuning.json")
    loaded = load_config(task, ["--config", path, "--pretrained-ckpt-path", "x", *data])
    config = loaded.config
    assert config.bert_config is None and loaded.notes == []
    assert (config.samples_per_update, config.num_epochs, config.total_num_train_samples) == (32, 4, None)
    assert config.optimizer_opts.learning_rate.max_learning_rate == 3e-4
    assert (config.execution.platform, config.execution.device) == ("software", "auto")


def test_later_files_take_precedence_and_the_first_names_the_run(tmp_path: Path) -> None:
    write(tmp_path, {"seed": 1, "keep_last": 7}, "base.json")
    first = write(tmp_path, {**TINY, "seed": 2, "about": "the recipe"}, "first.json")
    second = write(tmp_path, {"extends": "base.json", "data": {"prefetch": 3}, "about": "an overlay"}, "second.json")
    third = write(tmp_path, {"data": {"prefetch": 4, "reader_threads": 5}}, "third.json")
    loaded = load_config("pretraining", ["--config", str(first), str(second), str(third), "--data.reader-threads", "6"])
    config = loaded.config
    assert (config.name, config.about, config.seed, config.keep_last) == ("first", "the recipe", 1, 7)
    assert (config.data.prefetch, config.data.reader_threads) == (4, 6)
    origins = ("seed", "data.prefetch", "data.reader_threads", "dataset_dir", "name")
    assert [loaded.origins[name].split("/")[-1] for name in origins] == [
        "base.json", "third.json", "command line", "first.json", "derived",
    ]  # fmt: skip
    again = ["--config", str(first), "--config", str(second), str(third), "--data.reader-threads", "6"]
    assert load_config("pretraining", again).config == config
