"""Predictions one after the other, without a graph at first, because tracing one takes longer than a batch."""

from __future__ import annotations

import numpy as np
import pytest

from data_utils.records.arrays import ArrayReader
from data_utils.records.features import fine_tuning_features
from keras_extensions.backend import tf
from training.prediction import CALLS_BEFORE_TRACING, PredictorByLength

LENGTH = 4


@pytest.mark.parametrize(("samples", "rows"), [(1, 1), (3, None)])
def test_a_graph_is_traced_once_many_calls_were_made(samples: int, rows: int | None) -> None:
    """That of one sample knows that it has one."""
    computed = []  # by Python: for each call without a graph, and once for the graph

    def compute(inputs: dict[str, tf.Tensor]) -> dict[str, tf.Tensor]:
        computed.append(None if tf.executing_eagerly() else list(inputs["input_ids"].shape))
        return {"sums": tf.reduce_sum(inputs["input_ids"], axis=1, keepdims=True)}

    predict = PredictorByLength(compute)
    spec, calls = fine_tuning_features(LENGTH, 50), CALLS_BEFORE_TRACING + 30
    for number in range(calls):
        ids = np.arange(samples * LENGTH).reshape(samples, LENGTH) + number
        arrays = {"input_ids": ids, "input_mask": np.ones_like(ids), "segment_ids": np.zeros_like(ids)}
        outputs = predict(ArrayReader(spec, arrays), np.full(samples, LENGTH))
        assert outputs["sums"].tolist() == ids.sum(axis=1, keepdims=True).tolist()
    assert computed == [None] * CALLS_BEFORE_TRACING + [[rows, None]]
