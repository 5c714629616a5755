"""TensorFlow reads written records correctly."""

from __future__ import annotations

import errno
from pathlib import Path

import numpy as np
import pytest

from data_utils.records.index import build_index
from data_utils.records.writer import encode_examples, entropy_nats, frame_records, write_record_file
from keras_extensions.backend import tf


def features(count: int = 50) -> dict[str, np.ndarray]:
    rng = np.random.default_rng(0)
    return {
        "small": rng.integers(0, 128, (count, 7)),
        "wide": rng.integers(0, 2 ** rng.integers(1, 62, (count, 300))),
        "varints": np.tile([0, 1, 127, 128, 255, 16383, 16384, 2**21 - 1, 2**21, 2**35, 2**62], (count, 1)),
        "empty": np.zeros((count, 0), np.int64),
        "float": rng.standard_normal((count, 5)).astype(np.float32),
    }


def test_protobuf_library_reads_the_same() -> None:
    batch = features()
    for row, message in enumerate(encode_examples(batch)):
        parsed = tf.train.Example.FromString(message).features.feature
        assert set(parsed) == set(batch)
        for name in ("small", "wide", "varints", "empty"):
            assert list(parsed[name].int64_list.value) == batch[name][row].tolist()
        assert list(parsed["float"].float_list.value) == batch["float"][row].tolist()
    assert encode_examples({"x": np.zeros((0, 3), np.int64)}) == []


def test_tensorflow_reads_the_file_and_its_checksums(tmp_path: Path) -> None:
    batch = features()
    path = tmp_path / "wiki_000.tfrecord"
    entry = write_record_file(path, frame_records(encode_examples(batch)))
    assert (entry["records"], entry["bytes"]) == (50, path.stat().st_size)
    written = (tmp_path / "wiki_000.index").read_text()
    build_index(path)  # another test compares it with that of the tfrecord package
    assert written == (tmp_path / "wiki_000.index").read_text()
    spec = {
        "small": tf.io.FixedLenFeature([7], tf.int64),
        "wide": tf.io.FixedLenFeature([300], tf.int64),
        "float": tf.io.FixedLenFeature([5], tf.float32),
    }
    read = [tf.io.parse_single_example(record, spec) for record in tf.data.TFRecordDataset(str(path))]
    for name in spec:
        assert np.array_equal(np.stack([record[name] for record in read]), batch[name])


def test_entropy() -> None:
    assert entropy_nats([5, 5, 5, 5, 0]) == pytest.approx(np.log(4))
    assert entropy_nats([9, 0]) == 0
    assert entropy_nats([]) == 0
    assert entropy_nats([1, 3]) == pytest.approx(-0.25 * np.log(0.25) - 0.75 * np.log(0.75))


@pytest.mark.parametrize("function", ["os.fsync", "data_utils.records.writer.write_atomically"])  # records, index
def test_a_full_disk_names_the_file_and_leaves_nothing(
    function: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    def full(*arguments: object) -> None:
        raise OSError(errno.ENOSPC, "No space left on device")

    monkeypatch.setattr(function, full)
    with pytest.raises(OSError, match=r"No space left on device: '.*a\.tfrecord'"):
        write_record_file(tmp_path / "a.tfrecord", frame_records([b"record"]))
    assert list(tmp_path.iterdir()) == []
