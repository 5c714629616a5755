"""A small model learns what a teacher answers: PyTorch's answers by the names of the classes, kept for later runs."""

from __future__ import annotations

import functools
import random
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from scipy.special import expit, rel_entr, softmax

from checkpoints.export.__main__ import main as export  # room: model_card
from tasks import load
from tests.support.fine_tuning_runs import (
    BAD,
    GOOD,
    PIECES,
    pytorch_predictions,
    run_folder,
    sentence,
    write_config,
    write_pieces,
)
from tests.support.pytorch_process import NEEDS_PYTORCH
from tests.support.runs import (
    SMALLEST,
    STILL,
    assert_same_run,
    events,
    killed_at,
    metrics,
    read_json,
    run_command,
    write_csv,
)

pytestmark = pytest.mark.slow

run = functools.partial(run_command, "classification", status=0)
PACKED = ["--packing.max-sequences-per-pack", "3"]
SAMPLES, LABELLED = 40, 30


def log(folder: Path) -> str:
    return (folder / "train.log").read_text(encoding="utf-8")


def kept(folder: Path) -> Path:
    (path,) = folder.glob("teacher-*.npz")
    return path


# What a teacher answers


@pytest.fixture(scope="module")
def answers(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """Teachers of PyTorch with random weights and their answers, and a student's vocabulary, which is another one."""
    root = tmp_path_factory.mktemp("answers")
    pytorch_predictions(root, SAMPLES)
    write_pieces(root / "student.txt", [*PIECES[:5], *reversed(PIECES[9:])])  # the good words are unknown
    return root


KINDS = {  # the columns of the texts, labels of the training rows, other fields, and the student's classes
    "single": (["first"], ["good", "so, so", "bad"], {}, ["so, so", "bad", "good"]),
    "pair": (["first", "second"], ["no", "yes"], {}, ["yes", "no"]),
    "labels": (["first"], ["rare;dark", "", "funny"], {"label_separator": ";"}, ["rare", "dark", "funny"]),
    "number": (["first"], ["0.5", "-1"], {"regression": True}, None),
}
TEACHERS_CLASSES = {"single": ["bad", "good", "so, so"], "pair": ["no", "yes"], "labels": ["dark", "funny", "rare"]}


@NEEDS_PYTORCH
@pytest.mark.parametrize(
    "name, packed",
    [
        *(("single", []), *((name, PACKED) for name in KINDS)),
        *(pytest.param(name, [], marks=pytest.mark.long) for name in KINDS if name != "single"),
    ],
)
def test_the_teacher_answers_as_pytorch_does(answers: Path, name: str, packed: list[str]) -> None:
    columns, labels, fields, classes = KINDS[name]
    texts = [text[: len(columns)] for text in read_json(answers / "texts.json")]
    rows = [[*text, labels[number % len(labels)]] for number, text in enumerate(texts)]
    write_csv(answers / "train.csv", [*columns, "label"], rows[:LABELLED])
    write_csv(answers / "more.csv", columns, texts[LABELLED:])
    section = {"train_file": "train.csv", "validation_file": "train.csv", "text": columns, "classes": classes, **fields}
    student = f"{name}-{len(packed)}"
    distillation = {"teacher": str(answers / name), "unlabelled": str(answers / "more.csv"), "weight": 0.25}
    config = write_config(
        answers, student, glue_task=None, classification_data=section, num_epochs=1, optimizer_opts=STILL,
        global_batch={"micro_batch_size": 1}, global_batches_per_log=1000, output_dir=str(answers / student),
        vocab_file=str(answers / "student.txt"),
        distillation={**distillation, **({} if name == "number" else {"temperature": 1.0})},
    )  # fmt: skip
    run(config, *packed)
    folder = answers / student
    logits, wanted = np.load(kept(folder))["logits"], np.array(read_json(answers / "expected.json")[name])
    given = {"number": logits, "labels": expit(logits)}.get(name, softmax(logits, axis=-1))
    order = [TEACHERS_CLASSES[name].index(each) for each in classes] if classes else [0]
    np.testing.assert_allclose(given, wanted[:, order], atol=1e-5)
    description = read_json(folder / student / "dataset.json")
    assert (description["records"], description["records_without_label"]) == (SAMPLES, SAMPLES - LABELLED)
    wanted = given.astype(np.float64)
    ours = student_answers(folder / student, texts, classes)
    if name == "number":
        apart = np.square(ours - wanted)
    elif name == "labels":
        apart = rel_entr(wanted, ours) + rel_entr(1 - wanted, 1 - ours)
    else:
        apart = rel_entr(wanted, ours).sum(axis=-1)
    last = metrics(folder / student)[-1]["metrics"]
    assert last["teacher_loss"] == pytest.approx(0.25 * apart.mean(), rel=1e-4)
    if name in ("single", "pair"):
        right = np.mean([row.argmax() == classes.index(rows[n][-1]) for n, row in enumerate(ours[:LABELLED])])
        losses = [-np.log(row[classes.index(rows[n][-1])]) for n, row in enumerate(ours[:LABELLED])]
        assert last["label_loss"] == pytest.approx(0.75 * np.mean(losses), rel=1e-4)
        assert last["accuracy"] == pytest.approx(right)


def student_answers(run_folder: Path, texts: list[list[str]], classes: list[str] | None) -> np.ndarray:
    """Return the probabilities of the classes or labels, or the number, ``(N, C)``."""
    given = load(str(run_folder))([tuple(text) for text in texts])
    if classes is None:
        return np.array(given)[:, None]
    return np.array([[dict(answer)[name] for name in classes] for answer in given])


# What a student learns


@pytest.fixture(scope="module")
def root(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """Rows with right labels, with random ones, and without; a word that is read with no label decides."""
    root = tmp_path_factory.mktemp("distillation")
    write_pieces(root / "vocab.txt", PIECES)
    write_pieces(root / "student.txt", [*PIECES[:5], *reversed(PIECES[5:])])
    chance = random.Random(1)

    def rows(count: int, words: int = 4) -> list[list[str]]:
        labels = [chance.choice(["yes", "no"]) for _ in range(count)]
        return [[sentence(chance, chance.choice((GOOD if each == "yes" else BAD)[:words])), each] for each in labels]

    header = ["text", "label"]
    write_csv(root / "right.csv", header, rows(240))
    write_csv(root / "dev.csv", header, rows(60))
    write_csv(root / "few.csv", header, rows(24, words=1))
    write_csv(root / "random.csv", header, [[row[0], chance.choice(["yes", "no"])] for row in rows(240)])
    write_csv(root / "unlabelled.csv", header[:1], [row[:1] for row in rows(240)])
    write_csv(root / "some.csv", header[:1], [row[:1] for row in rows(48)])
    return root


def student(root: Path, name: str, train_file: str, **changes: Any) -> Path:
    section = {"train_file": train_file, "validation_file": "dev.csv"}
    return write_config(root, name, glue_task=None, classification_data=section, **{"num_epochs": 6, **changes})


@pytest.fixture(scope="module")
def teacher(root: Path) -> Path:
    folder = run_folder("classification", student(root, "teacher", "right.csv"))
    assert accuracy(folder) > 0.95
    return folder


def accuracy(folder: Path) -> float:
    result: float = read_json(folder / "scores.json")["accuracy"]
    return result


def small(root: Path, teacher: Path, **fields: Any) -> dict[str, Any]:
    """Return the changes for a smaller student with another vocabulary; each student has a folder of its own."""
    still = {"hidden_dropout_prob": 0.0, "attention_probs_dropout_prob": 0.0}
    return {
        "bert_config": {**SMALLEST, **still, "vocab_size": 40, "max_position_embeddings": 32},
        "vocab_file": str(root / "student.txt"),
        "distillation": {"teacher": str(teacher), **fields},
        "optimizer_opts": {"name": "AdamW", "learning_rate": {"max_learning_rate": 0.01}},
    }


def test_a_student_learns_from_the_teacher_alone(root: Path, teacher: Path) -> None:
    """The labels are random; with the whole weight on the teacher they do not count, without it nothing is learned."""
    for weight in (1.0, 0.0):
        name = f"alone-{weight}"
        run(student(root, name, "random.csv", **small(root, teacher, weight=weight)), *PACKED)
        assert (accuracy(root / "runs" / name) > 0.95) == (weight == 1.0), weight
    assert "(weight 0, temperature 2): accuracy 0." in log(root / "runs" / "alone-0.0")
    export(["--checkpoint", str(root / "runs" / "alone-1.0"), "--output", str(root / "exported")])  # room: model_card
    card = (root / "exported" / "README.md").read_text(encoding="utf-8")  # room: model_card
    assert "| distilled from | teacher |" in card  # room: model_card


def test_a_period_without_labels_has_no_loss_of_labels(root: Path, teacher: Path) -> None:
    changes = small(root, teacher, unlabelled=str(root / "some.csv"))
    changes.update(global_batch={"micro_batch_size": 1}, global_batches_per_log=1, num_epochs=1)
    run(student(root, "each", "few.csv", **changes))
    periods = [line["metrics"] for line in metrics(root / "runs" / "each")]
    assert len(periods) == 24 + 48 and all("teacher_loss" in period for period in periods)
    found = [period for period in periods if "label_loss" in period]
    assert len(found) == 24 and all(period["label_loss"] > 0 and "accuracy" in period for period in found)
    assert not any("accuracy" in period for period in periods if "label_loss" not in period)


def test_a_killed_student_goes_on_with_its_own_teacher_alone_which_answers_once(
    root: Path, teacher: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The answers are kept for later runs in the folder, and made anew if they are damaged."""
    changes = small(root, teacher, unlabelled=str(root / "unlabelled.csv"))
    each = {"global_batches_per_log": 5, "ckpt_every_n_steps_per_execution": 1, "output_dir": str(root / "resumed")}
    config = student(root, "whole", "right.csv", **changes, **each)
    run(config, *PACKED)
    assert "the teacher answers 480 texts, once" in log(root / "resumed" / "whole")
    killed_at(monkeypatch, 10, config, root / "resumed", "--name", "killed", *PACKED, task="classification")
    killed, path = root / "resumed" / "killed", kept(root / "resumed")
    assert log(killed).count("is read from") == 1 and "once" not in log(killed)

    again = ("--name", "killed", "--resume", *PACKED, "--distillation.teacher")
    other = run_folder("classification", student(root, "other", "right.csv", num_epochs=1))
    error = run(config, *again, str(other), status=2).error
    assert "distillation.teacher: is not the teacher that the run was begun with" in error

    path.write_bytes(path.read_bytes()[:-50] + bytes(50))
    before = log(killed)
    moved = teacher.rename(root / "moved")  # a path is no identity
    try:
        run(config, *again, str(moved))
    finally:
        moved.rename(teacher)
    assert events(killed)[:2] == ["begin", "resume"]
    said = log(killed).removeprefix(before)
    assert f"{path} is damaged" in said and "once" in said
    assert_same_run(root / "resumed" / "whole", killed)


def test_teachers_of_something_else_are_refused(root: Path, teacher: Path) -> None:
    section = {"train_file": "other.csv", "validation_file": "other.csv"}
    for name, labels, fields, words in (
        ("others", ["yes", "perhaps"], {}, "has the classes no, yes, this task perhaps, yes; name a teacher"),
        ("numbers", ["1", "2"], {"regression": True}, "was trained for one class of each sample, not for a number"),
    ):
        write_csv(root / "other.csv", ["text", "label"], [["the film", labels[n % len(labels)]] for n in range(24)])
        config = write_config(
            root, name, glue_task=None, classification_data={**section, **fields}, num_epochs=1, **small(root, teacher)
        )
        assert words in run(config, status=2).error
    nowhere = small(root, root / "nowhere")
    assert "distillation.teacher" in run(student(root, "refused", "right.csv", **nowhere), status=2).error
    missing = small(root, teacher, unlabelled=str(root / "nowhere.csv"))
    assert "nowhere.csv" in run(student(root, "refused", "right.csv", **missing), status=2).error
    write_csv(root / "columns.csv", ["words"], [["the film"]])
    columns = small(root, teacher, unlabelled=str(root / "columns.csv"))
    error = run(student(root, "refused", "right.csv", **columns), status=2).error
    assert "columns.csv: line 2: text is missing (the columns are words)" in error
