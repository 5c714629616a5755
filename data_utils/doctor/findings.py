"""Examines the files of a data set, and compares counts and shares with what they should be.

Shapes: R records, S max_seq_length, P masked positions.
"""

from __future__ import annotations

import contextlib
import math
from collections import Counter
from collections.abc import Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import numpy as np

from data_utils.doctor.records import Checker, DataSet, read_index
from data_utils.records.manifest import check_files, file_sha256
from data_utils.records.validation import Batch
from data_utils.records.writer import RecordFile, frame_records
from data_utils.text.masking import MASK_SHARE
from utilities.errors import UserError

PROBLEMS_SHOWN = 10
SIGMAS = 5.0  # a share is wrong if chance alone would cause it in only one of a million data sets
MASK_TOLERANCE = 0.01  # accepted deviation of a share, in addition to chance
RANDOM_NEXT_TOLERANCE = 0.03
MOST_UNKNOWN = 0.05  # share of [UNK]; more mean a vocabulary of another language or script


@dataclass
class FileFindings:
    path: Path
    counts: Counter[str] = field(default_factory=Counter)  # of the good records
    bad: int = 0
    problems: list[str] = field(default_factory=list)  # the first bad records
    sha256: str | None = None
    index_problem: str | None = None
    repaired: dict[str, Any] | None = None  # manifest entry of the file with the good records alone

    @property
    def records(self) -> int:
        return self.counts["records"] + self.bad


@dataclass
class Diagnosis:
    """The state of a data set."""

    wrong: list[str]  # what must be fixed before training
    notes: list[str]  # what is worth knowing
    problems: list[str]  # the first bad records
    counts: Counter[str]  # of the good records
    bad: int  # records that cannot be used
    shares: list[str] = field(default_factory=list)

    @property
    def records(self) -> int:
        return self.counts["records"] + self.bad

    def add_share(self, text: str, is_wrong: bool) -> None:
        self.shares.append(text + " ← wrong" * is_wrong)
        self.wrong += [text] * is_wrong


def examine_file(checker: Checker, output: Path | None, path: Path) -> FileFindings:
    """Read all records of a file.

    Args:
        checker: Checks the records.
        output: Folder for a file with the good records alone; None: it is not written.
        path: The record file.
    """
    findings = FileFindings(path, sha256=file_sha256(path))
    _, findings.index_problem = read_index(path)
    with contextlib.ExitStack() as stack:
        file = stack.enter_context(RecordFile(output / path.name)) if output is not None else None
        for chunk in checker.read(path):
            findings.bad += len(chunk.problems)
            problems = [f"{path.name}, record {number} {reason}" for number, reason in sorted(chunk.problems.items())]
            findings.problems = [*findings.problems, *problems][:PROBLEMS_SHOWN]
            if chunk.payloads:
                findings.counts.update(_count(chunk.batch, checker.special))
                if file is not None:
                    file.add(frame_records(chunk.payloads))
        if file is not None and file.records:
            findings.repaired = file.finish()
    return findings


def _count(batch: Batch, special: Sequence[int] | None) -> dict[str, int]:
    """Count a batch of good records."""
    numbers, ids, positions = batch["input_mask"], batch["input_ids"], batch["masked_lm_positions"]  # (R, S/S/P)
    rows, slots = np.nonzero(batch["masked_lm_weights"] > 0)
    shown, targets = ids[rows, positions[rows, slots]], batch["masked_lm_ids"][rows, slots]
    _, unknown, _, _, mask = special or [-1] * 5  # no id is negative
    labels = batch["next_sentence_labels"]
    sequences = batch.get("next_sentence_weights", np.ones_like(labels)) > 0
    return {
        "records": len(numbers),
        "sequences": int(sequences.sum()),
        "tokens": int((numbers > 0).sum()),
        "predictions": len(rows),
        "masked": int((shown == mask).sum()),
        "second segments": int(batch["segment_ids"].any()),
        "random next": int((labels * sequences).sum()),
        "unknown": int((ids[numbers > 0] == unknown).sum() + (targets == unknown).sum() - (shown == unknown).sum()),
    }


def diagnose(data: DataSet, files: Sequence[FileFindings]) -> Diagnosis:
    """Merge the findings of all files and compare them with the manifest and with the published preparation."""
    counts: Counter[str] = sum((file.counts for file in files), Counter())
    problems = [problem for file in files for problem in file.problems][:PROBLEMS_SHOWN]
    result = Diagnosis(list(data.wrong), list(data.notes), problems, counts, sum(file.bad for file in files))
    result.wrong += [file.index_problem for file in files if file.index_problem is not None]
    result.wrong += _manifest_problems(data, files)
    first = {file.sha256: file.path.name for file in reversed(files)}
    names = ((file.path.name, first[file.sha256]) for file in files)
    result.wrong += [f"{name}: is a copy of {other}" for name, other in names if name != other]
    if result.bad:
        result.wrong.append(f"{result.bad:,} records are bad, the first of which is {problems[0]}")
    if not counts["records"]:
        result.wrong.append("no record can be used")
    elif not counts["predictions"]:
        result.wrong.append("no record has a token to predict")
    else:
        has_pairs = data.manifest.has_next_sentences if data.manifest is not None else counts["second segments"] > 0
        _compare_shares(result, data.vocabulary is not None, has_pairs)
    return result


def _manifest_problems(data: DataSet, files: Sequence[FileFindings]) -> list[str]:
    """Return where the files differ from the manifest."""
    problems: list[str] = []
    if data.manifest is None:
        return problems
    try:
        check_files(data.manifest, data.folder)
    except UserError as error:
        problems.append(str(error))
    by_name = {file.path.name: file for file in files}
    for entry in data.manifest.files:
        file = by_name.get(entry.name)
        if file is not None and file.records != entry.records:
            problems.append(f"{entry.name}: has {file.records:,} records, the manifest says {entry.records:,}")
        elif file is not None and entry.sha256 not in (None, file.sha256):
            problems.append(f"{entry.name}: is not the file that the manifest describes (SHA-256)")
    return problems


def _compare_shares(result: Diagnosis, knows_vocabulary: bool, has_pairs: bool) -> None:
    """Compare shares with the published preparation (Devlin et al. 2019, section 3.1)."""
    counts = result.counts
    if knows_vocabulary:
        unknown = counts["unknown"] / counts["tokens"]
        text = f"{unknown:.2%} of the pieces are [UNK], at most {MOST_UNKNOWN:.0%} expected"
        result.add_share(text, unknown > MOST_UNKNOWN)
        text = "of the tokens to predict show [MASK]"
        _compare_share(result, text, counts["masked"], counts["predictions"], MASK_SHARE, MASK_TOLERANCE)
    if has_pairs:
        text = "of the second sentences are random ones"
        _compare_share(result, text, counts["random next"], counts["sequences"], 0.5, RANDOM_NEXT_TOLERANCE)


def _compare_share(result: Diagnosis, text: str, part: int, whole: int, expected: float, tolerance: float) -> None:
    """Add ``part / whole``, which is wrong if it deviates by more than the tolerance and chance."""
    share, chance = part / whole, SIGMAS * math.sqrt(expected * (1 - expected) / whole)
    result.add_share(f"{share:.2%} {text}, {expected:.1%} expected", abs(share - expected) > tolerance + chance)
