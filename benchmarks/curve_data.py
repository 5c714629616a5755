"""Samples for a learning curve: a data set of the user's, real text where tests have it, or random."""

from __future__ import annotations

import tempfile
from pathlib import Path

import numpy as np

from benchmarks.commands import command
from data_utils.records.arrays import GeneratedReader
from data_utils.records.features import pretraining_features
from data_utils.records.reader import RecordReader
from tests.real_data import real_data_root

Samples = dict[str, np.ndarray]

REAL_TEXT = "wikipedia_en/AA/wiki_00"  # one megabyte as WikiExtractor writes it
REAL_VOCABULARY = "vocab/vocab-bert-base-uncased.txt"
SEQUENCE_LENGTH, MASKED_POSITIONS = 128, 20


def read(dataset: Path, vocabulary: int, count: int) -> Samples:
    """The first records of a data set."""
    reader = RecordReader(str(dataset), pretraining_features(SEQUENCE_LENGTH, MASKED_POSITIONS, vocabulary), False)
    return reader.read(np.arange(count) % reader.count)


def generated(vocabulary: int, count: int, seed: int) -> Samples:
    """Random word pieces with random targets, some of them padding."""
    spec = pretraining_features(SEQUENCE_LENGTH, MASKED_POSITIONS, vocabulary)
    samples = GeneratedReader(spec, seed, count).read(np.arange(count))
    real = np.random.default_rng(seed).integers(MASKED_POSITIONS // 2, MASKED_POSITIONS + 1, (count, 1))
    samples["masked_lm_weights"] = (np.arange(MASKED_POSITIONS) < real).astype("float32")
    return samples


def real_text(vocabulary: int, count: int) -> Samples | None:
    """Records made from English Wikipedia by this project; None where the text is not there."""
    text, words = real_data_root() / REAL_TEXT, real_data_root() / REAL_VOCABULARY
    if not (text.exists() and words.exists()):
        return None
    with tempfile.TemporaryDirectory() as folder:
        source, output = Path(folder) / "text", Path(folder) / "records"
        (source / "AA").mkdir(parents=True)
        (source / "AA" / text.name).symlink_to(text)
        arguments: list[object] = ["-m", "data_utils.text", "--wikiextractor", source, "--output", output]
        arguments += ["--vocab-file", words, "--duplicate-factor", 1]
        command(*arguments, "--max-seq-length", SEQUENCE_LENGTH, "--max-predictions", MASKED_POSITIONS)
        return read(output, vocabulary, count)
