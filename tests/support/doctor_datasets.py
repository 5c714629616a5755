"""Small data sets, intact or with errors."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import numpy as np

from data_utils.packing.merge import pack_arrays
from data_utils.records.features import PACKS_FORMAT, SEQUENCES_FORMAT
from data_utils.records.manifest import write_manifest
from data_utils.records.writer import encode_examples, write_record_file
from data_utils.tokenizer import SPECIAL_TOKENS, read_vocabulary

SEQUENCE, PREDICTIONS, WORDS = 32, 5, 95
PAD, UNK, CLS, SEP, MASK = range(5)
RECORDS = 600


def features(count: int = RECORDS, seed: int = 0) -> dict[str, np.ndarray]:
    """Return records as in the paper: 15 % of the tokens masked, 80/10/10, and every second pair random."""
    rng = np.random.default_rng(seed)
    lengths = rng.integers(12, SEQUENCE + 1, count)
    position = np.arange(SEQUENCE)
    real = position < lengths[:, None]
    middle = (lengths // 2)[:, None]
    original = rng.integers(5, 5 + WORDS, (count, SEQUENCE))
    original[:, 0] = CLS
    original[(position == middle) | (position == lengths[:, None] - 1)] = SEP
    original[~real] = PAD
    counts = np.clip(np.round(lengths * 0.15), 1, PREDICTIONS).astype(int)
    keys = rng.random((count, SEQUENCE))
    keys[(original == CLS) | (original == SEP) | ~real] = 2
    chosen = np.sort(
        np.argsort(keys, axis=1)[:, :PREDICTIONS] + 100 * (np.arange(PREDICTIONS) >= counts[:, None]), axis=1
    )
    used = chosen < 100
    positions = np.where(used, chosen, 0)
    targets = np.where(used, np.take_along_axis(original, positions, 1), 0)
    ids = original.copy()
    rows, slots = np.nonzero(used)
    draw = rng.random(len(rows))
    shown = np.where(
        draw < 0.8, MASK, np.where(draw < 0.9, rng.integers(5, 5 + WORDS, len(rows)), targets[rows, slots])
    )
    ids[rows, positions[rows, slots]] = shown
    return {
        "input_ids": ids,
        "input_mask": real.astype(int),
        "segment_ids": (real & (position > middle)).astype(int),
        "masked_lm_positions": positions,
        "masked_lm_ids": targets,
        "masked_lm_weights": used.astype(np.float32),
        "next_sentence_labels": rng.integers(0, 2, (count, 1)),
    }


def packs(count: int = 300) -> dict[str, np.ndarray]:
    rows = np.arange(2 * count).reshape(count, 2).tolist()
    return pack_arrays(features(2 * count), rows, 2 * SEQUENCE, 2 * PREDICTIONS, 3)


def write(
    folder: Path, batch: dict[str, np.ndarray], files: int = 3, manifest: bool = True, vocabulary: bool = True
) -> Path:
    """Write the batch as a data set of several files."""
    folder.mkdir(parents=True, exist_ok=True)
    entries = []
    for number, rows in enumerate(np.array_split(np.arange(len(batch["input_ids"])), files)):
        messages = encode_examples({name: values[rows] for name, values in batch.items()})
        entries.append(write_record_file(folder / f"part_{number}.tfrecord", messages))
    described: dict[str, Any] = {}
    if vocabulary:
        pieces = [*SPECIAL_TOKENS, *(f"word{number}" for number in range(WORDS))]
        (folder / "vocab.txt").write_text("".join(f"{piece}\n" for piece in pieces))
        described = {"file": "vocab.txt", "sha256": read_vocabulary(folder / "vocab.txt").sha256, "size": len(pieces)}
    if manifest:
        is_packed = "position_ids" in batch
        sizes: dict[str, Any] = {"max_seq_length": batch["input_ids"].shape[1], "vocab_size": 5 + WORDS}
        if is_packed:
            sizes.update(max_predictions_per_pack=2 * PREDICTIONS, max_sequences_per_pack=3)
        else:
            sizes.update(max_predictions_per_seq=PREDICTIONS, masked_lm_prob=0.15)
        totals = {"records": len(batch["input_ids"])}
        write_manifest(folder, sizes, described, entries, totals, 4.0, PACKS_FORMAT if is_packed else SEQUENCES_FORMAT)
    return folder
