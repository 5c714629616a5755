"""Small data sets of pre-training, written by TensorFlow itself."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import numpy as np

from data_utils.records.features import FeatureSpec, pretraining_features
from keras_extensions.backend import tf

SEQUENCE, PREDICTIONS, VOCABULARY = 16, 3, 50


def spec() -> FeatureSpec:
    return pretraining_features(SEQUENCE, PREDICTIONS, VOCABULARY)


def sample(number: int, **changes: Any) -> dict[str, Any]:
    """Return record ``number``; its first two tokens encode the number, which shows the order in a batch."""
    random = np.random.default_rng(number)
    features: dict[str, Any] = {
        "input_ids": [number // VOCABULARY, number % VOCABULARY, *random.integers(0, VOCABULARY, SEQUENCE - 2)],
        "input_mask": [1] * SEQUENCE,
        "segment_ids": [0] * 8 + [1] * 8,
        "masked_lm_positions": sorted(random.choice(SEQUENCE, PREDICTIONS, replace=False)),
        "masked_lm_ids": random.integers(0, VOCABULARY, PREDICTIONS),
        "masked_lm_weights": [1.0, 1.0, float(number % 2)],
        "next_sentence_labels": [number % 2],
    }
    features.update(changes)
    return {name: values for name, values in features.items() if values is not None}


def example(features: dict[str, Any]) -> bytes:
    """Return a message written by the protobuf library; a feature of None has no list."""
    message = {}
    for name, values in features.items():
        if values is None:
            message[name] = tf.train.Feature()
        elif len(values) and isinstance(values[0], (float, np.floating)):
            message[name] = tf.train.Feature(float_list=tf.train.FloatList(value=values))
        elif len(values) and isinstance(values[0], bytes):
            message[name] = tf.train.Feature(bytes_list=tf.train.BytesList(value=values))
        else:
            message[name] = tf.train.Feature(int64_list=tf.train.Int64List(value=[int(value) for value in values]))
    return tf.train.Example(features=tf.train.Features(feature=message)).SerializeToString()


def write(path: Path, payloads: list[bytes], compression: str | None = None) -> None:
    with tf.io.TFRecordWriter(str(path), compression) as writer:
        for payload in payloads:
            writer.write(payload)


def write_arrays(path: Path, arrays: dict[str, np.ndarray]) -> None:
    """Write records from the rows of arrays (N, L), with float lists for floating-point arrays."""
    write(path, [example(dict(zip(arrays, row))) for row in zip(*arrays.values())])


def write_samples(path: Path, numbers: range) -> None:
    write(path, [example(sample(number)) for number in numbers])


def write_manifest(folder: Path, counts: dict[str, int], **changes: Any) -> None:
    manifest: dict[str, Any] = {
        "format": "bert-pretraining",
        "version": 1,
        "settings": {"max_seq_length": SEQUENCE, "max_predictions_per_seq": PREDICTIONS, "vocab_size": VOCABULARY},
        "vocabulary": {"file": "vocab.txt", "sha256": "0" * 64, "size": VOCABULARY},
        "files": [
            {"name": name, "records": records, "bytes": (folder / name).stat().st_size, "sha256": "0" * 64}
            for name, records in counts.items()
        ],
        "totals": {"records": sum(counts.values())},
        "unigram_entropy_nats": 3.5,
    }
    manifest.update(changes)
    (folder / "manifest.json").write_text(json.dumps(manifest))


def numbers_of(ids: np.ndarray) -> list[int]:
    """Return the record numbers of a batch of ``input_ids`` with any leading axes."""
    rows = np.asarray(ids).reshape(-1, SEQUENCE)
    return (rows[:, 0] * VOCABULARY + rows[:, 1]).tolist()
