"""Decodes batches of ``tf.train.Example`` messages into arrays without TensorFlow; the reverse of ``writer.py``.

Python walks over the few fields of each message; NumPy decodes the numbers within them, hundreds in a message.

Source: tensorflow/core/example/{example,feature}.proto and the protobuf wire format.
"""

from __future__ import annotations

from typing import Container, Dict, List, NamedTuple, Optional, Sequence, Tuple

import numpy as np

from data_utils.records.features import Feature

# Tags: field number << 3 | wire type; wire type 2 is "length-delimited", 0 a varint, 5 four bytes.
_FIRST_FIELD = 0x0A  # Example.features, Features.feature, the key of a map's entry, packed values, Feature.bytes_list
_SECOND_FIELD = 0x12  # the value of a map's entry, Feature.float_list
_THIRD_FIELD = 0x1A  # Feature.int64_list
_ONE_INTEGER = 0x08  # values that are not packed, which readers must accept too
_ONE_FLOAT = 0x0D

INTEGERS, FLOATS = "int64_list", "float_list"
_LISTS = {_THIRD_FIELD: INTEGERS, _SECOND_FIELD: FLOATS, _FIRST_FIELD: "bytes_list"}


class ExampleError(ValueError):
    """A message cannot be decoded.

    Attributes:
        row: the message's place in the batch.
        reason: a clause that follows "record … ".
    """

    def __init__(self, row: int, reason: str) -> None:
        super().__init__(f"message {row} {reason}")
        self.row = row
        self.reason = reason


class _Values(NamedTuple):
    """The encoded numbers of a feature."""

    list_name: str
    data: bytes


def decode_examples(
    messages: Sequence[bytes], features: Sequence[Feature], any_length: bool = False
) -> Dict[str, np.ndarray]:
    """Decode some features of a batch; other features of the messages are ignored.

    Args:
        messages: N ≥ 1 serialised messages.
        features: the features that each message must have.
        any_length: whether a feature's length is taken from the first message instead of ``features``.

    Returns:
        feature → (N, length), int64 or float32.

    Raises:
        ExampleError: a message is damaged, lacks a feature, or has another number of values.

    Example:
        >>> from data_utils.records.features import TOKENS
        >>> from data_utils.records.writer import encode_examples
        >>> messages = encode_examples({"ids": np.array([[7, 300], [0, 70000]])})
        >>> decode_examples(messages, [Feature("ids", 2, TOKENS)])["ids"].tolist()
        [[7, 300], [0, 70000]]
    """
    keys = [feature.name.encode() for feature in features]
    rows = [_fields(message, row, set(keys)) for row, message in enumerate(messages)]
    decoded = {}
    for feature, key in zip(features, keys):
        name, size = feature.name, None if any_length else feature.length
        expected, decode = (FLOATS, _floats) if feature.dtype == "float32" else (INTEGERS, _integers)
        values = [_checked(fields.get(key), expected, name, row) for row, fields in enumerate(rows)]
        decoded[name] = decode(values, name, size)
    return decoded


def _fields(message: bytes, row: int, wanted: Container[bytes]) -> Dict[bytes, _Values]:
    """Return the wanted features of a message, still encoded."""
    found: Dict[bytes, _Values] = {}
    try:
        at, end = _delimited(message, 0, len(message), _FIRST_FIELD)
        if end != len(message):
            raise ValueError
        while at < end:
            entry, at = _delimited(message, at, end, _FIRST_FIELD)
            key_begin, key_end = _delimited(message, entry, at, _FIRST_FIELD)
            key = message[key_begin:key_end]
            if key in wanted:
                value_begin, value_end = _delimited(message, key_end, at, _SECOND_FIELD)
                found[key] = _values(message, value_begin, value_end)
    except (IndexError, ValueError):
        raise ExampleError(row, "is not a tf.train.Example") from None
    return found


def _delimited(message: bytes, at: int, limit: int, tag: int) -> Tuple[int, int]:
    """Return the bounds of the content of the field that begins at ``at``; it must end within ``limit``."""
    if message[at] != tag:
        raise ValueError
    size = message[at + 1]
    at += 2
    if size > 127:
        size, at = _varint(message, at - 1)
    if at + size > limit:
        raise ValueError
    return at, at + size


def _varint(message: bytes, at: int) -> Tuple[int, int]:
    """Return a number in base 128 and the position of its end."""
    value = shift = 0
    while message[at] > 127:
        value |= (message[at] & 127) << shift
        shift += 7
        at += 1
    return value | message[at] << shift, at + 1


def _values(message: bytes, at: int, end: int) -> _Values:
    """Return the encoded numbers of a Feature."""
    if at == end:
        return _Values("no list", b"")
    tag = message[at]
    list_name = _LISTS.get(tag, "an unknown list")
    begin, stop = _delimited(message, at, end, tag)
    parts: List[bytes] = []
    while begin < stop and list_name in (INTEGERS, FLOATS):
        tag = message[begin]
        if tag == _FIRST_FIELD:
            first, begin = _delimited(message, begin, stop, tag)
        elif tag == (_ONE_INTEGER if list_name == INTEGERS else _ONE_FLOAT):
            first = begin + 1
            begin = first + 4 if list_name == FLOATS else _varint(message, first)[1]
        else:
            raise ValueError
        parts.append(message[first:begin])
    return _Values(list_name, parts[0] if len(parts) == 1 else b"".join(parts))


def _checked(values: Optional[_Values], expected: str, name: str, row: int) -> bytes:
    if values is None:
        raise ExampleError(row, f"has no feature {name}")
    if values.list_name != expected:
        raise ExampleError(row, f"has {name} as {values.list_name}, not {expected}")
    return values.data


def _floats(rows: Sequence[bytes], name: str, size: Optional[int]) -> np.ndarray:
    _check_sizes(np.array([len(row) for row in rows]) / 4, name, size)
    return np.frombuffer(b"".join(rows), "<f4").reshape(len(rows), -1).astype(np.float32)


def _integers(rows: Sequence[bytes], name: str, size: Optional[int]) -> np.ndarray:
    """Decode rows of numbers in base 128: seven bits per byte, lowest first; the eighth bit says that more follow."""
    data = np.frombuffer(b"".join(rows), np.uint8)
    is_last = data < 128
    bounds = np.cumsum([0, *map(len, rows)])
    _check_sizes(np.diff(np.concatenate(([0], np.cumsum(is_last)))[bounds]), name, size)
    filled = np.flatnonzero(np.diff(bounds))
    cut = filled[~is_last[bounds[filled + 1] - 1]] if data.size else filled
    if cut.size:
        raise ExampleError(int(cut[0]), f"has {name} that ends within a number")
    if is_last.all():
        return data.reshape(len(rows), -1).astype(np.int64)
    ends = np.flatnonzero(is_last)
    begins = np.concatenate(([0], ends[:-1] + 1))
    width = ends - begins + 1
    if width.max() > 10:
        row = int(np.searchsorted(bounds, begins[width.argmax()], "right")) - 1
        raise ExampleError(row, f"has {name} with a number of more than 64 bits")
    values = (data[begins] & 127).astype(np.uint64)
    for place in range(1, int(width.max())):
        longer = np.flatnonzero(width > place)
        values[longer] |= (data[begins[longer] + place] & 127).astype(np.uint64) << np.uint64(7 * place)
    return values.view(np.int64).reshape(len(rows), -1)


def _check_sizes(counts: np.ndarray, name: str, size: Optional[int]) -> None:
    expected = counts[0] if size is None else size
    wrong = np.flatnonzero(counts != expected)
    if wrong.size:
        row = int(wrong[0])
        raise ExampleError(row, f"has {counts[row]:g} values of {name}, {expected:g} are expected")
