"""The nine tasks of GLUE (Wang et al. 2019) in the files of its own archives.

Labels stand in the order of the ``datasets`` library, so that a classifier means the same in either.
"""

from __future__ import annotations

from pathlib import Path
from typing import Any, Callable, Set, Tuple

from data_utils.classification.tasks import GLUE, BenchmarkTask, Label, Row, SourceFile, Split, plain
from utilities.errors import UserError

HUB = "nyu-mll/glue"
COLA_COLUMNS = ("source", "label", "mark", "sentence")
MRPC_IDS = ("#1 ID", "#2 ID")
MRPC_HELD_OUT = "dev_ids.tsv"


def zero_one(negative: str, positive: str) -> Tuple[Label, Label]:
    """Classes that the files write as 0 and 1."""
    return Label("0", negative), Label("1", positive)


def named(*names: str) -> Tuple[Label, ...]:
    """Classes that the files write by name."""
    return tuple(Label(name, name) for name in names)


def held_out_rows(folder: Path) -> Set[Tuple[str, ...]]:
    """MRPC: ids of the sentence pairs of the training file that GLUE holds out for validation."""
    path = folder / MRPC_HELD_OUT
    try:
        lines = path.read_text(encoding="utf-8-sig").splitlines()
    except OSError as error:
        raise UserError(
            f"{path}: cannot be read ({error.strerror}); it says which pairs of the training file GLUE holds out for"
            " validation: copy it there, or use GLUE's train.tsv and dev.tsv"
        ) from error
    return {tuple(line.split("\t")) for line in lines if line}


def held_out(wanted: bool) -> Callable[[Path], Callable[[Row], bool]]:
    """MRPC: keeps the rows that are held out for validation, or the others."""

    def keep(path: Path) -> Callable[[Row], bool]:
        ids = held_out_rows(path.parent)
        return lambda row: (tuple(row.get(name) for name in MRPC_IDS) in ids) is wanted

    return keep


def task(name: str, folder: str, fields: Tuple[str, ...], metrics: Tuple[str, ...], **more: Any) -> BenchmarkTask:
    """An entry with what most tasks have in common."""
    settings = {
        "train": Split((SourceFile("train.tsv"),), "train"),
        "validation": (Split((SourceFile("dev.tsv"),), "validation"),),
        "test": (Split((SourceFile("test.tsv"),), "test", submission=f"{folder}.tsv"),),
        **more,
    }
    return BenchmarkTask(name, GLUE, (folder,), plain(*fields), len(fields) == 2, metrics, (HUB, name), **settings)


PAIR = ("sentence1", "sentence2")
F1_AND_ACCURACY = ("f1", "accuracy")
ENTAILMENT = named("entailment", "not_entailment")

TASKS: Tuple[BenchmarkTask, ...] = (
    task(
        "cola", "CoLA", ("sentence",), ("matthews",),
        labels=zero_one("unacceptable", "acceptable"),
        train=Split((SourceFile("train.tsv", COLA_COLUMNS),), "train"),
        validation=(Split((SourceFile("dev.tsv", COLA_COLUMNS),), "validation"),),
    ),
    task("sst2", "SST-2", ("sentence",), ("accuracy",), labels=zero_one("negative", "positive")),
    task(
        "mrpc", "MRPC", ("#1 String", "#2 String"), F1_AND_ACCURACY,
        labels=zero_one("not_equivalent", "equivalent"), label_field="Quality",
        hub_fields={"#1 String": "sentence1", "#2 String": "sentence2", "Quality": "label"},
        # GLUE's script makes train.tsv, dev.tsv and test.tsv from Microsoft's files; either will do.
        train=Split(
            (SourceFile("train.tsv"), SourceFile("msr_paraphrase_train.txt", keep=held_out(False))), "train"
        ),
        validation=(
            Split((SourceFile("dev.tsv"), SourceFile("msr_paraphrase_train.txt", keep=held_out(True))), "validation"),
        ),
        test=(Split((SourceFile("test.tsv"), SourceFile("msr_paraphrase_test.txt")), "test", submission="MRPC.tsv"),),
    ),
    task(
        "qqp", "QQP", ("question1", "question2"), F1_AND_ACCURACY,
        labels=zero_one("not_duplicate", "duplicate"), label_field="is_duplicate", id_field="id",
        hub_fields={"is_duplicate": "label"},
        broken_lines=True,  # questions with line breaks in them
    ),
    task("stsb", "STS-B", PAIR, ("pearson", "spearman"), label_field="score", hub_fields={"score": "label"}),
    task(
        "mnli", "MNLI", PAIR, ("accuracy",),
        labels=named("entailment", "neutral", "contradiction"), label_field="gold_label", undecided=frozenset("-"),
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
    task("qnli", "QNLI", ("question", "sentence"), ("accuracy",), labels=ENTAILMENT),
    task("rte", "RTE", PAIR, ("accuracy",), labels=ENTAILMENT),
    task("wnli", "WNLI", PAIR, ("accuracy",), labels=zero_one("not_entailment", "entailment")),
)  # fmt: skip
