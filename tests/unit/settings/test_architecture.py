"""The sizes of a model that is fine-tuned come from its weights, unless the user's own config or flag sets them."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pytest

from checkpoints.pretrained.pretrained import Pretrained
from settings.fields import value_at
from settings.loading import LoadedConfig
from tasks.fine_tuning import tokenizer_settings
from tests.support.config_files import load_config, plan_of, run_command, write
from tests.support.published_configs import CONFIGS
from training.initial_weights import resolved_architecture
from training.run_folder import config_for_files
from training.same_config import differences
from utilities.errors import UserError

WEIGHTS: dict[str, Any] = {
    "num_hidden_layers": 3, "hidden_size": 192, "num_attention_heads": 3, "intermediate_size": 768,
    "max_position_embeddings": 64, "type_vocab_size": 2, "vocab_size": 8191,
}  # fmt: skip
RECIPE = CONFIGS / "glue" / "glue_base_checkpoint_path.json"  # 12 layers × 768, 30,400 pieces, dropout 0.1
COPY: dict[str, Any] = {"bert_config": {**WEIGHTS, "vocab_size": 30400}, "num_epochs": 3}


def load(path: Path, weights: object, *flags: str, task: str = "classification") -> LoadedConfig:
    more = ("--max-seq-length", "64", "--pretrained-ckpt-path", str(weights), *flags)
    more += ("--glue-task", "sst2") if task == "classification" else ()
    return load_config(task, ["--config", str(path), str(CONFIGS / "systems" / "cpu.json"), *more])


def sizes_of(loaded: LoadedConfig) -> dict[str, Any]:
    assert loaded.config.bert_config is not None
    return loaded.config.bert_config.model_dump(include=set(WEIGHTS))


def test_a_recipes_sizes_give_way_to_those_of_the_weights(tmp_path: Path) -> None:
    write(tmp_path, {"architecture": WEIGHTS}, "checkpoint.json")
    loaded = load(RECIPE, tmp_path)
    assert sizes_of(loaded) == {**WEIGHTS, "vocab_size": 8192}  # embedding_serialization_factor divides it
    assert value_at(loaded.config, "bert_config.hidden_dropout_prob") == 0.1
    assert loaded.origins["bert_config.vocab_size"] == "derived"
    (note,) = (note for note in loaded.notes if "decay_rule" not in note)
    assert str(tmp_path) in note and "num_hidden_layers 12 → 3" in note and "vocab_size 30400 → 8192" in note
    assert plan_of(loaded)["bert_config.hidden_size"] == "192 derived"


def test_a_released_name_with_an_odd_vocabulary_takes_any_flag() -> None:
    """The rows are padded to a multiple of the factor, as those of a folder are."""
    recipe = str(CONFIGS / "squad" / "squad_base.json")
    flags = ["--bert-model-name", "bert-base-multilingual-uncased", "--bert-config.hidden-dropout-prob", "0.2"]
    loaded = load_config("squad", ["--config", recipe, str(CONFIGS / "systems" / "squad_cpu.json"), *flags])
    factor = loaded.config.embedding_serialization_factor
    assert factor == 2 and sizes_of(loaded)["vocab_size"] == 105880  # 105,879 pieces


def test_heads_that_do_not_divide_the_width_of_weights_are_refused(tmp_path: Path) -> None:
    """Also by the plan, and whether the config has a section of sizes or not."""
    path = write(tmp_path, {**WEIGHTS, "model_type": "bert", "num_attention_heads": 5}, "config.json")
    for recipe in (RECIPE, CONFIGS / "fine_tuning.json"):
        with pytest.raises(UserError, match=r"heads.*hidden_size"):
            load(recipe, path.parent)


def test_a_recipes_sizes_give_way_when_only_loading_tells_those_of_the_weights(tmp_path: Path) -> None:
    config = load(RECIPE, tmp_path).config
    start = Pretrained("weights", weights={}, architecture=WEIGHTS)
    built = resolved_architecture(config, start)
    assert {name: getattr(built, name) for name in WEIGHTS} == {**WEIGHTS, "vocab_size": 8192}


def test_sizes_that_nobody_sets_are_those_of_the_weights(tmp_path: Path) -> None:
    write(tmp_path, WEIGHTS, "config.json")
    loaded = load(CONFIGS / "fine_tuning.json", tmp_path, "--bert-config.hidden-dropout-prob", "0.2")
    assert sizes_of(loaded) == WEIGHTS
    assert value_at(loaded.config, "bert_config.hidden_dropout_prob") == 0.2


@pytest.mark.parametrize("typed", [True, False])
def test_the_users_size_is_checked_against_the_weights(typed: bool, tmp_path: Path) -> None:
    own = write(tmp_path, {"extends": str(RECIPE), "bert_config": {"hidden_size": 384}}, "own.json")
    flags = ("--bert-config.hidden-size", "384") if typed else ()
    config = load(RECIPE if typed else own, tmp_path, *flags).config
    with pytest.raises(UserError, match=r"^bert_config\.hidden_size is 384, but weights was trained with 192; set it"):
        resolved_architecture(config, Pretrained("weights", weights={}, architecture=WEIGHTS))


def test_the_plan_refuses_another_size_unless_the_run_has_begun(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    write(tmp_path, {**WEIGHTS, "model_type": "bert"}, "config.json")
    begun = ["--output-dir", str(tmp_path), "--name", "begun"]
    line = ["--config", str(CONFIGS / "fine_tuning.json"), "--bert-model-name", str(tmp_path), "--generated-dataset"]
    command = [*line, *begun, "--bert-config.hidden-size", "384", "--plan"]
    assert run_command("token_classification", command) == 2
    error = f"error: bert_config.hidden_size is 384, but {tmp_path} was trained with 192; set it to that"
    assert capsys.readouterr().err.startswith(error)
    (tmp_path / "begun").mkdir()
    assert run_command("token_classification", command) == 0


def test_rows_without_a_piece_are_refused_beyond_padding(tmp_path: Path) -> None:
    pieces = write(
        tmp_path, "".join(f"{piece}\n" for piece in ("[PAD]", "[UNK]", "[CLS]", "[SEP]", "[MASK]", "a")), "vocab.txt"
    )
    start = Pretrained("weights", weights={}, architecture=WEIGHTS, vocabulary=pieces)
    for rows, refused in ((8192, False), (8448, True), (30400, True)):
        config = load(write(tmp_path, COPY), tmp_path, "--bert-config.vocab-size", str(rows)).config
        built = resolved_architecture(config, start)
        if refused:
            with pytest.raises(UserError, match=rf"^bert_config\.vocab_size is {rows}, but weights .* with 8191; set"):
                tokenizer_settings(None, None, built, start)
        else:
            assert len(tokenizer_settings(None, None, built, start).vocabulary.pieces) == 6


def test_pre_training_has_the_sizes_of_its_recipe(tmp_path: Path) -> None:
    write(tmp_path, {"architecture": WEIGHTS}, "checkpoint.json")
    path = CONFIGS / "pretraining" / "pretrain_tiny_384_phase2.json"
    loaded = load(path, tmp_path, "--generated-dataset", "--max-predictions-per-seq", "9", task="pretraining")
    assert (sizes_of(loaded)["hidden_size"], sizes_of(loaded)["vocab_size"]) == (128, 30400)


def test_a_run_is_resumed_with_its_sizes_where_those_of_the_config_give_way(tmp_path: Path) -> None:
    """A run of before has the recipe's rows, 30,400; those of its weights are 8,192."""
    weights = write(tmp_path, {"architecture": WEIGHTS}, "checkpoint.json")
    loaded, own = load(RECIPE, tmp_path), load(write(tmp_path, COPY), tmp_path)
    weights.unlink()
    without = load(RECIPE, tmp_path)
    begun = json.loads(json.dumps(config_for_files(loaded.config)))
    for rows in (8192, 30400):
        begun["bert_config"]["vocab_size"] = rows
        assert differences(loaded.config, begun) == {}
        assert differences(without.config, begun) == {}
    begun = json.loads(json.dumps(config_for_files(own.config)))
    assert differences(own.config, begun) == {}
    begun["bert_config"]["vocab_size"] = 8192
    assert list(differences(own.config, begun).values()) == ["bert_config.vocab_size is 30400 and was 8192"]


def test_the_size_of_an_unreadable_folder_is_left_to_the_loader(tmp_path: Path) -> None:
    write(tmp_path, {"architecture": {**WEIGHTS, "vocab_size": "many", "hidden_size": None}}, "checkpoint.json")
    assert sizes_of(load(RECIPE, tmp_path))["vocab_size"] == 30400
