"""Flags: one for every field, the spellings of switches and lists, help."""

from __future__ import annotations

import os
import subprocess
import sys
from pathlib import Path

import pytest

from settings.schema import leaves
from tasks.cli import main
from tests import ROOT
from tests.support.config_files import TINY, load_config, run_command, write
from utilities.environment import program_version
from utilities.errors import UserError

# The keys in the configs of users of IPU systems. Their scripts have a flag for each.
PUBLISHED_KEYS = set(
    """
dataset_dir generated_dataset bert_model_name max_seq_length max_predictions_per_seq
bert_config.hidden_size bert_config.vocab_size bert_config.num_attention_heads bert_config.num_hidden_layers
bert_config.intermediate_size bert_config.hidden_dropout_prob bert_config.attention_probs_dropout_prob
bert_config.max_position_embeddings bert_config.type_vocab_size bert_config.initializer_range
bert_config.layer_norm_eps bert_config.position_embedding_type
global_batch.micro_batch_size global_batch.replicas global_batch.grad_acc_steps_per_replica
ipu_config.pipeline_stages ipu_config.pipeline_device_mapping
ipu_config.matmul_available_memory_proportion_per_pipeline_stage ipu_config.replicated_tensor_sharding
optimizer_opts.name optimizer_opts.weight_decay_rate optimizer_opts.loss_scaling
optimizer_opts.learning_rate.schedule_name optimizer_opts.learning_rate.max_learning_rate
optimizer_opts.learning_rate.warmup_frac
replace_layers use_outlining enable_recomputation optimizer_state_offchip enable_stochastic_rounding
use_prediction_bias use_cls_layer use_qkv_bias use_qkv_split use_projection_bias matmul_partials_type
embedding_serialization_factor min_remote_tensor_size seed fp_exceptions compile_only name
total_num_train_samples num_epochs output_dir do_training do_validation do_test glue_task show_accuracy
save_ckpt_path pretrained_ckpt_path ckpt_every_n_steps_per_execution
logging global_batches_per_log
""".split()  # noqa: SIM905 (a table to read)
)
PUBLISHED_KEYS |= {"enable_wandb", "wandb_tags", "wandb_entity_name", "wandb_project_name"}  # room: wandb

# Defaults on which users rely by leaving a key out.
PUBLISHED_DEFAULTS = {
    "generated_dataset": False,
    "replace_layers": True,
    "use_outlining": True,
    "enable_recomputation": None,  # true on IPUs, as published
    "optimizer_state_offchip": None,
    "enable_stochastic_rounding": True,
    "matmul_partials_type": "half",
    "embedding_serialization_factor": 2,
    "min_remote_tensor_size": 50000,
    "fp_exceptions": False,
    "compile_only": False,
    "show_accuracy": True,
    "ckpt_every_n_steps_per_execution": 2000,
    "logging": "INFO",
}


def value(tmp_path: Path, name: str, *flags: str) -> object:
    config = load_config("pretraining", ["--config", str(write(tmp_path, TINY)), *flags]).config
    for key in name.split("."):
        config = getattr(config, key)
    return config


def test_every_published_key_is_a_field_with_a_flag() -> None:
    assert set(leaves()) >= PUBLISHED_KEYS
    flags = {leaf.flag for leaf in leaves().values()}
    assert flags >= {"--" + key.replace("_", "-") for key in PUBLISHED_KEYS}


def test_published_defaults() -> None:
    assert {name: leaves()[name].default for name in PUBLISHED_DEFAULTS} == PUBLISHED_DEFAULTS


@pytest.mark.parametrize("task", ["pretraining", "squad", "classification"])
def test_help_documents_every_field(task: str, capsys: pytest.CaptureFixture) -> None:
    assert run_command(task, ["--help-all"]) == 0
    shown = " ".join(capsys.readouterr().out.split())
    for leaf in leaves().values():
        assert leaf.flag in shown
        assert " ".join(leaf.description.split())[:20] in shown


@pytest.mark.parametrize(
    ("task", "own", "other"),
    [
        ("pretraining", "--max-predictions-per-seq", "--squad.dev-file"),
        ("squad", "--squad.dev-file", "--glue-task"),
        ("classification", "--classification-data.text", "--token-data.word-column"),
        ("token_classification", "--token-data.word-column", "--embedding.pooling"),
        ("sentence_embedding", "--embedding.pooling", "--squad.dev-file"),
    ],
)
def test_help_begins_with_the_fields_of_the_task(
    task: str, own: str, other: str, capsys: pytest.CaptureFixture
) -> None:
    assert run_command(task, ["--help"]) == 0
    shown = capsys.readouterr().out
    assert 0 < shown.index(f"{own} ") < shown.index("--num-epochs ") and "--help-all" in shown
    assert other not in shown and "--ipu-config" not in shown and len(shown.splitlines()) < 180


def test_a_shell_completes_flags_and_words(tmp_path: Path) -> None:
    pytest.importorskip("argcomplete")
    for words, expected in (("--token-data.w", "--token-data.word-column"), ("--optimizer-opts.name LA", "LAMB")):
        answer, line = tmp_path / "answer", f"run_squad.py {words}"
        asked = {
            "_ARGCOMPLETE": "1", "_ARGCOMPLETE_STDOUT_FILENAME": str(answer), "_ARGCOMPLETE_IFS": "\n",
            "COMP_LINE": line, "COMP_POINT": str(len(line)), "COMP_TYPE": "9",
        }  # fmt: skip
        done = subprocess.run([sys.executable, ROOT / "run_squad.py"], env={**os.environ, **asked}, check=False)
        assert done.returncode == 0 and expected in answer.read_text()


PROPORTIONS = "ipu_config.matmul_available_memory_proportion_per_pipeline_stage"
STAGES = "ipu_config.pipeline_stages"
RATE = "optimizer_opts.learning_rate.max_learning_rate"
SPLIT = [["emb", "hid"], ["hid", "enc_out"], ["pool", "heads"]]


@pytest.mark.parametrize(
    ("word", "meaning"),
    [
        ("true", True), ("YES", True), ("on", True), ("1", True), ("False", False), ("no", False), ("OFF", False),
        ("0", False),
    ],
)  # fmt: skip
def test_spellings_of_switches(word: str, meaning: bool, tmp_path: Path) -> None:
    assert value(tmp_path, "fp_exceptions", "--fp-exceptions", word) is meaning
    assert value(tmp_path, "fp_exceptions", f"--fp-exceptions={word}") is meaning


@pytest.mark.parametrize(
    ("name", "flags", "expected"),
    [
        # Published commands use both.
        ("wandb_entity_name", ["--wandb-entity-name", "team"], "team"),  # room: wandb
        ("wandb_entity_name", ["--wandb-entity", "team"], "team"),  # room: wandb
        ("compile_only", ["--compile-only"], True),
        ("compile_only", ["--compile-only", "--seed", "3"], True),
        (PROPORTIONS, [leaves()[PROPORTIONS].flag, "0.3", "0.4"], [0.3, 0.4]),
        (PROPORTIONS, [leaves()[PROPORTIONS].flag, "0.3, 0.4"], [0.3, 0.4]),
        (PROPORTIONS, [leaves()[PROPORTIONS].flag, "0.3 0.4"], [0.3, 0.4]),
        (PROPORTIONS, [leaves()[PROPORTIONS].flag, "[0.3, 0.4]"], [0.3, 0.4]),
        (STAGES, [leaves()[STAGES].flag, "emb hid", "hid enc_out", "pool heads"], SPLIT),
        (STAGES, [leaves()[STAGES].flag, "emb hid, hid enc_out, pool heads"], SPLIT),
        (STAGES, [leaves()[STAGES].flag, '[["emb", "hid"], "hid enc_out", ["pool", "heads"]]'], SPLIT),
        ("wandb_tags", ["--wandb-tags", "1", "two words"], ["1", "two words"]),  # room: wandb
        ("name", ["--name", "12"], "12"),
        (RATE, [leaves()[RATE].flag, "6e-3"], 0.006),
        ("total_num_train_samples", ["--total-num-train-samples", "1e6"], 1_000_000),
        ("execution.xla", ["--execution.xla", "none"], None),
        ("seed", ["--seed", "1", "--seed", "2"], 2),
    ],
    ids=str,
)
def test_value_of_a_flag(name: str, flags: list[str], expected: object, tmp_path: Path) -> None:
    assert value(tmp_path, name, *flags) == expected


def test_none_removes_a_section(tmp_path: Path) -> None:
    path = write(tmp_path, {"bert_model_name": "x", "num_epochs": 1, "bert_config": {"num_hidden_layers": 3}})
    loaded = load_config("squad", ["--config", str(path), "--bert-config", "none"])
    assert loaded.config.bert_config is None
    flags = ["--bert-config.hidden-size", "24", "--bert-config", "none"]
    sizes = load_config("squad", ["--config", str(path), *flags]).config.bert_config
    assert sizes is not None and (sizes.hidden_size, sizes.num_hidden_layers) == (24, 12)
    unset = load_config("squad", ["--config", str(path), "--classification-data=none"])
    assert unset.config == load_config("squad", ["--config", str(path)]).config
    with pytest.raises(UserError, match=r"--bert-config.*none"):
        load_config("squad", ["--config", str(path), "--bert-config", "small"])
    with pytest.raises(UserError, match="--global-batch: unknown flag"):  # a section that may not be null
        load_config("squad", ["--config", str(path), "--global-batch", "none"])


def test_version_is_printed(capsys: pytest.CaptureFixture) -> None:
    assert main("squad", ["--version"]) == 0
    assert capsys.readouterr().out == f"{program_version()}\n"
