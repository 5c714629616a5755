"""Fine-tunes with Hugging Face's Trainer as Transformers' examples do; ``benchmarks.as_typed`` runs and measures it."""

from __future__ import annotations

import csv
import json
import sys
from pathlib import Path
from typing import Any

import torch
from transformers import (
    AutoModelForQuestionAnswering,
    AutoModelForSequenceClassification,
    AutoModelForTokenClassification,
    AutoTokenizer,
    DataCollatorForTokenClassification,
    DataCollatorWithPadding,
    Trainer,
    TrainingArguments,
    default_data_collator,
    set_seed,
)

BATCH, EVALUATION_BATCH, SEED = 32, 64, 1984
LONGEST = 128  # tokens of a text, the default of the examples
IGNORED = -100

Rows = list[dict[str, Any]]


def classification(tokenizer: Any, path: str, classes: list[str]) -> Rows:
    """Return the rows of a table whose first column is the text and whose second one is the class."""
    is_tsv = path.endswith(".tsv")
    with Path(path).open(encoding="utf-8", newline="") as file:
        _, *rows = csv.reader(file, delimiter="\t" if is_tsv else ",", quoting=csv.QUOTE_NONE if is_tsv else 0)
    encoded = tokenizer([row[0] for row in rows], truncation=True, max_length=LONGEST)
    classes.extend(sorted({row[1] for row in rows} - set(classes)))
    return [{**_row(encoded, n), "labels": classes.index(row[1])} for n, row in enumerate(rows)]


def words(tokenizer: Any, path: str, classes: list[str]) -> Rows:
    """Return the rows of sentences; only the first piece of a word has its tag."""
    paragraphs = Path(path).read_text(encoding="utf-8").strip().split("\n\n")
    sentences = [[line.split(" ") for line in each.splitlines()] for each in paragraphs]
    encoded = tokenizer(
        [[word for word, _ in each] for each in sentences],
        truncation=True,
        max_length=LONGEST,
        is_split_into_words=True,
    )
    classes.extend(sorted({tag for each in sentences for _, tag in each} - set(classes)))
    rows = []
    for number, sentence in enumerate(sentences):
        places = encoded.word_ids(number)
        labels = [
            IGNORED if place is None or place == before else classes.index(sentence[place][1])
            for before, place in zip([None, *places], places)
        ]
        rows.append({**_row(encoded, number), "labels": labels})
    return rows


def squad(tokenizer: Any, path: str, window: int, stride: int) -> Rows:
    """Return the windows of the contexts, each with the place of the first answer, or of [CLS] where it is cut."""
    articles = json.loads(Path(path).read_text(encoding="utf-8"))["data"]
    asked = [(q, p["context"]) for article in articles for p in article["paragraphs"] for q in p["qas"]]
    encoded = tokenizer(
        [question["question"].lstrip() for question, _ in asked],
        [context for _, context in asked],
        truncation="only_second",
        max_length=window,
        stride=stride,
        return_overflowing_tokens=True,
        padding="max_length",
    )
    rows = []
    for number, sample in enumerate(encoded["overflow_to_sample_mapping"]):
        answer = asked[sample][0]["answers"][0]
        last = answer["answer_start"] + len(answer["text"]) - 1
        begin, end = (encoded.char_to_token(number, each, 1) for each in (answer["answer_start"], last))
        places = {"start_positions": begin or 0, "end_positions": end or 0} if begin and end else _nowhere()
        rows.append({**_row(encoded, number), **places})
    return rows


def _nowhere() -> dict[str, int]:
    return {"start_positions": 0, "end_positions": 0}


def _row(encoded: Any, number: int) -> dict[str, Any]:
    return {name: encoded[name][number] for name in ("input_ids", "token_type_ids", "attention_mask")}


def main(job: dict[str, Any]) -> None:
    set_seed(SEED)
    model, task = job["model"], job["task"]
    tokenizer = AutoTokenizer.from_pretrained(model)
    classes: list[str] = []
    collator: Any
    if task == "squad":
        train, validation = (
            squad(tokenizer, job[part], job["window"], job["stride"]) for part in ("train", "validation")
        )
        network, collator = AutoModelForQuestionAnswering.from_pretrained(model), default_data_collator
    elif task == "words":
        train, validation = (words(tokenizer, job[part], classes) for part in ("train", "validation"))
        network = AutoModelForTokenClassification.from_pretrained(model, num_labels=len(classes))
        collator = DataCollatorForTokenClassification(tokenizer)
    else:
        train, validation = (classification(tokenizer, job[part], classes) for part in ("train", "validation"))
        network = AutoModelForSequenceClassification.from_pretrained(model, num_labels=len(classes))
        collator = DataCollatorWithPadding(tokenizer)
    arguments = TrainingArguments(
        job["output"],
        seed=SEED,
        use_cpu=not torch.cuda.is_available(),
        bf16=True,
        num_train_epochs=1,
        per_device_train_batch_size=BATCH,
        per_device_eval_batch_size=EVALUATION_BATCH,
        learning_rate=job["rate"],
        warmup_ratio=0.1,
        weight_decay=0.01,
        report_to="none",
        disable_tqdm=True,
    )
    trainer = Trainer(network, arguments, collator, train, validation)
    result = trainer.train()
    trainer.save_model()
    trainer.predict(validation)
    rate = result.metrics["train_samples_per_second"]
    (Path(job["output"]) / "rate.json").write_text(json.dumps(rate), encoding="utf-8")


if __name__ == "__main__":
    main(json.loads(sys.argv[1]))
