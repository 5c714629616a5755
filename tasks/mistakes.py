"""What went wrong in an evaluation, for the report of a run: errors counted in a table, and the worst with their texts.

N samples · C classes or labels
"""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any, List, Mapping, NamedTuple, Optional, Sequence, Set, Tuple

import numpy as np

from data_utils.classification.scoring import f1
from data_utils.tagged_columns import ABSENT
from data_utils.token_classification import find_entities
from reports.run_files import MISTAKES
from utilities.files import write_atomically

MOST_WORST, MOST_CHARACTERS = 20, 300  # errors with their texts, and characters of a text
MOST_CLASSES, MOST_CONFUSIONS = 20, 40  # of a matrix; with more classes, the most frequent confusions are listed
MOST_POINTS = 1000
NONE = "none"

Cells = List[List[Any]]
Entity = Tuple[str, int, str]  # kind, number of the first word, and text of an entity


class Mistakes(NamedTuple):
    """The errors on one set of samples: a table, and the worst errors, whose last cells are texts.

    The ``points`` are expected and predicted numbers, to be drawn.
    """

    title: str
    about: str
    headings: List[str]
    rows: Cells
    worst_headings: List[str]
    worst: Cells
    points: Sequence[Tuple[float, float]] = ()


def write_mistakes(folder: Path, mistakes: Sequence[Mistakes]) -> None:
    """Write the errors into a run's folder; no file if nothing was evaluated."""
    if mistakes:
        content = json.dumps([each._asdict() for each in mistakes], ensure_ascii=False)
        write_atomically(folder / MISTAKES, (content + "\n").encode())


def class_mistakes(
    title: str, names: Sequence[str], texts: Sequence[Tuple[str, ...]], labels: np.ndarray, probabilities: np.ndarray
) -> Mistakes:
    """Return the confusion matrix, and the errors of which the model was surest.

    Labels are ``(N,)``, probabilities ``(N, C)``; each sample has one or two texts.
    """
    predictions = probabilities.argmax(axis=1)
    counts = np.zeros((len(names), len(names)), np.int64)
    np.add.at(counts, (labels, predictions), 1)
    about, headings = "A row has the samples of a class, a column those that were predicted to be of it.", ["", *names]
    rows: Cells = [[name, *row] for name, row in zip(names, counts.tolist())]
    if len(names) > MOST_CLASSES:
        about, headings = "The most frequent confusions.", ["expected", "predicted", "samples"]
        wrong = np.argwhere((counts > 0) & ~np.eye(len(names), dtype=bool)).tolist()
        wrong.sort(key=lambda pair: -counts[pair[0], pair[1]])
        rows = [[names[a], names[b], int(counts[a, b])] for a, b in wrong[:MOST_CONFUSIONS]]
    sure = probabilities.max(axis=1)
    worst = _worst(np.where(predictions != labels, sure, -1.0), above=-0.5)
    cells = [[names[labels[n]], names[predictions[n]], _share(sure[n]), *_shown(texts[n])] for n in worst]
    return Mistakes(title, about, headings, rows, ["expected", "predicted", "probability", "text"], cells)


def label_mistakes(
    title: str, names: Sequence[str], texts: Sequence[Tuple[str, ...]], labels: np.ndarray, probabilities: np.ndarray
) -> Mistakes:
    """Return the errors by label, and the labels about which the model was most wrong.

    Labels are 1 for those of a sample, else 0, ``(N, C)``, as the probabilities.
    """
    predictions, truth = probabilities > 0.5, labels > 0
    rows: Cells = []
    for name, gold, own in zip(names, truth.T, predictions.T):
        counted = (gold, gold & own, gold & ~own, own & ~gold)
        rows.append([name, *(int(each.sum()) for each in counted), f1(own, gold)])
    wrong = np.where(predictions != truth, np.abs(probabilities - truth), -1.0)
    cells = []
    for number in _worst(wrong.ravel(), above=-0.5):
        sample, label = divmod(number, len(names))
        what = "missing" if truth[sample, label] else "not expected"
        cells.append([names[label], what, _share(probabilities[sample, label]), *_shown(texts[sample])])
    headings = ["label", "samples", "right", "missing", "not expected", "F1"]
    about = "Of the samples of each label, how many got it, how many did not, and how many others did."
    return Mistakes(title, about, headings, rows, ["label", "error", "probability", "text"], cells)


def number_mistakes(
    title: str, texts: Sequence[Tuple[str, ...]], labels: np.ndarray, predictions: np.ndarray
) -> Mistakes:
    """Return the expected and predicted numbers, (N,) each, the errors in short, and the largest ones."""
    errors = predictions - labels
    rows: Cells = [
        ["mean absolute error", float(np.mean(np.abs(errors)))],
        ["root of the mean squared error", float(np.sqrt(np.mean(errors**2)))],
        ["mean error", float(np.mean(errors))],
    ]
    cells = [[float(labels[n]), float(predictions[n]), *_shown(texts[n])] for n in _worst(np.abs(errors), above=0.0)]
    chosen = np.unique(np.linspace(0, len(labels) - 1, min(len(labels), MOST_POINTS)).astype(int))
    points = list(zip(labels[chosen].tolist(), predictions[chosen].tolist()))
    about = "Predicted minus expected numbers."
    return Mistakes(title, about, ["", "value"], rows, ["expected", "predicted", "text"], cells, points)


def tag_mistakes(
    title: str,
    sentences: Sequence[Sequence[str]],
    expected: Sequence[Sequence[str]],
    predicted: Sequence[Sequence[str]],
    scores: Mapping[str, Mapping[str, float]],
    has_entities: bool,
    texts: Optional[Sequence[str]] = None,
) -> Mistakes:
    """Return the scores of each kind of entity, or of each tag, and the sentences with most errors.

    The scores are by kind, "" for all; ``texts`` are the sentences as they stand in the file, if it has texts.
    """
    kinds = [kind for kind in scores if kind]
    columns = list(scores[kinds[0]]) if kinds else []
    rows: Cells = [[kind, *(scores[kind][column] for column in columns)] for kind in kinds]
    errors: List[Tuple[Set[Entity], Set[Entity]]] = []
    for words, gold, own in zip(sentences, expected, predicted):
        first, second = (_entities(words, tags, has_entities) for tags in (gold, own))
        errors.append((first - second, second - first))
    counts = np.array([max(len(missing), len(added)) for missing, added in errors])
    cells = []
    for number in _worst(counts, above=0):
        listed = [
            ", ".join(f"{kind}: {text}" for kind, _, text in sorted(part, key=lambda part: part[1]))
            for part in errors[number]
        ]
        cells.append(
            [*(each or NONE for each in listed), *_shown([texts[number] if texts else " ".join(sentences[number])])]
        )
    about = "The scores of each kind." if has_entities else "The scores of each tag."
    return Mistakes(
        title, about, ["kind", *columns], rows, ["expected, not found", "found, not expected", "text"], cells
    )


def _entities(words: Sequence[str], tags: Sequence[str], has_entities: bool) -> Set[Entity]:
    """Return the entities of a sentence, or its tagged words, as kind, place and text."""
    spans = find_entities(tags) if has_entities else [(tag, n, n) for n, tag in enumerate(tags) if tag != ABSENT]
    return {(kind, first, " ".join(words[first : last + 1])) for kind, first, last in spans}


def _worst(errors: np.ndarray, above: float) -> List[int]:
    """Return the numbers of the largest errors, largest first, as far as they are larger than ``above``."""
    order = np.argsort(-errors, kind="stable")[:MOST_WORST]
    return [number for number in order.tolist() if errors[number] > above]


def _share(value: Any) -> float:
    return round(float(value), 4)


def _shown(texts: Sequence[str]) -> List[str]:
    """Return the texts of a sample in one cell, each cut if it is long."""
    return [" | ".join(text if len(text) <= MOST_CHARACTERS else f"{text[:MOST_CHARACTERS]} …" for text in texts)]
