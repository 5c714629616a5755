"""The whole demo, from documentation texts to a model trained on three lengths, with a small corpus and model."""

from __future__ import annotations

import itertools
import math
from pathlib import Path

import pytest

from data_utils.demo_corpus import plain_prose
from data_utils.records.manifest import load_manifest
from settings.loading import load_config
from tasks.demo import CONFIGS, PHASES, Result, free_number, is_ready, main, prepare, print_results
from tests.support.runs import metrics, read_json, write_json

pytestmark = pytest.mark.slow

WORDS = 30_000
SMALL = {
    "vocab_size": 800, "hidden_size": 16, "num_hidden_layers": 1, "num_attention_heads": 1, "intermediate_size": 32,
}  # fmt: skip


LENGTHS = dict(zip(PHASES, (32, 128, 384), strict=True))


def small_configs(folder: Path, phases: int = 2) -> list[Path]:
    """Write the demo's own configs for small models, with all their files under ``folder``."""
    configs = []
    for name, length in list(LENGTHS.items())[:phases]:
        values = {
            "extends": str(CONFIGS / f"{name}.json"),
            "bert_config": SMALL,
            "dataset_dir": str(folder / "data" / str(length)),
            "output_dir": str(folder / "runs"),
            "global_batch": {"micro_batch_size": 4, "grad_acc_steps_per_replica": 1},
            "total_num_train_samples": 24,
            "global_batches_per_log": 3,
        }
        configs.append(write_json(folder / f"{name}.json", values))
    return configs


@pytest.fixture(scope="module", params=[2, pytest.param(3, marks=pytest.mark.long)])
def phases(request: pytest.FixtureRequest) -> int:
    return request.param


@pytest.fixture(scope="module")
def done(tmp_path_factory: pytest.TempPathFactory, phases: int) -> Path:
    """A folder in which the demo has run."""
    folder = tmp_path_factory.mktemp("demo")
    assert main(["--config", *map(str, small_configs(folder, phases)), "--words", str(WORDS)]) == 0
    return folder


def test_every_phase_ends_with_checkpoint_and_report(done: Path, phases: int) -> None:
    for name in PHASES[:phases]:
        run = done / "runs" / f"{name}-1"
        assert "</html>" in (run / "report.html").read_text(encoding="utf-8")
        last = [line for line in metrics(run) if "metrics" in line][-1]
        assert last["samples"] == 24
        assert 0 < last["metrics"]["mlm_loss"] < math.log(800) + 1
        assert list((run / "checkpoints").glob("step-*"))


def test_a_phase_starts_from_the_one_before(done: Path, phases: int) -> None:
    for before, name in itertools.pairwise(PHASES[:phases]):
        resolved = read_json(done / "runs" / f"{name}-1" / "resolved_config.json")
        assert Path(resolved["config"]["pretrained_ckpt_path"]) == done / "runs" / f"{before}-1" / "checkpoints"


def test_all_lengths_are_of_the_same_corpus_and_vocabulary(done: Path, phases: int) -> None:
    result = [load_manifest(done / "data" / str(LENGTHS[name])) for name in PHASES[:phases]]
    for shorter, longer in itertools.pairwise(result):
        assert shorter is not None and longer is not None
        assert shorter.vocabulary == longer.vocabulary
        assert shorter.totals["words"] == longer.totals["words"] >= 0.9 * WORDS
        assert shorter.totals["records"] > longer.totals["records"]


def test_prepared_data_is_used_again_and_runs_get_new_names(done: Path, capfd: pytest.CaptureFixture[str]) -> None:
    phases = [load_config("pretraining", ["--config", str(path)]).config for path in small_configs(done)]
    before = (done / "data" / "32" / "manifest.json").stat().st_mtime_ns
    prepare(phases, WORDS)
    printed = capfd.readouterr().out
    assert "prepared already" in printed and "$ " not in printed
    assert (done / "data" / "32" / "manifest.json").stat().st_mtime_ns == before
    assert free_number(phases) == 2


def test_data_of_another_vocabulary_is_not_used(done: Path) -> None:
    path = small_configs(done)[0]
    config = load_config("pretraining", ["--config", str(path)]).config
    assert is_ready(config)
    path.write_text(path.read_text(encoding="utf-8").replace("800", "1600"), encoding="utf-8")
    assert not is_ready(load_config("pretraining", ["--config", str(path)]).config)


def test_the_end_shows_losses_beside_what_to_expect(capsys: pytest.CaptureFixture[str]) -> None:
    one = Result("128 tokens", 5.5, 6.0, 6.25, 1000, Path("one.html"))
    two = Result("384 tokens", 5.25, 6.0, 6.25, 1000, Path("two.html"))
    print_results([one, two])
    lines = capsys.readouterr().out.splitlines()
    row = {line[:32].strip(): line[32:].split() for line in lines if "nats" in line}
    assert row["masked-LM loss, held-out text"] == ["5.500", "nats", "5.250", "nats"]
    assert row["context-free baseline"] == ["6.000", "nats"] * 2
    assert row["unigram baseline"] == ["6.250", "nats"] * 2
    assert row["uniform baseline, ln(vocabulary)"] == ["6.908", "nats"] * 2  # ln 1000
    assert [line for line in lines if line.startswith("report on")] == [
        "report on 128 tokens: one.html",
        "report on 384 tokens: two.html",
    ]


@pytest.mark.parametrize("character", ["\x01", "\x1b", "\ud800", "\uffff"])
def test_what_is_no_text_stays_out_of_the_corpus(character: str) -> None:
    sentence = "The character {} is used to bracket control sequences in the prompt of a shell."
    assert plain_prose(sentence.format("X")) == [sentence.format("X")]
    assert plain_prose(sentence.format(character)) == []


def test_a_failed_step_ends_the_demo_in_one_line(tmp_path: Path, capfd: pytest.CaptureFixture[str]) -> None:
    (tmp_path / "data").write_text("in the way", encoding="utf-8")
    assert main(["--config", *map(str, small_configs(tmp_path)), "--words", "1000"]) == 2
    errors = capfd.readouterr().err.splitlines()
    assert errors[-1].startswith("error: the command above ended with status")
    assert not any("Traceback" in line for line in errors)
