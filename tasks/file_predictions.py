"""Adds a trained model's predictions to a table of texts: CSV, TSV or JSON Lines in, any of these out.

Files of other kinds have CoNLL's columns, a word on each line, and get a column of tags. Rows of JSON Lines may also
have lists of words, as in Hugging Face's data sets.
"""

from __future__ import annotations

import argparse
from itertools import islice
from pathlib import Path
from typing import Any, Callable, Dict, Iterable, Iterator, List, NamedTuple, Optional, Sequence, TypeVar

from data_utils.classification.tasks import EmptyFieldError, FieldError
from data_utils.tagged_columns import column_sentences, tagged_columns, words_of_columns
from data_utils.tagged_sentences import TOKEN_FIELDS
from settings.rules import SHORTEST_SEQUENCE
from utilities.errors import UserError
from utilities.files import replacing
from utilities.table_output import unwritable
from utilities.tables import FORMATS, REPAIR, Row, check_columns, lines_named, read_table, read_text, short

CHECKPOINT, FILE, TEXT, OUTPUT, WORD_COLUMN = "--checkpoint", "--file", "--text", "--output", "--word-column"
FLOAT32 = "float32"
PRECISIONS = (FLOAT32, "bfloat16")
SUFFIXES = (".csv", ".tsv", ".jsonl")
LONGEST_SEQUENCE = 10**7  # tokens; the positions of a model are checked when it is built
ROWS = 4096  # of a part, which is predicted at once
FILLINGS = 5  # pieces for a blank, unless a user sets how many
USUAL_SQUAD_LENGTH = 384  # tokens of a window, of models of others

Item = TypeVar("Item")

# Returns one or two texts, or a list of words, of a row; raises FieldError.
Sample = Callable[[Row], Sequence[str]]

# Returns the columns to add for each sample.
Columns = Callable[[Sequence[Any]], List[Dict[str, Any]]]

# Returns the tags of the words of each sentence.
Tags = Callable[[Sequence[Sequence[str]]], List[List[str]]]


def add_model_flags(parser: argparse.ArgumentParser, remark: str = "") -> None:
    """Add the flags that name a model; ``remark`` ends the help of its checkpoint."""
    what = "a run's folder (its best checkpoint is taken, or else the newest), a checkpoint, or a Hugging Face folder"
    parser.add_argument(CHECKPOINT, required=True, metavar="PATH", help=what + remark)
    what = "vocab.txt or tokenizer.json [the one of the checkpoint]"
    parser.add_argument("--vocab-file", metavar="PATH", help=what)


def add_precision_flag(parser: argparse.ArgumentParser) -> None:
    what = "number format; some processors compute bfloat16 faster, with three digits [%(default)s]"
    parser.add_argument("--precision", choices=PRECISIONS, default=FLOAT32, help=what)


def sequence_length(text: str) -> int:
    """Parse the number of tokens of a sequence (an argparse type)."""
    if not SHORTEST_SEQUENCE <= int(text) <= LONGEST_SEQUENCE:
        raise argparse.ArgumentTypeError(f"{text} is not {SHORTEST_SEQUENCE} or more, up to the model's positions")
    return int(text)


def is_table(source: Path) -> bool:
    """Return whether a file is a table by its suffix; if not, it has CoNLL's columns."""
    return source.suffix.lower() in FORMATS


def check_files(source: Path, output: Path) -> None:
    """Check that ``output`` is a new file in a folder that exists, and for a table that its suffix is known."""
    if is_table(source) and output.suffix.lower() not in SUFFIXES:
        raise UserError(f"{OUTPUT}: {output} must end with {', '.join(SUFFIXES)}")
    if output.resolve() == source.resolve():
        raise UserError(f"{OUTPUT}: {output} is the file to read; name another one")
    check_new_file(output)


def check_new_file(output: Path) -> None:
    """Check that ``output`` does not exist, and that its folder does."""
    if output.exists():
        raise UserError(f"{OUTPUT}: {output} exists already; remove it, or name another file")
    if not output.parent.is_dir():
        raise UserError(f"{OUTPUT}: there is no folder {output.parent}; create it, or correct the path")


def check_text_columns(source: Path, columns: Sequence[str]) -> None:
    """Check that a table has the columns of the texts, which a flag names."""
    try:
        check_columns(source, columns)
    except UserError as error:
        raise UserError(f"{error} ({TEXT})") from error


def token_field(source: Path) -> Optional[str]:
    """Return the field of JSON Lines that has a list of words, ``{"tokens": ["EU", "acts"]}``; None: it has none."""
    _, row = next(read_table(source), (0, {}))
    return next((name for name in TOKEN_FIELDS if isinstance(row.get(name), list)), None)


def words_in(field: str) -> Sample:
    """Return a function that reads the list of words in a field."""

    def words(row: Row) -> List[str]:
        values = row.get(field)
        if not isinstance(values, list) or not all(isinstance(value, str) and value.strip() for value in values):
            raise FieldError(field, f"is {short(values)}, not a list of words")
        return values

    return words


def read_texts(source: Path, column: Optional[str]) -> List[str]:
    """Return the texts of a file: those of a table's column, or the lines of a file of another kind."""
    if is_table(source):
        name = column or "text"
        check_text_columns(source, [name])
        rows = [(number, row.get(name)) for number, row in read_table(source)]
        other = next((row for row in rows if not isinstance(row[1], (str, type(None)))), None)
        if other is not None:
            raise UserError(f"{source}: line {other[0]}: {name} is {short(other[1])}, not a text; {REPAIR}")
    elif column is not None:
        raise UserError(f"{TEXT}: {source} has no columns; leave it out, or name a table ({', '.join(FORMATS)})")
    else:
        lines = read_text(source).split("\n")
        rows = list(enumerate(lines if lines[-1] else lines[:-1], start=1))
    texts = [text for _, text in rows if isinstance(text, str) and text.strip()]
    if len(texts) < len(rows):
        empty = [number for number, text in rows if not isinstance(text, str) or not text.strip()]
        has = "has" if len(empty) == 1 else "have"
        raise UserError(f"{source}: {lines_named(empty)}: {has} no text; leave out what is empty, or write a text")
    if not rows:
        raise UserError(f"{source}: is empty; name a file with texts")
    return texts


class Rows(NamedTuple):
    """The number of rows of a file, and the lines of those that have no text, which get an empty prediction."""

    total: int
    empty: List[int]

    def note(self) -> str:
        """Return what to say about rows without a text; empty if all have one."""
        if not self.empty:
            return ""
        return f"; {len(self.empty):,} without a text have an empty prediction ({lines_named(self.empty)})"


def check_rows(source: Path, read: Sample, output: Path, added: Sequence[str]) -> Rows:
    """Check every row before the first prediction, which adds the columns ``added``."""
    header, count = None, 0
    empty: List[int] = []
    for number, row in read_table(source):
        header, count = header or list(row), count + 1
        try:
            read(row)
        except EmptyFieldError:
            empty.append(number)
        except FieldError as problem:
            raise UserError(f"{source}: line {number}: {problem}; {REPAIR}") from None
        twice = next((name for name in added if name in row), None)
        if twice is not None:
            raise UserError(f"{source}: line {number}: has a column {twice}, which predictions add; rename it")
        reason = unwritable(row, header, output.suffix.lower())
        if reason is not None:
            raise UserError(f"{source}: line {number}: {reason} ({OUTPUT})")
    if len(empty) == count:
        raise UserError(f"{source}: {lines_named(empty)}: no text; name another column with {TEXT}")
    return Rows(count, empty)


def with_predictions(source: Path, read: Sample, added: Sequence[str], predict: Columns) -> Iterator[Row]:
    """Yield the rows of a file that :func:`check_rows` has checked, with the columns of their predictions."""
    rows = (row for _, row in read_table(source))
    for part in parts(rows):
        samples = [_sample(read, row) for row in part]
        given = [sample for sample in samples if sample is not None]
        predictions = iter(predict(given) if given else ())
        for row, sample in zip(part, samples):
            yield {**row, **(dict.fromkeys(added) if sample is None else next(predictions))}


def _sample(read: Sample, row: Row) -> Optional[Sequence[str]]:
    """Return the sample of a row; None if it has no text."""
    try:
        return read(row)
    except EmptyFieldError:
        return None


def check_sentences(source: Path, word_column: Optional[int] = None) -> int:
    """Check all sentences of a file in CoNLL's columns before the first prediction, and return their number."""
    count = sum(1 for sentence in column_sentences(source, word_column) if words_of_columns(sentence))
    if not count:
        raise UserError(f"{source}: contains no words; name a file with a word on each line")
    return count


def write_tags(source: Path, output: Path, predict: Tags, word_column: Optional[int] = None) -> None:
    """Write the lines of a file in CoNLL's columns with one more, the predicted tags."""
    with replacing(output) as file:
        for part in parts(column_sentences(source, word_column)):
            words = [words_of_columns(sentence, word_column) for sentence in part]
            sentences = [each for each in words if each]
            tags = iter(predict(sentences) if sentences else [])
            for lines, each in zip(part, words):
                tagged = tagged_columns(lines, next(tags) if each else [])
                file.writelines(f"{line}\n".encode() for line in tagged)


def parts(items: Iterable[Item]) -> Iterator[List[Item]]:
    """Yield lists of at most ``ROWS`` items, which limits the memory of predictions."""
    left = iter(items)
    return iter(lambda: list(islice(left, ROWS)), [])
