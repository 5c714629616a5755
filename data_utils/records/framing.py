"""Reads and verifies the framing of TFRecord files at any offset.

A record is ``length`` (uint64), masked CRC-32C of the length's 8 bytes (uint32), the payload, and the masked CRC-32C of
the payload (uint32), all little-endian (TensorFlow API documentation, "TFRecords format details").
"""

from __future__ import annotations

import errno
import os
import stat
import struct
from array import array
from pathlib import Path
from typing import Any, Optional, Tuple, Union

import numpy as np
from crc32c import crc32c

from utilities.errors import UserError

HEADER_BYTES = 12
FRAMING_BYTES = 16  # header and the checksum at the end

_HEADER = struct.Struct("<QI")
_CHECKSUM = struct.Struct("<I")
_MASK_DELTA = 0xA282EAD8
_FRESH_COPY = "copy the file again from its source, or make the data set again"


class RecordError(UserError):
    """A record that cannot be used: its file and number, from 0, and a clause that follows "record … "."""

    def __init__(self, path: Path, record: int, reason: str, fix: str) -> None:
        super().__init__(f"{path}: record {record} (counted from 0) {reason}; {fix}")
        self.path, self.record, self.reason, self.fix = path, record, reason, fix

    def __reduce__(self) -> Tuple[Any, ...]:
        return RecordError, (self.path, self.record, self.reason, self.fix)  # allows workers to raise it


def masked_crc32c(data: Union[bytes, memoryview]) -> int:
    """Return the CRC-32C, rotated and shifted as TFRecord files store it."""
    crc = crc32c(data)
    return (((crc >> 15) | (crc << 17)) + _MASK_DELTA) & 0xFFFFFFFF


def unframe(framed: memoryview, path: Path, record: int) -> bytes:
    """Return the payload of one framed record after verifying its length and both checksums (``RecordError``)."""
    if len(framed) < FRAMING_BYTES:
        raise RecordError(path, record, "is cut off", _FRESH_COPY)
    length, length_crc = _HEADER.unpack_from(framed)
    if masked_crc32c(framed[:8]) != length_crc:
        raise _bad_header(path, record, bytes(framed[:2]))
    if length + FRAMING_BYTES != len(framed):
        reason = f"has {length + FRAMING_BYTES} bytes, the index says {len(framed)}: cut off, or an old index"
        raise RecordError(path, record, reason, f"{_FRESH_COPY}, or {renew_index(path)}")
    payload = framed[HEADER_BYTES:-4]
    if masked_crc32c(payload) != _CHECKSUM.unpack_from(framed, HEADER_BYTES + length)[0]:
        raise RecordError(path, record, "is damaged (checksum of its data does not match)", _FRESH_COPY)
    return bytes(payload)


def record_boundaries(path: Path) -> Tuple[np.ndarray, Optional[RecordError]]:
    """Return the bytes where the records of a file begin and where the last one ends, int64 ``(records + 1,)``, from
    the headers before the first damaged one, and its error; None: all are intact.
    """
    boundaries = array("q", [0])
    error: Optional[RecordError] = None
    try:
        with open(path, "rb", buffering=1 << 20) as file:
            size = os.fstat(file.fileno()).st_size
            while boundaries[-1] < size and error is None:
                record = len(boundaries) - 1
                header = file.read(HEADER_BYTES)
                if len(header) < HEADER_BYTES:
                    error = RecordError(path, record, "is cut off", _FRESH_COPY)
                    break
                length, length_crc = _HEADER.unpack(header)
                end = boundaries[-1] + length + FRAMING_BYTES
                if masked_crc32c(header[:8]) != length_crc:
                    error = _bad_header(path, record, header[:2])
                elif end > size:
                    reason = f"is cut off: it needs {end - size} bytes more than the file has"
                    error = RecordError(path, record, reason, _FRESH_COPY)
                else:
                    file.seek(length + 4, os.SEEK_CUR)
                    boundaries.append(end)
    except OSError as os_error:
        raise unreadable(path, os_error) from os_error
    return np.array(boundaries, dtype=np.int64), error


class RandomAccessFile:
    """A file open for reading at any offset, from any thread; closed when garbage-collected."""

    def __init__(self, path: Path) -> None:
        self._descriptor = -1
        self.path = path
        try:
            self._descriptor = os.open(path, os.O_RDONLY)
        except OSError as error:
            raise unreadable(path, error) from error

    def read(self, offset: int, size: int) -> bytes:
        """Return the bytes ``[offset, offset + size)``, or fewer at the end of the file."""
        try:
            data = os.pread(self._descriptor, size, offset)
            while len(data) < size:  # A read may legally return less than asked for.
                more = os.pread(self._descriptor, size - len(data), offset + len(data))
                if not more:
                    break
                data += more
        except OSError as error:
            raise unreadable(self.path, error) from error
        return data

    def __del__(self) -> None:
        if self._descriptor >= 0:
            os.close(self._descriptor)


def renew_index(record_path: Path) -> str:
    return f"delete the index of {record_path.name}, and the next start builds it again"


def file_size(path: Path) -> int:
    """Return the size of a regular file in bytes; raise a ``UserError`` for anything else."""
    try:
        status = path.stat()
        if stat.S_ISREG(status.st_mode):
            return status.st_size
        kind = "folder" if path.is_dir() else "device or pipe"
        raise UserError(f"{path}: is a {kind}, not a record file; move it away")
    except OSError as error:
        raise unreadable(path, error) from error


def unreadable(path: Path, error: OSError) -> UserError:
    reason = error.strerror or str(error)
    if error.errno in (errno.EMFILE, errno.ENFILE):
        return UserError(f"{path}: cannot be opened ({reason}); raise the limit of open files, such as ulimit -n 1024")
    return UserError(f"{path}: cannot be read ({reason}); check that it is a regular file and that you may read it")


def _bad_header(path: Path, record: int, first_bytes: bytes) -> RecordError:
    if record == 0 and first_bytes == b"\x1f\x8b":
        fix = "unpack the file first (gunzip), records are read uncompressed"
        return RecordError(path, 0, "is compressed with gzip", fix)
    if record == 0 and first_bytes[:1] == b"\x78":
        return RecordError(path, 0, "is damaged, or compressed with zlib", "write the file again without compression")
    reason = "is damaged (checksum of its length does not match)"
    if record == 0:
        reason += ", or this is not a TFRecord file"
    return RecordError(path, record, reason, _FRESH_COPY)
