"""Submission files in the formats of the two leaderboards, and rows of the ``datasets`` library."""

from __future__ import annotations

import sys
from collections.abc import Iterator
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import numpy as np
import pytest

from data_utils.classification.benchmarks import TASKS
from data_utils.classification.reading import read_split
from data_utils.classification.scoring import decode_predictions, write_submission
from tests.support.benchmark_folders import GLUE_FOLDERS
from utilities.errors import UserError


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


class HubData:
    """Replaces a ``datasets.Dataset``, with features and rows as dicts."""

    def __init__(self, names: list[str] | None, rows: list[dict[str, Any]]):
        self.features = {"label": SimpleNamespace(names=names) if names else SimpleNamespace(dtype="float32")}
        self._rows = rows

    def __iter__(self) -> Iterator[dict[str, Any]]:
        return iter(self._rows)


PAIR = {"sentence1": "a", "sentence2": "b"}
SPANS = {"span1_text": "a", "span1_index": 0, "span2_text": "b", "span2_index": 1}
HUB_ROWS = {  # as the library's data sets of GLUE and CLUE name fields and number classes
    "mrpc": (["not_equivalent", "equivalent"], {**PAIR, "label": 1}, "equivalent"),
    "mnli": (
        ["entailment", "neutral", "contradiction"], {"premise": "a", "hypothesis": "b", "label": 2}, "contradiction",
    ),
    "qqp": (["not_duplicate", "duplicate"], {"question1": "a", "question2": "b", "label": 0}, "not_duplicate"),
    "cmnli": (["neutral", "entailment", "contradiction"], {**PAIR, "label": 1}, "entailment"),
    "tnews": (["100", "101", "102"], {"sentence": "a", "label": 2}, "news_entertainment"),
    "wsc": (["true", "false"], {"text": "ab", "target": SPANS, "label": 0}, "true"),
    "csl": (["0", "1"], {"keyword": ["a"], "abst": "b", "label": 1}, "true keywords"),
}  # fmt: skip


@pytest.mark.parametrize("name", HUB_ROWS)
def test_rows_of_the_datasets_library(name: str, monkeypatch: pytest.MonkeyPatch) -> None:
    names, row, label = HUB_ROWS[name]
    calls = []

    def load_dataset(path: str, configuration: str, split: str) -> HubData:
        calls.append((path, configuration, split))
        return HubData(names, [{**row, "idx": 3}])

    monkeypatch.setitem(sys.modules, "datasets", SimpleNamespace(load_dataset=load_dataset))
    task = TASKS[name]
    examples = read_split(task, task.train, None)
    assert task.labels[examples.labels[0]].name == label
    assert examples.ids == [3]
    assert calls == [(*task.hub, "train")]
    assert read_split(task, task.test[0], None, with_labels=False).labels is None
    scores = HubData(None, [{"sentence1": "a", "sentence2": "b", "label": 3.2, "idx": 0}])
    monkeypatch.setitem(sys.modules, "datasets", SimpleNamespace(load_dataset=lambda *_, **__: scores))
    assert read_split(TASKS["stsb"], TASKS["stsb"].train, None).labels.tolist() == pytest.approx([3.2])
    monkeypatch.setitem(sys.modules, "datasets", None)
    with pytest.raises(UserError, match="set dataset_dir to a folder with"):
        read_split(task, task.train, None)
