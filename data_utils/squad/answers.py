"""Turns a model's token scores into the best answers to every question, cut out of the context's text.

An answer's score is the score of its first token as a start plus that of its last token as an end. All spans of at most
``max_answer_length`` tokens are compared, and every question gets an answer. If several windows of a question show a
token, only the window with the most context around it may begin an answer there.

W windows · N windows at a time · S tokens of a window · K best spans of a window · D longest answer

Source: Devlin et al. 2019, section 4.2, and the program that Google published with it.
"""

from __future__ import annotations

import unicodedata
from typing import Dict, List, NamedTuple, Set, Tuple

import numpy as np

from data_utils.squad.examples import SquadSet
from data_utils.squad.windows import Windows
from utilities.errors import UserError

_WINDOWS_AT_A_TIME = 256  # limits the memory of comparing all spans
_SPARE = 3  # factor on the number of spans to keep, because different spans may have the same text


class Candidate(NamedTuple):
    """A possible answer.

    Attributes:
        probability: softmax over the scores of the question's candidates.
        begin, end: positions in the context of its first character and of the one after its last.
    """

    text: str
    probability: float
    start_logit: float
    end_logit: float
    begin: int
    end: int


class Spans(NamedTuple):
    """The best spans of all windows, best first for each question; arrays of one length.

    Attributes:
        question: int32, ascending.
        first, last: int64, tokens in ``texts.offsets``.
        start_logit, end_logit: float64.
    """

    question: np.ndarray
    first: np.ndarray
    last: np.ndarray
    start_logit: np.ndarray
    end_logit: np.ndarray


def best_answers(
    squad: SquadSet,
    windows: Windows,
    start_logits: np.ndarray,
    end_logits: np.ndarray,
    n_best_size: int,
    max_answer_length: int,
) -> Dict[str, List[Candidate]]:
    """Return the best answers to each question, best first; at least one.

    Args:
        start_logits, end_logits: ``(W, S)`` scores of each token as an answer's start and end.
        n_best_size: maximum number of candidates for a question; their texts differ.
        max_answer_length: maximum number of tokens of an answer.

    Raises:
        UserError: the scores are not finite.
    """
    if not (np.isfinite(start_logits).all() and np.isfinite(end_logits).all()):
        raise UserError("the model's scores are not finite numbers; its weights are damaged: take another checkpoint")
    spans = _best_spans(windows, start_logits, end_logits, n_best_size * _SPARE, max_answer_length)
    bounds = np.searchsorted(spans.question, np.arange(len(squad.questions) + 1))
    offsets = windows.texts.offsets
    begins, ends = offsets[spans.first, 0].tolist(), offsets[spans.last, 1].tolist()
    starts, stops = spans.start_logit.tolist(), spans.end_logit.tolist()
    answers = {}
    for number, question in enumerate(squad.questions):
        context = squad.context(question)
        seen: Set[str] = set()
        candidates: List[Candidate] = []
        for span in range(bounds[number], bounds[number + 1]):
            if len(candidates) == n_best_size:
                break
            begin, end = begins[span], _with_marks(context, ends[span])
            text = context[begin:end]
            if text not in seen:
                seen.add(text)
                candidates.append(Candidate(text, 0.0, starts[span], stops[span], begin, end))
        # A context made only of characters that no tokenizer keeps has no tokens to choose from.
        answers[question.id] = _with_probabilities(candidates or [Candidate("", 0.0, 0.0, 0.0, 0, 0)])
    return answers


def _with_marks(context: str, end: int) -> int:
    """Return the end of an answer including its last letter's accents, which tokens of lower-cased text lack."""
    while end < len(context) and unicodedata.category(context[end]) == "Mn":
        end += 1
    return end


def _with_probabilities(candidates: List[Candidate]) -> List[Candidate]:
    scores = np.array([candidate.start_logit + candidate.end_logit for candidate in candidates])
    weights = np.exp(scores - scores.max())
    probabilities = (weights / weights.sum()).tolist()
    return [candidate._replace(probability=share) for candidate, share in zip(candidates, probabilities)]


def _best_spans(
    windows: Windows, start_logits: np.ndarray, end_logits: np.ndarray, count: int, max_answer_length: int
) -> Spans:
    """Return the ``count`` best spans of each window by question, best first; equal ones in the context's order."""
    parts: List[Spans] = []
    for begin in range(0, windows.count, _WINDOWS_AT_A_TIME):
        chosen = np.arange(begin, min(begin + _WINDOWS_AT_A_TIME, windows.count))
        window, first, last = _best_columns(windows, chosen, start_logits, end_logits, count, max_answer_length)
        shift = windows.first_token()[window] - windows.first_column()[window]
        start = start_logits[window, first].astype(np.float64)
        end = end_logits[window, last].astype(np.float64)
        parts.append(Spans(windows.question[window], shift + first, shift + last, start, end))
    spans = Spans(*(np.concatenate(part) for part in zip(*parts)))
    order = np.lexsort((spans.last, spans.first, -(spans.start_logit + spans.end_logit), spans.question))
    return Spans(*(part[order] for part in spans))


def _best_columns(
    windows: Windows,
    chosen: np.ndarray,
    start_logits: np.ndarray,
    end_logits: np.ndarray,
    count: int,
    max_answer_length: int,
) -> Tuple[np.ndarray, np.ndarray, np.ndarray]:
    """Return windows, first and last columns of the best spans of the ``chosen`` (N,) windows, in any order."""
    context, own = _context_columns(windows, chosen, start_logits.shape[1])
    starts = np.where(own, start_logits[chosen], -np.inf).astype(np.float32)  # (N, S)
    ends = np.where(context, end_logits[chosen], -np.inf).astype(np.float32)
    rows, columns = starts.shape
    longest = min(max_answer_length, columns)
    scores = np.full((rows, longest, columns), -np.inf, np.float32)  # (N, D, S), scores of spans by length and start
    for more in range(longest):
        scores[:, more, : columns - more] = starts[:, : columns - more] + ends[:, more:]
    scores = scores.reshape(rows, longest * columns)
    count = min(count, scores.shape[1])
    best = np.argpartition(scores, -count, axis=1)[:, -count:]  # (N, K)
    possible = np.take_along_axis(scores, best, axis=1) > -np.inf
    window = np.broadcast_to(chosen[:, None], best.shape)[possible]
    longer, first = np.divmod(best[possible], columns)
    return window, first, first + longer


def _context_columns(windows: Windows, chosen: np.ndarray, columns: int) -> Tuple[np.ndarray, np.ndarray]:
    """Return which columns are context, and in which of them no other window shows more context; (N, S) bool."""
    token = np.arange(columns)[None] - windows.first_column()[chosen][:, None] + windows.begin[chosen][:, None]
    context = _shows(windows, chosen, token)
    around = _shown_around(windows, chosen, token)
    own = context.copy()
    for step in (-1, 1):
        other = chosen + step
        while True:
            same = (other >= 0) & (other < windows.count)
            other = np.clip(other, 0, windows.count - 1)
            same &= windows.question[other] == windows.question[chosen]
            both = context & same[:, None] & _shows(windows, other, token)
            if not both.any():
                break
            theirs = _shown_around(windows, other, token)
            own &= ~both | (around > theirs if step < 0 else around >= theirs)  # of equal windows, the first
            other = other + step
    return context, own


def _shows(windows: Windows, chosen: np.ndarray, token: np.ndarray) -> np.ndarray:
    """Return whether windows show tokens (N, S) of the context."""
    begin, length = windows.begin[chosen][:, None], windows.length[chosen][:, None]
    return (token >= begin) & (token < begin + length)


def _shown_around(windows: Windows, chosen: np.ndarray, token: np.ndarray) -> np.ndarray:
    """Return the amount of context around tokens (N, S): 100 × the shorter side + the window's length."""
    begin, length = windows.begin[chosen][:, None], windows.length[chosen][:, None]
    shorter = np.minimum(token - begin, begin + length - 1 - token)
    return 100 * shorter + length
