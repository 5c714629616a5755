"""Reads tagged words from column files and from the JSON lines of CLUENER and Hugging Face.

Tags are those of the files. Tags of entities, such as ``B-PER I-PER O``, say where an entity begins and ends; others,
such as ``NOUN``, each stand for one word.
"""

from __future__ import annotations

import re
from itertools import chain
from pathlib import Path
from typing import Any, Iterable, Iterator, List, Mapping, NamedTuple, Optional, Sequence, Tuple

from utilities.errors import UserError
from utilities.tables import Line, json_rows, read_lines, short

TRAIN, VALIDATION, TEST = "train", "validation", "test"
FILES: Mapping[str, Tuple[str, ...]] = {  # the first that exists is read
    TRAIN: ("train.txt", "eng.train", "train.json", "train.jsonl"),
    VALIDATION: ("valid.txt", "dev.txt", "eng.testa", "dev.json", "dev.jsonl", "validation.json", "validation.jsonl"),
    TEST: ("test.txt", "eng.testb", "test.json", "test.jsonl"),
}
OUTSIDE = "O"
COLUMNS, CLUENER, TOKENS = "columns", "cluener", "tokens"  # the forms of files; the last is Hugging Face's
TAG_COLUMN = "token_data.tag_column"
TOKEN_FIELDS, _TAG_FIELDS = ("tokens", "words"), ("ner_tags", "tags", "labels", "pos_tags")
_DOCUMENT = "-DOCSTART-"
_AROUND_DOCUMENT = re.compile(r"#(?:begin|end) document\b")  # lines of CoNLL-2012
_FIX = "correct it there, or copy the data set's own file again"
_ENTITY_TAG = re.compile(r"O|[BIESMLU](?:[-_].+)?")
_BRACKET_TAG = re.compile(r"\([\w-]+\*?\)?|\*\)")  # (DATE* and *) around an entity of several words
_NUMBER = re.compile(r"\d+(?:[-.]\d+)?\.?")
_NOT_IN_TEXT = re.compile(r"\d+[-.]\d+")  # CoNLL-U numbers contractions 1-2, and words that were left out 1.1

Entity = Tuple[str, int, int]  # type, first word, last word


class Sentences(NamedTuple):
    """The sentences of a split.

    Attributes:
        words: words of each sentence; in CLUENER, its characters.
        tags: tag of each word; None if the file has none.
        ids: the sentences' ids in the file, or their positions.
        origin: the file.
        overlapping: number of entities that are left out because they overlap an earlier one.
        form: the form of the file.
    """

    words: List[List[str]]
    tags: Optional[List[List[str]]]
    ids: List[Any]
    origin: str
    overlapping: int = 0
    form: str = COLUMNS


class ColumnLine(NamedTuple):
    """A line of a column file: its number from 1, its text without the end, and its columns if it has a word."""

    number: int
    text: str
    columns: List[str]


def read_sentences(
    dataset_dir: str, split: str, word_column: Optional[int] = None, tag_column: Optional[int] = None
) -> Sentences:
    """Read a split from one of ``FILES``: columns, or the JSON lines of CLUENER or Hugging Face.

    Args:
        word_column, tag_column: the columns of words and of tags, from 1; None: the first and the last.

    Raises:
        UserError: there is no such file, or one of its lines cannot be used; the message names file, line and fix.
    """
    paths = [Path(dataset_dir) / name for name in FILES[split]]
    path = next((path for path in paths if path.is_file()), None)
    if path is None:
        raise UserError(f"dataset_dir: {dataset_dir} has no {' or '.join(FILES[split])}; copy the {split} data there")
    if path.suffix in (".json", ".jsonl"):
        sentences = _from_json(path)
    else:
        sentences = _from_columns(path, split == TEST, word_column, tag_column)
    if not any(sentences.words):
        raise UserError(f"{path}: contains no sentences; copy the data set's own file again")
    if split != TEST and sentences.tags is None:
        raise UserError(f"{path}: contains no tags; copy the data set's own file again")
    names = set(chain.from_iterable(sentences.tags or ()))
    is_one = names == {OUTSIDE} or (len(names) == 1 and not are_entity_tags(names))
    bracket = next((name for name in names if _BRACKET_TAG.fullmatch(name)), None)
    if bracket is not None:
        fix = f"write B-, I- and O, or name another column with {TAG_COLUMN}"
        raise UserError(f"{path}: the tag {short(bracket)} is in the brackets of CoNLL-2012, which are not read; {fix}")
    if split == TRAIN and (is_one or ("_" in names and tag_column is None)):
        what = f"all words have the tag {short(*names)}" if is_one else "words have the tag _, no value"
        raise UserError(f"{path}: {what}; name the column of tags with {TAG_COLUMN}")
    return sentences


def are_entity_tags(names: Iterable[str]) -> bool:
    """Return whether tags say where entities begin and end: ``O``, and ``B-…`` or another letter of a scheme."""
    return all(_ENTITY_TAG.fullmatch(name) for name in names)


def _from_columns(path: Path, is_test: bool, word_column: Optional[int], tag_column: Optional[int]) -> Sentences:
    """Read a word and its tag from each line; a test file may have no tags."""
    sentences = [[line for line in sentence if line.columns] for sentence in column_sentences(path, word_column)]
    sentences = list(filter(None, sentences))
    least = max(2, word_column or 1, tag_column or 1)
    words = [[line.columns[(word_column or 1) - 1] for line in sentence] for sentence in sentences]
    tags: Optional[List[List[str]]] = None
    if not is_test or any(len(line.columns) >= least for line in chain.from_iterable(sentences)):
        broken = next((line for line in chain.from_iterable(sentences) if len(line.columns) < least), None)
        if broken is not None:
            lacking = "does not end with a tag such as O or B-PER"
            if tag_column is not None:
                lacking = f"has {len(broken.columns)} columns, not the tag_column {tag_column}"
            raise UserError(f"{path}: line {broken.number}: {lacking}; {_FIX}")
        tags = [[line.columns[(tag_column or 0) - 1] for line in sentence] for sentence in sentences]
        places = (f"line {line.number}" for line in chain.from_iterable(sentences))
        _check_tags(path, zip(places, chain.from_iterable(tags)), set(chain.from_iterable(tags)))
    return Sentences(words, tags, list(range(len(words))), str(path))


def _check_tags(path: Path, placed: Iterable[Tuple[str, str]], names: Iterable[str]) -> None:
    """Check that if one of the tags is an entity's with a type, all are tags of entities.

    Args:
        placed: the place of each tag, and the tag.
        names: the different tags.
    """
    if not any("-" in name and _ENTITY_TAG.fullmatch(name) for name in names):
        return
    for place, tag in placed:
        if not _ENTITY_TAG.fullmatch(tag):
            raise UserError(f"{path}: {place}: {short(tag)} is not a tag such as O or B-PER, as the others are; {_FIX}")


def column_sentences(path: Path, word_column: Optional[int] = None) -> Iterator[List[ColumnLine]]:
    """Yield the lines of each sentence of a file in columns, with the empty line that ends it.

    Lines above a sentence that begin with # are comments if they have another number of columns than its words, or set
    a value, ``# text = the sentence``.

    Args:
        path: the file.
        word_column: the column of words, from 1, that the user has chosen; None: the first.

    Raises:
        UserError: the file cannot be read, lines of a sentence have different numbers of columns, there is no such
            column, or all words are numbers, as in a file that numbers the words in its first column.
    """
    lines: List[Tuple[int, str]] = []
    words, are_numbers = 0, word_column is None
    for number, line in enumerate(chain(read_lines(path), [""]), 1):
        if line:
            lines.append((number, line.rstrip("\r\n")))
        if not line or _columns(line)[0] in ("", _DOCUMENT):
            sentence = _sentence(path, lines, word_column)
            for each in sentence:
                words += bool(each.columns)
                are_numbers = are_numbers and (not each.columns or _is_counted(each.columns))
            if words > 1 and not line and are_numbers:
                fix = (
                    "choose another with token_data.word_column (tasks.classify: --word-column), or 1 if they are meant"
                )
                raise UserError(f"{path}: all words are numbers, as if its first column counts the words; {fix}")
            if sentence:
                yield sentence
            lines = []


def _is_counted(columns: Sequence[str]) -> bool:
    return len(columns) > 1 and _NUMBER.fullmatch(columns[0]) is not None


def _sentence(path: Path, lines: Sequence[Tuple[int, str]], word_column: Optional[int]) -> List[ColumnLine]:
    """Return the lines of a sentence, of which the last may be the empty one that ends it."""
    split = [(number, text, _columns(text)) for number, text in lines]
    split = [(number, text, [] if columns[0] in ("", _DOCUMENT) else columns) for number, text, columns in split]
    width = next((len(columns) for _, text, columns in split if columns and not text.startswith("#")), 0)
    sentence: List[ColumnLine] = []
    is_above = True
    for number, text, columns in split:
        sets_value = columns[:1] == ["#"] and "=" in text and not _ENTITY_TAG.fullmatch(columns[-1])
        is_comment = text.startswith("#") and (sets_value or len(columns) != width > 0)
        is_above = is_above and (not columns or is_comment)
        width = width or len(columns)
        if is_above or ((word_column or 1) > 1 and columns and _NOT_IN_TEXT.fullmatch(columns[0])):
            columns = []
        if columns and len(columns) != width:
            before = f"has {len(columns)} columns, the words before it {width}"
            raise UserError(f"{path}: line {number}: {before}; {_FIX}")
        if columns and len(columns) < (word_column or 1):
            named = f"has {len(columns)} columns, not the word_column {word_column}"
            raise UserError(f"{path}: line {number}: {named}; name the column of the words, from 1")
        sentence.append(ColumnLine(number, text, columns))
    return sentence


def _columns(line: str) -> List[str]:
    """Return the columns of a line; the first is empty if the line is, or is one around a document."""
    text = line.strip(" \t\r\n")  # other white space may be a word
    return [""] if _AROUND_DOCUMENT.match(text) else re.split(r"[ \t]+", text)


def words_of_columns(sentence: Sequence[ColumnLine], word_column: Optional[int] = None) -> List[str]:
    """Return the words of the lines of a sentence."""
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


def _from_json(path: Path) -> Sentences:
    """Read a sentence from each line, in CLUENER's form or in Hugging Face's."""
    rows = list(json_rows(path))
    first = rows[0].row if rows else None
    field = next((name for name in TOKEN_FIELDS if first and isinstance(first.get(name), list)), None)
    return _from_spans(path, rows) if field is None else _from_tokens(path, rows, field)


def _from_tokens(path: Path, rows: Sequence[Line], field: str) -> Sentences:
    """Read words and their tags, each a list of texts."""
    words: List[List[str]] = []
    tags: List[List[str]] = []
    first = rows[0].row or {}
    tag_field = next((name for name in _TAG_FIELDS if name in first), None)
    for number, row in rows:
        assert row is not None, "only broken lines have no row"
        for name, texts in ((field, words), (tag_field, tags)):
            values = row.get(name) if name is not None else []
            if not isinstance(values, list) or not all(isinstance(value, str) and value for value in values):
                fix = f'write {{"{field}": ["EU", "acts"], "{tag_field or _TAG_FIELDS[0]}": ["B-ORG", "O"]}}'
                if isinstance(values, list) and all(type(value) is int for value in values):
                    fix = "write the names of the tags, which the file does not have"
                raise UserError(f"{path}: line {number}: {name} is {short(values)}, not a list of texts; {fix}")
            texts.append(values)
        if tag_field is not None and len(words[-1]) != len(tags[-1]):
            counts = f"has {len(words[-1])} {field} and {len(tags[-1])} {tag_field}"
            raise UserError(f"{path}: line {number}: {counts}; {_FIX}")
    placed = ((f"line {line.number}", tag) for line, each in zip(rows, tags) for tag in each)
    _check_tags(path, placed, set(chain.from_iterable(tags)))
    ids = [(row or {}).get("id", position) for position, (_, row) in enumerate(rows)]
    return Sentences(words, tags if tag_field is not None else None, ids, str(path), form=TOKENS)


def _from_spans(path: Path, rows: Sequence[Line]) -> Sentences:
    """Read a text and its entities from each line, as tags ``B-…`` and ``I-…`` of the characters."""
    words: List[List[str]] = []
    tags: List[List[str]] = []
    ids: List[Any] = []
    overlapping = unlabelled = 0
    for number, row in rows:
        assert row is not None, "only broken lines have no row"
        try:
            text, named = row["text"], list(_spans(row.get("label") or {}))
            spans = [span for _, span in named]
            if not (isinstance(text, str) and text and all(0 <= first <= last < len(text) for _, first, last in spans)):
                raise ValueError
        except (ValueError, KeyError, TypeError, AttributeError) as error:
            form = '{"text": …, "label": {type: {entity: [[first, last]]}}} with positions in the text'
            raise UserError(f"{path}: line {number}: is not {form}; {_FIX}") from error
        for entity, (_, first, last) in named:
            if text[first : last + 1] != entity:
                found = f"positions {first} to {last}, both included, are {short(text[first : last + 1])}"
                raise UserError(f"{path}: line {number}: {found}, not {short(entity)}; {_FIX}")
        unlabelled += "label" not in row
        tagged = [OUTSIDE] * len(text)
        for kind, first, last in sorted(spans, key=lambda span: (span[1], -span[2])):
            if any(tag != OUTSIDE for tag in tagged[first : last + 1]):
                overlapping += 1
                continue
            tagged[first : last + 1] = [f"B-{kind}", *[f"I-{kind}"] * (last - first)]
        words.append(list(text))
        tags.append(tagged)
        ids.append(row.get("id", len(ids)))
    return Sentences(words, tags if not unlabelled else None, ids, str(path), overlapping, CLUENER)


def _spans(label: Mapping[str, Mapping[str, Sequence[Sequence[int]]]]) -> Iterator[Tuple[str, Entity]]:
    """Yield the text of each entity, and the entity."""
    for kind, entities in label.items():
        for entity, positions in entities.items():
            for first, last in positions:
                if not kind or type(first) is not int or type(last) is not int:
                    raise ValueError
                yield entity, (kind, first, last)
