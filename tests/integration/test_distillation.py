"""A small model learns what a teacher answers: PyTorch's answers by the names of the classes, kept for later runs."""

from __future__ import annotations

import csv
import functools
import json
import random
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from scipy.special import expit, rel_entr, softmax

from checkpoints.export.__main__ import main as export  # room: model_card
from tasks import load
from tests.support.fine_tuning_runs import BAD, GOOD, PIECES, run_folder, sentence, write_config, write_pieces
from tests.support.pytorch_process import NEEDS_PYTORCH, run_pytorch
from tests.support.runs import STILL, assert_same_run, events, killed_at, logged, metrics, read_json, run_command

pytestmark = pytest.mark.slow

run = functools.partial(run_command, "classification", status=0)
PACKED = ["--packing.max-sequences-per-pack", "3"]
SAMPLES, LABELLED = 40, 30


def write_rows(path: Path, header: list[str], rows: list[list[str]]) -> None:
    with open(path, "w", encoding="utf-8", newline="") as file:
        csv.writer(file).writerows([header, *rows])


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
    write_pieces(root / "vocab.txt", PIECES)
    chance = random.Random(5)
    texts = [[sentence(chance, chance.choice(GOOD)), sentence(chance, chance.choice(BAD))] for _ in range(SAMPLES)]
    (root / "texts.json").write_text(json.dumps(texts), encoding="utf-8")
    run_pytorch("tests.support.pytorch_predictions", root)
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
@pytest.mark.parametrize("name", KINDS)
@pytest.mark.parametrize("packed", [[], PACKED])
def test_the_teacher_answers_as_pytorch_does(answers: Path, name: str, packed: list[str]) -> None:
    columns, labels, fields, classes = KINDS[name]
    texts = [text[: len(columns)] for text in json.loads((answers / "texts.json").read_text())]
    rows = [[*text, labels[number % len(labels)]] for number, text in enumerate(texts)]
    write_rows(answers / "train.csv", [*columns, "label"], rows[:LABELLED])
    write_rows(answers / "more.csv", columns, texts[LABELLED:])
    section = {"train_file": "train.csv", "validation_file": "train.csv", "text": columns, "classes": classes, **fields}
    student = f"{name}-{len(packed)}"
    config = write_config(
        answers,
        student,
        glue_task=None,
        classification_data=section,
        num_epochs=1,
        global_batch={"micro_batch_size": 1},
        global_batches_per_log=1000,
        optimizer_opts=STILL,
        vocab_file=str(answers / "student.txt"),
        output_dir=str(answers / student),
        distillation={
            "teacher": str(answers / name),
            "unlabelled": str(answers / "more.csv"),
            "weight": 0.25,
            **({} if name == "number" else {"temperature": 1.0}),
        },
    )
    run(config, *packed)
    folder = answers / student
    logits, wanted = np.load(kept(folder))["logits"], np.array(read_json(answers / "expected.json")[name])
    given = {"number": logits, "labels": expit(logits)}.get(name, softmax(logits, axis=-1))
    order = [TEACHERS_CLASSES[name].index(each) for each in classes] if classes else [0]
    np.testing.assert_allclose(given, wanted[:, order], atol=1e-5)
    facts = read_json(folder / student / "dataset.json")
    assert (facts["records"], facts["records_without_label"]) == (SAMPLES, SAMPLES - LABELLED)
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
    write_rows(root / "right.csv", header, rows(240))
    write_rows(root / "dev.csv", header, rows(60))
    write_rows(root / "few.csv", header, rows(24, words=1))
    write_rows(root / "random.csv", header, [[row[0], chance.choice(["yes", "no"])] for row in rows(240)])
    write_rows(root / "unlabelled.csv", header[:1], [row[:1] for row in rows(240)])
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
    sizes = {"hidden_size": 16, "num_hidden_layers": 1, "intermediate_size": 32, "num_attention_heads": 2}
    more = {"vocab_size": 40, "max_position_embeddings": 32}
    still = {"hidden_dropout_prob": 0.0, "attention_probs_dropout_prob": 0.0}
    return {
        "bert_config": {**sizes, **more, **still},
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


def test_texts_without_labels_teach_the_words_that_labels_lack(root: Path, teacher: Path) -> None:
    """Two words have labels; eight are asked for."""
    scores = {}
    for name, fields in (("few", {}), ("many", {"unlabelled": str(root / "unlabelled.csv")})):
        changes = small(root, teacher, **fields)
        run(student(root, name, "few.csv", **changes, num_epochs=None, total_num_train_samples=2400))
        scores[name] = accuracy(root / "runs" / name)
    assert scores["few"] < 0.85 and scores["many"] > 0.95


def test_a_period_without_labels_has_no_loss_of_labels(root: Path, teacher: Path) -> None:
    changes = small(root, teacher, unlabelled=str(root / "unlabelled.csv"))
    changes.update(global_batch={"micro_batch_size": 1}, global_batches_per_log=1, num_epochs=1)
    run(student(root, "each", "few.csv", **changes))
    periods = [line["metrics"] for line in metrics(root / "runs" / "each")]
    assert len(periods) == 24 + 240 and all("teacher_loss" in period for period in periods)
    found = [period for period in periods if "label_loss" in period]
    assert len(found) == 24 and all(period["label_loss"] > 0 and "accuracy" in period for period in found)
    assert not any("accuracy" in period for period in periods if "label_loss" not in period)


def test_a_resumed_student_is_the_same_and_the_teacher_answers_once(
    root: Path, teacher: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    changes = small(root, teacher, unlabelled=str(root / "unlabelled.csv"))
    each = {"global_batches_per_log": 5, "ckpt_every_n_steps_per_execution": 1, "output_dir": str(root / "resumed")}
    config = student(root, "whole", "right.csv", **changes, **each)
    run(config, *PACKED)
    assert "the teacher answers 480 texts, once" in log(root / "resumed" / "whole")
    killed_at(monkeypatch, 10, config, root / "resumed", "--name", "killed", *PACKED, task="classification")
    run(config, "--name", "killed", *PACKED)
    assert events(root / "resumed" / "killed")[:2] == ["begin", "resume"]
    assert log(root / "resumed" / "killed").count("is read from") == 2
    assert "once" not in log(root / "resumed" / "killed")
    assert_same_run(root / "resumed" / "whole", root / "resumed" / "killed")

    path = kept(root / "resumed")
    path.write_bytes(path.read_bytes()[:-50] + bytes(50))
    run(config, "--name", "again", *PACKED)
    assert f"{path} is damaged" in log(root / "resumed" / "again") and "once" in log(root / "resumed" / "again")
    assert logged(root / "resumed" / "again") == logged(root / "resumed" / "whole")


def test_several_runs_have_one_teacher(root: Path, teacher: Path) -> None:
    config = student(root, "one", "right.csv", **small(root, teacher), total_num_train_samples=80)
    for name in ("one", "two"):
        run(config, "--name", name, "--output-dir", str(root / "several"))
    first, second = (log(root / "several" / name) for name in ("one", "two"))
    assert "once" in first and "once" not in second and str(kept(root / "several")) in second


def test_another_teacher_cannot_continue_a_run(root: Path, teacher: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    other = root / "runs" / "other"
    run(student(root, "other", "right.csv", num_epochs=1))
    each = {"global_batches_per_log": 5, "ckpt_every_n_steps_per_execution": 1, "output_dir": str(root / "changed")}
    config = student(root, "changed", "right.csv", **small(root, teacher), **each)
    killed_at(monkeypatch, 10, config, root / "changed", task="classification")
    refused = run_command("classification", config, "--resume", "--distillation.teacher", str(other), status=2)
    assert "distillation.teacher: is not the teacher that the run was begun with" in refused.error
    moved = teacher.rename(root / "moved")  # a path is no identity
    try:
        run(config, "--resume", "--distillation.teacher", str(moved))
    finally:
        moved.rename(teacher)


def test_the_model_card_names_the_teacher(root: Path, teacher: Path) -> None:  # room: model_card
    run(student(root, "carded", "right.csv", **small(root, teacher), total_num_train_samples=80))
    export(["--checkpoint", str(root / "runs" / "carded"), "--output", str(root / "carded-model")])
    card = (root / "carded-model" / "README.md").read_text(encoding="utf-8")
    assert "| distilled from | teacher |" in card


def test_teachers_of_something_else_are_refused(root: Path, teacher: Path) -> None:
    section = {"train_file": "other.csv", "validation_file": "other.csv"}
    for name, labels, fields in (
        ("others", ["yes", "perhaps"], {}),
        ("more", ["yes", "no", "perhaps"], {}),
        ("sets", ["yes", "no"], {"label_separator": ";"}),
        ("numbers", ["1", "2"], {"regression": True}),
    ):
        write_rows(root / "other.csv", ["text", "label"], [["the film", labels[n % len(labels)]] for n in range(24)])
        words = {
            "others": "has the classes no, yes, this task perhaps, yes; name a teacher of the same classes",
            "more": "has the classes no, yes, this task no, perhaps, yes",
            "sets": "was trained for one class of each sample, not for several labels of a sample; name a checkpoint",
            "numbers": "was trained for one class of each sample, not for a number",
        }[name]
        config = write_config(
            root, name, glue_task=None, classification_data={**section, **fields}, num_epochs=1, **small(root, teacher)
        )
        assert words in run(config, status=2).error
    for path, words in (
        (root / "nowhere", "distillation.teacher"),
        (root / "vocab.txt", "distillation.teacher"),
    ):
        assert words in run(student(root, "refused", "right.csv", **small(root, path)), status=2).error
    missing = small(root, teacher, unlabelled=str(root / "nowhere.csv"))
    assert "nowhere.csv" in run(student(root, "refused", "right.csv", **missing), status=2).error
    write_rows(root / "columns.csv", ["words"], [["the film"]])
    columns = small(root, teacher, unlabelled=str(root / "columns.csv"))
    error = run(student(root, "refused", "right.csv", **columns), status=2).error
    assert "columns.csv: line 2: text is missing (the columns are words)" in error
