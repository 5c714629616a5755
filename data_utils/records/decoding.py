"""Decodes batches of ``tf.train.Example`` messages into arrays; the reverse of ``writer.py``."""

from __future__ import annotations

from typing import Any, Dict, Iterable, List, Sequence, Tuple

import numpy as np
from google.protobuf.message import DecodeError

from data_utils.records.features import WEIGHTS, Feature, pretraining_features
from data_utils.records.messages import FLOATS, INTEGERS, Example

_REMAKE = "set dataset_dir to a data set made for this task, or make the data set again"


class ExampleError(ValueError):
    """A message cannot be decoded, or has wrong values: its ``row`` in the batch, and a clause after "record … "."""

    def __init__(self, row: int, reason: str, fix: str = _REMAKE) -> None:
        super().__init__(f"message {row} {reason}")
        self.row, self.reason, self.fix = row, reason, fix


def decode_examples(
    features: Sequence[Feature], messages: Sequence[bytes], any_length: bool = False
) -> Dict[str, np.ndarray]:
    """Decode some features of a batch of messages, and ignore the others.

    A message that is damaged, lacks a feature, or has another number of values is an ``ExampleError``.

    Args:
        any_length: whether a feature's length is that in the first message instead of ``Feature.length``.

    Returns:
        feature → (N, length), int64 or float32.
    """
    rows = [_parse(message, row) for row, message in enumerate(messages)]
    return {feature.name: _decode_feature(feature, rows, any_length) for feature in features}


def record_sizes(message: bytes) -> Tuple[int, ...]:
    """Return max_seq_length and masked positions of a pre-training record, and for a pack its most sequences; any
    other message is an ``ExampleError``.
    """
    batch = decode_examples(pretraining_features(1, 1, 1).features, [message], any_length=True)
    sizes = batch["input_ids"].shape[1], batch["masked_lm_ids"].shape[1]
    try:
        weights = decode_examples([Feature("next_sentence_weights", 1, WEIGHTS)], [message], any_length=True)
    except ExampleError:
        return sizes
    return (*sizes, weights["next_sentence_weights"].shape[1])


def _parse(message: bytes, row: int) -> Dict[str, Any]:
    try:
        return {entry.key: entry.value for entry in Example.FromString(message).features.feature}
    except DecodeError:
        raise ExampleError(row, "is not a tf.train.Example") from None


def _decode_feature(feature: Feature, rows: Sequence[Dict[str, Any]], any_length: bool) -> np.ndarray:
    expected, dtype = (FLOATS, np.float32) if feature.dtype == "float32" else (INTEGERS, np.int64)
    numbers: List[float] = []
    length = feature.length
    for row, fields in enumerate(rows):
        list_name = fields[feature.name].WhichOneof("kind") if feature.name in fields else None
        if list_name is None:
            raise ExampleError(row, f"has no feature {feature.name} (it has {_names(fields)})")
        if list_name != expected:
            raise ExampleError(row, f"has {feature.name} as {list_name}, not {expected}")
        values = getattr(fields[feature.name], expected).value
        if any_length and row == 0:
            length = len(values)
        if len(values) != length:
            fix, name = _REMAKE, feature.length_setting
            if name is not None and len(values):
                fix = f"set {name} to {len(values)}, or dataset_dir to a data set made with {name} {length}"
            raise ExampleError(row, f"has {len(values)} values of {feature.name}, {length} are expected", fix)
        numbers.extend(values)
    return np.array(numbers, dtype).reshape(len(rows), length)


def _names(names: Iterable[str]) -> str:
    shown = [name[:40] if name.isprintable() else ascii(name[:40]) for name in sorted(names)]
    return ", ".join(shown[:8]) + (", …" if len(shown) > 8 else "") or "none"
