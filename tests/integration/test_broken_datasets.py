"""Each broken data set is refused with one line that names file, record (if there is one) and remedy."""

from __future__ import annotations

import gzip
import hashlib
import json
import os
from pathlib import Path
from typing import Any, Callable, NamedTuple

import numpy as np
import pytest

from data_utils.records.features import FeatureSpec, pretraining_features
from data_utils.records.index import build_index
from data_utils.records.pipeline import raise_data_errors, training_dataset
from data_utils.records.reader import RecordReader
from tests.support.record_samples import (
    PREDICTIONS,
    SEQUENCE,
    VOCABULARY,
    example,
    sample,
    spec,
    write,
    write_manifest,
    write_samples,
)
from utilities.errors import UserError

COUNTS = {"a.tfrecord": 6, "b.tfrecord": 5}


class Broken(NamedTuple):
    """A way to break a good data set of two files, and the required parts of the message."""

    name: str
    damage: Callable[[Path], Any]
    words: tuple[str, ...]
    dataset: str = "."
    spec: FeatureSpec = spec()


def replace_record(number: int, **changes: Any) -> Callable[[Path], None]:
    """Replace record ``number`` in the second file, with correct framing and index."""

    def damage(folder: Path) -> None:
        payloads = [example(sample(record, **(changes if record == number else {}))) for record in range(5)]
        write(folder / "b.tfrecord", payloads)
        build_index(folder / "b.tfrecord")

    return damage


def replace_payload(payload: bytes) -> Callable[[Path], None]:
    def damage(folder: Path) -> None:
        write(folder / "b.tfrecord", [example(sample(0)), payload])
        build_index(folder / "b.tfrecord")

    return damage


def flip(record: int, offset: int, indexed: bool = True) -> Callable[[Path], None]:
    """Flip one bit of a record of the second file; ``offset`` counts from the record's start, or its end."""

    def damage(folder: Path) -> None:
        path = folder / "b.tfrecord"
        boundaries = build_index(path)
        data = bytearray(path.read_bytes())
        data[boundaries[record] + offset if offset >= 0 else boundaries[record + 1] + offset] ^= 4
        path.write_bytes(data)
        if not indexed:
            path.with_suffix(".index").unlink()

    return damage


def cut(indexed_before: bool) -> Callable[[Path], None]:
    def damage(folder: Path) -> None:
        path = folder / "b.tfrecord"
        if indexed_before:
            build_index(path)
        os.truncate(path, path.stat().st_size - 30)

    return damage


def compress(folder: Path) -> None:
    path = folder / "b.tfrecord"
    path.write_bytes(gzip.compress(path.read_bytes()))


def only(name: str) -> Callable[[Path], None]:
    """Leave only an empty file of this name (or nothing at all)."""

    def damage(folder: Path) -> None:
        for path in folder.iterdir():
            path.unlink()
        if name:
            (folder / name).touch()

    return damage


def move_below(folder: Path) -> None:
    (folder / "phase1").mkdir()
    for name in COUNTS:
        (folder / name).rename(folder / "phase1" / name)


def manifest(**changes: Any) -> Callable[[Path], None]:
    return lambda folder: write_manifest(folder, COUNTS, **changes)


def settings(**changes: int) -> Callable[[Path], None]:
    values = {"max_seq_length": SEQUENCE, "max_predictions_per_seq": PREDICTIONS, "vocab_size": VOCABULARY}
    return manifest(settings={**values, **changes})


def vocabulary(folder: Path) -> None:
    """Shuffle the vocabulary that the manifest names."""
    pieces = [f"piece {number}\n" for number in range(VOCABULARY)]
    digest = hashlib.sha256("".join(pieces).encode()).hexdigest()
    write_manifest(folder, COUNTS, vocabulary={"file": "vocab.txt", "sha256": digest, "size": VOCABULARY})
    (folder / "vocab.txt").write_text("".join(reversed(pieces)))


def manifest_text(text: bytes) -> Callable[[Path], None]:
    return lambda folder: (folder / "manifest.json").write_bytes(text)


def files(**changes: Any) -> Callable[[Path], None]:
    """Change the manifest's entry of the second file."""

    def damage(folder: Path) -> None:
        write_manifest(folder, COUNTS)
        content = json.loads((folder / "manifest.json").read_text())
        content["files"][1].update(changes)
        del content["totals"]
        (folder / "manifest.json").write_text(json.dumps(content))

    return damage


def unlisted_file(folder: Path) -> None:
    write_manifest(folder, COUNTS)
    write_samples(folder / "c.tfrecord", range(3))


RECORD_1 = ("b.tfrecord: record 1 (counted from 0)",)
RECORD_2 = ("b.tfrecord: record 2 (counted from 0)",)
REMAKE = "make the data set again"
COPY = "copy the file again"
RENEW = "and the next start builds it again"
DAMAGED_LENGTH = ("damaged (checksum of its length", COPY)

CASES = [
    Broken("truncated, indexed before", cut(True), ("b.index", "ends at byte", RENEW)),
    Broken("truncated, no index", cut(False), ("b.tfrecord: record 4 ", "is cut off", "30 bytes more", COPY)),
    Broken("bit of the payload", flip(2, 20), (*RECORD_2, "damaged (checksum of its data", COPY)),
    Broken("bit of the length", flip(2, 0), (*RECORD_2, *DAMAGED_LENGTH)),
    Broken("bit of the length, no index", flip(2, 0, indexed=False), (*RECORD_2, *DAMAGED_LENGTH)),
    Broken("gzip", compress, ("b.tfrecord: record 0 ", "compressed with gzip", "gunzip")),
    Broken(
        "text, not records",
        lambda folder: (folder / "b.tfrecord").write_text("This is no TFRecord file. " * 9),
        ("b.tfrecord: record 0 ", "not a TFRecord file"),
    ),
    Broken(
        "other number of predictions",
        lambda folder: None,
        ("a.tfrecord: record 0 ", "3 values of masked_lm_positions", "set max_predictions_per_seq to 3"),
        spec=pretraining_features(SEQUENCE, 5, VOCABULARY),
    ),
    Broken("not an Example", replace_payload(b"\xff\xfe not a message"), (*RECORD_1, "is not a tf.train.Example")),
    Broken("index is a folder", lambda folder: (folder / "b.index").mkdir(), ("b.index", "cannot be read")),
    Broken("no such folder", lambda folder: None, ("nowhere", "no such folder", "name the folder"), dataset="nowhere"),
    Broken("a file for a folder", lambda folder: None, ("a.tfrecord", "is a file", "name the folder"), "a.tfrecord"),
    Broken("empty folder", only(""), ("is empty", "name a folder")),
    Broken("no record files", only("notes.txt"), ("no *.tfrecord files", "notes.txt", "name the folder")),
    Broken("record files one folder below", move_below, ("no *.tfrecord files", "phase1", "name that folder")),
    Broken("only empty record files", only("a.tfrecord"), ("all *.tfrecord files are empty", REMAKE)),
    Broken(
        "a folder like a record file", lambda folder: (folder / "c.tfrecord").mkdir(), ("c.tfrecord", "is a folder")
    ),
    Broken(
        "unreadable: a dangling link",
        lambda folder: (folder / "c.tfrecord").symlink_to(folder / "nowhere"),
        ("c.tfrecord", "cannot be read (No such file"),
    ),
    Broken("a pipe named like a record file", lambda folder: os.mkfifo(folder / "c.tfrecord"), ("c.tfrecord", "pipe")),
]

# Changes of record 2 of the second file, which every message names.
RECORDS: dict[str, tuple[dict[str, Any], tuple[str, ...]]] = {
    "feature missing": ({"input_mask": None}, ("no feature input_mask", REMAKE)),
    "integers for floats": ({"masked_lm_weights": [1] * 3}, ("masked_lm_weights as int64_list",)),
    "id beyond the vocabulary": (
        {"input_ids": [*range(15), 50]},
        ("input_ids 50 at index 15, outside [0, 50)", "set bert_config.vocab_size to 51 or more"),
    ),
    "id that 32 bits would cut": ({"input_ids": [2**32] * 16}, ("input_ids 4294967296",)),
    "negative id": ({"masked_lm_ids": [1, -7, 3]}, ("masked_lm_ids -7 at index 1", REMAKE)),
    "position beyond the end": ({"masked_lm_positions": [0, 1, 16]}, ("masked_lm_positions 16 at index 2", REMAKE)),
    "label 2": ({"next_sentence_labels": [2]}, ("next_sentence_labels 2", "outside [0, 2)", REMAKE)),
    "segment 2": ({"segment_ids": [2] * 16}, ("segment_ids 2", "set bert_config.type_vocab_size to 3")),
    "weight not a number": ({"masked_lm_weights": [1.0, float("nan"), 0.0]}, ("masked_lm_weights nan at index 1",)),
}
CASES += [Broken(name, replace_record(2, **changes), (*RECORD_2, *words)) for name, (changes, words) in RECORDS.items()]

# Every message names manifest.json.
MANIFESTS: dict[str, tuple[Callable[[Path], Any], tuple[str, ...]]] = {
    "is not JSON": (manifest_text(b'{"format": '), ("not valid JSON",)),
    "nested too deep": (manifest_text(b"[" * 100_000), ("not valid JSON",)),
    "is a list": (manifest_text(b"[]"), ("the whole is []",)),
    "is a pipe": (lambda folder: os.mkfifo(folder / "manifest.json"), ("not a regular",)),
    "lacks its version": (manifest_text(b'{"format": "bert-pretraining"}'), ("version is missing",)),
    "of a later version": (manifest(version=2), ("version is 2", "update")),
    "of another task": (manifest(format="bert-squad"), ("'bert-squad'", "set dataset_dir")),
    "file without count": (files(records=None), ("files[1].records is None",)),
    "names a missing file": (files(name="z.tfrecord"), ("z.tfrecord", "is missing")),
    "names a path": (files(name="../b.tfrecord"), ("files[1].name is '../b.tfrecord'",)),
    "names a file twice": (files(name="a.tfrecord"), ("a.tfrecord twice",)),
    "lacks a file": (unlisted_file, ("c.tfrecord", "not in manifest.json", "move it")),
    "of another size": (files(bytes=17), ("b.tfrecord", "manifest.json says 17", COPY)),
    "of another count": (files(records=4), ("b.tfrecord", "lists 5 records", "says 4", RENEW)),
    "total of another count": (manifest(totals={"records": 12}), ("totals.records is 12", "11")),
    "another vocabulary": (vocabulary, ("vocab.txt: its SHA-256", REMAKE)),
    "entropy no number": (manifest(unigram_entropy_nats=float("nan")), ("unigram_entropy_nats is nan",)),
    "length a text": (settings(max_seq_length="16"), ("settings.max_seq_length is '16'", "delete it")),
    "of another length": (settings(max_seq_length=384), ("max_seq_length 384", "set max_seq_length to 384")),
    "of a larger vocabulary": (settings(vocab_size=30522), ("vocab_size is 30522", "bert_config.vocab_size")),
}
CASES += [Broken(f"manifest: {name}", damage, ("manifest.json", *words)) for name, (damage, words) in MANIFESTS.items()]


@pytest.mark.parametrize("broken", CASES, ids=[case.name for case in CASES])
def test_broken_data_set_is_refused_in_one_clear_line(broken: Broken, tmp_path: Path) -> None:
    folder = tmp_path / "data"
    folder.mkdir()
    write_samples(folder / "a.tfrecord", range(6))
    write_samples(folder / "b.tfrecord", range(5))
    broken.damage(folder)
    with pytest.raises(UserError) as caught:
        train_one_epoch(folder / broken.dataset, broken.spec)
    message = str(caught.value)
    assert len(message.splitlines()) == 1 and message.isprintable()
    assert str(folder) in message and "; " in message  # the file, and after the semicolon the remedy
    for part in broken.words:
        assert part in message, message


def train_one_epoch(folder: Path, features: FeatureSpec) -> None:
    reader = RecordReader(folder, features)
    updates = training_dataset(
        reader, micro_batch_size=1, micro_batches_per_update=3, seed=0, num_updates=-(-reader.count // 3)
    )
    with raise_data_errors(reader):
        for _ in updates:
            pass


def test_the_unbroken_data_set_passes_with_and_without_its_manifest(tmp_path: Path) -> None:
    write_samples(tmp_path / "a.tfrecord", range(6))
    write_samples(tmp_path / "b.tfrecord", range(5))
    train_one_epoch(tmp_path, spec())
    write_manifest(tmp_path, COUNTS)
    train_one_epoch(tmp_path, spec())
    train_one_epoch(tmp_path, pretraining_features(SEQUENCE, PREDICTIONS, VOCABULARY + 14))  # a padded embedding table


def test_file_that_shrinks_and_is_then_replaced_during_the_run(tmp_path: Path) -> None:
    path = tmp_path / "a.tfrecord"
    write_samples(path, range(6))
    reader, size = RecordReader(tmp_path, spec()), path.stat().st_size
    os.truncate(path, size - 30)
    with pytest.raises(UserError, match=r"a\.tfrecord: record 5 .*cut off"):
        reader.read(np.arange(6))
    path.write_bytes(b"\0" * size)
    with pytest.raises(UserError, match=r"a\.tfrecord: record 3 .*damaged"):
        reader.read(np.array([3]))


def test_checksums_are_verified_on_request(tmp_path: Path) -> None:
    path = tmp_path / "a.tfrecord"
    write_samples(path, range(6))
    with pytest.raises(UserError, match=r"no manifest\.json .*data\.verify_checksums"):
        RecordReader(tmp_path, spec(), verify_checksums=True)
    entry = {"name": "a.tfrecord", "records": 6, "bytes": path.stat().st_size}
    good = hashlib.sha256(path.read_bytes()).hexdigest()
    write_manifest(tmp_path, {}, files=[{**entry, "sha256": good}], totals={})
    assert RecordReader(tmp_path, spec(), verify_checksums=True).count == 6
    write_manifest(tmp_path, {}, files=[{**entry, "sha256": hashlib.sha256(b"other").hexdigest()}], totals={})
    assert RecordReader(tmp_path, spec()).count == 6
    with pytest.raises(UserError, match=r"a\.tfrecord: its SHA-256 is not that of manifest\.json; copy"):
        RecordReader(tmp_path, spec(), verify_checksums=True)


def test_wrong_data_is_refused_before_anything_else_is_read(tmp_path: Path) -> None:
    """A wrong sequence length is reported at construction, before a model is built."""
    write_samples(tmp_path / "a.tfrecord", range(3))
    with pytest.raises(UserError, match=r"record 0 .*16 values of input_ids, 32 are .*set max_seq_length to 16"):
        RecordReader(tmp_path, pretraining_features(SEQUENCE * 2, PREDICTIONS, VOCABULARY))
