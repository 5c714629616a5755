"""Tokenises questions and contexts, cuts contexts into windows that fit the model, and reads windows as rows of ids.

A window is [CLS] question [SEP] part of the context [SEP]. Every text is tokenised and stored once; a window is its
place in its context until it is read, so a data set takes no memory for padding.

Q questions · W windows · T tokens of a context · N windows asked for · S max_seq_length

Source: Devlin et al. 2019, section 4.2; windows overlap as in the program that Google published with it.
"""

from __future__ import annotations

from typing import Dict, Iterator, List, NamedTuple, Tuple

import numpy as np
from tokenizers import Encoding, Tokenizer

from data_utils.records.features import TOKEN_INDEX, Feature, FeatureSpec, fine_tuning_features
from data_utils.squad.examples import SquadSet, answer_position
from data_utils.tokenizer import Vocabulary
from data_utils.tokenizer_files import CLASSIFIER, PADDING, SEPARATOR

SPECIAL_IN_WINDOW = 3  # [CLS] and two [SEP]
_BATCH = 1024  # texts tokenised at a time


class Geometry(NamedTuple):
    max_seq_length: int
    max_query_length: int  # longer questions are cut
    doc_stride: int  # between the beginnings of consecutive windows


class Context(NamedTuple):
    """A context as tokens, all int32."""

    ids: np.ndarray  # (T,)
    offsets: np.ndarray  # (T, 2) positions in the text of each piece's first character and of the one after its last
    words: np.ndarray  # (T,) the number of the word that each piece is of


class Windows(NamedTuple):
    """The windows of a data set, those of a question after one another; arrays are int32 ``(W,)``.

    The columns ``start`` and ``end`` are those of the answer's first and last piece; 0, [CLS], if the window does not
    contain the whole answer, or answers were not requested.
    """

    contexts: List[Context]
    questions_cut: int  # number of questions that were longer than ``max_query_length``
    asked: List[Tuple[int, List[int]]]  # the number of its context, and the pieces, of each of Q questions
    question: np.ndarray
    begin: np.ndarray  # first piece of its part of the context, counted in the context
    length: np.ndarray  # number of pieces of its part of the context
    first_column: np.ndarray  # at which its part of the context begins, after [CLS] question [SEP]
    start: np.ndarray
    end: np.ndarray

    @property
    def count(self) -> int:  # type: ignore[override]
        return len(self.question)

    def tokens(self) -> np.ndarray:
        """Return the number of tokens of each window, including special ones."""
        return self.first_column + self.length + 1

    def context(self, question: int) -> Context:
        return self.contexts[self.asked[question][0]]


def make_windows(
    squad: SquadSet, tokenizer: Tokenizer, geometry: Geometry, labels: bool, unanswerable: bool = False
) -> Windows:
    """Return all windows of a data set.

    Args:
        labels: whether to locate the first answer of each question, for training; questions without one, or whose
            answer is not in the context, then get no window.
        unanswerable: whether questions without an answer are impossible, and their windows are labelled with [CLS].
    """
    contexts = [
        Context(
            np.array(encoding.ids, np.int32),
            np.array(encoding.offsets, np.int32).reshape(-1, 2),
            np.array(encoding.word_ids, np.int32),
        )
        for encoding in _encoded(tokenizer, [paragraph.context for paragraph in squad.paragraphs])
    ]
    whole = [encoding.ids for encoding in _encoded(tokenizer, [question.text for question in squad.questions])]
    asked = [(each.paragraph, ids[: geometry.max_query_length]) for each, ids in zip(squad.questions, whole)]
    cut = sum(len(ids) > geometry.max_query_length for ids in whole)
    windows: List[Tuple[int, ...]] = []
    for number, (paragraph, ids) in enumerate(asked):
        context, column = contexts[paragraph], len(ids) + 2
        is_located = labels and not (unanswerable and not squad.questions[number].answers)
        first, last = _answer_tokens(squad, number, context) if is_located else (0, 0)
        if first > last:
            continue
        capacity = geometry.max_seq_length - SPECIAL_IN_WINDOW - len(ids)
        assert capacity > 0, "a rule keeps questions shorter than windows"
        stride = min(geometry.doc_stride, capacity)  # a larger one would skip tokens between windows
        for begin in range(0, max(0, len(context.ids) - capacity) + stride, stride):
            length = min(len(context.ids) - begin, capacity)
            inside = is_located and begin <= first and last < begin + length
            answer = (column + first - begin, column + last - begin) if inside else (0, 0)
            windows.append((number, begin, length, column, *answer))
    return Windows(contexts, cut, asked, *np.array(windows, np.int32).reshape(-1, 6).T)


def _encoded(tokenizer: Tokenizer, texts: List[str]) -> Iterator[Encoding]:
    """Yield the encodings of texts, of which only some exist at a time because they take much memory."""
    for first in range(0, len(texts), _BATCH):
        yield from tokenizer.encode_batch(texts[first : first + _BATCH], add_special_tokens=False)


def _answer_tokens(squad: SquadSet, number: int, context: Context) -> Tuple[int, int]:
    """Return the first and last token that share a character with a question's first answer; first > last if none."""
    question = squad.questions[number]
    start = answer_position(squad.context(question), question.answers[0]) if question.answers else None
    if start is None:
        return 0, -1
    first = np.searchsorted(context.offsets[:, 1], start, side="right")
    last = np.searchsorted(context.offsets[:, 0], start + len(question.answers[0].text), side="left") - 1
    return int(first), int(last)


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
        self._tokens = windows.tokens()
        self._special = tuple(vocabulary.piece_id(token) for token in (PADDING, CLASSIFIER, SEPARATOR))

    def read(self, positions: np.ndarray) -> Dict[str, np.ndarray]:
        """Return the windows at these positions: name → int32 ``(N, S)``, or ``(N, 1)`` for an answer's positions."""
        windows, (padding, classifier, separator) = self._windows, self._special
        tokens, first_column = self._tokens[positions][:, None], windows.first_column[positions][:, None]
        column = np.arange(self.spec.features[0].length)[None]  # (1, S)
        ids = np.full((len(positions), column.size), padding, np.int32)
        for row, position in enumerate(positions):
            paragraph, asked = windows.asked[windows.question[position]]
            begin, length = windows.begin[position], windows.length[position]
            part = windows.contexts[paragraph].ids[begin : begin + length]
            ids[row, : tokens[row, 0]] = [classifier, *asked, separator, *part, separator]
        mask = (column < tokens).astype(np.int32)
        batch = {
            "input_ids": ids,
            "input_mask": mask,
            "segment_ids": mask * (column >= first_column),
            "start_positions": windows.start[positions][:, None],
            "end_positions": windows.end[positions][:, None],
        }
        return {feature.name: batch[feature.name] for feature in self.spec.features}
