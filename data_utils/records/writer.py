"""Writes TFRecords and their indices without TensorFlow.

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
from data_utils.records.messages import FLOATS, INTEGERS, Example
from utilities.files import name_full_disk, temporary_path, write_atomically

TEMPORARY_FILES = ".*.tmp"  # pattern of the names that ``utilities.files.temporary_path`` returns


@dataclasses.dataclass(frozen=True)
class EncodedFile:
    """A TFRecord file in memory: its bytes, and (offset, length) of each framed record."""

    data: bytes
    index: List[Tuple[int, int]]


def encode_examples(features: Mapping[str, np.ndarray]) -> List[bytes]:
    """Serialize a batch as N ``tf.train.Example`` messages.

    Args:
        features: name → (N, K); integers become int64 lists, floating-point numbers float32 lists.
    """

    def list_name(values: np.ndarray) -> str:
        return FLOATS if np.issubdtype(values.dtype, np.floating) else INTEGERS

    columns = [(name, list_name(values), values.tolist()) for name, values in features.items()]
    messages = []
    for row in range(len(columns[0][2])):
        example = Example()
        for name, kind, rows in columns:
            entry = example.features.feature.add(key=name)
            getattr(entry.value, kind).value.extend(rows[row])
        messages.append(example.SerializeToString())
    return messages


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
