"""The doctor's findings on good and broken data sets, and the result of a repair."""

from __future__ import annotations

import json
import subprocess
import sys
from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from data_utils.doctor import __main__ as command
from data_utils.doctor.__main__ import main
from data_utils.records.features import pretraining_features
from data_utils.records.index import load_index
from data_utils.records.reader import RecordReader
from data_utils.records.writer import encode_examples, frame_records, write_record_file
from tests import ROOT
from tests.unit.data_utils.doctor.datasets import (
    MASK,
    PREDICTIONS,
    RECORDS,
    SEQUENCE,
    UNK,
    WORDS,
    features,
    packs,
    write,
)


@pytest.fixture(autouse=True)
def few_pictures(request: pytest.FixtureRequest, monkeypatch: pytest.MonkeyPatch) -> None:
    """Skip most drawings, which take longer than everything else."""
    if request.node.name != "test_a_data_set_that_is_well":
        monkeypatch.setattr(command, "draw", lambda data, found, path: None)


def examine(folder: Path, *options: object) -> tuple[int, dict[str, Any]]:
    """Return the exit status and the findings."""
    found = folder.parent / "found.json"
    status = main([str(folder), "--workers", "1", "--json", str(found), *map(str, options)])
    return status, json.loads(found.read_text())


def test_a_data_set_that_is_well(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    batch = features()
    status, found = examine(write(tmp_path / "set", batch))
    text = capsys.readouterr().out
    assert status == 0
    assert found["wrong"] == []
    assert (found["records"], found["bad"]) == (RECORDS, 0)
    tokens = int(batch["input_mask"].sum())
    assert found["counts"]["tokens"] == tokens
    assert found["counts"]["lengths"] == np.bincount(batch["input_mask"].sum(1)).tolist()
    used = batch["masked_lm_weights"] > 0
    shown = np.take_along_axis(batch["input_ids"], batch["masked_lm_positions"], 1)[used]
    assert found["mask_rate"]["found"] == pytest.approx(used.sum() / tokens)
    assert found["mask_rate"]["expected"] == pytest.approx(used.sum() / tokens)
    assert found["masking"]["masked"]["found"] == pytest.approx((shown == MASK).mean())
    assert found["masking"]["kept"]["found"] == pytest.approx((shown == batch["masked_lm_ids"][used]).mean())
    assert found["next_sentence"]["found"] == pytest.approx(batch["next_sentence_labels"].mean())
    assert found["copies"] == found["same_text"] == 0
    assert "The data set is fine." in text
    assert "packing would give" in text
    assert (tmp_path / "set" / "doctor.png").read_bytes()[:4] == b"\x89PNG"


def test_packing_is_promised_as_it_would_be(tmp_path: Path) -> None:
    from data_utils.packing import plan_packing

    batch = features()
    _, found = examine(write(tmp_path / "set", batch))
    plan = plan_packing(np.bincount(batch["input_mask"].sum(1), minlength=SEQUENCE + 1)[1:], SEQUENCE, 3, "lpfhp")
    assert found["packing"]["factor"] == pytest.approx(plan.packing_factor)
    assert any(f"packing would give × {plan.packing_factor:.2f}" in note for note in found["notes"])


def test_without_index_manifest_and_vocabulary(tmp_path: Path) -> None:
    folder = write(tmp_path / "set", features(), manifest=False, vocabulary=False)
    for path in folder.glob("*.index"):
        path.unlink()
    status, found = examine(folder)
    assert status == 0
    assert found["records"] == RECORDS
    assert found["masking"] is None
    assert {"no index", "no manifest.json", "no vocab.txt"} <= {
        piece for note in found["notes"] for piece in ("no index", "no manifest.json", "no vocab.txt") if piece in note
    }


def test_packed_sets(tmp_path: Path) -> None:
    batch = packs()
    status, found = examine(write(tmp_path / "set", batch))
    assert status == 0, found["wrong"]
    assert found["counts"]["sequences"] == 600
    assert found["packing"] is None
    assert found["counts"]["lengths"][: SEQUENCE + 1] == np.bincount(features(600)["input_mask"].sum(1)).tolist()


@pytest.mark.parametrize(
    ("make", "name", "places", "value", "message"),
    [
        (features, "input_ids", 4, 5 + WORDS, "input_ids 100 at place 4, outside [0, 100)"),
        (features, "masked_lm_ids", 0, 5 + WORDS, "masked_lm_ids 100 at place 0, outside [0, 100)"),
        (features, "input_ids", 0, 9, "does not begin with [CLS]"),
        (features, "input_ids", slice(1, None), 9, "does not end with [SEP]"),
        (features, "input_mask", 5, 0, "padding between its tokens"),
        (features, "input_mask", 5, 2, "input_mask 2 at place 5, outside [0, 2)"),
        (features, "segment_ids", 5, 2, "segment_ids 2 at place 5"),
        (features, "masked_lm_positions", 0, SEQUENCE, f"masked_lm_positions {SEQUENCE} at place 0, outside"),
        (features, "masked_lm_weights", 0, np.nan, "masked_lm_weights nan at place 0"),
        (features, "masked_lm_weights", slice(None), 0, "masks nothing"),
        (features, "next_sentence_labels", 0, 2, "next_sentence_labels 2"),
        (packs, "input_mask", 3, 3, "input_mask that is not 1, 2, … for one sequence after another"),
        (packs, "position_ids", 3, 9, "position_ids that do not start at 0"),
        (packs, "next_sentence_weights", 0, 0, "next_sentence_weights"),
        (packs, "next_sentence_positions", 1, 1, "next_sentence_positions"),
    ],
)
def test_impossible_values(
    tmp_path: Path, make: Callable, name: str, places: int | slice, value: float, message: str
) -> None:
    batch = make()
    batch[name][7, places] = value
    status, found = examine(write(tmp_path / "set", batch))
    assert status == 1
    assert found["bad"] == 1
    problem = found["problems"][0]
    assert (problem["file"], problem["record"]) == ("part_0.tfrecord", 7)
    assert message in problem["reason"]


def test_many_bad_records_are_one_line_and_the_first_of_them_are_named(tmp_path: Path) -> None:
    batch = features()
    batch["input_ids"][::2, 4] += WORDS + 5
    batch["masked_lm_positions"][7, 0] = int(batch["input_mask"][7].sum())
    _, found = examine(write(tmp_path / "set", batch))
    assert found["bad"] == RECORDS // 2 + 1
    assert found["wrong"][0].startswith("1,000 records, the first of which has input_ids 1")
    assert found["wrong"][1] == "1 record has masked_lm_positions in the padding"
    assert [problem["record"] for problem in found["problems"]] == [0, 2, 4, 6, 7, 8, 10, 12, 14, 16]


def damaged_set(tmp_path: Path) -> tuple[Path, list[int]]:
    """A set with a damaged payload, a damaged header, a record of another length and one without a feature."""
    batch = features()
    folder = write(tmp_path / "set", batch, files=1)
    path = folder / "part_0.tfrecord"
    short = {name: values[:1, : max(1, values.shape[1] // 2)] for name, values in batch.items()}
    lacking = {name: values[:1] for name, values in batch.items() if name != "segment_ids"}
    messages = encode_examples(batch)
    messages[40], messages[50] = encode_examples(short)[0], encode_examples(lacking)[0]
    write_record_file(path, frame_records(messages))
    data = bytearray(path.read_bytes())
    boundaries = load_index(path.with_suffix(".index"), path, len(data))
    data[boundaries[10] + 50] ^= 1
    data[boundaries[30] + 1] ^= 1
    path.write_bytes(data)
    return folder, [10, 30, 40, 50]


@pytest.mark.parametrize("indexed", [True, False])
def test_damage_costs_the_damaged_records_only(tmp_path: Path, indexed: bool) -> None:
    folder, bad = damaged_set(tmp_path)
    (folder / "manifest.json").unlink()
    if not indexed:
        (folder / "part_0.index").unlink()
    status, found = examine(folder)
    assert status == 1
    assert (found["records"], found["bad"]) == (RECORDS, len(bad))
    reasons = {problem["record"]: problem["reason"] for problem in found["problems"]}
    assert sorted(reasons) == bad
    assert "damaged" in reasons[10]
    assert "damaged" in reasons[30]
    assert f"16 values of input_ids, {SEQUENCE} are expected" in reasons[40]
    assert "no feature segment_ids" in reasons[50]


def test_a_file_that_is_cut_off(tmp_path: Path) -> None:
    folder = write(tmp_path / "set", features(), files=2)
    path = folder / "part_1.tfrecord"
    path.write_bytes(path.read_bytes()[:-7])
    status, found = examine(folder)
    assert status == 1
    assert found["bad"] == 1
    assert found["counts"]["records"] == RECORDS - 1
    assert any("part_1.index" in text for text in found["wrong"])
    assert any("manifest.json says" in text for text in found["wrong"])


@pytest.mark.parametrize("with_manifest", [True, False])
def test_repair_keeps_the_good_records_and_nothing_else(
    tmp_path: Path, capsys: pytest.CaptureFixture[str], with_manifest: bool
) -> None:
    folder, bad = damaged_set(tmp_path)
    if not with_manifest:
        (folder / "manifest.json").unlink()
    status, _ = examine(folder, "--fix", tmp_path / "fixed")
    assert status == 1
    assert f"{RECORDS - len(bad):,} good records, {len(bad)} left out" in capsys.readouterr().out
    batch = features()
    reader = RecordReader(tmp_path / "fixed", pretraining_features(SEQUENCE, PREDICTIONS, 5 + WORDS), True)
    assert reader.count == RECORDS - len(bad)
    for name, values in reader.read(np.arange(reader.count)).items():
        np.testing.assert_array_equal(values, np.delete(batch[name], bad, axis=0), err_msg=name)
    status, found = examine(tmp_path / "fixed")
    assert status == 0, found["wrong"]
    manifest = json.loads((tmp_path / "fixed" / "manifest.json").read_text())
    assert manifest["totals"]["records"] == RECORDS - len(bad)
    assert main([str(folder), "--workers", "1", "--fix", str(folder)]) == 2
    assert "is the data set itself" in capsys.readouterr().err


def mask_one_token(batch: dict[str, np.ndarray]) -> None:
    batch["masked_lm_weights"][:, 1:] = 0
    for name in ("masked_lm_positions", "masked_lm_ids"):
        batch[name][:, 1:] = 0


def show_own_pieces(batch: dict[str, np.ndarray]) -> None:
    rows, slots = np.nonzero(batch["masked_lm_weights"])
    batch["input_ids"][rows, batch["masked_lm_positions"][rows, slots]] = batch["masked_lm_ids"][rows, slots]


def few_random_sentences(batch: dict[str, np.ndarray]) -> None:
    batch["next_sentence_labels"][: RECORDS // 4] = 0


def many_unknown(batch: dict[str, np.ndarray]) -> None:
    words = (batch["input_ids"] >= 5) & (np.arange(SEQUENCE) % 4 == 0)
    batch["input_ids"][words] = UNK


@pytest.mark.parametrize(
    ("change", "message"),
    [
        (mask_one_token, "of the tokens are to be predicted; by the settings 1"),
        (show_own_pieces, "0.0% of the tokens to predict show [MASK], 80% should"),
        (few_random_sentences, "of the second sentences are random ones, half should be"),
        (many_unknown, "of the pieces are [UNK]"),
    ],
)
def test_shares_that_are_off(tmp_path: Path, change: Callable, message: str) -> None:
    batch = features()
    change(batch)
    status, found = examine(write(tmp_path / "set", batch))
    assert status == 1
    assert found["bad"] == 0
    assert any(message in text for text in found["wrong"]), found["wrong"]


def test_copies(tmp_path: Path) -> None:
    batch = features()
    folder = write(tmp_path / "set", batch, manifest=False)
    for suffix in ("tfrecord", "index"):
        (folder / f"copy.{suffix}").write_bytes((folder / f"part_1.{suffix}").read_bytes())
    status, found = examine(folder)
    copied = RECORDS // 3
    assert status == 1
    assert found["copies"] == found["same_text"] == pytest.approx(copied / (RECORDS + copied), abs=0.002)
    assert any("copies of others; is a file there twice?" in text for text in found["wrong"])
    other = {name: np.concatenate([values, features(300, seed=0)[name][:0]]) for name, values in batch.items()}
    masked_anew = features(RECORDS, seed=0)
    show_own_pieces(masked_anew)
    rows, slots = np.nonzero(masked_anew["masked_lm_weights"])
    masked_anew["input_ids"][rows, masked_anew["masked_lm_positions"][rows, slots]] = MASK
    both = {name: np.concatenate([other[name], masked_anew[name]]) for name in other}
    _, found = examine(write(tmp_path / "twice", both))
    assert found["same_text"] == pytest.approx(0.5)
    assert found["copies"] < 0.5


def test_a_manifest_that_does_not_fit(tmp_path: Path) -> None:
    folder = write(tmp_path / "set", features())
    manifest = json.loads((folder / "manifest.json").read_text())
    manifest["files"][0]["sha256"] = "0" * 64
    manifest["files"][1]["records"] -= 1
    manifest["totals"]["records"] -= 1
    manifest["vocabulary"]["sha256"] = "0" * 64
    (folder / "manifest.json").write_text(json.dumps(manifest))
    status, found = examine(folder)
    assert status == 1
    message = "\n".join(found["wrong"])
    assert "part_0.tfrecord: is not the file that the manifest describes" in message
    assert "part_1.tfrecord: has 667 records, the manifest says 666" in message
    assert "vocab.txt is not the vocabulary" in message
    (folder / "manifest.json").write_text("{")
    status, found = examine(folder)
    assert status == 1
    assert any("not valid JSON" in text for text in found["wrong"])


def test_repeated_lines(tmp_path: Path) -> None:
    folder = write(tmp_path / "set", features())
    (folder / "corpus").mkdir()
    lines = [f"Sentence number {number}." for number in range(90)] + ["This article is a stub."] * 10
    (folder / "corpus" / "a.txt").write_text("\n".join(lines))
    (folder / "corpus" / "b.txt").write_text("A line.\n\nThis article is a stub.\n")
    _, found = examine(folder)
    assert found["lines"]["lines"] == 102
    assert found["lines"]["repeated"] == pytest.approx(10 / 102)
    assert found["lines"]["frequent"] == [["This article is a stub.", 11]]


@pytest.mark.parametrize(
    ("files", "message"),
    [
        ({}, "is empty"),
        ({"a.tfrecord": b""}, "no pre-training record"),
        ({"a.tfrecord": b"\x00" * 100}, "no pre-training record"),
        ({"a.tfrecord": b"\x1f\x8b" + b"\x07" * 100}, "no pre-training record"),
    ],
)
def test_nothing_to_examine(
    tmp_path: Path, capsys: pytest.CaptureFixture[str], files: dict[str, bytes], message: str
) -> None:
    (tmp_path / "set").mkdir()
    for name, data in files.items():
        (tmp_path / "set" / name).write_bytes(data)
    assert main([str(tmp_path / "set"), "--workers", "1"]) == 2
    errors = capsys.readouterr().err.splitlines()
    assert errors[-1].startswith("error: ")
    assert message in errors[-1]


def test_random_damage_never_ends_the_examination(tmp_path: Path) -> None:
    rng = np.random.default_rng(0)
    batch = features(300)
    for trial in range(12):
        folder = write(tmp_path / f"set{trial}", batch, files=1, manifest=bool(trial % 2))
        path = folder / "part_0.tfrecord"
        data = bytearray(path.read_bytes())
        for place in rng.integers(0, len(data), 5):
            data[place] = rng.integers(256)
        if trial % 3 == 0:
            del data[rng.integers(len(data)) :]
        if trial % 4 == 0:
            path.with_suffix(".index").unlink()
        path.write_bytes(data)
        status, found = examine(folder)
        assert status in (0, 1)
        assert found["counts"]["records"] + found["bad"] == found["records"]
        assert found["bad"] <= 7


def test_workers_change_nothing_and_tensorflow_is_not_needed(tmp_path: Path) -> None:
    folder = write(tmp_path / "set", features())
    _, alone = examine(folder)
    code = (
        "import sys, data_utils.parallel as p; p.SMALL_BYTES = 0\n"
        "from data_utils.doctor.__main__ import main\n"
        "if __name__ == '__main__':\n"
        "    status = main(sys.argv[1:])\n"
        "    assert not any(name.split('.')[0] in ('tensorflow', 'tf_keras') for name in sys.modules)\n"
        "    sys.exit(status)\n"
    )
    (tmp_path / "run.py").write_text(code)
    arguments = [str(folder), "--workers", "2", "--json", str(tmp_path / "two.json")]
    whole = [sys.executable, str(tmp_path / "run.py"), *arguments]
    done = subprocess.run(whole, cwd=ROOT, env={"PYTHONPATH": str(ROOT)}, capture_output=True, text=True)
    assert done.returncode == 0, done.stderr
    assert json.loads((tmp_path / "two.json").read_text()) == alone
