"""Reads records by position as batches of checked arrays, and rejects or skips corrupt records.

N records asked for · L length of a feature
"""

from __future__ import annotations

import logging
import threading
from collections import deque
from pathlib import Path
from typing import Deque, Dict, Iterator, List, Mapping, NamedTuple, Optional, Sequence, Tuple, Union

import numpy as np

from data_utils.records.features import Feature, FeatureSpec
from data_utils.records.files import RecordFiles
from data_utils.records.framing import RecordError
from data_utils.records.manifest import Manifest, check_settings
from data_utils.records.validation import Problem, find_problem
from keras_extensions.backend import tf
from utilities.errors import UserError

logger = logging.getLogger(__name__)

FAIL, SKIP = "fail", "skip"  # choices for a record that cannot be used

_CHUNK = 1024  # Bounds the memory of parsing; larger chunks are no faster.
_FILES_CHECKED_AT_START = 8
_REPORTED = 10  # corrupt records that are logged one by one; further ones are only counted


class _Batch(NamedTuple):
    """Records that were read together.

    Attributes:
        arrays: the good records, name → ``(rows, L)``.
        rows: their places among all requested records.
        errors: the errors of the other records, by place.
    """

    arrays: Dict[str, np.ndarray]
    rows: np.ndarray
    errors: Dict[int, RecordError]


class RecordReader:
    """Reads records by position and verifies framing, features, lengths, types and ranges.

    Construction reads the manifest or the indices, and the first record of the first files, so that data of another
    sequence length or vocabulary is rejected before a model is built. :meth:`read` may be called from several threads.
    TensorFlow's runtime starts here, so devices and threads must be configured earlier.

    Args:
        source: the data set folder, or a list of record files.
        verify_checksums: whether to first compare every file's SHA-256 with the manifest, which reads all data once.
        on_corrupt: ``"fail"`` raises an error for a record that is damaged or does not match ``spec``; ``"skip"`` reads
            the next good one in its place, so the data still depends on the positions only.
        max_corrupt_records: maximum number of different records that are skipped.

    Raises:
        UserError: there are no records, or they do not match ``spec``.

    Attributes:
        failures: errors of recent reads, for :func:`data_utils.records.pipeline.raise_data_errors`.

    Example:
        >>> reader = RecordReader("data/phase1", pretraining_features(128, 20, 30522))  # doctest: +SKIP
        >>> reader.read(np.array([0, 17]))["input_ids"].shape  # doctest: +SKIP
        (2, 128)
    """

    def __init__(
        self,
        source: Union[str, Path, Sequence[Union[str, Path]]],
        spec: FeatureSpec,
        verify_checksums: bool = False,
        on_corrupt: str = FAIL,
        max_corrupt_records: int = 0,
    ) -> None:
        assert on_corrupt in (FAIL, SKIP)
        self.spec = spec
        self.failures: Deque[UserError] = deque(maxlen=16)
        self._files = RecordFiles(source, verify_checksums)
        self._skips = on_corrupt == SKIP
        self._corrupt = _CorruptRecords(self._files.count, max_corrupt_records)
        self._parse_spec = {
            feature.name: tf.io.FixedLenFeature([feature.length], _stored_type(feature)) for feature in spec.features
        }
        if self.manifest is not None:
            check_settings(self.manifest, spec)
        self._check_first_records()

    @property
    def corrupt_records(self) -> int:
        """The number of different records that were skipped so far."""
        return len(self._corrupt)

    @property
    def count(self) -> int:
        return self._files.count

    @property
    def manifest(self) -> Optional[Manifest]:
        return self._files.manifest

    def read(self, positions: np.ndarray) -> Dict[str, np.ndarray]:
        """Return the records at these positions, in this order.

        Args:
            positions: int64 ``(N,)`` in [0, count); may repeat.

        Returns:
            name → ``(N, L)``, int32 or, for weights, float32.

        Raises:
            UserError: a record is damaged or does not match the specification; names file, record, reason and fix.
        """
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
        batch = self._read_each(self._files.first_records(_FILES_CHECKED_AT_START))
        if batch.errors and (not self._skips or not batch.rows.size):
            raise batch.errors[min(batch.errors)]

    def _read_chunk(self, positions: np.ndarray) -> Dict[str, np.ndarray]:
        wanted = self._corrupt.passed_over(positions)
        batch = self._read_each(wanted)
        if not batch.errors:
            return batch.arrays
        if not self._skips:
            raise batch.errors[min(batch.errors)]
        self._corrupt.add({int(wanted[row]): error for row, error in batch.errors.items()})
        bad = np.array(sorted(batch.errors))
        instead = self._read_chunk(wanted[bad])  # known corrupt records are now replaced by others
        order = np.argsort(np.concatenate([batch.rows, bad]))
        return {name: np.concatenate([values, instead[name]])[order] for name, values in batch.arrays.items()}

    def _read_each(self, positions: np.ndarray) -> _Batch:
        """Return the good records at these positions, and all errors, or only the first if errors are raised."""
        errors: Dict[int, RecordError] = {}
        payloads: Dict[int, bytes] = {}
        for row, payload in enumerate(self._files.fetch_each(positions)):
            if isinstance(payload, RecordError):
                errors[row] = payload
            else:
                payloads[row] = payload
        if errors and not self._skips:
            return _Batch({}, np.empty(0, int), errors)
        arrays = self._parse(list(payloads.values()))
        if arrays is None:
            for row, reason in list(_explain(payloads, self.spec)):
                errors[row] = self._record_error(positions, row, reason)
                del payloads[row]
            arrays = self._parse(list(payloads.values()))
            assert arrays is not None, "what remains was found to be good"
        rows = list(payloads)
        problem = find_problem(self.spec, arrays) if rows else None
        while problem is not None:
            row = rows.pop(problem.row)
            errors[row] = self._record_error(positions, row, problem)
            arrays = {name: np.delete(values, problem.row, axis=0) for name, values in arrays.items()}
            problem = find_problem(self.spec, arrays) if rows and self._skips else None
        return _Batch(arrays, np.array(rows, int), errors)

    def _parse(self, payloads: List[bytes]) -> Optional[Dict[str, np.ndarray]]:
        """Return the arrays of some records; None if one of them cannot be parsed."""
        try:
            with tf.device("CPU:0"):
                parsed = tf.io.parse_example(tf.constant(payloads, tf.string), self._parse_spec)
        except (tf.errors.InvalidArgumentError, UnicodeDecodeError):
            return None  # the latter if TensorFlow's own message quotes a payload that is not text
        return {name: values.numpy() for name, values in parsed.items()}

    def _record_error(self, positions: np.ndarray, row: int, problem: Problem) -> RecordError:
        path, record = self._files.locate(int(positions[row]))
        return RecordError(path, record, problem.reason, problem.fix)


class _CorruptRecords:
    """The corrupt records that were found so far; it may be used from several threads.

    A corrupt record is replaced by the next good one, after the last record by the first. What is read at a position
    therefore does not depend on earlier reads.

    Args:
        count: records in the data set.
        most: maximum number of corrupt records.
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
                    f" last is {last.path}: record {last.record}, which {last.reason}; see all of them with: python -m"
                    f" data_utils.doctor {last.path.parent}"
                )
            for number, error in enumerate(new.values(), len(self._errors) + 1):
                if number <= _REPORTED:
                    logger.warning("record skipped, as data.on_corrupt says: %s", error)
                if number == _REPORTED:
                    logger.warning("further records that are skipped are counted, not listed")
            self._errors = known  # replaced rather than changed, because other threads read it


def _stored_type(feature: Feature) -> tf.DType:
    return tf.float32 if feature.dtype == "float32" else tf.int64


def _explain(payloads: Mapping[int, bytes], spec: FeatureSpec) -> Iterator[Tuple[int, Problem]]:
    """Yield the records that TensorFlow cannot parse, with the reasons, which its own message does not give."""
    found = False
    for row, payload in payloads.items():
        problem = _problem_of_payload(row, payload, spec)
        if problem is not None:
            found = True
            yield row, problem
    if not found:
        for row in payloads:
            yield row, Problem(row, f"or one of the {len(payloads) - 1} read with it cannot be parsed", _REMAKE)


def _problem_of_payload(row: int, payload: bytes, spec: FeatureSpec) -> Optional[Problem]:
    try:
        features = tf.train.Example.FromString(payload).features.feature
    except Exception:  # The protobuf package's exception has moved between its releases.
        return Problem(row, "is not a tf.train.Example", _REMAKE)
    for feature in spec.features:
        kind = features[feature.name].WhichOneof("kind") if feature.name in features else None
        if kind is None:
            return Problem(row, f"has no feature {feature.name} (it has {_names(features)})", _REMAKE)
        expected = "float_list" if feature.dtype == "float32" else "int64_list"
        if kind != expected:
            return Problem(row, f"has {feature.name} as {kind}, not {expected}", _REMAKE)
        length = len(getattr(features[feature.name], kind).value)
        if length != feature.length:
            reason = f"has {length} values of {feature.name}, {feature.length} are expected"
            return Problem(row, reason, _fix_of_length(feature, length))
    return None


def _fix_of_length(feature: Feature, found: int) -> str:
    setting = feature.length_setting
    if setting is None or found == 0:
        return _REMAKE
    return f"set {setting} to {found}, or dataset_dir to a data set made with {setting} {feature.length}"


def _names(features: Sequence[str]) -> str:
    names = [name[:40] if name.isprintable() else ascii(name[:40]) for name in sorted(features)]
    return ", ".join(names[:8]) + (", …" if len(names) > 8 else "") or "none"


_REMAKE = "set dataset_dir to a data set made for this task, or make the data set again"
