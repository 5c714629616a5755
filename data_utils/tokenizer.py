"""BERT's tokenizer, read from a ``vocab.txt`` or ``tokenizer.json``.

WordPiece as in BERT: pieces that continue a word begin with ``##``. V pieces.
"""

from __future__ import annotations

import functools
import hashlib
from codecs import BOM_UTF8
from pathlib import Path
from typing import Any, List, Mapping, NamedTuple, Optional, Tuple

import numpy as np
from tokenizers import Tokenizer
from tokenizers.models import WordPiece
from tokenizers.normalizers import BertNormalizer
from tokenizers.pre_tokenizers import BertPreTokenizer

from utilities.errors import UserError
from utilities.files import read_json_object

PADDING, UNKNOWN, CLASSIFIER, SEPARATOR, MASK = "[PAD]", "[UNK]", "[CLS]", "[SEP]", "[MASK]"
SPECIAL_TOKENS = (PADDING, UNKNOWN, CLASSIFIER, SEPARATOR, MASK)
VOCABULARY_NAME, TOKENIZER_NAME, SETTINGS_NAME = "vocab.txt", "tokenizer.json", "tokenizer_config.json"
ADDED_NAME = "added_tokens.json"
CONTINUATION = "##"
LONGEST_WORD = 100  # characters; a longer word is [UNK]


class Vocabulary(NamedTuple):
    """A WordPiece vocabulary.

    Attributes:
        pieces: the pieces in the order of their ids.
        path: the file that they were read from.
        content: the bytes of the ``vocab.txt``.
        lower_case: whether its tokenizer lower-cases text; None if the files do not specify it.
    """

    pieces: List[str]
    path: Path
    content: bytes
    lower_case: Optional[bool] = None

    @property
    def sha256(self) -> str:
        """The SHA-256 of the ``vocab.txt``."""
        return hashlib.sha256(self.content).hexdigest()

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

    def looks_lower_cased(self) -> bool:
        """Return whether the vocabulary was made from lower-cased text; one made from cased text has single capitals.

        This is needed for checkpoints that do not specify how their text was prepared.
        """
        return not any(len(piece) == 1 and "A" <= piece <= "Z" for piece in self.pieces)


def read_vocabulary(path: Path) -> Vocabulary:
    """Read a vocabulary.

    Args:
        path: a ``vocab.txt``, which has a piece on each line, Hugging Face's ``tokenizer.json``, or a folder with one.

    Raises:
        UserError: there is no vocabulary, or BERT cannot use it.
    """
    lower_case = find_lower_case(path) if path.is_dir() else None
    path = vocabulary_file(path)
    data = vocab_txt(path)
    try:
        pieces = data.decode("utf-8").split("\n")
    except UnicodeDecodeError as error:
        raise UserError(f"{path}: not UTF-8 ({error.reason}), so it is not a vocab.txt of BERT") from error
    pieces = [piece.rstrip("\r") for piece in pieces]
    while pieces and not pieces[-1]:
        pieces.pop()
    known = set(pieces)
    for token in SPECIAL_TOKENS:
        if token not in known:
            raise UserError(f"{path}: {token} is missing; a BERT vocab.txt contains {' '.join(SPECIAL_TOKENS)}")
    if len(known) != len(pieces):
        twice = next(piece for number, piece in enumerate(pieces) if piece in pieces[:number])
        raise UserError(f"{path}: {twice!r} occurs twice")
    if lower_case is None and path.suffix == ".json":
        lower_case = _read_tokenizer(path)[1]
    return Vocabulary(pieces, path, data, lower_case)


def find_vocabulary(folder: Path) -> Optional[Path]:
    """Return the ``vocab.txt`` or else the ``tokenizer.json`` of a folder; None if it has neither."""
    return next((folder / name for name in (VOCABULARY_NAME, TOKENIZER_NAME) if (folder / name).is_file()), None)


def vocabulary_file(path: Path) -> Path:
    """Return the file of a vocabulary that is given as a file or as a folder.

    Raises:
        UserError: there is no vocabulary.
    """
    file = find_vocabulary(path) if path.is_dir() else path
    if file is None or not file.is_file():
        raise UserError(f"{path}: no such vocabulary file, nor a folder with {VOCABULARY_NAME} or {TOKENIZER_NAME}")
    return file


def vocab_txt(path: Path) -> bytes:
    """Return the content of a ``vocab.txt`` without a byte order mark, or the equivalent for a ``tokenizer.json``.

    Raises:
        UserError: ``path`` is a file of a tokenizer that is not BERT's.
    """
    if path.suffix != ".json":
        content = path.read_bytes()
        return content[len(BOM_UTF8) :] if content.startswith(BOM_UTF8) else content
    return "".join(piece + "\n" for piece in _read_tokenizer(path)[0]).encode("utf-8")


def find_lower_case(folder: Path, prefix: str = "") -> Optional[bool]:
    """Return whether a Hugging Face folder's tokenizer lower-cases text; None if unknown.

    ``tokenizer_config.json`` decides, then the normalizer in ``tokenizer.json``, if the vocabulary is read from it.
    Hugging Face's tokenizer lower-cases by default. The message of an error begins with ``prefix``.

    Raises:
        UserError: the tokenizer splits text in another way than BERT's.
    """
    path = folder / SETTINGS_NAME
    settings = read_json_object(path, prefix) if path.is_file() else {}
    vocabulary = find_vocabulary(folder)
    if vocabulary is not None and vocabulary.name == VOCABULARY_NAME:
        _refuse_added_tokens(folder, vocabulary, settings, prefix)
    lower_case = True if path.is_file() else None
    if "do_lower_case" in settings:
        lower_case = bool(settings["do_lower_case"])
    elif vocabulary is not None and vocabulary.name == TOKENIZER_NAME:
        lower_case = _read_tokenizer(vocabulary)[1]
    expected = {"strip_accents": lower_case, "tokenize_chinese_chars": True, "word_tokenizer_type": "basic"}
    given = {name: settings[name] for name in expected if settings.get(name) is not None}
    _refuse_other(f"{prefix}{path}", {name: (value, expected[name]) for name, value in given.items()})
    return lower_case


def _refuse_added_tokens(folder: Path, vocabulary: Path, settings: Mapping[str, Any], prefix: str) -> None:
    """Refuse a tokenizer that finds tokens in texts which its ``vocab.txt`` does not have."""
    path = folder / ADDED_NAME
    added = set(read_json_object(path, prefix)) if path.is_file() else set()
    described = settings.get("added_tokens_decoder")
    for token in described.values() if isinstance(described, dict) else ():
        added.add(str(token.get("content") if isinstance(token, dict) else token))
    pieces = vocab_txt(vocabulary).decode("utf-8", "replace").splitlines()
    others = sorted(added - set(pieces))
    if others:
        raise UserError(
            f"{prefix}{folder}: the tokenizer has {len(others)} added tokens that {vocabulary.name} lacks (first:"
            f" {others[0]}), which are not read here; name a model without added tokens"
        )


def _refuse_other(origin: str, properties: Mapping[str, Tuple[Any, Any]]) -> None:
    """Refuse a tokenizer with a property, by name, whose first value is not the second, that of BERT's."""
    for name, (value, expected) in properties.items():
        if value != expected:
            raise UserError(f"{origin}: {name} is {value!r}, BERT's is {expected!r}; name a tokenizer of BERT")


def _read_tokenizer(path: Path) -> Tuple[List[str], bool]:
    """Return the pieces in a ``tokenizer.json``, in the order of their ids, and whether it lower-cases text.

    Raises:
        UserError: the tokenizer splits text in another way than BERT's.
    """
    content = read_json_object(path)
    model, normalizer, splitter = (content.get(name) or {} for name in ("model", "normalizer", "pre_tokenizer"))
    try:
        lower_case = normalizer.get("lowercase") is True
        strips_accents = normalizer.get("strip_accents")
        properties = {
            "model.type": (model.get("type", "WordPiece"), "WordPiece"),
            "model.continuing_subword_prefix": (model.get("continuing_subword_prefix"), CONTINUATION),
            "model.unk_token": (model.get("unk_token"), UNKNOWN),
            "model.max_input_chars_per_word": (model.get("max_input_chars_per_word"), LONGEST_WORD),
            "normalizer.type": (normalizer.get("type"), "BertNormalizer"),
            "normalizer.clean_text": (normalizer.get("clean_text"), True),
            "normalizer.handle_chinese_chars": (normalizer.get("handle_chinese_chars"), True),
            "normalizer.strip_accents": (lower_case if strips_accents is None else strips_accents, lower_case),
            "pre_tokenizer.type": (splitter.get("type"), "BertPreTokenizer"),
        }
        _refuse_other(str(path), properties)
        ids = {**model["vocab"], **{token["content"]: token["id"] for token in content.get("added_tokens") or ()}}
        pieces = sorted(ids, key=ids.__getitem__)
        is_whole = [ids[piece] for piece in pieces] == list(range(len(pieces)))
    except (AttributeError, KeyError, TypeError) as error:
        raise UserError(
            f"{path}: is not a tokenizer of BERT ({type(error).__name__}: {error}); download it again"
        ) from error
    if not is_whole or "\n" in "".join(pieces):
        raise UserError(f"{path}: its ids are not 0, 1, 2, …, or a piece has several lines; name a tokenizer of BERT")
    return pieces, lower_case


def extended(vocabulary: Vocabulary, tokens: Path, lower_case: bool) -> Vocabulary:
    """Return a vocabulary with the tokens of a file, one on each line, after its own; those it has are left out.

    Raises:
        UserError: the file cannot be read, or has a token that is not a word once text is normalized and split.
    """
    try:
        lines = [line.strip() for line in tokens.read_text(encoding="utf-8").splitlines()]
    except (OSError, UnicodeDecodeError) as error:
        raise UserError(f"--extra-tokens: {tokens} cannot be read ({error}); correct the path") from error
    known = set(vocabulary.pieces)
    added = [token for token in dict.fromkeys(lines) if token and token not in known]
    for token in added:
        word = token[len(CONTINUATION) :] if token.startswith(CONTINUATION) else token
        parts = [
            part for part, _ in BertPreTokenizer().pre_tokenize_str(bert_normalizer(lower_case).normalize_str(word))
        ]
        if parts != [word]:
            raise UserError(
                f"--extra-tokens: {tokens}: {token!r} never occurs as a word, because text is normalized and split"
                f" first: it becomes {' '.join(parts)!r}; write one such word on each line"
            )
    content = vocabulary.content.rstrip(b"\r\n") + b"\n" + "".join(token + "\n" for token in added).encode("utf-8")
    return vocabulary._replace(pieces=[*vocabulary.pieces, *added], content=content)


def load_tokenizer(path: str, lower_case: bool) -> Tokenizer:
    """Return the tokenizer of a vocabulary that :func:`read_vocabulary` accepts; see :func:`make_tokenizer`.

    Example:
        >>> tokenizer = load_tokenizer("vocab.txt", lower_case=True)  # doctest: +SKIP
        >>> tokenizer.encode("An example", add_special_tokens=False).offsets  # doctest: +SKIP
        [(0, 2), (3, 10)]
    """
    return make_tokenizer(read_vocabulary(Path(path)), lower_case)


def make_tokenizer(vocabulary: Vocabulary, lower_case: bool, special_tokens: bool = False) -> Tokenizer:
    """Return BERT's tokenizer, cached by its pieces; it splits text like Hugging Face's ``BertTokenizer``.

    Args:
        vocabulary: its pieces.
        lower_case: lower-case text and strip its accents, as BERT "uncased".
        special_tokens: whether ``[SEP]`` and the like in a text are the tokens, as for Hugging Face; they are split if
            not, as in the published preparation of corpora.
    """
    return _tokenizer(tuple(vocabulary.pieces), lower_case, special_tokens)


@functools.lru_cache(maxsize=2)
def _tokenizer(pieces: Tuple[str, ...], lower_case: bool, special_tokens: bool) -> Tokenizer:
    ids = {piece: number for number, piece in enumerate(pieces)}
    tokenizer = Tokenizer(WordPiece(ids, unk_token=UNKNOWN, max_input_chars_per_word=LONGEST_WORD))
    tokenizer.normalizer = bert_normalizer(lower_case)
    tokenizer.pre_tokenizer = BertPreTokenizer()
    if special_tokens:
        tokenizer.add_special_tokens(list(SPECIAL_TOKENS))
    return tokenizer


def bert_normalizer(lower_case: bool) -> BertNormalizer:
    """Return a normalizer that cleans text and separates Chinese characters; lower-casing also strips accents."""
    return BertNormalizer(clean_text=True, handle_chinese_chars=True, strip_accents=None, lowercase=lower_case)
