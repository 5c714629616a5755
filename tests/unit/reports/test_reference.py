"""Reference bands are read from files and runs, judged, warned about, and shown."""

from __future__ import annotations

import json
import math
import time

import numpy as np
import pytest

from keras_extensions.listeners.reporting import Period
from reports.page import write_report
from reports.reference import REFERENCE_NAME, Band, TrailingMean, load_reference, read_band, smoothed
from tests.support.html_pages import Page, read_page
from tests.support.run_folders import make_run, period
from training.monitoring import ReferenceCheck
from utilities.errors import UserError


def loss(samples: float, seed: int = 0, excess: float = 0.0) -> float:
    """Return a curve like that of pre-training, with noise that depends on the seed."""
    noise = np.random.default_rng([seed, int(samples)]).normal(0, 0.15)
    return 6 + 4 * math.exp(-samples / 2000) + noise + excess


def write_run(folder, seed=0, steps=range(10, 1001, 10), excess=lambda samples: 0.0):
    """Write a run with 8 samples a step."""
    periods = [period(step, mlm=loss(step * 8, seed, excess(step * 8)), total=1000) for step in steps]
    return make_run(folder, periods)


def feed(check: ReferenceCheck, seed=1, steps=range(10, 1001, 10), batch=8, excess=lambda samples: 0.0) -> None:
    check.begin(0, 1000)
    for step in steps:
        values = {"mlm_loss": loss(step * batch, seed, excess(step * batch))}
        check.period(Period(step, 1000, 10, step * batch, step / 2, 16.0, False, None, None, values))


@pytest.fixture
def band(tmp_path) -> Band:
    return load_reference(write_run(tmp_path / "first"), 0.05)


def test_smoothing_is_the_mean_over_the_last_tenth_of_the_way():
    positions = [float(n) for n in range(1, 301)]
    values = list(np.random.default_rng(3).normal(size=300))
    expected = [np.mean([v for p, v in zip(positions, values) if 0.9 * q < p <= q]) for q in positions]
    assert smoothed(positions, values) == pytest.approx(expected)


def test_a_huge_loss_leaves_the_mean_without_a_trace():
    mean = TrailingMean()
    for position in range(1, 301):
        last = mean.add(position, 1e29 if position == 100 else 0.125 * (position % 8))
    assert last == np.mean([0.125 * (position % 8) for position in range(271, 301)])


def test_a_run_that_goes_back_forgets_what_it_repeats():
    mean = TrailingMean()
    for point in [(1, 5.0), (2, 5.0), (100, 4.0), (101, 9.0), (102, 9.0), (101, 2.0)]:
        last = mean.add(*point)
    assert last == pytest.approx((4.0 + 2.0) / 2) and len(mean) == 4


def test_smoothing_takes_linear_time():
    def seconds(points: int) -> float:
        def once() -> float:
            begun = time.process_time()
            smoothed(range(1, points + 1), [1.0] * points)
            return time.process_time() - begun

        return min(once() for _ in range(3))

    assert seconds(40_000) < 9 * seconds(10_000)  # 16 times if it were quadratic


def test_band_of_a_run_is_its_smoothed_curve_and_the_tolerance(band):
    assert (band.metric, band.axis) == ("mlm_loss", "samples")
    low, high = band.at(8000)
    assert (high + low) / 2 == pytest.approx(6 + 4 * math.exp(-4), abs=0.1)
    assert high / low == pytest.approx(1.05 / 0.95)
    between = band.at(4004)
    assert min(band.at(4000)[0], band.at(4080)[0]) <= between[0] <= max(band.at(4000)[0], band.at(4080)[0])
    assert band.at(79) is None and band.at(8001) is None


def test_no_warning_for_other_seeds_batch_sizes_single_periods_and_resumed_runs(band, caplog):
    for seed in range(1, 6):
        feed(ReferenceCheck(band), seed)
    feed(ReferenceCheck(band), 7, steps=range(5, 251, 5), batch=32)
    feed(ReferenceCheck(band), 1, excess=lambda samples: 3.0 if samples == 4000 else 0.0)
    # Without the earlier losses, the mean of a resumed run would be over fewer periods.
    before = [(float(s), loss(s, 1)) for s in range(80, 4001, 80)]
    resumed = ReferenceCheck(band, *zip(*before))
    feed(resumed, 1, steps=range(510, 1001, 10), excess=lambda samples: math.nan if samples == 5000 else 0.0)
    assert not [record for record in caplog.records if record.levelname == "WARNING"]


def test_a_loss_that_goes_up_is_reported_early_and_once(tmp_path, band, caplog):
    """From 4,000 samples on, the loss is 15 % too high, which is reported before 4,800."""
    feed(ReferenceCheck(band), 1, excess=lambda samples: 1.0 if samples > 4000 else 0.0)
    warnings = [record.getMessage() for record in caplog.records if record.levelname == "WARNING"]
    assert len(warnings) == 1 and warnings[0].startswith("not on track: mlm_loss is ")
    assert str(tmp_path / "first") in warnings[0]
    samples = int(warnings[0].split("(")[1].split(" ")[0].replace(",", ""))
    assert 4000 < samples < 4800


def test_nan_does_not_end_the_comparison(band, caplog):
    losses = {2000: math.nan, 3040: math.inf}
    feed(ReferenceCheck(band), 1, excess=lambda samples: losses.get(samples, 1.0 if samples > 4000 else 0.0))
    assert sum("not on track: mlm_loss is " in text for text in caplog.messages) == 1
    assert not [text for text in caplog.messages if "mlm_loss is nan" in text or "mlm_loss is inf" in text]


def test_a_run_that_comes_back_and_one_far_below(band, caplog):
    caplog.set_level("INFO")
    feed(ReferenceCheck(band), 1, excess=lambda samples: 1.0 if 2000 < samples < 3000 else 0.0)
    assert [text.split(":")[0] for text in caplog.messages if "track" in text] == ["not on track", "on track again"]
    caplog.clear()
    feed(ReferenceCheck(band), 1, excess=lambda samples: -1.0)
    assert sum("below" in text for text in caplog.messages) == 1


BOUNDS = {"low": [9.5, 7.6, 6.65], "high": [10.5, 8.4, 7.35]}


@pytest.mark.parametrize(
    "form",
    [
        {"metric": "mlm_loss", "samples": [0, 100, 200], "values": [10.0, 8.0, 7.0]},
        {"samples": [0, 100, 200], **BOUNDS},
        {"metric": "mlm_loss", "axis": "samples", "positions": [0, 100, 200], **BOUNDS},
    ],
)
def test_forms_of_a_file(tmp_path, form):
    path = tmp_path / "band.json"
    path.write_text(json.dumps(form))
    band = load_reference(path, 0.05)
    assert [band.judge(*point) for point in ((100, 8.3), (100, 8.5), (50, 8.0), (300, 1.0))] == [
        "on track", "above", "below", None,
    ]  # fmt: skip
    kept = read_band(json.loads(json.dumps(band.as_json())), path, 0.3)
    assert kept == band, "what is kept in a run's folder gives the same band"
    path.write_text(json.dumps({"metric": "loss", "steps": [1, 10], "values": [2, 1]}))
    assert load_reference(path, 0.1).axis == "steps"


@pytest.mark.parametrize(
    "content",
    [
        "", "[]", "{}", '{"samples": [1, 2]}', '{"samples": [2, 1], "values": [1, 1]}',
        '{"samples": [1], "values": [1, 2]}',
        '{"samples": [1, 2], "low": [2, 2], "high": [1, 3]}', '{"samples": "12", "values": [1, 2]}', "[" * 100_000,
        '{"samples": [1, 2], "values": [1, "2"]}', '{"metric": 3, "samples": [1], "values": [1]}',
        '{"samples": [], "values": []}',
    ],
)  # fmt: skip
def test_what_is_not_a_reference_is_refused_in_one_line(tmp_path, content):
    path = tmp_path / "band.json"
    path.write_text(content)
    with pytest.raises(UserError, match=r"^reference_curve: .*band\.json.*; ") as caught:
        load_reference(path, 0.05)
    assert len(str(caught.value).splitlines()) == 1


def test_a_run_without_losses_and_a_missing_file_are_refused(tmp_path):
    with pytest.raises(UserError, match="5 or more losses"):
        load_reference(make_run(tmp_path / "young", [period(10)]), 0.05)
    with pytest.raises(UserError, match=r"cannot be read \(No such file"):
        load_reference(tmp_path / "nowhere.json", 0.05)


@pytest.mark.parametrize(
    "excess, verdict",
    [
        (lambda samples: 0.0, "On track: masked-LM loss"),
        (lambda samples: 1.0 if samples > 4000 else 0.0, "Not on track since 4,"),
        (lambda samples: -1.0, "Unlike its reference since "),
    ],
)
def test_the_report_says_whether_the_run_is_on_track(tmp_path, band, excess, verdict):
    run = write_run(tmp_path / "second", seed=1, excess=excess)
    (run / REFERENCE_NAME).write_text(json.dumps(band.as_json()))
    source = write_report(run).read_text(encoding="utf-8")
    assert sum(text.startswith(verdict) for text in Page(source).texts) == 1
    assert 'id="chart-0-area"' in source


def test_a_young_run_is_not_judged(tmp_path, band):
    run = write_run(tmp_path / "second", steps=range(10, 31, 10))
    (run / REFERENCE_NAME).write_text(json.dumps(band.as_json()))
    assert any("has too few losses so far" in text for text in read_page(run).texts)


@pytest.mark.parametrize("content", ["", "{", "[1]", '{"samples": [1], "low": [2], "high": [1]}'])
def test_a_damaged_reference_does_not_harm_the_report(tmp_path, content):
    run = write_run(tmp_path / "run")
    (run / REFERENCE_NAME).write_text(content)
    assert "track" not in " ".join(read_page(run).texts)
