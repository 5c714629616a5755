"""Tasks of fine-tuning on real data: samples, the scores of a model's outputs, and the scores of guessing.

N samples · S sequence · K classes
"""

from __future__ import annotations

from collections.abc import Iterator
from functools import cached_property
from pathlib import Path

import numpy as np

from benchmarks.samples import SQUAD_TRAINING, Arrays
from data_utils.classification.benchmarks import TASKS
from data_utils.classification.features import text_features
from data_utils.classification.reading import Examples, read_split
from data_utils.classification.scoring import METRICS, predicted
from data_utils.squad.answers import best_answers
from data_utils.squad.examples import SquadSet, read_squad
from data_utils.squad.metric import score
from data_utils.squad.windows import Geometry, WindowReader, Windows, make_windows, squad_features
from data_utils.tokenizer import load_tokenizer, read_vocabulary

Scores = dict[str, float]
LONGEST_GUESS = 12  # words, of the baseline for SQuAD


class Classification:
    """A task of GLUE from the benchmark's own files.

    Args:
        data: folder of real data.
        length: S.

    Attributes:
        classes: K; None in SQuAD.
    """

    def __init__(self, name: str, data: Path, vocabulary: Path, length: int):
        self._task, self._folder, self._length = TASKS[name], data / "glue", length
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
        return self._scored(predicted(self._task, outputs["logits"]), self._examples(train=False)[1])

    def guessed(self) -> Scores:
        """Always answer the class that is most frequent in training."""
        most_frequent = int(np.bincount(self._examples(train=True)[1]).argmax())
        labels = self._examples(train=False)[1]
        return self._scored(np.full_like(labels, most_frequent), labels)


class Squad:
    """SQuAD 1.1: the training questions that there are, and the whole development set."""

    classes: int | None = None

    def __init__(self, data: Path, vocabulary: Path, geometry: Geometry):
        self._data, self._geometry = data, geometry
        self._vocabulary, self._tokenizer = read_vocabulary(vocabulary), load_tokenizer(str(vocabulary), True)

    @cached_property
    def _train(self) -> SquadSet:
        return read_squad(self._data / SQUAD_TRAINING)

    @cached_property
    def _dev(self) -> SquadSet:
        return read_squad(self._data / "squad" / "dev-v1.1.json")

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
        return _scored(self._dev, {identity: found[0].text for identity, found in answers.items()})

    def guessed(self) -> Scores:
        """Always answer the words of the context from a to b, the a and b that score best in training."""
        places = [(a, b) for a in range(LONGEST_GUESS) for b in range(a + 1, a + 1 + LONGEST_GUESS)]
        best = max(places, key=lambda place: _scored(self._train, dict(words_at(self._train, *place)))["f1"])
        return _scored(self._dev, dict(words_at(self._dev, *best)))


def _scored(squad: SquadSet, predictions: dict[str, str]) -> Scores:
    return score({q.id: [answer.text for answer in q.answers] for q in squad.questions}, predictions)[0]


def words_at(squad: SquadSet, begin: int, end: int) -> Iterator[tuple[str, str]]:
    """Yield the same words of every context as the answer to each question."""
    texts = [" ".join(paragraph.context.split(None, end)[begin:end]) for paragraph in squad.paragraphs]
    return ((question.id, texts[question.paragraph]) for question in squad.questions)
