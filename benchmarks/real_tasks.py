"""Fine-tuning tasks on real data: samples, the scores of a model's outputs, and the scores of guessing.

N samples · S sequence · K classes
"""

from __future__ import annotations

import csv
import json
from collections.abc import Callable, Iterator, Sequence
from functools import cached_property, partial
from pathlib import Path
from typing import Any, TypeVar

import numpy as np
from nltk.tokenize.punkt import PunktSentenceTokenizer

from benchmarks.samples import SQUAD_TRAINING, Arrays
from data_utils.classification.benchmarks import TASKS
from data_utils.classification.features import text_features
from data_utils.classification.reading import Examples, read_split
from data_utils.classification.scoring import METRICS, decode_predictions
from data_utils.classification.user_task import user_task
from data_utils.squad.answers import best_answers
from data_utils.squad.examples import SquadSet, read_squad
from data_utils.squad.metric import score
from data_utils.squad.windows import Geometry, WindowReader, Windows, make_windows, squad_features
from data_utils.text.sentence_splitter import train as train_splitter
from data_utils.tokenizer import load_tokenizer, read_vocabulary
from model.tasks import SQUAD
from utilities.errors import UserError

Item = TypeVar("Item")
Scores = dict[str, float]

LONGEST_GUESS = 12  # words, of the baseline for SQuAD
SQUAD_DEV = "squad/dev-v1.1.json"
PAIRS = "pairs"  # own files: does a sentence contain the answer to a question?
PAIR_FILES: dict[str, Any] = {  # fields of classification_data
    "train_file": "train.csv",
    "validation_file": "dev.csv",
    "text": ["question", "sentence"],
    "label": "answered",
}
PAIRS_TASK = user_task(
    **PAIR_FILES, test_file=None, validation_fraction=0, validation_seed=0, classes=["no", "yes"], regression=False
)


def write_json(path: Path, content: Any) -> None:
    path.write_text(json.dumps(content, indent=1, ensure_ascii=False) + "\n", encoding="utf-8")


def thinned(items: Sequence[Item], most: int | None) -> list[Item]:
    """Return at most this many items, evenly spread over all; None: all."""
    count = min(most or len(items), len(items))
    return [items[number * len(items) // count] for number in range(count)]


def write_samples(name: str, train: bool, data: Path, folder: Path, most: int | None) -> int:
    """Write the training or the evaluation file of a task with some of its samples, and return their number.

    Args:
        data: folder of real data.
        folder: folder of the same form, which the classes below and this project's commands read.
        most: samples, evenly spread over all; None: all. A few questions have no pair.
    """
    write: Callable[[Path, Path, int | None], int]
    if name in (SQUAD, PAIRS):
        file = Path(SQUAD_TRAINING if train else SQUAD_DEV)
        write = _write_questions if name == SQUAD else _write_pairs
    else:
        split = TASKS[name].train if train else TASKS[name].validation[0]
        file = Path("glue", TASKS[name].folders[0], split.files[0].name)
        write = partial(_write_lines, has_header=split.files[0].header is None)
    if not (data / file).is_file():
        raise UserError(f"{data / file} does not exist; name the folder of real data with --data or BERT_REAL_DATA")
    own = Path(PAIRS, PAIR_FILES["train_file" if train else "validation_file"])
    target = folder / (own if name == PAIRS else file)
    target.parent.mkdir(parents=True, exist_ok=True)
    return write(data / file, target, most)


def _write_lines(source: Path, target: Path, most: int | None, has_header: bool) -> int:
    lines = source.read_bytes().splitlines(keepends=True)
    header, samples = (lines[:1], lines[1:]) if has_header else ([], lines)
    kept = thinned(samples, most)
    target.write_bytes(b"".join([*header, *kept]))
    return len(kept)


def _write_questions(source: Path, target: Path, most: int | None) -> int:
    document = json.loads(source.read_text(encoding="utf-8"))
    paragraphs = [paragraph for article in document["data"] for paragraph in article["paragraphs"]]
    kept = set(thinned([question["id"] for paragraph in paragraphs for question in paragraph["qas"]], most))
    for paragraph in paragraphs:
        paragraph["qas"] = [question for question in paragraph["qas"] if question["id"] in kept]
    write_json(target, document)
    return len(kept)


def _write_pairs(source: Path, target: Path, most: int | None) -> int:
    squad = read_squad(source)
    pairs = list(pairs_of(squad._replace(questions=thinned(squad.questions, most))))
    with target.open("w", encoding="utf-8", newline="") as file:
        csv.writer(file).writerows([(*PAIR_FILES["text"], PAIR_FILES["label"]), *pairs])
    return len(pairs)


def pairs_of(squad: SquadSet) -> Iterator[tuple[str, str, str]]:
    """Yield a question, a sentence of its context, and whether it contains the answer: "no" and "yes" in turn.

    QNLI (Wang et al. 2019) was made of SQuAD like this, but from the sentences that share many words with the question.
    Questions whose context has no sentence of both kinds are left out.
    """
    splitter = PunktSentenceTokenizer(train_splitter(paragraph.context for paragraph in squad.paragraphs))
    sentences = [
        [(begin, paragraph.context[begin:end]) for begin, end in splitter.span_tokenize(paragraph.context)]
        for paragraph in squad.paragraphs
    ]
    count = 0
    for question in squad.questions:
        answering: list[str] = []
        others: list[str] = []
        for begin, sentence in sentences[question.paragraph]:
            end = begin + len(sentence)
            if any(begin <= answer.start <= end - len(answer.text) for answer in question.answers):
                answering.append(sentence)
            elif not any(answer.text in sentence for answer in question.answers):
                others.append(sentence)
        if answering and others:
            other = others[count // 2 % len(others)]
            yield question.text, answering[0] if count % 2 else other, "yes" if count % 2 else "no"
            count += 1


# --- The tasks ---


class Classification:
    """A task of GLUE from the benchmark's own files, or ``PAIRS``.

    Args:
        data: folder of real data, or of a part of it.
        vocabulary: a file, or a folder with one.
        length: S.

    Attributes:
        classes: K; None in SQuAD.
    """

    def __init__(self, name: str, data: Path, vocabulary: Path, length: int):
        self._task, self._length = PAIRS_TASK if name == PAIRS else TASKS[name], length
        self._folder = data / (PAIRS if name == PAIRS else "glue")
        self._tokenizer = load_tokenizer(str(vocabulary), True)
        self.classes: int | None = self._task.classes

    def _examples(self, train: bool) -> tuple[Examples, np.ndarray]:
        split = self._task.train if train else self._task.validation[0]
        examples = read_split(self._task, split, self._folder)
        assert examples is not None and examples.labels is not None, "training and validation sets have labels"
        return examples, examples.labels

    def training(self, most: int | None = None) -> Arrays:
        """Return the first samples: ids, masks and segments (N, S), labels (N, 1)."""
        examples, labels = self._examples(train=True)
        arrays = text_features(self._tokenizer, examples.texts[:most], self._length).arrays
        return {**arrays, "labels": labels[:most, None].astype(np.int32)}

    def evaluation(self) -> Arrays:
        return text_features(self._tokenizer, self._examples(train=False)[0].texts, self._length).arrays

    def _scored(self, predictions: np.ndarray, labels: np.ndarray) -> Scores:
        return {metric: METRICS[metric](predictions, labels) for metric in self._task.metrics}

    def scores(self, outputs: Arrays) -> Scores:
        return self._scored(decode_predictions(self._task, outputs["logits"]), self._examples(train=False)[1])

    def guessed(self) -> Scores:
        """Always answer the class that is most frequent in training."""
        most_frequent = int(np.bincount(self._examples(train=True)[1]).argmax())
        labels = self._examples(train=False)[1]
        return self._scored(np.full_like(labels, most_frequent), labels)


class Squad:
    """SQuAD 1.1: the available training questions, and the development set."""

    classes: int | None = None

    def __init__(self, data: Path, vocabulary: Path, geometry: Geometry):
        self._data, self._geometry = data, geometry
        self._vocabulary, self._tokenizer = read_vocabulary(vocabulary), load_tokenizer(str(vocabulary), True)

    @cached_property
    def _train(self) -> SquadSet:
        return read_squad(self._data / SQUAD_TRAINING)

    @cached_property
    def _dev(self) -> SquadSet:
        return read_squad(self._data / SQUAD_DEV)

    @cached_property
    def _windows(self) -> Windows:
        return make_windows(self._dev, self._tokenizer, self._geometry, labels=False)

    def _arrays(self, windows: Windows, labels: bool) -> Arrays:
        spec = squad_features(self._geometry.max_seq_length, len(self._vocabulary.pieces), labels=labels)
        return WindowReader(spec, windows, self._vocabulary).read(np.arange(windows.count))

    def training(self, most: int | None = None) -> Arrays:
        """Return the first windows: ids, masks and segments (N, S), start and end positions (N, 1)."""
        arrays = self._arrays(make_windows(self._train, self._tokenizer, self._geometry, labels=True), labels=True)
        return {name: values[:most] for name, values in arrays.items()}

    def evaluation(self) -> Arrays:
        return self._arrays(self._windows, labels=False)

    def scores(self, outputs: Arrays) -> Scores:
        answers = best_answers(self._dev, self._windows, outputs["start_logits"], outputs["end_logits"], 20, 30)
        return _scored(self._dev, {identity: candidates[0].text for identity, candidates in answers.items()})

    def guessed(self) -> Scores:
        """Always answer the words of the context from a to b, the a and b that score best in training."""
        spans = [(a, b) for a in range(LONGEST_GUESS) for b in range(a + 1, a + 1 + LONGEST_GUESS)]
        best = max(spans, key=lambda span: _scored(self._train, dict(words_at(self._train, *span)))["f1"])
        return _scored(self._dev, dict(words_at(self._dev, *best)))


def _scored(squad: SquadSet, predictions: dict[str, str]) -> Scores:
    return score({q.id: [answer.text for answer in q.answers] for q in squad.questions}, predictions)[0]


def words_at(squad: SquadSet, begin: int, end: int) -> Iterator[tuple[str, str]]:
    """Yield the same words of every context as the answer to each question."""
    texts = [" ".join(paragraph.context.split(None, end)[begin:end]) for paragraph in squad.paragraphs]
    return ((question.id, texts[question.paragraph]) for question in squad.questions)
