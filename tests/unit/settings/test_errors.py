"""Each broken config gives exit status 2 and one line that names the field and the fix."""

from __future__ import annotations

import functools
import json
import os
import subprocess
import sys
from pathlib import Path
from typing import Any

import pytest

from settings.sections import GlobalBatch
from tests import ROOT
from tests.support.command_errors import assert_refused
from tests.support.config_files import FINE_TUNING, TINY, assert_config_refused, changed, run_command, write

STAGES = "ipu_config/pipeline_stages"
DEVICES = "ipu_config/pipeline_device_mapping"
PROPORTIONS = "ipu_config/matmul_available_memory_proportion_per_pipeline_stage"
RATE = "optimizer_opts/learning_rate"


def case(change: dict[str, Any], *words: str, task: str = "pretraining") -> tuple[dict[str, Any], tuple[str, ...], str]:
    """Return a change that breaks a good config, and the parts that the message must contain: field and fix."""
    return change, words, task


WRONG_VALUES = [
    case({"seed": "12"}, "seed", "without quotes"),
    case({"seed": "[" * 100_000}, "seed", "a whole number"),
    case({"seed": True}, "seed", "a whole number"),
    case({"seed": -1}, "seed", "from 0"),
    case({"seed": 1.5}, "seed", "1.5", "a whole number"),
    case({"seed": None}, "seed", "the default, 1984"),
    case({"max_seq_length": 0}, "max_seq_length", "1 or more", "(flag: --max-seq-length)"),
    case({"bert_config/vocab_size": 2**31}, "bert_config.vocab_size", "at most 10,000,000"),
    case({"execution/threads": 10**9}, "execution.threads", "at most 1,024", "(flag: --execution.threads)"),
    case({"max_seq_length": 4}, "max_seq_length", "at least 5"),
    case({"total_num_train_samples": 1e300}, "total_num_train_samples", f"and at most {2**63 - 1:,}"),
    case({"generated_dataset": "true"}, "generated_dataset", "without quotes"),
    case({"dataset_dir": 5}, "dataset_dir", "a path"),
    case({"logging": "LOUD"}, "logging", "one of DEBUG, INFO"),
    case({"logging": "info"}, "logging", 'did you mean "INFO"'),
    case({"min_remote_tensor_size": -1}, "min_remote_tensor_size", "0 or more"),
    case({"wandb_tags": ["a", 3]}, "wandb_tags[1]", "a list of texts"),  # room: wandb
    case({"global_batch": 24}, "global_batch", "expected an object", "micro_batch_size"),
    case({"optimizer_opts/name": "Adam"}, "optimizer_opts.name", 'did you mean "AdamW"'),
    case({"optimizer_opts/loss_scaling": 0}, "optimizer_opts.loss_scaling", "none"),
    case({"optimizer_opts/beta_1": 1.0}, "optimizer_opts.beta_1", "not including"),
    case({RATE + "/warmup_frac": 28}, "optimizer_opts.learning_rate.warmup_frac", "from 0 to 1"),
    case({RATE + "/max_learning_rate": 0}, "max_learning_rate", "above 0"),
    case({"bert_config/hidden_size": None}, "bert_config.hidden_size", "remove"),
    case({"bert_config/position_embedding_type": "relative_key"}, "position_embedding_type", "absolute"),
    case({STAGES: "emb hid hid"}, "pipeline_stages", "a list of stages"),
    case({STAGES: [["emb"], [], ["hid"]]}, "pipeline_stages[1]", "none of them empty"),
    case({DEVICES: [0, -1, 0]}, "pipeline_device_mapping[1]", "0 or more"),
    case({PROPORTIONS: [0.2, 1.5]}, "proportion_per_pipeline_stage[1]", "at most 1"),
]

UNKNOWN_KEYS = [
    case({"max_sequence_length": 128}, "max_sequence_length", "did you mean max_seq_length"),
    case({"class_weight": None}, "did you mean classification_data.class_weights?"),
    case({"replicas": 4}, "replicas", "belongs in section global_batch"),
    case({"global_batch/seed": 4}, "global_batch.seed", "at the top"),
    case({"optimizer_opts/lr": 1}, "did you mean optimizer_opts.learning_rate.max_learning_rate?"),
    case({"bert_config/dropout": 0}, "did you mean bert_config.hidden_dropout_prob?"),
    case({"global_batch.replicas": 4}, "global_batch.replicas", "write it as global_batch"),
    case({"bert_config/max_sequence_length": 128}, "bert_config.max_sequence_length", "did you mean max_seq_length"),
    case({"bert_config/pad_token_id": 0}, "bert_config.pad_token_id", "keys of bert_config are"),
    case({"qqqqqqqq": 0}, "qqqqqqqq", "--help"),
]

CONTINUED = {"continue_pretrained": True, "pretrained_ckpt_path": "run/120.ckpt"}
BROKEN_RULES = [
    case({"bert_config/num_hidden_layers": 3}, "num_hidden_layers", "write 3 hid"),
    case({"bert_config/num_attention_heads": 3}, "num_attention_heads", "set num_attention_heads to"),
    case({"continue_pretrained": True}, "continue_pretrained", "set pretrained_ckpt_path to the program's N.ckpt"),
    case({**CONTINUED, "do_training": False}, "do_training", "nothing is trained"),
    case({**CONTINUED, "optimizer_opts/name": "Muon"}, "optimizer_opts.name", "Muon has others"),
    case({"embedding_serialization_factor": 3}, "embedding_serialization_factor", "vocab_size to 1002"),
    case({STAGES: [["emb"], ["hid", "hide", "enc_out"], ["pool", "heads"]]}, "pipeline_stages", "mean hid"),
    case({STAGES: [["emb"], ["hid", "hid"], ["pool", "heads"]]}, "pipeline_stages", "enc_out pool heads"),
    case({STAGES: [["hid"], ["emb", "hid"], ["enc_out pool heads"]]}, "pipeline_stages", "separate texts"),
    case({STAGES: ["hid emb", "hid enc_out", "pool heads"]}, "pipeline_stages", "in their order"),
    case({STAGES: [["emb"], ["hid", "hid"], ["qa_head"]]}, "pipeline_stages", "blocks of pretraining"),
    case({STAGES: ["emb hid hid enc_out", "pool", "heads"], "use_next_sentence": False}, "only pool", "stage of heads"),
    case({"use_qkv_bias": True}, "use_qkv_bias", "set use_qkv_split to true"),
    case({"max_seq_length": 1024}, "max_seq_length", "at most 512"),
    case({"max_predictions_per_seq": 200}, "about 15 %", "(flags: --max-predictions-per-seq, --max-seq-length)"),
    case({"dataset_dir": ...}, "dataset_dir", "--dataset-dir"),
    case({"dataset_dir": "$NO_SUCH_VARIABLE/x"}, "dataset_dir", "export NO_SUCH_VARIABLE="),
    case({"output_dir": "~no_such_user_here/x"}, "output_dir", "in full"),
    case({"total_num_train_samples": ..., "max_seq_length": 64}, "total_num_train_samples", "num_epochs", "set one"),
    case({"total_num_train_samples": 23}, "total_num_train_samples", "24 or more", "lower global_batch.grad_acc"),
    case(
        {"total_num_train_samples": ..., "num_epochs": 2, "generated_dataset": True},
        *("num_epochs", "set total_num_train_samples"),
    ),
    case({"glue_task": "mrpc"}, "glue_task", "run_seq_classification.py"),
    case({"bert_config": ...}, "bert_config", "add the section"),
    case({"bert_model_name": "bert-base-uncased"}, "bert_model_name", "pretrained_ckpt_path"),
    case({"do_test": True}, "do_test", "false"),
    case({"do_training": False}, "without training", "set pretrained_ckpt_path"),
    case({"name": "a/b"}, "name", "without /"),
    case({"name": "a\nb\0"}, "name", "control characters"),
    case({"name": ".."}, "name", "folder"),
    case({"name": "x" * 300}, "name", "200 bytes"),
    case({"name": f"run-hf_{'x' * 30}"}, 'name = "run-***"', "contains a secret"),
]

PACKS = "packing/max_sequences_per_pack"
BROKEN_SECTIONS = [
    case({PACKS: 26}, "packing.max_sequences_per_pack", "at most 25"),  # 128 // 5
    case({PACKS: 43, "use_next_sentence": False}, "at least 3 tokens", "at most 42"),
    case({PACKS: 4, "packing/max_predictions_per_pack": 3}, "max_predictions_per_pack"),
    case({PACKS: 4, "packing/max_predictions_per_pack": 129}, "at most max_seq_length"),
    case({PACKS: 3, "generated_dataset": True, "total_num_train_samples": 71}, "total_num_train_samples", "72"),
    case({"evaluation/patience": 4}, "evaluation.patience", "evaluation.every"),
    case({"evaluation/every": 0}, "evaluation.every", '"epoch"'),
    case({"evaluation/every": 4, "do_validation": False}, "evaluation.every", "do_validation"),
]

squad = functools.partial(case, task="squad")
BROKEN_FINE_TUNING = [
    squad({"bert_model_name": ...}, "bert_model_name", "pretrained_ckpt_path"),
    squad({"num_epochs": ...}, "num_epochs", "set one"),
    squad({"glue_task": "mrpc"}, "glue_task", "remove"),
    squad({"do_training": False, "do_validation": False}, "do_training", "set one"),
    squad({STAGES: ["emb", "hid hid", "qa_head"]}, "pipeline_stages", "write 12 hid"),
    squad({"bert_model_name": ..., "bert_config": {}, "do_training": False}, "pretrained_ckpt_path", "bert_model_name"),
]

# Newer versions of Python refuse to read such a number at all.
TOO_MANY_DIGITS = ("run.json", "shorter" if hasattr(sys, "set_int_max_str_digits") else "correct it")

BROKEN_FILES = [
    ("", "empty", "JSON object"),
    ("[1, 2]", "[1, 2]", "JSON object"),
    ('{"seed": 1,}', "run.json:1:", "comma"),
    ("{'seed': 1}", "run.json:1:2", "double quotes"),
    ('{"seed": 1} // seed', "run.json:1:13", "about"),
    ('{"seed": 1, "seed": 2}', '"seed"', "twice", "remove"),
    ('{"seed": NaN}', "NaN", "finite"),
    ('{"optimizer_opts": {"epsilon": 1e999}}', "optimizer_opts.epsilon", "above 0"),
    ('{"seed": ' + "1" * 5000 + "}", *TOO_MANY_DIGITS),
    ('{"a":' * 100000, "run.json", "deeply"),
    ('{"extends": "no_such.json"}', "extends", "no_such.json", "relative to the file"),
]

BROKEN_FLAGS = [
    (["--sed", "1"], "--sed", "did you mean --seed"),
    (["--optimizer-opts.lr", "1"], "did you mean --optimizer-opts.learning-rate.max-learning-rate?"),
    (["--optimizer-opt.name", "LAMB"], "did you mean --optimizer-opts.name?"),
    (["--num-warmup-steps", "1"], "--num-warmup-steps: unknown flag; --help-all lists the flags"),
    (["--batch-size", "1"], "did you mean --global-batch.micro-batch-size?"),
    (["--global_batch.replicas", "1"], "--global_batch.replicas", "did you mean --global-batch.replicas"),
    (["--seed"], "--seed", "expected one argument"),
    (["--seed", "many"], "seed", "command line", "a whole number"),
    (["extra.json"], "extra.json", "--config"),
    (["--ipu-config.pipeline-device-mapping", "0,x,0"], "pipeline_device_mapping[1]", "IPU numbers"),
    (["--ipu-config.pipeline-device-mapping", "[0,"], "pipeline_device_mapping", "IPU numbers"),
    (["--dataset-dir", ""], "dataset_dir", "a path"),
    (["--throughput", "0.0"], "--throughput", "add --plan"),
    (["--max-seq-length", "96", "--total-num-train-samples", "none"], "total_num_train_samples", "set one"),
]

TABLE = WRONG_VALUES + UNKNOWN_KEYS + BROKEN_RULES + BROKEN_SECTIONS + BROKEN_FINE_TUNING


def test_unchanged_configs_are_valid(tmp_path: Path) -> None:
    for task, values in (("pretraining", TINY), ("squad", FINE_TUNING)):
        assert run_command(task, ["--config", str(write(tmp_path, values)), "--plan"]) == 0


@pytest.mark.parametrize(("change", "words", "task"), TABLE, ids=[f"{t}-{w[0]}-{w[-1]}"[:60] for _, w, t in TABLE])
def test_broken_config(
    change: dict[str, Any], words: tuple[str, ...], task: str, tmp_path: Path, capsys: pytest.CaptureFixture
) -> None:
    values = changed(TINY if task == "pretraining" else FINE_TUNING, change)
    assert_config_refused(task, values, words, tmp_path, capsys)


@pytest.mark.parametrize("broken", BROKEN_FILES, ids=lambda b: b[0][:30])
def test_broken_file(broken: tuple[str, ...], tmp_path: Path, capsys: pytest.CaptureFixture) -> None:
    text, *words = broken
    assert_config_refused("pretraining", text, words, tmp_path, capsys)


@pytest.mark.parametrize("broken", BROKEN_FLAGS, ids=lambda b: " ".join(b[0]))
def test_broken_flag(broken: tuple[Any, ...], tmp_path: Path, capsys: pytest.CaptureFixture) -> None:
    flags, *words = broken
    assert_config_refused("pretraining", TINY, words, tmp_path, capsys, *flags)


def test_variable_without_a_value(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture
) -> None:
    monkeypatch.setenv("DATA", "")
    assert_config_refused("pretraining", changed(TINY, {"dataset_dir": "$DATA"}), ["dataset_dir"], tmp_path, capsys)


@pytest.mark.parametrize(("name", "made"), [("max_seq_length", 64), ("max_predictions_per_seq", 11)])
def test_sizes_that_the_data_does_not_have_are_refused_by_the_plan(
    tmp_path: Path, capsys: pytest.CaptureFixture, name: str, made: int
) -> None:
    write(tmp_path, {"settings": {name: made}}, "manifest.json")
    values = changed(TINY, {"dataset_dir": str(tmp_path)})
    words = (name, f"the data set was made with {made}; set {name} to {made}")
    assert_config_refused("pretraining", values, words, tmp_path, capsys, "--plan")


def test_missing_file_and_folder(tmp_path: Path, capsys: pytest.CaptureFixture) -> None:
    for path in (tmp_path / "none.json", tmp_path, tmp_path / ("x" * 5000), Path("~no_such_user_here/x")):
        status = run_command("pretraining", ["--config", str(path)])
        assert_refused(status, capsys.readouterr(), "--config", path.name, "give the path of")


def test_config_that_is_not_a_regular_file_or_too_large(tmp_path: Path, capsys: pytest.CaptureFixture) -> None:
    os.mkfifo(tmp_path / "fifo")
    for path in (Path("/dev/zero"), tmp_path / "fifo"):
        status = run_command("pretraining", ["--config", str(path)])
        assert_refused(status, capsys.readouterr(), str(path), "device, a pipe or a socket")
    path = write(tmp_path, " " * 2**20 + json.dumps(TINY))
    status = run_command("pretraining", ["--config", str(path)])
    assert_refused(status, capsys.readouterr(), "more than 1,048,576 bytes")


def test_further_problems_are_counted_and_listed_on_debug(tmp_path: Path, capsys: pytest.CaptureFixture) -> None:
    path = write(tmp_path, changed(TINY, {"seed": "7", "num_epochs": 0, "sead": 1}))
    status = run_command("pretraining", ["--config", str(path)])
    assert_refused(status, capsys.readouterr(), "(and 2 more; --debug lists them)")
    assert run_command("pretraining", ["--config", str(path), "--debug"]) == 2
    shown = capsys.readouterr().err
    assert "Traceback" in shown
    assert [line.split()[1] for line in shown.splitlines() if line.startswith("error:")] == [
        "seed", "num_epochs", "sead",
    ]  # fmt: skip


def test_error_of_a_process_is_one_line(tmp_path: Path) -> None:
    code = "import sys; from tasks.cli import main; sys.exit(main('pretraining'))"
    path = write(tmp_path, changed(TINY, {"name": "\ud800"}))
    command = [sys.executable, "-c", code, "--config", str(path)]
    done = subprocess.run(command, cwd=ROOT, capture_output=True, text=True, check=False)
    assert (done.returncode, done.stdout, done.stderr.count("\n")) == (2, "", 1)
    assert done.stderr.startswith("error: name") and "half a character" in done.stderr


def test_the_field_that_makes_a_batch_smaller_is_named() -> None:
    assert GlobalBatch(micro_batch_size=32).lowered == "global_batch.micro_batch_size"
    assert GlobalBatch(grad_acc_steps_per_replica=2).lowered == "global_batch.grad_acc_steps_per_replica"
