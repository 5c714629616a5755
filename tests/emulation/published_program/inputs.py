"""The samples of a case in the forms that the two programs read: those of one update, which are all that there are.

Their order is then irrelevant in both: each update has all of them, and all have the same number of masked words, so
that the mean over an update does not depend on how its micro batches are made up.
"""

from __future__ import annotations

import json
import shutil
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

import numpy as np
from transformers import BertTokenizerFast

from benchmarks.measuring import real_data_root
from data_utils.records.arrays import GeneratedReader
from data_utils.records.features import FeatureSpec, pretraining_features
from tests.emulation.published_program.cases import Case
from tests.support.record_samples import write_arrays

PADDING = 8  # tokens at the end of each record
PREDICTED = {"squad": 24, "classification": 20}  # samples: as many as both programs predict
VOCABULARY = "vocab/vocab-bert-base-uncased.txt"
Rows = Sequence[Mapping[str, Any]]


def write_inputs(case: Case, settings: dict[str, Any], folder: Path) -> str:
    """Write a case's samples; return why this cannot be done, or nothing."""
    folder.mkdir(exist_ok=True)
    if case.task == "pretraining":
        write_records(case.samples, spec(settings), folder)
        return ""
    root = real_data_root()
    needed = [root / VOCABULARY, *(root / name for name in FILES[case.task])]
    missing = next((path for path in needed if not path.exists()), None)
    if missing is not None:
        return f"no real data at {missing}; set BERT_REAL_DATA to a folder that holds it"
    shutil.copyfile(needed[0], folder / "vocab.txt")
    WRITERS[case.task](case, needed[1:], folder)
    return ""


def spec(settings: Mapping[str, Any]) -> FeatureSpec:
    """Return the features of a case's records."""
    length, predictions = settings["max_seq_length"], settings["max_predictions_per_seq"]
    return pretraining_features(length, predictions, settings["bert_config"]["vocab_size"])


def write_records(count: int, features: FeatureSpec, folder: Path) -> None:
    """Write records that end with padding, and have one prediction less than there may be, none of them of [PAD].

    A third has another sentence next. Of as many with each label, the gradients of the pooler would cancel to rounding.
    """
    rows = GeneratedReader(features, 3, count).read(np.arange(count))
    tokens = rows["input_ids"].shape[1] - PADDING
    for name in ("input_ids", "input_mask", "segment_ids"):
        rows[name][:, tokens:] = 0
    rows["masked_lm_positions"] = np.minimum(rows["masked_lm_positions"], tokens - 1)
    rows["masked_lm_ids"] = np.maximum(rows["masked_lm_ids"], 1)  # theirs takes [PAD] for no prediction
    rows["next_sentence_labels"][:, 0] = np.arange(count) % 3 == 0
    for name in ("masked_lm_positions", "masked_lm_ids", "masked_lm_weights"):
        rows[name][:, -1] = 0
    write_arrays(folder / "part.tfrecord", rows)


def write_mrpc(case: Case, sources: Sequence[Path], folder: Path) -> None:
    """Write the first pairs of MRPC as files of rows, and as columns."""
    columns: dict[str, Any] = {}
    counts = {"train": case.samples, "validation": PREDICTED[case.task], "test": PREDICTED[case.task]}
    for (part, count), source in zip(counts.items(), sources):
        lines = source.read_text(encoding="utf-8-sig").splitlines()[: count + 1]
        (folder / source.name).write_text("\n".join([*lines, ""]), encoding="utf-8")
        label, _, _, first, second = zip(*(line.split("\t") for line in lines[1:]))
        labels = [0] * count if part == "test" else [int(one) for one in label]
        columns[part] = {"sentence1": first, "sentence2": second, "label": labels, "idx": list(range(count))}
    (folder / "data.json").write_text(json.dumps(columns))


def write_squad(case: Case, sources: Sequence[Path], folder: Path) -> None:
    """Write questions of SQuAD that fit into one window, with one answer each, as files of rows, and as columns."""
    tokenizer, columns = BertTokenizerFast(str(folder / "vocab.txt")), {}
    for part, source, count in (("train", sources[0], case.samples), ("validation", sources[1], PREDICTED[case.task])):
        rows = []
        for row in squad_rows(source):
            if len(rows) < count and len(tokenizer(row["question"], row["context"])["input_ids"]) <= case.length:
                rows.append(row)
        (folder / f"{source.name.partition('-')[0]}-v1.1.json").write_text(json.dumps(rows), encoding="utf-8")
        columns[part] = {name: [row[name] for row in rows] for name in ("id", "title", "context", "question")}
        answers = {name: [row["answers"][name] for row in rows] for name in ("text", "answer_start")}
        columns[part]["answers"] = answers
    (folder / "data.json").write_text(json.dumps(columns))


def squad_rows(path: Path) -> Rows:
    """Return the first questions of paragraphs, as the ``datasets`` library gives them."""
    paragraphs = [
        (article["title"], paragraph)
        for article in json.loads(path.read_text())["data"]
        for paragraph in article["paragraphs"]
    ]
    return [
        {
            "id": question["id"],
            "title": title,
            "context": paragraph["context"],
            "question": question["question"],
            "answers": {name: [question["answers"][0][name]] for name in ("text", "answer_start")},
        }
        for title, paragraph in paragraphs
        for question in paragraph["qas"][:1]
    ]


FILES = {
    "squad": ("squad/train-v1.1-prefix.json", "squad/dev-v1.1.json"),
    "classification": ("glue/MRPC/train.tsv", "glue/MRPC/dev.tsv", "glue/MRPC/test.tsv"),
}
WRITERS = {"squad": write_squad, "classification": write_mrpc}
