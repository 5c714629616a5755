"""From measurements to figures: medians over rounds, ratios within a round, and what was to be reached."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Sequence
from dataclasses import dataclass
from statistics import median

from benchmarks.jobs import (
    GEMM,
    OURS,
    PYTORCH,
    PYTORCH_TUNED,
    TENSORFLOW_FIT,
    TENSORFLOW_FUNCTION,
    Job,
)
from benchmarks.rounds import Measurement

SPEED, MEMORY, FIRST_STEP = "samples_per_second", "peak_memory_mib", "first_step_seconds"
OTHERS = (TENSORFLOW_FIT, TENSORFLOW_FUNCTION, PYTORCH, PYTORCH_TUNED)


class Figures:
    """Medians and ratios of a list of measurements; None wherever something was not measured."""

    def __init__(self, measurements: Iterable[Measurement]):
        self._values = {(m.competitor, m.size, m.round): m.values for m in measurements}

    def by_round(self, competitor: str, size: str, name: str) -> dict[int, float]:
        """One figure of one competitor at one size: round → value."""
        return {
            number: values[name]
            for (c, s, number), values in self._values.items()
            if (c, s) == (competitor, size) and values.get(name) is not None
        }

    def median(self, competitor: str, size: str, name: str) -> float | None:
        """The median over all rounds."""
        values = self.by_round(competitor, size, name).values()
        return median(values) if values else None

    def ratio(self, competitor: str, size: str) -> float | None:
        """Our samples/s over a competitor's: ratio within each round, then the median."""
        theirs = self.by_round(competitor, size, SPEED)
        ours = self.by_round(OURS, size, SPEED)
        ratios = [value / theirs[number] for number, value in ours.items() if number in theirs]
        return median(ratios) if ratios else None

    def ratio_to_best(self, competitors: Sequence[str], size: str) -> float | None:
        """The ratio to the fastest of several."""
        ratios = [ratio for ratio in (self.ratio(c, size) for c in competitors) if ratio is not None]
        return min(ratios) if ratios else None

    def gflops(self, competitor: str, size: str) -> float | None:
        """Model GFLOP/s: operations that the model needs, whatever the competitor really spends."""
        speed = self.median(competitor, size, SPEED)
        return None if speed is None else speed * flops(size) * 1e-9

    def gemm_share(self, size: str) -> float | None:
        """Our model FLOP/s over the rate of matrix products of the same round, median."""
        limit = self.by_round(GEMM, size, "gflops")
        ours = self.by_round(OURS, size, SPEED)
        shares = [value * flops(size) * 1e-9 / limit[number] for number, value in ours.items() if number in limit]
        return median(shares) if shares else None

    def memory_share(self, size: str) -> float | None:
        """Our peak memory over that of the most frugal competitor."""
        ours = self.median(OURS, size, MEMORY)
        theirs = [value for value in (self.median(c, size, MEMORY) for c in OTHERS) if value is not None]
        return ours / min(theirs) if ours is not None and theirs else None


def flops(size: str) -> int:
    """Model operations to train on one sample."""
    return Job(OURS, size, warm_up=1, steps=1).flops_per_sample


@dataclass(frozen=True)
class Target:
    """A figure that this project wants to reach.

    Attributes:
        of: the figure, None where it was not measured.
        bound: at least this, or below it.
        unit: a format for the figure.
    """

    name: str
    size: str
    of: Callable[[Figures], float | None]
    bound: float
    at_least: bool = True
    form: str = "{:.2f} ×"

    def reached(self, figures: Figures) -> bool | None:
        """None where it was not measured."""
        value = self.of(figures)
        if value is None:
            return None
        return value >= self.bound if self.at_least else value < self.bound


def targets(sizes: Sequence[str]) -> list[Target]:
    """What is to be reached at these sizes."""
    return [target for size in sizes for target in _targets(size)]


def _targets(size: str) -> list[Target]:
    tensorflow = (TENSORFLOW_FIT, TENSORFLOW_FUNCTION)
    speed = {"mini": (3.0, 2.5), "base": (1.7, 1.7)}.get(size)
    wanted: list[Target] = []
    if speed:
        wanted += [
            Target(
                "speed over HF TensorFlow, the better",
                size,
                lambda f: f.ratio_to_best(tensorflow, size),
                speed[0],
            ),
            Target("speed over HF PyTorch, eager", size, lambda f: f.ratio(PYTORCH, size), speed[1]),
        ]
    wanted.append(Target("speed over HF PyTorch, tuned by hand", size, lambda f: f.ratio(PYTORCH_TUNED, size), 1.2))
    wanted.append(
        Target(
            "peak memory over the least of the others",
            size,
            lambda f: f.memory_share(size),
            1.0,
            at_least=False,
        )
    )
    if size == "base":
        wanted += [
            Target(
                "model FLOP/s of the matrix-product rate",
                size,
                lambda f: f.gemm_share(size),
                0.8,
                form="{:.0%}",
            ),
            Target(
                "start of the process to first step done",
                size,
                lambda f: f.median(OURS, size, FIRST_STEP),
                30.0,
                at_least=False,
                form="{:.1f} s",
            ),
        ]
    return wanted
