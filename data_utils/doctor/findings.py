"""Counts the records of a data set and compares the counts with what they should be.

Shapes: R records, S max_seq_length, P masked positions.
"""

from __future__ import annotations

import hashlib
import math
import re
from collections import Counter
from collections.abc import Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import numpy as np

from data_utils.doctor.records import Batch, Checker, DataSet, Form, index_of
from data_utils.packing import plan_packing
from data_utils.records.manifest import check_files, sha256_of
from data_utils.text.masking import MASK_SHARE, RANDOM_SHARE
from utilities.errors import UserError

PROBLEMS_SHOWN = 10
LINES_SHOWN, LINE_CHARACTERS = 5, 80
SEQUENCES_PER_PACK = 3  # for the estimate of what packing would give
SIGMAS = 5.0  # a share is wrong if chance alone would cause it in only one of a million data sets
MOST_COPIES = 0.01  # share of records that are copies, masks included; more mean a duplicate file or a broken script
MOST_UNKNOWN = 0.05  # share of [UNK]; more mean a vocabulary of another language or script
MUCH_REPEATED = 0.1  # share of repeated lines that is worth reporting
WORTH_PACKING = 1.1


@dataclass
class Share:
    """A share of some cases, and what it should be."""

    found: float
    expected: float | None  # None where any share is right
    cases: int
    tolerance: float = 0.01  # accepted deviation, in addition to chance

    @property
    def is_off(self) -> bool:
        if self.expected is None or not self.cases:
            return False
        chance = SIGMAS * math.sqrt(self.expected * (1 - self.expected) / self.cases)
        return abs(self.found - self.expected) > self.tolerance + chance


def ratio(part: float, whole: float) -> float:
    return part / whole if whole else 0.0


@dataclass
class Counts:
    """Sums over good records."""

    lengths: np.ndarray  # (S + 1,) sequences of each length
    predictions_per_record: np.ndarray  # (P + 1,) records with each number of masked positions
    records: int = 0  # packs where the data set is packed
    sequences: int = 0
    tokens: int = 0  # without padding
    predictions: int = 0  # masked positions
    weighted: float = 0.0  # their weights
    masked: int = 0  # those that show [MASK]
    kept: int = 0  # those that show their own piece
    random_next: int = 0  # sequences whose second segment is a random one
    unknown: int = 0  # [UNK] among the pieces before masking

    @classmethod
    def zero(cls, form: Form) -> Counts:
        return cls(np.zeros(form.max_seq_length + 1, np.int64), np.zeros(form.max_predictions + 1, np.int64))

    def add(self, other: Counts) -> None:
        for name, value in vars(other).items():
            setattr(self, name, getattr(self, name) + value)


def count(batch: Batch, original: np.ndarray, special: Sequence[int] | None) -> Counts:
    """Count a batch of good records; ``original`` (R, S) are the ids before masking."""
    numbers, predicted = batch["input_mask"], batch["masked_lm_weights"] > 0
    _, unknown, _, _, mask = special or [-1] * 5  # no id is negative
    rows, slots = np.nonzero(predicted)
    shown = batch["input_ids"][rows, batch["masked_lm_positions"][rows, slots]]
    lengths = np.stack([(numbers == number).sum(1) for number in range(1, int(numbers.max()) + 1)])
    lengths = lengths[lengths > 0]
    sequence_weights = batch.get("next_sentence_weights", np.ones_like(batch["next_sentence_labels"]))
    return Counts(
        lengths=np.bincount(lengths, minlength=numbers.shape[1] + 1),
        predictions_per_record=np.bincount(predicted.sum(1), minlength=predicted.shape[1] + 1),
        records=len(numbers),
        sequences=lengths.size,
        tokens=int((numbers > 0).sum()),
        predictions=len(rows),
        weighted=float(batch["masked_lm_weights"].sum()),
        masked=int((shown == mask).sum()),
        kept=int((shown == batch["masked_lm_ids"][rows, slots]).sum()),
        random_next=int((batch["next_sentence_labels"] * (sequence_weights > 0)).sum()),
        unknown=int(((original == unknown) & (numbers > 0)).sum()),
    )


@dataclass
class FileFindings:
    path: Path
    counts: Counts
    bad: int = 0
    problems: list[tuple[str, int, str]] = field(default_factory=list)  # file, record and reason of the first bad ones
    reasons: Counter[str] = field(default_factory=Counter)  # bad records by reason, without its numbers
    examples: dict[str, str] = field(default_factory=dict)  # the first such reason, with its numbers
    payloads: list[np.ndarray] = field(default_factory=list)  # digests of sampled records
    texts: list[np.ndarray] = field(default_factory=list)  # digests of their text before masking
    sha256: str | None = None
    index_problem: str | None = None
    has_index: bool = True

    @property
    def records(self) -> int:
        return self.counts.records + self.bad


def examine_file(checker: Checker, form: Form, sampled: int, with_checksum: bool, path: Path) -> FileFindings:
    """Read all records of a file; one in ``sampled``, chosen by content, is compared with all others."""
    found = FileFindings(path, Counts.zero(form))
    boundaries, found.index_problem = index_of(path)
    found.has_index = boundaries is not None or found.index_problem is not None
    for chunk in checker.read(path):
        found.bad += len(chunk.problems)
        for number, reason in sorted(chunk.problems.items()):
            kind = re.sub(r"-?\d[\d.,]*", "#", reason)
            found.reasons[kind] += 1
            found.examples.setdefault(kind, reason)
            if len(found.problems) < PROBLEMS_SHOWN:
                found.problems.append((path.name, number, reason))
        if chunk.batch is not None:
            original = _before_masking(chunk.batch)
            found.counts.add(count(chunk.batch, original, checker.special))
            payloads, texts = _digests(chunk.payloads), _digests([row.tobytes() for row in original])
            found.payloads.append(payloads[_is_sampled(payloads, sampled)])
            found.texts.append(texts[_is_sampled(texts, sampled)])
    if with_checksum:
        found.sha256 = sha256_of(path)
    return found


def _before_masking(batch: Batch) -> np.ndarray:
    ids = batch["input_ids"].copy()
    rows, slots = np.nonzero(batch["masked_lm_weights"] > 0)
    ids[rows, batch["masked_lm_positions"][rows, slots]] = batch["masked_lm_ids"][rows, slots]
    return ids


def _digests(texts: Sequence[bytes]) -> np.ndarray:
    return np.frombuffer(b"".join(hashlib.blake2b(text, digest_size=8).digest() for text in texts), np.uint64)


def _is_sampled(digests: np.ndarray, sampled: int) -> np.ndarray:
    """Sample one digest in ``sampled``; equal digests are either all sampled or none."""
    return (digests >> np.uint64(20)) % np.uint64(sampled) == 0


@dataclass
class FileLines:
    """The lines of a sentence file that are not empty."""

    path: Path
    lines: int
    digests: np.ndarray  # (K,) uint64, digests of the different sampled lines
    counts: np.ndarray  # (K,) how often each occurs
    places: np.ndarray  # (K,) the byte at which each first occurs


@dataclass
class LineFindings:
    """The repeated lines of a corpus: captions, notices and lists that every article has."""

    lines: int
    repeated: float  # share of lines that repeat an earlier one
    frequent: list[tuple[str, int]]  # the most frequent of these, and roughly how often each occurs


def examine_lines(sampled: int, path: Path) -> FileLines:
    """Read a sentence file; one line in ``sampled``, chosen by content, is compared with all others."""
    with open(path, "rb") as stream:
        lines = stream.readlines()
    starts = np.cumsum([0, *map(len, lines)])[:-1]
    filled = [place for place, line in enumerate(lines) if line.strip()]
    digests = _digests([lines[place].strip() for place in filled])
    chosen = np.flatnonzero(_is_sampled(digests, sampled))
    found, first, counts = np.unique(digests[chosen], return_index=True, return_counts=True)
    return FileLines(path, len(filled), found, counts, starts[filled][chosen][first])


def merge_lines(files: Sequence[FileLines]) -> LineFindings:
    digests, inverse = np.unique(np.concatenate([file.digests for file in files]), return_inverse=True)
    counts = np.bincount(inverse, np.concatenate([file.counts for file in files]), digests.size).astype(np.int64)
    top = np.argsort(-counts, kind="stable")[:LINES_SHOWN].tolist()
    frequent = [(_line(digests[place], files), int(counts[place])) for place in top if counts[place] > 1]
    repeated = 1 - digests.size / counts.sum() if digests.size else 0.0
    return LineFindings(sum(file.lines for file in files), float(repeated), frequent)


def _line(digest: np.uint64, files: Sequence[FileLines]) -> str:
    file = next(file for file in files if digest in file.digests)
    with open(file.path, "rb") as stream:
        stream.seek(int(file.places[np.searchsorted(file.digests, digest)]))
        text = stream.readline().decode("utf-8", "replace").strip()
    return text if len(text) <= LINE_CHARACTERS else text[: LINE_CHARACTERS - 1] + "…"


@dataclass
class Packing:
    factor: float  # sequences in a pack on average
    efficiency_before: float  # share of real tokens
    efficiency: float  # share of real tokens in packs


@dataclass
class Diagnosis:
    """Everything that was found in a data set."""

    wrong: list[str]  # what must be fixed before training
    notes: list[str]  # what is worth knowing
    problems: list[dict[str, Any]]  # the first bad records: file, record, reason
    records: int
    bad: int  # records that cannot be used
    counts: Counts  # of the good records
    mask_rate: Share  # tokens to predict
    masking: dict[str, Share] | None  # what they show; None where the vocabulary is not known
    next_sentence: Share  # random second segments
    unknown: float | None  # share of [UNK]; None where the vocabulary is not known
    copies: float  # share of records that equal an earlier one
    same_text: float  # share of records whose text equals an earlier one's
    lines: LineFindings | None  # None without a corpus
    packing: Packing | None  # None for packs


def diagnose(data: DataSet, files: Sequence[FileFindings], lines: LineFindings | None) -> Diagnosis:
    counts = Counts.zero(data.form)
    for file in files:
        counts.add(file.counts)
    problems = [dict(zip(("file", "record", "reason"), problem)) for file in files for problem in file.problems]
    knows_vocabulary = data.vocabulary is not None
    found = Diagnosis(
        wrong=list(data.wrong),
        notes=list(data.notes),
        problems=problems[:PROBLEMS_SHOWN],
        records=sum(file.records for file in files),
        bad=sum(file.bad for file in files),
        counts=counts,
        mask_rate=_mask_rate(counts, data),
        masking=_masking(counts) if knows_vocabulary else None,
        next_sentence=Share(ratio(counts.random_next, counts.sequences), 0.5, counts.sequences, 0.03),
        unknown=ratio(counts.unknown, counts.tokens) if knows_vocabulary else None,
        copies=_copies([part for file in files for part in file.payloads]),
        same_text=_copies([part for file in files for part in file.texts]),
        lines=lines,
        packing=None,
    )
    if counts.sequences and not data.form.max_sequences:
        plan = plan_packing(counts.lengths[1:], data.form.max_seq_length, SEQUENCES_PER_PACK, "lpfhp")
        before = ratio(counts.tokens, counts.sequences * data.form.max_seq_length)
        found.packing = Packing(plan.packing_factor, before, plan.efficiency)
    _judge_files(data, files, found)
    _judge_shares(found)
    return found


def _masking(counts: Counts) -> dict[str, Share]:
    """Compare the masking with the published 80, 10 and 10 % (Devlin et al. 2019, section 3.1)."""
    total = counts.predictions
    return {
        "masked": Share(ratio(counts.masked, total), MASK_SHARE, total),
        "replaced": Share(ratio(total - counts.masked - counts.kept, total), RANDOM_SHARE, total),
        "kept": Share(ratio(counts.kept, total), 1 - MASK_SHARE - RANDOM_SHARE, total),
    }


def _mask_rate(counts: Counts, data: DataSet) -> Share:
    """Compare the share of predicted tokens with the share that follows from the data set's settings and lengths."""
    found = ratio(counts.predictions, counts.tokens)
    probability = data.manifest.settings.get("masked_lm_prob") if data.manifest is not None else None
    if not probability or data.form.max_sequences:
        return Share(found, None, counts.tokens, 0.0)
    lengths = np.arange(counts.lengths.size)
    each = np.minimum(
        np.clip(np.round(lengths * probability), 1, data.form.max_predictions), np.maximum(lengths - 3, 0)
    )
    return Share(found, ratio(float((each * counts.lengths).sum()), counts.tokens), counts.tokens)


def _copies(parts: Sequence[np.ndarray]) -> float:
    digests = np.concatenate([np.empty(0, np.uint64), *parts])
    return 1 - np.unique(digests).size / digests.size if digests.size else 0.0


def _judge_files(data: DataSet, files: Sequence[FileFindings], found: Diagnosis) -> None:
    """Compare the files with their indices and the manifest, and report bad records."""
    found.wrong.extend(file.index_problem for file in files if file.index_problem is not None)
    without_index = sum(not file.has_index for file in files)
    if without_index:
        files_have = "1 file has" if without_index == 1 else f"{without_index:,} files have"
        found.notes.append(f"{files_have} no index; the first run that reads the data set will write it")
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
    reasons: Counter[str] = Counter()
    for file in files:
        reasons.update(file.reasons)
    for kind, number in reasons.most_common():
        example = next(file.examples[kind] for file in files if kind in file.examples)
        found.wrong.append(f"{number:,} records, the first of which {example}" if number > 1 else f"1 record {example}")
    if not found.counts.records:
        found.wrong.append("no record can be used")


def _judge_shares(found: Diagnosis) -> None:
    shown = {"masked": "[MASK]", "replaced": "another piece", "kept": "themselves"}
    for name, value in (found.masking or {}).items():
        if value.is_off:
            found.wrong.append(
                f"{value.found:.1%} of the tokens to predict show {shown[name]}, {value.expected:.0%} should"
            )
    rate = found.mask_rate
    if rate.is_off:
        found.wrong.append(f"{rate.found:.1%} of the tokens are to be predicted; by the settings {rate.expected:.1%}")
    if found.next_sentence.is_off:
        found.wrong.append(f"{found.next_sentence.found:.1%} of the second sentences are random ones, half should be")
    if found.copies > MOST_COPIES:
        found.wrong.append(f"{found.copies:.1%} of the records are copies of others; is a file there twice?")
    elif found.copies:
        found.notes.append(f"about {max(1, round(found.copies * found.records)):,} records are copies of others")
    if found.unknown is not None and found.unknown > MOST_UNKNOWN:
        found.wrong.append(f"{found.unknown:.1%} of the pieces are [UNK]: the vocabulary does not fit the text")
    if found.lines is not None and found.lines.repeated > MUCH_REPEATED:
        found.notes.append(f"{found.lines.repeated:.1%} of the corpus' lines repeat an earlier one")
    if found.packing is not None and found.packing.factor > WORTH_PACKING:
        found.notes.append(
            f"packing would give × {found.packing.factor:.2f}: python -m data_utils.packing"
            f" ({found.packing.efficiency_before:.0%} of the tokens are real, packed {found.packing.efficiency:.0%})"
        )
