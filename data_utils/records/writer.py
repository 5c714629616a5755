"""Writes TFRecords and their indices without TensorFlow.

:mod:`data_utils.records.decoding` is the reverse.
"""

from __future__ import annotations

import hashlib
import struct
from pathlib import Path
from typing import Any, Dict, Iterable, List, Mapping

import numpy as np

from data_utils.records.framing import masked_crc32c
from data_utils.records.index import index_path
from data_utils.records.messages import Example
from utilities.files import replacing, write_atomically

TEMPORARY_FILES = ".*.tmp"  # pattern of the names that ``utilities.files.temporary_path`` returns


def encode_examples(features: Mapping[str, np.ndarray]) -> List[bytes]:
    """Serialize a batch, name → (N, K), as N ``tf.train.Example`` messages of int64 and float32 lists."""
    example = Example()  # one for all rows, because making its parts takes longer than filling them
    columns = []
    for name, values in features.items():
        feature = example.features.feature.add(key=name).value
        numbers = feature.float_list.value if np.issubdtype(values.dtype, np.floating) else feature.int64_list.value
        columns.append((numbers, values))
    messages = []
    for row in range(len(columns[0][1])):
        for numbers, values in columns:
            numbers[:] = values[row].tolist()
        messages.append(example.SerializeToString())
    return messages


def write_record_file(path: Path, messages: Iterable[bytes]) -> Dict[str, Any]:
    """Write messages as a TFRecord file with its index, and return the file's entry for the manifest.

    Both get their names when they are complete, the record file last.
    """
    digest, index, end = hashlib.sha256(), [], 0
    with replacing(path) as stream:
        for message in messages:
            length = struct.pack("<Q", len(message))
            framed = length + _checksum(length) + message + _checksum(message)
            stream.write(framed)
            digest.update(framed)
            index.append(f"{end} {len(framed)}\n")
            end += len(framed)
        write_atomically(index_path(path), "".join(index))
    return {"name": path.name, "records": len(index), "bytes": end, "sha256": digest.hexdigest()}


def _checksum(data: bytes) -> bytes:
    return struct.pack("<I", masked_crc32c(data))
