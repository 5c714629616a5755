"""The page of ``run_from_text.py``: what is on it, its chart, and commands that a shell reads as they were."""

from __future__ import annotations

import re
import shlex
import subprocess
from pathlib import Path
from typing import Any

import pytest

from reports.from_text_page import in_lines, write_from_text_page
from tests.support.html_pages import HOSTILE, Page

RESULT: dict[str, Any] = {
    "name": "mine",
    "inputs": {"text": "2.0 MB", "machine": "2 cores"},
    "hours": 0.05,
    "held_out": "8 documents, 10.2% of the text",
    "advice": ["More text would help."],
    "choices": [["model", "2 layers × 128", "instead of 2 layers × 192, after the timing; for 2 of its minutes"]],
    "changes": [["rows of 128", "96 updates", "from update 24 on, because 23 s are left to train"]],
    "planned": 1_500,
    "updates": {"32": 1_250, "128": 96},
    "loss": 4.1,
    "right": 0.25,
    "bits_per_byte": 1.5,
    "unknown": 0.0125,
    "baselines": [["context-free baseline", 5.9], ["unigram baseline", 6.5]],
    "forecasts": [["twice the time", 3.9, "by the measured trainings"]],
    "expected": {"bits": 1.525, "nats": 4.17},
    "samples_per_second": {"32": 800.4, "128": 92.0},
    "curves": {"32": [[50, 8.0], [1_250, 5.0]], "128": [[1_300, 4.5], [1_346, 4.2]]},
    "blanks": [{"text": f"a {HOSTILE} [MASK] day", "word": "sunny", "fillings": [["foggy", 0.09], ["sunny", 0.001]]}],
    "reports": {"32": "32/report.html", "128": "128/report.html"},
    "seconds": {"plan": 18.0, "training, 32 tokens": 72.0},
}
COMMANDS = [("Fill blanks", "python -m tasks.fill_mask --checkpoint 'a --b/c' 'a sentence with a [MASK]'")]


def page(tmp_path: Path, **changes: Any) -> Page:
    path = write_from_text_page(tmp_path / "index.html", {**RESULT, **changes}, COMMANDS)
    return Page(path.read_text(encoding="utf-8"))


def labels(found: Page) -> list[str]:
    return [text.strip() for text in found.elements("text")]


def test_it_shows_what_was_done_and_why(tmp_path: Path) -> None:
    found = page(tmp_path)
    rows = [row.replace("\n", "") for row in found.elements("tr")]
    assert any("model2 layers × 128instead of 2 layers × 192, after the timing" in row for row in rows)
    assert any("rows of 12896 updatesfrom update 24 on, because 23 s are left" in row for row in rows)
    assert any("updates1,250 + 961,500 were decided before the training" in row for row in rows)
    assert any("training, 32 tokens72.080.0%" in row for row in rows)
    cards = found.elements("div", "card")
    time = next(card for card in cards if card.startswith("time"))
    assert "1.5 min" in time and "50.0% of 3.0" in time
    (blank,) = found.elements("li")
    assert HOSTILE in blank and "foggy 9%, sunny <1%; it was sunny" in blank
    unchanged = page(tmp_path, changes=[])
    assert not any("decided before the training" in text for text in unchanged.texts)
    assert any("as many as fit the time" in text for text in unchanged.texts)
    limited = page(tmp_path, most_passes=10)
    assert any("with more, the text would be read more than 10 times" in text for text in limited.texts)


def test_the_chart_has_the_held_out_loss_beside_the_expected_one(tmp_path: Path) -> None:
    shown = labels(page(tmp_path))
    assert {"held-out: 4.100", "held-out, expected: 4.170", "context-free baseline: 5.900"} <= {*shown}
    without = page(tmp_path, expected=None)
    assert not any("expected" in text for text in [*labels(without), *without.texts])


@pytest.mark.parametrize("command", [COMMANDS[0][1], "python run.py --a b --c 'd e' --f"])
def test_a_shell_reads_a_command_on_several_lines_as_it_was(command: str) -> None:
    code = f"python() {{ printf '%s\\n' python \"$@\"; }}; {in_lines(command)}"
    printed = subprocess.run(["bash", "-c", code], capture_output=True, text=True, check=True).stdout
    assert printed.splitlines() == shlex.split(command)
    assert len(in_lines(command).splitlines()) == 1 + len(re.findall(r" --", re.sub("'.*?'", "", command)))


def test_the_page_has_the_commands(tmp_path: Path) -> None:
    (shown,) = page(tmp_path).elements("pre")
    assert shlex.split(shown.replace("\\\n", "")) == shlex.split(COMMANDS[0][1])
