"""Makes sentence pairs for pre-training, segments A and B and whether B follows A in the text, or single segments.

Source: Devlin et al. 2019, section 3.1 (task 2) and appendix A.2; lengths as in the published data preparation. Single
segments: Liu et al. 2019 (arXiv 1907.11692), section 4.2, DOC-SENTENCES.

Segments are ranges of one long token array of the shard; tokens are copied only when records are made. N pairs.
"""

from __future__ import annotations

import bisect
import itertools
import random
from collections.abc import Sequence
from dataclasses import dataclass
from typing import NamedTuple

import numpy as np

SPECIAL_IN_PAIR = 3  # [CLS] A [SEP] B [SEP]
SPECIAL_IN_SINGLE = 2  # [CLS] A [SEP]
NO_SEGMENT = -1  # length of B in a single segment, which also has no [SEP] after B


class Pair(NamedTuple):
    """A pair of segments; each is given by its first and one-past-last sentence in the shard."""

    a: tuple[int, int]
    b: tuple[int, int]
    is_random: bool  # whether B comes from another document (label 1), or follows A (label 0)


def make_pairs(
    sentence_starts: Sequence[int],
    document_starts: Sequence[int],
    max_seq_length: int,
    short_seq_prob: float,
    rng: random.Random,
) -> list[Pair]:
    """Make pairs of about ``max_seq_length - 3`` tokens from the sentences of a shard's documents.

    Half of the pairs are random, where that is possible. The last sentence of a document has no successor, so its pair
    must be random; in return, a later pair is made a true one. If a sentence alone is long enough for a pair, a true
    pair gets the next sentence, too, and both are cut. If the shard has only one document, the random segment comes
    from another part of it, which neither overlaps A nor follows it; where there is none, the pair is a true one, and
    a document of one sentence gives none.

    The starts are the first token of each sentence, and the first sentence of each document, with the end of the last.
    """
    maker = _PairMaker(sentence_starts, document_starts, max_seq_length - SPECIAL_IN_PAIR, short_seq_prob, rng, [])
    for document in range(len(document_starts) - 1):
        maker.add_document(document)
    return maker.pairs


def _below(count: int, rng: random.Random) -> int:
    """Draw a number from 0 to ``count - 1``, several times as fast as ``randrange``."""
    return int(rng.random() * count)


def _draw_target(capacity: int, short_seq_prob: float, rng: random.Random) -> int:
    """Draw the number of tokens to reach: mostly ``capacity``, sometimes fewer."""
    return 2 + _below(capacity - 1, rng) if rng.random() < short_seq_prob else capacity


@dataclass
class _PairMaker:
    """The state of ``make_pairs``: the pairs, and the number of forced random ones that are not balanced yet."""

    starts: Sequence[int]
    documents: Sequence[int]
    capacity: int
    short_seq_prob: float
    rng: random.Random
    pairs: list[Pair]
    forced: int = 0

    def add_document(self, document: int) -> None:
        """Make pairs of sentences of about the target length until the end of the document."""
        first, end = self.documents[document], self.documents[document + 1]
        while first < end:
            target = _draw_target(self.capacity, self.short_seq_prob, self.rng)
            last = self._reach(first, end, target)
            if last == first + 1 < end and self.forced:
                last += 1  # instead of one more forced random pair
            a_end = self._split(first, last)
            random_b = None
            if self._choose_random(last - first):
                tokens = max(target - (self.starts[a_end] - self.starts[first]), 1)
                random_b = self._random_segment(document, first, a_end, tokens)
            if random_b is not None:
                self.pairs.append(Pair((first, a_end), random_b, True))
                first = a_end  # the unused rest is used again
                continue
            if self.forced and last == a_end:
                self.forced -= 1  # not a random pair after all
            last = max(last, min(a_end + 1, end))
            if a_end < last:
                self.pairs.append(Pair((first, a_end), (a_end, last), False))
            first = last

    def _reach(self, first: int, end: int, target: int) -> int:
        """Return one past the last sentence that is needed from ``first`` on to reach ``target`` tokens."""
        limit = self.starts[first] + target
        last = first + 1
        while last < end and self.starts[last] < limit:
            last += 1
        return last

    def _split(self, first: int, last: int) -> int:
        """Draw the end of A, which leaves at least one sentence for A and, if possible, one for B."""
        return first + 1 + _below(last - first - 1, self.rng) if last - first >= 2 else last

    def _choose_random(self, sentences: int) -> bool:
        if sentences == 1:
            self.forced += 1
            return True
        if self.forced:
            self.forced -= 1
            return False
        return self.rng.random() < 0.5

    def _random_segment(self, document: int, first: int, a_end: int, tokens: int) -> tuple[int, int] | None:
        """Return up to ``tokens`` tokens of another document or, if there is none, of sentences but A and the next."""
        count = len(self.documents) - 1
        if count > 1:
            other = _below(count - 1, self.rng)
            other += other >= document
            begin, end = self.documents[other], self.documents[other + 1]
            start = begin + _below(end - begin, self.rng)
            return start, self._reach(start, end, tokens)
        begin, end = self.documents[0], self.documents[1]
        before, after = first - begin, max(end - a_end - 1, 0)  # possible starts before A, and after the next sentence
        if not before + after:
            return None
        place = _below(before + after, self.rng)
        if place < before:
            return begin + place, self._reach(begin + place, first, tokens)
        start = a_end + 1 + place - before
        return start, self._reach(start, end, tokens)


class PairArrays(NamedTuple):
    """Pairs or single segments as arrays (N,): starts and lengths in tokens, and labels."""

    a_start: np.ndarray
    a_length: np.ndarray
    b_start: np.ndarray
    b_length: np.ndarray  # ``NO_SEGMENT`` for single segments
    is_random: np.ndarray


def pair_arrays(pairs: Sequence[Pair], sentence_starts: Sequence[int]) -> PairArrays:
    """Return the pairs of ``make_pairs`` in tokens."""
    sentences = np.array([(*pair.a, *pair.b) for pair in pairs], np.int64).reshape(-1, 4)
    bounds = np.asarray(sentence_starts, np.int64)[sentences]
    labels = np.array([pair.is_random for pair in pairs], np.int64)
    return PairArrays(bounds[:, 0], bounds[:, 1] - bounds[:, 0], bounds[:, 2], bounds[:, 3] - bounds[:, 2], labels)


def make_segments(
    sentence_starts: Sequence[int],
    document_starts: Sequence[int],
    max_seq_length: int,
    short_seq_prob: float,
    rng: random.Random,
) -> PairArrays:
    """Return single segments: as many consecutive sentences of a document as fit, without a next sentence.

    Every token of the text belongs to one segment. A sentence that is longer than a row continues in the next one.
    The arguments are those of :func:`make_pairs`.
    """
    starts: list[int] = []
    lengths: list[int] = []
    for first, last in itertools.pairwise(document_starts):
        start, end = sentence_starts[first], sentence_starts[last]
        while start < end:
            limit = start + _draw_target(max_seq_length - SPECIAL_IN_SINGLE, short_seq_prob, rng)
            stop = sentence_starts[bisect.bisect_right(sentence_starts, limit, first, last + 1) - 1]
            if stop <= start:  # not even one sentence fits
                stop = limit
            starts.append(start)
            lengths.append(stop - start)
            start = stop
    zeros = np.zeros(len(starts), np.int64)
    return PairArrays(np.array(starts, np.int64), np.array(lengths, np.int64), zeros, zeros + NO_SEGMENT, zeros)


def cut_pairs(pairs: PairArrays, capacity: int, rng: np.random.Generator) -> PairArrays:
    """Cut tokens off the longer segment of each pair, randomly at its front or back, down to ``capacity`` tokens.

    Cutting one token at a time off the longer segment (B if they are equal) makes the lengths equal. Each token is cut
    from the front with probability ½, so the number cut there has a binomial distribution.
    """
    a, b = pairs.a_length, pairs.b_length
    excess = np.maximum(a + b - capacity, 0)
    evened = np.minimum(np.abs(a - b), excess)  # cut off the longer one until both are equal
    rest = excess - evened  # then cut off in turn, beginning with B
    a_cut = np.where(a > b, evened, 0) + rest // 2
    b_cut = np.where(a > b, 0, evened) + rest - rest // 2
    return pairs._replace(
        a_start=pairs.a_start + rng.binomial(a_cut, 0.5),
        a_length=a - a_cut,
        b_start=pairs.b_start + rng.binomial(b_cut, 0.5),
        b_length=b - b_cut,
    )
