"""Punkt's parameters learned from texts, unsupervised; to the last count what NLTK's trainer learns, in a fifth of the
time.

Texts are taken one after the other, because what is known from those before decides how the next is read. Each costs
what it is long: the library sums up all counts anew for each.
"""

from __future__ import annotations

import itertools
import math
from collections import Counter, defaultdict
from typing import NamedTuple

from data_utils.text.punkt import (
    ABBREVIATION,
    BEGIN_LOWER,
    BEGIN_UPPER,
    BREAK,
    ELLIPSIS,
    MIDDLE_LOWER,
    MIDDLE_UPPER,
    NUMBER,
    PLAIN,
    UNKNOWN_LOWER,
    UNKNOWN_UPPER,
    Parameters,
    Word,
    words_of,
)

ABBREVIATION_SCORE = 0.3
RARE = 5  # an abbreviation seen less often is found by what follows it
COLLOCATION_SCORE = 7.88
STARTER_SCORE = 30
INSIDE_SENTENCE = ",:;"

MIDDLE, UNKNOWN, BEGIN = range(3)  # where in its sentence a word stands
_UPPER = (MIDDLE_UPPER, UNKNOWN_UPPER, BEGIN_UPPER)
_LOWER = (MIDDLE_LOWER, UNKNOWN_LOWER, BEGIN_LOWER)


class _Pair(NamedTuple):
    """A word whose full stop may end a sentence, and the one behind it."""

    word: Word
    after: Word
    kind_after: int


class Trainer:
    """Learns from one text after the other.

    Example:
        >>> trainer = Trainer()
        >>> trainer.add("Some text.")
        >>> trainer.parameters().abbreviations
        set()
    """

    def __init__(self) -> None:
        self._types: Counter[str] = Counter()
        self._words = self._full_stops = self._breaks = 0
        self._abbreviations: set[str] = set()
        self._orthography: dict[str, int] = defaultdict(int)
        self._starters: Counter[str] = Counter()
        self._collocations: Counter[tuple[str, str]] = Counter()

    def add(self, text: str) -> None:
        """Reads a text: a line may begin a sentence, one behind an empty line does."""
        lines: list[list[Word]] = []
        after_gap: set[int] = set()
        for line in text.split("\n"):
            if line.strip():
                lines.append(words_of(line))
            else:
                after_gap.add(len(lines))
        seen = Counter(itertools.chain.from_iterable(lines))
        for word, count in seen.items():
            self._types[word.type] += count
            self._words += count
            self._full_stops += count * word.ends
        for word in {word.type: word for word in seen}.values():
            self._classify(word)
        for pair in self._read(lines, after_gap):
            self._look_at(pair)

    def _classify(self, word: Word) -> None:
        """3.1: abbreviations among the types of a text, and those that no longer are."""
        name = word.type
        if not word.has_letter or name == NUMBER:
            return
        is_new = name.endswith(".")
        if is_new == (name in self._abbreviations):
            return
        name = name[:-1] if is_new else name
        stops = name.count(".") + 1
        others = len(name) - stops + 1
        with_stop, without = self._types[name + "."], self._types[name]
        score = _abbreviation_likelihood(with_stop + without, self._full_stops, with_stop, self._words)
        score *= math.exp(-others) * stops * math.pow(others, -without)
        if score >= ABBREVIATION_SCORE:
            if is_new:
                self._abbreviations.add(name)
        elif not is_new:
            self._abbreviations.remove(name)

    def _read(self, lines: list[list[Word]], after_gap: set[int]) -> list[_Pair]:
        """Notes where words stand in sentences; finds the pairs around full stops."""
        pairs: list[_Pair] = []
        inside: set[Word] = set()  # words within sentences, which are most
        place, last = MIDDLE, None
        for number, words in enumerate(lines):
            if number in after_gap and place == MIDDLE:
                place = BEGIN
            elif place == MIDDLE:
                place = UNKNOWN
            for word in words:
                kind = word.kind
                if kind == PLAIN and place == MIDDLE:
                    inside.add(word)
                    continue
                if kind is None:
                    kind = word.kind_with(self._abbreviations)
                if last is not None:
                    pairs.append(_Pair(last, word, kind))
                self._note(word.bare if kind == BREAK else word.type, word, place)
                if kind == BREAK:
                    self._breaks += 1
                    place = UNKNOWN if word.is_number or word.is_initial else BEGIN
                else:
                    place = UNKNOWN if kind in (ELLIPSIS, ABBREVIATION) else MIDDLE
                last = word if word.ends and kind == BREAK else None
        for word in inside:
            self._note(word.type, word, MIDDLE)
        return pairs

    def _note(self, name: str, word: Word, place: int) -> None:
        if word.is_lower:
            self._orthography[name] |= _LOWER[place]
        elif word.is_upper:
            self._orthography[name] |= _UPPER[place]

    def _look_at(self, pair: _Pair) -> None:
        word, after, kind_after = pair
        next_type = after.bare if kind_after == BREAK else after.type
        if self._is_rare_abbreviation(word, after, next_type):
            self._abbreviations.add(word.bare)
        if word.is_number or word.is_initial:
            if word.has_letter and after.has_letter:
                self._collocations[word.bare, next_type] += 1
        elif after.is_alphabetic:
            self._starters[after.type] += 1

    def _is_rare_abbreviation(self, word: Word, after: Word, next_type: str) -> bool:
        name = word.bare
        if name in self._abbreviations or self._types[name] + self._types[name[:-1]] >= RARE:
            return False
        if after.text[:1] in INSIDE_SENTENCE:
            return True
        seen = self._orthography.get(next_type, 0)
        return bool(after.is_lower and seen & BEGIN_UPPER and not seen & MIDDLE_UPPER)

    def parameters(self) -> Parameters:
        """What was learned."""
        starters = {name for name, count in self._starters.items() if self._starts_sentences(name, count)}
        collocations = {
            names
            for names, count in self._collocations.items()
            if names[1] not in starters and self._go_together(*names, count)
        }
        return Parameters(set(self._abbreviations), collocations, starters, dict(self._orthography))

    def _count(self, name: str) -> int:
        return self._types[name] + self._types[name + "."]

    def _starts_sentences(self, name: str, at_break: int) -> bool:
        count = self._count(name)
        if count < at_break:
            return False
        score = _likelihood(self._breaks, count, at_break, self._words)
        return score >= STARTER_SCORE and self._words / self._breaks > count / at_break

    def _go_together(self, first: str, second: str, together: int) -> bool:
        one, two = self._count(first), self._count(second)
        if not (one > 1 and two > 1 and 1 < together <= min(one, two)):
            return False
        score = _likelihood(one, two, together, self._words)
        return score >= COLLOCATION_SCORE and self._words / one > two / together


def _abbreviation_likelihood(count: int, stops: int, together: int, words: int) -> float:
    """Dunning's log-likelihood ratio, modified: how much rather word and full stop are one than two."""
    share = stops / words
    apart = together * math.log(share + 1e-8) + (count - together) * math.log(1.0 - share + 1e-8)
    one = together * math.log(0.99) + (count - together) * math.log(1.0 - 0.99)
    return -2.0 * (apart - one)


def _likelihood(first: int, second: int, together: int, words: int) -> float:
    """Dunning's log-likelihood ratio of two things counted alone and together (algorithms 6 and 7)."""
    share = second / words
    with_first = together / first
    without = (second - together) / (words - first) if words != first else 1.0
    ratio = _binomial(share, together, first) + _binomial(share, second - together, words - first)
    if first != together and 0 < with_first < 1:
        ratio -= _binomial(with_first, together, first)
    if second != together and 0 < without < 1:
        ratio -= _binomial(without, second - together, words - first)
    return -2.0 * ratio


def _binomial(share: float, hits: int, trials: int) -> float:
    """Log of ``share ** hits * (1 - share) ** (trials - hits)``; 0 where a logarithm has no value."""
    if not 0 < share < 1:
        return 0.0
    return hits * math.log(share) + (trials - hits) * math.log(1.0 - share)
