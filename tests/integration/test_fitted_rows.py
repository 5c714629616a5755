"""A fine-tuning that leaves its rows open has the values that it chooses, learns, and cuts nothing later."""

from __future__ import annotations

import json
import re
from pathlib import Path
from typing import Any

import pytest

from tasks import load
from tasks.cli import main
from tests.support.fine_tuning_runs import FILLING, GOOD, PIECES, run_folder, write_config, write_pieces, write_sst2
from tests.support.runs import logged, read_json

LONG = {"max_position_embeddings": 48}


@pytest.fixture(scope="module")
def root(tmp_path_factory: pytest.TempPathFactory) -> Path:
    folder = tmp_path_factory.mktemp("fitted")
    write_pieces(folder / "vocab.txt", PIECES)
    write_sst2(folder)
    # One longer sentence, beside which two and three of the others fit in a row.
    with open(folder / "SST-2" / "train.tsv", "a", encoding="utf-8") as file:
        file.write(f"{' '.join(FILLING * 2)} {GOOD[0]}\t1\n")
    return folder


def fine_tuned(root: Path, name: str, *flags: str, **changes: Any) -> Path:
    path = write_config(root, name, glue_task="sst2", num_epochs=12, global_batch={"micro_batch_size": 24}, **changes)
    config = read_json(path)
    del config["max_seq_length"]
    config["bert_config"].update(LONG)
    path.write_text(json.dumps(config), "utf-8")
    return run_folder("classification", path, *flags)


@pytest.fixture(scope="module")
def chosen(root: Path) -> Path:
    return fine_tuned(root, "chosen")


def test_the_values_that_are_chosen_give_the_same_losses(root: Path, chosen: Path) -> None:
    resolved = read_json(chosen / "resolved_config.json")
    config, packs = resolved["config"], resolved["config"]["packing"]
    assert {name for name, origin in resolved["origins"].items() if origin == "data"} == {
        "max_seq_length",
        "packing.max_sequences_per_pack",
        "packing.adjust_betas",
        "global_batch.micro_batch_size",
    }
    given = {
        "--max-seq-length": config["max_seq_length"],
        "--packing.max-sequences-per-pack": packs["max_sequences_per_pack"],
        "--packing.adjust-betas": "false",
        "--global-batch.micro-batch-size": config["global_batch"]["micro_batch_size"],
    }
    run = fine_tuned(root, "given", *(str(word) for pair in given.items() for word in pair))
    assert logged(run) == logged(chosen)
    scores = read_json(run / "scores.json")
    assert scores == read_json(chosen / "scores.json") and scores["accuracy"] > 0.9


def test_the_plan_counts_what_the_run_finds(root: Path, chosen: Path, capsys: pytest.CaptureFixture[str]) -> None:
    assert main("classification", ["--config", str(root / "chosen.json"), "--plan"], pytest.fail) == 0
    rows = dict(re.findall(r"^  (.*?)  +(.*)$", capsys.readouterr().out, re.MULTILINE))
    derived = read_json(chosen / "resolved_config.json")["derived"]
    samples = read_json(chosen / "dataset.json")["records"]
    assert rows["records in the data set"] == f"{samples / derived['packing_factor']:.0f}"
    assert rows["samples to train on"] == f"{12 * samples:,}"
    assert rows["steps"] == f"{derived['updates']:,} weight updates"
    assert rows["samples in a pack"] == f"{derived['packing_factor']:.4g} on average"
    assert rows["epochs"] == "12.00"


def test_a_longer_text_is_not_cut_where_the_weights_know_its_positions(root: Path, chosen: Path) -> None:
    """The second run starts from weights that were trained on 40 positions, on texts of at most 20 tokens."""
    first = fine_tuned(root, "first", "--max-seq-length", "40", "--num-epochs", "1")
    run = fine_tuned(root, "second", "--pretrained-ckpt-path", str(first), "--num-epochs", "1")
    assert read_json(run / "resolved_config.json")["config"]["max_seq_length"] == 24
    text = " ".join(FILLING * 4)  # 34 tokens
    shorter = " ".join(FILLING * 2)
    assert load(str(run))(text) != load(str(run), max_seq_length=24)(text)
    assert load(str(run))(text) == load(str(run), max_seq_length=40)(text)
    assert load(str(run))(shorter) == load(str(run), max_seq_length=24)(shorter)
    cut = load(str(chosen))(text)  # trained from random weights, it knows no more positions
    assert cut == load(str(chosen), max_seq_length=24)(text)


def test_a_run_is_resumed_with_its_rows(root: Path, chosen: Path) -> None:
    """The rows are not chosen again, so that other data are refused as such."""
    run = fine_tuned(root, "chosen", "--resume", "true")
    resolved = read_json(run / "resolved_config.json")
    assert resolved["config"]["max_seq_length"] == 24 and resolved["origins"]["max_seq_length"] == "data"
