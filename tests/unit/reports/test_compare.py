"""Comparing runs side by side: tables, page, and folders that are not runs."""

from __future__ import annotations

import json
import re
from pathlib import Path

import pytest

from reports.compare import comparison_tables, differences, lines, main, render, run_labels
from reports.run_files import RunData, read_run_folder
from tests.support.command_errors import assert_refused
from tests.support.html_pages import HOSTILE, Page, assert_self_contained
from tests.support.run_folders import make_run, period

HUGGING_FACE = "hf_" + "aB3dE5gH7jK9mN1pQ2rS4tU6vW8xY0zA1b"


def run(folder: Path, rate: float, batch: int, offset: float, **files) -> Path:
    """Write a run with losses 10 - samples / 200 + offset, every 10 steps up to 100 steps."""
    periods = []
    for step in range(10, 101, 10):
        record = period(step, mlm=10 - step * batch / 200 + offset, throughput=20.0 * batch)
        periods.append({**record, "samples": step * batch, "learning_rate": rate})
    optimizer = {"name": "LAMB", "rate": rate}
    config = {"name": folder.name, "output_dir": str(folder), "seed": 1, "optimizer_opts": optimizer}
    resolved = {"config": {**config, **files.pop("config", {})}, "origins": {}, "derived": {}}
    folder.parent.mkdir(parents=True, exist_ok=True)
    return make_run(folder, periods, resolved_config=resolved, **files)


@pytest.fixture
def two(tmp_path) -> list[Path]:
    first = run(tmp_path / "first", 0.1, 8, 0.0, scores={"f1": 80.0}, environment={"cpu": "Zen 3", "gpus": []})
    second = run(tmp_path / "second", 0.2, 4, 0.5, scores={"f1": 81.5}, environment={"cpu": "Zen 4", "gpus": []})
    return [first, second]


def read_runs(folders: list[Path]) -> list[RunData]:
    return [read_run_folder(folder) for folder in folders]


def rows(folders) -> dict[str, dict[str, tuple]]:
    return {table.title: {row.name: row.cells for row in table.rows} for table in comparison_tables(read_runs(folders))}


def test_two_runs(two):
    """The shorter run saw 400 samples; its loss is 0.5 above the other's at the same number of samples.

    Each cell is the loss of the last complete period, 10 - samples / 200 (+ 0.5): means over the last tenth of the
    samples contain this period alone.
    """
    tables = rows(two)
    assert tables["Config: what differs"] == {"optimizer_opts.rate": ("0.1", "0.2")}
    assert tables["Machine: what differs"] == {"cpu": ("Zen 3", "Zen 4")}
    assert tables["Runs"]["throughput, samples/s (median)"] == ("160.0", "80.0")
    assert tables["Runs"]["steps"] == ("100", "100")
    assert tables["Runs"]["samples"] == ("800", "400")
    assert tables["Final values"]["F1 (evaluation)"] == ("80", "81.5000")
    assert tables["Final values"]["masked-LM loss"] == ("6.0000", "8.5000")
    assert tables["Curves"] == {
        f"masked-LM loss after {point} samples": (f"{10 - first / 200:.4f}", f"{10.5 - second / 200:.4f}")
        for point, first, second in [(100, 80, 80), (200, 160, 200), (300, 240, 280), (400, 400, 400)]
    }


def test_commits_that_differ_are_listed(tmp_path):
    commits = ("0123456789abcdef0123456789abcdef01234567", "89abcdef0123456789abcdef0123456789abcdef")
    folders = [run(tmp_path / each[:4], 0.1, 8, 0, environment={"git_commit": each}) for each in commits]
    assert rows(folders)["Machine: what differs"] == {"git_commit": commits}


def test_the_sizes_of_the_models_are_listed_also_where_they_are_equal(tmp_path):
    derived = {"trainable_parameters": 4_385_920, "layers": 2, "hidden_size": 128, "vocab_size": 30400}
    new = make_run(tmp_path / "new", [period(10)], resolved_config={"config": {"name": "new"}, "derived": derived})
    sizes = {"num_hidden_layers": 2, "hidden_size": 192, "vocab_size": 8192}
    before = run(tmp_path / "before", 0.1, 8, 0, config={"bert_config": sizes})
    assert rows([new, before])["Model"] == {
        "parameters": ("4,385,920", None),
        "layers": ("2", "2"),
        "hidden size": ("128", "192"),
        "word pieces": ("30,400", "8,192"),
    }


def test_differences_of_configs(tmp_path):
    rows_of_keys = differences([{"a": 1, "b": [1, 2]}, {"b": [1, 2], "c": None}])
    assert [(row.name, row.cells) for row in rows_of_keys] == [("a", ("1", None)), ("c", (None, "none"))]
    folders = [run(tmp_path / name, 0.1, 8, 0, config={"about": {"command": name}}) for name in ("a", "b")]
    assert "Config: what differs" not in rows(folders)


def test_runs_of_different_kinds_and_states(tmp_path, two):
    only_scores = make_run(tmp_path / "scores", [], scores={"accuracy": 0.5})
    young = make_run(tmp_path / "young", [period(10)])
    tables = rows([two[0], only_scores, young])
    assert tables["Final values"]["accuracy (evaluation)"] == (None, "0.5000", None)
    assert tables["Runs"]["steps"] == ("100", None, "10 of 100")
    assert "Curves" not in tables, "one of them has no loss"


def test_labels_tell_runs_apart(tmp_path):
    folders = [run(tmp_path / parent / "same", 0.1, 8, 0) for parent in ("a", "b")]
    assert run_labels(read_runs(folders)) == ["a/same", "b/same"]
    assert len(set(run_labels(read_runs([folders[0], folders[0]])))) == 2


def test_the_page_has_one_chart_a_metric_with_a_curve_a_run(two):
    source = render(read_runs(two))
    page = Page(source)
    assert {"first", "second", "0.2", "81.5000"} <= set(page.texts)
    assert len(re.findall(r'<svg role="img" aria-label="([^"]+)"', source)) == 3
    assert {"chart-0-curve-0", "chart-0-curve-1"} <= {value for _, name, value in page.attributes if name == "id"}
    assert_self_contained(source)


def test_more_runs_than_colours(tmp_path):
    folders = [run(tmp_path / f"run{number}", 0.1, 8, number / 10) for number in range(10)]
    source = render(read_runs(folders))
    assert "chart-0-curve-7" in source and "chart-0-curve-8" not in source
    assert all(f"run{number}" in Page(source).texts for number in range(10))


def test_hostile_text_stays_text_and_secrets_are_masked(tmp_path, two, capsys):
    hostile = run(
        tmp_path / "$x_{$<i>", 0.1, 8, 0, config={"about": HOSTILE, HOSTILE: HOSTILE, "tag": HUGGING_FACE},
        scores={HOSTILE: 1.0}, environment={"cpu": HOSTILE},
    )  # fmt: skip
    source = render(read_runs([two[0], hostile]))
    assert "script" not in Page(source).tags and HUGGING_FACE not in source
    assert main([str(two[0]), str(hostile)]) == 0
    shown = capsys.readouterr().out
    assert HUGGING_FACE not in shown and "<i>" in shown


def test_the_command(tmp_path, two, capsys):
    page = tmp_path / "new" / "page.html"
    assert main([*map(str, two), "--output", str(page)]) == 0
    printed = capsys.readouterr().out.splitlines()
    assert str(page) in printed[-1] and page.exists()
    header = next(line for line in printed if line.split() == ["first", "second"])
    assert header.endswith("second")
    assert [path.name for path in page.parent.iterdir()] == ["page.html"]


def test_a_page_of_runs_that_have_measured_nothing(tmp_path):
    config = {"config": {"name": "same"}, "origins": {}, "derived": {}}
    runs = [make_run(tmp_path / name, [], resolved_config=config) for name in ("a", "b")]
    assert "2 runs compared" in render(read_runs(runs))
    (runs[0] / "resolved_config.json").write_text("{")
    assert [line.partition(" could")[0] for line in lines(read_runs(runs))] == ["a: resolved_config.json"]


@pytest.mark.parametrize("case", ["one", "missing", "no run", "unwritable"])
def test_what_cannot_be_compared_is_one_line(tmp_path, two, capsys, case):
    (tmp_path / "empty").mkdir()
    (tmp_path / "file").write_text("")
    arguments = {
        "one": [str(two[0])],
        "missing": [str(two[0]), str(tmp_path / "nowhere")],
        "no run": [str(two[0]), str(tmp_path / "empty")],
        "unwritable": [*map(str, two), "--output", str(tmp_path / "file" / "page.html")],
    }[case]
    assert_refused(main(arguments), capsys.readouterr())


def test_damaged_files_are_noted(tmp_path, two):
    (two[0] / "scores.json").write_text("{")
    (two[0] / "environment.json").write_bytes(b"\xff\xfe")
    (two[1] / "resolved_config.json").write_text(json.dumps([1]))
    with open(two[1] / "metrics.jsonl", "a") as file:
        file.write('{"step": 110, "metr')
    assert rows(two)["Runs"]["steps"] == ("100", "100")
    assert any(line.startswith("first: scores.json could not be read") for line in lines(read_runs(two)))
