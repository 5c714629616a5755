"""How ``run_from_text.py`` fills its time: updates that are decided, and decided anew; by hand-computed values."""

from __future__ import annotations

import json
import time
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pytest

from tasks.from_text.choice import choose
from tasks.from_text.folder import Folder
from tasks.from_text.inputs import Machine, Measured, Text
from tasks.from_text.pace import Pace, measure
from tasks.from_text.phases import Phase
from utilities.errors import UserError

TEXT = Text(150.0, 25_000_000, 40_000, 0.0, "LATIN", False, False)
HOURS = 0.5
START = 5.0
SHORT_ROWS = 0.94  # an update of rows of 32 tokens takes as much less


def machine(speed: float) -> Machine:
    return Machine(2, "avx512_bf16", 8.0, "", "", Measured(speed, START, 60.0))


class Clock(Folder):
    """A folder whose command has worked as long as is said."""

    seconds_worked = 0.0

    def worked(self) -> float:
        return self.seconds_worked


def pace(path: Path, worked: float = 100.0, speed: float = 1.0, hours: float = HOURS) -> Pace:
    path.mkdir(exist_ok=True)
    folder = Clock(path, time.monotonic())
    folder.seconds_worked = worked
    recipe = choose(TEXT, machine(speed), HOURS)
    config = {"dataset_dir": str(path / "none"), "word_vectors": False, "max_seq_length": 32,
              "global_batch": {"micro_batch_size": 16, "replicas": 1, "grad_acc_steps_per_replica": 2}}  # fmt: skip
    return Pace(folder, recipe, [Phase("32", config), Phase("128", config)], START, hours)


def working(found: Pace) -> Clock:
    clock = found._folder
    assert isinstance(clock, Clock)
    return clock


def seconds_of(found: Pace) -> float:
    """Return what all updates take, by the time of an update that is written down."""
    update = json.loads((working(found).path / "updates.json").read_text())["seconds_of_an_update"]
    return float((SHORT_ROWS * found.updates["32"] + found.updates["128"]) * update)


def test_the_updates_fill_what_is_left(tmp_path: Path) -> None:
    found = pace(tmp_path)
    around = 100 + 2 * START + 0.3 * START + 3.5  # worked; both starts; the evaluation's; the export and the page
    assert seconds_of(found) == pytest.approx(HOURS * 3600 - around, rel=0.005)
    assert pace(tmp_path, worked=900.0).updates == found.updates  # it is written down


def test_a_slower_machine_gets_fewer_updates_or_a_smaller_model(tmp_path: Path) -> None:
    fast, slow = (pace(tmp_path / str(speed), speed=speed) for speed in (1.0, 0.1))
    assert slow._recipe.layers * slow._recipe.hidden**2 < fast._recipe.layers * fast._recipe.hidden**2
    assert slow._recipe.weight_decay <= fast._recipe.weight_decay


def test_too_little_time_is_refused_with_the_time_that_is_enough(tmp_path: Path) -> None:
    with pytest.raises(UserError, match="keeps what is prepared") as refused:
        pace(tmp_path, worked=HOURS * 3600 - 3)
    hours = float(str(refused.value).split("at least --hours ")[1].split(",")[0])
    assert pace(tmp_path, worked=HOURS * 3600 - 3, hours=hours).updates


@pytest.mark.parametrize("slower", [2.0, 0.7])
def test_a_part_that_will_end_late_or_early_is_stopped_and_the_rest_fills_the_time(
    tmp_path: Path, slower: float
) -> None:
    found = pace(tmp_path)
    last, planned, timed = found._phases[1], dict(found.updates), found._timing.update
    half = planned["128"] // 2
    working(found).seconds_worked = HOURS * 3600 - found.seconds_after(last) - half * timed
    watch = found.watch(last)
    begun = half - 400
    steps = range(begun, half + 1, 100)
    stops = [watch(period(step, (step - begun) * slower * timed, planned["128"])) for step in steps]
    assert stops[-1] and not any(stops[:2]) and watch.stopped_at in steps and watch.slower == pytest.approx(slower)
    found.mend(last, half, watch.slower)
    rest = (found.updates["128"] - half) * slower * timed
    around = found.seconds_after(last)  # takes as much longer or less long, as does the start
    left = half * timed + around - slower * (around + START)
    assert rest == pytest.approx(left, abs=2 * slower * timed)
    assert found.updates["32"] == planned["32"] and found.changes[-1].step == half
    assert pace(tmp_path).updates == found.updates


def period(step: int, seconds: float, total: int) -> Any:
    return SimpleNamespace(step=step, seconds=seconds, total_steps=total)


def test_a_part_is_not_made_longer_by_less_than_a_start_takes(tmp_path: Path) -> None:
    found = pace(tmp_path)
    last, update = found._phases[1], found._timing.update
    rest = 20
    for spare, is_off in ((0.025 * HOURS * 3600 + 1.0, False), (0.025 * HOURS * 3600 + START + 3.0, True)):
        working(found).seconds_worked = HOURS * 3600 - found.seconds_after(last) - rest * update - spare
        assert found.is_off(last, found.updates["128"] - rest, 1.0) == is_off


def test_a_part_in_time_or_nearly_done_is_not_stopped(tmp_path: Path) -> None:
    found = pace(tmp_path)
    last, update = found._phases[1], found._timing.update
    for rest, slower in ((500, 1.02), (500, 0.98), (20, 3.0)):
        working(found).seconds_worked = HOURS * 3600 - found.seconds_after(last) - rest * update
        assert not found.is_off(last, found.updates["128"] - rest, slower)


@pytest.mark.parametrize(("slower", "is_off"), [(1.3, False), (2.5, True), (0.8, False), (0.3, True)])
def test_the_first_part_goes_on_where_the_second_can_make_up_for_it(
    tmp_path: Path, slower: float, is_off: bool
) -> None:
    found = pace(tmp_path)
    assert found.is_off(found._phases[0], 100, slower) == is_off


def test_a_length_that_was_mended_stays_for_a_third_of_the_time_that_was_left(tmp_path: Path) -> None:
    """Without this, a load that comes and goes restarts a training again and again; a new phase is watched at once."""
    found = pace(tmp_path)
    last, left = found._phases[1], HOURS * 3600 - 600.0
    for step, stays in ((1000, 2 / 3), (0, 1.0)):
        working(found).seconds_worked = 600.0
        found.mend(last, step, 2.0)
        for share, is_off in ((stays + 0.01, step == 0), (stays - 0.01, True)):
            working(found).seconds_worked = HOURS * 3600 - share * left
            assert found.is_off(last, step + 1, 9.0) == is_off


def test_the_first_part_watches_its_own_updates_and_the_second_is_fitted_when_it_has_ended(tmp_path: Path) -> None:
    found = pace(tmp_path)
    first, last = found._phases
    watch, timed = found.watch(first), found._timing.update
    for step in (50, 100, 150, 200):  # 1.5 times as slow as updates of this length were
        working(found).seconds_worked = 100.0 + step * 1.5 * SHORT_ROWS * timed
        watch(period(step, step * 1.5 * SHORT_ROWS * timed, found.updates["32"]))
    assert watch.slower == pytest.approx(1.5)
    working(found).seconds_worked = 700.0
    found.ended(first, watch.slower)
    left = HOURS * 3600 - 700.0 - 1.5 * (found.seconds_after(last) + START)
    assert found.updates["128"] * 1.5 * timed == pytest.approx(left, abs=2 * timed)


def test_more_hours_let_the_last_part_go_on_once(tmp_path: Path) -> None:
    first = pace(tmp_path)
    (tmp_path / "128").mkdir()
    more = pace(tmp_path, worked=HOURS * 3600, hours=2 * HOURS)
    left = HOURS * 3600 - more.seconds_after(more._phases[1]) - START
    assert more.updates["128"] - first.updates["128"] == pytest.approx(left / more._timing.update, abs=1)
    assert pace(tmp_path, worked=HOURS * 3600 + 500, hours=2 * HOURS).updates == more.updates


def test_the_timing_sees_the_start_though_the_time_is_noted_meanwhile(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    def train(_: Any, path: Path) -> None:
        config = json.loads(path.read_text())
        run = Path(config["output_dir"]) / config["name"]
        run.mkdir(parents=True)
        period = {"step": 1, "seconds": 1.0, "throughput": 20_000.0, "metrics": {}}
        (run / "metrics.jsonl").write_text(json.dumps(period) + "\n")
        time.sleep(0.3)
        folder.lap("timing")  # as the thread does that notes the time

    monkeypatch.setattr("tasks.from_text.pace.train", train)
    monkeypatch.setattr("tasks.from_text.pace.TIMED_SECONDS", (0.0, 0.0))
    folder = Folder(tmp_path, time.monotonic())
    config = {"global_batch": {"micro_batch_size": 16, "replicas": 1, "grad_acc_steps_per_replica": 2}}
    found = measure(machine(1.0), choose(TEXT, machine(1.0), HOURS), Phase("128", config), folder).measured
    assert found is not None and found.start > 0.25  # longer on a busy machine
