"""Metrics equal their textbook definitions, and SciPy's; submission files have the formats of the two leaderboards."""

from __future__ import annotations

import math
from pathlib import Path

import numpy as np
import pytest
from scipy import stats

from data_utils.classification.benchmarks import TASKS
from data_utils.classification.scoring import METRICS, constant_predictions, decode_predictions, write_submission
from data_utils.classification.user_task import user_task
from tests.support.benchmark_folders import GLUE_FOLDERS


def f1_by_hand(predictions: list[int], labels: list[int]) -> float:
    pairs = list(zip(predictions, labels))
    hits, false_alarms, misses = pairs.count((1, 1)), pairs.count((1, 0)), pairs.count((0, 1))
    if hits == 0:
        return 0.0
    precision, recall = hits / (hits + false_alarms), hits / (hits + misses)
    return 2 * precision * recall / (precision + recall)


def matthews_by_hand(predictions: list[int], labels: list[int]) -> float:
    pairs = list(zip(predictions, labels))
    tp, tn, fp, fn = (pairs.count(pair) for pair in ((1, 1), (0, 0), (1, 0), (0, 1)))
    product = (tp + fp) * (tp + fn) * (tn + fp) * (tn + fn)
    return (tp * tn - fp * fn) / math.sqrt(product) if product else 0.0


@pytest.mark.parametrize("seed", range(30))
def test_classes(seed: int) -> None:
    random = np.random.default_rng(seed)
    size, bias = int(random.integers(1, 40)), random.random()
    labels = (random.random(size) < bias).astype(np.int32)
    predictions = np.where(random.random(size) < 0.7, labels, 1 - labels)
    p, t = predictions.tolist(), labels.tolist()
    assert METRICS["accuracy"](predictions, labels) == pytest.approx(sum(a == b for a, b in zip(p, t)) / size)
    assert METRICS["f1"](predictions, labels) == pytest.approx(f1_by_hand(p, t))
    assert METRICS["matthews"](predictions, labels) == pytest.approx(matthews_by_hand(p, t), abs=1e-12)


def test_a_baseline_guesses_the_most_frequent_class_the_frequent_labels_or_the_mean() -> None:
    classes = constant_predictions(TASKS["mnli"], np.array([2, 1, 2, 0, 2], np.int32))
    assert classes.tolist() == [2] * 5 and METRICS["accuracy"](classes, np.array([2, 1, 2, 0, 2])) == 3 / 5
    scores = constant_predictions(TASKS["stsb"], np.array([1, 2, 4.5], np.float32))
    assert scores.tolist() == [2.5] * 3
    labels = np.array([[1, 0], [1, 0], [0, 1]], np.int32)
    task = user_task("train.csv", None, None, 0.1, 1, ["text"], "label", ["a", "b"], False, ";")
    assert constant_predictions(task, labels).tolist() == [[1, 0]] * 3


@pytest.mark.parametrize("seed", range(20))
def test_many_classes(seed: int) -> None:
    """Macro F1 is the mean F1 of one class against the others; Matthews' is as in Gorodkin 2004, equation 8."""
    random = np.random.default_rng(seed)
    labels = random.integers(0, 4, 60)
    predictions = np.where(random.random(60) < 0.5, labels, random.integers(0, 4, 60))
    one_by_one = [
        f1_by_hand((predictions == c).astype(int).tolist(), (labels == c).astype(int).tolist()) for c in range(4)
    ]
    assert METRICS["macro_f1"](predictions, labels) == pytest.approx(sum(one_by_one) / 4)
    pairs = list(zip(predictions.tolist(), labels.tolist()))
    c = [[pairs.count((row, column)) for column in range(4)] for row in range(4)]
    covariance = sum(c[k][k] * c[m][n] - c[n][k] * c[k][m] for k in range(4) for n in range(4) for m in range(4))
    rows, columns = [sum(row) for row in c], [sum(column) for column in zip(*c)]
    spreads = [sum(side[k] * (60 - side[k]) for k in range(4)) for side in (rows, columns)]
    assert METRICS["matthews"](predictions, labels) == pytest.approx(covariance / math.sqrt(spreads[0] * spreads[1]))


@pytest.mark.parametrize("seed", range(20))
def test_any_number_of_labels(seed: int) -> None:
    """Micro F1 counts all decisions together, macro F1 is the mean over the labels, as in scikit-learn."""
    random = np.random.default_rng(seed)
    labels = (random.random((30, 5)) < random.random(5) * 0.6).astype(np.int32)
    predictions = np.where(random.random((30, 5)) < 0.8, labels, 1 - labels)
    predictions[:, 4] = labels[:, 4] = 0  # scikit-learn counts a label that never occurs as 0
    by_label = [f1_by_hand(p.tolist(), t.tolist()) for p, t in zip(predictions.T, labels.T)]
    together = f1_by_hand(predictions.ravel().tolist(), labels.ravel().tolist())
    assert METRICS["micro_f1"](predictions, labels) == pytest.approx(together)
    assert METRICS["macro_f1"](predictions, labels) == pytest.approx(sum(by_label) / 5)


@pytest.mark.parametrize("seed", range(20))
def test_scores(seed: int) -> None:
    random = np.random.default_rng(seed)
    labels = np.round(random.uniform(0, 5, 50), 1)  # with ties
    predictions = (labels + random.normal(0, 2, 50)).astype(np.float32).round(1)
    assert METRICS["pearson"](predictions, labels) == pytest.approx(stats.pearsonr(predictions, labels).statistic)
    assert METRICS["spearman"](predictions, labels) == pytest.approx(stats.spearmanr(predictions, labels).statistic)


def test_undefined_scores_are_zero() -> None:
    same, labels = np.ones(4), np.array([0, 1, 1, 0])
    for name in ("matthews", "pearson", "spearman"):
        assert METRICS[name](same, labels) == 0
    assert METRICS["f1"](np.zeros(4), np.zeros(4)) == 0
    constants = [np.full(1000, value) for value in (0.1, 0.7, 1 / 3, 1e9 + 0.1)]  # SciPy has NaN for each pair
    assert {METRICS[name](a, b) for name in ("pearson", "spearman") for a in constants for b in constants} == {0.0}
    one_class = np.ones(5, np.int32)  # scikit-learn 1.9: 0, 1, 1
    assert [METRICS[name](one_class, one_class) for name in ("matthews", "f1", "macro_f1")] == [0, 1, 1]


@pytest.mark.parametrize(
    ("name", "logits", "lines"),
    [
        ("sst2", [[0.1, 2.0], [3.0, -1.0]], ["index\tprediction", "0\t1", "1\t0"]),
        ("rte", [[0.1, 2.0], [3.0, -1.0]], ["index\tprediction", "0\tnot_entailment", "1\tentailment"]),
        ("mnli", [[0, 0, 1], [0, 1, 0]], ["index\tprediction", "0\tcontradiction", "1\tneutral"]),
        ("stsb", [[7.5], [2.34567]], ["index\tprediction", "0\t5.000", "1\t2.346"]),
        ("stsb", [[-0.2], [0.0]], ["index\tprediction", "0\t0.000", "1\t0.000"]),
        ("afqmc", [[0.1, 2.0], [3.0, -1.0]], ['{"id": 0, "label": "1"}', '{"id": 1, "label": "0"}']),
        ("wsc", [[0.1, 2.0], [3.0, -1.0]], ['{"id": 0, "label": "true"}', '{"id": 1, "label": "false"}']),
        ("tnews", [[0] * 5 + [1] + [0] * 9, [1] + [0] * 14],
         ['{"id": 0, "label": "106"}', '{"id": 1, "label": "100"}']),
    ],
)  # fmt: skip
def test_submissions(name: str, logits: list[list[float]], lines: list[str], tmp_path: Path) -> None:
    task = TASKS[name]
    path = tmp_path / "submission" / task.test[0].submission
    write_submission(path, task, [0, 1], decode_predictions(task, np.array(logits, np.float32)))
    assert path.read_bytes() == ("\n".join(lines) + "\n").encode()


def test_names_of_the_leaderboards() -> None:
    """gluebenchmark.com requires these names (and the diagnostics' AX.tsv), and CLUE's submission notes the others."""
    glue = {split.submission for name in GLUE_FOLDERS for split in TASKS[name].test}
    assert glue == {
        "CoLA.tsv", "MNLI-m.tsv", "MNLI-mm.tsv", "MRPC.tsv", "QNLI.tsv", "QQP.tsv", "RTE.tsv", "SST-2.tsv",
        "STS-B.tsv", "WNLI.tsv",
    }  # fmt: skip
    clue = {split.submission for name in TASKS if name not in GLUE_FOLDERS for split in TASKS[name].test}
    assert clue == {
        "afqmc_predict.json", "tnews11_predict.json", "tnews10_predict.json", "iflytek_predict.json",
        "cmnli_predict.json", "cluewsc11_predict.json", "cluewsc10_predict.json", "csl_predict.json",
    }  # fmt: skip
