"""Punkt's splitting of text into sentences, decision for decision that of NLTK, several times as fast.

NLTK makes an object of every word and passes every pattern through a guard; here a word is looked at once, however
often it occurs. Kiss and Strunk 2006, "Unsupervised Multilingual Sentence Boundary Detection"; numbers in comments are
its sections.
"""

from __future__ import annotations

import functools
from collections.abc import Iterator
from typing import NamedTuple

# Not ``re``: the two differ in which characters are letters, and NLTK uses this one.
import regex

# Where a word was seen, by the case of its first letter: begin of a sentence, within, or one cannot tell.
BEGIN_UPPER, MIDDLE_UPPER, UNKNOWN_UPPER, BEGIN_LOWER, MIDDLE_LOWER, UNKNOWN_LOWER = (1 << bit for bit in range(1, 7))
UPPER = BEGIN_UPPER | MIDDLE_UPPER | UNKNOWN_UPPER
LOWER = BEGIN_LOWER | MIDDLE_LOWER | UNKNOWN_LOWER

NUMBER = "##number##"
END_MARKS = (".", "?", "!")
PUNCTUATION = tuple(";:,.!?")
WORDS_KEPT = 1 << 17
WHITE_SPACE = " \t\n\r\x0b\x0c"

_NOT_IN_WORD = r"""(?:[)\";}\]\*:@\'\({\[\u2018\u2019\u201c\u201d\xab\xbb?!])"""
_RUN = r"(?:\-{2,}|\.{2,}|(?:\.\s){2,}\.)"  # dashes, an ellipsis
_WORD = regex.compile(
    rf"""(
        {_RUN}
        | (?=[^\(\"\`{{\[:;&\#\*@\)}}\]\-,])\S+?(?=\s|$|{_NOT_IN_WORD}|{_RUN}|,(?=$|\s|{_NOT_IN_WORD}|{_RUN}))
        | \S
    )""",
    regex.VERBOSE,
)
# What makes words depend on more than what stands between two blanks: an ellipsis with blanks in it, and characters
# that are blanks to Python alone.
_ACROSS_BLANKS = regex.compile(r"\.\s\.|[\x1c-\x1f]")
_MARK = regex.compile(rf"[.?!](?=(?P<after>{_NOT_IN_WORD}|\s+(?P<next>\S+)))")
_CLOSING = regex.compile(r"""["\')\]}\u2018\u2019\u201c\u201d\xab\xbb]+?(?:\s+|(?=--)|$)""", regex.MULTILINE)
_NUMERIC = regex.compile(r"^-?[\.,]?\d[\d,\.-]*\.?$")
_INITIAL = regex.compile(r"[^\W\d]\.$")
_ALPHABETIC = regex.compile(r"[^\W\d]+$")
_LETTER = regex.compile(r"[^\W\d]")
_ELLIPSIS = regex.compile(r"\.\.+$")

PLAIN, BREAK, ELLIPSIS, ABBREVIATION = range(4)  # what a word is by itself


class Parameters(NamedTuple):
    """What training learns.

    Attributes:
        abbreviations: types without their full stop.
        collocations: pairs of types that a sentence does not end between, whatever stands there.
        starters: types that often begin a sentence.
        orthography: type → where it was seen, an or of ``BEGIN_UPPER`` and the like.
    """

    abbreviations: set[str]
    collocations: set[tuple[str, str]]
    starters: set[str]
    orthography: dict[str, int]

    @classmethod
    def empty(cls) -> Parameters:
        """Nothing learned."""
        return cls(set(), set(), set(), {})


class Word:
    """A word, and all that can be said of it alone.

    Attributes:
        text: as it stands.
        type: lower-cased, numbers all the same.
        bare: the type without a full stop at its end.
        ends: whether a full stop does.
        kind: ``PLAIN``, ``BREAK`` or ``ELLIPSIS``; None where it follows from the abbreviations.
        stem, tail: what is an abbreviation if ``kind`` is None: all but the full stop, and that behind the last hyphen.
    """

    __slots__ = (
        "bare", "ends", "has_letter", "is_alphabetic", "is_initial", "is_lower", "is_number", "is_punctuation",
        "is_upper", "kind", "stem", "tail", "text", "type",
    )  # fmt: skip

    def __init__(self, text: str):
        self.text = text
        self.is_upper, self.is_lower = text[0].isupper(), text[0].islower()
        self.kind: int | None = PLAIN
        if text.isalpha():  # most are, and need no pattern
            self.type = self.bare = self.stem = self.tail = text.lower()
            self.is_alphabetic = self.has_letter = True
            self.ends = self.is_number = self.is_initial = self.is_punctuation = False
            return
        self.type = _NUMERIC.sub(NUMBER, text.lower())
        self.bare = self.type[:-1] if len(self.type) > 1 and self.type[-1] == "." else self.type
        self.ends = text.endswith(".")
        self.stem = text[:-1].lower()
        self.tail = self.stem.split("-")[-1]
        self.is_number = self.type.startswith(NUMBER)
        self.is_initial = _INITIAL.match(text) is not None
        self.is_alphabetic = _ALPHABETIC.match(text) is not None
        self.has_letter = _LETTER.search(self.type) is not None
        self.is_punctuation = text in PUNCTUATION
        if text in END_MARKS:
            self.kind = BREAK
        elif _ELLIPSIS.match(text):
            self.kind = ELLIPSIS
        elif self.ends and not text.endswith(".."):
            self.kind = None

    def kind_with(self, abbreviations: set[str]) -> int:
        """What the word is, given the abbreviations."""
        if self.kind is not None:
            return self.kind
        return ABBREVIATION if self.stem in abbreviations or self.tail in abbreviations else BREAK


_word = functools.lru_cache(maxsize=WORDS_KEPT)(Word)


@functools.lru_cache(maxsize=WORDS_KEPT)
def _words_between_blanks(text: str) -> tuple[Word, ...]:
    return (_word(text),) if text.isalpha() else tuple(map(_word, _WORD.findall(text)))


def words_of(line: str) -> list[Word]:
    """Words and punctuation marks of a line; a full stop belongs to the word before it."""
    if _ACROSS_BLANKS.search(line):
        return [_word(text) for part in line.split("\n") if part.strip() for text in _WORD.findall(part)]
    return [word for part in line.split() for word in _words_between_blanks(part)]


def split(text: str, parameters: Parameters) -> Iterator[str]:
    """The sentences of a text, as they stand in it.

    Example:
        >>> list(split("It rains. We stay.", Parameters.empty()))
        ['It rains.', 'We stay.']
    """
    shift = 0  # what the sentence before took from the begin of this one: closing quotes and brackets
    bounds = list(_bounds(text, parameters))
    for number, (first, end) in enumerate(bounds):
        first += shift
        shift = 0
        if number + 1 < len(bounds):
            after, until = bounds[number + 1]
            closing = _CLOSING.match(text[after:until])
            if closing:
                yield text[first : after + len(closing.group().rstrip())]
                shift = closing.end()
                continue
        if first < end:
            yield text[first:end]


def _bounds(text: str, parameters: Parameters) -> Iterator[tuple[int, int]]:
    begin = 0
    for mark, around in _marks(text):
        if _is_end(around, parameters):
            yield begin, mark.end()
            begin = mark.start("next") if mark.group("next") else mark.end()
    yield begin, len(text.rstrip())


def _marks(text: str) -> Iterator[tuple[regex.Match[str], str]]:
    """Marks that may end a sentence, with the words around; of several in one word the last."""
    blanks = [blank for blank in WHITE_SPACE if blank in text]
    last, first, end = None, 0, 0  # the mark before, and the word that it follows
    for mark in _MARK.finditer(text):
        place = mark.start()
        blank = max((text.rfind(blank, end, place) for blank in blanks), default=-1)
        begin = blank + 1 if blank > end else first
        if last is not None and end <= begin:
            yield last, text[first:end] + last.group() + last.group("after")
        last, first, end = mark, begin, place
    if last is not None:
        yield last, text[first:end] + last.group() + last.group("after")


def _is_end(around: str, parameters: Parameters) -> bool:
    """Whether a sentence ends somewhere before the last word."""
    words = words_of(around)
    kinds = [word.kind_with(parameters.abbreviations) for word in words]
    return any(
        _ends_between(words[place], kinds[place], words[place + 1], kinds[place + 1], parameters)
        for place in range(len(words) - 1)
    )


def _ends_between(word: Word, kind: int, after: Word, kind_after: int, parameters: Parameters) -> bool:
    if not word.ends:
        return kind == BREAK
    next_type = after.bare if kind_after == BREAK else after.type
    if (word.bare, next_type) in parameters.collocations:  # 4.1.2
        return False
    seen = parameters.orthography.get(next_type, 0)
    begins = _begins_sentence(after, seen)
    if kind in (ABBREVIATION, ELLIPSIS) and not word.is_initial:  # 4.2
        if begins is True:
            return True
        if after.is_upper and next_type in parameters.starters:  # 4.1.3
            return True
    if word.is_initial or word.bare == NUMBER:  # 4.3
        if begins is False:
            return False
        if begins is None and word.is_initial and after.is_upper and not seen & LOWER:
            return False
    return kind == BREAK


def _begins_sentence(word: Word, seen: int) -> bool | None:
    """4.1.1: what the case of its first letter says; None: nothing."""
    if word.is_punctuation:
        return False
    if word.is_upper and seen & LOWER and not seen & MIDDLE_UPPER:
        return True
    if word.is_lower and (seen & UPPER or not seen & BEGIN_LOWER):
        return False
    return None
