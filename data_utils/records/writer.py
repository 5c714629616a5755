"""Writes TFRecords and their indices without TensorFlow.

NumPy encodes whole batches as ``tf.train.Example`` messages, which is many times faster than making protobuf objects.
:mod:`data_utils.records.decoding` is the reverse.
"""

from __future__ import annotations

import contextlib
import dataclasses
import hashlib
import os
import struct
from pathlib import Path
from typing import Any, Dict, Iterable, List, Mapping, Optional, Tuple

import numpy as np

from data_utils.records.framing import FRAMING_BYTES, masked_crc32c
from data_utils.records.index import index_path
from utilities.files import name_full_disk, temporary_path, write_atomically

TEMPORARY_FILES = ".*.tmp"  # pattern of the names that ``utilities.files.temporary_path`` returns

# Protobuf tags (field number << 3 | wire type 2, "length-delimited") of
# tensorflow/core/example/{example,feature}.proto.
_EXAMPLE_FEATURES = b"\x0a"  # Example.features = 1
_FEATURES_ENTRY = b"\x0a"  # Features.feature = 1 (a map: each entry has key = 1 and value = 2)
_ENTRY_KEY = b"\x0a"
_ENTRY_VALUE = b"\x12"
_FEATURE_FLOATS = b"\x12"  # Feature.float_list = 2
_FEATURE_INTEGERS = b"\x1a"  # Feature.int64_list = 3
_LIST_VALUES = b"\x0a"  # {Float,Int64}List.value = 1, packed


@dataclasses.dataclass(frozen=True)
class EncodedFile:
    """A TFRecord file in memory: its bytes, and (offset, length) of each framed record."""

    data: bytes
    index: List[Tuple[int, int]]


def _varint(value: int) -> bytes:
    """Encode a non-negative integer in protobuf's base-128 form."""
    out = bytearray()
    while value > 127:
        out.append(value & 127 | 128)
        value >>= 7
    out.append(value)
    return bytes(out)


def _varint_rows(values: np.ndarray) -> List[bytes]:
    """Encode each row of (N, K) integers in [0, 2**63) as packed base-128 numbers; at least one must exceed 127."""
    rows, columns = values.shape
    width = -(-int(values.max()).bit_length() // 7)
    digits = np.empty((rows, columns, width), np.uint8)
    present = np.empty((rows, columns, width), bool)
    rest: Any = values.astype(np.uint64 if width > 4 else np.uint32)
    for index in range(width):
        present[..., index] = rest > 0 if index else True
        higher = rest >> 7
        digits[..., index] = (rest & 127).astype(np.uint8) | (higher > 0).astype(np.uint8) << 7
        rest = higher
    data = digits[present].tobytes()
    ends = np.cumsum(present.sum((1, 2))).tolist()
    return [data[start:end] for start, end in zip([0, *ends[:-1]], ends)]


def _entry_header(name: str, list_tag: bytes, size: int) -> bytes:
    """Return an entry of Features.feature up to its packed values, which take ``size`` bytes."""
    packed = _LIST_VALUES + _varint(size)
    feature = list_tag + _varint(len(packed) + size) + packed
    key = name.encode()
    body = _ENTRY_KEY + _varint(len(key)) + key + _ENTRY_VALUE + _varint(len(feature) + size) + feature
    return _FEATURES_ENTRY + _varint(len(body) + size) + body


def _fixed_rows(values: np.ndarray) -> Optional[np.ndarray]:
    """Return (N, bytes) packed values if all rows take the same number of bytes, else None."""
    if np.issubdtype(values.dtype, np.floating):
        return np.ascontiguousarray(values, "<f4").view(np.uint8)
    if values.size == 0 or int(values.max()) < 128:  # masks, segments, labels: one byte per number
        return values.astype(np.uint8)
    return None


def _with_header(name: str, list_tag: bytes, rows: np.ndarray) -> np.ndarray:
    """Return rows of equal size as entries of Features.feature, (N, bytes)."""
    header = np.frombuffer(_entry_header(name, list_tag, rows.shape[1]), np.uint8)
    return np.concatenate([np.broadcast_to(header, (len(rows), header.size)), rows], axis=1)


def _split_rows(rows: np.ndarray) -> List[bytes]:
    data, size = rows.tobytes(), rows.shape[1]
    return [data[start : start + size] for start in range(0, len(data), size)]


def encode_examples(features: Mapping[str, np.ndarray]) -> List[bytes]:
    """Serialize a batch as N ``tf.train.Example`` messages.

    Source: tensorflow/core/example/example.proto and the protobuf wire format.

    Args:
        features: name → (N, K); integers become int64 lists, floating-point numbers float32 lists.
    """
    columns: List[List[bytes]] = []
    fixed: List[np.ndarray] = []  # adjacent features, which NumPy joins faster than row by row
    for name, values in features.items():
        list_tag = _FEATURE_FLOATS if np.issubdtype(values.dtype, np.floating) else _FEATURE_INTEGERS
        rows = _fixed_rows(values)
        if rows is not None:
            fixed.append(_with_header(name, list_tag, rows))
            continue
        if fixed:
            columns.append(_split_rows(np.concatenate(fixed, axis=1)))
            fixed = []
        packed = _varint_rows(values)
        headers = {size: _entry_header(name, list_tag, size) for size in set(map(len, packed))}
        columns += [[headers[len(row)] for row in packed], packed]
    if fixed:
        columns.append(_split_rows(np.concatenate(fixed, axis=1)))
    bodies = [b"".join(entries) for entries in zip(*columns)]
    headers = {size: _EXAMPLE_FEATURES + _varint(size) for size in set(map(len, bodies))}
    return [headers[len(body)] + body for body in bodies]


def frame_records(messages: Iterable[bytes]) -> EncodedFile:
    """Return messages framed as the bytes of a TFRecord file, with its index."""
    parts: List[bytes] = []
    index: List[Tuple[int, int]] = []
    headers: Dict[int, bytes] = {}
    offset = 0
    for message in messages:
        size = len(message)
        header = headers.get(size)
        if header is None:
            length = struct.pack("<Q", size)
            header = headers[size] = length + struct.pack("<I", masked_crc32c(length))
        parts += (header, message, struct.pack("<I", masked_crc32c(message)))
        index.append((offset, size + FRAMING_BYTES))
        offset += size + FRAMING_BYTES
    return EncodedFile(b"".join(parts), index)


class RecordFile:
    """Writes a TFRecord file and its index piece by piece; both get their names when they are complete.

    Example:
        >>> with RecordFile(Path("wiki_000.tfrecord")) as file:  # doctest: +SKIP
        ...     file.add(frame_records(messages))
        ...     entry = file.finish()
    """

    def __init__(self, path: Path) -> None:
        self.path = path
        self.records = self.bytes = 0
        self._digest = hashlib.sha256()
        self._lines: List[str] = []
        self._temporary = temporary_path(path)
        self._stream = open(self._temporary, "wb")  # noqa: SIM115 (closed by `finish` or `__exit__`)

    def __enter__(self) -> RecordFile:
        return self

    def __exit__(self, _: object, error: Optional[BaseException], __: object) -> None:
        name_full_disk(error, self.path)
        with contextlib.suppress(OSError):  # a full disk refuses the rest of the buffer again
            self._stream.close()
        self._temporary.unlink(missing_ok=True)  # renamed if all went well

    def add(self, encoded: EncodedFile) -> None:
        """Append framed records."""
        self._stream.write(encoded.data)
        self._digest.update(encoded.data)
        self._lines += [f"{self.bytes + offset} {length}\n" for offset, length in encoded.index]
        self.records += len(encoded.index)
        self.bytes += len(encoded.data)

    def finish(self) -> Dict[str, Any]:
        """Rename the files to their names, the record file last, and return the file's entry for the manifest."""
        self._stream.flush()
        os.fsync(self._stream.fileno())
        self._stream.close()
        write_atomically(index_path(self.path), "".join(self._lines).encode())
        os.replace(self._temporary, self.path)
        digest = self._digest.hexdigest()
        return {"name": self.path.name, "records": self.records, "bytes": self.bytes, "sha256": digest}


def write_record_file(path: Path, encoded: EncodedFile) -> Dict[str, Any]:
    """Write records from memory as a TFRecord file with its index; return the file's entry for the manifest."""
    with RecordFile(path) as file:
        file.add(encoded)
        return file.finish()
