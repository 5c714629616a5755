"""Decodes batches of ``tf.train.Example`` messages into arrays without TensorFlow; the reverse of ``writer.py``.

Python walks over the few fields of each message; NumPy decodes the numbers within them, hundreds in a message.

Source: tensorflow/core/example/{example,feature}.proto and the protobuf wire format.
"""

from __future__ import annotations

from typing import Dict, Iterable, Mapping, NamedTuple, Sequence, Tuple

import numpy as np

from data_utils.records.features import Feature

# Tags: field number << 3 | wire type; wire type 2 is "length-delimited", 0 a varint, 5 four bytes.
_FIRST_FIELD = 0x0A  # Example.features, Features.feature, the key of a map's entry, packed values, Feature.bytes_list
_SECOND_FIELD = 0x12  # the value of a map's entry, Feature.float_list
_THIRD_FIELD = 0x1A  # Feature.int64_list
_ONE_INTEGER = 0x08  # values that are not packed, which readers must accept too
_ONE_FLOAT = 0x0D

_INTEGERS, _FLOATS, _NO_LIST = "int64_list", "float_list", "no list"
_LISTS = {_THIRD_FIELD: _INTEGERS, _SECOND_FIELD: _FLOATS, _FIRST_FIELD: "bytes_list"}
_KEY_BYTES = 8  # of a header: the size of the feature and the beginning of its name

_REMAKE = "set dataset_dir to a data set made for this task, or make the data set again"


class ExampleError(ValueError):
    """A message cannot be decoded.

    Attributes:
        row: the message's index in the batch.
        reason: a clause that follows "record … ".
        fix: what to change before training.
    """

    def __init__(self, row: int, reason: str, fix: str = _REMAKE) -> None:
        super().__init__(f"message {row} {reason}")
        self.row = row
        self.reason = reason
        self.fix = fix


_Values = Tuple[str, bytes]  # the name of a feature's list, and its encoded numbers


class _Header(NamedTuple):
    """The bytes of a feature before its numbers, and their meaning."""

    content: bytes
    name: str
    list_name: str
    size: int  # bytes of the numbers
    is_packed: bool  # otherwise each number, or group of numbers, is a field


class ExampleDecoder:
    """Decodes some features of messages and ignores the others. It may be used from several threads.

    Messages that were written alike have the same headers, which are parsed once and then only compared.

    Args:
        features: the features that each message must have.

    Example:
        >>> from data_utils.records.features import TOKENS
        >>> from data_utils.records.writer import encode_examples
        >>> messages = encode_examples({"ids": np.array([[7, 300], [0, 70000]])})
        >>> ExampleDecoder([Feature("ids", 2, TOKENS)]).decode(messages)["ids"].tolist()
        [[7, 300], [0, 70000]]
    """

    def __init__(self, features: Sequence[Feature]) -> None:
        self.features = features
        self._headers: Dict[bytes, _Header] = {}

    def decode(self, messages: Sequence[bytes], any_length: bool = False) -> Dict[str, np.ndarray]:
        """Decode a batch.

        Args:
            messages: N serialised messages.
            any_length: whether a feature's length is that in the first message instead of ``Feature.length``.

        Returns:
            feature → (N, length), int64 or float32.

        Raises:
            ExampleError: a message is damaged, lacks a feature, or has another number of values.
        """
        rows = [self._fields(message, row) for row, message in enumerate(messages)]
        return {feature.name: _decode_feature(feature, rows, any_length) for feature in self.features}

    def _fields(self, message: bytes, row: int) -> Dict[str, _Values]:
        """Return all features of a message, still encoded."""
        fields: Dict[str, _Values] = {}
        try:
            at, end = _delimited(message, 0, len(message), _FIRST_FIELD) if message else (0, 0)
            if end != len(message):
                raise ValueError
            while at < end:
                header = self._headers.get(message[at : at + _KEY_BYTES])
                if header is None or not message.startswith(header.content, at):
                    header = _parse_header(message, at, end)
                    self._headers[header.content[:_KEY_BYTES]] = header
                content, name, list_name, size, is_packed = header
                begin = at + len(content)
                at = begin + size
                if at > end:
                    raise ValueError
                data = message[begin:at]
                fields[name] = list_name, data if is_packed else _packed(data, list_name)
        except (LookupError, ValueError):  # the latter also for a name that is not UTF-8
            raise ExampleError(row, "is not a tf.train.Example") from None
        return fields


def _parse_header(message: bytes, at: int, end: int) -> _Header:
    """Parse the feature that begins at ``at``, up to its numbers."""
    key, entry_end = _delimited(message, at, end, _FIRST_FIELD)
    name, name_end = _delimited(message, key, entry_end, _FIRST_FIELD)
    begin, stop = _delimited(message, name_end, entry_end, _SECOND_FIELD)
    list_name, is_packed = _NO_LIST, True
    if begin < stop:
        list_name = _LISTS[message[begin]]
        begin, stop = _delimited(message, begin, stop, message[begin])
    if stop != entry_end:
        raise ValueError
    if begin < stop and list_name in (_INTEGERS, _FLOATS):
        first, last = _delimited(message, begin, stop, _FIRST_FIELD) if message[begin] == _FIRST_FIELD else (0, 0)
        is_packed = last == stop
        begin = first if is_packed else begin
    return _Header(message[at:begin], message[name:name_end].decode("utf-8"), list_name, stop - begin, is_packed)


def _packed(data: bytes, list_name: str) -> bytes:
    """Return the numbers of a list as packed values."""
    at, parts = 0, []
    while at < len(data):
        begin, tag = at + 1, data[at]
        if tag == _FIRST_FIELD:
            begin, at = _delimited(data, at, len(data), tag)
        elif tag == (_ONE_INTEGER if list_name == _INTEGERS else _ONE_FLOAT):
            at = _varint(data, begin)[1] if list_name == _INTEGERS else begin + 4
        else:
            raise ValueError
        parts.append(data[begin:at])
    return b"".join(parts)


def _delimited(message: bytes, at: int, limit: int, tag: int) -> Tuple[int, int]:
    """Return the bounds of the content of the field that begins at ``at``; it must end within ``limit``."""
    if message[at] != tag:
        raise ValueError
    size, at = _varint(message, at + 1)
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


def _decode_feature(feature: Feature, rows: Sequence[Mapping[str, _Values]], any_length: bool) -> np.ndarray:
    """Return the numbers of a feature, (rows, length)."""
    expected = _FLOATS if feature.dtype == "float32" else _INTEGERS
    encoded = []
    for row, fields in enumerate(rows):
        list_name, data = fields.get(feature.name, (_NO_LIST, b""))
        if list_name != expected:
            reason = f"has {feature.name} as {list_name}, not {expected}"
            if list_name == _NO_LIST:
                reason = f"has no feature {feature.name} (it has {_names(fields)})"
            raise ExampleError(row, reason)
        encoded.append(data)
    bounds = np.cumsum([0, *map(len, encoded)])
    data = b"".join(encoded)
    if expected == _FLOATS:
        length = _check_lengths(np.diff(bounds) / 4, feature, any_length)
        return np.frombuffer(data, "<f4").reshape(len(rows), length).astype(np.float32)
    return _integers(np.frombuffer(data, np.uint8), bounds, feature, any_length)


def _integers(data: np.ndarray, bounds: np.ndarray, feature: Feature, any_length: bool) -> np.ndarray:
    """Decode rows of numbers in base 128: seven bits per byte, lowest first; the eighth bit says that more follow."""
    ends = np.flatnonzero(data < 128)  # last byte of each number
    shape = len(bounds) - 1, _check_lengths(np.diff(np.searchsorted(ends, bounds)), feature, any_length)
    if ends.size == data.size:
        return data.reshape(shape).astype(np.int64)
    cut = np.flatnonzero(data[bounds[1:] - 1] > 127)
    if cut.size:
        raise ExampleError(int(cut[0]), f"has {feature.name} that ends within a number")
    widths = np.diff(ends, prepend=-1)
    widest = int(widths.max())
    if widest > 10:
        row = int(np.searchsorted(bounds, ends[widths.argmax()], "right")) - 1
        raise ExampleError(row, f"has {feature.name} with a number of more than 64 bits")
    # At each byte, the number that begins there; the numbers that begin at first bytes are the result.
    wide = np.uint32 if widest < 5 else np.uint64
    low, carry = (data & 127).astype(wide), (data & 128).astype(wide)
    numbers = low.copy()
    for _ in range(widest - 1):
        numbers[:-1] = low[:-1] + carry[:-1] * numbers[1:]
    return numbers[ends - widths + 1].astype(np.int64).reshape(shape)


def _check_lengths(counts: np.ndarray, feature: Feature, any_length: bool) -> int:
    """Return the length of a feature after comparing it with the number of values in each row."""
    expected = int(counts[0]) if any_length else feature.length
    wrong = np.flatnonzero(counts != expected)
    if wrong.size:
        row = int(wrong[0])
        reason, fix = f"has {counts[row]:g} values of {feature.name}, {expected} are expected", _REMAKE
        if feature.length_setting is not None and counts[row] > 0:
            fix = (
                f"set {feature.length_setting} to {counts[row]:g}, or dataset_dir to a data set made with"
                f" {feature.length_setting} {expected}"
            )
        raise ExampleError(row, reason, fix)
    return expected


def _names(names: Iterable[str]) -> str:
    shown = [name[:40] if name.isprintable() else ascii(name[:40]) for name in sorted(names)]
    return ", ".join(shown[:8]) + (", …" if len(shown) > 8 else "") or "none"
