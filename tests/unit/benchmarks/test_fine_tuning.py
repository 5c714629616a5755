"""The benchmark of fine-tuning trains by the recipes that it names; the one of speed pads to the longest sample."""

from __future__ import annotations

import json
from pathlib import Path

import numpy as np
import pytest

from benchmarks import fine_tuning
from benchmarks.fine_tuning import OURS, PRETRAINED_HERE, RANDOM, RELEASED, TITLES, Study, table
from benchmarks.real_tasks import pairs_of
from benchmarks.samples import iterate_batches, unpadded
from model.tasks import CLASSIFICATION, SQUAD
from tests.support.benchmark_folders import write_tsv
from tests.support.config_files import load_config
from tests.support.squad_files import parsed, random_document

SIZES = {
    "num_hidden_layers": 1, "hidden_size": 8, "num_attention_heads": 2, "intermediate_size": 16, "vocab_size": 100,
    "initializer_range": 0.02, "max_position_embeddings": 512,
}  # fmt: skip


def write_data(folder: Path) -> Path:
    for file in ("train-v1.1-prefix.json", "dev-v1.1.json"):
        (folder / "squad").mkdir(parents=True, exist_ok=True)
        (folder / "squad" / file).write_text(json.dumps(random_document(5)), encoding="utf-8")
    for split in ("train", "dev"):
        rows = [[f"{split} {number}", str(number % 2)] for number in range(10)]
        for task in ("SST-2", "MRPC"):
            write_tsv(folder / "glue" / task / f"{split}.tsv", [["sentence", "label"], *rows])
        without_header = [["source", label, "", text] for text, label in rows]
        write_tsv(folder / "glue" / "CoLA" / f"{split}.tsv", without_header)
    return folder


def make_study(folder: Path, released: bool) -> Study:
    model = folder / ("model" if released else "work/exported")
    model.mkdir(parents=True)
    (model / "config.json").write_text(json.dumps(SIZES), encoding="utf-8")
    checkpoint = model if released else folder / "run"
    arguments = ["--checkpoint", str(checkpoint), "--data", str(write_data(folder / "data")), "--samples", "4"]
    return Study(fine_tuning.main.parser.parse_args(arguments), folder / "work")


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
    result = list(pairs_of(parsed(document)))
    assert [(sentence, label) for _, sentence, label in result] == [
        (lived, "no"), (lived, "yes"), (paid, "no"), (paid, "yes"),  # of two others the first, then the second
    ]  # fmt: skip
    assert [question for question, _, _ in result] == [text for text, _ in asked]


@pytest.mark.parametrize("released", [True, False])
@pytest.mark.parametrize("name", list(RELEASED))
def test_a_task_is_trained_by_its_recipe(name: str, released: bool, tmp_path: Path) -> None:
    study, task = make_study(tmp_path, released), SQUAD if name == SQUAD else CLASSIFICATION
    recipe = (RELEASED if released else PRETRAINED_HERE)[name]
    assert study.recipes[name] == recipe
    assert study.counts[name][0] <= 4
    config = load_config(task, ["--config", str(study.config(name, OURS))]).config
    assert (config.max_seq_length, config.num_epochs) == (recipe.length, recipe.epochs)
    assert config.samples_per_update == recipe.rows
    optimizer = config.optimizer_opts
    assert (optimizer.name, optimizer.weight_decay_rate, optimizer.epsilon) == ("AdamW", 0.01, 1e-6)
    assert (optimizer.beta_1, optimizer.beta_2, optimizer.max_gradient_norm) == (0.9, 0.999, None)
    rate = optimizer.learning_rate
    assert (rate.schedule_name, rate.warmup_frac) == ("linear", 0.1)
    assert rate.max_learning_rate == recipe.learning_rate
    assert config.evaluation.every == "epoch" and config.evaluation.patience is None
    assert (config.bert_model_name is None) != released
    random = load_config(task, ["--config", str(study.config(name, RANDOM))]).config
    assert random.bert_model_name is random.pretrained_ckpt_path is None
    assert random.bert_config is not None and random.bert_config.hidden_size == 8


def test_scores_are_the_mean_and_deviation_over_the_seeds() -> None:
    weak, good = {"accuracy": 0.5, "seconds": 10.0}, {"accuracy": 0.75, "seconds": 20.0}
    text = table({"sst2": {OURS: [weak, good]}}, RELEASED)
    cells = [cell.strip() for cell in text.splitlines()[-1].strip("|").split("|")]
    assert cells == [TITLES[OURS], "62.5 ± 17.7", "15.0 ± 7.1"]  # by hand


def test_batches_are_as_long_as_their_longest_sample() -> None:
    mask = (np.arange(6) < np.array([[2], [4], [3]])).astype(np.int32)
    samples = {"input_ids": mask * 7, "input_mask": mask, "segment_ids": mask * 0, "labels": np.array([[1], [0], [1]])}
    batches = iterate_batches(samples, 2, unpadded)
    first, second = next(batches), next(batches)
    assert first["attention_mask"].tolist() == [[1, 1, 0, 0], [1, 1, 1, 1]] and first["labels"].tolist() == [1, 0]
    assert second["input_ids"].tolist() == [[7, 7, 7], [7, 7, 0]] and second["labels"].tolist() == [1, 1]
