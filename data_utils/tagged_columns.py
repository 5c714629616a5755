"""Reads files with a word on each line, in columns, and an empty line after each sentence; adds a column of tags."""

from __future__ import annotations

import re
from itertools import chain
from pathlib import Path
from typing import Iterator, List, NamedTuple, Optional, Sequence, Tuple

from utilities.errors import UserError
from utilities.tables import read_lines

OUTSIDE = "O"
ABSENT = "_"  # instead of a tag, of words that were cut if tags are not those of entities
ENTITY_TAG = re.compile(r"O|[BIESMLU](?:[-_].+)?")
_DOCUMENT = "-DOCSTART-"
_AROUND_DOCUMENT = re.compile(r"#(?:begin|end) document\b")  # lines of CoNLL-2012
_NO_WORD = re.compile(rf"{_DOCUMENT}|{_AROUND_DOCUMENT.pattern}|# .*=|#(?!.* (?:O|[BIESMLU][-_]\S+)$)")
_NUMBER = re.compile(r"\d+(?:[-.]\d+)?\.?")
_NOT_IN_TEXT = re.compile(r"\d+[-.]\d+")  # CoNLL-U numbers contractions 1-2, and words that were left out 1.1


class ColumnLine(NamedTuple):
    """A line of a column file: its number from 1, its text without the end, and its columns if it has a word."""

    number: int
    text: str
    columns: List[str]


def column_sentences(path: Path, word_column: Optional[int] = None) -> Iterator[List[ColumnLine]]:
    """Yield the lines of each sentence of a file in columns, with the empty line that ends it.

    Columns are separated by tabs if all lines have tabs, and by blanks or tabs if not, so that words may have blanks in
    the first case. Lines above a sentence that begin with # are comments if they have another number of columns than
    its words, or set a value, ``# text = the sentence``.

    The ``word_column`` is counted from 1; None: the first.
    """
    lines: List[Tuple[int, str]] = []
    words, are_numbers, has_tabs = 0, word_column is None, _has_tabs(path)
    for number, line in enumerate(chain(read_lines(path), [""]), 1):
        if line:
            lines.append((number, line.rstrip("\r\n")))
        if not line or _columns(line)[0] in ("", _DOCUMENT):
            sentence = _sentence(path, lines, word_column, has_tabs)
            rows = [each.columns for each in sentence if each.columns]
            words += len(rows)
            are_numbers = are_numbers and all(len(row) > 1 and _NUMBER.fullmatch(row[0]) for row in rows)
            if words > 1 and not line and are_numbers:
                fix = "choose another with token_data.word_column (tasks.classify: --word-column)"
                reason = "all words are numbers, as if its first column counts the words"
                raise UserError(f"{path}: {reason}; {fix}, or 1 if they are meant")
            if sentence:
                yield sentence
            lines = []


def _has_tabs(path: Path) -> bool:
    """Return whether all lines with words have tabs."""
    found = False
    for line in read_lines(path):
        text = line.strip(" \t\r\n")
        if "\t" in text:
            found = True
        elif text and not _NO_WORD.match(text):
            return False
    return found


def _sentence(
    path: Path, lines: Sequence[Tuple[int, str]], word_column: Optional[int], has_tabs: bool
) -> List[ColumnLine]:
    """Return the lines of a sentence, of which the last may be the empty one that ends it."""
    split = [(number, text, _columns(text, has_tabs)) for number, text in lines]
    around = ("", _DOCUMENT)
    split = [(number, text, [] if columns[0].split(" ")[0] in around else columns) for number, text, columns in split]
    width = next((len(columns) for _, text, columns in split if columns and not text.startswith("#")), 0)
    sentence: List[ColumnLine] = []
    first = 0  # the line of the first word
    is_above = True
    for number, text, columns in split:
        sets_value = text.startswith(("# ", "#\t")) and "=" in text and not ENTITY_TAG.fullmatch(columns[-1])
        is_comment = text.startswith("#") and (sets_value or len(columns) != width > 0)
        is_above = is_above and (not columns or is_comment)
        width = width or (0 if is_comment else len(columns))
        if is_above or ((word_column or 1) > 1 and columns and _NOT_IN_TEXT.fullmatch(columns[0])):
            columns = []
        first = first or (number if columns else 0)
        if columns and len(columns) != width:
            before = f"has {len(columns)} columns, line {first} of the same sentence {width}"
            raise UserError(f"{path}: line {number}: {before}; correct one of them")
        if columns and len(columns) < (word_column or 1):
            named = f"has {len(columns)} columns, not the word_column {word_column}"
            raise UserError(f"{path}: line {number}: {named}; name the column of the words, from 1")
        sentence.append(ColumnLine(number, text, columns))
    return sentence


def _columns(line: str, has_tabs: bool = False) -> List[str]:
    """Return the columns of a line; the first is empty if the line is, or is one around a document."""
    text = line.strip(" \t\r\n")  # other white space may be a word
    return [""] if _AROUND_DOCUMENT.match(text) else re.split(r" *\t[ \t]*" if has_tabs else r"[ \t]+", text)


def words_of_columns(sentence: Sequence[ColumnLine], word_column: Optional[int] = None) -> List[str]:
    return [line.columns[(word_column or 1) - 1] for line in sentence if line.columns]


def tagged_columns(sentence: Sequence[ColumnLine], tags: Sequence[str]) -> Iterator[str]:
    """Yield the lines of a sentence with the tags of its words as one more column, for ``conlleval``.

    Example:
        >>> lines = [ColumnLine(1, "EU NNP", ["EU", "NNP"]), ColumnLine(2, "", [])]
        >>> list(tagged_columns(lines, ["B-ORG"]))
        ['EU NNP B-ORG', '']
    """
    remaining = iter(tags)
    for line in sentence:
        separator = "\t" if "\t" in line.text else " "
        first = _columns(line.text)[0]
        if line.columns or first == _DOCUMENT:
            yield line.text.rstrip(" \t\r") + separator + (next(remaining) if line.columns else OUTSIDE)
        elif _NOT_IN_TEXT.fullmatch(first):
            yield line.text.rstrip(" \t\r") + separator + "_"
        else:
            yield line.text if line.text.strip() else ""
