"""Schedules of a pipeline: the order in which stages process micro batches, and the duration of an update.

A pipeline repeats one iteration. In iteration ``i`` stage ``s`` runs the forward pass of micro batch ``i - forward[s]``
and the backward pass of micro batch ``i - backward[s]``. Numbers below 0 or past the last micro batch occur while the
pipeline fills or drains; the stage is then idle. All schedules give the same gradients. They differ in the jobs that
may run at the same time, and in the number of micro batches in flight, whose inputs each stage keeps:

==============  =============================  ===========================  ================
schedule        at the same time               inputs kept by stage s       extra iterations
==============  =============================  ===========================  ================
sequential      one stage only                 1                            0
grouped         all forward, or all backward   2 (S - 1 - s) + 1            2 (S - 1)
interleaved     forward and backward in turns  S - s, or 1 more             S - 1
==============  =============================  ===========================  ================

The last stage runs forward and backward as one job, which counts as a backward job.

This module imports no TensorFlow, because the plan of a run uses it.

Sources: Huang et al. 2019 (GPipe), Narayanan et al. 2019 (PipeDream, one forward one backward), and the documentation
of Graphcore's pipelining (grouped, interleaved, sequential).

S  number of stages
"""

from __future__ import annotations

import dataclasses
from typing import Dict, List, Mapping, NamedTuple, Sequence, Tuple

FORWARD, BACKWARD = "forward", "backward"
Job = Tuple[str, int]  # FORWARD or BACKWARD, and the stage


@dataclasses.dataclass(frozen=True)
class Schedule:
    """Delays of each stage's jobs, in iterations, and the jobs of an iteration, by phases that follow one another."""

    forward: Tuple[int, ...]
    backward: Tuple[int, ...]
    phases: Tuple[Tuple[Job, ...], ...]

    @property
    def stages(self) -> int:
        return len(self.forward)

    def delay(self, job: Job) -> int:
        kind, stage = job
        return (self.forward if kind == FORWARD else self.backward)[stage]

    def iterations(self, micro_batches: int) -> int:
        """Return the number of iterations of an update, with filling and draining."""
        return micro_batches + max(self.backward)

    def kept(self, stage: int) -> int:
        """Return the maximum number of micro batches whose inputs a stage keeps."""
        return self.backward[stage] - self.forward[stage] + 1


def make_schedule(name: str, stages: int) -> Schedule:
    """Return the schedule of this name in ``ipu_config.pipeline_schedule``, for one or more stages."""
    last = stages - 1
    if name == "sequential":
        one_by_one = [(FORWARD, s) for s in range(last)] + [(BACKWARD, s) for s in range(last, -1, -1)]
        return Schedule((0,) * stages, (0,) * stages, tuple((job,) for job in one_by_one))
    if name == "grouped":
        forward = tuple(range(stages))
        backward = tuple(2 * last - s for s in range(stages))
        phases = tuple((FORWARD, s) for s in range(last)), tuple((BACKWARD, s) for s in range(stages))
        return Schedule(forward, backward, tuple(phase for phase in phases if phase))
    assert name == "interleaved", name
    # In half iterations: forward of micro batch m at 2m + s, backward at 2m + 2S - 1 - s.
    starts = {(FORWARD, s): s for s in range(last)}
    starts.update({(BACKWARD, s): 2 * stages - 1 - s for s in range(stages)})
    halves = (tuple(job for job, start in starts.items() if start % 2 == half) for half in (0, 1))
    return Schedule(
        tuple(s // 2 for s in range(stages)),
        tuple((2 * stages - 1 - s) // 2 for s in range(stages)),
        tuple(half for half in halves if half),
    )


class Interval(NamedTuple):
    """The time of one job on one micro batch, in the unit of the durations."""

    job: Job
    micro_batch: int
    start: float
    end: float


def simulate(
    schedule: Schedule, durations: Mapping[Job, float], micro_batches: int, devices: Sequence[int]
) -> List[Interval]:
    """Start every job as early as its inputs and its device allow, which is the best result of a schedule.

    An iteration begins when the previous one has ended, as in the engine's loop.

    Args:
        durations: duration of each job; that of the last stage's backward job includes its forward pass.
    """
    ends: Dict[Job, Dict[int, float]] = {}
    free: Dict[int, float] = dict.fromkeys(devices, 0.0)
    intervals: List[Interval] = []
    latest = 0.0
    one_at_a_time = all(len(phase) == 1 for phase in schedule.phases)
    for iteration in range(schedule.iterations(micro_batches)):
        begun = latest
        for job in (job for phase in schedule.phases for job in phase):
            micro_batch = iteration - schedule.delay(job)
            if not 0 <= micro_batch < micro_batches:
                continue
            inputs = [ends[other][micro_batch] for other in _required_jobs(schedule, job)]
            device = devices[job[1]]
            start = max([free[device], latest if one_at_a_time else begun, *inputs])
            end = start + durations[job]
            free[device] = ends.setdefault(job, {})[micro_batch] = end
            intervals.append(Interval(job, micro_batch, start, end))
            latest = max(latest, end)
    return intervals


def _required_jobs(schedule: Schedule, job: Job) -> List[Job]:
    """Return the jobs whose results a job on the same micro batch needs."""
    kind, stage = job
    last = stage == schedule.stages - 1
    required: List[Job] = []
    if stage and (kind == FORWARD or last):
        required.append((FORWARD, stage - 1))
    if kind == BACKWARD and not last:
        required += [(FORWARD, stage), (BACKWARD, stage + 1)]
    return required


def makespan(intervals: Sequence[Interval]) -> float:
    return max(interval.end for interval in intervals) - min(interval.start for interval in intervals)


def idle_fraction(intervals: Sequence[Interval], devices: int) -> float:
    """Return the share of the devices' time in which they are idle, the pipeline's bubble."""
    busy = sum(interval.end - interval.start for interval in intervals)
    return 1.0 - busy / (makespan(intervals) * devices)
