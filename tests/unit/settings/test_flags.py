"""Flags: one for every field, the spellings of switches and lists, help."""

from __future__ import annotations

from pathlib import Path

import pytest

from settings.flags import parse_flags
from settings.loading import load_config
from settings.schema import leaves
from tasks.cli import main
from tests.support.config_files import TINY, run_command, write
from utilities.environment import program_version
from utilities.errors import UserError

# The keys of the configs of users of IPU systems, as given to us; their scripts have a flag for each.
KNOWN_KEYS = set(
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
logging global_batches_per_log enable_wandb wandb_tags wandb_entity_name wandb_project_name
""".split()  # noqa: SIM905 (a table to read)
)

# Defaults on which users rely by leaving a key out.
KNOWN_DEFAULTS = {
    "generated_dataset": False,
    "replace_layers": True,
    "use_outlining": True,
    "enable_recomputation": True,
    "optimizer_state_offchip": True,
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


def test_every_known_key_is_a_field_with_a_flag() -> None:
    assert set(leaves()) >= KNOWN_KEYS
    flags = {leaf.flag for leaf in leaves().values()}
    assert flags >= {"--" + key.replace("_", "-") for key in KNOWN_KEYS}


def test_known_defaults() -> None:
    assert {name: leaves()[name].default for name in KNOWN_DEFAULTS} == KNOWN_DEFAULTS


def test_every_field_says_what_it_is() -> None:
    for leaf in leaves().values():
        assert len(leaf.description) >= 5 and leaf.description.endswith("."), leaf.name
        assert leaf.kind.expected, leaf.name


@pytest.mark.parametrize("task", ["pretraining", "squad", "classification"])
def test_help_documents_every_field(task: str, capsys: pytest.CaptureFixture) -> None:
    assert run_command(task, ["--help"]) == 0
    shown = " ".join(capsys.readouterr().out.split())
    for leaf in leaves().values():
        assert leaf.flag in shown
        assert " ".join(leaf.description.split())[:20] in shown


@pytest.mark.parametrize(
    ("word", "meaning"),
    [
        ("true", True), ("yes", True), ("on", True), ("1", True), ("TRUE", True), ("Yes", True),
        ("false", False), ("no", False), ("off", False), ("0", False), ("False", False), ("OFF", False),
    ],
)  # fmt: skip
def test_spellings_of_switches(word: str, meaning: bool, tmp_path: Path) -> None:
    assert value(tmp_path, "enable_wandb", "--enable-wandb", word) is meaning
    assert value(tmp_path, "enable_wandb", f"--enable-wandb={word}") is meaning


@pytest.mark.parametrize("flag", ["--wandb-entity-name", "--wandb-entity"])
def test_both_forms_of_the_entity_that_published_commands_use(flag: str, tmp_path: Path) -> None:
    assert value(tmp_path, "wandb_entity_name", flag, "team") == "team"


def test_a_switch_alone_means_true(tmp_path: Path) -> None:
    assert value(tmp_path, "compile_only", "--compile-only") is True
    assert value(tmp_path, "compile_only", "--compile-only", "--seed", "3") is True


def test_none_leaves_a_section_out(tmp_path: Path) -> None:
    path = write(tmp_path, {"bert_model_name": "x", "num_epochs": 1, "bert_config": {"num_hidden_layers": 3}})
    loaded = load_config("squad", ["--config", str(path), "--bert-config", "none"])
    assert loaded.config.bert_config is None
    flags = ["--bert-config.hidden-size", "24", "--bert-config", "none"]
    sizes = load_config("squad", ["--config", str(path), *flags]).config.bert_config
    assert sizes is not None and (sizes.hidden_size, sizes.num_hidden_layers) == (24, 12)
    assert (
        load_config("squad", ["--config", str(path), "--classification-data=none"]).config
        == load_config("squad", ["--config", str(path)]).config
    )
    with pytest.raises(UserError, match=r"--bert-config.*none"):
        load_config("squad", ["--config", str(path), "--bert-config", "small"])
    with pytest.raises(UserError, match="--global-batch: unknown flag"):  # a section that may not be null
        load_config("squad", ["--config", str(path), "--global-batch", "none"])


def test_weights_alone_decide_the_model_of_a_fine_tuning(tmp_path: Path) -> None:
    path = write(tmp_path, {"num_epochs": 1, "bert_config": {"num_hidden_layers": 3}})
    loaded = load_config("squad", ["--config", str(path), "--bert-config", "none", "--pretrained-ckpt-path", "runs/x"])
    assert loaded.config.bert_config is None and loaded.config.pretrained_ckpt_path == "runs/x"


@pytest.mark.parametrize("words", [["0.3", "0.4"], ["0.3,0.4"], ["0.3, 0.4"], ["0.3 0.4"], ["[0.3, 0.4]"]])
def test_spellings_of_lists(words: list[str], tmp_path: Path) -> None:
    name = "ipu_config.matmul_available_memory_proportion_per_pipeline_stage"
    assert value(tmp_path, name, leaves()[name].flag, *words) == [0.3, 0.4]


@pytest.mark.parametrize(
    "words",
    [
        ["emb hid", "hid enc_out", "pool heads"],
        ["emb hid, hid enc_out, pool heads"],
        ['[["emb", "hid"], "hid enc_out", ["pool", "heads"]]'],
    ],
)
def test_stages_by_flag(words: list[str], tmp_path: Path) -> None:
    stages = value(tmp_path, "ipu_config.pipeline_stages", "--ipu-config.pipeline-stages", *words)
    assert stages == [["emb", "hid"], ["hid", "enc_out"], ["pool", "heads"]]


def test_tags_and_texts_stay_texts(tmp_path: Path) -> None:
    assert value(tmp_path, "wandb_tags", "--wandb-tags", "1", "two words") == ["1", "two words"]
    assert value(tmp_path, "name", "--name", "12") == "12"


def test_numbers(tmp_path: Path) -> None:
    rate = "optimizer_opts.learning_rate.max_learning_rate"
    assert value(tmp_path, rate, leaves()[rate].flag, "6e-3") == 0.006
    assert value(tmp_path, "total_num_train_samples", "--total-num-train-samples", "1e6") == 1_000_000
    assert value(tmp_path, "optimizer_opts.loss_scaling", "--optimizer-opts.loss-scaling", "none") is None
    assert value(tmp_path, "execution.xla", "--execution.xla", "none") is None


def test_the_last_of_a_repeated_flag_holds(tmp_path: Path) -> None:
    assert value(tmp_path, "seed", "--seed", "1", "--seed", "2") == 2


def test_flags_make_a_section_that_the_file_lacks(tmp_path: Path) -> None:
    flags = ["--config", str(write(tmp_path, {"bert_model_name": "x/y", "num_epochs": 1}))]
    loaded = load_config("squad", [*flags, "--bert-config.num-hidden-layers", "4"])
    assert loaded.config.bert_config.num_hidden_layers == 4


def test_parsed_flags_are_values_by_dotted_name() -> None:
    _, values = parse_flags("squad", ["--global-batch.replicas", "2", "--do-training", "no"])
    assert values == {"global_batch.replicas": 2, "do_training": False}


def test_the_version_is_printed(capsys):
    assert main("squad", lambda loaded: None, ["--version"]) == 0
    assert capsys.readouterr().out == f"{program_version()}\n"
