"""The machine's limit: float32 matrix products at BERT-base's shapes, all cores."""

from __future__ import annotations

import time
from statistics import median
from typing import Any

from benchmarks.jobs import Job
from keras_extensions.backend import tf

ROWS, HIDDEN, INTERMEDIATE = 1024, 768, 3072  # rows: micro batch × sequence
SHAPES = ((ROWS, HIDDEN, INTERMEDIATE), (ROWS, INTERMEDIATE, HIDDEN))
WINDOWS = 6
WINDOW_SECONDS = 0.5


def measure(job: Job) -> dict[str, Any]:
    """The rate of the better shape: GFLOP/s."""
    rates = {"×".join(map(str, shape)): sustained_rate(*shape) for shape in SHAPES}
    return {"gflops": max(rates.values()), "gflops_by_shape": rates}


def sustained_rate(rows: int, inner: int, columns: int) -> float:
    """GFLOP/s of (rows, inner) times (inner, columns), median of several windows."""
    left, right = tf.random.normal((rows, inner)), tf.random.normal((inner, columns))
    tf.matmul(left, right)
    found = []
    for _ in range(WINDOWS):
        count, begin = 0, time.perf_counter()
        while time.perf_counter() - begin < WINDOW_SECONDS:
            tf.matmul(left, right)
            count += 1
        found.append(count * 2e-9 * rows * inner * columns / (time.perf_counter() - begin))
    return median(found)
