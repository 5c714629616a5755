"""Small files of the fine-tuning tasks, in which single words decide the labels, and a config for them."""

from __future__ import annotations

import csv
import json
import random
from pathlib import Path
from typing import Any

from data_utils.tokenizer import SPECIAL_TOKENS
from tests.support.benchmark_folders import write_tsv
from tests.support.pytorch_process import run_pytorch
from tests.support.runs import BASE, SMALL, run_command, write_csv, write_json
from tests.support.squad_files import WORDS, write_vocabulary

GOOD, BAD = ["good", "great", "fine", "lovely"], ["bad", "awful", "poor", "dull"]
FILLING = ["the", "a", "film", "story", "is", "very", "it", "was"]
PIECES = [*SPECIAL_TOKENS, *GOOD, *BAD, *FILLING]

PEOPLE, PLACES = ["anna", "boris", "clara"], ["oslo", "paris", "rome"]
OTHERS = ["the", "a", "was", "in", "and", "saw", "went", "to"]
TAGGED_PIECES = [
    *(*SPECIAL_TOKENS, *PEOPLE, *PLACES, *OTHERS, "van", "##dam", "un", "##known", "."),
    *("叶", "老", "在", "北", "京"),
]

NAMES = ["anna", "boris", "clara", "david", "elena", "felix"]  # no other word of SQuAD's files occurs as an answer
PLAIN = [word for word in WORDS if word.isalpha()]


def write_config(root: Path, name: str, **changes: Any) -> Path:
    """Write a config of a very small BERT without dropout for the files in ``root``."""
    sizes = {**SMALL, "vocab_size": 40, "max_position_embeddings": 32}
    config = {
        **BASE,
        "bert_config": {**sizes, "hidden_dropout_prob": 0.0, "attention_probs_dropout_prob": 0.0},
        "dataset_dir": str(root),
        "vocab_file": str(root / "vocab.txt"),
        "output_dir": str(root / "runs"),
        "max_seq_length": 16,
        "global_batch": {"micro_batch_size": 8},
        "optimizer_opts": {"name": "AdamW", "learning_rate": {"max_learning_rate": 0.003}},
        "global_batches_per_log": 25,
        "tensorboard": False,
        "execution": {"xla": False, "platform": "software", "device": "cpu", "precision": "float32"},
    }
    return write_json(root / f"{name}.json", {**config, **changes})


def run_folder(task: str, config: Path, *flags: str) -> Path:
    """Run the command of a task with a config of ``write_config``, and return the folder of the run."""
    run_command(task, config, *flags, status=0)
    return config.parent / "runs" / config.stem


def write_pieces(path: Path, pieces: list[str]) -> Path:
    path.write_text("".join(piece + "\n" for piece in pieces), encoding="utf-8")
    return path


def sentence(chance: random.Random, word: str) -> str:
    """Return some words, one of which decides the label."""
    words = [*chance.choices(FILLING, k=chance.randrange(2, 6)), word]
    chance.shuffle(words)
    return " ".join(words)


def pytorch_predictions(root: Path, samples: int) -> list[list[str]]:
    """Write models of PyTorch with random weights, and their answers to pairs of texts, which are returned."""
    write_pieces(root / "vocab.txt", PIECES)
    chance = random.Random(5)
    texts = [[sentence(chance, chance.choice(words)) for words in (GOOD, BAD)] for _ in range(samples)]
    write_json(root / "texts.json", texts)
    run_pytorch("tests.support.pytorch_predictions", root)
    return texts


def write_sst2(root: Path) -> list[int]:
    """Write SST-2 files in which one word decides; return the hidden labels of the test data."""
    chance = random.Random(0)

    def rows(count: int) -> list[list[Any]]:
        labels = [chance.randrange(2) for _ in range(count)]
        return [[sentence(chance, chance.choice(GOOD if label else BAD)), label] for label in labels]

    folder = root / "SST-2"
    for name, count in (("train", 240), ("dev", 41)):
        write_tsv(folder / f"{name}.tsv", [["sentence", "label"], *rows(count)])
    hidden = rows(19)
    write_tsv(folder / "test.tsv", [["index", "sentence"], *([n, text] for n, (text, _) in enumerate(hidden))])
    return [label for _, label in hidden]


def write_mnli(root: Path) -> None:
    """Write MNLI files in which the second sentence decides; in the mismatched set its word means another label."""
    chance = random.Random(1)
    deciding = {"entailment": GOOD[0], "neutral": FILLING[0], "contradiction": BAD[0]}
    labels = list(deciding)
    for name, count in (("train", 240), ("dev_matched", 30), ("dev_mismatched", 33)):
        shift = int(name == "dev_mismatched")
        rows = [
            [n, sentence(chance, "film"), f"{deciding[labels[(n + shift) % 3]]} story", labels[n % 3]]
            for n in range(count)
        ]
        write_tsv(root / "MNLI" / f"{name}.tsv", [["index", "sentence1", "sentence2", "gold_label"], *rows])


def write_own_pairs(root: Path) -> list[str]:
    """Write CSV of pairs with three named classes, which the second text decides; return the hidden test labels."""
    chance, words = random.Random(4), {"hot": GOOD[0], "cold": BAD[0], "so, so": FILLING[0]}

    def rows(count: int) -> list[list[str]]:
        labels = chance.choices(list(words), k=count)
        return [
            [f"{n:04}", sentence(chance, "film"), f"{words[label]}\nstory", label] for n, label in enumerate(labels)
        ]

    hidden = rows(15)
    for name, content in (("own.csv", rows(250)), ("new.csv", [row[:3] for row in hidden])):
        with open(root / name, "w", encoding="utf-8-sig", newline="") as file:
            csv.writer(file).writerows([["id", "the film", "what of it", "mood"][: len(content[0])], *content])
    return [row[3] for row in hidden]


def write_own_labels(root: Path) -> list[str]:
    """Write CSV of texts with two labels, each decided by a word, or none; return the labels of the test rows."""
    chance, words = random.Random(7), {"dark": BAD[1], "kind": GOOD[2]}

    def rows(count: int) -> list[list[str]]:
        sets = [[name for name in words if chance.random() < 0.5] for _ in range(count)]
        return [[sentence(chance, " ".join(words[name] for name in each)), " | ".join(each)] for each in sets]

    hidden = rows(15)
    for name, content in (("labels.csv", rows(250)), ("new_labels.csv", hidden)):
        write_csv(root / name, ["text", "moods"], content)
    return [row[1].replace(" | ", "|") for row in hidden]


def write_own_numbers(root: Path) -> None:
    """Write JSON Lines in which the number of good words decides a number."""
    rows = [{"text": " ".join([GOOD[0]] * (n % 6) + [BAD[0]] * (5 - n % 6)), "stars": n % 6 - 2.5} for n in range(240)]
    (root / "own.jsonl").write_text("".join(json.dumps(row) + "\n" for row in rows), encoding="utf-8")


def write_texts_to_embed(root: Path) -> None:
    """Write CSV of triples, in which one word of the film's text is in its answer, and a score of the two answers."""
    chance, rows = random.Random(6), []
    for _ in range(240):
        right, wrong = chance.sample([*GOOD, *BAD], 2)
        scored = (right in GOOD) == (wrong in GOOD)
        rows.append([f"film {right}", sentence(chance, right), sentence(chance, wrong), 0.8 if scored else -0.5])
    write_csv(root / "texts.csv", ["film", "right", "wrong", "score"], rows)


def article(chance: random.Random, title: str) -> dict[str, Any]:
    """Return two contexts of 20 to 90 words, each with one name, and two questions about it."""
    paragraphs = []
    for number in range(2):
        words = chance.choices(PLAIN, k=chance.randint(20, 90))
        name = chance.choice(NAMES).capitalize()
        words[chance.randrange(len(words))] = name
        context = " ".join(words)
        answer = {"text": name, "answer_start": context.index(name)}
        questions = [
            {"id": f"{title}-{number}-{asked}", "question": f"Who {asked} it?", "answers": [answer]}
            for asked in ("built", "was")
        ]
        paragraphs.append({"context": context, "qas": questions})
    return {"title": title, "paragraphs": paragraphs}


def write_squad(folder: Path, train: int, dev: int) -> None:
    chance = random.Random(3)
    for name, count in (("train-v1.1.json", train), ("dev-v1.1.json", dev)):
        articles = [article(chance, f"{name[:5]}_{number}") for number in range(count)]
        write_json(folder / name, {"version": "1.1", "data": articles})


def write_squad_with_names(folder: Path) -> None:
    """Write SQuAD files whose answers a small model learns, and a vocabulary in which each of them is one piece."""
    write_squad(folder, train=60, dev=9)
    with open(write_vocabulary(folder).path, "a", encoding="utf-8") as vocabulary:
        vocabulary.writelines(f"{name}\n" for name in NAMES)


def write_tagged(root: Path) -> None:
    """Write CoNLL files in which a word decides its tag; some names have two words or two pieces."""
    chance = random.Random(0)
    for name, count in (("train", 200), ("valid", 30), ("test", 20)):
        lines = []
        for _ in range(count):
            lines += [f"{word} O" for word in chance.choices(OTHERS, k=chance.randrange(1, 5))]
            lines += chance.choice([[f"{chance.choice(PEOPLE)} B-PER"], ["anna B-PER", "vandam I-PER"]])
            lines += [f"{chance.choice(OTHERS)} O", f"{chance.choice(PLACES)} B-LOC", ""]
        (root / f"{name}.txt").write_text("\n".join(lines) + "\n", encoding="utf-8")
