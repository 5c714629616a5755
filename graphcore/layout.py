"""Derives sizes and options of an IPU system from a config, as plain values."""

from __future__ import annotations

import math
import os
from typing import Any, Dict, Optional

from execution.interface import ExecutionOptions
from keras_extensions.backend import tf

EXECUTABLE_CACHE = "--executable_cache_path="
PREDICTION_STEPS = 16


def is_pipelined(options: ExecutionOptions) -> bool:
    return len(options.device_mapping) > 1


def ipus_per_replica(options: ExecutionOptions) -> int:
    """Return the number of IPUs of a replica, a power of two, as IPUs are allocated."""
    return 2 ** math.ceil(math.log2(max(options.device_mapping, default=0) + 1))


def matmul_options(options: ExecutionOptions, ipu: int) -> Dict[str, str]:
    chosen = {"partialsType": options.matmul_partials}
    if options.matmul_proportions:
        chosen["availableMemoryProportion"] = str(options.matmul_proportions[ipu])
    return chosen


def largest_divisor(number: int, at_most: int) -> int:
    """Return the largest divisor: updates per execution, where all executions of a run must have the same number."""
    return next(divisor for divisor in range(min(at_most, number), 0, -1) if number % divisor == 0)


def prediction_steps(options: ExecutionOptions, batches: int) -> int:
    """Return the number of batches that each replica predicts in one execution.

    The number fills the pipeline; without a pipeline, many batches save transfers to the host.
    """
    return 2 * len(options.device_mapping) if is_pipelined(options) else min(PREDICTION_STEPS, batches)


def micro_batches(data: Any, ahead: int) -> Any:
    """Split a data set of updates (A, B, …) into micro batches (B, …), of which ``ahead`` are prefetched.

    Each is paired with a target, which Keras requires but which is not used.
    """
    return data.unbatch().map(lambda element: (element, tf.zeros((1, 1)))).prefetch(ahead)


def use_executable_cache(folder: Optional[str]) -> None:
    """Cache compiled programs in ``folder``; Poplar reads this setting when it is first used."""
    flags = os.environ.get("TF_POPLAR_FLAGS", "")
    if folder not in (None, "auto") and EXECUTABLE_CACHE not in flags:
        os.environ["TF_POPLAR_FLAGS"] = f"{flags} {EXECUTABLE_CACHE}{folder}".strip()
