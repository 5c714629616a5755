"""``tf.train.Example`` messages to arrays, a batch at a time, without TensorFlow: the other way of ``records_writer``.

Python walks over the few fields of a message; the numbers within them, hundreds a message, are left to numpy.

Shapes: N messages, K numbers of a feature in each.

Source: tensorflow/core/example/{example,feature}.proto and the protobuf wire format.
"""

from __future__ import annotations

from typing import Dict, List, Mapping, NamedTuple, NoReturn, Optional, Sequence, Tuple

import numpy as np

# Tags: field number << 3 | wire type; wire type 2 is "length-delimited", 0 a varint, 5 four bytes.
_FIRST_FIELD = 0x0A  # Example.features, Features.feature, the key of a map's entry, packed values, Feature.bytes_list
_SECOND_FIELD = 0x12  # the value of a map's entry, Feature.float_list
_THIRD_FIELD = 0x1A  # Feature.int64_list
_ONE_INTEGER = 0x08  # values that are not packed, which readers must take too
_ONE_FLOAT = 0x0D

INTEGERS, FLOATS = "int64_list", "float_list"
_KINDS = {_THIRD_FIELD: INTEGERS, _SECOND_FIELD: FLOATS, _FIRST_FIELD: "bytes_list"}


class ExampleError(ValueError):
    """A message is not what it should be.

    Attributes:
        row: its place in the batch.
        reason: a clause that follows "record … ".
    """

    def __init__(self, row: int, reason: str) -> None:
        super().__init__(f"message {row} {reason}")
        self.row = row
        self.reason = reason


class _Span(NamedTuple):
    """Bytes of a feature's numbers."""

    kind: str
    data: bytes


def decode_examples(
    messages: Sequence[bytes], kinds: Mapping[str, str], sizes: Optional[Mapping[str, int]] = None
) -> Dict[str, np.ndarray]:
    """Some features of a batch; others that the messages have are passed over.

    Args:
        messages: N ≥ 1 serialised messages.
        kinds: feature → ``INTEGERS`` or ``FLOATS``.
        sizes: feature → K; that of the first message where none is given.

    Returns:
        feature → ``(N, K)``, int64 or float32.

    Raises:
        ExampleError: a message is damaged, lacks a feature, or has another number of values.

    Example:
        >>> from data_utils.records.writer import encode_examples
        >>> messages = encode_examples({"ids": np.array([[7, 300], [0, 70000]])})
        >>> decode_examples(messages, {"ids": INTEGERS})["ids"].tolist()
        [[7, 300], [0, 70000]]
    """
    wanted = {name.encode(): kind for name, kind in kinds.items()}
    rows = [_fields(message, row, wanted) for row, message in enumerate(messages)]
    decoded = {}
    for key, kind in wanted.items():
        name = key.decode()
        spans = [_checked(fields.get(key), kind, name, row) for row, fields in enumerate(rows)]
        size = None if sizes is None else sizes.get(name)
        decoded[name] = _floats(spans, name, size) if kind == FLOATS else _integers(spans, name, size)
    return decoded


def _fields(message: bytes, row: int, wanted: Mapping[bytes, str]) -> Dict[bytes, _Span]:
    """The wanted features of a message."""
    found: Dict[bytes, _Span] = {}
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
                found[key] = _span(message, value_begin, value_end)
    except (IndexError, ValueError):
        raise ExampleError(row, "is not a tf.train.Example") from None
    return found


def _delimited(message: bytes, at: int, limit: int, tag: int) -> Tuple[int, int]:
    """Begin and end of a field's content, the field beginning at ``at`` and being all within ``limit``."""
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
    """A number in base 128, and where it ends."""
    value = shift = 0
    while message[at] > 127:
        value |= (message[at] & 127) << shift
        shift += 7
        at += 1
    return value | message[at] << shift, at + 1


def _span(message: bytes, at: int, end: int) -> _Span:
    """The numbers of a Feature."""
    if at == end:
        return _Span("no list", b"")
    tag = message[at]
    kind = _KINDS.get(tag, "an unknown list")
    begin, stop = _delimited(message, at, end, tag)
    parts: List[bytes] = []
    while begin < stop and kind in (INTEGERS, FLOATS):
        tag = message[begin]
        if tag == _FIRST_FIELD:
            first, begin = _delimited(message, begin, stop, tag)
        elif tag == (_ONE_INTEGER if kind == INTEGERS else _ONE_FLOAT):
            first = begin + 1
            begin = first + 4 if kind == FLOATS else _varint(message, first)[1]
        else:
            raise ValueError
        parts.append(message[first:begin])
    return _Span(kind, parts[0] if len(parts) == 1 else b"".join(parts))


def _checked(span: Optional[_Span], kind: str, name: str, row: int) -> bytes:
    if span is None:
        raise ExampleError(row, f"has no feature {name}")
    if span.kind != kind:
        raise ExampleError(row, f"has {name} as {span.kind}, not {kind}")
    return span.data


def _floats(spans: Sequence[bytes], name: str, size: Optional[int]) -> np.ndarray:
    bytes_each = np.array([len(span) for span in spans])
    _check_sizes(bytes_each / 4, name, size)
    return np.frombuffer(b"".join(spans), "<f4").reshape(len(spans), -1).astype(np.float32)


def _integers(spans: Sequence[bytes], name: str, size: Optional[int]) -> np.ndarray:
    """Rows of numbers in base 128: seven bits a byte, lowest first, the eighth set where more follow."""
    data = np.frombuffer(b"".join(spans), np.uint8)
    is_last = data < 128
    bounds = np.cumsum([0, *map(len, spans)])
    counts = np.diff(np.concatenate(([0], np.cumsum(is_last)))[bounds])
    _check_sizes(counts, name, size)
    filled = np.flatnonzero(np.diff(bounds))
    cut = filled[~is_last[bounds[filled + 1] - 1]] if data.size else filled
    if cut.size:
        raise ExampleError(int(cut[0]), f"has {name} that ends within a number")
    if is_last.all():
        return data.reshape(len(spans), -1).astype(np.int64)
    ends = np.flatnonzero(is_last)
    begins = np.concatenate(([0], ends[:-1] + 1))
    width = ends - begins + 1
    if int(width.max()) > 10:
        _not_a_number(int(np.searchsorted(bounds, begins[np.argmax(width)], "right")) - 1, name)
    values = (data[begins] & 127).astype(np.uint64)
    for place in range(1, int(width.max())):
        longer = np.flatnonzero(width > place)
        values[longer] |= (data[begins[longer] + place] & 127).astype(np.uint64) << np.uint64(7 * place)
    return values.view(np.int64).reshape(len(spans), -1)


def _not_a_number(row: int, name: str) -> NoReturn:
    raise ExampleError(row, f"has {name} with a number of more than 64 bits")


def _check_sizes(counts: np.ndarray, name: str, size: Optional[int]) -> None:
    expected = counts[0] if size is None else size
    wrong = np.flatnonzero(counts != expected)
    if wrong.size:
        row = int(wrong[0])
        raise ExampleError(row, f"has {counts[row]:g} values of {name}, {expected:g} are expected")
