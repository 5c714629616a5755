"""Files, extends, origins, paths and derived values."""

from __future__ import annotations

import json
import os
from pathlib import Path
from typing import Any

import pytest

from settings.fields import value_at
from settings.loading import LoadedConfig, resolve_call
from settings.published import decays_as_published
from settings.schema import TrainingConfig, leaves
from tests import ROOT
from tests.support.config_files import FINE_TUNING, TINY, changed, load_config, write
from utilities.errors import UserError

STAGES, DEVICES = "ipu_config/pipeline_stages", "ipu_config/pipeline_device_mapping"


def load(path: Path, *flags: str, task: str = "pretraining") -> LoadedConfig:
    return load_config(task, ["--config", str(path), *flags])


@pytest.mark.parametrize(
    ("change", "name", "expected"),
    [
        ({STAGES: ["emb", "hid hid enc_out", ["pool", "heads"]]}, STAGES, TINY["ipu_config"]["pipeline_stages"]),
        ({"total_num_train_samples": 1e6}, "total_num_train_samples", 1_000_000),
        ({"optimizer_opts/loss_scaling": 4096}, "optimizer_opts/loss_scaling", 4096),
        ({"optimizer_opts/loss_scaling": None}, "optimizer_opts/loss_scaling", None),
        ({"optimizer_opts/loss_scaling": "None"}, "optimizer_opts/loss_scaling", None),
        ({"name": "$HOME-run"}, "name", "$HOME-run"),  # only paths are expanded
        ({"execution/pipeline_devices": 2}, "execution/pipeline_devices", 2),  # room: pipeline
        ({"ipu_config": {"pipeline_stages": ["emb", "hid hid enc_out", "pool heads"]}}, DEVICES, [0, 1, 0]),
        ({"ipu_config": ...}, STAGES, [["emb", "hid", "hid", "enc_out", "pool", "heads"]]),
        ({"ipu_config": ...}, DEVICES, [0]),
    ],
)
def test_values(change: dict[str, object], name: str, expected: object, tmp_path: Path) -> None:
    config = load(write(tmp_path, changed(TINY, change))).config
    assert value_at(config, name.replace("/", ".")) == expected


SHARES = "matmul_available_memory_proportion_per_pipeline_stage"


def test_extends_merges_objects_and_replaces_the_rest(tmp_path: Path) -> None:
    write(tmp_path, TINY, "bases/model.json")
    batch = {"seed": 1, "global_batch": {"micro_batch_size": 4}, "ipu_config": {SHARES: [0.3]}, "about": "base"}
    write(tmp_path, batch, "bases/batch.json")
    path = write(
        tmp_path, {"extends": ["bases/model.json", "bases/batch.json"], "seed": 2, "ipu_config": {SHARES: [0.5, 0.6]}}
    )
    loaded = load(path, "--global-batch.grad-acc-steps-per-replica", "6")
    config = loaded.config
    assert (config.global_batch.micro_batch_size, config.global_batch.grad_acc_steps_per_replica) == (4, 6)
    assert (config.seed, getattr(config.ipu_config, SHARES), config.about) == (2, [0.5, 0.6], None)
    origins = loaded.origins
    assert origins["global_batch.micro_batch_size"].endswith("bases/batch.json")
    assert origins["global_batch.grad_acc_steps_per_replica"] == "command line"
    assert origins["global_batch.replicas"].endswith("bases/model.json")
    assert origins["seed"].endswith("run.json")
    assert origins["name"] == "derived"
    assert origins["max_seq_length"] == "default"
    assert set(origins) == set(leaves())


def test_a_base_of_two_files_is_no_circle(tmp_path: Path) -> None:
    write(tmp_path, TINY)
    sides = [str(write(tmp_path, {"extends": "run.json", key: 7}, f"{key}.json")) for key in ("seed", "keep_last")]
    config = load_config("pretraining", ["--config", *sides]).config
    assert (config.seed, config.keep_last) == (7, 7)


def test_circular_extends_is_refused(tmp_path: Path) -> None:
    write(tmp_path, {"extends": "b.json"}, "a.json")
    write(tmp_path, {"extends": "c.json"}, "b.json")
    path = write(tmp_path, {"extends": "a.json"}, "c.json")
    with pytest.raises(UserError, match=r"circle: .*c\.json -> .*a\.json -> .*b\.json -> .*c\.json; remove"):
        load(path)


def test_file_with_byte_order_mark(tmp_path: Path) -> None:
    path = write(tmp_path, TINY)
    path.write_bytes(b"\xef\xbb\xbf" + path.read_bytes())
    assert load(path).config.seed == 1984


@pytest.mark.parametrize("form", ["$BASE_FOLDER/x", "${BASE_FOLDER}/x", "~/x"])
def test_variables_and_home_in_paths(form: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    for name in ("BASE_FOLDER", "HOME"):
        monkeypatch.setenv(name, "/somewhere")
    for field in ("dataset_dir", "save_ckpt_path", "pretrained_ckpt_path", "output_dir"):
        config = load(write(tmp_path, changed(TINY, {field: form}))).config
        assert getattr(config, field) == "/somewhere/x"
    assert load(write(tmp_path, TINY), "--dataset-dir", "~").config.dataset_dir == "/somewhere"


def test_flag_replaces_an_unset_variable(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.delenv("DATASETS_DIR", raising=False)
    path = write(tmp_path, changed(TINY, {"dataset_dir": "$DATASETS_DIR/wikipedia"}))
    with pytest.raises(UserError, match="export DATASETS_DIR="):
        load(path)
    assert load(path, "--dataset-dir", "here").config.dataset_dir == "here"
    assert load(path, "--generated-dataset", "true").config.generated_dataset


@pytest.mark.parametrize(("platform", "reduction"), [("software", "mean"), ("graphcore", "running_mean")])
def test_default_reduction_depends_on_the_platform(platform: str, reduction: str, tmp_path: Path) -> None:
    loaded = load(write(tmp_path, TINY), "--execution.platform", platform)
    assert loaded.config.optimizer_opts.gradient_accumulation_reduction == reduction
    assert loaded.origins["optimizer_opts.gradient_accumulation_reduction"] == "derived"
    given = load(write(tmp_path, TINY), "--optimizer-opts.gradient-accumulation-reduction", "sum")
    assert given.config.optimizer_opts.gradient_accumulation_reduction == "sum"


@pytest.mark.parametrize(("length", "samples"), [(128, 460_849_152), (384, 34_239_360), (512, 34_239_360)])
def test_default_length_of_training(length: int, samples: int, tmp_path: Path) -> None:
    loaded = load(write(tmp_path, changed(TINY, {"total_num_train_samples": ..., "max_seq_length": length})))
    assert (loaded.config.total_num_train_samples, loaded.config.num_epochs) == (samples, None)
    assert loaded.origins["total_num_train_samples"] == "derived"


def test_classification_has_no_task_by_default(tmp_path: Path) -> None:
    path = write(tmp_path, FINE_TUNING)
    with pytest.raises(UserError, match=r"there is nothing to classify; set train_file .*, or glue_task .*, such as"):
        load(path, task="classification")
    assert load(path, "--generated-dataset", task="classification").config.glue_task is None
    for flag in ("--glue-task", "mrpc"), ("--classification-data.train-file", "reviews.csv"):
        load(path, *flag, task="classification")


@pytest.mark.parametrize("overlays", [(), ("configs/systems/glue_cpu.json",)])
def test_a_config_for_ipus_has_the_task_of_the_published_program(overlays: tuple[str, ...], tmp_path: Path) -> None:
    path = write(tmp_path, {**FINE_TUNING, "ipu_config": {"replicated_tensor_sharding": False}})
    loaded = load_config("classification", ["--config", str(path), *overlays])
    assert (loaded.config.glue_task, loaded.origins["glue_task"]) == ("mrpc", "derived")


def test_misplaced_keys_of_published_configs(tmp_path: Path) -> None:
    misplaced = {"bert_config/max_seq_length": 64, "bert_config/max_predictions_per_seq": 10}
    loaded = load(write(tmp_path, changed(TINY, {**misplaced, "max_predictions_per_seq": 7})))
    assert (loaded.config.max_seq_length, loaded.config.max_predictions_per_seq) == (64, 7)
    assert loaded.origins["max_seq_length"].endswith("run.json")
    applied, ignored = loaded.notes
    assert applied.startswith("bert_config.max_seq_length = 64 (")
    assert ignored.startswith("bert_config.max_predictions_per_seq = 10 (")
    assert load(write(tmp_path, changed(TINY, misplaced)), "--max-seq-length", "32").config.max_seq_length == 32


@pytest.mark.parametrize(("schedule", "steps"), [("interleaved", 9), ("sequential", 7), ("grouped", 18)])
def test_accumulation_by_schedule(schedule: str, steps: int, tmp_path: Path) -> None:
    change = {"ipu_config/pipeline_schedule": schedule, "global_batch/grad_acc_steps_per_replica": steps}
    assert load(write(tmp_path, changed(TINY, change))).config.samples_per_update == 2 * steps


def test_samples_take_precedence_over_epochs_of_the_same_file_and_a_flag_over_both(tmp_path: Path) -> None:
    loaded = load(write(tmp_path, changed(TINY, {"num_epochs": 2})))
    assert (loaded.config.total_num_train_samples, loaded.config.num_epochs) == (2400, None)
    assert "num_epochs = 2" in loaded.notes[0] and "no effect" in loaded.notes[0]
    by_flag = load(write(tmp_path, TINY), "--num-epochs", "2").config
    assert (by_flag.total_num_train_samples, by_flag.num_epochs) == (None, 2)


@pytest.mark.parametrize(
    ("name", "published", "platform", "rule", "notes"),
    [
        ("AdamW", True, "graphcore", "published", 1),
        ("AdamW", True, "auto", "usual", 1),
        ("AdamW", False, "auto", "usual", 0),
        ("LAMB", True, "graphcore", None, 0),  # the published rule, as before there was another
        ("LAMB", True, "auto", "published", 0),
        ("LAMB", False, "auto", "usual", 0),
        ("Muon", True, "auto", None, 0),
    ],
)
def test_decay_of_a_published_config_is_the_published_one_or_a_note_says_so(
    tmp_path: Path, name: str, published: bool, platform: str, rule: str | None, notes: int
) -> None:
    schedule = "up_down" if published else "linear"
    path = write(
        tmp_path, changed(TINY, {"optimizer_opts/name": name, "optimizer_opts/learning_rate/schedule_name": schedule})
    )
    loaded, on_ipus = load(path, "--execution.platform", platform), platform == "graphcore"
    assert loaded.config.optimizer_opts.decay_rule == rule
    assert decays_as_published(loaded.config.optimizer_opts, on_ipus) is (rule == "published" or on_ipus)
    assert [note.startswith("optimizer_opts.decay_rule is unset: ") for note in loaded.notes] == [True] * notes
    for chosen in ("usual", "published"):
        loaded = load(path, "--execution.platform", platform, "--optimizer-opts.decay-rule", chosen)
        assert decays_as_published(loaded.config.optimizer_opts, on_ipus) is (chosen == "published" and name != "Muon")
        is_named = name == "Muon" and chosen == "published"
        assert loaded.config.optimizer_opts.decay_rule == chosen and len(loaded.notes) == is_named


def test_options_without_effect_are_named(tmp_path: Path) -> None:
    muon = {"optimizer_opts/name": "Muon", "optimizer_opts/muon_scale": 10.0, "word_vectors": True}
    path = write(tmp_path, changed(TINY, muon))
    start = ["--pretrained-ckpt-path", "runs/first"]
    assert load(path).notes == load(path, *start).notes == load(path, "--word-vectors", "true").notes == []
    power, schedule = "--optimizer-opts.learning-rate.power", "--optimizer-opts.learning-rate.schedule-name"
    assert load(path, power, "0.5", schedule, "polynomial").notes == []
    flags = ["--word-vectors", "true", "--optimizer-opts.name", "AdamW", power, "0.5"]
    assert load(path, *start, *flags).notes == [
        f'optimizer_opts.muon_scale = 10.0 ({path}) has no effect: optimizer_opts.name = "AdamW" (command line)',
        "optimizer_opts.learning_rate.power = 0.5 (command line) has no effect:"
        ' optimizer_opts.learning_rate.schedule_name = "linear" (default)',
        'word_vectors = true (command line) has no effect: pretrained_ckpt_path = "runs/first" (command line)',
    ]


def test_stages_follow_the_depth_of_a_local_model(tmp_path: Path) -> None:
    folder = tmp_path / "model"
    write(folder, {"num_hidden_layers": 3, "hidden_size": 12, "num_attention_heads": 2}, "config.json")
    for model, stages in ((str(folder), [["emb", "hid", "hid", "hid", "qa_head"]]), ("someone/some-bert", None)):
        path = write(tmp_path, {**FINE_TUNING, "bert_model_name": model})
        assert load(path, task="squad").config.ipu_config.pipeline_stages == stages


def test_call_from_python_equals_the_command(tmp_path: Path) -> None:
    path, overlay = write(tmp_path, {**TINY, "name": "run"}), write(tmp_path, {"seed": 3}, "overlay.json")
    flags = ["--config", str(path), str(overlay), "--num-epochs", "2", "--global-batch.replicas", "2"]
    by_flags = load_config("pretraining", [*flags, "--dataset-dir", "$HOME/data"])
    overrides = {"num_epochs": 2, "global_batch": {"replicas": 2}, "dataset_dir": Path("$HOME/data")}
    values = json.loads(path.read_text(encoding="utf-8"))
    for recipe in (path, str(path), values, {"extends": str(path)}, TrainingConfig.model_validate(values)):
        called = resolve_call("pretraining", [recipe, {"seed": 3}], overrides)
        assert called.config == by_flags.config and len(called.notes) == len(by_flags.notes) == 1
        assert (called.origins["seed"], called.origins["num_epochs"]) == ("config", "argument of train")
    assert values == {**TINY, "name": "run"}  # not changed by the call
    assert resolve_call("pretraining", TINY, {}).config.name == "pretraining"


def test_recipes_are_read_from_any_folder(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(tmp_path)
    for recipe in ("configs/squad/squad_base.json", {"extends": "configs/squad/squad_base.json"}):
        assert resolve_call("squad", [recipe, "configs/systems/cpu.json"], {}).config.max_seq_length == 384
    write(tmp_path / "configs" / "squad", {**FINE_TUNING, "seed": 7}, "squad_base.json")
    assert resolve_call("squad", "configs/squad/squad_base.json", {}).config.seed == 7  # the current folder first
    with pytest.raises(UserError, match=f"No such file or directory in {tmp_path} or {ROOT};"):
        resolve_call("squad", "configs/none.json", {})


def test_config_from_a_pipe_of_the_shell(tmp_path: Path) -> None:
    reader, writer = os.pipe()
    os.write(writer, json.dumps(TINY).encode())
    os.close(writer)
    config = load(write(tmp_path, {**TINY, "name": str(reader)})).config
    assert load(Path(f"/dev/fd/{reader}")).config == config
    os.close(reader)


@pytest.mark.parametrize(
    ("task", "config", "overrides", "words"),
    [
        ("translation", TINY, {}, 'task "translation": there is no such task'),
        ("pretraining", [], {}, "--config FILE is missing"),
        ("pretraining", 5, {}, "5 is not a config"),
        ("pretraining", {**TINY, "seed": float("nan")}, {}, "config: contains NaN"),
        ("pretraining", TINY, {"seed": {1, 2}}, "seed (argument of train): expected str"),
        ("pretraining", TINY, {"global_batch.replica": 2}, "did you mean global_batch.replicas?"),
    ],
)
def test_errors_of_a_call(task: str, config: Any, overrides: dict[str, Any], words: str) -> None:
    with pytest.raises(UserError) as raised:
        resolve_call(task, config, overrides)
    assert words in str(raised.value) and "\n" not in str(raised.value)
