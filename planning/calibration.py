"""Estimates how fast this machine trains, from half a second of matrix products."""

from __future__ import annotations

import time

import numpy as np

SIDE = 1024  # rows and columns of the matrices
SECONDS = 0.5  # of measurement
TRAINING_SHARE = 0.6  # training BERT reaches roughly this share of the rate of large products; see RESULTS.md


def matrix_flops() -> float:
    """Return the best rate of float32 products of square matrices within half a second, in operations per second."""
    random = np.random.default_rng(0)
    a, b = (random.standard_normal((SIDE, SIDE), np.float32) for _ in range(2))
    a @ b
    best, begun = 0.0, time.perf_counter()
    while time.perf_counter() - begun < SECONDS:
        start = time.perf_counter()
        a @ b
        best = max(best, 2 * SIDE**3 / (time.perf_counter() - start))
    return best
