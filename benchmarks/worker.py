"""One measurement in this process: ``python -m benchmarks.worker ours --size mini --started $(date +%s)``.

The last line of standard output is the result, as JSON.
"""

from __future__ import annotations

import importlib
import json
import os
import resource
import sys
import time
from typing import Any

from benchmarks.jobs import COMPETITORS, MICRO_BATCH, Job, Trainer


def measure(job: Job, train: Trainer) -> dict[str, Any]:
    """Warm up, then time the steps.

    Returns:
        ``samples_per_second``; ``first_step_seconds`` since the process began; ``peak_memory_mib`` of it.
    """
    train(1)
    first = time.time() - job.started
    if job.warm_up > 1:
        train(job.warm_up - 1)
    seconds = train(job.steps)
    return {
        "samples_per_second": job.steps * MICRO_BATCH / seconds,
        "first_step_seconds": first,
        "peak_memory_mib": resource.getrusage(resource.RUSAGE_SELF).ru_maxrss / 1024,
    }


def main(arguments: list[str]) -> None:
    """Run one job."""
    job = Job.parse(arguments)
    competitor = COMPETITORS[job.competitor]
    if competitor.without:
        os.environ[f"USE_{competitor.without}"] = "0"  # read by transformers when it is imported
    module = importlib.import_module(f"benchmarks.competitors.{competitor.module}")
    # A competitor that is no training loop in this process (a command, plain products) measures itself.
    result = module.measure(job) if hasattr(module, "measure") else measure(job, module.prepare(job))
    print(json.dumps(result), flush=True)


if __name__ == "__main__":
    main(sys.argv[1:])
