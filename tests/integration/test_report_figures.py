"""Every figure of training on a run's report is that of its log and of metrics.jsonl, computed here by other means."""

from __future__ import annotations

import re
import statistics
from pathlib import Path

import pytest

from tests.support.html_pages import Page
from tests.support.runs import BATCH, metrics, trained, write_config

pytestmark = pytest.mark.slow

UPDATES, PERIOD = 39, 20  # the last period has 19


@pytest.fixture(scope="module")
def run(root: Path, dataset: Path) -> Path:
    return trained(write_config(root / "run.json", dataset, UPDATES, global_batches_per_log=PERIOD, report=True), root)


def cards(run: Path) -> dict[str, tuple[str, str]]:
    texts = [text for text in Page((run / "report.html").read_text(encoding="utf-8")).texts if text]
    names = ("masked-LM loss", "next-sentence loss", "throughput", "samples seen", "loss")
    return {name: (texts[at + 1], texts[at + 2]) for name in names if name in texts for at in [texts.index(name)]}


def test_cards_are_the_last_line_of_the_log(run):
    line = re.findall(rf"step {UPDATES}/{UPDATES} \| (.*)", (run / "train.log").read_text())[0]
    logged = dict(part.split(": ") for part in line.split(" | ") if ": " in part)
    shown, last = cards(run), metrics(run)[-1]
    for name, metric in (("masked-LM loss", "mlm_loss"), ("next-sentence loss", "nsp_loss")):
        value, note = shown[name]
        assert value == f"{last['metrics'][metric]:.4f}" == logged[metric]
        assert note.startswith(f"training, updates {PERIOD + 1} to {UPDATES}")
    assert f"{last['learning_rate']:.1e}" == logged["learning_rate"]
    assert shown["samples seen"][0] == f"{UPDATES * BATCH:,}"
    rates = [row["throughput"] for row in metrics(run) if not row["compiling"]]
    assert shown["throughput"][0] == f"{statistics.median(rates):,.1f}"
    # the throughput of a period is its samples over its time
    first, second = metrics(run)
    expected = (UPDATES - PERIOD) * BATCH / (second["seconds"] - first["seconds"])
    assert second["throughput"] == pytest.approx(expected, rel=0.02)


def test_the_time_is_that_of_the_log(run):
    ended = re.search(rf"training ended at step {UPDATES}/{UPDATES} after (\S+)", (run / "train.log").read_text())
    texts = Page((run / "report.html").read_text(encoding="utf-8")).texts
    assert ended and f"Complete: {UPDATES} steps in {ended.group(1)}." in texts
    assert round(metrics(run)[-1]["seconds"]) == sum(
        int(part) * size for part, size in zip(ended.group(1).split(":"), (3600, 60, 1), strict=True)
    )
