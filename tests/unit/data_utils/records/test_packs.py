"""Packs: accepted and refused records, the number of sequences, and the samples that share a pack."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import numpy as np
import pytest

from data_utils.packing.merge import pack_arrays
from data_utils.records.features import FeatureSpec, packed_pretraining_features, pretraining_features
from data_utils.records.packs import generated_packs, sequences_per_pack
from data_utils.records.reader import RecordReader
from data_utils.records.validation import find_problem
from tests.support.record_samples import write_arrays, write_manifest
from utilities.errors import UserError

LENGTH, PREDICTIONS, SEQUENCES, VOCABULARY = 16, 6, 3, 50


def packed(predictions: int, sequences: int) -> FeatureSpec:
    return packed_pretraining_features(LENGTH, predictions, sequences, VOCABULARY)


SPEC = packed(PREDICTIONS, SEQUENCES)
PACKS = [[0, 1, 2], [3], [4, 5]]


def packs() -> dict[str, np.ndarray]:
    lengths = np.array([5, 4, 7, 16, 6, 8])
    random = np.random.default_rng(0)
    mask = (np.arange(LENGTH) < lengths[:, None]).astype(np.int32)
    sequences = {
        "input_ids": random.integers(0, VOCABULARY, mask.shape),
        "input_mask": mask,
        "segment_ids": (np.arange(LENGTH) > 2) * mask,
        "masked_lm_positions": np.tile([1, 3, 0], (6, 1)),
        "masked_lm_ids": random.integers(0, VOCABULARY, (6, 3)),
        "masked_lm_weights": np.tile([1.0, 1.0, 0.0], (6, 1)),
        "next_sentence_labels": np.arange(6)[:, None] % 2,
    }
    return pack_arrays(sequences, PACKS, LENGTH, PREDICTIONS, SEQUENCES)


def describe(folder: Path, **changes: Any) -> None:
    sizes = {"max_predictions_per_pack": PREDICTIONS, "max_sequences_per_pack": SEQUENCES}
    settings = {"max_seq_length": LENGTH, "vocab_size": VOCABULARY, **sizes}
    content = {"format": "packed-pretraining", "settings": settings, "totals": {"records": 3, "sequences": 6}}
    write_manifest(folder, {"packs.tfrecord": 3}, **{**content, **changes})


def test_packs_are_read_as_they_were_written(tmp_path: Path) -> None:
    arrays = packs()
    write_arrays(tmp_path / "packs.tfrecord", arrays)
    reader = RecordReader(tmp_path, SPEC)
    read = reader.read(np.arange(3))
    assert set(read) == set(arrays)
    for name, values in arrays.items():
        np.testing.assert_array_equal(read[name], values, err_msg=name)
    assert sequences_per_pack(reader) == 2.0  # counted, as there is no manifest
    describe(tmp_path, totals={"records": 3, "sequences": 5})
    assert sequences_per_pack(RecordReader(tmp_path, SPEC)) == 5 / 3


@pytest.mark.parametrize(
    ("feature", "index", "value", "reason"),
    [
        ("input_mask", (0, 6), 1, "that is not 1, 2, … for one sequence after another"),
        ("input_mask", (2, 0), 4, "4 at index 0, outside [0, 4); make the data set again"),
        ("position_ids", (0, 5), 5, "that do not start at 0 with each sequence"),
        ("next_sentence_positions", (2, 1), 7, "that are not the first tokens"),
        ("next_sentence_weights", (1, 1), 1.0, "that are not 1 for each sequence"),
        ("masked_lm_positions", (2, 0), 15, "in the padding"),
    ],
)
def test_a_pack_that_would_mix_sequences_is_refused(
    tmp_path: Path, feature: str, index: tuple[int, int], value: float, reason: str
) -> None:
    arrays = packs()
    arrays[feature][index] = value
    problem = find_problem(SPEC, arrays)
    assert problem is not None and problem.row == index[0]
    write_arrays(tmp_path / "packs.tfrecord", arrays)
    with pytest.raises(UserError) as refused:
        RecordReader(tmp_path, SPEC).read(np.arange(3))
    message = str(refused.value)
    assert f"record {index[0]} (counted from 0) has {feature} {reason}" in message
    assert "packs.tfrecord" in message and " again" in message


@pytest.mark.parametrize(
    ("spec", "changes", "reason"),
    [
        (pretraining_features(LENGTH, 3, VOCABULARY), {}, "set packing.max_sequences_per_pack to train on packs"),
        (SPEC, {"format": "bert-pretraining"}, "leave packing.max_sequences_per_pack unset, or pack the data set"),
        (
            packed(6, 4),
            {},
            "packing.max_sequences_per_pack 3, the config says 4; set packing.max_sequences_per_pack to 3",
        ),
        (packed(7, 3), {}, "made with packing.max_predictions_per_pack 6, the config says 7"),
    ],
)
def test_a_manifest_of_other_settings_is_refused(tmp_path: Path, spec: Any, changes: dict, reason: str) -> None:
    write_arrays(tmp_path / "packs.tfrecord", packs())
    describe(tmp_path, **changes)
    with pytest.raises(UserError, match="manifest") as refused:
        RecordReader(tmp_path, spec)
    assert reason in str(refused.value)
    (tmp_path / "manifest.json").unlink()
    with pytest.raises(UserError, match=r"set packing\.max_predictions_per_pack to 6"):
        RecordReader(tmp_path, packed(5, SEQUENCES))


@pytest.mark.parametrize(("length", "limit"), [(128, 3), (32, 1), (17, 4)])
def test_generated_packs_are_sound_and_full(length: int, limit: int) -> None:
    reader = generated_packs(length, 20, limit, VOCABULARY, seed=1, count=50)
    read = reader.read(np.arange(50))
    assert find_problem(reader.spec, read) is None
    assert (read["input_mask"] > 0).all()
    assert sequences_per_pack(reader) == limit
    again = generated_packs(length, 20, limit, VOCABULARY, seed=1, count=50).read(np.arange(50))
    assert all(np.array_equal(again[name], values) for name, values in read.items())
    single = generated_packs(length, 20, limit, VOCABULARY, seed=1, count=50, type_vocab_size=1).read(np.arange(50))
    assert read["segment_ids"].max() == 1 and single["segment_ids"].max() == 0
