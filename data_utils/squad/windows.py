"""Tokenises questions and contexts, cuts them into windows that fit the model, and reads windows as rows of ids.

A window is [CLS] question [SEP] part of the context [SEP]. Every text is tokenised and stored once; a window consists
only of its begin and length until it is read as a row of ids, so a data set takes no memory for padding.

C contexts · Q questions · W windows · T tokens of all contexts · U tokens of all questions · N windows asked for ·
S max_seq_length

Source: Devlin et al. 2019, section 4.2; windows overlap as in the program that Google published with it.
"""

from __future__ import annotations

from itertools import chain
from typing import Any, Dict, List, NamedTuple, Sequence, Tuple

import numpy as np
from tokenizers import Tokenizer

from data_utils.records.features import TOKEN_INDEX, Feature, FeatureSpec, fine_tuning_features
from data_utils.squad.examples import SquadSet, answer_position
from data_utils.tokenizer import CLASSIFIER, PADDING, SEPARATOR, Vocabulary

SPECIAL_TOKENS = 3  # [CLS] and two [SEP]
_BATCH = 1024  # number of texts tokenised at a time, which limits the memory of the tokenizer's results


class Geometry(NamedTuple):
    """The sizes of windows, in tokens.

    Attributes:
        max_query_length: longer questions are cut.
        doc_stride: distance between the beginnings of consecutive windows.
    """

    max_seq_length: int
    max_query_length: int
    doc_stride: int


class Texts(NamedTuple):
    """Contexts and questions as tokens, all int32.

    Attributes:
        context_ids: ``(T,)`` pieces of all contexts, one after the other.
        context_starts: ``(C + 1,)`` index in ``context_ids`` at which each context begins, and the end.
        offsets: ``(T, 2)`` positions in the context of each piece's first character and of the one after its last.
        question_ids, question_starts: ``(U,)`` and ``(Q + 1,)``, the same for questions.
        context: ``(Q,)`` number of each question's context.
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
        question: each window's question; the windows of a question follow one another.
        begin: first piece of its part of the context, counted in the context.
        length: number of pieces of its part of the context.
        start, end: columns in the window of the answer's first and last piece; 0, [CLS], if the window does not contain
            the whole answer, or answers were not requested.
    """

    texts: Texts
    question: np.ndarray
    begin: np.ndarray
    length: np.ndarray
    start: np.ndarray
    end: np.ndarray

    @property
    def count(self) -> int:  # type: ignore[override]
        return len(self.question)

    def tokens(self) -> np.ndarray:
        """Return the number of tokens of each window, including special ones."""
        return self.first_column() + self.length + 1

    def first_column(self) -> np.ndarray:
        """Return the column in each window at which its part of the context begins, after [CLS] question [SEP]."""
        return (np.diff(self.texts.question_starts) + 2)[self.question]

    def first_token(self) -> np.ndarray:
        """Return the index in ``texts.context_ids`` and ``texts.offsets`` of the token at ``first_column``."""
        return self.texts.context_starts[self.texts.context[self.question]] + self.begin


def make_windows(squad: SquadSet, tokenizer: Tokenizer, geometry: Geometry, labels: bool) -> Windows:
    """Return all windows of a data set.

    Args:
        labels: whether to locate the first answer of each question, for training; questions without one, or whose
            answer is not in the context, then get no window.
    """
    texts = tokenise(squad, tokenizer, geometry.max_query_length)
    windows = _lay_out(texts, geometry)
    return _labelled(windows, *_answer_tokens(texts, squad)) if labels else windows


def tokenise(squad: SquadSet, tokenizer: Tokenizer, max_query_length: int) -> Texts:
    """Tokenise the texts of a data set, each text once."""
    ids, offsets, counts = [_EMPTY], [_EMPTY], [0]
    for part in _batches([paragraph.context for paragraph in squad.paragraphs]):
        encodings = tokenizer.encode_batch(part, add_special_tokens=False)
        ids.append(_flat(encoding.ids for encoding in encodings))
        offsets.append(_flat(chain.from_iterable(encoding.offsets for encoding in encodings)))
        counts += map(len, encodings)
    questions: List[List[int]] = []
    for part in _batches([question.text for question in squad.questions]):
        encodings = tokenizer.encode_batch_fast(part, add_special_tokens=False)  # faster without offsets
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
    """Return each question's windows, without answers, that together show every token of its context."""
    tokens = np.diff(texts.context_starts)[texts.context]  # (Q,)
    capacity = geometry.max_seq_length - SPECIAL_TOKENS - np.diff(texts.question_starts)  # (Q,)
    assert capacity.min() > 0, "a rule keeps questions shorter than windows"
    stride = np.minimum(geometry.doc_stride, capacity)  # a larger one would skip tokens between windows
    counts = 1 + np.maximum(0, -(-(tokens - capacity) // stride))
    question = np.repeat(np.arange(len(counts), dtype=np.int32), counts)
    number = np.arange(len(question)) - np.repeat(np.cumsum(counts) - counts, counts)
    begin = (number * stride[question]).astype(np.int32)
    length = np.minimum(tokens[question] - begin, capacity[question]).astype(np.int32)
    return Windows(texts, question, begin, length, np.zeros_like(question), np.zeros_like(question))


def _labelled(windows: Windows, first: np.ndarray, last: np.ndarray) -> Windows:
    """Return windows with the answers (Q,); windows of questions without an answer are left out."""
    keep = (first <= last)[windows.question]
    kept = Windows(windows.texts, *(part[keep] for part in windows[1:]))
    start, end = first[kept.question] - kept.begin, last[kept.question] - kept.begin
    inside = (start >= 0) & (end < kept.length)
    columns = (np.where(inside, kept.first_column() + token, 0).astype(np.int32) for token in (start, end))
    return Windows(*kept[:4], *columns)


def _answer_tokens(texts: Texts, squad: SquadSet) -> Tuple[np.ndarray, np.ndarray]:
    """Return first and last token of each question's first answer, as indices in the context; first > last if none.

    The tokens of an answer are those that share a character with it; one search over all contexts together finds them.
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
    """Return the bounds of a question's first answer as [begin, end) characters; (0, 0) if there is none."""
    question = squad.questions[number]
    start = answer_position(squad.context(question), question.answers[0]) if question.answers else None
    return (0, 0) if start is None else (start, start + len(question.answers[0].text))


def squad_features(max_seq_length: int, vocab_size: int, labels: bool = True) -> FeatureSpec:
    """Return the features of windows, with the answer's first and last token if ``labels`` is true."""
    answers = [Feature(name, 1, TOKEN_INDEX, max_seq_length) for name in ("start_positions", "end_positions")]
    return fine_tuning_features(max_seq_length, vocab_size, *(answers if labels else ()))


class WindowReader:
    """Reads windows as samples of :func:`squad_features`, with or without labels."""

    def __init__(self, spec: FeatureSpec, windows: Windows, vocabulary: Vocabulary) -> None:
        self.spec = spec
        self.count = windows.count
        self._windows = windows
        self._special = tuple(vocabulary.piece_id(token) for token in (PADDING, CLASSIFIER, SEPARATOR))
        self._first_column, self._first_token = windows.first_column(), windows.first_token()
        self._length = spec.features[0].length

    def read(self, positions: np.ndarray) -> Dict[str, np.ndarray]:
        """Return the windows at these positions: name → int32 ``(N, S)``, or ``(N, 1)`` for an answer's positions."""
        ids, mask, segments = self._tokens(positions)
        batch = {
            "input_ids": ids,
            "input_mask": mask,
            "segment_ids": segments,
            "start_positions": self._windows.start[positions][:, None],
            "end_positions": self._windows.end[positions][:, None],
        }
        return {feature.name: batch[feature.name] for feature in self.spec.features}

    def _tokens(self, positions: np.ndarray) -> Tuple[np.ndarray, np.ndarray, np.ndarray]:
        windows, texts = self._windows, self._windows.texts
        padding, classifier, separator = self._special
        column = np.arange(self._length, dtype=np.int32)[None]  # (1, S)
        context = self._first_column[positions][:, None]  # (N, 1)
        end = context + windows.length[positions][:, None]  # (N, 1), column of the last [SEP]
        ids = np.full((len(positions), self._length), padding, np.int32)

        rows, columns = np.nonzero((column >= 1) & (column < context - 1))
        begin = texts.question_starts[windows.question[positions]] - 1
        ids[rows, columns] = texts.question_ids[begin[rows] + columns]

        rows, columns = np.nonzero((column >= context) & (column < end))
        begin = self._first_token[positions] - context[:, 0]
        ids[rows, columns] = texts.context_ids[begin[rows] + columns]

        ids[:, 0] = classifier
        np.put_along_axis(ids, context - 1, separator, axis=1)
        np.put_along_axis(ids, end, separator, axis=1)
        mask = (column <= end).astype(np.int32)
        return ids, mask, mask * (column >= context)
