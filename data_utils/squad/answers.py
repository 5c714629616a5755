"""Turns a model's token scores into the best answers to every question, cut out of the context's text.

An answer's score is the score of its first token as a start plus that of its last token as an end. All spans of at most
``max_answer_length`` tokens are compared, and every question gets an answer, except that in SQuAD 2.0 no answer has a
score, too. If several windows of a question show a token, only the window with the most context around it may begin an
answer there.

W windows · N windows of a question · S tokens of a window · L most tokens of the context in a window · K best spans of
a window · D longest answer

Source: Devlin et al. 2019, section 4.2, and the program that Google published with it.
"""

from __future__ import annotations

import math
from typing import Dict, List, NamedTuple, Optional, Sequence, Tuple

import numpy as np

from data_utils.squad.examples import SquadSet
from data_utils.squad.windows import Windows
from data_utils.tokenizer import with_marks
from utilities.errors import UserError

_SPARE = 3  # factor on the number of spans to keep, because different spans may have the same text


class Candidate(NamedTuple):
    text: str
    probability: float  # softmax over the scores of the question's candidates
    start_logit: float
    end_logit: float
    begin: int  # position in the context of its first character
    end: int  # and of the one after its last


def best_answers(
    squad: SquadSet,
    windows: Windows,
    start_logits: np.ndarray,
    end_logits: np.ndarray,
    n_best_size: int,
    max_answer_length: int,
    no_answer_threshold: Optional[float] = None,
    align_to_words: bool = False,
) -> Dict[str, List[Candidate]]:
    """Return the best answers to each question, best first; at least one.

    In SQuAD 2.0 one more candidate is the empty text, no answer. Its score is that of [CLS] as start and end in the
    window in which that is lowest. It is the first if it exceeds the best answer's by more than the threshold, and else
    one of the others.

    Args:
        start_logits, end_logits: ``(W, S)`` scores of each token as an answer's start and end.
        n_best_size: maximum number of candidates for a question; their texts differ.
        max_answer_length: maximum number of tokens of an answer.
        no_answer_threshold: the threshold of SQuAD 2.0; None: each question has an answer.
        align_to_words: extend an answer that begins or ends within a word to the whole word.
    """
    if not (np.isfinite(start_logits).all() and np.isfinite(end_logits).all()):
        raise UserError("the model's scores are not finite numbers; its weights are damaged: take another checkpoint")
    bounds = np.searchsorted(windows.question, np.arange(len(squad.questions) + 1))
    answers = {}
    for number, question in enumerate(squad.questions):
        _, offsets, words = windows.context(number)
        rows = slice(bounds[number], bounds[number + 1])
        begin, length, column = windows.begin[rows], windows.length[rows], windows.first_column[rows]
        starts, ends = (_shown(logits[rows], length, column) for logits in (start_logits, end_logits))
        spans = _best_spans(starts, ends, begin, length, n_best_size * _SPARE, max_answer_length)
        context = squad.context(question)
        candidates: Dict[str, Candidate] = {}  # by their texts
        for window, first, last in spans:
            if len(candidates) == n_best_size:
                break
            scores = float(starts[window, first - begin[window]]), float(ends[window, last - begin[window]])
            if align_to_words:
                first, last = np.searchsorted(words, words[first]), np.searchsorted(words, words[last], "right") - 1
            begins, stops = int(offsets[first, 0]), with_marks(context, int(offsets[last, 1]))
            text = context[begins:stops]
            candidates.setdefault(text, Candidate(text, 0.0, *scores, begins, stops))
        # A context made only of characters that no tokenizer keeps has no tokens to choose from.
        found = list(candidates.values()) or [Candidate("", 0.0, 0.0, 0.0, 0, 0)]
        if no_answer_threshold is not None:
            lowest = rows.start + int((start_logits[rows, 0] + end_logits[rows, 0]).argmin())
            none = Candidate("", 0.0, float(start_logits[lowest, 0]), float(end_logits[lowest, 0]), 0, 0)
            found = [each for each in found if each.text]
            found.insert(0 if no_answer_odds([none, *found]) > no_answer_threshold else 1, none)
        answers[question.id] = _with_probabilities(found)
    return answers


def no_answer_odds(candidates: Sequence[Candidate]) -> float:
    """Return the score of no answer minus that of the best answer; infinite if there is none."""
    none = next(each for each in candidates if not each.text)
    best = next((each for each in candidates if each.text), None)
    if best is None:
        return math.inf
    return none.start_logit + none.end_logit - (best.start_logit + best.end_logit)


def _with_probabilities(candidates: List[Candidate]) -> List[Candidate]:
    scores = np.array([candidate.start_logit + candidate.end_logit for candidate in candidates])
    weights = np.exp(scores - scores.max())
    probabilities = (weights / weights.sum()).tolist()
    return [candidate._replace(probability=share) for candidate, share in zip(candidates, probabilities)]


def _shown(logits: np.ndarray, length: np.ndarray, column: np.ndarray) -> np.ndarray:
    """Return the scores of the parts of a context that a question's windows show, ``(N, L)``; -inf after their ends."""
    place = np.arange(length.max())
    columns = np.minimum(column[:, None] + place, logits.shape[1] - 1)
    return np.where(place < length[:, None], np.take_along_axis(logits, columns, axis=1), np.float32(-np.inf))


def _best_spans(
    starts: np.ndarray, ends: np.ndarray, begin: np.ndarray, length: np.ndarray, count: int, max_answer_length: int
) -> List[Tuple[int, int, int]]:
    """Return window, first and last token of each window's ``count`` best spans by scores ``(N, L)``, best first."""
    rows, tokens = starts.shape
    if not tokens:
        return []
    starts = np.where(_own(begin, length), starts, -np.inf)
    longest = min(max_answer_length, tokens)
    scores = np.full((rows, longest, tokens), -np.inf, np.float32)  # (N, D, L), scores of spans by length and start
    for more in range(longest):
        scores[:, more, : tokens - more] = starts[:, : tokens - more] + ends[:, more:]
    scores = scores.reshape(rows, longest * tokens)
    count = min(count, scores.shape[1])
    best = np.argpartition(scores, -count, axis=1)[:, -count:]  # (N, K)
    window, chosen = np.nonzero(np.take_along_axis(scores, best, axis=1) > -np.inf)
    longer, first = np.divmod(best[window, chosen], tokens)
    last = first + longer
    score = starts[window, first].astype(np.float64) + ends[window, last].astype(np.float64)
    first, last = first + begin[window], last + begin[window]
    order = np.lexsort((last, first, -score))
    return list(zip(window[order].tolist(), first[order].tolist(), last[order].tolist()))


def _own(begin: np.ndarray, length: np.ndarray) -> np.ndarray:
    """Return whether each window is the first with the most context around each token it shows, ``(N, L)`` bool."""
    place = np.arange(length.max())
    token = begin[:, None] + place  # (N, L)
    shorter = np.minimum(place, length[:, None] - 1 - place)  # side of the context
    around = np.where(shorter >= 0, 100 * shorter + length[:, None], -1)
    window = np.broadcast_to(np.arange(len(begin))[:, None], token.shape)
    most, owner = np.full(token.max() + 1, -1), np.full(token.max() + 1, len(begin))  # by token of the context
    np.maximum.at(most, token, around)
    np.minimum.at(owner, token, np.where((shorter >= 0) & (around == most[token]), window, len(begin)))
    return np.asarray(window == owner[token])
