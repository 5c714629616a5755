"""Reading GLUE's and CLUE's files, and rows of the ``datasets`` library: layouts, labels, and broken files."""

from __future__ import annotations

import csv
import json
import logging
import sys
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import numpy as np
import pytest

from data_utils.classification.benchmarks import TASKS
from data_utils.classification.reading import Examples, read_split
from data_utils.classification.tasks import GLUE, Split
from settings.schema import TrainingConfig
from tests.support.benchmark_folders import (
    CLUE_ROWS,
    GLUE_FOLDERS,
    MRPC_START,
    write_clue,
    write_glue,
    write_json_lines,
    write_tsv,
)
from tests.support.real_data import real_data
from utilities.errors import UserError

FIRST_LABEL = {  # label of the first training sample of the hand-made files, by its human-readable name
    "cola": "acceptable", "sst2": "positive", "mrpc": "equivalent", "qqp": "duplicate", "mnli": "neutral",
    "qnli": "entailment", "rte": "entailment", "wnli": "entailment", "afqmc": "different", "cmnli": "neutral",
    "tnews": "news_entertainment", "iflytek": "110", "wsc": "false", "csl": "true keywords",
}  # fmt: skip


def read(name: str, split: Split, folder: Path, with_labels: bool = True) -> Examples:
    examples = read_split(TASKS[name], split, folder, with_labels)
    assert examples is not None
    return examples


def test_the_config_has_the_same_tasks_with_the_same_classes() -> None:
    for name, task in TASKS.items():
        config = TrainingConfig.model_validate({"glue_task": name})
        assert config.number_of_labels == task.classes
    schema = TrainingConfig.model_json_schema()["properties"]["glue_task"]["anyOf"][0]["enum"]
    assert set(schema) == set(TASKS)


FIRST_TEXTS = {"cola": 'She said "yes.', "sst2": 'a "charming journey ', "mrpc": 'He said "so.'}  # with quotation marks


@pytest.mark.parametrize("name", GLUE_FOLDERS)
def test_glue_layouts(name: str, tmp_path: Path) -> None:
    folder = write_glue(tmp_path, name)
    task = TASKS[name]
    for parent in (tmp_path, folder):  # the folder of the benchmark, or that of the task
        train = read(name, task.train, parent)
        validation = [read(name, split, parent) for split in task.validation]
        tests = [read(name, split, parent, with_labels=False) for split in task.test]
        assert train.texts[0][0] == FIRST_TEXTS.get(name, train.texts[0][0])
        assert len(train.texts) == 2 and all(len(one.texts) == 2 for one in [*validation, *tests])
        assert {len(text) for text in train.texts} == {1 + task.is_pair}
        assert all(one.labels is None for one in tests)
        assert tests[0].ids == [0, 1]
    if task.is_regression:
        np.testing.assert_array_equal(train.labels, np.float32([5, 0.25]))
    else:
        assert task.labels[train.labels[0]].name == FIRST_LABEL[name]
        assert set(validation[0].labels) == ({0, 2} if name == "mnli" else {0, 1})


def test_both_validation_sets_of_mnli(tmp_path: Path) -> None:
    write_glue(tmp_path, "mnli")
    task = TASKS["mnli"]
    matched, mismatched = (read("mnli", split, tmp_path) for split in task.validation)
    assert [split.title for split in task.validation] == ["matched", "mismatched"]
    assert matched.texts == mismatched.texts[::-1] == [("Up.", "Down."), ("Yes.", "Yes.")]
    gold = [task.labels[n].value for n in matched.labels]
    assert gold == ["contradiction", "entailment"]  # not the first annotator's, "neutral"


def test_broken_lines_of_qqp_are_skipped_and_reported(tmp_path: Path, caplog: pytest.LogCaptureFixture) -> None:
    write_glue(tmp_path, "qqp")
    train = read("qqp", TASKS["qqp"].train, tmp_path)
    assert train.ids == [7, 8]
    assert "2 lines that lack columns" in caplog.text


def test_microsofts_layout_of_mrpc(tmp_path: Path) -> None:
    folder = tmp_path / "MRPC"
    rows = [["1", str(n), str(n + 1), f"First {n}.", f"Second {n}."] for n in range(0, 40, 2)]
    write_tsv(folder / "msr_paraphrase_train.txt", [["Quality", *MRPC_START], *rows], bom=True)
    write_tsv(folder / "msr_paraphrase_test.txt", [["Quality", *MRPC_START], *rows[:3]], bom=True)
    write_tsv(folder / "dev_ids.tsv", [["4", "5"], ["8", "9"]])
    task = TASKS["mrpc"]
    assert read("mrpc", task.validation[0], tmp_path).texts == [("First 4.", "Second 4."), ("First 8.", "Second 8.")]
    assert len(read("mrpc", task.train, tmp_path).texts) == 18
    assert read("mrpc", task.test[0], tmp_path, with_labels=False).ids == [0, 1, 2]
    (folder / "dev_ids.tsv").write_bytes("Zoë\t5\n".encode("latin-1"))
    with pytest.raises(UserError, match=r"dev_ids.tsv: line 1: is not UTF-8"):
        read("mrpc", task.train, tmp_path)
    (folder / "dev_ids.tsv").unlink()
    with pytest.raises(UserError, match=r"dev_ids.tsv: cannot be read.*copy it there"):
        read("mrpc", task.train, tmp_path)


@pytest.mark.parametrize("name", CLUE_ROWS)
def test_clue_layouts(name: str, tmp_path: Path, caplog: pytest.LogCaptureFixture) -> None:
    folder = write_clue(tmp_path, name)
    task = TASKS[name]
    caplog.set_level(logging.INFO)
    for parent in (tmp_path, folder):
        train = read(name, task.train, parent)
        validation = read(name, task.validation[0], parent)
        test = read(name, task.test[0], parent, with_labels=False)
    assert len(train.texts) == len(validation.texts) == 2
    assert test.ids == list(range(len(CLUE_ROWS[name])))  # the undecided row is left out only if labels are read
    assert task.labels[train.labels[0]].name == FIRST_LABEL[name]
    assert ("1 lines without an agreed label" in caplog.text) == (name == "cmnli")
    assert not [record for record in caplog.records if record.levelno > logging.INFO]


def test_texts_of_wsc_and_csl(tmp_path: Path) -> None:
    """Texts are as in CLUE's published baselines: WSC's spans are marked, and CSL's keywords precede the abstract."""
    write_clue(tmp_path, "wsc")
    first, second = read("wsc", TASKS["wsc"].train, tmp_path).texts
    assert first == ("这时候放在_床_上枕头旁边的手机响了，我感到奇怪，因为欠费已被停机两个月，现在[它]突然响了。",)
    assert second == ("[它]是我_手机_。",)
    write_clue(tmp_path, "csl")
    keywords, abstract = read("csl", TASKS["csl"].train, tmp_path).texts[0]
    assert (keywords, abstract) == ("水声学 FFT 波束形成", "为解决传统均匀FFT波束形成算法")


def test_both_test_sets_of_clue(tmp_path: Path) -> None:
    folder = write_clue(tmp_path, "tnews")
    current, first = TASKS["tnews"].test
    assert read_split(TASKS["tnews"], first, tmp_path, False) is None
    write_json_lines(folder / "test1.0.json", [{"id": 5, "sentence": "旧"}])
    assert read("tnews", first, tmp_path, False).ids == [5]
    (folder / "test.json").rename(folder / "test1.1.json")
    assert read("tnews", current, tmp_path, False).ids == [0, 1]
    assert (current.submission, first.submission) == ("tnews11_predict.json", "tnews10_predict.json")


@pytest.mark.parametrize(
    ("name", "content", "message"),
    [
        ("rte", "index\tsentence1\tlabel\n0\ta\tentailment\n", r"line 2: sentence2 is missing"),
        ("rte", "index\tsentence1\tsentence2\tlabel\n0\t\udcff\tb\tentailment\n", r"line 2: is not UTF-8"),
        ("stsb", "sentence1\tsentence2\tscore\na\tb\tnan\n", r"line 2: score is 'nan', not a number from 0 to 5"),
        ("tnews", '{"sentence": "a", "label": 105}', r"line 1: label is '105', not one of 100, 101"),
        ("csl", '{"keyword": "a", "abst": "b", "label": "0"}', r"keyword is 'a', not a list of texts"),
        ("wsc", '{"text": "abc", "label": "true", "target": {"span1_text": "b", "span1_index": 0, "span2_text": "c",'
         ' "span2_index": 2}}', r"target.span1_index is 0, but the text has 'a' there, not 'b'"),
    ],
)  # fmt: skip
def test_broken_files_are_named_with_line_and_field(name: str, content: str, message: str, tmp_path: Path) -> None:
    path = tmp_path / TASKS[name].train.files[0].name
    path.write_bytes(content.encode(errors="surrogateescape"))
    with pytest.raises(UserError, match=message) as caught:
        read(name, TASKS[name].train, tmp_path)
    assert str(path) in str(caught.value) and "\n" not in str(caught.value)


def test_missing_files(tmp_path: Path) -> None:
    with pytest.raises(UserError, match="dataset_dir: there is no folder"):
        read("rte", TASKS["rte"].train, tmp_path / "nowhere")
    with pytest.raises(UserError, match=r"neither .* nor RTE in it has the files of rte \(train.tsv, dev.tsv, test"):
        read("rte", TASKS["rte"].train, tmp_path)
    write_glue(tmp_path, "rte")
    (tmp_path / "RTE" / "dev.tsv").unlink()
    with pytest.raises(UserError, match=r"has no dev.tsv, which rte needs"):
        read("rte", TASKS["rte"].validation[0], tmp_path)


def test_only_a_line_feed_ends_a_line(tmp_path: Path) -> None:
    (tmp_path / "train.tsv").write_bytes("sentence\tlabel\r\nodd\u2028 \x85 one\t1\r\n\r\nlast\t0".encode())
    train = read("sst2", TASKS["sst2"].train, tmp_path)
    assert train.texts == [("odd\u2028 \x85 one",), ("last",)]


@pytest.mark.parametrize(
    ("name", "counts", "label", "columns", "test_columns"),
    # Wang et al. 2019, table 1, gives the sizes; the columns are those of the label, and of the texts.
    [
        ("cola", (8551, 1043, 1063), 1, [3], [1]),
        ("sst2", (67349, 872, 1821), 1, [0], [1]),
        ("mrpc", (3668, 408, 1725), 0, [3, 4], [3, 4]),
    ],
)
def test_real_glue(
    name: str, counts: tuple[int, int, int], label: int, columns: list[int], test_columns: list[int]
) -> None:
    root = real_data("glue", GLUE_FOLDERS[name]).parent
    task = TASKS[name]
    sizes = []
    for split in (task.train, *task.validation, *task.test):
        with_labels = split not in task.test
        examples = read(name, split, root, with_labels)
        sizes.append(len(examples.texts))
        with open(examples.origin, encoding="utf-8-sig", newline="\n") as file:
            rows = list(csv.reader(file, delimiter="\t", quoting=csv.QUOTE_NONE))
        if name != "cola" or not with_labels:
            del rows[0]  # the header
        chosen = columns if with_labels else test_columns
        assert examples.texts == [tuple(row[column] for column in chosen) for row in rows]
        if with_labels:
            assert examples.labels.tolist() == [int(row[label]) for row in rows]
            assert np.bincount(examples.labels).argmax() == 1
    assert tuple(sizes) == counts


@pytest.mark.parametrize("name", ["tnews", "iflytek", "csl", "cmnli"])
def test_real_clue(name: str, tmp_path: Path) -> None:
    """FewCLUE's splits are read under CLUE's names; OCNLI has the format of CMNLI."""
    folder = real_data("clue", "ocnli" if name == "cmnli" else name)
    task = TASKS[name]
    names = {"train.json": "train_few_all.json", "dev.json": "dev_few_all.json", "test.json": "test_public.json"}
    for ours, theirs in names.items():
        (tmp_path / ours).write_bytes((folder / theirs).read_bytes())
    for split in (task.train, *task.validation, task.test[0]):
        lines = (tmp_path / split.files[0].name).read_text(encoding="utf-8").strip().split("\n")
        rows = [json.loads(line) for line in lines]
        if name == "cmnli":
            rows = [row for row in rows if row["label"] != "-"]
        examples = read(name, split, tmp_path)
        assert len(examples.texts) == len(rows)
        assert [task.labels[n].value for n in examples.labels] == [str(row["label"]) for row in rows]
        if name == "tnews":
            assert [task.labels[n].name for n in examples.labels] == [row["label_desc"] for row in rows]


def test_metrics_of_glue() -> None:
    """Wang et al. 2019, table 1."""
    assert {name: task.metrics for name, task in TASKS.items() if task.benchmark == GLUE} == {
        "cola": ("matthews",), "sst2": ("accuracy",), "mrpc": ("f1", "accuracy"), "qqp": ("f1", "accuracy"),
        "stsb": ("pearson", "spearman"), "mnli": ("accuracy",), "qnli": ("accuracy",), "rte": ("accuracy",),
        "wnli": ("accuracy",),
    }  # fmt: skip


class HubData(list):
    """Replaces a ``datasets.Dataset``, with features and rows as dicts."""

    def __init__(self, names: list[str] | None, rows: list[dict[str, Any]]):
        super().__init__(rows)
        self.features = {"label": SimpleNamespace(names=names) if names else SimpleNamespace(dtype="float32")}


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
