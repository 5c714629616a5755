"""Examines the files of a data set, and compares counts and shares with what they should be.

Shapes: R records, S max_seq_length, P masked positions.
"""

from __future__ import annotations

import contextlib
import hashlib
import math
import re
from collections import Counter
from collections.abc import Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any, NamedTuple

import numpy as np

from data_utils.doctor.records import Checker, DataSet, index_of
from data_utils.records.manifest import check_files, sha256_of
from data_utils.records.validation import Batch
from data_utils.records.writer import RecordFile, frame_records
from data_utils.text.masking import MASK_SHARE, RANDOM_SHARE
from utilities.errors import UserError

PROBLEMS_SHOWN = 10
SIGMAS = 5.0  # a share is wrong if chance alone would cause it in only one of a million data sets
TOLERANCE = 0.01  # accepted deviation of a share, in addition to chance
RANDOM_NEXT_TOLERANCE = 0.03
MOST_COPIES = 0.01  # share of records that are copies, masks included; more mean a duplicate file or a broken script
MOST_UNKNOWN = 0.05  # share of [UNK]; more mean a vocabulary of another language or script


@dataclass
class FileFindings:
    path: Path
    counts: Counter[str] = field(default_factory=Counter)  # of the good records
    bad: int = 0
    problems: list[str] = field(default_factory=list)  # the first bad records
    reasons: Counter[str] = field(default_factory=Counter)  # bad records by reason, without its numbers
    examples: dict[str, str] = field(default_factory=dict)  # the first such reason, with its numbers
    digests: list[np.ndarray] = field(default_factory=list)  # of sampled records
    sha256: str | None = None
    index_problem: str | None = None
    repaired: dict[str, Any] | None = None  # manifest entry of the file with the good records alone

    @property
    def records(self) -> int:
        return self.counts["records"] + self.bad


def examine_file(
    checker: Checker, probability: float | None, sampled: int, output: Path | None, path: Path
) -> FileFindings:
    """Read all records of a file.

    Args:
        checker: Checks the records.
        probability: The share of tokens that the data set's settings mask, if it is known.
        sampled: One record in this number, chosen by content, is later compared with all others.
        output: Folder for a file with the good records alone; None: it is not written.
        path: The record file.
    """
    found = FileFindings(path, sha256=sha256_of(path))
    _, found.index_problem = index_of(path)
    with contextlib.ExitStack() as stack:
        file = stack.enter_context(RecordFile(output / path.name)) if output is not None else None
        for chunk in checker.read(path):
            found.bad += len(chunk.problems)
            for number, reason in sorted(chunk.problems.items()):
                kind = re.sub(r"-?\d[\d.,]*", "#", reason)
                found.reasons[kind] += 1
                found.examples.setdefault(kind, reason)
                if len(found.problems) < PROBLEMS_SHOWN:
                    found.problems.append(f"{path.name}, record {number} {reason}")
            if chunk.payloads:
                found.counts.update(_count(chunk.batch, checker.special, probability))
                found.digests.append(_digests(chunk.payloads, sampled))
                if file is not None:
                    file.add(frame_records(chunk.payloads))
        if file is not None and file.records:
            found.repaired = file.finish()
    return found


def _count(batch: Batch, special: Sequence[int] | None, probability: float | None) -> dict[str, int]:
    """Count a batch of good records."""
    numbers, ids, positions = batch["input_mask"], batch["input_ids"], batch["masked_lm_positions"]
    rows, slots = np.nonzero(batch["masked_lm_weights"] > 0)
    shown, targets = ids[rows, positions[rows, slots]], batch["masked_lm_ids"][rows, slots]
    _, unknown, _, _, mask = special or [-1] * 5  # no id is negative
    lengths = (numbers > 0).sum(1)
    labels = batch["next_sentence_labels"]
    sequences = batch.get("next_sentence_weights", np.ones_like(labels)) > 0
    counts = {
        "records": len(numbers),
        "sequences": int(sequences.sum()),
        "tokens": int(lengths.sum()),
        "predictions": len(rows),
        "masked": int((shown == mask).sum()),
        "kept": int((shown == targets).sum()),
        "random next": int((labels * sequences).sum()),
        "unknown": int((ids[numbers > 0] == unknown).sum() + (targets == unknown).sum() - (shown == unknown).sum()),
    }
    if probability:  # as many predictions as ``data_utils.text`` makes
        most = np.minimum(positions.shape[1], np.maximum(lengths - 3, 0))
        counts["expected predictions"] = int(np.minimum(np.maximum(np.round(lengths * probability), 1), most).sum())
    return counts


def _digests(payloads: Sequence[bytes], sampled: int) -> np.ndarray:
    """Return the digests of one record in ``sampled``; equal records are either all sampled or none."""
    digests = b"".join(hashlib.blake2b(payload, digest_size=8).digest() for payload in payloads)
    numbers = np.frombuffer(digests, np.uint64)
    return numbers[numbers % np.uint64(sampled) == 0]


class Share(NamedTuple):
    """A share that tells a good preparation from a broken one."""

    text: str
    is_off: bool


@dataclass
class Diagnosis:
    """Everything that was found in a data set."""

    wrong: list[str]  # what must be fixed before training
    notes: list[str]  # what is worth knowing
    problems: list[str]  # the first bad records
    counts: Counter[str]  # of the good records
    bad: int  # records that cannot be used
    shares: list[Share]

    @property
    def records(self) -> int:
        return self.counts["records"] + self.bad


def diagnose(data: DataSet, files: Sequence[FileFindings]) -> Diagnosis:
    """Merge the findings of all files and compare them with the manifest and with the published preparation."""
    counts: Counter[str] = sum((file.counts for file in files), Counter())
    digests = np.concatenate([np.empty(0, np.uint64), *(part for file in files for part in file.digests)])
    problems = [problem for file in files for problem in file.problems]
    bad = sum(file.bad for file in files)
    has_pairs = data.manifest is None or data.manifest.has_next_sentences
    shares = _shares(counts, digests, data.vocabulary is not None, has_pairs) if counts["records"] else []
    found = Diagnosis(list(data.wrong), list(data.notes), problems[:PROBLEMS_SHOWN], counts, bad, shares)
    _judge_files(data, files, found)
    found.wrong += [share.text for share in shares if share.is_off]
    return found


def _judge_files(data: DataSet, files: Sequence[FileFindings], found: Diagnosis) -> None:
    """Compare the files with their indices and the manifest, and report bad records."""
    found.wrong.extend(file.index_problem for file in files if file.index_problem is not None)
    if data.manifest is not None:
        try:
            check_files(data.manifest, data.folder)
        except UserError as error:
            found.wrong.append(str(error))
        by_name = {file.path.name: file for file in files}
        for entry in data.manifest.files:
            file = by_name.get(entry.name)
            if file is not None and file.records != entry.records:
                found.wrong.append(f"{entry.name}: has {file.records:,} records, the manifest says {entry.records:,}")
            elif file is not None and entry.sha256 not in (None, file.sha256):
                found.wrong.append(f"{entry.name}: is not the file that the manifest describes (SHA-256)")
    for kind, number in sum((file.reasons for file in files), Counter()).most_common():
        example = next(file.examples[kind] for file in files if kind in file.examples)
        found.wrong.append(f"{number:,} records, the first of which {example}" if number > 1 else f"1 record {example}")
    if not found.counts["records"]:
        found.wrong.append("no record can be used")


def _shares(counts: Counter[str], digests: np.ndarray, knows_vocabulary: bool, has_pairs: bool) -> list[Share]:
    """Compare shares with the settings and with the published masking (Devlin et al. 2019, section 3.1)."""
    tokens, predictions, sequences = counts["tokens"], counts["predictions"], counts["sequences"]
    shares = []
    if counts["expected predictions"]:
        expected = counts["expected predictions"] / tokens
        shares.append(_near("of the tokens are to be predicted", predictions, tokens, expected))
    if knows_vocabulary:
        replaced = predictions - counts["masked"] - counts["kept"]
        shares += [
            _near("of the tokens to predict show [MASK]", counts["masked"], predictions, MASK_SHARE),
            _near("of the tokens to predict show another piece", replaced, predictions, RANDOM_SHARE),
            _near(
                "of the tokens to predict show themselves", counts["kept"], predictions, 1 - MASK_SHARE - RANDOM_SHARE
            ),
            _at_most("of the pieces are [UNK]", counts["unknown"] / tokens, MOST_UNKNOWN),
        ]
    random_next = counts["random next"]
    if has_pairs:
        shares.append(
            _near("of the second sentences are random ones", random_next, sequences, 0.5, RANDOM_NEXT_TOLERANCE)
        )
    copies = 1 - np.unique(digests).size / max(1, digests.size)
    return [*shares, _at_most("of the records are copies of others", copies if digests.size else 0, MOST_COPIES)]


def _near(text: str, part: int, whole: int, expected: float, tolerance: float = TOLERANCE) -> Share:
    chance = SIGMAS * math.sqrt(expected * (1 - expected) / whole)
    is_off = abs(part / whole - expected) > tolerance + chance
    return Share(f"{part / whole:.2%} {text}, {expected:.1%} expected", is_off)


def _at_most(text: str, share: float, most: float) -> Share:
    return Share(f"{share:.2%} {text}, at most {most:.0%} expected", share > most)
