"""The doctor's findings on good and broken data sets."""

from __future__ import annotations

import itertools
import json
import subprocess
import sys
from collections.abc import Callable
from pathlib import Path

import numpy as np
import pytest

from data_utils.doctor.__main__ import main
from data_utils.records.index import load_index
from data_utils.records.writer import encode_examples, write_record_file
from data_utils.text.instances import Settings, make_features
from data_utils.text.tokens import TokenizedText
from data_utils.tokenizer import SPECIAL_TOKENS, Vocabulary
from tests import ROOT
from tests.support.command_errors import assert_refused
from tests.support.doctor_datasets import MASK, PREDICTIONS, RECORDS, SEQUENCE, UNK, WORDS, features, packs, write

Examine = Callable[..., tuple[int, list[str]]]


@pytest.fixture
def examine(capsys: pytest.CaptureFixture[str]) -> Examine:
    """Return the function that runs the command; it returns the exit status and the printed lines."""

    def run(folder: Path, *options: object) -> tuple[int, list[str]]:
        status = main([str(folder), "--workers", "1", *map(str, options)])
        return status, capsys.readouterr().out.splitlines()

    return run


def counted(lines: list[str]) -> tuple[int, int]:
    """Return the numbers of good and of bad records."""
    line = next(line for line in lines if " good records, " in line).replace(",", "").split()
    return int(line[0]), int(line[3])


def after(lines: list[str], title: str) -> list[str]:
    """Return the indented lines after a title."""
    rest = lines[lines.index(title) + 1 :] if title in lines else []
    return [line.strip() for line in itertools.takewhile(lambda line: line.startswith("  "), rest)]


def test_the_shares_of_a_sound_data_set(tmp_path: Path, examine: Examine) -> None:
    batch = features()
    status, lines = examine(write(tmp_path / "set", batch))
    used = batch["masked_lm_weights"] > 0
    shown = np.take_along_axis(batch["input_ids"], batch["masked_lm_positions"], 1)[used]
    assert status == 0
    assert lines[1:] == [
        f"{RECORDS:,} good records, 0 bad ones, {batch['input_mask'].sum():,} tokens",
        "0.00% of the pieces are [UNK], at most 5% expected",
        f"{(shown == MASK).mean():.2%} of the tokens to predict show [MASK], 80.0% expected",
        f"{batch['next_sentence_labels'].mean():.2%} of the second sentences are random ones, 50.0% expected",
        "The data set is fine.",
    ]


def test_without_index_manifest_and_vocabulary(tmp_path: Path, examine: Examine) -> None:
    folder = write(tmp_path / "set", features(), manifest=False, vocabulary=False)
    for path in folder.glob("*.index"):
        path.unlink()
    status, lines = examine(folder)
    assert (status, counted(lines)) == (0, (RECORDS, 0))
    assert not any("[MASK]" in line for line in lines)
    notes = "\n".join(after(lines, "Worth knowing:"))
    assert all(part in notes for part in ("no manifest.json", "no vocab.txt"))
    none = np.zeros_like(features()["next_sentence_labels"])
    pairs = write(tmp_path / "pairs", {**features(), "next_sentence_labels": none}, manifest=False)
    assert "0.00% of the second sentences are random ones, 50.0% expected ← wrong" in examine(pairs)[1]
    alone = {"segment_ids": np.zeros((RECORDS, SEQUENCE), np.int64), "next_sentence_labels": none}
    status, lines = examine(write(tmp_path / "alone", {**features(), **alone}, manifest=False))
    assert status == 0 and not any("second sentences" in line for line in lines)


def test_packed_sets(tmp_path: Path, examine: Examine) -> None:
    batch = packs()
    status, lines = examine(write(tmp_path / "set", batch))
    assert (status, counted(lines)) == (0, (300, 0))
    random = batch["next_sentence_labels"].sum() / 600
    assert f"{random:.2%} of the second sentences are random ones, 50.0% expected" in lines


@pytest.mark.parametrize(
    ("make", "name", "columns", "value", "message"),
    [
        (features, "input_ids", 4, 5 + WORDS, "input_ids 100 at index 4, outside [0, 100)"),
        (features, "input_ids", 0, 9, "does not begin with [CLS]"),
        (features, "input_ids", slice(1, None), 9, "does not end with [SEP]"),
        (features, "input_mask", 5, 0, "padding between its tokens"),
        (features, "masked_lm_weights", slice(None), 0, "masks nothing"),
        (packs, "input_mask", 3, 3, "input_mask that is not 1, 2, … for one sequence after another"),
    ],
)
def test_impossible_values(
    tmp_path: Path, examine: Examine, make: Callable, name: str, columns: int | slice, value: float, message: str
) -> None:
    batch = make()
    batch[name][7, columns] = value
    status, lines = examine(write(tmp_path / "set", batch))
    assert (status, counted(lines)[1]) == (1, 1)
    (problem,) = after(lines, "bad records:")
    assert problem.startswith("part_0.tfrecord, record 7 ")
    assert message in problem


def test_rows_without_a_word_that_is_short_enough_to_be_masked_as_a_whole(tmp_path: Path, examine: Examine) -> None:
    vocabulary = Vocabulary([*SPECIAL_TOKENS, "a", "##b"], tmp_path, b"")
    text = TokenizedText(np.array([5, 6, 6, 6] * 30, np.int32), list(range(0, 121, 4)), [0, 10, 20, 30], 30)
    settings = Settings(SEQUENCE, PREDICTIONS, short_seq_prob=0.5, whole_word_masking=True)
    weights = make_features(text, vocabulary, settings, 0, 0)["masked_lm_weights"]
    empty = ~weights.any(axis=1)
    assert 0 < empty.sum() < len(empty)
    batch = features()
    batch["masked_lm_weights"][: len(empty)][empty] = 0
    assert counted(examine(write(tmp_path / "set", batch))[1])[1] == empty.sum()

    def findings_of_whole_words() -> tuple[int, list[str]]:
        folder = write(tmp_path / "set", batch)
        manifest = json.loads((folder / "manifest.json").read_text())
        manifest["settings"]["whole_word_masking"] = True
        (folder / "manifest.json").write_text(json.dumps(manifest))
        return examine(folder)

    assert findings_of_whole_words()[0] == 0
    batch["masked_lm_weights"][:] = 0
    status, lines = findings_of_whole_words()
    assert status == 1 and "  - no record has a token to predict" in lines


def test_many_bad_records_are_one_line_with_the_first_of_them(tmp_path: Path, examine: Examine) -> None:
    batch = features()
    batch["input_ids"][::2, 4] += WORDS + 5
    batch["masked_lm_positions"][7, 0] = int(batch["input_mask"][7].sum())
    _, lines = examine(write(tmp_path / "set", batch))
    assert counted(lines)[1] == RECORDS // 2 + 1
    wrong = after(lines, "Something is wrong:")
    assert wrong[0].startswith("- 301 records are bad, the first of which is part_0.tfrecord, record 0 ")
    named = [int(problem.split()[2]) for problem in after(lines, "bad records:")]
    assert named == [0, 2, 4, 6, 7, 8, 10, 12, 14, 16]


def damaged_set(tmp_path: Path) -> tuple[Path, list[int]]:
    """A set with a damaged payload, a damaged header, a record of another length and one without a feature."""
    batch = features()
    folder = write(tmp_path / "set", batch, files=1)
    path = folder / "part_0.tfrecord"
    short = {name: values[:1, : max(1, values.shape[1] // 2)] for name, values in batch.items()}
    lacking = {name: values[:1] for name, values in batch.items() if name != "segment_ids"}
    messages = encode_examples(batch)
    messages[40], messages[50] = encode_examples(short)[0], encode_examples(lacking)[0]
    write_record_file(path, messages)
    data = bytearray(path.read_bytes())
    boundaries = load_index(path.with_suffix(".index"), path, len(data))
    data[boundaries[10] + 50] ^= 1
    data[boundaries[30] + 1] ^= 1
    path.write_bytes(data)
    return folder, [10, 30, 40, 50]


def test_a_file_that_is_cut_off(tmp_path: Path, examine: Examine) -> None:
    folder = write(tmp_path / "set", features(), files=2)
    path = folder / "part_1.tfrecord"
    path.write_bytes(path.read_bytes()[:-7])
    status, lines = examine(folder)
    assert (status, counted(lines)) == (1, (RECORDS - 1, 1))
    wrong = "\n".join(after(lines, "Something is wrong:"))
    assert "part_1.index" in wrong and "manifest.json says" in wrong


@pytest.mark.parametrize("indexed", [True, False])
def test_damaged_records_are_bad(tmp_path: Path, examine: Examine, indexed: bool) -> None:
    folder, bad = damaged_set(tmp_path)
    found = RECORDS
    if not indexed:  # a damaged header is then the end of what can be found
        (folder / "part_0.index").unlink()
        bad, found = bad[:2], bad[1] + 1
    status, lines = examine(folder)
    assert (status, counted(lines)) == (1, (found - len(bad), len(bad)))
    reasons = {int(problem.split()[2]): problem for problem in after(lines, "bad records:")}
    assert sorted(reasons) == bad
    assert "damaged" in reasons[10]
    assert "damaged" in reasons[30]
    if indexed:
        assert f"16 values of input_ids, {SEQUENCE} are expected" in reasons[40]
        assert "no feature segment_ids" in reasons[50]


def show_own_pieces(batch: dict[str, np.ndarray]) -> None:
    rows, slots = np.nonzero(batch["masked_lm_weights"])
    batch["input_ids"][rows, batch["masked_lm_positions"][rows, slots]] = batch["masked_lm_ids"][rows, slots]


def few_random_sentences(batch: dict[str, np.ndarray]) -> None:
    batch["next_sentence_labels"][: RECORDS * 3 // 8] = 0


def many_unknown(batch: dict[str, np.ndarray]) -> None:
    words = (batch["input_ids"] >= 5) & (np.arange(SEQUENCE) % 4 == 0)
    batch["input_ids"][words] = UNK


@pytest.mark.parametrize(
    ("change", "message"),
    [
        (show_own_pieces, "0.00% of the tokens to predict show [MASK], 80.0% expected"),
        (few_random_sentences, "of the second sentences are random ones, 50.0% expected"),
        (many_unknown, "of the pieces are [UNK]"),
    ],
)
def test_unusual_shares(tmp_path: Path, examine: Examine, change: Callable, message: str) -> None:
    batch = features()
    change(batch)
    status, lines = examine(write(tmp_path / "set", batch))
    assert (status, counted(lines)[1]) == (1, 0)
    assert any(message in text for text in after(lines, "Something is wrong:")), lines


def test_copies(tmp_path: Path, examine: Examine) -> None:
    folder = write(tmp_path / "set", features(), manifest=False)
    for suffix in ("tfrecord", "index"):
        (folder / f"copy.{suffix}").write_bytes((folder / f"part_1.{suffix}").read_bytes())
    status, lines = examine(folder)
    assert status == 1
    (wrong,) = after(lines, "Something is wrong:")
    assert "part_1.tfrecord" in wrong and "copy.tfrecord" in wrong


def test_a_manifest_that_does_not_fit(tmp_path: Path, examine: Examine) -> None:
    folder = write(tmp_path / "set", features())
    manifest = json.loads((folder / "manifest.json").read_text())
    manifest["files"][0]["sha256"] = "0" * 64
    manifest["files"][1]["records"] -= 1
    manifest["totals"]["records"] -= 1
    manifest["vocabulary"]["sha256"] = "0" * 64
    (folder / "manifest.json").write_text(json.dumps(manifest))
    status, lines = examine(folder)
    assert status == 1
    message = "\n".join(after(lines, "Something is wrong:"))
    assert "part_0.tfrecord: is not the file that the manifest describes" in message
    assert "part_1.tfrecord: has 200 records, the manifest says 199" in message
    assert "vocab.txt is not the vocabulary" in message
    (folder / "manifest.json").write_text("{")
    status, lines = examine(folder)
    assert status == 1
    assert any("not valid JSON" in text for text in after(lines, "Something is wrong:"))


@pytest.mark.parametrize(
    ("files", "name", "message"),
    [
        ({}, "", "is empty"),
        ({"a.tfrecord": b""}, "", "no pre-training record"),
        ({"a.tfrecord": b"\x1f\x8b" + b"\x07" * 100}, "", "no pre-training record"),
        ({"a.tfrecord": b"x"}, "a.tfrecord", "a.tfrecord"),
    ],
)
def test_nothing_to_examine(
    tmp_path: Path, capsys: pytest.CaptureFixture[str], files: dict[str, bytes], name: str, message: str
) -> None:
    for each, data in files.items():
        (tmp_path / each).write_bytes(data)
    assert_refused(main([str(tmp_path / name), "--workers", "1"]), capsys.readouterr(), message)


def test_random_damage_never_ends_the_examination(tmp_path: Path, examine: Examine) -> None:
    rng = np.random.default_rng(0)
    batch = features(300)
    for trial in range(12):
        folder = write(tmp_path / f"set{trial}", batch, files=1, manifest=bool(trial % 2))
        path = folder / "part_0.tfrecord"
        data = bytearray(path.read_bytes())
        for position in rng.integers(0, len(data), 5):
            data[position] = rng.integers(256)
        if trial % 3 == 0:
            del data[rng.integers(len(data)) :]
        if trial % 4 == 0:
            path.with_suffix(".index").unlink()
        path.write_bytes(data)
        status, lines = examine(folder)
        assert status in (0, 1)
        assert counted(lines)[1] <= 7
        assert f" {sum(counted(lines)):,} records in 1 files" in lines[0]


def test_workers_change_nothing_and_tensorflow_is_not_needed(tmp_path: Path, examine: Examine) -> None:
    folder = write(tmp_path / "set", features())
    _, lines = examine(folder)
    code = (
        "import sys\n"
        "from data_utils.doctor.__main__ import main\n"
        "if __name__ == '__main__':\n"
        "    status = main(sys.argv[1:])\n"
        "    assert not any(name.split('.')[0] in ('tensorflow', 'tf_keras') for name in sys.modules)\n"
        "    sys.exit(status)\n"
    )
    (tmp_path / "run.py").write_text(code)
    whole = [sys.executable, str(tmp_path / "run.py"), str(folder), "--workers", "2"]
    done = subprocess.run(whole, cwd=ROOT, env={"PYTHONPATH": str(ROOT)}, capture_output=True, text=True)
    assert done.returncode == 0, done.stderr
    assert done.stdout.splitlines() == lines
