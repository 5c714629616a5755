"""A data set of packs contains each record of its input once, and always has the same bytes."""

from __future__ import annotations

import hashlib
import json
import shutil
import subprocess
import sys
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from data_utils.packing import dataset
from data_utils.packing import unpacked as records
from data_utils.packing.__main__ import main
from data_utils.packing.dataset import pack_dataset
from data_utils.packing.plan import read_plan
from data_utils.records.features import packed_pretraining_features
from data_utils.records.manifest import write_manifest
from data_utils.records.reader import RecordReader
from data_utils.workers import open_workers
from tests import ROOT
from tests.support.pack_samples import LENGTH, PREDICTIONS, VOCABULARY, comparable, sequence, split_pack, write
from tests.support.record_samples import write_samples
from tests.support.runs import content
from utilities.errors import UserError

RECORDS = 300
FILES = [range(100), range(100, 101), range(101, 300)]


@pytest.fixture(scope="module")
def source(tmp_path_factory: pytest.TempPathFactory) -> Path:
    folder = tmp_path_factory.mktemp("source")
    write(folder, [[sequence(number) for number in numbers] for numbers in FILES])
    return folder


@pytest.fixture
def small_units(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(dataset, "_MAX_PACKS_OF_FILE", 20)
    monkeypatch.setattr(dataset, "_PACKS_AT_ONCE", 7)
    monkeypatch.setattr(dataset, "RECORDS_OF_SHARD", 64)
    monkeypatch.setattr(records, "_RECORDS_AT_ONCE", 10)


def with_manifest(folder: Path, **settings: Any) -> None:
    pieces = "".join(f"piece{number}\n" for number in range(VOCABULARY)).encode()
    (folder / "vocab.txt").write_bytes(pieces)
    entries = [
        {"name": path.name, "records": len(numbers), "bytes": path.stat().st_size, "sha256": None}
        for path, numbers in zip(sorted(folder.glob("*.tfrecord")), FILES)
    ]
    made = {"max_seq_length": LENGTH, "max_predictions_per_seq": PREDICTIONS, "vocab_size": VOCABULARY, **settings}
    vocabulary = {"file": "vocab.txt", "sha256": hashlib.sha256(pieces).hexdigest(), "size": VOCABULARY}
    write_manifest(folder, made, vocabulary, entries, {"records": RECORDS, "documents": 12}, 3.25)


def packs_in(manifest: Path) -> list[dict[str, np.ndarray]]:
    """Return the packs as read by training, which checks every record against the specification."""
    settings = json.loads(manifest.read_text())["settings"]
    spec = packed_pretraining_features(
        settings["max_seq_length"], settings["max_predictions_per_pack"], settings["max_sequences_per_pack"], VOCABULARY
    )
    reader = RecordReader(manifest.parent, spec, verify_checksums=True)
    batch = reader.read(np.arange(reader.count))
    return [{name: values[row] for name, values in batch.items()} for row in range(reader.count)]


@pytest.mark.parametrize(
    ("limit", "algorithm", "length"),
    [
        (1, "spfhp", LENGTH),
        ("max", "lpfhp", LENGTH),
        (3, "optimal", LENGTH),  # room: planners
        (2, "nnlshp", LENGTH),  # room: planners
        (8, "optimal", 3 * LENGTH),  # room: planners
    ],
)
def test_every_sequence_is_in_one_pack(
    limit: int | str, algorithm: str, length: int, source: Path, tmp_path: Path
) -> None:
    manifest = pack_dataset(source, tmp_path / "out", limit, algorithm, max_seq_length=length)
    packs = packs_in(manifest)
    assert {pack["input_ids"].size for pack in packs} == {length}
    sequences = sorted(one for pack in packs for one in split_pack(pack))
    assert sequences == sorted(comparable(sequence(number)) for number in range(RECORDS))
    described = json.loads(manifest.read_text())
    assert described["format"] == "packed-pretraining"
    assert described["totals"]["sequences"] == RECORDS
    assert described["totals"]["records"] == len(packs)
    assert described["settings"]["packing"]["factor"] == pytest.approx(RECORDS / len(packs))
    assert described["totals"]["real_tokens"] == sum((pack["input_mask"] > 0).sum() for pack in packs)
    if limit != "max":
        assert described["settings"]["max_sequences_per_pack"] == limit
        assert described["settings"]["max_predictions_per_pack"] >= PREDICTIONS + limit


def test_packs_are_mixed_and_in_several_files(source: Path, tmp_path: Path, small_units: None) -> None:
    manifest = pack_dataset(source, tmp_path / "out", 3)
    files = json.loads(manifest.read_text())["files"]
    assert [file["name"] for file in files] == sorted(path.name for path in manifest.parent.glob("*.tfrecord"))
    assert len(files) > 3
    assert all(manifest.parent.joinpath(file["name"]).with_suffix(".index").exists() for file in files)
    filled = [int((pack["input_mask"] > 0).sum()) for pack in packs_in(manifest)]
    sizes = [int(pack["input_mask"].max()) for pack in packs_in(manifest)]
    assert len(set(sizes[: len(sizes) // 3])) > 1  # not kind after kind
    assert sum(filled) == sum(int(sequence(number)["input_mask"].sum()) for number in range(RECORDS))


def test_packs_have_every_masked_position(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    """The sequences mask every position, so a pack has far more masked positions than usual."""
    masked = [sequence(number, length=4) for number in range(40)]
    for one in masked:
        one["masked_lm_positions"], one["masked_lm_weights"] = np.arange(4), np.ones(4, np.float32)
        one["masked_lm_ids"] = np.arange(1, 5)
    write(tmp_path / "in", [masked])
    manifest = pack_dataset(tmp_path / "in", tmp_path / "out", 6)
    assert json.loads(manifest.read_text())["settings"]["max_predictions_per_pack"] == 24
    assert "24 masked positions" in capsys.readouterr().err
    assert all((pack["masked_lm_weights"] > 0).sum() == 24 for pack in packs_in(manifest)[:6])
    wide = pack_dataset(tmp_path / "in", tmp_path / "wide", 5, max_predictions_per_pack=22)
    assert json.loads(wide.read_text())["settings"]["max_predictions_per_pack"] == 22
    with pytest.raises(UserError, match="--max-predictions-per-pack 23: a pack has 24"):
        pack_dataset(tmp_path / "in", tmp_path / "narrow", 6, max_predictions_per_pack=23)


HELD_OUT = {"max_seq_length": LENGTH, "max_predictions_per_seq": PREDICTIONS}


def test_too_few_masked_positions_for_held_out_records(tmp_path: Path) -> None:
    """They are refused before anything is written, and a larger number is accepted in the same folder."""
    source = tmp_path / "source"
    one_each = {"masked_lm_weights": np.eye(1, PREDICTIONS, dtype=np.float32)[0]}
    write(source, [[{**sequence(number), **one_each} for number in numbers] for numbers in FILES])
    with_manifest(source, masked_lm_prob=0.02)
    held_out = [sequence(number, length=8) for number in range(6)]
    for one in held_out:  # as with a share of 0.5: 4 of 8 tokens
        one["masked_lm_positions"], one["masked_lm_weights"] = np.arange(4), np.ones(4, np.float32)
        one["masked_lm_ids"] = np.arange(1, 5)
    write(source / "validation", [held_out])
    path = source / "validation" / "data_0.tfrecord"
    entry = {"name": path.name, "records": len(held_out), "bytes": path.stat().st_size, "sha256": None}
    write_manifest(source / "validation", {**HELD_OUT, "masked_lm_prob": 0.5}, {}, [entry], {}, None)
    output = tmp_path / "out"
    for given in (2, 11):  # packs of the other records have up to 3 masked positions
        with pytest.raises(UserError, match=rf"--max-predictions-per-pack {given}: .* held-out .* give 12 or more"):
            pack_dataset(source, output, 3, max_predictions_per_pack=given)
        assert not list(output.glob("*.tfrecord"))
    with pytest.raises(UserError, match=r"--max-seq-length 20: .* give that or more"):
        pack_dataset(source, output, 3, max_seq_length=20)
    for given in (12, None):
        folder = output if given else tmp_path / "chosen"
        pack_dataset(source, folder, 3, max_predictions_per_pack=given)
        packs = packs_in(folder / "validation" / "manifest.json")
        assert [(pack["masked_lm_weights"] > 0).sum() for pack in packs] == [12, 12]


def test_published_numbers_of_masked_positions() -> None:
    def usual(length: int, predictions: int, sequences: int) -> int:
        return dataset.choose_max_predictions(dataset.Shape(length, predictions), length, sequences, needed=1)

    assert (usual(128, 20, 3), usual(512, 76, 3), usual(384, 56, 3)) == (23, 79, 59)
    assert usual(32, 29, 6) == 32  # a config with more masked positions than tokens is refused


def test_facts_of_the_input_are_kept_and_workers_do_not_change_the_bytes(
    source: Path, tmp_path: Path, small_units: None
) -> None:
    source = shutil.copytree(source, tmp_path / "source")
    with_manifest(source, masked_lm_prob=0.15)
    whole = content(pack_dataset(source, tmp_path / "whole").parent)
    manifest = json.loads(whole["manifest.json"])
    assert manifest["settings"]["masked_lm_prob"] == 0.15 and manifest["settings"]["vocab_size"] == VOCABULARY
    assert manifest["unigram_entropy_nats"] == 3.25 and manifest["totals"]["documents"] == 12
    assert whole["vocab.txt"] == (source / "vocab.txt").read_bytes()
    assert not any(name.startswith(".work") for name in whole)
    with open_workers(2) as workers:
        assert content(pack_dataset(source, tmp_path / "two", workers=workers).parent) == whole


def test_another_plan_in_the_same_folder_is_refused_until_overwritten(source: Path, tmp_path: Path) -> None:
    manifest = pack_dataset(source, tmp_path / "out", 3)
    with pytest.raises(UserError, match="max_sequences_per_pack 3 there, 2 now"):
        pack_dataset(source, tmp_path / "out", 2)
    (tmp_path / "out" / "validation").mkdir()  # as if the input had had held-out records then
    pack_dataset(source, tmp_path / "out", 2, overwrite=True)
    assert json.loads(manifest.read_text())["settings"]["max_sequences_per_pack"] == 2
    assert not (tmp_path / "out" / "validation").exists()


def test_the_rules_of_another_data_set_s_tokenizer_are_not_kept(source: Path, tmp_path: Path) -> None:
    source = shutil.copytree(source, tmp_path / "source")
    with_manifest(source)
    (source / "tokenizer_config.json").write_text('{"do_lower_case": true, "strip_accents": false}')
    packs = pack_dataset(source, tmp_path / "out").parent
    assert (packs / "tokenizer_config.json").read_bytes() == (source / "tokenizer_config.json").read_bytes()
    (source / "tokenizer_config.json").unlink()
    pack_dataset(source, packs, overwrite=True)
    assert not (packs / "tokenizer_config.json").exists()


OUTSIDE = {"masked_lm_positions": np.full(PREDICTIONS, LENGTH), "masked_lm_weights": np.ones(PREDICTIONS, np.float32)}


@pytest.mark.parametrize(
    ("features", "reason"),
    [
        ({"input_mask": np.array([1, 0] * (LENGTH // 2))}, "input_mask"),
        (OUTSIDE, "masked_lm_positions"),
        ({"masked_lm_weights": np.ones(PREDICTIONS + 1, np.float32)}, "masked_lm_weights"),
    ],
)
def test_a_record_that_cannot_be_packed_is_named(features: dict, reason: str, tmp_path: Path) -> None:
    records = [sequence(number) for number in range(6)]
    records[4].update(features)
    write(tmp_path / "in", [records])
    with pytest.raises(UserError, match=rf"data_0\.tfrecord: record 4 .*{reason}"):
        pack_dataset(tmp_path / "in", tmp_path / "out")
    path = tmp_path / "in" / "data_0.tfrecord"
    data = bytearray(path.read_bytes())
    data[len(data) // 2] ^= 255
    path.write_bytes(data)
    with pytest.raises(UserError, match=r"data_0\.tfrecord: record \d+ "):
        pack_dataset(tmp_path / "in", tmp_path / "out")


class TestCommand:
    def run(self, *arguments: object) -> int:
        return main([str(argument) for argument in arguments])

    def test_errors(self, source: Path, tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
        output, new = tmp_path / "out", tmp_path / "new"
        assert self.run("--input", source, "--output", output, "--workers", 1) == 0
        for input_folder, folder, options, parts in [
            (source, new, ["--max-seq-length", LENGTH - 4], ["--max-seq-length", f"up to {LENGTH} tokens"]),
            (source, new, ["--max-seq-length", 10**6], ["too long, at most 32768"]),
            (source, new, ["--max-sequences-per-pack", 9], ["at least 3 tokens, and a pack 24", "give 8 or less"]),
            (source, new, ["--max-predictions-per-pack", 25], ["a pack has 24 tokens; give that or less"]),
            (source, new, ["--picture", "chart.docx"], ["chart.docx", ".png"]),  # room: planners
            (tmp_path / "none", new, [], ["no such folder"]),
            (source, source, [], ["is the input"]),
            (output, new, [], ["packed already"]),
        ]:
            assert self.run("--input", input_folder, "--output", folder, "--workers", 1, *options) == 2
            error = capsys.readouterr().err.splitlines()[-1]
            assert error.startswith("error: ") and all(part in error for part in parts), error

    @pytest.mark.parametrize(
        ("limit", "problem"), [("2.5", "not a whole number of at least 1"), (str(10**25), "more than 1,000,000,000")]
    )
    def test_a_limit_that_cannot_be_used(self, limit: str, problem: str, capsys: pytest.CaptureFixture[str]) -> None:
        with pytest.raises(SystemExit):
            self.run("--input", "in", "--output", "out", f"--max-sequences-per-pack={limit}")
        assert f"{limit} is {problem}" in capsys.readouterr().err

    def test_report_and_plan(self, source: Path, tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
        output = tmp_path / "out"
        assert self.run("--input", source, "--output", output, "--max-sequences-per-pack", 3, "--workers", 1) == 0
        printed = capsys.readouterr().out
        tokens = sum(int(sequence(number)["input_mask"].sum()) for number in range(RECORDS))
        packs = json.loads((output / "manifest.json").read_text())["totals"]["records"]
        for rows in (RECORDS, packs):
            assert all(f"{number:,}" in printed for number in (rows, tokens, rows * LENGTH - tokens))
        assert f"{RECORDS / packs:.3f}" in printed and f"{100 * tokens / packs / LENGTH:.2f} %" in printed
        assert (output / "packing.png").read_bytes().startswith(b"\x89PNG")  # room: planners
        plan = read_plan(output)
        assert (plan.number_of_packs, plan.number_of_sequences) == (packs, RECORDS)

    def test_options(self, source: Path, tmp_path: Path) -> None:
        options = ["--max-sequences-per-pack", "max", "--algorithm", "lpfhp", "--seed", 3]
        options += ["--picture", tmp_path / "before_after.svg"]  # room: planners
        more = ["--max-seq-length", 2 * LENGTH, "--max-predictions-per-pack", 40, "--workers", 1]
        assert self.run("--input", source, "--output", tmp_path / "out", *options, *more) == 0
        settings = json.loads((tmp_path / "out" / "manifest.json").read_text())["settings"]
        assert (settings["max_seq_length"], settings["max_predictions_per_pack"]) == (2 * LENGTH, 40)
        assert (settings["packing"]["algorithm"], settings["packing"]["seed"]) == ("lpfhp", 3)
        assert "<svg" in (tmp_path / "before_after.svg").read_text()  # room: planners
        assert not (tmp_path / "out" / "packing.png").exists()


def test_more_files_than_may_be_open(tmp_path):
    (tmp_path / "in").mkdir()
    for number in range(120):
        write_samples(tmp_path / "in" / f"part-{number:03}.tfrecord", range(2 * number, 2 * number + 2))
    code = (
        "import resource, sys; from data_utils.packing.__main__ import main\n"
        "resource.setrlimit(resource.RLIMIT_NOFILE, (80, resource.getrlimit(resource.RLIMIT_NOFILE)[1]))\n"
        "sys.exit(main(sys.argv[1:]))"
    )
    arguments = ["--input", str(tmp_path / "in"), "--output", str(tmp_path / "out"), "--workers", "1"]
    done = subprocess.run([sys.executable, "-c", code, *arguments], capture_output=True, text=True, cwd=ROOT)
    assert done.returncode == 0, done.stderr[-1000:]
