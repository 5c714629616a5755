"""The plan, the schema, and the common main function of the commands."""

from __future__ import annotations

import json
import subprocess
import sys
from pathlib import Path

import pytest

from planning.overview import plan_warnings
from settings.architecture import known_architecture
from settings.loading import LoadedConfig
from tasks.cli import main
from tests import ROOT
from tests.support.config_files import FINE_TUNING, TINY, changed, load_config, plan_of, run_command, write
from tests.support.fine_tuning_runs import write_squad
from utilities.environment import Gpu
from utilities.errors import UserError

CONFIG = ROOT / "configs" / "pretraining" / "pretrain_base_128_phase1.json"


def plan(path: Path, *flags: str, task: str = "pretraining") -> dict[str, str]:
    return plan_of(load_config(task, ["--config", str(path), *flags]))


def test_the_plan_names_the_device(monkeypatch: pytest.MonkeyPatch) -> None:
    here = ["--generated-dataset", "true", "--execution.platform"]
    assert "device" not in plan(CONFIG, *here, "graphcore")
    assert plan(CONFIG, *here, "software")["device"].startswith("CPU, ")
    monkeypatch.setattr("planning.overview.nvidia_gpus", lambda: (Gpu("NVIDIA L4", 23034, 8.9),))
    assert plan(CONFIG, *here, "software")["device"].startswith("1 × NVIDIA L4, 22 GiB, compute capability 8.9")
    assert plan(CONFIG, *here, "software", "--execution.device", "cpu")["device"].startswith("CPU, ")


def test_figures_of_the_published_base_run() -> None:
    shown = plan(CONFIG, "--dataset-dir", "/data")
    assert shown["global batch"].startswith("65,280 samples = 32 micro batch × 4 replicas × 510")
    assert shown["steps"].startswith("7,065 ")  # 461,242,368 / 65,280, rounded down
    assert shown["warm-up steps"] == "1,978"  # 0.28 × 7,065
    assert shown["IPUs"] == "16 = 4 per replica × 4 replicas"  # room: graphcore
    assert shown["samples to train on"] == "461,242,368"
    assert shown["seed"].startswith("1984 ") and shown["seed"].endswith("pretrain_base_128_phase1.json")
    assert shown["max_seq_length"].endswith("pretrain_base_128_phase1.json")
    assert shown["dataset_dir"] == "/data command line"
    assert shown["use_outlining"] == "true default"
    # By hand: a layer has Q, K, V and output without biases, two feed-forward matrices with, two LayerNorms;
    # the embeddings have 30400 words, 512 positions, 2 types and a LayerNorm.
    layer = 4 * 768**2 + 2 * 768 * 3072 + 3072 + 768 + 4 * 768
    total = 30914 * 768 + 2 * 768 + 12 * layer + 768**2 + 768 + 30400 + 2 * 768 + 2
    assert shown["total"] == f"{total:,}"
    assert shown["hid"] == f"12 {layer:,} {12 * layer:,}"


def test_epochs_are_counted_with_the_manifest(tmp_path: Path) -> None:
    values = changed(TINY, {"dataset_dir": str(tmp_path), "total_num_train_samples": ..., "num_epochs": 3})
    path = write(tmp_path, values)
    assert plan(path)["steps"] == "unknown until the data set is read"
    write(tmp_path, {"totals": {"records": 100}}, "manifest.json")
    shown = plan(path)
    assert (shown["samples to train on"], shown["steps"]) == ("300", "12 weight updates")  # 300 / 24
    for absurd in (10**400, -1, True):
        write(tmp_path, {"totals": {"records": absurd}}, "manifest.json")
        assert plan(path)["steps"] == "unknown until the data set is read"


@pytest.mark.parametrize(
    ("pieces", "factor", "is_noted"),
    [(400, 1, True), (896, 1, True), (897, 1, False), (1000, 1, False), (400, 5, True), (641, 5, False)],
)
def test_vocabulary_larger_than_padding_is_noted(pieces: int, factor: int, is_noted: bool, tmp_path: Path) -> None:
    path = write(tmp_path, {**TINY, "dataset_dir": str(tmp_path), "embedding_serialization_factor": factor})
    write(tmp_path, {"vocabulary": {"size": pieces}}, "manifest.json")
    lines = plan_warnings(load_config("pretraining", ["--config", str(path)]))
    line = f"warning: the model's vocabulary has 1,000 rows, that of the data set {pieces:,} pieces: "
    assert any(shown.startswith(line) for shown in lines) == is_noted


def test_learning_rate_is_scaled_with_the_batch(tmp_path: Path) -> None:
    rate = {"max_learning_rate": 0.001, "reference_global_batch": 48}
    path = write(tmp_path, changed(TINY, {"optimizer_opts": {"learning_rate": rate}}))
    assert plan(path)["peak learning rate"] == "0.0005"  # 24 of 48


def test_fine_tuning_plans(tmp_path: Path) -> None:
    # Hugging Face's counts: encoder and embeddings 108,891,648, pooler 590,592.
    squad = plan(write(tmp_path, FINE_TUNING), task="squad")
    assert squad["total"] == f"{108_891_648 + 2 * 768 + 2:,}"
    assert squad["steps"] == "unknown until the data set is read"
    mnli = plan(write(tmp_path, {**FINE_TUNING, "glue_task": "mnli"}), task="classification")
    assert mnli["total"] == f"{108_891_648 + 590_592 + 3 * 769:,}"


SMALLER = {**changed(TINY, {})["bert_config"], "num_hidden_layers": 4}


@pytest.mark.parametrize(
    ("task", "recipe", "tail", "settings"),
    [
        ("squad", "squad/squad_base.json", "qa_head", "config.json"),
        ("squad", "squad/squad_large.json", "enc_out pool qa_head", "bert_config.json"),
        ("classification", "glue/glue_base.json", "pool glue_head", "checkpoint.json"),
        (
            "token_classification", "token_classification/conll2003_base.json", "token_head",
            "checkpoints/step-00000002/checkpoint.json",
        ),
    ],
)  # fmt: skip
def test_stages_follow_weights_of_another_size(
    task: str, recipe: str, tail: str, settings: str, tmp_path: Path
) -> None:
    write(tmp_path, {"architecture": SMALLER} if "checkpoint" in settings else SMALLER, settings)
    flags = ["--config", str(ROOT / "configs" / recipe), "--pretrained-ckpt-path", str(tmp_path)]
    loaded = load_config(task, flags)
    shown = plan_of(loaded)
    assert shown["ipu_config.pipeline_stages"] == f"emb hid×4 {tail} derived"
    assert shown["ipu_config.pipeline_device_mapping"] == "0 derived"
    assert shown["IPUs"].startswith(("1 ", "4 = 1 per"))  # room: graphcore
    assert [note for note in loaded.notes if "decay_rule" not in note] == []
    unmapped = load_config(task, [*flags, "--ipu-config.pipeline-device-mapping", "none"])
    assert unmapped.config.ipu_config.pipeline_device_mapping == [0]
    for elsewhere in (
        ("--execution.platform", "graphcore"),
        ("--execution.pipeline-devices", "2"),  # room: pipeline
    ):
        with pytest.raises(UserError, match=r"the model has 4 encoder layers; write 4 hid in pipeline_stages"):
            load_config(task, [*flags, *elsewhere])


def test_plan_of_an_unknown_model(tmp_path: Path, capsys: pytest.CaptureFixture) -> None:
    path = write(tmp_path, changed(FINE_TUNING, {"bert_model_name": "someone/some-bert"}))
    command = ["--config", str(path), "--plan", "--throughput", "100", "--total-num-train-samples", "360000"]
    assert run_command("squad", command) == 0
    shown = capsys.readouterr().out
    assert "Parameters are unknown until someone/some-bert is loaded." in shown and "\n\n\n" not in shown
    assert "duration    1.0 hours for " in shown


@pytest.mark.parametrize(
    ("name", "rows"),
    [("google-bert/bert-base-cased", 28996), ("bert-base-multilingual-cased", 119547)],  # of the released config.json
)
def test_plan_knows_the_vocabularies_of_released_models(name: str, rows: int, tmp_path: Path) -> None:
    loaded = load_config("squad", ["--config", str(write(tmp_path, changed(FINE_TUNING, {"bert_model_name": name})))])
    architecture = known_architecture(loaded.config, "squad")
    assert architecture is not None and architecture.vocab_size == rows


def test_the_plan_shows_what_was_set_and_ends_with_warnings(tmp_path: Path, capsys: pytest.CaptureFixture) -> None:
    line = ["--config", str(CONFIG), "--dataset-dir", str(tmp_path / "none"), "--plan"]
    assert run_command("pretraining", line) == 0
    shown = capsys.readouterr().out
    rows = shown.split("\n\n")[1].splitlines()[2:]
    given = {name for name, origin in load_config("pretraining", line[:4]).origins.items() if origin != "default"}
    of_ipus = {name for name in given if name.startswith("ipu_config.")}
    of_ipus |= {"embedding_serialization_factor", "optimizer_opts.loss_scaling"}  # room: graphcore
    assert {row.split()[0] for row in rows} == given - of_ipus and of_ipus < given
    assert "IPU" not in shown and len(shown.splitlines()) < 60
    assert "steps                    7,065 weight updates" in shown
    assert shown.splitlines()[-1].startswith("warning: dataset_dir")
    assert run_command("pretraining", [*line, "all"]) == 0
    everything = capsys.readouterr().out
    assert "use_outlining" in everything and "Parameters by block" in everything
    assert "Memory by IPU" in everything  # room: graphcore
    assert everything.splitlines()[-1].startswith("warning: dataset_dir")
    assert run_command("pretraining", [*line, "--execution.platform", "graphcore"]) == 0
    assert "Memory by IPU" in capsys.readouterr().out  # room: graphcore


def test_plan_warns_of_ignored_settings(tmp_path: Path, capsys: pytest.CaptureFixture) -> None:
    path = write(tmp_path, changed(TINY, {"num_epochs": 2}))
    assert run_command("pretraining", ["--config", str(path), "--plan"]) == 0
    assert "warning: num_epochs = 2" in capsys.readouterr().out


@pytest.mark.parametrize("task", ["pretraining", "classification"])
def test_plan_warns_of_missing_weights(task: str, tmp_path: Path, capsys: pytest.CaptureFixture) -> None:
    """Unless the run has begun, which reads its own."""
    here = {"generated_dataset": True, "name": "begun", "output_dir": str(tmp_path)}
    path = write(tmp_path, changed(TINY, {**here, "ipu_config": ...}))
    for missing in ("nowhere", "n" * 300):
        line = f"warning: pretrained_ckpt_path: there is no folder or file {missing}; correct the path"
        for is_begun in (False, True):
            assert run_command(task, ["--config", str(path), "--pretrained-ckpt-path", missing, "--plan"]) == 0
            assert (line in capsys.readouterr().out.splitlines()) is not is_begun
            (tmp_path / "begun").mkdir(exist_ok=True)
        (tmp_path / "begun").rmdir()


def test_plan_warns_of_missing_data(tmp_path: Path, capsys: pytest.CaptureFixture) -> None:
    path = write(tmp_path, {**FINE_TUNING, "dataset_dir": str(tmp_path / "none")})
    assert run_command("squad", ["--config", str(path), "--plan"]) == 0
    assert "does not exist; correct it, or give --dataset-dir PATH" in capsys.readouterr().out
    write_squad(tmp_path, train=1, dev=1)
    (tmp_path / "train-v1.1.json").unlink()
    assert run_command("squad", ["--config", str(path), "--dataset-dir", str(tmp_path), "--plan"]) == 0
    shown = capsys.readouterr().out
    assert "give --squad.train-file PATH" in shown and "--dataset-dir PATH" not in shown
    assert "--squad.dev-file PATH" not in shown


def test_plan_needs_no_tensorflow() -> None:
    code = (
        "import sys; from tasks.cli import main; status = main('pretraining')\n"
        "heavy = {'tensorflow', 'keras', 'tf_keras', 'numpy'} & set(sys.modules)\n"
        "sys.exit(status or str(heavy) if heavy else 0)"
    )
    command = [sys.executable, "-c", code, "--config", str(CONFIG), "--dataset-dir", "/data", "--plan"]
    done = subprocess.run(command, cwd=ROOT, env={}, capture_output=True, text=True, check=False)
    assert (done.returncode, done.stderr) == (0, "")
    assert "weight updates" in done.stdout


def test_schema_is_json_schema_with_descriptions(capsys: pytest.CaptureFixture) -> None:
    assert run_command("pretraining", ["--schema"]) == 0
    schema = json.loads(capsys.readouterr().out)
    assert schema["additionalProperties"] is False
    assert {"extends", "about", "global_batch", "seed"} <= set(schema["properties"])
    for name, definition in [("", schema), *schema["$defs"].items()]:
        assert definition["description"], name
        for key, field in definition["properties"].items():
            # A section's own description is in its definition.
            assert field.get("description") or "$ref" in field, f"{name}.{key}"


def test_errors_and_interruptions_of_the_run(tmp_path: Path, capsys: pytest.CaptureFixture) -> None:
    def fails(loaded: LoadedConfig) -> None:
        raise UserError("wiki_000.tfrecord: record 3\nis short; prepare it again")

    def interrupted(loaded: LoadedConfig) -> None:
        raise KeyboardInterrupt

    argv = ["--config", str(write(tmp_path, TINY))]
    assert main("pretraining", argv, fails) == 2
    assert capsys.readouterr().err == "error: wiki_000.tfrecord: record 3 is short; prepare it again\n"
    assert main("pretraining", [*argv, "--debug"], fails) == 2
    assert "Traceback" in capsys.readouterr().err
    assert main("pretraining", argv, interrupted) == 130
    assert capsys.readouterr().err == "interrupted\n"


def test_closed_output_pipe_is_no_error() -> None:
    code = "from tasks.cli import main; import sys; sys.exit(main('pretraining'))"
    command = f'{sys.executable} -c "{code}" --config {CONFIG} --dataset-dir /data --plan | true'
    done = subprocess.run(command, shell=True, cwd=ROOT, capture_output=True, text=True, check=False)
    assert done.stderr == ""
