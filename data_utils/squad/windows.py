"""Questions and contexts as tokens, and the windows over them that a model can see at once.

A window is [CLS] question [SEP] part of the context [SEP]. Every text is tokenised once and kept once; a window is only
where it begins and ends, and becomes a row of ids when it is read (:mod:`data_utils.squad.reader`).

Shapes: C contexts, Q questions, W windows, T tokens of all contexts, U of all questions.
Source: Devlin et al. 2019, section 4.2; windows overlap as in the program that Google published beside it.
"""

from __future__ import annotations

from itertools import chain
from typing import Any, List, NamedTuple, Sequence, Tuple

import numpy as np
from tokenizers import Tokenizer

from data_utils.squad.examples import SquadSet, place_of_answer

SPECIAL_TOKENS = 3  # [CLS] and two [SEP]
_BATCH = 1024  # texts tokenised at a time: bounds the memory of the tokenizer's results


class Geometry(NamedTuple):
    """The sizes of windows, in tokens.

    Attributes:
        max_seq_length: of a window.
        max_query_length: of a question; what is longer is cut off.
        doc_stride: by how far the next window begins after the one before.
    """

    max_seq_length: int
    max_query_length: int
    doc_stride: int


class Texts(NamedTuple):
    """Contexts and questions as tokens, all int32.

    Attributes:
        context_ids: ``(T,)`` pieces of all contexts, one after the other.
        context_starts: ``(C + 1,)`` where each context begins in ``context_ids``, and the end.
        offsets: ``(T, 2)`` first character of each piece in its context, and the one behind its last.
        question_ids: ``(U,)`` pieces of all questions, cut to the longest allowed.
        question_starts: ``(Q + 1,)`` as ``context_starts``.
        context: ``(Q,)`` which context a question is about.
    """

    context_ids: np.ndarray
    context_starts: np.ndarray
    offsets: np.ndarray
    question_ids: np.ndarray
    question_starts: np.ndarray
    context: np.ndarray


class Windows(NamedTuple):
    """Windows over texts; every array is int32 ``(W,)``.

    Attributes:
        texts: what they show.
        question: each window's question; the windows of a question follow one another.
        begin: first piece of its part of the context, counted in the context.
        length: pieces of its part of the context.
        start, end: places in the window of the answer's first and last piece; 0, [CLS], where the window does not have
            the whole answer, or answers were not asked for.
    """

    texts: Texts
    question: np.ndarray
    begin: np.ndarray
    length: np.ndarray
    start: np.ndarray
    end: np.ndarray

    @property
    def count(self) -> int:
        """W."""
        return len(self.question)

    def tokens(self) -> np.ndarray:
        """Tokens of each window, special ones included."""
        return self.first_column() + self.length + 1

    def first_column(self) -> np.ndarray:
        """The place in each window of its part of the context: behind [CLS] question [SEP]."""
        return (np.diff(self.texts.question_starts) + 2)[self.question]

    def first_token(self) -> np.ndarray:
        """The index in ``texts.context_ids`` and ``texts.offsets`` of what stands at ``first_column``."""
        return self.texts.context_starts[self.texts.context[self.question]] + self.begin


def make_windows(squad: SquadSet, tokenizer: Tokenizer, geometry: Geometry, labels: bool) -> Windows:
    """All windows of a data set.

    Args:
        squad: the data set.
        tokenizer: BERT's.
        geometry: sizes.
        labels: place the first answer of each question, for training; questions that have none, or whose answer the
            context does not have, get no window.
    """
    texts = tokenise(squad, tokenizer, geometry.max_query_length)
    windows = _lay_out(texts, geometry)
    return _labelled(windows, *_answer_tokens(texts, squad)) if labels else windows


def tokenise(squad: SquadSet, tokenizer: Tokenizer, max_query_length: int) -> Texts:
    """The texts of a data set as tokens, each text once."""
    ids, offsets, counts = [_EMPTY], [_EMPTY], [0]
    for part in _batches([paragraph.context for paragraph in squad.paragraphs]):
        encodings = tokenizer.encode_batch(part, add_special_tokens=False)
        ids.append(_flat(encoding.ids for encoding in encodings))
        offsets.append(_flat(chain.from_iterable(encoding.offsets for encoding in encodings)))
        counts += map(len, encodings)
    questions: List[List[int]] = []
    for part in _batches([question.text for question in squad.questions]):
        encodings = tokenizer.encode_batch_fast(part, add_special_tokens=False)  # fast: without offsets
        questions += [encoding.ids[:max_query_length] for encoding in encodings]
    return Texts(
        np.concatenate(ids),
        np.cumsum(counts, dtype=np.int32),
        np.concatenate(offsets).reshape(-1, 2),
        _flat(questions),
        np.cumsum([0, *map(len, questions)], dtype=np.int32),
        np.array([question.paragraph for question in squad.questions], np.int32),
    )


_EMPTY = np.zeros(0, np.int32)


def _batches(texts: List[str]) -> List[List[str]]:
    return [texts[first : first + _BATCH] for first in range(0, len(texts), _BATCH)]


def _flat(values: Any) -> np.ndarray:
    return np.fromiter(chain.from_iterable(values), np.int32)


def _lay_out(texts: Texts, geometry: Geometry) -> Windows:
    """The windows of each question, unlabelled: as many as it takes to see every token of its context."""
    tokens = np.diff(texts.context_starts)[texts.context]  # (Q,)
    room = geometry.max_seq_length - SPECIAL_TOKENS - np.diff(texts.question_starts)  # (Q,)
    assert room.min() > 0, "a rule keeps questions shorter than windows"
    stride = np.minimum(geometry.doc_stride, room)  # a larger one would leave tokens between windows unseen
    counts = 1 + np.maximum(0, -(-(tokens - room) // stride))
    question = np.repeat(np.arange(len(counts), dtype=np.int32), counts)
    number = np.arange(len(question)) - np.repeat(np.cumsum(counts) - counts, counts)
    begin = (number * stride[question]).astype(np.int32)
    length = np.minimum(tokens[question] - begin, room[question]).astype(np.int32)
    return Windows(texts, question, begin, length, np.zeros_like(question), np.zeros_like(question))


def _labelled(windows: Windows, first: np.ndarray, last: np.ndarray) -> Windows:
    """Windows with the answers (Q,); those of questions without one are left out."""
    keep = (first <= last)[windows.question]
    kept = Windows(windows.texts, *(part[keep] for part in windows[1:]))
    start, end = first[kept.question] - kept.begin, last[kept.question] - kept.begin
    inside = (start >= 0) & (end < kept.length)
    places = (np.where(inside, kept.first_column() + place, 0).astype(np.int32) for place in (start, end))
    return Windows(*kept[:4], *places)


def _answer_tokens(texts: Texts, squad: SquadSet) -> Tuple[np.ndarray, np.ndarray]:
    """First and last token of each question's first answer, counted in the context; first > last: it has none.

    The tokens of an answer are all that share a character with it. One search finds them in all contexts, laid end to
    end.
    """
    lengths = [len(paragraph.context) for paragraph in squad.paragraphs]
    before = np.cumsum([0, *lengths], dtype=np.int64)[:-1]  # (C,) characters before each context
    characters = texts.offsets + np.repeat(before, np.diff(texts.context_starts))[:, None]  # (T, 2)
    spans = np.array([_answer_characters(squad, number) for number in range(len(squad.questions))], np.int64)  # (Q, 2)
    missing = spans[:, 1] == 0
    spans += before[texts.context][:, None]
    first = np.searchsorted(characters[:, 1], spans[:, 0], side="right")
    last = np.searchsorted(characters[:, 0], spans[:, 1], side="left") - 1
    last[missing] = first[missing] - 1
    begin = texts.context_starts[texts.context]
    return first - begin, last - begin


def _answer_characters(squad: SquadSet, number: int) -> Sequence[int]:
    """The first character of a question's first answer, and the one behind its last; (0, 0) for none."""
    question = squad.questions[number]
    place = place_of_answer(squad.context(question), question.answers[0]) if question.answers else None
    return (0, 0) if place is None else (place, place + len(question.answers[0].text))
