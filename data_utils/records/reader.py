"""Reads records by position as batches of checked arrays, and rejects or skips corrupt records.

N records asked for · L length of a feature
"""

from __future__ import annotations

import logging
import threading
from collections import deque
from functools import partial
from pathlib import Path
from typing import Deque, Dict, Mapping, Tuple, Union

import numpy as np

from data_utils.records.features import FeatureSpec
from data_utils.records.files import RecordFiles
from data_utils.records.framing import RecordError
from data_utils.records.manifest import check_settings
from data_utils.records.validation import find_problem, good_records
from utilities.errors import UserError

logger = logging.getLogger(__name__)

FAIL, SKIP = "fail", "skip"  # choices for a record that cannot be used

_CHUNK = 128  # so that the arrays stay in the processor's cache while they are decoded and checked
_FILES_CHECKED_AT_START = 8
_REPORTED = 10  # corrupt records that are logged one by one; further ones are only counted


class RecordReader(RecordFiles):
    """Reads records by position and verifies framing, features, lengths, types and ranges.

    Construction reads the manifest or the indices, and the first record of the first files, so that data of another
    sequence length or vocabulary is rejected before a model is built. :meth:`read` may be called from several threads.

    Args:
        on_corrupt: ``"fail"`` raises an error for a record that is damaged or does not match ``spec``; ``"skip"`` reads
            the next good one instead, so the data still depends on the positions only.
        max_corrupt_records: maximum number of different records that are skipped.
    """

    def __init__(
        self,
        folder: Union[str, Path],
        spec: FeatureSpec,
        verify_checksums: bool = False,
        on_corrupt: str = FAIL,
        max_corrupt_records: int = 0,
    ) -> None:
        assert on_corrupt in (FAIL, SKIP)
        super().__init__(folder, verify_checksums)
        self.spec = spec
        self.failures: Deque[UserError] = deque(maxlen=16)
        self._skips = on_corrupt == SKIP
        self._corrupt = _CorruptRecords(self.count, max_corrupt_records)
        if self.manifest is not None:
            check_settings(self.manifest, spec)
        self._check_first_records()

    @property
    def corrupt_records(self) -> int:
        """The number of different records that were skipped so far."""
        return len(self._corrupt)

    def read(self, positions: np.ndarray) -> Dict[str, np.ndarray]:
        """Return the records at these positions, int64 ``(N,)``: name → ``(N, L)``, int32 or, for weights, float32."""
        batch = {
            feature.name: np.empty((len(positions), feature.length), feature.dtype) for feature in self.spec.features
        }
        try:
            for begin in range(0, len(positions), _CHUNK):
                part = positions[begin : begin + _CHUNK]
                for name, values in self._read_chunk(part).items():
                    batch[name][begin : begin + _CHUNK] = values
        except UserError as error:
            self.failures.append(error)
            raise
        return batch

    def _check_first_records(self) -> None:
        """Reject data of another kind; single bad records are left to :meth:`read`, which may skip them."""
        starts = [start for start, count in zip(self._starts, self.counts) if count]
        positions = np.array(starts[:_FILES_CHECKED_AT_START], np.int64)
        _, errors = self._read_each(positions)
        if errors and (not self._skips or len(errors) == len(positions)):
            raise errors[min(errors)]

    def _read_chunk(self, positions: np.ndarray) -> Dict[str, np.ndarray]:
        while True:
            positions = self._corrupt.passed_over(positions)
            arrays, errors = self._read_each(positions)
            if not errors:
                return arrays
            if not self._skips:
                raise errors[min(errors)]
            self._corrupt.add({int(positions[row]): error for row, error in errors.items()})

    def _read_each(self, positions: np.ndarray) -> Tuple[Dict[str, np.ndarray], Dict[int, RecordError]]:
        """Return the good records, and the errors of the others by index, or only some if an error ends the run."""
        errors: Dict[int, RecordError] = {}
        payloads: Dict[int, bytes] = {}
        for row, payload in enumerate(self.fetch(positions)):
            if isinstance(payload, RecordError):
                errors[row] = payload
            else:
                payloads[row] = payload
        if errors and not self._skips:
            return {}, errors
        find = partial(find_problem, self.spec)
        arrays, problems = good_records(list(payloads.values()), self.spec.features, find)
        rows = list(payloads)
        for index, problem in problems.items():
            path, record = self.locate(int(positions[rows[index]]))
            errors[rows[index]] = RecordError(path, record, problem.reason, problem.fix)
        return arrays, errors


class _CorruptRecords:
    """The corrupt records that were read so far; it may be used from several threads.

    A corrupt record is replaced by the next good one, after the last record by the first. What is read at a position
    therefore does not depend on earlier reads.
    """

    def __init__(self, count: int, most: int) -> None:
        self._count, self._most = count, most
        self._errors: Dict[int, RecordError] = {}
        self._adding = threading.Lock()

    def __len__(self) -> int:
        return len(self._errors)

    def passed_over(self, positions: np.ndarray) -> np.ndarray:
        """Return the positions, with those of known corrupt records moved to the next good one."""
        if not self._errors:
            return positions
        moved = positions.copy()
        for row in np.flatnonzero(np.isin(moved, list(self._errors))).tolist():
            while int(moved[row]) in self._errors:
                moved[row] = (moved[row] + 1) % self._count
        return moved

    def add(self, errors: Mapping[int, RecordError]) -> None:
        """Add corrupt records by position; raise a ``UserError`` if there are too many."""
        with self._adding:
            new = {position: error for position, error in errors.items() if position not in self._errors}
            if not new:
                return
            known = {**self._errors, **new}
            last = new[max(new)]
            if len(known) > self._most or len(known) == self._count:
                raise UserError(
                    f"{len(known):,} corrupt records, more than data.max_corrupt_records {self._most:,} allows; the"
                    f" last is {last.path}: record {last.record}, which {last.reason}"
                    f"; see all of them with: python -m data_utils.doctor {last.path.parent}"  # room: doctor
                )
            for number, error in enumerate(new.values(), len(self._errors) + 1):
                if number <= _REPORTED:
                    logger.warning("record skipped, as data.on_corrupt says: %s", error)
                if number == _REPORTED:
                    logger.warning("further records that are skipped are counted, not listed")
            self._errors = known  # replaced rather than changed, because other threads read it
