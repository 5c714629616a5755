"""What each fine-tuning task is to the peer and to a baseline: samples as arrays, scores, and what guessing scores."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path
from typing import Any, Protocol

import numpy as np

from data_utils.classification.benchmarks import TASKS
from data_utils.classification.features import text_features
from data_utils.classification.reading import Examples, read_split
from data_utils.classification.scoring import predicted
from data_utils.squad.answers import best_answers
from data_utils.squad.examples import SquadSet, read_squad
from data_utils.squad.metric import score
from data_utils.squad.windows import Geometry, WindowReader, Windows, make_windows, squad_features
from data_utils.tokenizer import load_tokenizer, read_vocabulary
from tasks.classification import scores_of

Arrays = dict[str, np.ndarray]
Scores = dict[str, float]
SQUAD_TRAINING = "train-v1.1-prefix.json"  # the part of the training set that there is
LONGEST_GUESS = 12  # words, of the baseline for SQuAD


class Task(Protocol):
    """A task on one vocabulary and sequence length."""

    classes: int | None

    def training(self) -> Arrays:
        """Inputs and labels."""

    def evaluation(self) -> Arrays:
        """Inputs."""

    def scores(self, outputs: Arrays) -> Scores:
        """Of the model's outputs for the evaluation samples."""

    def guessed(self) -> Scores:
        """What the best answer scores that does not look at the sample."""


class Classification:
    """A task of GLUE from the benchmark's own files."""

    def __init__(self, name: str, data: Path, vocabulary: Path, length: int):
        self._task, self._folder, self._length = TASKS[name], data / "glue", length
        self._tokenizer = load_tokenizer(str(vocabulary), True)
        self.classes: int | None = self._task.classes

    def _examples(self, train: bool) -> Examples:
        split = self._task.train if train else self._task.validation[0]
        examples = read_split(self._task, split, self._folder)
        assert examples is not None and examples.labels is not None, "training and validation sets have labels"
        return examples

    def training(self) -> Arrays:
        examples = self._examples(train=True)
        assert examples.labels is not None
        return {
            **text_features(self._tokenizer, examples.texts, self._length).arrays,
            "labels": examples.labels[:, None],
        }

    def evaluation(self) -> Arrays:
        return text_features(self._tokenizer, self._examples(train=False).texts, self._length).arrays

    def scores(self, outputs: Arrays) -> Scores:
        return scores_of(self._task, predicted(self._task, outputs["logits"]), self._labels(train=False))

    def guessed(self) -> Scores:
        """Always the class that is most frequent in training."""
        most_frequent = int(np.bincount(self._labels(train=True)).argmax())
        labels = self._labels(train=False)
        return scores_of(self._task, np.full_like(labels, most_frequent), labels)

    def _labels(self, train: bool) -> np.ndarray:
        labels = self._examples(train).labels
        assert labels is not None
        return labels


class Squad:
    """SQuAD 1.1: the questions that there are, to train on, and the whole development set."""

    classes: int | None = None

    def __init__(self, data: Path, vocabulary: Path, geometry: Geometry):
        self._train = read_squad(data / "squad" / SQUAD_TRAINING)
        self._dev = read_squad(data / "squad" / "dev-v1.1.json")
        self._vocabulary, self._path = read_vocabulary(vocabulary), vocabulary
        self._geometry = geometry
        self._windows = self._windows_of(self._dev, labels=False)

    def _windows_of(self, squad: SquadSet, labels: bool) -> Windows:
        return make_windows(squad, load_tokenizer(str(self._path), True), self._geometry, labels)

    def _arrays(self, windows: Windows, labels: bool) -> Arrays:
        spec = squad_features(self._geometry.max_seq_length, len(self._vocabulary.pieces), labels=labels)
        return WindowReader(spec, windows, self._vocabulary).read(np.arange(windows.count))

    def training(self) -> Arrays:
        return self._arrays(self._windows_of(self._train, labels=True), labels=True)

    def evaluation(self) -> Arrays:
        return self._arrays(self._windows, labels=False)

    def scores(self, outputs: Arrays) -> Scores:
        answers = best_answers(self._dev, self._windows, outputs["start_logits"], outputs["end_logits"], 20, 30)
        return self._scored(self._dev, {identity: found[0].text for identity, found in answers.items()})

    def guessed(self) -> Scores:
        """Always the words of the context from a to b, the a and b that score best on the training questions."""
        places = [(a, b) for a in range(LONGEST_GUESS) for b in range(a + 1, a + 1 + LONGEST_GUESS)]
        best = max(places, key=lambda place: self._scored(self._train, dict(words_at(self._train, *place)))["f1"])
        return self._scored(self._dev, dict(words_at(self._dev, *best)))

    @staticmethod
    def _scored(squad: SquadSet, predictions: dict[str, str]) -> Scores:
        return score({q.id: [answer.text for answer in q.answers] for q in squad.questions}, predictions)[0]


def words_at(squad: SquadSet, begin: int, end: int) -> Iterator[tuple[str, str]]:
    """The same words of every context as the answer to each question."""
    texts = [" ".join(paragraph.context.split(None, end)[begin:end]) for paragraph in squad.paragraphs]
    return ((question.id, texts[question.paragraph]) for question in squad.questions)


def task_of(name: str, data: Path, vocabulary: Path, length: int, query: int, stride: int) -> Any:
    """By its name on the command line; ``query`` and ``stride``, in tokens, are of SQuAD's windows."""
    if name == "squad":
        return Squad(data, vocabulary, Geometry(length, query, stride))
    return Classification(name, data, vocabulary, length)
