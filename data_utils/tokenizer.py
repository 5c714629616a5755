"""BERT's tokenizer, read from a ``vocab.txt`` or ``tokenizer.json``.

WordPiece as in BERT: pieces that continue a word begin with ``##``. V pieces.
"""

from __future__ import annotations

import functools
import hashlib
import json
import unicodedata
from codecs import BOM_UTF8
from pathlib import Path
from typing import Any, Dict, List, NamedTuple, Optional, Sequence, Tuple

import numpy as np
from tokenizers import AddedToken, Tokenizer
from tokenizers.models import WordPiece
from tokenizers.normalizers import BertNormalizer
from tokenizers.pre_tokenizers import BertPreTokenizer

from data_utils.tokenizer_files import (
    CONTINUATION,
    LONGEST_WORD,
    SETTINGS_NAME,
    SPECIAL_TOKENS,
    TOKENIZER_NAME,
    UNKNOWN,
    USUAL_RULES,
    VOCABULARY_NAME,
    TokenizerRules,
    read_tokenizer_files,
)
from utilities.errors import UserError
from utilities.tables import read_text

MANY_MARKED = 0.01  # of the pieces


class Vocabulary(NamedTuple):
    pieces: List[str]  # in the order of their ids, with added tokens
    path: Path
    content: bytes  # of the ``vocab.txt``, which lacks the last ``rules.appended`` pieces
    lower_case: Optional[bool] = None  # whether its tokenizer lower-cases text; None if the files do not specify it
    rules: TokenizerRules = USUAL_RULES  # how its tokenizer differs from the usual one otherwise

    @property
    def sha256(self) -> str:
        return hashlib.sha256(self.content).hexdigest()

    @property
    def identity(self) -> Dict[str, Any]:
        """What a vocabulary that gives the same ids also has."""
        rules = {} if self.rules == USUAL_RULES else {"rules": self.rules.settings(False, self.pieces)}
        return {"sha256": self.sha256, **rules}

    def piece_id(self, piece: str) -> int:
        return self.pieces.index(piece)

    def continues_word(self) -> np.ndarray:
        """Return (V,) bool: whether a piece continues the word before it."""
        return np.array([piece.startswith(CONTINUATION) for piece in self.pieces])

    def special_ids(self) -> np.ndarray:
        """Return the ids of [PAD], [UNK], [CLS], [SEP] and [MASK]."""
        return np.array([self.pieces.index(token) for token in SPECIAL_TOKENS])

    def ordinary_ids(self) -> np.ndarray:
        """Return the ids of all other pieces."""
        return np.setdiff1d(np.arange(len(self.pieces)), self.special_ids())

    def files(self, lower_case: Optional[bool]) -> Dict[str, bytes]:
        """Return the files by which it is read again with its rules, by name: ``vocab.txt`` alone if they are usual."""
        files = {VOCABULARY_NAME: self.content}
        if self.rules != USUAL_RULES:
            settings = self.rules.settings(self.lowers_case(lower_case), self.pieces)
            files[SETTINGS_NAME] = (json.dumps(settings, indent=2, ensure_ascii=False) + "\n").encode()
        return files

    def lowers_case(self, *known: Optional[bool]) -> bool:
        """Return whether text is lower-cased: the first answer that is known, else what the pieces look like."""
        return next((answer for answer in known if answer is not None), self.looks_lower_cased())

    def looks_lower_cased(self) -> bool:
        """Return whether it was made from lower-cased text; a vocabulary of cased text has single capitals."""
        return not any(len(piece) == 1 and "A" <= piece <= "Z" for piece in self.pieces)

    def looks_accented(self) -> bool:
        """Return whether many pieces have accents or marks, which lower-cased text has lost unless they are kept."""
        marked = sum("Mn" in map(unicodedata.category, unicodedata.normalize("NFD", piece)) for piece in self.pieces)
        return marked > MANY_MARKED * len(self.pieces)


def read_vocabulary(path: Path) -> Vocabulary:
    """Read a vocabulary, which BERT must be able to use, and the tokenizer's files that lie beside it.

    It is a ``vocab.txt``, which has a piece on each line, Hugging Face's ``tokenizer.json``, or a folder with one.
    """
    path = vocabulary_file(path)
    files = read_tokenizer_files(path)
    if path.suffix != ".json":
        data = path.read_bytes()
        data = data[len(BOM_UTF8) :] if data.startswith(BOM_UTF8) else data
        pieces = _lines(data, path)
    elif files.tokenizer is not None:
        pieces = files.pieces()
        data = "".join(piece + "\n" for piece in pieces).encode("utf-8")
    else:
        problem = f"a tokenizer's file is called {TOKENIZER_NAME}; rename it, or name a {VOCABULARY_NAME}"
        raise UserError(f"{path}: {problem}")
    _check_pieces(pieces, path)
    files.check_pieces(pieces)
    rules = files.rules(pieces)
    appended = [token.content for token in rules.added[len(rules.added) - rules.appended :]]
    return Vocabulary([*pieces, *appended], path, data, files.lower_case, rules)


def _lines(data: bytes, path: Path) -> List[str]:
    """Return the pieces of a ``vocab.txt``, whose lines end as on any system."""
    try:
        text = data.decode("utf-8")
    except UnicodeDecodeError as error:
        raise UserError(f"{path}: not UTF-8 ({error.reason}), so it is not a vocab.txt of BERT") from error
    pieces = text.replace("\r\n", "\n").replace("\r", "\n").split("\n")
    while pieces and not pieces[-1]:
        pieces.pop()
    return pieces


def _check_pieces(pieces: Sequence[str], path: Path) -> None:
    known = set(pieces)
    for token in SPECIAL_TOKENS:
        if token not in known:
            raise UserError(f"{path}: {token} is missing; a BERT vocab.txt contains {' '.join(SPECIAL_TOKENS)}")
    if len(known) != len(pieces):
        numbers = {piece: number for number, piece in enumerate(pieces, 1)}
        first = next(number for number, piece in enumerate(pieces, 1) if numbers[piece] != number)
        piece = pieces[first - 1]
        raise UserError(
            f"{path}: lines {first} and {numbers[piece]}: {piece!r} occurs twice, so that its id is not clear; rename"
            " the wrong one"
        )


def find_vocabulary(folder: Path) -> Optional[Path]:
    """Return the ``vocab.txt`` or else the ``tokenizer.json`` of a folder; None if it has neither."""
    return next((folder / name for name in (VOCABULARY_NAME, TOKENIZER_NAME) if (folder / name).is_file()), None)


def vocabulary_file(path: Path) -> Path:
    """Return the file of a vocabulary that is given as a file or as a folder."""
    file = find_vocabulary(path) if path.is_dir() else path
    if file is None or not file.is_file():
        raise UserError(f"{path}: no such vocabulary file, nor a folder with {VOCABULARY_NAME} or {TOKENIZER_NAME}")
    return file


def extended(vocabulary: Vocabulary, tokens: Path, lower_case: bool) -> Vocabulary:
    """Return a vocabulary with the tokens of a file, one on each line, after its own; those it has are left out."""
    lines = map(str.strip, read_text(tokens).splitlines())
    if vocabulary.rules.appended:
        raise UserError(
            f"--extra-tokens: {vocabulary.path} is followed by {vocabulary.rules.appended} added tokens, whose ids"
            " would change; add the words to those of the tokenizer"
        )
    known = set(vocabulary.pieces)
    added = [token for token in dict.fromkeys(lines) if token and token not in known]
    for token in added:
        word = token[len(CONTINUATION) :] if token.startswith(CONTINUATION) else token
        normalized = bert_normalizer(lower_case, vocabulary.rules).normalize_str(word)
        parts = [part for part, _ in BertPreTokenizer().pre_tokenize_str(normalized)]
        if parts != [word]:
            raise UserError(
                f"--extra-tokens: {tokens}: {token!r} never occurs as a word, because text is normalized and split"
                f" first: it becomes {' '.join(parts)!r}; write one such word on each line"
            )
    content = vocabulary.content.rstrip(b"\r\n") + b"\n" + "".join(token + "\n" for token in added).encode("utf-8")
    return vocabulary._replace(pieces=[*vocabulary.pieces, *added], content=content)


def load_tokenizer(path: str, lower_case: bool) -> Tokenizer:
    """Return the tokenizer of a vocabulary that :func:`read_vocabulary` accepts; see :func:`make_tokenizer`."""
    return make_tokenizer(read_vocabulary(Path(path)), lower_case)


def make_tokenizer(vocabulary: Vocabulary, lower_case: bool, special_tokens: bool = False) -> Tokenizer:
    """Return BERT's tokenizer, cached by its pieces; it splits text like Hugging Face's ``BertTokenizerFast``.

    Args:
        special_tokens: whether ``[SEP]`` and the like in a text are the tokens, as for Hugging Face; they are split if
            not, as in the published preparation of corpora.
    """
    words = vocabulary.pieces[: len(vocabulary.pieces) - vocabulary.rules.appended]
    return _tokenizer(tuple(words), lower_case, vocabulary.rules, special_tokens)


@functools.lru_cache(maxsize=2)
def _tokenizer(words: Tuple[str, ...], lower_case: bool, rules: TokenizerRules, special_tokens: bool) -> Tokenizer:
    ids = {piece: number for number, piece in enumerate(words)}
    tokenizer = Tokenizer(WordPiece(ids, unk_token=UNKNOWN, max_input_chars_per_word=LONGEST_WORD))
    tokenizer.normalizer = bert_normalizer(lower_case, rules)
    tokenizer.pre_tokenizer = BertPreTokenizer()
    added = {token.content: token for token in rules.added if special_tokens or token.content not in SPECIAL_TOKENS}
    for token in added.values():
        if token.normalized and not tokenizer.normalizer.normalize_str(token.content):
            raise UserError(
                f"the tokenizer's added token {token.content!r} is nothing once text is normalized, so it cannot be"
                " found; remove it from the tokenizer's files"
            )
    # The white space around a token gives no pieces. The library fails if two tokens take the same.
    without_space = [token._replace(lstrip=False, rstrip=False) for token in added.values()]
    tokenizer.add_tokens([AddedToken(**token._asdict()) for token in without_space])
    if special_tokens:
        tokenizer.add_special_tokens([token for token in SPECIAL_TOKENS if token not in added])
    return tokenizer


def with_marks(text: str, end: int) -> int:
    """Return the end of a word including its last letter's accents, which tokens of lower-cased text lack."""
    while end < len(text) and unicodedata.category(text[end]) == "Mn":
        end += 1
    return end


def bert_normalizer(lower_case: bool, rules: TokenizerRules = USUAL_RULES) -> BertNormalizer:
    """Return a normalizer: the usual one cleans text and separates Chinese characters; lower-casing strips accents."""
    return BertNormalizer(
        clean_text=rules.clean_text,
        handle_chinese_chars=rules.tokenize_chinese_chars,
        strip_accents=rules.strip_accents,
        lowercase=lower_case,
    )
