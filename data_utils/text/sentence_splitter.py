"""Splits text into sentences with Punkt, and at the full stops of scripts that Punkt does not support.

Every decision is the same as that of NLTK's Punkt, and NLTK trains the parameters. Splitting is almost twice as fast as
NLTK's, because each distinct word is examined only once. Kiss and Strunk 2006, "Unsupervised Multilingual Sentence
Boundary Detection"; numbers in comments are its sections.
"""

from __future__ import annotations

import functools
import json
import os
import re
import sys
from collections.abc import Iterable, Iterator
from pathlib import Path
from typing import NamedTuple

# NLTK uses this module, which differs from ``re`` in which characters are letters.
import regex

from utilities.errors import UserError
from utilities.files import write_atomically

MIN_TRAINING_CHARACTERS = 100_000
COMMON_ABBREVIATIONS = (
    "mr mrs ms dr prof st jr sr gen col lt capt sgt rev hon gov sen rep vs etc al cf ca approx e.g i.e u.s u.k"
    " a.m p.m b.c a.d no vol fig pp ed inc ltd co corp jan feb mar apr aug sept oct nov dec ph.d m.d"
)
# The files of a model that NLTK's downloader writes, and the folders in which they may be.
MODEL_FOLDER = "tokenizers/punkt_tab"
MODEL_FILES = ("abbrev_types.txt", "collocations.tab", "sent_starters.txt", "ortho_context.tab")
NLTK_FOLDERS = ("nltk_data", "share/nltk_data", "lib/nltk_data")

# Chinese, Japanese, Devanagari, Arabic and Urdu have no ambiguous abbreviations: the mark alone decides.
_PLAIN_END = re.compile(
    r"(?<=[。！？｡।॥؟۔])(?![。！？｡।॥؟۔”’」』）】》\"'])"  # if no mark or quote follows
    r"|(?<=[。！？｡][”’」』）】》\"'])(?![”’」』）】》\"'])"  # or after the closing quote
)
_PLAIN_MARK = re.compile(r"[。！？｡।॥؟۔]")
_PUNKT_MARK = re.compile(r"[.!?]")
_ANY_WORD = re.compile(r"\w")

# Where a word was seen, by its first letter's case: at the beginning of a sentence, within one, or unknown.
BEGIN_UPPER, MIDDLE_UPPER, UNKNOWN_UPPER, BEGIN_LOWER, MIDDLE_LOWER, UNKNOWN_LOWER = (1 << bit for bit in range(1, 7))
UPPER = BEGIN_UPPER | MIDDLE_UPPER | UNKNOWN_UPPER
LOWER = BEGIN_LOWER | MIDDLE_LOWER | UNKNOWN_LOWER

NUMBER = "##number##"
END_MARKS = (".", "?", "!")
PUNCTUATION = tuple(";:,.!?")
MAX_CACHED_WORDS = 1 << 17
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
# Cases in which words depend on more than the text between two blanks: an ellipsis that contains blanks, and characters
# that only Python regards as blanks.
_ACROSS_BLANKS = regex.compile(r"\.\s\.|[\x1c-\x1f]")
_MARK = regex.compile(rf"[.?!](?=(?P<after>{_NOT_IN_WORD}|\s+(?P<next>\S+)))")
_CLOSING = regex.compile(r"""["\')\]}\u2018\u2019\u201c\u201d\xab\xbb]+?(?:\s+|(?=--)|$)""", regex.MULTILINE)
_NUMERIC = regex.compile(r"^-?[\.,]?\d[\d,\.-]*\.?$")
_INITIAL = regex.compile(r"[^\W\d]\.$")
_ELLIPSIS = regex.compile(r"\.\.+$")

PLAIN, BREAK, ELLIPSIS, ABBREVIATION = range(4)  # kinds of a word, regardless of its context


class Parameters(NamedTuple):
    """The result of Punkt's training on types, which are words in lower case, with one type for all numbers."""

    abbreviations: set[str]  # without their full stop
    collocations: set[tuple[str, str]]  # no sentence ends between the two words
    starters: set[str]  # types that often begin a sentence
    orthography: dict[str, int]  # where a type was seen: ``BEGIN_UPPER`` and the others, combined by "or"

    @classmethod
    def empty(cls) -> Parameters:
        return cls(set(), set(), set(), {})


def train(texts: Iterable[str]) -> Parameters:
    """Learn Punkt's parameters from texts, unsupervised; the same texts give the same parameters.

    NLTK's trainer gets our cached words, and one token for all equal ones of a text, which halves its time.
    With less than 100,000 characters the statistics are misleading: any word seen a few times, always at a sentence's
    end, would count as an abbreviation. The parameters are then a short list of English abbreviations.
    """
    texts = list(texts)
    if sum(map(len, texts)) < MIN_TRAINING_CHARACTERS:
        return Parameters.empty()._replace(abbreviations=set(COMMON_ABBREVIATIONS.split()))
    from nltk.tokenize.punkt import PunktLanguageVars, PunktToken, PunktTrainer  # takes a second to load

    class CachedWords(PunktLanguageVars):
        def word_tokenize(self, s: str) -> list[Word]:
            return split_words(s)

    class Token(PunktToken):
        first_case = is_ellipsis = None  # NLTK would compute them repeatedly

        def __init__(self, word: Word, parastart: bool | None = None, linestart: bool | None = None):
            self.tok, self.type, self.period_final = word.text, word.type, word.ends
            self.first_case = "lower" if word.is_lower else "upper" if word.is_upper else "none"
            self.is_ellipsis = word.kind == ELLIPSIS
            self.parastart, self.linestart = parastart, linestart
            self.sentbreak = self.abbr = self.ellipsis = None

    make_token = functools.lru_cache(maxsize=None)(Token)
    trainer = PunktTrainer(lang_vars=CachedWords(), token_cls=make_token)
    for text in texts:
        make_token.cache_clear()  # the trainer's annotations of a token are valid for one text only
        trainer.train(text, finalize=False)
    learned = trainer.get_params()
    return Parameters(
        set(learned.abbrev_types), set(learned.collocations), set(learned.sent_starters), dict(learned.ortho_context)
    )


def save_parameters(parameters: Parameters, path: Path) -> None:
    """Write parameters as sorted JSON; equal parameters give equal bytes."""
    data = {
        "abbreviations": sorted(parameters.abbreviations),
        "collocations": sorted(map(list, parameters.collocations)),
        "sentence_starters": sorted(parameters.starters),
        "orthography": dict(sorted(parameters.orthography.items())),
    }
    write_atomically(path, json.dumps(data, ensure_ascii=False).encode())


def load_parameters(path: Path) -> Parameters:
    try:
        data = json.loads(path.read_text(encoding="utf-8"))
        return Parameters(
            set(data["abbreviations"]),
            {(first, second) for first, second in data["collocations"]},
            set(data["sentence_starters"]),
            dict(data["orthography"]),
        )
    except (ValueError, KeyError, TypeError) as error:
        raise UserError(f"{path}: not Punkt parameters ({error}); delete it, it is trained again") from error


def _load_model(folder: Path) -> Parameters:
    """Read a model of NLTK's ``punkt_tab``, which has one entry per line, with parts separated by tabs."""
    abbreviations, collocations, starters, orthography = (
        [line.split("\t") for line in (folder / name).read_text(encoding="utf-8").split("\n") if line]
        for name in MODEL_FILES
    )
    try:
        return Parameters(
            {name for (name,) in abbreviations},
            {(first, second) for first, second in collocations},
            {name for (name,) in starters},
            {name: int(seen) for name, seen in orthography},
        )
    except ValueError as error:
        raise UserError(f"{folder}: not a Punkt model ({error}); install NLTK's punkt_tab again") from error


def _model_folder(language: str) -> Path | None:
    given = [Path(folder).expanduser() for folder in os.environ.get("NLTK_DATA", "").split(os.pathsep) if folder]
    roots = [Path(sys.prefix), Path("/usr"), Path("/usr/local")]
    usual = [Path("~/nltk_data").expanduser(), *(root / name for root in roots for name in NLTK_FOLDERS)]
    for folder in (*given, *usual):
        model = folder / MODEL_FOLDER / language
        if all((model / name).is_file() for name in MODEL_FILES):
            return model
    return None


def has_trained_model(language: str) -> bool:
    """Return whether NLTK's trained Punkt model (package ``punkt_tab``) is installed for a language.

    Raises:
        UserError: The name is not possible for a language.
    """
    if not re.fullmatch(r"[\w-]+", language):
        raise UserError(f"--language {language}: not a name of a Punkt model; name one such as english or german")
    return _model_folder(language) is not None


def load_splitter(model: str) -> Splitter:
    """Return the splitter of one of NLTK's models (``english``), or of a ``.json`` file of ``save_parameters``."""
    return Splitter(load_parameters(Path(model))) if model.endswith(".json") else _trained_splitter(model)


@functools.lru_cache(maxsize=2)
def _trained_splitter(model: str) -> Splitter:
    folder = _model_folder(model)
    if folder is None:
        raise UserError(f"--language {model}: NLTK's model punkt_tab for it is not installed on this machine")
    return Splitter(_load_model(folder))


class Splitter:
    """Splits paragraphs into sentences; Punkt decides about ``. ! ?``.

    Example:
        >>> Splitter(Parameters.empty()).split("It rains. We stay.")
        ['It rains.', 'We stay.']
    """

    def __init__(self, parameters: Parameters):
        self.parameters = parameters

    def split(self, paragraph: str) -> list[str]:
        """Return the sentences of a paragraph with normal white space; pieces without a word are left out."""
        parts = _PLAIN_END.split(paragraph) if _PLAIN_MARK.search(paragraph) else [paragraph]
        sentences: list[str] = []
        for part in parts:
            sentences += punkt_sentences(part, self.parameters) if _PUNKT_MARK.search(part) else [part]
        return [" ".join(sentence.split()) for sentence in sentences if _ANY_WORD.search(sentence)]


class Word:
    """A word and its properties that do not depend on its context.

    Attributes:
        text: The word as written.
        type: The lower-cased word; the same for all numbers.
        bare: The type without a full stop at its end.
        ends: Whether it ends with a full stop.
        kind: ``PLAIN``, ``BREAK`` or ``ELLIPSIS``; None if it depends on the abbreviations.
        stem: The word without its full stop, which is an abbreviation or not if ``kind`` is None.
        tail: The part of the stem after the last hyphen, which may also be an abbreviation.
    """

    __slots__ = (
        "bare", "ends", "is_initial", "is_lower", "is_punctuation", "is_upper", "kind", "stem", "tail", "text", "type",
    )  # fmt: skip

    def __init__(self, text: str):
        self.text = text
        self.is_upper, self.is_lower = text[0].isupper(), text[0].islower()
        self.kind: int | None = PLAIN
        if text.isalpha():  # most words are, and need no pattern
            self.type = self.bare = self.stem = self.tail = text.lower()
            self.ends = self.is_initial = self.is_punctuation = False
            return
        self.type = _NUMERIC.sub(NUMBER, text.lower())
        self.bare = self.type[:-1] if len(self.type) > 1 and self.type[-1] == "." else self.type
        self.ends = text.endswith(".")
        self.stem = text[:-1].lower()
        self.tail = self.stem.split("-")[-1]
        self.is_initial = _INITIAL.match(text) is not None
        self.is_punctuation = text in PUNCTUATION
        if text in END_MARKS:
            self.kind = BREAK
        elif _ELLIPSIS.match(text):
            self.kind = ELLIPSIS
        elif self.ends and not text.endswith(".."):
            self.kind = None

    def kind_with(self, abbreviations: set[str]) -> int:
        """Return the kind of the word, given the abbreviations."""
        if self.kind is not None:
            return self.kind
        return ABBREVIATION if self.stem in abbreviations or self.tail in abbreviations else BREAK


_word = functools.lru_cache(maxsize=MAX_CACHED_WORDS)(Word)


@functools.lru_cache(maxsize=MAX_CACHED_WORDS)
def _words_between_blanks(text: str) -> tuple[Word, ...]:
    return (_word(text),) if text.isalpha() else tuple(map(_word, _WORD.findall(text)))


def split_words(line: str) -> list[Word]:
    """Return the words and punctuation marks of a line; a full stop belongs to the word before it."""
    if _ACROSS_BLANKS.search(line):
        return [_word(text) for part in line.split("\n") if part.strip() for text in _WORD.findall(part)]
    return [word for part in line.split() for word in _words_between_blanks(part)]


def punkt_sentences(text: str, parameters: Parameters) -> Iterator[str]:
    """Yield the sentences of a text unchanged."""
    shift = 0  # closing quotes and brackets that belong to the previous sentence
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
    """Yield the marks that may end a sentence with the words around them; if a word has several, the last one."""
    blanks = [blank for blank in WHITE_SPACE if blank in text]
    last, first, end = None, 0, 0  # the previous mark, and the word that it follows
    for mark in _MARK.finditer(text):
        position = mark.start()
        blank = max((text.rfind(blank, end, position) for blank in blanks), default=-1)
        begin = blank + 1 if blank > end else first
        if last is not None and end <= begin:
            yield last, text[first:end] + last.group() + last.group("after")
        last, first, end = mark, begin, position
    if last is not None:
        yield last, text[first:end] + last.group() + last.group("after")


def _is_end(around: str, parameters: Parameters) -> bool:
    """Return whether a sentence ends before the last of these words."""
    words = split_words(around)
    kinds = [word.kind_with(parameters.abbreviations) for word in words]
    return any(
        _ends_between(words[index], kinds[index], words[index + 1], kinds[index + 1], parameters)
        for index in range(len(words) - 1)
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
    """Return whether the case of the first letter shows the beginning of a sentence (4.1.1); None if unknown."""
    if word.is_punctuation:
        return False
    if word.is_upper and seen & LOWER and not seen & MIDDLE_UPPER:
        return True
    if word.is_lower and (seen & UPPER or not seen & BEGIN_LOWER):
        return False
    return None
