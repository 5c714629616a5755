"""Processes in alternation: A B C, A B C, …, so that a machine that drifts drifts for all of them."""

from __future__ import annotations

import dataclasses
import sys
import time
from collections.abc import Callable, Iterable, Iterator, Sequence
from typing import Any

from benchmarks.commands import measurement
from benchmarks.jobs import COMPETITORS, GEMM, MICRO_BATCH, Job

START_UP_SECONDS = 20.0  # imports and compilation, for the first guess of the remaining time
ASSUMED_GFLOPS = 80.0


@dataclasses.dataclass(frozen=True)
class Measurement:
    """What one process said.

    Attributes:
        round: 0-based.
        values: see :func:`benchmarks.worker.measure` and :mod:`benchmarks.competitors.gemm`.
    """

    competitor: str
    size: str
    round: int
    values: dict[str, Any]


def schedule(
    sizes: Sequence[str], competitors: Sequence[str], rounds: int, job_of: Callable[[str, str], Job]
) -> Iterator[tuple[int, Job]]:
    """Round after round, size after size, all competitors in turn."""
    for number in range(rounds):
        for size in sizes:
            for competitor in competitors:
                yield number, job_of(competitor, size)


def run_process(job: Job) -> dict[str, Any]:
    """Measure in a process of its own.

    Raises:
        UserError: the process failed; its last lines are shown before.
    """
    job = dataclasses.replace(job, started=time.time())
    fix = f"leave {job.competitor} out with --competitors"
    found: dict[str, Any] = measurement("-m", "benchmarks.worker", *job.arguments(), fix=fix)
    return found


def measure_all(
    planned: Iterable[tuple[int, Job]],
    done: Callable[[list[Measurement]], None],
    run: Callable[[Job], dict[str, Any]] = run_process,
) -> list[Measurement]:
    """Run all processes, one at a time, and tell the remaining time on standard error.

    Args:
        planned: rounds and jobs, in order.
        done: called after each process with all that was measured so far.
        run: measures one job.
    """
    jobs = list(planned)
    expected = [expected_seconds(job) for _, job in jobs]
    measured: list[Measurement] = []
    begin = time.monotonic()
    for index, (number, job) in enumerate(jobs):
        measured.append(Measurement(job.competitor, job.size, number, run(job)))
        done(measured)
        pace = (time.monotonic() - begin) / sum(expected[: index + 1])
        print(
            progress_line(measured[-1], index + 1, len(jobs), pace * sum(expected[index + 1 :])),
            file=sys.stderr,
        )
    return measured


def expected_seconds(job: Job) -> float:
    """A first guess, corrected by what the processes really take."""
    if job.competitor == GEMM:
        return START_UP_SECONDS
    samples = (job.warm_up + job.steps) * MICRO_BATCH
    return START_UP_SECONDS + samples * job.flops_per_sample * 1e-9 / ASSUMED_GFLOPS


def progress_line(measurement: Measurement, done: int, total: int, left: float) -> str:
    """One line for one process."""
    values = measurement.values
    figure = (
        f"{values['gflops']:.0f} GFLOP/s"
        if measurement.competitor == GEMM
        else f"{values['samples_per_second']:.2f} samples/s"
    )
    title = COMPETITORS[measurement.competitor].title
    minutes, seconds = divmod(round(left), 60)
    return (
        f"[{done}/{total}] round {measurement.round + 1}, {measurement.size}, {title}: {figure};"
        f" {minutes}:{seconds:02d} left"
    )
