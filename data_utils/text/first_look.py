"""What the beginning of a text shows before it is prepared: that it is something else than prose, or cannot be read."""

from __future__ import annotations

import re
import unicodedata
from collections.abc import Mapping, Sequence
from typing import Any

from data_utils.text.readers import Document
from data_utils.text.sources import Source
from data_utils.text.vocabulary import LONG_WORD
from utilities.errors import UserError

LONGEST_LOOK = 200_000  # characters that are looked at
MANY_TAGS = 1 / 300  # tags for each character; a page of HTML has one for some fifty
WRAPPED_SHARE, WRAPPED_LENGTHS = 0.8, range(50, 100)  # of the lines that another one of the paragraph follows
FEWEST_LINES = 20
SHORT_DOCUMENTS = 1_000  # characters of a document, on average, below which many in a file may be its paragraphs
MOST_UNREADABLE = 0.2  # share of the text
MANY_SIGNS = 0.005  # of the characters
LETTERS_OWN = (0, 7, 8, 9)  # classes of vowel signs, nuktas, voicing marks of kana and viramas
MANY_IDEOGRAPHS = 0.3  # of the characters

_TAG = re.compile(r"</?[a-zA-Z][^<>]{0,200}>")
_IDEOGRAPH = re.compile("[\u3400-\u4dbf\u4e00-\u9fff]")
_WIKIEXTRACTOR = re.compile(r"^<doc id=\"[^\"]*\" ", re.MULTILINE)
_SENTENCE_END = re.compile(r"[.!?:;\"')\]”’]$")


def look_at_beginning(source: Source, strips_marks: bool = False, whole_words: bool = False) -> list[str]:
    """Return what ``look`` says of the first documents of a source."""
    texts, length = [], 0
    for document in source.documents():
        texts.append(document.text if isinstance(document, Document) else "")
        length += len(texts[-1])
        if length >= LONGEST_LOOK:
            break
    return look(texts, source.kind, len(source.files), strips_marks, whole_words)


def look(
    texts: Sequence[str], kind: Mapping[str, Any], files: int, strips_marks: bool = False, whole_words: bool = False
) -> list[str]:
    """Return what the user may not have meant, a sentence each.

    Args:
        texts: Documents from the beginning of a source.
        kind: Its format and options, as in ``Source.kind``.
        files: Number of its files.
        strips_marks: Whether accents will be stripped, and with them all marks that Unicode does not count as letters.
        whole_words: Whether whole words will be masked.

    Raises:
        UserError: Most words are too long to be read, or the files are those of another option.
    """
    beginning = "\n\n".join(text[:LONGEST_LOOK] for text in texts[:1_000])[:LONGEST_LOOK]
    is_text = kind["kind"] == "text"
    if is_text and _WIKIEXTRACTOR.search(beginning):
        raise UserError("--text: the files are WikiExtractor's output (<doc id=…>); give them to --wikiextractor")
    check_words(beginning)
    notes = []
    if len(_TAG.findall(beginning)) > MANY_TAGS * len(beginning):
        notes.append("the text has many tags like those of HTML, which become words; extract its prose first")
    if is_text and not kind["join_lines"] and "per_line" not in kind and _is_wrapped(texts):
        notes.append("lines seem to be wrapped, which cuts sentences; --join-lines joins them to paragraphs")
    if strips_marks and _lost_marks(beginning) > MANY_SIGNS * len(beginning):
        notes.append(
            "with accents, marks that belong to the letters of this script are stripped (が becomes か, й becomes и),"
            " which changes words; --keep-accents keeps them"
        )
    if whole_words and len(_IDEOGRAPH.findall(beginning)) > MANY_IDEOGRAPHS * len(beginning):
        notes.append("each ideograph is a word of BERT's, so --whole-word-masking has no effect on this text")
    one_each = kind.get("whole_file") or "per_line" in kind
    if is_text and not one_each and 1 < files < len(texts) / 10 and len(beginning) < SHORT_DOCUMENTS * len(texts):
        notes.append("blank lines end a document, of which each file has many; --document-per-file makes a file one")
    return notes


def check_words(text: str) -> None:
    """Refuse a text in which too many words are longer than WordPiece reads.

    Raises:
        UserError: More than a fifth of the characters are in such words.
    """
    letters = sum(map(len, text.split()))
    unreadable = sum(len(match.group()) for match in LONG_WORD.finditer(text)) / max(letters, 1)
    if unreadable > MOST_UNREADABLE:
        raise UserError(
            f"{unreadable:.0%} of the text is in words of more than 100 letters, each of which BERT reads as [UNK]; in"
            " a language that is written without blanks, such as Thai, put blanks between the words first"
        )


def _lost_marks(text: str) -> int:
    """Return how many marks make another letter or word in their script, as in Devanagari, Thai, kana and Cyrillic.

    Accents of other scripts do not.
    """
    last, marks = " ", 0
    for character in unicodedata.normalize("NFD", text):
        if unicodedata.category(character) != "Mn":
            last = character
        elif unicodedata.combining(character) in LETTERS_OWN or (last in "ИиЕеІі" and character in "\u0306\u0308"):
            marks += 1
    return marks


def _is_wrapped(texts: Sequence[str]) -> bool:
    """Return whether most lines that do not end a paragraph have the length of a page and end within a sentence."""
    inner = [line for text in texts[:1_000] for line in text.split("\n")[:-1]]
    wrapped = sum(len(line) in WRAPPED_LENGTHS and not _SENTENCE_END.search(line.rstrip()) for line in inner)
    return len(inner) >= FEWEST_LINES and wrapped > WRAPPED_SHARE * len(inner)
