"""When the jobs of an update would run, given how long each takes: what a schedule can reach at best.

Knows no TensorFlow; the plan of a run uses it too.
"""

from __future__ import annotations

from typing import Dict, List, Mapping, NamedTuple, Sequence

from execution.software.pipeline.schedule import BACKWARD, FORWARD, Job, Schedule


class Interval(NamedTuple):
    """One job of the timeline.

    Attributes:
        job: forward or backward, and the stage.
        micro_batch: its number.
        start, end: in the unit of the durations.
    """

    job: Job
    micro_batch: int
    start: float
    end: float


def simulate(
    schedule: Schedule, durations: Mapping[Job, float], micro_batches: int, devices: Sequence[int]
) -> List[Interval]:
    """Every job at the earliest time that its inputs and its device allow, in the order of the schedule.

    An iteration begins when the one before has ended, as in the engine's loop.

    Args:
        schedule: of the pipeline.
        durations: of each job; that of the last stage's backward job includes its forward pass.
        micro_batches: of the update.
        devices: number of each stage's device; a device does one job at a time.

    Example:
        >>> schedule = make_schedule("grouped", 2)
        >>> durations = {("forward", 0): 1, ("backward", 0): 2, ("backward", 1): 3}
        >>> max(interval.end for interval in simulate(schedule, durations, 8, [0, 1]))
        27
    """
    ends: Dict[Job, Dict[int, float]] = {}
    free: Dict[int, float] = dict.fromkeys(devices, 0.0)
    intervals: List[Interval] = []
    latest = 0.0
    one_at_a_time = all(len(phase) == 1 for phase in schedule.phases)
    for iteration in range(schedule.iterations(micro_batches)):
        begun = latest
        for phase in schedule.phases:
            for job in phase:
                micro_batch = iteration - behind(schedule, job)
                if not 0 <= micro_batch < micro_batches:
                    continue
                needed = [ends[other][micro_batch] for other in inputs_of(schedule, job)]
                device = devices[job[1]]
                start = max([free[device], latest if one_at_a_time else begun, *needed])
                end = start + durations[job]
                free[device] = ends.setdefault(job, {})[micro_batch] = end
                intervals.append(Interval(job, micro_batch, start, end))
                latest = max(latest, end)
    return intervals


def behind(schedule: Schedule, job: Job) -> int:
    """Iterations by which a job is behind."""
    kind, stage = job
    return (schedule.forward if kind == FORWARD else schedule.backward)[stage]


def inputs_of(schedule: Schedule, job: Job) -> List[Job]:
    """The jobs on the same micro batch whose results a job needs."""
    kind, stage = job
    last = stage == schedule.stages - 1
    needed: List[Job] = []
    if stage and (kind == FORWARD or last):
        needed.append((FORWARD, stage - 1))
    if kind == BACKWARD and not last:
        needed += [(FORWARD, stage), (BACKWARD, stage + 1)]
    return needed


def makespan(intervals: Sequence[Interval]) -> float:
    """Time from the first start to the last end."""
    return max(interval.end for interval in intervals) - min(interval.start for interval in intervals)


def idle_fraction(intervals: Sequence[Interval], devices: int) -> float:
    """Share of the devices' time in which they wait: the pipeline's bubble."""
    busy = sum(interval.end - interval.start for interval in intervals)
    return 1.0 - busy / (makespan(intervals) * devices)
