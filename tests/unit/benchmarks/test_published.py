"""benchmarks.yml in the published form: what is read, what runs, which figures come out, and tables of machines."""

from __future__ import annotations

import json
import os
import sys
from pathlib import Path

import pytest

from benchmarks.measuring import facts_of_machine, machine
from benchmarks.published import arithmetic, command_of, figures_of, read_spec
from benchmarks.run import file_name_of, main, read_results, system_of, systems_table, title_of
from settings.loading import load_config
from tests import ROOT
from utilities.errors import UserError

# In the form of Graphcore's published files: anchors, a list of parameters, derived figures, both ways to name outputs.
PUBLISHED = r"""---
common_options: &common_options
  location: public_examples/nlp/bert/
  env:
    FLAGS: '--cache=./x'
  data:
    throughput:
      regexp: 'throughput: *(.*?) samples\/sec'
      skip: 1
    loss:
      regexp: 'loss: *(\d*\.\d*)'
      reduction_type: "final"
    first:
      regexp: 'loss: *(\d*\.\d*)'
      reduction_type: value
    best:
      regexp: 'loss: *(\d*\.\d*)'
      reduction_type: min
    latency:
      regexp: 'latency: ([\d.]+)'
      skip: 1
  derived:
    tokens:
      expr: "{throughput} * {seqlen}"
  output:
    - [samples/sec, 'throughput']
    - [tokens/sec, '{tokens}']

bert_gen_pod4:
  <<: *common_options
  description: |
    Some
    benchmark.
  parameters:
    - [seqlen, phase]
    - ['128', '1']
    - [384, 2]
  cmd: >-
    python3 run.py --config c_{seqlen}_phase{phase}.json
      --dataset-dir $DATASETS_DIR/wikipedia/${{KIND}}
      --tag "two words"

bert_matrix_gen:
  <<: *common_options
  parameters: {batch: "1, 2", phase: "1,2"}
  derived: {}
  output: [[loss, loss]]
  cmd: python train.py {batch} {phase}

bert_real_conv:
  <<: *common_options
  cmd: python3 run.py
"""
LOG = """
loss: 9.5 throughput: 10.0 samples/sec latency: 1.0
loss: 7.5 throughput: 1,200.5 samples/sec latency: 9.0
loss: 8.5 throughput: 1,100.5 samples/sec latency: 2.0
"""


@pytest.fixture
def spec(tmp_path) -> Path:
    path = tmp_path / "benchmarks.yml"
    path.write_text(PUBLISHED)
    return path


def test_entries_variants_and_templates(spec):
    known = read_spec(spec)
    assert list(known) == ["bert_gen_pod4", "bert_matrix_gen", "bert_real_conv"], "options lend their keys only"
    rows, matrix = known["bert_gen_pod4"], known["bert_matrix_gen"]
    assert [rows.variant_name(v) for v in rows.variants] == [
        "bert_gen_pod4_phase_1_seqlen_128", "bert_gen_pod4_phase_2_seqlen_384",
    ]  # fmt: skip
    assert [tuple(v.values()) for v in matrix.variants] == [("1", "1"), ("1", "2"), ("2", "1"), ("2", "2")]
    assert rows.description == "Some benchmark."
    assert (rows.converges, known["bert_real_conv"].converges) == (False, True)
    assert rows.folder == spec.parent, "the folder of another repository is not here"


def test_location_is_relative_to_the_file(spec):
    (spec.parent / "public_examples/nlp/bert").mkdir(parents=True)
    assert read_spec(spec)["bert_gen_pod4"].folder == spec.parent / "public_examples/nlp/bert"


def test_commands_are_filled_in_without_a_shell(spec):
    benchmark = read_spec(spec)["bert_gen_pod4"]
    words = command_of(benchmark, benchmark.variants[0], {"DATASETS_DIR": "/my data", "KIND": "$(rm -rf x); `ls`"})
    assert words == [
        sys.executable, "run.py", "--config", "c_128_phase1.json",
        "--dataset-dir", "/my data/wikipedia/$(rm -rf x); `ls`", "--tag", "two words",
    ]  # fmt: skip
    with pytest.raises(UserError, match=r"bert_gen_pod4\.cmd: .* DATASETS_DIR is not set"):
        command_of(benchmark, benchmark.variants[0], {})


def test_figures_as_the_published_runner_makes_them(spec):
    """A mean leaves out the lowest values (of a latency the highest); final, value and min as they say."""
    figures = figures_of(read_spec(spec)["bert_gen_pod4"], {"seqlen": "128"}, LOG)
    assert figures == {
        "throughput": 1150.5, "loss": 8.5, "first": 9.5, "best": 7.5, "latency": 1.5, "tokens": 1150.5 * 128,
    }  # fmt: skip


@pytest.mark.parametrize(
    "log, message",
    [
        ("", r"data\.throughput: the log has 0 values, 1 are skipped"),
        (LOG.replace("1,200.5", "nan"), "NaN"),
        (LOG.replace("1,200.5", "fast"), "no number"),
    ],
)
def test_a_log_without_its_figures_is_refused(spec, log, message):
    with pytest.raises(UserError, match=message):
        figures_of(read_spec(spec)["bert_gen_pod4"], {"seqlen": "128"}, log)


@pytest.mark.parametrize("text, value", [("1 + 2 * 3", 7), ("-(2.5 - 1) / 3", -0.5), ("7 // 2 % 2", 1)])
def test_arithmetic(text, value):
    assert arithmetic(text) == value


@pytest.mark.parametrize(
    "text", ["__import__('os')", "open('x')", "(1).__class__", "[1]", "'a' * 3", "2 ** 9", "x", "1 if 1 else 2"]
)
def test_nothing_but_arithmetic_is_computed(text):
    with pytest.raises(ValueError):
        arithmetic(text)


BROKEN = {
    "no YAML": ("a: [", "line 1 is not valid YAML"),
    "an object of Python's": ("a: !!python/object/apply:os.system ['true']", "not valid YAML"),
    "a list": ("- a", "holds no benchmarks"),
    "an entry that is none": ("a: 3", "a is no mapping"),
    "no command": ("a: {data: {}}", r"a\.cmd is missing"),
    "a command that is no text": ("a: {cmd: [x]}", r"a\.cmd is \['x'\]"),
    "no regular expression": ("a: {cmd: x, data: {t: {regexp: '('}}}", r"a\.data\.t\.regexp is '\(': .*regular expr"),
    "no group": ("a: {cmd: x, data: {t: {regexp: 'x'}}}", "has no group"),
    "an unknown reduction": (
        "a: {cmd: x, data: {t: {regexp: '(x)', reduction_type: best}}}",
        r"reduction_type is 'best': .* 'mean', 'final', 'min' or 'value'",
    ),
    "a skip below 0": ("a: {cmd: x, data: {t: {regexp: '(x)', skip: -1}}}", r"\.skip is -1"),
    "rows of other lengths": ("a: {cmd: x, parameters: [[p, q], [1]]}", r"a\.parameters is .*: write a list"),
    "an output that is none": ("a: {cmd: x, output: [x]}", r"a\.output"),
    "another machine": ("a: {cmd: x, system: tpu}", r"a\.system is 'tpu': .* 'cpu', 'gpu' or 'ipu'"),
    "a notebook": ("a: {cmd: x, notebook: y}", "notebook is not supported"),
}


@pytest.mark.parametrize("case", BROKEN)
def test_broken_files_are_one_line(tmp_path, capsys, case):
    content, message = BROKEN[case]
    path = tmp_path / "benchmarks.yml"
    path.write_text(content)
    with pytest.raises(UserError, match=message):
        read_spec(path)
    assert main(["--spec", str(path), "--list"]) == 2
    error = capsys.readouterr().err
    assert error.startswith("error: ") and error.count("\n") == 1 and str(path) in error


SCRIPT = """
import os, sys
print("throughput: 1 samples/sec")
for value in (10, 20, 30): print("throughput: %d samples/sec" % (value * int(sys.argv[1])))
print("key", os.environ["MY_TOKEN"], os.environ["FROM_SPEC"], file=sys.stderr)
sys.exit(int(sys.argv[2]))
"""
SMALL = r"""
good:
  env: {FROM_SPEC: yes it is}
  data: {throughput: {regexp: 'throughput: *(.*?) samples\/sec', skip: 1}}
  output: [[samples/sec, throughput]]
  parameters: [[factor, status], [1, 0], [2, 0]]
  cmd: python3 script.py {factor} {status}
bad:
  env: {FROM_SPEC: x}
  data: {throughput: {regexp: 'throughput: *(.*?) samples\/sec', skip: 1}}
  cmd: python3 script.py 1 3
elsewhere:
  system: ipu
  cmd: python3 script.py 1 3
days_conv:
  cmd: python3 script.py 1 3
"""


@pytest.fixture
def small(tmp_path, monkeypatch) -> Path:
    (tmp_path / "script.py").write_text(SCRIPT)
    (tmp_path / "benchmarks.yml").write_text(SMALL)
    monkeypatch.setenv("MY_TOKEN", "do-not-tell-1234")
    return tmp_path


def measure(small: Path, *arguments: str) -> int:
    return main(
        ["--spec", str(small / "benchmarks.yml"), "--output", str(small / "out"), "--system", "cpu", *arguments]
    )


def test_runs_prints_and_keeps_a_table_of_this_machine(small, capsys):
    assert measure(small, "--benchmark", "good", "--repeat", "3") == 0
    shown = capsys.readouterr()
    (kept,) = (small / "out").glob("*.json")
    results = read_results(kept)
    assert results["machine"]["cpu_cores_usable"] == len(os.sched_getaffinity(0))
    assert results["machine"]["packages"]["numpy"]
    assert {name: result["output"] for name, result in results["results"].items()} == {
        "good_factor_1_status_0": {"samples/sec": [20.0] * 3},
        "good_factor_2_status_0": {"samples/sec": [40.0] * 3},
    }
    assert kept.with_suffix(".md").read_text().strip() == shown.out.strip()
    assert "| good_factor_2_status_0 |          40 |           3 |" in shown.out
    assert title_of(results["machine"]) in shown.out
    everything = shown.out + shown.err + "".join(p.read_text() for p in (small / "out").rglob("*") if p.is_file())
    assert "do-not-tell-1234" not in everything and "yes it is" in everything


def test_what_fails_is_named_and_the_rest_still_runs(small, capsys):
    assert measure(small, "--benchmark", "bad", "good") == 1
    shown = capsys.readouterr()
    assert shown.err.count("error: bad ended with status 3; its log is in ") == 1
    assert "good_factor_1_status_0" in shown.out and "| bad" not in shown.out


def test_results_of_earlier_runs_stay(small):
    assert measure(small, "--benchmark", "good") == 0
    (kept,) = (small / "out").glob("*.json")
    content = json.loads(kept.read_text())
    content["results"]["older"] = content["results"].pop("good_factor_2_status_0")
    kept.write_text(json.dumps(content))
    assert measure(small, "--benchmark", "good") == 0
    assert set(read_results(kept)["results"]) == {"older", "good_factor_1_status_0", "good_factor_2_status_0"}


def test_only_what_this_machine_is_meant_for_runs_unasked(small, capsys):
    assert measure(small, "--list") == 0
    listed = [line for line in capsys.readouterr().out.splitlines() if not line.startswith(" ")]
    assert listed == ["good_factor_1_status_0", "good_factor_2_status_0", "bad"]
    assert measure(small, "--benchmark", "god") == 2
    assert "did you mean good?" in capsys.readouterr().err


def test_a_process_that_does_not_end(small, capsys):
    (small / "script.py").write_text("import time; time.sleep(60)")
    assert measure(small, "--benchmark", "bad", "--timeout", "0.5") == 1
    assert "status 124" in capsys.readouterr().err


def test_machines_side_by_side():
    first = {
        "machine": {"cpu": "A", "cpu_cores_usable": 2},
        "results": {"x": {"output": {"samples/sec": [10, 20, 30]}}},
    }
    second = {
        "machine": {"cpu": "B", "cpu_cores_usable": 4},
        "results": {"x": {"output": {"samples/sec": [50]}}, "y": {"output": {"s": [1]}}},
    }
    assert systems_table([first, second]).splitlines() == [
        "|                | A, 2 cores |  B, 4 cores |",
        "| -------------- | ---------: | ----------: |",
        "| x, samples/sec |         20 | 50 (2.50 ×) |",
        "| y, s           |          – |           1 |",
    ]


@pytest.mark.parametrize(
    "content", ["", "[]", "{}", '{"format": "benchmark-results"}', '{"format": "other", "results": {}}']
)
def test_files_that_are_no_results(tmp_path, capsys, content):
    path = tmp_path / "x.json"
    path.write_text(content)
    assert main(["--compare", str(path)]) == 2
    assert capsys.readouterr().err.count("\n") == 1


def test_the_machine_is_described(monkeypatch, tmp_path):
    tool = tmp_path / "nvidia-smi"
    tool.write_text("#!/bin/sh\necho 'NVIDIA H100, 81559 MiB, 550.1'\necho 'NVIDIA H100, 81559 MiB, 550.1'\n")
    tool.chmod(0o755)
    monkeypatch.setenv("PATH", f"{tmp_path}:{os.environ['PATH']}")
    facts = facts_of_machine()
    assert facts["gpus"] == ["NVIDIA H100, 81559 MiB, driver 550.1"] * 2
    assert title_of(facts).startswith("2 × NVIDIA H100, ") and system_of(facts) == "gpu"
    assert file_name_of(facts).startswith("2-nvidia-h100-") and "/" not in file_name_of(facts)
    for fact in (facts["cpu"], "GiB", "tensorflow", "Python 3", "driver 550.1"):
        assert fact in machine(facts)


def test_the_projects_own_benchmarks_load():
    """Every config is there, and every command's flags are ours."""
    known = read_spec(ROOT / "benchmarks.yml")
    assert {benchmark.system for benchmark in known.values()} == {"cpu", "gpu", "ipu"}
    for benchmark in known.values():
        assert benchmark.description and benchmark.output
        for parameters in benchmark.variants:
            _, script, *arguments = command_of(benchmark, parameters, {"DATASETS_DIR": "/data"})
            assert (ROOT / script).is_file()
            config = load_config("pretraining", ["--config", str(ROOT / arguments[1]), *arguments[2:]]).config
            assert config.generated_dataset == (benchmark.system != "ipu")
