"""Reads the records of a data set, also of damaged files, checks each as training does and more strictly, and counts.

Shapes: R records, S max_seq_length, P masked positions.
"""

from __future__ import annotations

import dataclasses
import itertools
from collections import Counter
from collections.abc import Iterator, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import numpy as np

from data_utils.records.decoding import ExampleError, record_sizes
from data_utils.records.features import PACKS_FORMAT, FeatureSpec, packed_pretraining_features, pretraining_features
from data_utils.records.framing import RandomAccessFile, RecordError, record_boundaries, unframe
from data_utils.records.index import find_index, load_index
from data_utils.records.manifest import Manifest, file_sha256
from data_utils.records.validation import Batch, find_problem, find_sequence_problem, first_of, good_records
from data_utils.shards import Shard
from utilities.errors import UserError

PROBLEMS_SHOWN = 10
_RECORDS_AT_ONCE = 512


@dataclass
class FileFindings:
    name: str
    sha256: str
    index_problem: str | None
    counts: dict[str, int] = field(default_factory=dict)  # "bad" counts bad records, all others are of good ones
    problems: list[str] = field(default_factory=list)  # the first bad records


@dataclass(frozen=True)
class Checker:
    """Checks the records of a file and counts them. Picklable."""

    spec: FeatureSpec
    special: Sequence[int] | None  # ids of [PAD], [UNK], [CLS], [SEP] and [MASK], if they are known
    may_mask_nothing: bool  # whether whole words are masked, so that none may be short enough in a row

    def examine(self, shard: Shard) -> tuple[list[str], dict[str, Any]]:
        """Read all records of a file; return no names of new files, and the ``FileFindings``."""
        path = shard.content
        findings = FileFindings(path.name, file_sha256(path), _read_index(path)[1])
        counts: Counter[str] = Counter()
        records = enumerate(read_records(path))
        while part := dict(itertools.islice(records, _RECORDS_AT_ONCE)):
            problems = {number: record.reason for number, record in part.items() if isinstance(record, RecordError)}
            payloads = {number: record for number, record in part.items() if isinstance(record, bytes)}
            batch, bad = good_records(list(payloads.values()), self.spec.features, self._find_problem)
            problems.update((list(payloads)[row], problem.reason) for row, problem in bad.items())
            counts["bad"] += len(problems)
            named = [f"{path.name}, record {number} {reason}" for number, reason in sorted(problems.items())]
            findings.problems = [*findings.problems, *named][:PROBLEMS_SHOWN]
            if payloads.keys() - problems.keys():
                counts.update(_count(batch, self.special))
        findings.counts = dict(counts)
        return [], dataclasses.asdict(findings)

    def _find_problem(self, batch: Batch) -> ExampleError | None:
        problem = find_problem(self.spec, batch)
        if problem is None and not self.spec.packed:
            problem = find_sequence_problem(batch)
        if problem is not None:
            return problem
        numbers = batch["input_mask"]
        checks: dict[str, np.ndarray] = {}
        if not self.may_mask_nothing:
            checks["masks nothing"] = np.all(batch["masked_lm_weights"] <= 0, axis=1)
        if self.special is not None:
            _, _, cls_id, sep_id, _ = self.special
            outside = np.zeros((len(numbers), 1), numbers.dtype)
            before, after = np.hstack([outside, numbers[:, :-1]]), np.hstack([numbers[:, 1:], outside])
            ids, real = batch["input_ids"], numbers > 0
            begins, ends = real & (numbers != before), real & (numbers != after)
            checks["has a sequence that does not begin with [CLS]"] = (begins & (ids != cls_id)).any(1)
            checks["has a sequence that does not end with [SEP]"] = (ends & (ids != sep_id)).any(1)
        return first_of(checks, "")


def _count(batch: Batch, special: Sequence[int] | None) -> dict[str, int]:
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


def _read_index(path: Path) -> tuple[np.ndarray | None, str | None]:
    """Return the records' boundaries from the file's index, if it fits the file, and otherwise the index's problem."""
    index = find_index(path)
    if index is None:
        return None, None
    try:
        return load_index(index, path, path.stat().st_size), None
    except UserError as error:
        return None, str(error)


def read_records(path: Path) -> Iterator[bytes | RecordError]:
    """Yield all records of a file, or what is wrong with them; without a valid index, to the first damaged header."""
    boundaries, _ = _read_index(path)
    last: RecordError | None = None
    if boundaries is None:
        boundaries, last = record_boundaries(path)
    file = RandomAccessFile(path)
    for number, (begin, end) in enumerate(itertools.pairwise(boundaries.tolist())):
        try:
            yield unframe(memoryview(file.read(begin, end - begin)), path, number)
        except RecordError as error:
            yield error
    if last is not None:
        reason = f"{last.reason}; the file is not read further, because it has no index that fits"
        yield RecordError(path, last.record, reason, last.fix)


def find_features(files: list[Path], manifest: Manifest | None, vocab_size: int) -> FeatureSpec:
    """Return the features that the manifest describes, or otherwise those of the first record that can be read."""
    names = ["max_seq_length", "max_predictions_per_seq"]
    if manifest is not None and manifest.format == PACKS_FORMAT:
        names = ["max_seq_length", "max_predictions_per_pack", "max_sequences_per_pack"]
    if manifest is not None and manifest.settings.keys() >= set(names):
        return _features([manifest.settings[name] for name in names], vocab_size)
    reason = "all files are empty"
    for record in itertools.chain.from_iterable(map(read_records, files)):
        try:
            if isinstance(record, RecordError):
                raise ExampleError(0, record.reason)
            return _features(record_sizes(record), vocab_size)
        except ExampleError as error:
            reason = f"the last one tried {error.reason}"
    raise UserError(f"{files[0].parent}: has no pre-training record that can be read ({reason})")


def _features(sizes: Sequence[int], vocab_size: int) -> FeatureSpec:
    length, predictions, *sequences = sizes
    if sequences:
        return packed_pretraining_features(length, predictions, sequences[0], vocab_size)
    return pretraining_features(length, predictions, vocab_size)
