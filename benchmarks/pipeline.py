"""Do pipeline stages overlap? Two stages on one thread each, pipelined and in sequence, side by side.

    python -m benchmarks.pipeline --picture timeline.svg

Prints the throughput of each schedule as a ratio to the same stages in sequence, beside the bound that the measured
lengths of the jobs put on the schedule, and draws the last update of each schedule as it ran.
"""

from __future__ import annotations

import argparse
import os
import statistics
import sys
from pathlib import Path

from model.architecture import Architecture

SCHEDULES = ["sequential", "grouped", "interleaved"]


def main(arguments: list[str] | None = None) -> int:
    """Command line; see the module's text."""
    parser = argparse.ArgumentParser(prog="benchmarks.pipeline", description=__doc__.split("\n")[0])
    parser.add_argument("--hidden", type=int, default=256, metavar="N", help="width of the model (default %(default)s)")
    parser.add_argument("--layers", type=int, default=4, metavar="N", help="encoder layers (default %(default)s)")
    parser.add_argument("--micro-batches", type=int, default=16, metavar="N", help="of an update (default %(default)s)")
    parser.add_argument("--rounds", type=int, default=3, metavar="N", help="updates of each (default %(default)s)")
    parser.add_argument("--picture", type=Path, metavar="FILE", help="SVG or PNG of the timelines")
    options = parser.parse_args(arguments)
    os.environ.setdefault("TF_CPP_MIN_LOG_LEVEL", "2")
    from benchmarks.pipeline_stages import make_updates  # imports TensorFlow

    sizes = Architecture(
        hidden_size=options.hidden,
        num_hidden_layers=options.layers,
        num_attention_heads=options.hidden // 64,
        intermediate_size=4 * options.hidden,
        vocab_size=4096,
    )
    updates = make_updates(sizes, SCHEDULES, options.micro_batches)
    for update in updates.values():
        update()  # compiles
    seconds: dict[str, list[float]] = {name: [] for name in SCHEDULES}
    stamps: dict[str, list] = {}
    for _ in range(options.rounds):
        for name, update in updates.items():
            taken, stamps[name] = update()
            seconds[name].append(taken)
    print_table(seconds, stamps, options.micro_batches)
    if options.picture:
        draw(stamps, options.picture)
        print(f"timelines: {options.picture}")
    return 0


def print_table(seconds: dict[str, list[float]], stamps: dict[str, list], micro_batches: int) -> None:
    """Medians, ratios, bounds."""
    from execution.software.pipeline.schedule import make_schedule, makespan, simulate

    alone: dict = {}
    for job, start, end in stamps["sequential"]:
        alone.setdefault(job, []).append(end - start)
    durations = {job: statistics.median(lengths) for job, lengths in alone.items()}
    times = {name: makespan(simulate(make_schedule(name, 2), durations, micro_batches, [0, 1])) for name in SCHEDULES}
    base = statistics.median(seconds["sequential"])
    print(f"{'schedule':12} {'update, s':>10} {'× sequence':>11} {'bound':>7} {'of bound':>9}")
    for name in SCHEDULES:
        median = statistics.median(seconds[name])
        ratio, bound = base / median, times["sequential"] / times[name]
        print(f"{name:12} {median:10.2f} {ratio:11.2f} {bound:7.2f} {ratio / bound:9.0%}")
    lengths = ", ".join(f"{kind} {stage}: {length * 1e3:.0f} ms" for (kind, stage), length in durations.items())
    print(f"jobs in sequence: {lengths}")


def draw(stamps: dict[str, list], path: Path) -> None:
    """One row for each stage of each schedule."""
    import matplotlib

    matplotlib.use("Agg")
    from matplotlib import pyplot

    figure, axes = pyplot.subplots(len(stamps), 1, figsize=(10, 1.6 * len(stamps)), sharex=True)
    for axis, (name, jobs) in zip(axes, stamps.items()):
        begun = min(start for _, start, _ in jobs)
        for (kind, stage), start, end in jobs:
            # Thin and in front: on a CPU a stage's forward pass may run beside its backward pass.
            look = ("tab:blue", 0.4, 2) if kind == "forward" else ("tab:orange", 0.8, 1)
            color, height, order = look
            axis.barh(
                stage, end - start, height, start - begun, color=color, edgecolor="white", linewidth=0.4, zorder=order
            )
        axis.set_yticks([0, 1], ["stage 0", "stage 1"])
        axis.invert_yaxis()
        axis.set_title(f"{name} (blue: forward, orange: backward)", fontsize=9, loc="left")
    axes[-1].set_xlabel("seconds")
    figure.tight_layout()
    figure.savefig(path)


if __name__ == "__main__":
    sys.exit(main())
