"""One file of a data set, looked through: bad records, and counts of the good ones.

Shapes: R records, S max_seq_length, P masked positions.
"""

from __future__ import annotations

import hashlib
from collections.abc import Iterator
from pathlib import Path
from typing import NamedTuple

import numpy as np

from data_utils.doctor.checks import Batch, Form, decode, find_problems
from data_utils.doctor.frames import FileNote, boundaries_of, read_frames
from data_utils.records.manifest import sha256_of

RECORDS_AT_ONCE = 4096
PROBLEMS_KEPT = 20  # of a file, in full; the others are counted by reason
HASH_BYTES = 8


class Special(NamedTuple):
    """Ids that the statistics need; None where the vocabulary is not known."""

    mask: int | None = None
    unknown: int | None = None


class Task(NamedTuple):
    """What a worker must know.

    Attributes:
        form: of the records.
        special: ids.
        sampled: of every so many records, one is looked for among all others (chosen by its content).
        with_checksums: whether to take the file's SHA-256.
    """

    form: Form
    special: Special
    sampled: int
    with_checksums: bool


class Problem(NamedTuple):
    """A bad record."""

    file: str
    record: int
    reason: str


class Counts(NamedTuple):
    """Sums over good records; may be added up over files.

    Attributes:
        records: R; packs where the data set is packed.
        sequences, tokens: real ones.
        predictions, weighted: masked positions, and their weights.
        masked, kept: positions that show [MASK], and their own piece; the others show another one.
        random_next: sequences whose second segment is a random one.
        unknown: [UNK] among the original pieces.
        lengths: (S + 1,) sequences of each length.
        predictions_per_record: (P + 1,) records with so many.
    """

    records: int
    sequences: int
    tokens: int
    predictions: int
    weighted: float
    masked: int
    kept: int
    random_next: int
    unknown: int
    lengths: np.ndarray
    predictions_per_record: np.ndarray

    def __add__(self, other: Counts) -> Counts:  # type: ignore[override]
        return Counts(*(mine + theirs for mine, theirs in zip(self, other)))


def no_counts(form: Form) -> Counts:
    """Of no record."""
    lengths = np.zeros(form.max_seq_length + 1, np.int64)
    return Counts(0, 0, 0, 0, 0.0, 0, 0, 0, 0, lengths, np.zeros(form.max_predictions + 1, np.int64))


class FileFindings(NamedTuple):
    """What was found in a file.

    Attributes:
        name: of the file.
        records: in all, good and bad.
        problems: the first bad records.
        reasons: reason → bad records.
        notes: about the file itself.
        counts: of the good records.
        payloads, texts: (K,) uint64, digests of sampled records: of all they hold, and of their text alone, whatever is
            masked in it.
        sha256: of the file, if asked for.
    """

    name: str
    records: int
    problems: list[Problem]
    reasons: dict[str, int]
    notes: list[FileNote]
    counts: Counts
    payloads: np.ndarray
    texts: np.ndarray
    sha256: str | None


class Chunk(NamedTuple):
    """Records that were read together.

    Attributes:
        payloads: of the good ones, as they were read.
        batch: their arrays; None where there are none.
        problems: of the bad ones: number → reason.
    """

    payloads: list[bytes]
    batch: Batch | None
    problems: dict[int, str]


def read_chunks(path: Path, boundaries: np.ndarray | None, form: Form) -> Iterator[Chunk]:
    """The records of a file, good and bad, some thousand at a time."""
    numbers: list[int] = []
    payloads: list[bytes] = []
    problems: dict[int, str] = {}
    for frame in read_frames(path, boundaries):
        if frame.payload is None:
            problems[frame.number] = frame.problem
        else:
            numbers.append(frame.number)
            payloads.append(frame.payload)
        if len(numbers) + len(problems) >= RECORDS_AT_ONCE:
            yield _checked(numbers, payloads, problems, form)
            numbers, payloads, problems = [], [], {}
    if numbers or problems:
        yield _checked(numbers, payloads, problems, form)


def _checked(numbers: list[int], payloads: list[bytes], problems: dict[int, str], form: Form) -> Chunk:
    batch, rows, undecoded = decode(payloads, form)
    problems = {**problems, **{numbers[row]: reason for row, reason in undecoded.items()}}
    if batch is None:
        return Chunk([], None, problems)
    wrong = find_problems(batch, form)
    problems.update({numbers[rows[row]]: reason for row, reason in wrong.items()})
    good = np.setdiff1d(np.arange(len(rows)), list(wrong))
    batch = {name: values[good] for name, values in batch.items()} if wrong else batch
    return Chunk([payloads[row] for row in rows[good]], batch if good.size else None, problems)


def examine_file(task: Task, path: Path) -> FileFindings:
    """Looks through a file."""
    boundaries, notes = boundaries_of(path)
    counts, records = no_counts(task.form), 0
    problems: list[Problem] = []
    reasons: dict[str, int] = {}
    payloads, texts = [np.empty(0, np.uint64)], [np.empty(0, np.uint64)]
    for chunk in read_chunks(path, boundaries, task.form):
        records += len(chunk.payloads) + len(chunk.problems)
        for number in sorted(chunk.problems):
            reason = chunk.problems[number]
            kind = reason.split(";")[0]
            reasons[kind] = reasons.get(kind, 0) + 1
            if len(problems) < PROBLEMS_KEPT:
                problems.append(Problem(path.name, number, reason))
        if chunk.batch is not None:
            counts += count(chunk.batch, task.special)
            payloads.append(_sample(_digests(chunk.payloads), task.sampled))
            texts.append(_sample(text_digests(chunk.batch), task.sampled))
    return FileFindings(
        name=path.name,
        records=records,
        problems=problems,
        reasons=reasons,
        notes=notes,
        counts=counts,
        payloads=np.concatenate(payloads),
        texts=np.concatenate(texts),
        sha256=sha256_of(path) if task.with_checksums else None,
    )


def original_ids(batch: Batch) -> np.ndarray:
    """(R, S) ids before masking."""
    ids = batch["input_ids"].copy()
    rows, slots = np.nonzero(batch["masked_lm_weights"] > 0)
    ids[rows, batch["masked_lm_positions"][rows, slots]] = batch["masked_lm_ids"][rows, slots]
    return ids


def count(batch: Batch, special: Special) -> Counts:
    """Counts of a batch of good records."""
    numbers, weights = batch["input_mask"], batch["masked_lm_weights"]
    real, predicted = numbers > 0, weights > 0
    rows, slots = np.nonzero(predicted)
    shown = batch["input_ids"][rows, batch["masked_lm_positions"][rows, slots]]
    most = int(numbers.max())
    lengths = np.stack([(numbers == number).sum(1) for number in range(1, most + 1)])
    lengths = lengths[lengths > 0]
    sequence_weights = batch.get("next_sentence_weights", np.ones_like(batch["next_sentence_labels"]))
    return Counts(
        records=len(numbers),
        sequences=lengths.size,
        tokens=int(real.sum()),
        predictions=len(rows),
        weighted=float(weights.sum()),
        masked=int((shown == special.mask).sum()) if special.mask is not None else 0,
        kept=int((shown == batch["masked_lm_ids"][rows, slots]).sum()),
        random_next=int((batch["next_sentence_labels"] * (sequence_weights > 0)).sum()),
        unknown=int(((original_ids(batch) == special.unknown) & real).sum()) if special.unknown is not None else 0,
        lengths=np.bincount(lengths, minlength=numbers.shape[1] + 1),
        predictions_per_record=np.bincount(predicted.sum(1), minlength=weights.shape[1] + 1),
    )


def text_digests(batch: Batch) -> np.ndarray:
    """(R,) uint64 of each record's text; what is masked in it makes no difference."""
    ids = original_ids(batch).astype(np.uint64)
    factors = np.random.default_rng(ids.shape[1]).integers(2**64, size=ids.shape[1], dtype=np.uint64) | np.uint64(1)
    mixed = (ids + np.uint64(1)) * factors  # whole numbers modulo 2**64
    return (mixed ^ (mixed >> np.uint64(31))).sum(1, dtype=np.uint64)


def _digests(payloads: list[bytes]) -> np.ndarray:
    data = b"".join(hashlib.blake2b(payload, digest_size=HASH_BYTES).digest() for payload in payloads)
    return np.frombuffer(data, np.uint64)


def _sample(digests: np.ndarray, sampled: int) -> np.ndarray:
    """Those that are sampled: all that are equal, or none of them."""
    return digests[(digests >> np.uint64(20)) % np.uint64(sampled) == 0]
