"""Short fuzzing suites, and mutations that once failed in the long ones (``make fuzz-test``)."""

from __future__ import annotations

import logging
from pathlib import Path

import pytest

from tests.fuzz.__main__ import import_suite
from tests.fuzz.harness import REFUSED, check_line, limited, run_suite, try_case
from tests.support.config_files import TINY, changed, run_command, write

SHORT = {"configs": 300, "records": 80, "checkpoints": 50, "pretrained": 50}


@pytest.fixture(autouse=True)
def quiet():
    """Hide warnings, which damaged files are expected to cause."""
    logging.disable(logging.WARNING)
    yield
    logging.disable(logging.NOTSET)


@pytest.mark.parametrize("name", SHORT)
def test_every_mutation_is_read_correctly_or_refused_in_one_line(name: str, tmp_path: Path) -> None:
    report = run_suite(import_suite(name)(tmp_path), SHORT[name], seed=1984)
    assert not report.failures
    assert min(report.outcomes[outcome] for outcome in ("accepted", "refused")) >= SHORT[name] // 20, report


FAILED_BEFORE = {
    "a control character in a key": {"max_seq_l\x9cngth": 128},
    "sizes of which no divisor is near": {"embedding_serialization_factor": 2**63 - 1},
    "a width of which all divisors were listed": {"bert_config/hidden_size": 2**31 - 1},
    "layers by the million": {"bert_config/num_hidden_layers": 1e6, "ipu_config": ...},
}


@pytest.mark.parametrize("case", FAILED_BEFORE)
def test_mutated_configs_that_once_failed(case: str, tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    path = write(tmp_path, changed(TINY, FAILED_BEFORE[case]))
    with limited(30):
        assert run_command("pretraining", ["--config", str(path)]) == 2
    check_line(capsys.readouterr().err.rstrip("\n"), lambda line: "run.json" in line)


def test_a_checkpoint_named_by_its_file_is_verified_too(tmp_path: Path) -> None:
    """One checkpoint has the weights of one step and the description of another, and one has emptied data."""
    suite = import_suite("checkpoints")(tmp_path)
    checkpoint = "checkpoints/step-00000020"
    for damage in (
        ("other", f"{checkpoint}/checkpoint.json", "10/checkpoint.json"),
        ("empty", f"{checkpoint}/weights.data-00000-of-00001", 0.0, 1, 0),
    ):
        assert try_case(suite, [("ask", "prefix"), damage]) == REFUSED


def test_wrong_values_in_configs_of_other_projects(tmp_path: Path) -> None:
    suite = import_suite("pretrained")(tmp_path)
    for kind, file, key, value in (
        ("google", "bert_config.json", ("hidden_act",), {}),
        ("bin", "config.json", ("attention_probs_dropout_prob",), [None]),
        ("safetensors", "config.json", ("hidden_dropout_prob",), "\ud800"),
        ("safetensors", "config.json", ("hidden_size",), -1),
    ):
        assert try_case(suite, [("format", kind), ("set", f"{kind}/{file}", key, value)]) == REFUSED
    for value in (1e308, [["a"]], [{}]):
        mutations = [("format", "h5"), ("set", "h5/config.json", ("architectures",), value)]
        assert try_case(suite, mutations) == "accepted"
    assert try_case(suite, [("format", "google"), ("dangling", "google/bert_model.ckpt.index")]) == REFUSED
