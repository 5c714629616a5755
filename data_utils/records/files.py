"""Reads a folder of record files as one numbered sequence of payloads, by random access and without TensorFlow."""

from __future__ import annotations

import functools
import logging
import resource
from pathlib import Path
from typing import List, Tuple, Union

import numpy as np

from data_utils.records.framing import RandomAccessFile, RecordError, file_size, unframe, unreadable
from data_utils.records.index import build_index, find_index, load_index
from data_utils.records.manifest import (
    MANIFEST_NAME,
    VALIDATION_FOLDER,
    WORK_FOLDER,
    check_checksums,
    check_counts,
    check_files,
    check_vocabulary,
    load_manifest,
)
from utilities.errors import UserError

logger = logging.getLogger(__name__)


_OPEN_FILES = 256  # of a reader
_SHARE_OF_LIMIT = 4  # of the descriptors that the system allows: packing has two readers, and TensorFlow needs some


class RecordFiles:
    """Record files in the order of their names, with their records numbered consecutively.

    Where records begin is read from the indices; a file without an index is scanned once. Everything that can be
    checked without reading the records is checked here. Several threads may fetch records.

    Args:
        folder: a data set folder (its ``*.tfrecord`` files, without subfolders).
        verify_checksums: whether to compare the SHA-256 of every file with the manifest, which reads all data once.
    """

    def __init__(self, folder: Union[str, Path], verify_checksums: bool = False) -> None:
        folder = Path(folder)
        self.paths = list_record_files(folder)
        self.manifest = load_manifest(folder)
        if self.manifest is not None:
            check_files(self.manifest, folder)
            check_vocabulary(self.manifest)
            if verify_checksums:
                logger.info("verifying the checksums of %d files (data.verify_checksums)", len(self.paths))
                check_checksums(self.manifest, folder)
        elif verify_checksums:
            reason = "has no manifest.json to verify checksums with"
            raise UserError(f"{folder}: {reason}; set data.verify_checksums to false")
        sizes, indices = [file_size(path) for path in self.paths], [find_index(path) for path in self.paths]
        missing = indices.count(None)
        if missing:
            logger.info("%d of %d record files have no index: building it once", missing, len(self.paths))
        self._boundaries = [
            build_index(path) if index is None else load_index(index, path, size)
            for path, index, size in zip(self.paths, indices, sizes)
        ]
        self.counts = [boundaries.size - 1 for boundaries in self._boundaries]
        if self.manifest is not None:
            check_counts(self.manifest, dict(zip((path.name for path in self.paths), self.counts)))
        self._opened = functools.lru_cache(most_open_files())(RandomAccessFile)
        self._starts = np.concatenate(([0], np.cumsum(self.counts, dtype=np.int64)))
        self.count = int(self._starts[-1])
        if self.count == 0:
            raise UserError(f"{folder}: all *.tfrecord files are empty; make the data set again")

    def locate(self, position: int) -> Tuple[Path, int]:
        """Return the file that contains a record, and the record's number in it, counted from 0."""
        file = int(np.searchsorted(self._starts, position, side="right")) - 1
        return self.paths[file], position - int(self._starts[file])

    def fetch(self, positions: np.ndarray) -> List[Union[bytes, RecordError]]:
        """Return the verified payloads at these positions, in this order, with the error instead of each damaged one.

        The positions are int64, in [0, self.count), and may repeat.
        """
        assert not positions.size or (positions.min() >= 0 and positions.max() < self.count)
        files = np.searchsorted(self._starts, positions, side="right") - 1
        records = positions - self._starts[files]
        return [self._payload(file, record) for file, record in zip(files.tolist(), records.tolist())]

    def _payload(self, file: int, record: int) -> Union[bytes, RecordError]:
        path = self.paths[file]
        begin, end = self._boundaries[file][record : record + 2].tolist()
        framed = self._opened(path).read(begin, end - begin)
        try:
            return unframe(memoryview(framed), path, record)
        except RecordError as error:
            return error


def most_open_files() -> int:
    """Return how many files a reader keeps open: with the usual limit of 1024 descriptors, 256."""
    limit = resource.getrlimit(resource.RLIMIT_NOFILE)[0]
    return _OPEN_FILES if limit == resource.RLIM_INFINITY else max(1, min(_OPEN_FILES, limit // _SHARE_OF_LIMIT))


def list_record_files(folder: Path) -> List[Path]:
    """Return the record files of a data set folder, in the order of their names.

    It is a ``UserError`` if there are none, or the command that writes them has not ended.
    """
    if not folder.exists():
        raise UserError(f"{folder}: no such folder; name the folder with the *.tfrecord files")
    if not folder.is_dir():
        raise UserError(f"{folder}: is a file; name the folder that contains it")
    try:
        if (folder / WORK_FOLDER).is_dir() and not (folder / MANIFEST_NAME).exists():
            raise UserError(f"{folder}: not all records are written; let the command that makes them end, or repeat it")
        paths = sorted(folder.glob("*.tfrecord"))
        if paths:
            return paths
        below = sorted(path.parent for path in folder.glob("*/*.tfrecord") if path.parent.name != VALIDATION_FOLDER)
        others = sorted(path.name for path in folder.iterdir())
    except OSError as error:
        raise unreadable(folder, error) from error
    if below:
        raise UserError(f"{folder}: has no *.tfrecord files, but {below[0]} does; name that folder")
    if not others:
        raise UserError(f"{folder}: is empty; name a folder with *.tfrecord files")
    content = ", ".join(others[:3]) + (", …" if len(others) > 3 else "")
    raise UserError(f"{folder}: has no *.tfrecord files (it has {content}); name the folder of the record files")
