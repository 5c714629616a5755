"""The HTML report shows a run's data, survives damaged files, and keeps text as text."""

from __future__ import annotations

import json
import math
import re

import numpy as np
import pytest

from reports.__main__ import main
from reports.page import write_report
from reports.run_files import read_run_folder
from tests.support.command_errors import assert_refused
from tests.support.html_pages import HOSTILE, Page, assert_self_contained, read_page
from tests.support.run_folders import make_run, period
from utilities.errors import UserError


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


@pytest.fixture(scope="module")
def complete(tmp_path_factory):
    """The folder of a complete run, with its page."""
    return write_report(full_run(tmp_path_factory.mktemp("runs") / "run")).parent


def test_evaluations_are_a_second_curve(tmp_path):
    """The last period is shown as it was logged, although it is shorter."""
    periods = [period(step, mlm=mlm, total=25) for step, mlm in ((10, 8.0), (20, 6.0), (25, 3.0))]
    evaluations = [
        {"step": step, "total_steps": 25, "samples": step * 8, "evaluation": {"mlm_loss": loss, "f1": 50.0}}
        for step, loss in ((10, 7.5), (20, 6.5))
    ]
    lines = [periods[0], evaluations[0], periods[1], evaluations[1], periods[2]]
    run = make_run(tmp_path / "run", lines, scores={"mlm_loss": 6.5})
    texts = read_page(run).texts
    assert "training" in texts and "evaluation" in texts  # in the legend
    assert "6.5000" in texts and "scores" in texts
    (card,) = (
        number for number, text in enumerate(texts) if text == "masked-LM loss" and texts[number + 1] == "6.5000"
    )
    assert texts[card + 2].startswith("evaluation, training 3.0000 (updates 21 to 25)")
    (run / "baseline.json").write_text('{"mlm_loss": 7.25}')
    assert "evaluation, training 3.0000 (updates 21 to 25), baseline 7.2500" in " | ".join(read_page(run).texts)
    data = read_run_folder(run)
    assert data.evaluation_series("mlm_loss") == ([10, 20], [7.5, 6.5])
    assert data.series("mlm_loss")[0] == [10, 20, 25] and not data.notes
    assert data.series("mlm_loss", "samples") == ([80, 160, 200], [8.0, 6.0, 3.0])


def test_the_page_shows_every_file_and_loads_nothing(complete):
    source = (complete / "report.html").read_text(encoding="utf-8")
    texts = Page(source).texts
    for text in (
        "Complete: 100 steps in 0:00:50.",
        *("tiny", "1,234", "Zen 3", "weights dropped", "checkpoints/100", "[emb], [hid]", "unigram entropy: 6.250"),
        *(f"uniform baseline, ln(vocabulary): {math.log(8000):.3f}", f"entropy of the labels: {math.log(2):.3f}"),
    ):
        assert text in texts, text
    field = texts.index("bert_config.vocab_size")
    assert texts[field : field + 3] == ["bert_config.vocab_size", "8000", "configs/tiny.json"]
    assert_self_contained(source)


def test_curves_carry_the_data(complete):
    """The drawn points are the data up to the axes' scale, so the correlation is 1 (-1 if y points down)."""
    source = (complete / "report.html").read_text(encoding="utf-8")
    steps, losses = read_run_folder(complete).series("mlm_loss")
    path = re.search(r'<g id="chart-0-curve-0">\s*<path d="([^"]*)"', source).group(1)
    points = np.array([[float(x), float(y)] for x, y in re.findall(r"[ML] (\S+) (\S+)", path)])
    assert len(points) == len(steps) == 10
    assert np.corrcoef(points[:, 0], steps)[0, 1] == pytest.approx(1, abs=1e-6)
    assert np.corrcoef(points[:, 1], losses)[0, 1] == pytest.approx(-1, abs=1e-6)
    assert 'id="chart-0-reference-1"' in source


def test_the_legend_does_not_lie_on_the_curves(complete):
    source = (complete / "report.html").read_text(encoding="utf-8")
    chart = re.search(r'<svg role="img" aria-label="masked-LM loss".*?</svg>', source, flags=re.DOTALL).group()
    curves, legend = chart.split('<g id="chart-0-legend_1">')
    lowest = max(float(y) for y in re.findall(r"[ML] \S+ (\S+)", curves.partition("chart-0-curve-0")[2]))
    heights = [float(y) for y in re.findall(r'<text [^>]*y="([^"]+)"', legend)]
    assert len(heights) == 3 and min(heights) > lowest + 10  # of the curve and two baselines


def test_hostile_text_stays_text(tmp_path):
    record = {**period(10), "metrics": {f"{HOSTILE}_loss": 1.0, f"_{HOSTILE}_accuracy": 0.5}}
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


def test_the_state_of_a_run_that_is_not_complete(tmp_path):
    young = read_page(make_run(tmp_path / "young", []))
    assert "No logging period has ended yet." in young.texts and "svg" not in young.tags
    folder = make_run(tmp_path / "running", [period(10), period(20)])
    with open(folder / "metrics.jsonl", "a") as file:
        file.write('{"step": 30, "metr')  # the last line may be incomplete
    texts = read_page(folder).texts
    assert "In progress or stopped: step 20 of 100 in 0:00:10." in texts
    assert not any("unreadable" in text for text in texts)


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


def test_values_that_are_not_numbers(tmp_path):
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


FREE = {"context_free": {"loss_nats": 6.0}}
HELD_OUT = {**FREE, "held_out_context_free": {"loss_nats": 5.5}}


@pytest.mark.parametrize(
    "loss, dataset, scores, verdict",
    [
        (5.25, {}, {}, "of training is 1.000 nats below the entropy of the corpus' unigram distribution."),
        (5.25, FREE, {}, "of training is 0.750 nats below the context-free baseline"),
        (6.1, FREE, {}, "of training is 0.100 nats above the context-free baseline"),  # although below the entropy
        (5.25, HELD_OUT, {"mlm_loss": 5.75}, "on held-out text is 0.250 nats above the context-free baseline"),
    ],
)
def test_the_verdict_compares_with_what_frequencies_reach(tmp_path, loss, dataset, scores, verdict):
    folder = make_run(
        tmp_path / "run", [period(100, mlm=loss)], dataset={"unigram_entropy_nats": 6.25, **dataset}, scores=scores
    )
    (sentence,) = (text for text in read_page(folder).texts if verdict in text)
    assert ("predicts from context" in sentence) == ("below the context-free" in verdict)


def test_the_next_sentence_loss_is_compared_with_the_share_of_labels(tmp_path):
    folder = make_run(tmp_path / "run", [period(100)], dataset={"random_next_share": 0.7})
    entropy = -(0.7 * math.log(0.7) + 0.3 * math.log(0.3))
    assert any(f"entropy of the labels: {entropy:.3f}" in text for text in read_page(folder).texts)


def test_the_final_value_is_the_mean_of_the_updates_that_it_names(tmp_path):
    """67 periods, the last of 3 updates: the last three periods are shown, weighted by their updates."""
    steps = [*range(10, 661, 10), 663]
    losses = np.random.default_rng(3).normal(5.0, 1.0, len(steps))
    folder = make_run(tmp_path / "run", [period(s, mlm=v, total=663) for s, v in zip(steps, losses, strict=True)])
    each_update = np.repeat(losses, np.diff([0, *steps]))
    texts = read_page(folder).texts
    shown = [texts[number - 1] for number, text in enumerate(texts) if text.startswith("training, updates 641 to 663")]
    assert f"{each_update[640:].mean():.4f}" in shown and f"{each_update[640:].mean() + 0.7:.4f}" in shown
    assert read_run_folder(folder).series("learning_rate")[1][-1] == pytest.approx(1e-4 * 663)


def test_of_many_files_the_first_are_named_and_all_counted(tmp_path):
    folder = make_run(tmp_path / "run", [period(10)])
    command = "python run_from_text.py --text " + " ".join(f"a/{n}.txt" for n in range(300)) + " --hours 1 --name 'a b'"
    begin = {"event": "begin", "step": 0, "command": command, "folder": "/x", "variables": {}}
    (folder / "history.jsonl").write_text(json.dumps(begin) + "\n")
    shown = "python run_from_text.py --text a/0.txt a/1.txt a/2.txt '… 297 more' --hours 1 --name 'a b'"
    assert shown in read_page(folder).texts
    (folder / "history.jsonl").write_text(json.dumps({**begin, "command": "python 'x"}) + "\n")
    assert "python 'x" in read_page(folder).texts


def test_throughput_leaves_compilation_out(tmp_path):
    periods = [period(10, throughput=1.0), period(20, throughput=50.0), period(30, throughput=70.0)]
    assert "60.0" in read_page(make_run(tmp_path / "run", periods)).texts


def test_long_runs_are_thinned(tmp_path):
    folder = make_run(tmp_path / "run", [period(step, total=20_000) for step in range(1, 20_001)])
    assert write_report(folder).stat().st_size < 700_000


def test_the_command(tmp_path, capsys):
    run = full_run(tmp_path / "run")
    assert main([str(run)]) == 0 and capsys.readouterr().out.strip() == str(run / "report.html")
    (tmp_path / "notes.txt").touch()
    for folder in (tmp_path / "nowhere", tmp_path):
        with pytest.raises(UserError, match="does not exist" if folder.name == "nowhere" else "contains no run"):
            write_report(folder)
        assert_refused(main([str(folder)]), capsys.readouterr(), str(folder))
    assert not (tmp_path / "report.html").exists()
