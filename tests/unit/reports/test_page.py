"""The HTML report shows a run's data, survives damaged files, and keeps text as text."""

from __future__ import annotations

import json
import math
import re
import subprocess
import sys
from html.parser import HTMLParser

import numpy as np
import pytest

from reports.page import write_report
from reports.run_files import read_run_folder
from utilities.errors import UserError

VOID = {"meta", "br", "hr", "img", "link", "input"}
HOSTILE = "<script>alert('&\"')</script></td></style>$x_{$"


class Page(HTMLParser):
    """The elements, texts and attributes of a page; parsing fails if tags do not match."""

    def __init__(self, source):
        super().__init__(convert_charrefs=True)
        self.open, self.tags, self.texts, self.attributes = [], [], [], []
        self._found, self._texts_of_open = [], []
        self.feed(source)
        self.close()
        assert not self.open, f"never closed: {self.open}"

    def handle_starttag(self, tag, attributes):
        self.tags.append(tag)
        self.attributes += [(tag, *pair) for pair in attributes]
        text = []
        self._found.append((tag, (dict(attributes).get("class") or "").split(), text))
        if tag not in VOID:
            self.open.append(tag)
            self._texts_of_open.append(text)

    def handle_startendtag(self, tag, attributes):
        self.tags.append(tag)
        self.attributes += [(tag, *pair) for pair in attributes]

    def handle_endtag(self, tag):
        assert self.open and self.open[-1] == tag, f"</{tag}> closes {self.open[-1:]}"
        self.open.pop()
        self._texts_of_open.pop()

    def handle_data(self, data):
        if "style" not in self.open:
            self.texts.append(data.strip())
        for text in self._texts_of_open:
            text.append(data)

    def of(self, tag, kind=""):
        """Return the texts of all elements of a tag, or only of those with a class."""
        return ["".join(text) for name, classes, text in self._found if name == tag and kind in [*classes, ""]]


def period(step, mlm=5.0, total=100, **changes):
    record = {
        "step": step,
        "total_steps": total,
        "samples": step * 8,
        "seconds": step * 0.5,
        "throughput": 16.0 + step % 3,
        "compiling": step == 10,
        "learning_rate": 1e-4 * step,
        "metrics": {"loss": mlm + 0.7, "mlm_loss": mlm, "nsp_loss": 0.7, "mlm_accuracy": 0.1},
    }
    return {**record, **changes}


def make_run(folder, periods, **files):
    folder.mkdir(exist_ok=True)
    (folder / "metrics.jsonl").write_text("".join(json.dumps(p) + "\n" for p in periods))
    for name, value in files.items():
        (folder / f"{name}.json").write_text(json.dumps(value))
    return folder


def read_page(folder):
    return Page(write_report(folder).read_text(encoding="utf-8"))


def full_run(folder):
    return make_run(
        folder,
        [period(step, mlm=8.0 - step / 25 + math.sin(step)) for step in range(10, 101, 10)],
        resolved_config={
            "config": {"name": "tiny", "bert_config": {"vocab_size": 8000}, "stages": [["emb"], ["hid"]]},
            "origins": {"name": "--name", "bert_config": "configs/tiny.json"},
            "derived": {"global_batch": 8},
        },
        environment={"cpu": "Zen 3", "packages": {"numpy": "2.0"}},
        dataset={"unigram_entropy_nats": 6.25, "totals": {"records": 1234}},
        conversion=[{"source": "A", "target": "B", "count": 2, "weights_kept": 6, "weights_dropped": 1}],
        checkpoints=[{"step": 100, "path": "checkpoints/100"}],
    )


def test_evaluations_are_a_second_curve_and_cards_say_which_is_which(tmp_path):
    """The last period, of 5 updates, counts half of the one before."""
    periods = [period(step, mlm=mlm, total=25) for step, mlm in ((10, 8.0), (20, 6.0), (25, 3.0))]
    evaluations = [
        {"step": step, "total_steps": 25, "samples": step * 8, "evaluation": {"mlm_loss": loss, "f1": 50.0}}
        for step, loss in ((10, 7.5), (20, 6.5))
    ]
    lines = [periods[0], evaluations[0], periods[1], evaluations[1], periods[2]]
    run = make_run(tmp_path / "run", lines, scores={"mlm_loss": 6.5})
    page = read_page(run)
    assert page.texts.count("training") > 1 and page.texts.count("evaluation") > 1  # cards and legends
    assert "5.0000" in page.texts and "6.5" in page.texts and "scores" in page.texts
    data = read_run_folder(run)
    assert data.evaluation_series("mlm_loss") == ([10, 20], [7.5, 6.5])
    assert data.series("mlm_loss")[0] == [10, 20, 25] and not data.notes


def test_everything_is_shown(tmp_path):
    page = read_page(full_run(tmp_path / "run"))
    texts = page.texts
    for text in [
        "tiny",
        "Complete: 100 steps in 0:00:50.",
        "unigram entropy: 6.250",
        f"uniform baseline, ln(vocabulary): {math.log(8000):.3f}",
        f"uniform baseline, ln 2: {math.log(2):.3f}",
        "1,234",
        "Zen 3",
        "weights dropped",
        "checkpoints/100",
        "[emb], [hid]",
    ]:
        assert text in texts, text
    field = texts.index("bert_config.vocab_size")
    assert texts[field : field + 3] == ["bert_config.vocab_size", "8000", "configs/tiny.json"]


def test_page_loads_nothing_from_elsewhere(tmp_path):
    page = read_page(full_run(tmp_path / "run"))
    assert not {"script", "link", "img", "iframe", "object"} & set(page.tags)
    for tag, name, value in page.attributes:
        if name in ("href", "src", "xlink:href", "action"):
            assert value.startswith("#"), (tag, name, value)
    source = (tmp_path / "run" / "report.html").read_text(encoding="utf-8")
    assert "@import" not in source
    assert all(target.startswith("#") for target in re.findall(r"url\(([^)]*)\)", source))
    identifiers = [value for _, name, value in page.attributes if name == "id"]
    assert len(identifiers) == len(set(identifiers)), "identifiers of the charts collide"


def test_curves_carry_the_data(tmp_path):
    """The drawn points are the data up to the axes' scale, so the correlation is 1 (-1 if y points down)."""
    folder = full_run(tmp_path / "run")
    source = write_report(folder).read_text(encoding="utf-8")
    steps, losses = read_run_folder(folder).series("mlm_loss")
    path = re.search(r'<g id="chart-0-curve-0">\s*<path d="([^"]*)"', source).group(1)
    points = np.array([[float(x), float(y)] for x, y in re.findall(r"[ML] (\S+) (\S+)", path)])
    assert len(points) == len(steps) == 10
    assert np.corrcoef(points[:, 0], steps)[0, 1] == pytest.approx(1, abs=1e-6)
    assert np.corrcoef(points[:, 1], losses)[0, 1] == pytest.approx(-1, abs=1e-6)
    assert 'id="chart-0-reference-1"' in source


def test_hostile_text_stays_text(tmp_path):
    record = period(10)
    record["metrics"] = {f"{HOSTILE}_loss": 1.0, f"_{HOSTILE}_accuracy": 0.5}
    folder = make_run(
        tmp_path / "run",
        [record],
        resolved_config={
            "config": {"name": HOSTILE, HOSTILE: [HOSTILE]},
            "origins": {"name": HOSTILE},
            "derived": {HOSTILE: HOSTILE},
        },
        environment={HOSTILE: HOSTILE},
        dataset={HOSTILE: HOSTILE},
        conversion=[{HOSTILE: HOSTILE}],
        checkpoints=[{"path": HOSTILE}],
    )
    page = read_page(folder)
    assert "script" not in page.tags
    assert page.texts.count(HOSTILE) >= 8


def test_a_run_that_has_logged_nothing(tmp_path):
    page = read_page(make_run(tmp_path / "run", []))
    assert "No logging period has ended yet." in page.texts
    assert "svg" not in page.tags


def test_run_in_progress_with_a_torn_line(tmp_path):
    folder = make_run(tmp_path / "run", [period(10), period(20)])
    with open(folder / "metrics.jsonl", "a") as file:
        file.write('{"step": 30, "metr')
    page = read_page(folder)
    assert "In progress or stopped: step 20 of 100 in 0:00:10." in page.texts
    assert not any("unreadable" in text for text in page.texts), "the last line may be under way"


def test_resumed_run_keeps_its_own_steps(tmp_path):
    """The run was killed while writing step 50 and resumed from step 20, so the later steps 30 and 40 count."""
    folder = make_run(tmp_path / "run", [period(step, mlm=9.0) for step in (10, 20, 30, 40)])
    with open(folder / "metrics.jsonl", "a") as file:
        file.write('{"step": 50, "me\n')
        file.writelines(json.dumps(period(step, mlm=1.0)) + "\n" for step in (30, 40))
    run = read_run_folder(folder)
    assert run.series("mlm_loss") == ([10, 20, 30, 40], [9.0, 9.0, 1.0, 1.0])
    assert run.notes == ["metrics.jsonl: 1 unreadable line left out"]
    assert run.notes[0] in read_page(folder).texts


def test_values_that_are_no_numbers(tmp_path):
    """A NaN loss becomes null; the other values may occur in a damaged file."""
    strange = [None, "high", [1], 10**400, True]
    periods = [period(10 * (i + 1), seconds=v, samples=v, total_steps=v) for i, v in enumerate(strange)]
    for record, value in zip(periods, strange, strict=True):
        record["metrics"]["mlm_loss"] = value
    folder = make_run(tmp_path / "run", [*periods, period(60, mlm=2.0)])
    with open(folder / "metrics.jsonl", "a") as file:
        file.write('[]\n{"step": NaN, "metrics": {}}\n{"step": 70, "metrics": {"mlm_loss": Infinity}}\n')
    assert read_run_folder(folder).series("mlm_loss") == ([60], [2.0])
    read_page(folder)


def test_damaged_json_is_noted_and_the_rest_shown(tmp_path):
    folder = full_run(tmp_path / "run")
    (folder / "environment.json").write_text('{"cpu": ')
    (folder / "conversion.json").write_text('{"not": "a list"}')
    page = read_page(folder)
    assert any(text.startswith("environment.json could not be read") for text in page.texts)
    assert "checkpoints/100" in page.texts


@pytest.mark.parametrize("loss, words", [(5.25, "1.000 nats below"), (7.25, "1.000 nats above")])
def test_verdict_compares_with_the_unigram_entropy(tmp_path, loss, words):
    folder = make_run(tmp_path / "run", [period(100, mlm=loss)], dataset={"unigram_entropy_nats": 6.25})
    assert any(words in text for text in read_page(folder).texts)


def test_throughput_leaves_compilation_out(tmp_path):
    periods = [period(10, throughput=1.0), period(20, throughput=50.0), period(30, throughput=70.0)]
    assert "60.0" in read_page(make_run(tmp_path / "run", periods)).texts


def test_long_runs_are_thinned(tmp_path):
    folder = make_run(tmp_path / "run", [period(step, total=20_000) for step in range(1, 20_001)])
    assert write_report(folder).stat().st_size < 700_000


def test_a_folder_without_a_run(tmp_path):
    with pytest.raises(UserError, match=r"run folder .*nowhere does not exist"):
        write_report(tmp_path / "nowhere")
    (tmp_path / "notes.txt").touch()
    with pytest.raises(UserError, match=r"contains no run \(no history.jsonl"):
        write_report(tmp_path)
    assert [path.name for path in tmp_path.iterdir()] == ["notes.txt"]


def test_a_comment_has_no_origin(tmp_path):
    resolved = {"config": {"seed": 1, "about": {"command": "run.py"}}, "origins": {"seed": "default"}}
    data = read_run_folder(make_run(tmp_path / "run", [], resolved_config=resolved))
    assert (data.origin("about.command"), data.origin("seed")) == ("", "default")


def test_command(tmp_path):
    command = [sys.executable, "-m", "reports"]
    good = subprocess.run([*command, str(full_run(tmp_path / "run"))], capture_output=True, text=True)
    assert (good.returncode, good.stdout.strip()) == (0, str(tmp_path / "run" / "report.html"))
    bad = subprocess.run([*command, str(tmp_path / "nowhere")], capture_output=True, text=True)
    assert bad.returncode == 2
    assert bad.stderr.startswith("error: run folder") and bad.stderr.count("\n") == 1
