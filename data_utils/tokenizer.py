"""BERT's vocabulary and tokenizer.

WordPiece as in BERT: pieces that continue a word begin with ``##``. V pieces.
"""

from __future__ import annotations

import functools
import hashlib
from pathlib import Path
from typing import List, NamedTuple

import numpy as np
from tokenizers import Tokenizer
from tokenizers.models import WordPiece
from tokenizers.normalizers import BertNormalizer
from tokenizers.pre_tokenizers import BertPreTokenizer

from utilities.errors import UserError

PADDING, UNKNOWN, CLASSIFIER, SEPARATOR, MASK = "[PAD]", "[UNK]", "[CLS]", "[SEP]", "[MASK]"
SPECIAL_TOKENS = (PADDING, UNKNOWN, CLASSIFIER, SEPARATOR, MASK)
VOCABULARY_NAME = "vocab.txt"
CONTINUATION = "##"


class Vocabulary(NamedTuple):
    """A WordPiece vocabulary: its pieces in the order of their ids, and its file."""

    pieces: List[str]
    path: Path
    sha256: str

    def id_of(self, piece: str) -> int:
        return self.pieces.index(piece)

    def continues_word(self) -> np.ndarray:
        """Return (V,) bool: whether a piece continues the word before it."""
        return np.array([piece.startswith(CONTINUATION) for piece in self.pieces])

    def special_ids(self) -> np.ndarray:
        """Return the ids of [PAD], [UNK], [CLS], [SEP] and [MASK]."""
        return np.array([self.pieces.index(token) for token in SPECIAL_TOKENS])

    def looks_lower_cased(self) -> bool:
        """Return whether the vocabulary was made from lower-cased text; one made from cased text has single capitals.

        This is needed for checkpoints that do not say how their text was prepared.
        """
        return not any(len(piece) == 1 and "A" <= piece <= "Z" for piece in self.pieces)


def read_vocabulary(path: Path) -> Vocabulary:
    """Read a ``vocab.txt``, which has one piece per line; raise a ``UserError`` if BERT cannot use it."""
    if not path.is_file():
        raise UserError(f"{path}: no such vocabulary file")
    data = path.read_bytes()
    try:
        pieces = data.decode("utf-8").split("\n")
    except UnicodeDecodeError as error:
        raise UserError(f"{path}: not UTF-8 ({error.reason}), so no BERT vocab.txt") from error
    pieces = [piece.rstrip("\r") for piece in pieces]
    while pieces and not pieces[-1]:
        pieces.pop()
    known = set(pieces)
    for token in SPECIAL_TOKENS:
        if token not in known:
            raise UserError(f"{path}: {token} is missing; a BERT vocab.txt holds {' '.join(SPECIAL_TOKENS)}")
    if len(known) != len(pieces):
        twice = next(piece for number, piece in enumerate(pieces) if piece in pieces[:number])
        raise UserError(f"{path}: {twice!r} occurs twice")
    return Vocabulary(pieces, path, hashlib.sha256(data).hexdigest())


@functools.lru_cache(maxsize=2)
def load_tokenizer(path: str, lower_case: bool) -> Tokenizer:
    """Return BERT's tokenizer, cached per process; it splits text like Hugging Face's ``BertTokenizer``.

    Args:
        path: a ``vocab.txt`` that :func:`read_vocabulary` accepts.
        lower_case: whether to lower-case text and strip its accents, as BERT "uncased" does.

    Example:
        >>> tokenizer = load_tokenizer("vocab.txt", lower_case=True)  # doctest: +SKIP
        >>> tokenizer.encode("An example", add_special_tokens=False).offsets  # doctest: +SKIP
        [(0, 2), (3, 10)]
    """
    tokenizer = Tokenizer(WordPiece.from_file(path, unk_token=UNKNOWN, max_input_chars_per_word=100))
    tokenizer.normalizer = bert_normalizer(lower_case)
    tokenizer.pre_tokenizer = BertPreTokenizer()
    return tokenizer


def bert_normalizer(lower_case: bool) -> BertNormalizer:
    """Return a normalizer that cleans text and separates Chinese characters; lower-casing also strips accents."""
    return BertNormalizer(clean_text=True, handle_chinese_chars=True, strip_accents=None, lowercase=lower_case)
