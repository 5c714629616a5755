"""Messages and files that are written and decoded without TensorFlow equal those that TensorFlow writes and reads."""

from __future__ import annotations

import errno
from pathlib import Path

import numpy as np
import pytest

from data_utils.records.decoding import ExampleError, decode_examples
from data_utils.records.features import TOKENS, Feature, pretraining_features
from data_utils.records.index import build_index
from data_utils.records.writer import encode_examples, write_record_file
from keras_extensions.backend import tf
from tests.support.pack_samples import LENGTH, PREDICTIONS, VOCABULARY, sequence
from tests.support.record_samples import example

PAIR = [Feature("x", 2, TOKENS)]
SPEC = pretraining_features(LENGTH, PREDICTIONS, VOCABULARY)


def test_records_as_tensorflow_wrote_them() -> None:
    sequences = [sequence(number) for number in range(50)]
    result = decode_examples(SPEC.features, [example(one) for one in sequences])
    for feature in SPEC.features:
        assert np.array_equal(result[feature.name], np.stack([one[feature.name] for one in sequences]))
        assert result[feature.name].dtype == (np.float32 if feature.name == "masked_lm_weights" else np.int64)


@pytest.mark.parametrize("any_length", [False, True])
@pytest.mark.parametrize(
    ("second", "reason"),
    [
        (example({"y": [1]}), "has no feature x (it has y)"),
        (example({"x": [1, 2, 3]}), "has 3 values of x, 2 are expected"),
        (example({"x": [1.0, 2.0]}), "has x as float_list, not int64_list"),
        (b"no message", "is not a tf.train.Example"),
        (example({"x": [1, 300]})[:-1], "is not a tf.train.Example"),
    ],
)
def test_errors_name_the_right_message(second: bytes, reason: str, any_length: bool) -> None:
    with pytest.raises(ExampleError) as caught:
        decode_examples(PAIR, [example({"x": [1, 300]}), second], any_length)
    assert caught.value.row == 1
    assert caught.value.reason.startswith(reason)


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
    assert encode_examples(features(0)) == []


def test_tensorflow_reads_the_file_and_its_checksums(tmp_path: Path) -> None:
    messages = encode_examples(features())
    path = tmp_path / "wiki_000.tfrecord"
    entry = write_record_file(path, messages)
    assert (entry["records"], entry["bytes"]) == (50, path.stat().st_size)
    written = (tmp_path / "wiki_000.index").read_text()
    build_index(path)  # another test compares it with that of the tfrecord package
    assert written == (tmp_path / "wiki_000.index").read_text()
    assert list(tf.data.TFRecordDataset(str(path)).as_numpy_iterator()) == messages


@pytest.mark.parametrize("function", ["os.fsync", "data_utils.records.writer.write_atomically"])  # records, index
def test_a_full_disk_names_the_file_and_leaves_nothing(
    function: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    def full(*arguments: object) -> None:
        raise OSError(errno.ENOSPC, "No space left on device")

    monkeypatch.setattr(function, full)
    with pytest.raises(OSError, match=r"No space left on device: '.*a\.(tfrecord|index)'"):
        write_record_file(tmp_path / "a.tfrecord", [b"record"])
    assert list(tmp_path.iterdir()) == []
