"""Reads minimal pairs: a good sentence and a bad one in each row of a table, such as BLiMP's files."""

from __future__ import annotations

from itertools import islice
from pathlib import Path
from typing import Iterator, List, NamedTuple, Optional, Sequence, Tuple

from tokenizers import Tokenizer

from utilities.errors import UserError
from utilities.tables import FORMATS, Row, read_table, short, value_as_text

PARADIGM, FIELD = "UID", "field"  # BLiMP's columns


class Pair(NamedTuple):
    """A minimal pair.

    Attributes:
        good: the good sentence.
        bad: the bad sentence.
        paradigm: the phenomenon that the pair tests; the name of the file if the row does not specify it.
        field: the part of the grammar; empty if the row does not specify it.
        origin: file and line, for messages.
    """

    good: str
    bad: str
    paradigm: str
    field: str
    origin: str


def read_pairs(path: Path, good: str, bad: str, limit: Optional[int] = None) -> Iterator[Pair]:
    """Yield the pairs of a file, or of all tables in a folder.

    Args:
        path: the file or the folder.
        good: column of the good sentence.
        bad: column of the bad sentence.
        limit: maximum number of pairs of each file.
    """
    files = [path] if path.is_file() else sorted(file for file in path.glob("*") if file.suffix.lower() in FORMATS)
    if not files:
        raise UserError(f"{path} is not a file, nor a folder with files that end with {', '.join(FORMATS)}")
    for file in files:
        line = None
        for line in islice(read_table(file), limit):
            origin = f"{file}: line {line.number}"
            first, second = (_sentence(line.row, column, origin) for column in (good, bad))
            groups = (line.row.get(column) for column in (PARADIGM, FIELD))
            paradigm, field = ("" if group is None else value_as_text(group) for group in groups)
            yield Pair(first, second, paradigm or file.stem, field, origin)
        if line is None:
            raise UserError(f"{file}: has no pairs; copy the original file again, or remove it")


def _sentence(row: Row, column: str, origin: str) -> str:
    if isinstance(row.get(column), str):
        return row[column]
    what = f"is {short(row[column])}, not a text" if column in row else "is missing"
    known = f"the columns are {', '.join(row)}"
    raise UserError(f"{origin}: {column} {what} ({known}); name the columns with --good and --bad")


def word_pieces(pairs: Sequence[Pair], tokenizer: Tokenizer, longest: int) -> List[Tuple[int, ...]]:
    """Return the ids of the pairs' sentences, good and bad in turn, without special tokens.

    Args:
        pairs: the pairs.
        tokenizer: the model's tokenizer.
        longest: maximum number of word pieces of a sentence.
    """
    texts = [text for pair in pairs for text in (pair.good, pair.bad)]
    pieces = [tuple(encoding.ids) for encoding in tokenizer.encode_batch_fast(texts, add_special_tokens=False)]
    for number, sentence in enumerate(pieces):
        if not 0 < len(sentence) <= longest:
            which, count = ("good", "bad")[number % 2], f"{len(sentence):,} word pieces"
            what = f"the {which} sentence has {count}, and the model takes 1 to {longest:,}"
            raise UserError(f"{pairs[number // 2].origin}: {what}; change it, or take the pair out")
    return pieces
