"""The benchmark of fine-tuning trains on what it says, in the way it says; what comes out, no test can tell."""

from __future__ import annotations

import csv
import json
from pathlib import Path
from typing import Any

import pytest

from benchmarks import fine_tuning
from benchmarks.fine_tuning import OURS, PRETRAINED_HERE, RANDOM, RELEASED, TITLES, Study, table
from benchmarks.real_tasks import PAIRS, pairs_of, thinned, write_samples
from data_utils.squad.examples import parse_squad, read_squad
from model.tasks import CLASSIFICATION, SQUAD
from settings.loading import load_config
from tests.support.benchmark_folders import write_tsv
from tests.support.real_data import real_data, real_data_root
from tests.support.squad_files import random_document

SIZES = {
    "num_hidden_layers": 1, "hidden_size": 8, "num_attention_heads": 2, "intermediate_size": 16, "vocab_size": 100,
    "initializer_range": 0.02, "max_position_embeddings": 512,
}  # fmt: skip


def write_data(folder: Path) -> Path:
    for file in ("train-v1.1-prefix.json", "dev-v1.1.json"):
        (folder / "squad").mkdir(parents=True, exist_ok=True)
        (folder / "squad" / file).write_text(json.dumps(random_document(5)), encoding="utf-8")
    for task in ("SST-2", "MRPC"):
        for split in ("train", "dev"):
            rows = [[f"{split} {number}", str(number % 2)] for number in range(10)]
            write_tsv(folder / "glue" / task / f"{split}.tsv", [["sentence", "label"], *rows])
    return folder


def study_of(place: Path, released: bool) -> Study:
    """Return a study of a model without weights."""
    model = place / ("model" if released else "work/exported")
    model.mkdir(parents=True)
    (model / "config.json").write_text(json.dumps(SIZES), encoding="utf-8")
    checkpoint = model if released else place / "run"
    arguments = ["--checkpoint", str(checkpoint), "--data", str(write_data(place / "data")), "--samples", "4"]
    return Study(fine_tuning.main.parser.parse_args(arguments), place / "work")


def test_samples_are_evenly_spread() -> None:
    assert thinned("abcdefghij", 4) == ["a", "c", "f", "h"]
    assert thinned("abc", 4) == thinned("abc", None) == ["a", "b", "c"]


def test_some_lines_and_questions_of_the_original_files(tmp_path: Path) -> None:
    data = write_data(tmp_path / "data")
    assert write_samples("sst2", True, data, tmp_path, 5) == 5
    lines = (tmp_path / "glue/SST-2/train.tsv").read_text(encoding="utf-8").splitlines()
    assert lines == ["sentence\tlabel", *(f"train {number}\t0" for number in (0, 2, 4, 6, 8))]

    whole = read_squad(data / "squad/dev-v1.1.json")
    assert write_samples(SQUAD, False, data, tmp_path, 3) == 3
    part = read_squad(tmp_path / "squad/dev-v1.1.json")
    asked = {question.id: (question, whole.context(question)) for question in whole.questions}
    assert len(part.questions) == 3
    assert all(asked[question.id] == (question, part.context(question)) for question in part.questions)


def test_pairs_of_a_question_and_a_sentence() -> None:
    context = (
        "The old king built a bridge. Mr. Hill, a baker, lived near the bridge in 1912. Nobody knows who paid him."
    )
    asked = [
        ("Who built a bridge?", "old king"),
        ("When was he near the bridge?", "1912"),
        ("Who lived there?", "Mr. Hill"),
        ("Who paid?", "Nobody"),
    ]
    questions = [
        {"id": text, "question": text, "answers": [{"text": answer, "answer_start": context.index(answer)}]}
        for text, answer in asked
    ]
    document = {"data": [{"title": "t", "paragraphs": [{"context": context, "qas": questions}]}]}
    lived, paid = "Mr. Hill, a baker, lived near the bridge in 1912.", "Nobody knows who paid him."
    found = list(pairs_of(parse_squad(document, "here", "")))
    assert [(sentence, label) for _, sentence, label in found] == [
        (lived, "no"), (lived, "yes"), (paid, "no"), (paid, "yes"),  # of two others the first, then the second
    ]  # fmt: skip
    assert [question for question, _, _ in found] == [text for text, _ in asked]


@pytest.mark.parametrize("file, train", [("train-v1.1-prefix.json", True), ("dev-v1.1.json", False)])
def test_pairs_of_real_questions(file: str, train: bool, tmp_path: Path) -> None:
    document = json.loads(real_data("squad", file).read_text(encoding="utf-8"))
    asked: dict[str, list[tuple[str, list[dict[str, Any]]]]] = {}
    for article in document["data"]:
        for paragraph in article["paragraphs"]:
            for question in paragraph["qas"]:
                asked.setdefault(question["question"], []).append((paragraph["context"], question["answers"]))

    count = write_samples(PAIRS, train, real_data_root(), tmp_path, 300)
    with next((tmp_path / PAIRS).iterdir()).open(encoding="utf-8", newline="") as lines:
        rows = list(csv.DictReader(lines))
    assert len(rows) == count > 270
    assert abs(2 * sum(row["answered"] == "yes" for row in rows) - count) <= 1
    for row in rows:
        assert any(_is_right(row, context, answers) for context, answers in asked[row["question"]]), row


def _is_right(row: dict[str, str], context: str, answers: list[dict[str, Any]]) -> bool:
    sentence = row["sentence"]
    if row["answered"] == "no":
        return sentence in context and not any(answer["text"] in sentence for answer in answers)
    begin = context.find(sentence)
    spans = [(answer["answer_start"], answer["answer_start"] + len(answer["text"])) for answer in answers]
    return begin >= 0 and any(begin <= first and end <= begin + len(sentence) for first, end in spans)


@pytest.mark.parametrize("released", [True, False])
@pytest.mark.parametrize("name", list(RELEASED))
def test_a_task_is_trained_by_its_recipe(name: str, released: bool, tmp_path: Path) -> None:
    made, task = study_of(tmp_path, released), SQUAD if name == SQUAD else CLASSIFICATION
    recipe = (RELEASED if released else PRETRAINED_HERE)[name]
    assert made.recipes[name] == recipe
    assert made.counts[name][0] <= 4
    config = load_config(task, ["--config", str(made.config(name, OURS))]).config
    assert (config.max_seq_length, config.num_epochs) == (recipe.length, recipe.epochs)
    assert config.samples_per_update == recipe.rows
    optimizer = config.optimizer_opts
    assert (optimizer.name, optimizer.weight_decay_rate, optimizer.epsilon) == ("AdamW", 0.01, 1e-6)
    assert (optimizer.beta_1, optimizer.beta_2, optimizer.max_gradient_norm) == (0.9, 0.999, None)
    rate = optimizer.learning_rate
    assert (rate.schedule_name, rate.warmup_frac) == ("up_down", 0.1)
    assert config.evaluation.every == "epoch" and config.evaluation.patience is None
    assert (config.bert_model_name is None) != released
    random = load_config(task, ["--config", str(made.config(name, RANDOM))]).config
    assert random.bert_model_name is random.pretrained_ckpt_path is None
    assert random.bert_config is not None and random.bert_config.hidden_size == 8


def test_absent_data_is_one_line(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    arguments = ["--checkpoint", str(tmp_path), "--data", str(tmp_path), "--variants", OURS, "--tasks", "sst2"]
    assert fine_tuning.main(arguments) == 2
    error = capsys.readouterr().err
    assert "SST-2/train.tsv does not exist" in error and error.count("\n") == 1


def test_scores_are_those_of_the_best_learning_rate() -> None:
    weak, good = {"accuracy": 0.5, "seconds": 10.0}, {"accuracy": 0.75, "seconds": 20.0}
    text = table({"sst2": {OURS: {1e-4: [weak, good], 1e-3: [good, good]}}}, RELEASED)
    cells = [cell.strip() for cell in text.splitlines()[-1].strip("|").split("|")]
    assert cells == [TITLES[OURS], "75.0 ± 0.0", "20.0 ± 0.0"]
