"""The samples that benchmarks train on, padded and in packs, by this project's names and by Hugging Face's.

N samples · S sequence · P masked positions · R sequences
"""

from __future__ import annotations

import itertools
import json
import tempfile
from collections.abc import Callable, Iterator
from pathlib import Path

import numpy as np

from benchmarks.measuring import command, real_data_root
from benchmarks.settings import MASKED_POSITIONS, SEED, SEQUENCE_LENGTH, VOCABULARY
from data_utils.records.arrays import ArrayReader, GeneratedReader
from data_utils.records.features import FeatureSpec, packed_pretraining_features, pretraining_features
from utilities.errors import UserError

Arrays = dict[str, np.ndarray]

IGNORED = -100  # label of a position that Hugging Face's losses leave out
INPUTS = {"input_ids": "input_ids", "input_mask": "attention_mask", "segment_ids": "token_type_ids"}
LABELS = ("labels", "start_positions", "end_positions")
SAMPLES = 256
PREDICTIONS = {SEQUENCE_LENGTH: MASKED_POSITIONS, 512: 76}  # of one sequence at most, as published

# In the folder of real data
WIKIPEDIA = "wikipedia_en"  # as WikiExtractor writes it, a megabyte a file
WORDS = "vocab/vocab-bert-base-uncased.txt"
SQUAD_TRAINING = "squad/train-v1.1-prefix.json"  # the available part of the training set

# --- Pre-training ---


def pretraining_spec(vocabulary: int = VOCABULARY, length: int = SEQUENCE_LENGTH) -> FeatureSpec:
    """Return the features of the benchmarks' padded pre-training samples."""
    return pretraining_features(length, PREDICTIONS[length], vocabulary)


def full_sequences(length: int = SEQUENCE_LENGTH, count: int = SAMPLES) -> Arrays:
    """Return full sequences of random word pieces, every masked position real: name → (N, …)."""
    return GeneratedReader(pretraining_spec(length=length), SEED, count).read(np.arange(count))


def hugging_face_samples(data: Arrays) -> Arrays:
    """Return the same samples by the names of Hugging Face's models, labels over the whole sequence."""
    labels = np.full(data["input_ids"].shape, IGNORED, np.int32)
    rows = np.arange(len(labels))[:, None]
    labels[rows, data["masked_lm_positions"]] = np.where(data["masked_lm_weights"] > 0, data["masked_lm_ids"], IGNORED)
    inputs = {theirs: data[name] for name, theirs in INPUTS.items()}
    return {**inputs, "labels": labels, "next_sentence_label": data["next_sentence_labels"][:, 0]}


def unpadded(samples: Arrays, rows: np.ndarray) -> Arrays:
    """Return some samples of fine-tuning by the names of Hugging Face's models, padded to the longest of them."""
    length = int(samples["input_mask"][rows].sum(axis=1).max())
    batch = {theirs: samples[name][rows, :length] for name, theirs in INPUTS.items()}
    return {**batch, **{name: samples[name][rows].reshape(-1) for name in LABELS if name in samples}}


def iterate_batches(samples: Arrays, size: int, select: Callable[[Arrays, np.ndarray], Arrays]) -> Iterator[Arrays]:
    """Yield batches in the samples' order without end; ``select`` makes one of samples and their row numbers."""
    count = len(next(iter(samples.values())))
    for begin in itertools.count(0, size):
        yield select(samples, np.arange(begin, begin + size) % count)


def select_rows(samples: Arrays, rows: np.ndarray) -> Arrays:
    return {name: values[rows] for name, values in samples.items()}


def read_samples(dataset: Path, vocabulary: int, count: int) -> Arrays:
    from data_utils.records.reader import RecordReader  # imports TensorFlow

    reader = RecordReader(str(dataset), pretraining_spec(vocabulary), False)
    return reader.read(np.arange(count) % reader.count)


def generated_samples(vocabulary: int, count: int, seed: int = SEED) -> Arrays:
    """Return random word pieces with random targets, some of them padding."""
    samples = GeneratedReader(pretraining_spec(vocabulary), seed, count).read(np.arange(count))
    real = np.random.default_rng(seed).integers(MASKED_POSITIONS // 2, MASKED_POSITIONS + 1, (count, 1))
    samples["masked_lm_weights"] = (np.arange(MASKED_POSITIONS) < real).astype("float32")
    return samples


def wikipedia_files(count: int) -> list[Path]:
    """Return the first files of English Wikipedia, a megabyte each."""
    files = sorted((real_data_root() / WIKIPEDIA).rglob("wiki_*"))
    if not files:
        raise UserError(f"no text in {real_data_root() / WIKIPEDIA}; set BERT_REAL_DATA to the folder of real data")
    return [file.resolve() for file in files[:count]]


def real_samples(vocabulary: int, count: int) -> Arrays | None:
    """Return records made from a megabyte of English Wikipedia; None if the text is absent."""
    words = real_data_root() / WORDS
    if not ((real_data_root() / WIKIPEDIA).exists() and words.exists()):
        return None
    with tempfile.TemporaryDirectory() as folder:
        output = Path(folder) / "records"
        command(
            *("-m", "data_utils.text", "--wikiextractor", *wikipedia_files(1), "--output", output),
            *("--vocab-file", words, "--duplicate-factor", 1),
            *("--max-seq-length", SEQUENCE_LENGTH, "--max-predictions", MASKED_POSITIONS),
        )
        return read_samples(output, vocabulary, count)


# --- Sequences of Wikipedia's lengths, padded and in packs ---

HISTOGRAM = Path(__file__).resolve().parent / "data" / "wikipedia_length_histogram.json"
MASKED_LM_PROB = 0.15
SHORTEST = 5  # tokens; the histogram has no shorter sequence
SEQUENCES_PER_PACK = 3  # at most


def histogram(max_seq_length: int = 512) -> np.ndarray:
    """Return the number of Wikipedia's sequences of 1, 2, … tokens; longer ones count as cut to ``max_seq_length``."""
    counts = np.array(json.loads(HISTOGRAM.read_text(encoding="utf-8"))["counts"])
    return np.append(counts[: max_seq_length - 1], counts[max_seq_length - 1 :].sum())


def packed_samples(max_seq_length: int, rows: int, vocab_size: int) -> tuple[ArrayReader, ArrayReader]:
    """Return padded rows of one sequence each, and packs of the same kind of sequences: random tokens, 15 % masked.

    Args:
        max_seq_length: S, a key of ``PREDICTIONS``.
        rows: padded sequences, and packs.
        vocab_size: vocabulary size of the model.
    """
    from data_utils.packing.merge import pack_arrays
    from data_utils.packing.plan import plan_packing  # imports SciPy, which other benchmarks' memory must not count

    random = np.random.default_rng(SEED)
    counts = histogram(max_seq_length)
    plan = plan_packing(counts, max_seq_length, SEQUENCES_PER_PACK)
    chosen = [plan.packs[kind] for kind in spread_over(np.asarray(plan.repeats), rows, random)]
    bounds = np.cumsum([0, *map(len, chosen)])
    in_packs = _random_sequences(np.concatenate(chosen), max_seq_length, vocab_size, random)
    of_packs = [range(begin, end) for begin, end in itertools.pairwise(bounds)]
    needed = max(int(_masked_tokens(np.array(pack), max_seq_length).sum()) for pack in plan.packs)
    predictions = PREDICTIONS[max_seq_length]
    most = max(needed, predictions + SEQUENCES_PER_PACK)  # masked tokens of a pack, as in data_utils.packing
    packed = pack_arrays(in_packs, of_packs, max_seq_length, most, SEQUENCES_PER_PACK)
    alone = _random_sequences(1 + spread_over(counts, rows, random), max_seq_length, vocab_size, random)
    spec = packed_pretraining_features(max_seq_length, most, SEQUENCES_PER_PACK, vocab_size)
    padded = ArrayReader(pretraining_features(max_seq_length, predictions, vocab_size), alone)
    return padded, ArrayReader(spec, packed)


def spread_over(counts: np.ndarray, number: int, random: np.random.Generator) -> np.ndarray:
    """Return ``number`` indices in proportion to their counts, in random order.

    They are taken at equal distances of the cumulated counts, so that their mean is that of the whole histogram.
    """
    ends = np.cumsum(counts)
    points = (np.arange(number) + 0.5) / number * ends[-1]
    return random.permutation(np.searchsorted(ends, points, side="right"))


def _masked_tokens(lengths: np.ndarray, max_seq_length: int) -> np.ndarray:
    """Return how many tokens of sequences are masked, as data preparation does it."""
    return np.clip(np.round(lengths * MASKED_LM_PROB), 1, PREDICTIONS[max_seq_length]).astype(np.int64)


def _random_sequences(lengths: np.ndarray, max_seq_length: int, vocab_size: int, random: np.random.Generator) -> Arrays:
    """Return pre-training samples of these lengths, padded: name → (R, …)."""
    assert lengths.min() >= SHORTEST
    count, columns = len(lengths), np.arange(max_seq_length)
    mask = (columns < lengths[:, None]).astype(np.int32)
    positions = np.where(mask, random.random(mask.shape), 2.0).argsort(axis=1)[:, : PREDICTIONS[max_seq_length]]
    real = np.arange(positions.shape[1]) < _masked_tokens(lengths, max_seq_length)[:, None]
    return {
        "input_ids": random.integers(0, vocab_size, mask.shape) * mask,
        "input_mask": mask,
        "segment_ids": (columns >= lengths[:, None] // 2) * mask,
        "masked_lm_positions": positions * real,
        "masked_lm_ids": random.integers(0, vocab_size, positions.shape) * real,
        "masked_lm_weights": real.astype(np.float32),
        "next_sentence_labels": random.integers(0, 2, (count, 1)),
    }
