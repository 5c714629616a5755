"""The tasks of GLUE (Wang et al. 2019) and CLUE (Xu et al. 2020) in the files of the benchmarks' archives.

GLUE's labels are in the order of the ``datasets`` library, so that a classifier means the same in either. WSC's spans
and CSL's keywords become text as in CLUE's published baselines, so that scores can be compared.
"""

from __future__ import annotations

from functools import partial
from pathlib import Path
from typing import Any, Callable, Dict, List, Tuple

from data_utils.classification.tasks import (
    CLUE,
    GLUE,
    BenchmarkTask,
    FieldError,
    Label,
    SourceFile,
    Split,
    plain,
    text_field,
    typed_field,
)
from utilities.errors import UserError
from utilities.tables import Row, read_text, short

GLUE_HUB = "nyu-mll/glue"
COLA_COLUMNS = ("source", "label", "mark", "sentence")
MRPC_IDS = ("#1 ID", "#2 ID")
MRPC_HELD_OUT = "dev_ids.tsv"


def zero_one(negative: str, positive: str) -> Tuple[Label, Label]:
    """Return two classes that the files write as 0 and 1."""
    return Label("0", negative), Label("1", positive)


def classes_named(*names: Any) -> Tuple[Label, ...]:
    """Return classes that the files write by name or number."""
    return tuple(Label(str(name), str(name)) for name in names)


def held_out(selected: bool, path: Path) -> Callable[[Row], bool]:
    """Return a filter of MRPC's training pairs: those that GLUE holds out for validation, or the others."""
    listed = path.with_name(MRPC_HELD_OUT)
    if not listed.is_file():
        raise UserError(
            f"{listed}: cannot be read (no such file); it lists the pairs of the training file that GLUE holds out for"
            " validation: copy it there, or use GLUE's train.tsv and dev.tsv"
        )
    ids = {tuple(line.split("\t")) for line in read_text(listed).splitlines() if line}
    return lambda row: (tuple(row.get(name) for name in MRPC_IDS) in ids) is selected


HELD_OUT, NOT_HELD_OUT = partial(held_out, True), partial(held_out, False)


def glue_task(name: str, folder: str, fields: Tuple[str, ...], metrics: Tuple[str, ...], **more: Any) -> BenchmarkTask:
    settings = {
        "train": Split((SourceFile("train.tsv"),), "train"),
        "validation": (Split((SourceFile("dev.tsv"),), "validation"),),
        "test": (Split((SourceFile("test.tsv"),), "test", submission=f"{folder}.tsv"),),
        **more,
    }
    texts, is_pair = partial(plain, fields), len(fields) == 2
    return BenchmarkTask(name, GLUE, (folder,), texts, is_pair, metrics, (GLUE_HUB, name), **settings)


PAIR = ("sentence1", "sentence2")
F1_AND_ACCURACY = ("f1", "accuracy")
ENTAILMENT = classes_named("entailment", "not_entailment")

_GLUE: Tuple[BenchmarkTask, ...] = (
    glue_task(
        "cola", "CoLA", ("sentence",), ("matthews",),
        labels=zero_one("unacceptable", "acceptable"),
        train=Split((SourceFile("train.tsv", COLA_COLUMNS),), "train"),
        validation=(Split((SourceFile("dev.tsv", COLA_COLUMNS),), "validation"),),
    ),
    glue_task("sst2", "SST-2", ("sentence",), ("accuracy",), labels=zero_one("negative", "positive")),
    glue_task(
        "mrpc", "MRPC", ("#1 String", "#2 String"), F1_AND_ACCURACY,
        labels=zero_one("not_equivalent", "equivalent"), label_field="Quality",
        hub_fields={"#1 String": "sentence1", "#2 String": "sentence2", "Quality": "label"},
        # GLUE's script makes train.tsv, dev.tsv and test.tsv from Microsoft's files; either will do.
        train=Split(
            (SourceFile("train.tsv"), SourceFile("msr_paraphrase_train.txt", keep=NOT_HELD_OUT)), "train"
        ),
        validation=(
            Split((SourceFile("dev.tsv"), SourceFile("msr_paraphrase_train.txt", keep=HELD_OUT)), "validation"),
        ),
        test=(Split((SourceFile("test.tsv"), SourceFile("msr_paraphrase_test.txt")), "test", submission="MRPC.tsv"),),
    ),
    glue_task(
        "qqp", "QQP", ("question1", "question2"), F1_AND_ACCURACY,
        labels=zero_one("not_duplicate", "duplicate"), label_field="is_duplicate", id_field="id",
        hub_fields={"is_duplicate": "label"},
        broken_lines=True,  # questions with line breaks in them
    ),
    glue_task("stsb", "STS-B", PAIR, ("pearson", "spearman"), label_field="score", hub_fields={"score": "label"}),
    glue_task(
        "mnli", "MNLI", PAIR, ("accuracy",),
        labels=classes_named("entailment", "neutral", "contradiction"), label_field="gold_label",
        undecided=frozenset("-"),
        hub_fields={"sentence1": "premise", "sentence2": "hypothesis", "gold_label": "label"},
        validation=(
            Split((SourceFile("dev_matched.tsv"),), "validation_matched", "matched"),
            Split((SourceFile("dev_mismatched.tsv"),), "validation_mismatched", "mismatched"),
        ),
        test=(
            Split((SourceFile("test_matched.tsv"),), "test_matched", "matched", "MNLI-m.tsv"),
            Split((SourceFile("test_mismatched.tsv"),), "test_mismatched", "mismatched", "MNLI-mm.tsv"),
        ),
    ),
    glue_task("qnli", "QNLI", ("question", "sentence"), ("accuracy",), labels=ENTAILMENT),
    glue_task("rte", "RTE", PAIR, ("accuracy",), labels=ENTAILMENT),
    glue_task("wnli", "WNLI", PAIR, ("accuracy",), labels=zero_one("not_entailment", "entailment")),
)  # fmt: skip


CLUE_HUB = "clue/clue"
NOUN_MARKS, PRONOUN_MARKS = ("_", "_"), ("[", "]")


def marked_spans(row: Row) -> Tuple[str]:
    """Return WSC's text with the noun in underscores and the pronoun in brackets, such as ``在_床_上[它]响了``."""
    text = text_field(row, "text")
    target = typed_field(row, "target", dict, "an object")
    marks: List[Tuple[int, int, str]] = []
    for span, (opening, closing) in (("span1", NOUN_MARKS), ("span2", PRONOUN_MARKS)):
        start, end = span_bounds(text, target, span)
        marks += [(start, 1, opening), (end, 0, closing)]  # if two spans meet, the first is closed before
    for position, _, mark in sorted(marks, reverse=True):
        text = text[:position] + mark + text[position:]
    return (text,)


def span_bounds(text: str, target: Row, span: str) -> Tuple[int, int]:
    """Return start and end of a span; raise ``FieldError`` if the text has other words there."""
    words = typed_field(target, f"{span}_text", str, "a text", "target.")
    start = typed_field(target, f"{span}_index", int, "a whole number", "target.")
    end = start + len(words)
    if start < 0 or not words or text[start:end] != words:
        reason = f"is {start}, but the text has {text[max(start, 0) : end]!r} there, not {words!r}"
        raise FieldError(f"target.{span}_index", reason)
    return start, end


def keywords_and_abstract(row: Row) -> Tuple[str, str]:
    """Return CSL's keywords, with spaces between, and the abstract."""
    keywords = typed_field(row, "keyword", list, "a list of texts")
    if not all(isinstance(word, str) for word in keywords):
        raise FieldError("keyword", f"is {short(keywords)}, not a list of texts")
    return " ".join(keywords), text_field(row, "abst")


def replaced_test(name: str) -> Tuple[Split, ...]:
    """Return both test splits of a task whose test data CLUE 1.1 replaced; the leaderboard still takes the first."""
    current = (SourceFile("test.json"), SourceFile("test1.1.json"))
    return (
        Split(current, "test", "1.1", f"{name}11_predict.json"),
        Split((SourceFile("test1.0.json"),), None, "1.0", f"{name}10_predict.json", optional=True),
    )


def clue_task(name: str, folder: str, fields: Tuple[str, ...], labels: Tuple[Label, ...], **more: Any) -> BenchmarkTask:
    settings = {
        "texts": partial(plain, fields),
        "is_pair": len(fields) == 2,
        "hub": (CLUE_HUB, name),
        "test": (Split((SourceFile("test.json"),), "test", submission=f"{name}_predict.json"),),
        **more,
    }
    return BenchmarkTask(
        name=name,
        benchmark=CLUE,
        folders=(name, f"{folder}_public", folder),
        metrics=("accuracy",),
        train=Split((SourceFile("train.json"),), "train"),
        validation=(Split((SourceFile("dev.json"),), "validation"),),
        labels=labels,
        id_field="id",
        **settings,
    )


TNEWS_TOPICS = {
    100: "story", 101: "culture", 102: "entertainment", 103: "sports", 104: "finance", 106: "house", 107: "car",
    108: "edu", 109: "tech", 110: "military", 112: "travel", 113: "world", 114: "stock", 115: "agriculture",
    116: "game",
}  # fmt: skip

_CLUE: Tuple[BenchmarkTask, ...] = (
    clue_task("afqmc", "afqmc", PAIR, zero_one("different", "same")),
    clue_task(
        "tnews", "tnews", ("sentence",),
        tuple(Label(str(number), f"news_{topic}") for number, topic in TNEWS_TOPICS.items()),
        test=replaced_test("tnews"),
    ),
    clue_task("iflytek", "iflytek", ("sentence",), classes_named(*range(119))),
    clue_task(
        "cmnli", "cmnli", PAIR, classes_named("neutral", "entailment", "contradiction"),
        undecided=frozenset("-"),
    ),
    clue_task(
        "wsc", "cluewsc2020", ("text",), classes_named("false", "true"),
        texts=marked_spans, test=replaced_test("cluewsc"), hub=(CLUE_HUB, "cluewsc2020"),
    ),
    clue_task(
        "csl", "csl", ("keyword", "abst"), zero_one("false keywords", "true keywords"),
        texts=keywords_and_abstract,
    ),
)  # fmt: skip


TASKS: Dict[str, BenchmarkTask] = {task.name: task for task in (*_GLUE, *_CLUE)}
