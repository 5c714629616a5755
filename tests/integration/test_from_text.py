"""``run_from_text.py`` from a tiny text to an exported model; killed in each step, it ends with the same weights."""

from __future__ import annotations

import json
import os
import shutil
import signal
import statistics
import subprocess
import sys
import time
from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from safetensors.numpy import load_file
from transformers import BertTokenizerFast

from data_utils.demo_corpus import write_demo_corpus
from keras_extensions.backend import tf
from tasks.from_text.recipe import MOST_PASSES, REAL_TOKENS, TOKENS_PER_UPDATE
from tests import ROOT
from tests.support.html_pages import Page
from tests.support.pytorch_fillings import pytorch_fillings
from tests.support.pytorch_process import NEEDS_PYTORCH, run_pytorch
from tests.support.runs import read_json, read_lines

pytestmark = pytest.mark.slow

HOURS = "0.5"  # half an hour; the text is so short that it ends much earlier, also on a slow machine
SMALL = ["--bert-config.num-hidden-layers", "1", "--bert-config.hidden-size", "64"]
SMALL += ["--bert-config.num-attention-heads", "1", "--bert-config.intermediate-size", "128"]


@pytest.fixture(scope="module")
def text(tmp_path_factory: pytest.TempPathFactory) -> Path:
    path = tmp_path_factory.mktemp("text") / "mine.txt"
    write_demo_corpus(path, words=10_000, packages=())
    return path


def command(text: Path, folder: Path, hours: str = HOURS) -> list[str]:
    words = ["--text", str(text), "--hours", hours, "--name", "mine", "--output-dir", str(folder), *SMALL]
    return [sys.executable, str(ROOT / "run_from_text.py"), *words]


def run(text: Path, folder: Path, hours: str = HOURS) -> subprocess.CompletedProcess[str]:
    return subprocess.run(command(text, folder, hours), cwd=ROOT, capture_output=True, text=True, check=False)


@pytest.fixture(scope="module")
def done(text: Path, tmp_path_factory: pytest.TempPathFactory) -> Path:
    folder = tmp_path_factory.mktemp("done")
    outcome = run(text, folder)
    assert outcome.returncode == 0, outcome.stderr
    assert "what came out" in outcome.stdout and "context-free baseline" in outcome.stdout
    return folder / "mine"


@NEEDS_PYTORCH
def test_it_ends_with_a_page_a_result_and_a_model_that_transformers_loads(done: Path) -> None:
    page = (done / "index.html").read_text(encoding="utf-8")
    assert "masked-LM loss" in page and "What was chosen, and why" in page
    result = read_json(done / "result.json")
    assert 0 < result["loss"] < np.log(4096) and dict(result["baselines"])["context-free baseline"] > 0
    assert len(result["blanks"]) == 5
    held_out = " ".join(
        (done / "data" / "128" / "validation" / "corpus" / "sentences_000.txt").read_text("utf-8").split()
    )
    for blank in result["blanks"]:
        assert blank["text"].replace("[MASK]", blank["word"]) in held_out
        assert all(word.isalpha() for word, _ in blank["fillings"])
        shares = [share for _, share in blank["fillings"]]
        assert len(shares) == 3 and shares == sorted(shares, reverse=True) and 0 < sum(shares) <= 1
    assert read_json(done / "model" / "config.json")["hidden_size"] == 64
    tokenizer = BertTokenizerFast(str(done / "data" / "128" / "vocab.txt"))
    single = [blank for blank in result["blanks"] if len(tokenizer.tokenize(blank["word"])) == 1]
    assert single
    for blank, answer in zip(single, pytorch_fillings(done / "model", [blank["text"] for blank in single], 1_000)):
        whole = [(piece, share) for piece, share in answer if piece.isalpha()][:3]  # ##s and commas are no words
        assert [word for word, _ in blank["fillings"]] == [word for word, _ in whole]
        assert [share for _, share in blank["fillings"]] == pytest.approx([share for _, share in whole], abs=1e-4)


@NEEDS_PYTORCH
def test_each_figure_of_the_result_is_computed_again_by_other_means(done: Path, tmp_path: Path) -> None:
    result = read_json(done / "result.json")
    data = done / "data" / "128"
    held_out = data / "validation"
    np.savez(tmp_path / "records.npz", **records(held_out))
    found = json.loads(run_pytorch("tests.support.pytorch_masked_loss", done / "model", tmp_path / "records.npz"))
    assert result["loss"] == pytest.approx(found["loss"], rel=0.005)  # bfloat16, where the processor is fast in it
    assert result["right"] == pytest.approx(found["right"], abs=0.005)

    text = (held_out / "corpus" / "sentences_000.txt").read_text("utf-8")
    tokenizer = BertTokenizerFast(str(data / "vocab.txt"))
    counts = np.bincount(tokenizer(text, add_special_tokens=False)["input_ids"], minlength=tokenizer.vocab_size)
    bits = result["loss"] * counts.sum() / len(text.encode()) / np.log(2)
    assert result["bits_per_byte"] == pytest.approx(bits, abs=1e-3)
    assert result["unknown"] == pytest.approx(counts[1] / counts.sum())
    shares = counts[counts > 0] / counts.sum()
    baselines = dict(result["baselines"])
    assert baselines["unigram baseline"] == pytest.approx(-(shares * np.log(shares)).sum(), abs=1e-3)
    assert baselines["uniform baseline"] == pytest.approx(np.log(tokenizer.vocab_size), abs=1e-3)
    assert 0.8 * baselines["unigram baseline"] < baselines["context-free baseline"] < baselines["unigram baseline"]

    updates, lines = read_json(done / "updates.json")["updates"], {}
    for name in updates:
        lines[name] = [line for line in read_lines(done / name / "metrics.jsonl") if "metrics" in line]
        rates = [line["throughput"] for line in lines[name] if not line.get("compiling")]
        assert not rates or result["samples_per_second"][name] == pytest.approx(statistics.median(rates), abs=0.1)
    before = 0
    for name, points in result["curves"].items():
        assert points == [[before + line["step"], line["metrics"]["mlm_loss"]] for line in lines[name]]
        before += updates[name]
    seconds = sum(line["seconds"] for line in read_lines(done / "times.jsonl"))
    assert sum(result["seconds"].values()) == pytest.approx(seconds, abs=0.01)
    assert (result["updates"], result["planned"]) == (updates, read_json(done / "updates.json")["planned"])
    tokens = read_json(done / "data" / "128" / "manifest.json")["totals"]["tokens"]
    passes = {name: value for name, value, _ in result["choices"]}["passes"]
    assert float(passes) == pytest.approx(sum(updates.values()) * 4096 * 0.85 / tokens, abs=0.06)
    assert result["expected"] is None and result["forecasts"] == [], "a model that was given, and too little text"
    page = Page((done / "index.html").read_text("utf-8"))
    shown = "\n".join([*page.elements("div", "card"), *page.elements("td")])
    figures = [f"{result['loss']:.3f}", f"{result['right']:.1%}", f"{bits:.3f}", f"{counts[1] / counts.sum():.2%}"]
    for figure in (*figures, f"{seconds / 60:,.1f} min", " + ".join(f"{number:,}" for number in updates.values())):
        assert figure in shown, figure
    for number in (baselines["unigram baseline"], baselines["context-free baseline"]):
        assert f"{number:.3f}" in shown


def test_repeated_it_does_nothing_and_each_command_of_its_page_runs(text: Path, done: Path, tmp_path: Path) -> None:
    """From another folder, for which the page is written anew; the last command continues the model on more text."""
    options: dict[str, Any] = {"cwd": tmp_path, "capture_output": True, "text": True, "check": False}
    made = [path for name in ("32", "128", "model", "data") for path in (done / name).rglob("*")]
    before = {path: path.stat().st_mtime_ns for path in made}
    repeated = subprocess.run(command(text, done.parent), **options)
    assert repeated.returncode == 0 and "what came out" in repeated.stdout, repeated.stderr
    assert {path: path.stat().st_mtime_ns for path in made} == before
    assert "===  timing" not in repeated.stdout and "=== training" not in repeated.stdout
    shown = Page((done / "index.html").read_text("utf-8")).elements("pre")
    rows = [f"{'a good' if number % 2 else 'a bad'} film,{'yes' if number % 2 else 'no'}" for number in range(80)]
    (tmp_path / "reviews.csv").write_text("\n".join(["review,sentiment", *rows]) + "\n", encoding="utf-8")
    shutil.copy(text, tmp_path / "more.txt")
    path = f"{Path(sys.executable).parent}{os.pathsep}{os.environ['PATH']}"
    outcomes = [subprocess.run(each, shell=True, env={**os.environ, "PATH": path}, **options) for each in shown]
    assert [outcome.returncode for outcome in outcomes] == [0, 0, 0], [outcome.stderr for outcome in outcomes]
    assert len(outcomes[0].stdout.splitlines()) == 5 and "%" in outcomes[0].stdout
    tuned = read_json(tmp_path / "runs" / "reviews" / "resolved_config.json")
    assert tuned["config"]["pretrained_ckpt_path"] == str(done) and tuned["derived"]["hidden_size"] == 64
    more = tmp_path / "runs" / "more"
    assert read_json(more / "model" / "config.json")["hidden_size"] == 64 and "what came out" in outcomes[2].stdout
    assert list(read_json(more / "updates.json")["updates"]) == ["128"]
    assert (more / "model" / "vocab.txt").read_bytes() == (done / "model" / "vocab.txt").read_bytes()
    before, after = (load_file(each / "model" / "model.safetensors") for each in (done, more))
    name = "bert.encoder.layer.0.attention.self.query.weight"
    change = np.abs(after[name] - before[name]).mean() / np.abs(before[name]).mean()
    assert 0 < change < 0.2, "a low rate has changed the weights a little"


def records(folder: Path) -> dict[str, np.ndarray]:
    """Return the features of all records of a folder, read by TensorFlow."""
    files = sorted(map(str, folder.glob("*.tfrecord")))
    examples = [tf.train.Example.FromString(each.numpy()) for each in tf.data.TFRecordDataset(files)]
    features: dict[str, list[list[float]]] = {}
    for example in examples:
        for name, feature in example.features.feature.items():
            features.setdefault(name, []).append(list(feature.int64_list.value or feature.float_list.value))
    return {name: np.array(values) for name, values in features.items()}


def test_the_number_of_updates_is_that_of_the_time_that_was_left(done: Path) -> None:
    fixed = read_json(done / "updates.json")
    for name, updates in fixed["updates"].items():
        config = read_json(done / name / "resolved_config.json")["config"]
        assert config["total_num_train_samples"] == updates * 4096 // int(name)
    tokens = read_json(done / "data" / "128" / "manifest.json")["totals"]["tokens"]  # without what is held out
    most = MOST_PASSES * tokens / (TOKENS_PER_UPDATE * REAL_TOKENS)
    seconds = sum(read_json(done / "result.json")["seconds"].values())
    in_time = seconds == pytest.approx(float(HOURS) * 3600, rel=0.2)
    assert in_time or sum(fixed["updates"].values()) == pytest.approx(most, abs=2)


def kill_when(
    text: Path, folder: Path, sign: Path | Callable[[], bool], how: signal.Signals, hours: str = HOURS
) -> None:
    """Start the command, and end it with a signal once a file is there, or a condition is true."""
    is_time = sign.exists if isinstance(sign, Path) else sign
    with subprocess.Popen(
        command(text, folder, hours), cwd=ROOT, stdout=subprocess.DEVNULL, stderr=subprocess.PIPE
    ) as process:
        until = time.monotonic() + 300
        while not is_time() and process.poll() is None and time.monotonic() < until:
            time.sleep(0.05)
        assert process.poll() is None, f"it ended before there was {sign}: {process.stderr and process.stderr.read()}"
        process.send_signal(how)
        process.wait(timeout=300)
        assert process.returncode in (-how, 128 + how)


def test_killed_in_each_step_and_repeated_it_ends_with_the_same_weights(text: Path, done: Path, tmp_path: Path) -> None:
    folder = tmp_path / "mine"
    folder.mkdir()
    for name in ("plan.json", "updates.json"):  # decisions, which times of this moment would change
        shutil.copy(done / name, folder / name)
    kill_when(text, tmp_path, folder / "data" / "32", signal.SIGKILL)
    kill_when(text, tmp_path, folder / "32" / "metrics.jsonl", signal.SIGKILL)
    kill_when(text, tmp_path, folder / "128" / "metrics.jsonl", signal.SIGTERM)
    outcome = run(text, tmp_path)
    assert outcome.returncode == 0, outcome.stderr
    assert sorted(path.name for path in folder.iterdir() if path.is_dir()) == ["128", "32", "data", "model"]
    assert_same_weights(folder, done)


def assert_same_weights(folder: Path, other: Path) -> None:
    expected, found = (load_file(each / "model" / "model.safetensors") for each in (other, folder))
    assert expected.keys() == found.keys()
    for name, values in expected.items():
        np.testing.assert_array_equal(found[name], values, err_msg=name)


@pytest.mark.long
def test_killed_after_a_change_it_ends_with_the_weights_of_the_same_changes(
    text: Path, done: Path, tmp_path: Path
) -> None:
    """So few updates are decided, for so much time, that more follow as soon as their time is known."""
    hours, few = "2", {"updates": {"32": 60, "128": 20}, "planned": 80, "hours": 2.0, "changes": []}
    plan = read_json(done / "plan.json")
    plan["command"]["hours"] = 2.0
    folders = {name: tmp_path / name / "mine" for name in ("whole", "killed")}
    for folder in folders.values():
        folder.mkdir(parents=True)
        shutil.copytree(done / "data", folder / "data")
        for name, content in (("plan.json", plan), ("updates.json", few)):
            (folder / name).write_text(json.dumps(content), encoding="utf-8")
    assert run(text, tmp_path / "whole", hours).returncode == 0

    folder = folders["killed"]

    def has_changed_and_gone_on() -> bool:
        changes = read_json(folder / "updates.json")["changes"]
        if not changes or not (folder / "32" / "metrics.jsonl").exists():
            return False
        steps = [line["step"] for line in read_lines(folder / "32" / "metrics.jsonl") if "metrics" in line]
        return max(steps, default=0) > changes[0]["step"]

    kill_when(text, folder.parent, has_changed_and_gone_on, signal.SIGKILL, hours)
    kill_when(text, folder.parent, folder / "128" / "metrics.jsonl", signal.SIGTERM, hours)
    assert run(text, folder.parent, hours).returncode == 0
    whole, killed = (read_json(each / "updates.json") for each in folders.values())
    steps = [[(each["phase"], each["step"], each["updates"]) for each in found["changes"]] for found in (whole, killed)]
    assert steps[0] and steps[0] == steps[1] and whole["updates"] == killed["updates"] != few["updates"]
    assert_same_weights(folder, folders["whole"])


@pytest.mark.long
def test_killed_while_updates_are_timed_it_times_them_again(text: Path, done: Path, tmp_path: Path) -> None:
    folder = tmp_path / "mine"
    folder.mkdir()
    plan = {**read_json(done / "plan.json"), "measured": None}
    (folder / "plan.json").write_text(json.dumps(plan), encoding="utf-8")
    kill_when(text, tmp_path, folder / "timing" / "128" / "metrics.jsonl", signal.SIGKILL)
    assert not (folder / "data").exists() and not (folder / "updates.json").exists()
    kill_when(text, tmp_path, folder / "data", signal.SIGKILL)
    assert read_json(folder / "plan.json")["measured"] and not (folder / "timing").exists()
