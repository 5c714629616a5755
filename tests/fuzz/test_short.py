"""Short fuzzing suites, the harness itself, and failures that the long form (``make fuzz-test``) once found."""

from __future__ import annotations

import logging
import time
from pathlib import Path

import pytest

from checkpoints import folder as checkpoint_folder
from data_utils.records import files
from tests.fuzz.__main__ import main, suite_of
from tests.fuzz.configs import Configs
from tests.fuzz.harness import REFUSED, Hanging, WrongError, check_line, limited, outcome_of, run_suite
from tests.support.config_files import TINY, changed, run_command, write

SHORT = {"configs": 300, "records": 80, "checkpoints": 50, "pretrained": 50}


@pytest.fixture(autouse=True)
def quiet():
    """Hide warnings, which damaged files are expected to cause."""
    logging.disable(logging.WARNING)
    yield
    logging.disable(logging.NOTSET)


@pytest.mark.parametrize("name", SHORT)
def test_every_mutation_is_taken_right_or_refused_in_one_line(name: str, tmp_path: Path) -> None:
    report = run_suite(suite_of(name)(tmp_path), SHORT[name], seed=1984)
    assert not report.failures, str(report)
    assert min(report.outcomes[outcome] for outcome in ("accepted", "refused")) >= SHORT[name] // 20, str(report)


class Toy:
    """A suite that fails on mutations that contain 3 and 7."""

    name = "toy"

    def __init__(self, failure: BaseException) -> None:
        self.failure = failure

    def draw(self, chance):
        return [chance.randrange(10) for _ in range(6)]

    def attempt(self, mutations):
        if {3, 7} <= set(mutations):
            raise self.failure
        return REFUSED


@pytest.mark.parametrize("failure", [WrongError("taken for another"), KeyError("x"), SystemExit(3)])
def test_failures_are_found_made_small_and_printed(failure: BaseException) -> None:
    report = run_suite(Toy(failure), 200, seed=1)
    assert report.failures
    for text in report.failures:
        shown = [line.strip() for line in text.splitlines()[1:]]
        assert sorted(shown) == ["3", "7"]
        assert str(failure.args[0]) in text and "seed 1" in text
    assert run_suite(Toy(failure), 200, seed=1).failures == report.failures, "a seed gives the same cases"


def test_a_case_that_hangs_is_a_failure() -> None:
    with pytest.raises(Hanging), limited(0.05):
        time.sleep(5)


@pytest.mark.parametrize("message", ["two\nlines", "bell \x07 at a.json", "x" * 2000 + " a.json", "something is wrong"])
def test_unclear_messages_are_failures(message: str) -> None:
    with pytest.raises(WrongError):
        check_line(message, lambda line: "a.json" in line)


def test_a_reader_that_trusts_damaged_records_is_caught(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(files, "unframe", lambda framed, path, record: bytes(framed[12:-4]))
    assert run_suite(suite_of("records")(tmp_path), 60, seed=1).failures


def test_a_checkpoint_that_is_not_verified_is_caught(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    suite = suite_of("checkpoints")(tmp_path)
    monkeypatch.setattr(checkpoint_folder, "_format_problem", lambda facts: None)
    assert run_suite(suite, 150, seed=1).failures


def test_a_config_that_is_taken_for_another_is_caught(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("settings.loading._unique", lambda pairs, text, label: dict(reversed(pairs)))
    monkeypatch.setattr("settings.rules.RULES", ())
    assert run_suite(Configs(tmp_path), 300, seed=1).failures


def test_the_command_says_how_many_of_each(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    others = ["--records", "0", "--checkpoints", "0", "--pretrained", "0"]
    assert main(["--configs", "20", *others, "--seed", "5"]) == 0
    assert "configs: 20 cases" in capsys.readouterr().out


FOUND = {
    "a control character in a key": {"max_seq_l\x9cngth": 128},
    "sizes of which no divisor is near": {"embedding_serialization_factor": 2**63 - 1},
    "a width of which all divisors were listed": {"bert_config/hidden_size": 2**31 - 1},
    "layers by the million": {"bert_config/num_hidden_layers": 1e6, "ipu_config": ...},
}


@pytest.mark.parametrize("case", FOUND)
def test_what_was_found_before(case: str, tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    path = write(tmp_path, changed(TINY, FOUND[case]))
    with limited(30):
        assert run_command("pretraining", ["--config", str(path)]) == 2
    check_line(capsys.readouterr().err.rstrip("\n"), lambda line: "run.json" in line)


def test_a_checkpoint_named_by_its_file_is_verified_too(tmp_path: Path) -> None:
    """One checkpoint has the weights of one step and the description of another, and one has emptied data."""
    suite = suite_of("checkpoints")(tmp_path)
    place = "checkpoints/step-00000020"
    for damage in (
        ("other", f"{place}/checkpoint.json", "10/checkpoint.json"),
        ("empty", f"{place}/weights.data-00000-of-00001", 0.0, 1, 0),
    ):
        assert outcome_of(suite, [("ask", "prefix"), damage]) == REFUSED


def test_configs_of_others_with_values_of_another_kind(tmp_path: Path) -> None:
    suite = suite_of("pretrained")(tmp_path)
    for kind, file, key, value in (
        ("google", "bert_config.json", ("hidden_act",), {}),
        ("bin", "config.json", ("attention_probs_dropout_prob",), [None]),
        ("safetensors", "config.json", ("hidden_dropout_prob",), "\ud800"),
        ("safetensors", "config.json", ("hidden_size",), -1),
    ):
        assert outcome_of(suite, [("format", kind), ("set", f"{kind}/{file}", key, value)]) == REFUSED
    for value in (1e308, [["a"]], [{}]):
        mutations = [("format", "h5"), ("set", "h5/config.json", ("architectures",), value)]
        assert outcome_of(suite, mutations) == "accepted"
    assert outcome_of(suite, [("format", "google"), ("dangling", "google/bert_model.ckpt.index")]) == REFUSED
