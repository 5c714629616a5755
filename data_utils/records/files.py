"""Reads a folder of record files as one numbered sequence of payloads, by random access and without TensorFlow."""

from __future__ import annotations

import logging
import threading
from collections import OrderedDict
from pathlib import Path
from typing import Dict, Iterator, List, Tuple, Union

import numpy as np

from data_utils.records.framing import RandomAccessFile, RecordError, file_size, renew_index, unframe, unreadable
from data_utils.records.index import build_index, count_records, find_index, load_index
from data_utils.records.manifest import (
    check_checksums,
    check_counts,
    check_files,
    check_vocabulary,
    load_manifest,
)
from utilities.errors import UserError

logger = logging.getLogger(__name__)


_OPEN_FILES = 256  # Well below the usual limit of 1024 descriptors, which TensorFlow needs too.
_GAP_BYTES = 4096  # Reading over a gap of a page costs less than another system call.
_RUN_BYTES = 8 << 20


class RecordFiles:
    """Record files in the order of their names, with their records numbered consecutively.

    Counts come from the indices; a file without an index is scanned once. Everything that can be checked without
    reading the records is checked here.

    Args:
        folder: a data set folder (its ``*.tfrecord`` files, without subfolders).
        verify_checksums: whether to compare the SHA-256 of every file with the manifest, which reads all data once.

    Raises:
        UserError: there are no records, or files, indices and manifest contradict one another.

    Attributes:
        counts: number of records in each file of ``paths``.
        count: total number of records.
    """

    def __init__(self, folder: Union[str, Path], verify_checksums: bool = False) -> None:
        folder = Path(folder)
        self.paths = list_record_files(folder)
        self.manifest = load_manifest(folder)
        if self.manifest is not None:
            check_files(self.manifest, folder)
            check_vocabulary(self.manifest)
        if verify_checksums:
            self._verify(folder)
        self._sizes = [file_size(path) for path in self.paths]
        self._boundaries: Dict[int, np.ndarray] = {}
        self._loading = threading.Lock()
        self._opening = threading.Lock()
        self._open: OrderedDict[int, RandomAccessFile] = OrderedDict()
        self.counts = self._count_records()
        self._starts = np.concatenate(([0], np.cumsum(self.counts, dtype=np.int64)))
        self.count = int(self._starts[-1])
        if self.count == 0:
            raise UserError(f"{folder}: all *.tfrecord files are empty; make the data set again")

    def locate(self, position: int) -> Tuple[Path, int]:
        """Return the file that contains a record, and the record's number in it, counted from 0."""
        file = int(np.searchsorted(self._starts, position, side="right")) - 1
        return self.paths[file], position - int(self._starts[file])

    def first_records(self, files: int) -> np.ndarray:
        """Return the position of the first record of each of the first ``files`` files that have any."""
        return np.array([start for start, count in zip(self._starts, self.counts) if count][:files], np.int64)

    def fetch(self, positions: np.ndarray) -> List[bytes]:
        """Return the payloads at these positions, in this order, after verifying their lengths and checksums.

        Neighbouring records are read with one system call.

        Args:
            positions: int64, in [0, self.count); may repeat.

        Raises:
            RecordError: a record is damaged or cut off.
        """
        payloads = self.fetch_each(positions)
        for payload in payloads:
            if isinstance(payload, RecordError):
                raise payload
        return payloads  # type: ignore[return-value]

    def fetch_each(self, positions: np.ndarray) -> List[Union[bytes, RecordError]]:
        """Return the payloads like :meth:`fetch`, with the error instead of each damaged record."""
        order = np.argsort(positions, kind="stable")
        ascending = positions[order]
        assert not ascending.size or (ascending[0] >= 0 and ascending[-1] < self.count)
        files = np.searchsorted(self._starts, ascending, side="right") - 1
        payloads: List[Union[bytes, RecordError]] = [b""] * len(positions)
        changes = np.flatnonzero(np.diff(files)) + 1
        for first, last in zip([0, *changes.tolist()], [*changes.tolist(), files.size]):
            if first == last:
                continue
            file = int(files[first])
            numbers = ascending[first:last] - self._starts[file]
            for index, payload in zip(order[first:last].tolist(), self._payloads(file, numbers)):
                payloads[index] = payload
        return payloads

    def _payloads(self, file: int, numbers: np.ndarray) -> Iterator[Union[bytes, RecordError]]:
        boundaries = self._file_boundaries(file)
        path, handle = self.paths[file], self._handle(file)
        begins, ends = boundaries[numbers].tolist(), boundaries[numbers + 1].tolist()
        records = numbers.tolist()
        first = 0
        while first < len(records):
            last = first + 1
            limit = begins[first] + _RUN_BYTES
            while last < len(records) and begins[last] <= ends[last - 1] + _GAP_BYTES and ends[last] <= limit:
                last += 1
            base = begins[first]
            data = memoryview(handle.read(base, ends[last - 1] - base))
            for index in range(first, last):
                try:
                    yield unframe(data[begins[index] - base : ends[index] - base], path, records[index])
                except RecordError as error:
                    yield error
            first = last

    def _file_boundaries(self, file: int) -> np.ndarray:
        boundaries = self._boundaries.get(file)
        if boundaries is None:
            with self._loading:
                boundaries = self._boundaries.get(file)
                if boundaries is None:
                    boundaries = self._load_boundaries(file)
                    self._boundaries[file] = boundaries
        return boundaries

    def _load_boundaries(self, file: int) -> np.ndarray:
        path = self.paths[file]
        index = find_index(path)
        boundaries = build_index(path) if index is None else load_index(index, path, self._sizes[file])
        if boundaries.size - 1 != self.counts[file]:
            reason = f"its index has {boundaries.size - 1} records in {self.counts[file]} lines"
            raise UserError(f"{path}: {reason}; {renew_index(path)}")
        return boundaries

    def _handle(self, file: int) -> RandomAccessFile:
        with self._opening:
            handle = self._open.pop(file, None)
            if handle is None:
                handle = RandomAccessFile(self.paths[file])
                if len(self._open) >= _OPEN_FILES:
                    self._open.popitem(last=False)  # Stays open while another thread reads from it.
            self._open[file] = handle
            return handle

    def _count_records(self) -> List[int]:
        indices = [find_index(path) for path in self.paths]
        missing = indices.count(None)
        if missing:
            logger.info("%d of %d record files have no index: building it once", missing, len(self.paths))
        counts = []
        for file, (path, index) in enumerate(zip(self.paths, indices)):
            if index is None:
                self._boundaries[file] = build_index(path)
                counted = self._boundaries[file].size - 1
            else:
                counted = count_records(index, path, self._sizes[file])
            counts.append(counted)
        if self.manifest is not None:
            check_counts(self.manifest, dict(zip((path.name for path in self.paths), counts)))
        return counts

    def _verify(self, folder: Path) -> None:
        if self.manifest is None:
            reason = "has no manifest.json to verify checksums with"
            raise UserError(f"{folder}: {reason}; set data.verify_checksums to false")
        logger.info("verifying the checksums of %d files (data.verify_checksums)", len(self.paths))
        check_checksums(self.manifest, folder)


def list_record_files(folder: Path) -> List[Path]:
    """Return the record files of a data set folder, in the order of their names.

    Raises:
        UserError: there are none; the message says what the folder contains instead.
    """
    if not folder.exists():
        raise UserError(f"{folder}: no such folder; name the folder with the *.tfrecord files")
    if not folder.is_dir():
        raise UserError(f"{folder}: is a file; name the folder that contains it")
    try:
        paths = sorted(folder.glob("*.tfrecord"))
        if paths:
            return paths
        below = sorted(path.parent for path in folder.glob("*/*.tfrecord"))
        others = sorted(path.name for path in folder.iterdir())
    except OSError as error:
        raise unreadable(folder, error) from error
    if below:
        raise UserError(f"{folder}: has no *.tfrecord files, but {below[0]} does; name that folder")
    if not others:
        raise UserError(f"{folder}: is empty; name a folder with *.tfrecord files")
    content = ", ".join(others[:3]) + (", …" if len(others) > 3 else "")
    raise UserError(f"{folder}: has no *.tfrecord files (it has {content}); name the folder of the record files")
