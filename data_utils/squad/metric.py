"""Computes exact match and F1 of SQuAD 1.1 and 2.0, equal to the official scripts' to the last digit.

Source: Rajpurkar et al. 2016, section 6.1. The metrics are the mean over all questions of the best agreement with any
    of the annotators' answers, after lower-casing and without punctuation, articles and extra white space.
"""

from __future__ import annotations

import logging
import re
import string
from collections import Counter
from typing import Dict, Iterable, List, Mapping, NamedTuple, Sequence, Tuple

logger = logging.getLogger(__name__)

EXACT_MATCH, F1 = "exact_match", "f1"

_NO_PUNCTUATION = str.maketrans("", "", string.punctuation)  # ASCII only, so that quotation marks of other scripts stay
_ARTICLES = re.compile(r"\b(a|an|the)\b")


class Scores(NamedTuple):
    """The best agreement of a prediction with an answer: exact match, 0 or 1, and the F1 of the words, 0 to 1."""

    exact_match: float
    f1: float


def normalized_words(text: str) -> List[str]:
    """Return the words of a text that are compared: "us" and "senate" of "The  U.S. Senate"."""
    return _ARTICLES.sub(" ", text.lower().translate(_NO_PUNCTUATION)).split()


def best_scores(prediction: str, answers: Iterable[str]) -> Scores:
    """Compare a prediction with the answers of its question; there must be at least one answer."""
    words = normalized_words(prediction)
    scores = [_agreement(words, normalized_words(answer)) for answer in answers]
    return Scores(max(each.exact_match for each in scores), max(each.f1 for each in scores))


def _agreement(predicted: Sequence[str], gold: Sequence[str]) -> Scores:
    exact = float(predicted == gold)
    common = sum((Counter(predicted) & Counter(gold)).values())
    if common == 0:  # even if both are empty, which match exactly and have an F1 of 0
        return Scores(exact, 0.0)
    precision, recall = common / len(predicted), common / len(gold)
    return Scores(exact, 2 * precision * recall / (precision + recall))


def score(
    answers: Mapping[str, Sequence[str]], predictions: Mapping[str, str]
) -> Tuple[Dict[str, float], Dict[str, Scores]]:
    """Return ``exact_match`` and ``f1`` of a data set in percent, and the scores of each question."""
    missing = [question for question in answers if question not in predictions]
    if missing:
        logger.warning("%s questions have no prediction, which counts 0 (first: %s)", f"{len(missing):,}", missing[0])
    scores = {
        question: best_scores(predictions[question], gold) if question in predictions else Scores(0.0, 0.0)
        for question, gold in answers.items()
    }
    return _means(scores.values()), scores


def score_with_no_answers(
    answers: Mapping[str, Sequence[str]], best: Mapping[str, str], odds: Mapping[str, float], threshold: float
) -> Tuple[Dict[str, float], Dict[str, Scores]]:
    """Return the scores of SQuAD 2.0, as its script does with the odds and the threshold.

    Args:
        answers: the answers to each question by its id; an impossible one has none.
        best: the best answer to each question, whether or not it has one.
        odds: how much more likely it is that a question has no answer.
        threshold: odds above which a question is taken to have no answer.

    Returns:
        ``exact_match`` and ``f1`` in percent, also of the questions with answers, ``HasAns``, and without, ``NoAns``;
        the best that any threshold reaches, with this threshold; and the scores of each question.
    """
    found = {question: _scores_of_version_2(best[question], gold) for question, gold in answers.items()}
    scores = {
        question: Scores(*[float(not gold)] * 2) if odds[question] > threshold else found[question]
        for question, gold in answers.items()
    }
    result = _means(scores.values())
    for kind, has_answer in (("HasAns", True), ("NoAns", False)):
        part = [scores[question] for question, gold in answers.items() if bool(gold) is has_answer]
        if part:
            result.update({f"{kind}_{name}": value for name, value in _means(part).items()})
    for name in (EXACT_MATCH, F1):
        values = {question: getattr(each, name) for question, each in found.items()}
        result.update(_best_threshold(name, values, answers, best, odds))
    return result, scores


def _scores_of_version_2(prediction: str, answers: Sequence[str]) -> Scores:
    """Compare as SQuAD 2.0 does: texts without words are equal, and have an F1 of 1."""
    gold = [answer for answer in answers if normalized_words(answer)] or [""]
    each = best_scores(prediction, gold)
    return Scores(1.0, 1.0) if not normalized_words(prediction) and gold == [""] else each


def _means(scores: Iterable[Scores]) -> Dict[str, float]:
    exact_match = f1 = total = 0.0
    for each in scores:  # one by one, as in the official script: sum() rounds differently since Python 3.12
        exact_match, f1, total = exact_match + each.exact_match, f1 + each.f1, total + 1
    return {EXACT_MATCH: 100.0 * exact_match / total, F1: 100.0 * f1 / total}


def _best_threshold(
    name: str,
    values: Mapping[str, float],
    answers: Mapping[str, Sequence[str]],
    best: Mapping[str, str],
    odds: Mapping[str, float],
) -> Dict[str, float]:
    """Return the best mean of a score over all thresholds, in percent, and the first threshold that reaches it."""
    current = highest = float(sum(not gold for gold in answers.values()))
    threshold = 0.0
    for question in sorted(answers, key=lambda question: odds[question]):
        current += values[question] if answers[question] else -1.0 if best[question] else 0.0
        if current > highest:
            highest, threshold = current, odds[question]
    return {f"best_{name}": 100.0 * highest / len(answers), f"best_{name}_threshold": threshold}
