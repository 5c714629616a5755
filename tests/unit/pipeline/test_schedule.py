"""Pipeline schedules: order of jobs, micro batches in flight, tensors between stages, simulated times."""

from __future__ import annotations

import itertools

import pytest

from pipeline.engine import stage_tensors
from pipeline.schedule import BACKWARD, FORWARD, idle_fraction, make_schedule, makespan, simulate

SCHEDULES = ("grouped", "interleaved", "sequential")


def job_times(schedule, micro_batches):
    """Return (kind, stage, micro batch) → (iteration, phase) under a schedule."""
    when = {}
    for iteration in range(schedule.iterations(micro_batches)):
        for number, phase in enumerate(schedule.phases):
            for kind, stage in phase:
                behind = (schedule.forward if kind == FORWARD else schedule.backward)[stage]
                if 0 <= iteration - behind < micro_batches:
                    when[kind, stage, iteration - behind] = (iteration, number)
    return when


@pytest.mark.parametrize("name, stages", itertools.product(SCHEDULES, range(1, 7)))
def test_every_job_runs_once_and_after_its_inputs(name, stages):
    schedule, micro_batches = make_schedule(name, stages), 9
    when, last = job_times(schedule, micro_batches), stages - 1
    jobs = {(FORWARD, s) for s in range(last)} | {(BACKWARD, s) for s in range(stages)}
    assert when.keys() == {(*job, m) for job in jobs for m in range(micro_batches)}
    for (kind, stage, micro_batch), time in when.items():
        if (kind == FORWARD and stage > 0) or (kind == BACKWARD and stage == last and stages > 1):
            assert when[FORWARD, stage - 1, micro_batch] < time
        if kind == BACKWARD and stage < last:
            assert when[BACKWARD, stage + 1, micro_batch] < time
            assert when[FORWARD, stage, micro_batch] < time


@pytest.mark.parametrize("stages", range(2, 7))
def test_jobs_of_a_phase_run_on_different_stages(stages):
    sequential = make_schedule("sequential", stages)
    assert all(len(phase) == 1 for phase in sequential.phases)
    grouped = make_schedule("grouped", stages)
    assert [{kind for kind, _ in phase} for phase in grouped.phases] == [{FORWARD}, {BACKWARD}]
    for phase in make_schedule("interleaved", stages).phases:
        busy = [stage for _, stage in phase]
        assert len(busy) == len(set(busy)), "a stage runs one job at a time"


def in_flight(schedule, stage, micro_batches=20):
    """Return the maximum number of micro batches between a stage's forward and backward job."""
    when = job_times(schedule, micro_batches)
    times = sorted(set(when.values()))
    forward = [when[FORWARD, stage, m] for m in range(micro_batches)]
    backward = [when[BACKWARD, stage, m] for m in range(micro_batches)]
    return max(sum(f <= time for f in forward) - sum(b < time for b in backward) for time in times)


@pytest.mark.parametrize("stages", range(2, 7))
def test_micro_batches_in_flight(stages):
    """Narayanan et al. 2019, section 3.2: in "one forward one backward", S - s are in flight at stage s."""
    interleaved, grouped = make_schedule("interleaved", stages), make_schedule("grouped", stages)
    for stage in range(stages - 1):
        assert in_flight(interleaved, stage) == stages - stage
        assert interleaved.kept(stage) <= stages - stage + 1
        assert grouped.kept(stage) == in_flight(grouped, stage) == 2 * (stages - 1 - stage) + 1
    assert all(make_schedule("sequential", stages).kept(stage) == 1 for stage in range(stages))


class Named:
    def __init__(self, name, reads, writes):
        self.name, self.reads, self.writes = name, reads, writes


def test_tensors_pass_through_stages_that_do_not_read_them():
    a = Named("a", ("ids",), ("hidden", "bias"))
    b = Named("b", ("hidden", "bias"), ("hidden",))
    c = Named("c", ("hidden", "positions"), ("masked",))
    d = Named("d", ("masked", "bias"), ("out",))
    first, second, third = stage_tensors([[a], [b], [c, d]], ["ids", "positions"], ["out"])
    assert (first.from_batch, first.received, set(first.sent)) == (("ids",), (), {"hidden", "bias"})
    assert (second.from_batch, set(second.received), set(second.sent)) == ((), {"hidden", "bias"}, {"hidden", "bias"})
    assert (third.from_batch, set(third.received), third.sent) == (("positions",), {"hidden", "bias"}, ("out",))


def test_simulated_times_of_known_cases():
    """Two stages, forward 1 and backward 2 each; the last stage runs both as one job of 3."""
    durations = {(FORWARD, 0): 1.0, (BACKWARD, 0): 2.0, (BACKWARD, 1): 3.0}
    ends = {
        "sequential": 8 * (1 + 3 + 2),
        "grouped": 1 + 8 * 3 + 2,  # fill, the second stage's work, drain
        "interleaved": 1 + 8 * (3 + 2),  # fill, then the second stage's turn and the first one's
    }
    for name, end in ends.items():
        intervals = simulate(make_schedule(name, 2), durations, 8, [0, 1])
        assert makespan(intervals) == end
        assert idle_fraction(intervals, 2) == pytest.approx(1 - 48 / (2 * end))


def test_one_device_is_never_idle():
    durations = {(FORWARD, 0): 1.0, (BACKWARD, 0): 2.0, (BACKWARD, 1): 3.0}
    intervals = simulate(make_schedule("grouped", 2), durations, 5, [0, 0])
    assert makespan(intervals) == 5 * 6
    assert idle_fraction(intervals, 1) == 0
