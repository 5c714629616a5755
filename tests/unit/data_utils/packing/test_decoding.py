"""Messages decoded without TensorFlow against what TensorFlow wrote and reads."""

from __future__ import annotations

import numpy as np
import pytest

from data_utils.packing.decoding import FLOATS, INTEGERS, ExampleError, decode_examples
from keras_extensions.backend import tf
from tests.unit.data_utils.packing.samples import Sequence, sequence, serialized

KINDS = {
    **dict.fromkeys(("input_ids", "input_mask", "segment_ids", "masked_lm_positions", "masked_lm_ids"), INTEGERS),
    "masked_lm_weights": FLOATS,
    "next_sentence_labels": INTEGERS,
}


def example(**features: Sequence) -> bytes:
    return tf.train.Example(features=tf.train.Features(feature=features)).SerializeToString()


def integers(values: list[int]) -> tf.train.Feature:
    return tf.train.Feature(int64_list=tf.train.Int64List(value=values))


def test_records_as_tensorflow_wrote_them() -> None:
    sequences = [sequence(number) for number in range(50)]
    found = decode_examples([serialized(one) for one in sequences], KINDS)
    for name in KINDS:
        assert np.array_equal(found[name], np.stack([one[name] for one in sequences]))
        assert found[name].dtype == (np.float32 if name == "masked_lm_weights" else np.int64)


def test_numbers_at_the_borders() -> None:
    rows = [[0, 127, 128, 16383, 16384, 2**31, 2**62, 2**63 - 1], [-1, -(2**63), 1, 2, 3, 4, 5, 6]]
    messages = [example(x=integers(row)) for row in rows]
    assert decode_examples(messages, {"x": INTEGERS})["x"].tolist() == rows


def test_numbers_that_are_not_packed() -> None:
    """Writers may spread the numbers over several fields; readers must take them."""

    def field(tag: int, content: bytes) -> bytes:
        return bytes([tag, len(content)]) + content

    numbers = bytes([0x08, 5, 0x08, 0xAC, 0x02]) + field(0x0A, bytes([7]))  # 5, 300, and 7 packed
    floats = b"\x0d" + np.float32(1.5).tobytes() + b"\x0d" + np.float32(-2).tobytes()
    entries = [
        field(0x0A, b"x") + field(0x12, field(0x1A, numbers)),
        field(0x0A, b"y") + field(0x12, field(0x12, floats)),
    ]
    message = field(0x0A, b"".join(field(0x0A, entry) for entry in entries))
    assert tf.train.Example.FromString(message).features.feature["x"].int64_list.value == [5, 300, 7]
    found = decode_examples([message], {"x": INTEGERS, "y": FLOATS})
    assert (found["x"].tolist(), found["y"].tolist()) == ([[5, 300, 7]], [[1.5, -2.0]])


@pytest.mark.parametrize(
    ("second", "reason"),
    [
        (example(y=integers([1])), "has no feature x"),
        (example(x=integers([1, 2, 3])), "has 3 values of x, 2 are expected"),
        (example(x=integers([])), "has 0 values of x, 2 are expected"),
        (example(x=tf.train.Feature()), "has x as no list, not int64_list"),
        (
            example(x=tf.train.Feature(float_list=tf.train.FloatList(value=[1, 2]))),
            "has x as float_list, not int64_list",
        ),
        (example(x=tf.train.Feature(bytes_list=tf.train.BytesList(value=[b"ab"]))), "has x as bytes_list"),
        (b"", "is not a tf.train.Example"),
        (b"no message", "is not a tf.train.Example"),
        (example(x=integers([1, 300]))[:-1], "is not a tf.train.Example"),
    ],
)
def test_what_is_wrong_is_said_of_the_right_message(second: bytes, reason: str) -> None:
    with pytest.raises(ExampleError) as caught:
        decode_examples([example(x=integers([1, 300])), second], {"x": INTEGERS})
    assert caught.value.row == 1
    assert caught.value.reason.startswith(reason)


def test_damaged_messages_are_refused_or_read_as_tensorflow_reads_them() -> None:
    whole = serialized(sequence(7))
    rng = np.random.default_rng(0)
    read = refused = 0
    for _ in range(3000):
        damaged = bytearray(whole)
        for place in rng.integers(0, len(damaged), int(rng.integers(1, 4))):
            damaged[place] = int(rng.integers(256))
        message = bytes(damaged[: int(rng.integers(1, len(damaged) + 1))] if rng.random() < 0.2 else damaged)
        try:
            found = decode_examples([message], {"input_ids": INTEGERS}, {"input_ids": 24})
        except ExampleError:
            refused += 1
            continue
        read += 1
        try:
            values = tf.train.Example.FromString(message).features.feature["input_ids"].int64_list.value
        except Exception:  # The protobuf package's exception has moved between its releases.
            continue  # damage in a part that was passed over
        assert found["input_ids"][0].tolist() == list(values)
    assert read > 300
    assert refused > 300
