"""The settings that lie beside a vocabulary in a folder of Hugging Face's BERT tokenizers: reads and writes them.

They are in ``tokenizer_config.json``, ``tokenizer.json``, ``special_tokens_map.json`` and ``added_tokens.json``. What a
tokenizer of BERT does otherwise than usual is followed, and what this project does not follow is refused.
"""

from __future__ import annotations

from pathlib import Path
from typing import Any, Dict, List, NamedTuple, Optional, Sequence, Tuple, Type, TypeVar, Union

from pydantic import BaseModel, ConfigDict, Field, RootModel, field_validator
from typing_extensions import Annotated, Literal

from utilities.errors import UserError
from utilities.validation import read_checked

PADDING, UNKNOWN, CLASSIFIER, SEPARATOR, MASK = "[PAD]", "[UNK]", "[CLS]", "[SEP]", "[MASK]"
SPECIAL_TOKENS = (PADDING, UNKNOWN, CLASSIFIER, SEPARATOR, MASK)
VOCABULARY_NAME, TOKENIZER_NAME, SETTINGS_NAME = "vocab.txt", "tokenizer.json", "tokenizer_config.json"
SPECIAL_NAME, ADDED_NAME = "special_tokens_map.json", "added_tokens.json"
TOKENIZER_FILES = (VOCABULARY_NAME, TOKENIZER_NAME, SETTINGS_NAME, SPECIAL_NAME, ADDED_NAME)
CONTINUATION = "##"
LONGEST_WORD = 100  # characters; a longer word is [UNK]


class AddedToken(NamedTuple):
    """A token that is looked for in a text before this is split into words.

    Attributes:
        content: the token.
        special: whether it is no text, such as a mark.
        normalized: whether it is looked for after the text has been normalized, itself normalized too.
        lstrip, rstrip: whether it takes the white space before or after it.
        single_word: whether it is found only where no letter or digit adjoins it.
    """

    content: str
    special: bool = True
    normalized: bool = False
    lstrip: bool = False
    rstrip: bool = False
    single_word: bool = False


class TokenizerRules(NamedTuple):
    """How a tokenizer of BERT differs from the usual one, apart from lower-casing.

    Attributes:
        strip_accents: whether accents are removed; None: as text is lower-cased.
        tokenize_chinese_chars: whether each Chinese character is a word.
        clean_text: whether control characters are removed, and white space becomes blanks.
        added: added tokens, in the order of their ids; [PAD], [UNK], [CLS], [SEP] and [MASK] only if they are unusual.
        appended: how many of the vocabulary's last pieces are added tokens alone, and no pieces of words.
    """

    strip_accents: Optional[bool] = None
    tokenize_chinese_chars: bool = True
    clean_text: bool = True
    added: Tuple[AddedToken, ...] = ()
    appended: int = 0

    def described(self) -> Dict[str, Any]:
        """Return the options that are not the usual ones, by name."""
        return {
            name: value
            for name, value in self._asdict().items()
            if name not in ("added", "appended") and value != self._field_defaults[name]
        }

    def settings(self, lower_case: bool, pieces: Sequence[str]) -> Dict[str, Any]:
        """Return the content of a ``tokenizer_config.json`` with these rules, which Hugging Face reads as well."""
        described = {str(pieces.index(token.content)): token._asdict() for token in self.added}
        return {
            "tokenizer_class": "BertTokenizer",
            "do_lower_case": lower_case,
            **self.described(),
            **({"added_tokens_decoder": described} if described else {}),
        }


USUAL_RULES = TokenizerRules()


class _Part(BaseModel):
    model_config = ConfigDict(strict=True, frozen=True)


class _Token(_Part):
    """An added token as the files describe it."""

    content: Annotated[str, Field(min_length=1)]
    special: bool = False
    normalized: Optional[bool] = None
    lstrip: bool = False
    rstrip: bool = False
    single_word: bool = False

    def read(self) -> AddedToken:
        normalized = not self.special if self.normalized is None else self.normalized
        return AddedToken(self.content, self.special, normalized, self.lstrip, self.rstrip, self.single_word)


class _NumberedToken(_Token):
    id: Annotated[int, Field(ge=0)]


_AnyToken = Union[Annotated[str, Field(min_length=1)], _Token]


class _SpecialTokens(_Part):
    """The special tokens by their use, in ``special_tokens_map.json`` and ``tokenizer_config.json``."""

    bos_token: Optional[_AnyToken] = None
    eos_token: Optional[_AnyToken] = None
    unk_token: Optional[_AnyToken] = None
    sep_token: Optional[_AnyToken] = None
    pad_token: Optional[_AnyToken] = None
    cls_token: Optional[_AnyToken] = None
    mask_token: Optional[_AnyToken] = None
    additional_special_tokens: Optional[List[_AnyToken]] = None
    extra_special_tokens: Union[List[_AnyToken], Dict[str, _AnyToken], None] = None

    @field_validator("pad_token", "unk_token", "cls_token", "sep_token", "mask_token")
    @classmethod
    def _is_berts(cls, token: Optional[_AnyToken], info: Any) -> Optional[_AnyToken]:
        expected = f"[{info.field_name[: -len('_token')].upper()}]"
        if token is not None and _as_token(token).content != expected:
            raise ValueError(f"input should be {expected}")
        return token

    def listed(self) -> List[AddedToken]:
        """Return the special tokens in the order in which Hugging Face adds them to the vocabulary."""
        extra = self.extra_special_tokens or []
        extra = list(extra.values()) if isinstance(extra, dict) else extra
        named = [self.bos_token, self.eos_token, self.unk_token or UNKNOWN, self.sep_token or SEPARATOR]
        named += [self.pad_token or PADDING, self.cls_token or CLASSIFIER, self.mask_token or MASK]
        tokens = [*named, *(self.additional_special_tokens or []), *extra]
        return [_as_token(token) for token in tokens if token is not None]


def _as_token(token: _AnyToken) -> AddedToken:
    """Return a special token, which Hugging Face looks for in the text as it is unless it is described otherwise."""
    return AddedToken(token) if isinstance(token, str) else token.read()._replace(special=True)


_INPUTS = {"attention_mask", "token_type_ids"}
_GENERAL = ("PreTrainedTokenizerFast", "TokenizersBackend")  # classes that read tokenizer.json alone


class _Settings(_SpecialTokens):
    """``tokenizer_config.json``. A setting with a single value has it by default; with another, it is not followed."""

    do_lower_case: Optional[bool] = None
    strip_accents: Optional[bool] = None
    tokenize_chinese_chars: Optional[bool] = None
    clean_text: Optional[bool] = None
    added_tokens_decoder: Optional[Dict[Annotated[str, Field(pattern=r"^\d{1,9}$")], _Token]] = None
    model_max_length: Annotated[Optional[float], Field(allow_inf_nan=False)] = None
    tokenizer_class: Literal[
        "BertTokenizer", "BertTokenizerFast", "PreTrainedTokenizerFast", "TokenizersBackend", None
    ] = None
    do_basic_tokenize: Literal[True, None] = None
    never_split: Annotated[Optional[List[Any]], Field(max_length=0)] = None
    word_tokenizer_type: Literal["basic", None] = None
    subword_tokenizer_type: Literal["wordpiece", None] = None
    padding_side: Literal["right", None] = None
    truncation_side: Literal["right", None] = None
    split_special_tokens: Literal[False, None] = None
    auto_map: None = None
    model_input_names: Optional[List[str]] = None

    @field_validator("model_input_names")
    @classmethod
    def _has_berts_inputs(cls, names: Optional[List[str]]) -> Optional[List[str]]:
        missing = sorted(_INPUTS - set(names)) if names is not None else []
        if missing:
            raise ValueError(f"input should include {missing[0]}")
        return names


class _Model(_Part):
    type: Literal["WordPiece"] = "WordPiece"
    vocab: Dict[str, int]
    continuing_subword_prefix: Literal["##"]
    unk_token: Literal["[UNK]"]
    max_input_chars_per_word: Literal[100]


class _Normalizer(_Part):
    type: Literal["BertNormalizer"]
    lowercase: bool
    strip_accents: Optional[bool] = None
    handle_chinese_chars: bool
    clean_text: bool


class _PreTokenizer(_Part):
    type: Literal["BertPreTokenizer"]


def _template(*parts: Tuple[str, str, int]) -> List[Dict[str, Any]]:
    return [{kind: {"id": name, "type_id": segment}} for kind, name, segment in parts]


_BEGIN, _FIRST, _END = ("SpecialToken", CLASSIFIER, 0), ("Sequence", "A", 0), ("SpecialToken", SEPARATOR, 0)
_SINGLE = [_BEGIN, _FIRST, _END]
_PAIR = [*_SINGLE, ("Sequence", "B", 1), ("SpecialToken", SEPARATOR, 1)]


class _PostProcessor(_Part):
    """Where [CLS] and [SEP] are put."""

    type: Literal["BertProcessing", "TemplateProcessing"]
    single: List[Dict[str, Any]] = _template(*_SINGLE)
    pair: List[Dict[str, Any]] = _template(*_PAIR)

    @field_validator("single", "pair")
    @classmethod
    def _is_berts(cls, parts: List[Dict[str, Any]], info: Any) -> List[Dict[str, Any]]:
        if parts != _template(*(_SINGLE if info.field_name == "single" else _PAIR)):
            raise ValueError("input should have [CLS] first and [SEP] after each text")
        return parts


class _Tokenizer(_Part):
    """``tokenizer.json``, as far as it determines the pieces of a text."""

    model: _Model
    normalizer: _Normalizer
    pre_tokenizer: _PreTokenizer
    post_processor: _PostProcessor
    added_tokens: List[_NumberedToken] = []


_Content = TypeVar("_Content", bound=BaseModel)


def _read(path: Path, kind: Type[_Content], prefix: str) -> Optional[_Content]:
    """Return the checked content of a file; None if there is none."""
    fix = "it is not a tokenizer of BERT that is followed here; name another"
    return read_checked(path, kind, prefix, fix) if path.is_file() else None


class _AddedIds(RootModel[Dict[Annotated[str, Field(min_length=1)], Annotated[int, Field(ge=0)]]]):
    """``added_tokens.json``, which versions of Transformers before ``added_tokens_decoder`` wrote."""

    model_config = ConfigDict(strict=True, frozen=True)


class TokenizerFiles(NamedTuple):
    """The checked files beside a vocabulary, as far as there are any.

    Attributes:
        path: the vocabulary.
        prefix: beginning of messages.
    """

    path: Path
    prefix: str
    settings: Optional[_Settings] = None
    special: Optional[_SpecialTokens] = None
    tokenizer: Optional[_Tokenizer] = None
    added: Optional[_AddedIds] = None

    @property
    def lower_case(self) -> Optional[bool]:
        """Whether text is lower-cased; None if no file says so. Hugging Face's tokenizer lower-cases by default."""
        if self.settings is None and self.tokenizer is None:
            return None
        return bool(self._option("do_lower_case", "lowercase", True))

    def pieces(self) -> List[str]:
        """Return the pieces of words in ``tokenizer.json``, in the order of their ids.

        An added token whose id lies among theirs is one of them.

        Raises:
            UserError: the ids are not 0, 1, 2, …
        """
        assert self.tokenizer is not None, "the vocabulary is read from tokenizer.json"
        ids = dict(self.tokenizer.model.vocab)
        last = max(ids.values(), default=-1)
        ids.update({token.content: token.id for token in self.tokenizer.added_tokens if token.id <= last})
        pieces = sorted(ids, key=ids.__getitem__)
        if [ids[piece] for piece in pieces] != list(range(len(pieces))) or "\n" in "".join(pieces):
            raise self._refusal("its ids are not 0, 1, 2, …, or a piece has several lines; name a tokenizer of BERT")
        return pieces

    def check_pieces(self, pieces: Sequence[str]) -> None:
        """Check that ``tokenizer.json`` has the pieces of the ``vocab.txt``.

        Raises:
            UserError: it has others, so one of the two files is out of date.
        """
        if self.tokenizer is None or self.path.name == TOKENIZER_NAME:
            return
        theirs = self.pieces()
        if theirs != list(pieces):
            first = next((n for n, pair in enumerate(zip(theirs, pieces)) if pair[0] != pair[1]), None)
            what = f"{len(theirs):,} pieces, not {len(pieces):,}" if first is None else f"another piece {first}"
            raise self._refusal(f"{TOKENIZER_NAME} beside it has {what}; delete the one that is out of date")

    def rules(self, pieces: Sequence[str]) -> TokenizerRules:
        """Return how the tokenizer differs from the usual one.

        Args:
            pieces: the pieces of words in the vocabulary, without added tokens.

        Raises:
            UserError: an added token has another id than Hugging Face's tokenizer gives it.
        """
        strip = self._option("strip_accents", "strip_accents", None)
        ids, added = {piece: number for number, piece in enumerate(pieces)}, self._added_tokens()
        for token, number in added:
            expected = ids.setdefault(token.content, len(ids))
            if number not in (None, expected):
                raise self._refusal(
                    f"the added token {token.content!r} has the id {number}, but Hugging Face's tokenizer gives it"
                    f" {expected}; correct the files beside it"
                )
        blank = next((token.content for token, _ in added if token.content != token.content.strip()), None)
        if blank is not None and any(token.lstrip or token.rstrip for token, _ in added):
            raise self._refusal(
                f"the added token {blank!r} has white space at an end, which another one takes (lstrip, rstrip); remove"
                " it, or these settings"
            )
        unusual = {token.content: token for token, _ in added if token not in map(AddedToken, SPECIAL_TOKENS)}
        return TokenizerRules(
            strip_accents=None if strip == self.lower_case else strip,
            tokenize_chinese_chars=bool(self._option("tokenize_chinese_chars", "handle_chinese_chars", True)),
            clean_text=bool(self._option("clean_text", "clean_text", True)),
            added=tuple(sorted(unusual.values(), key=lambda token: ids[token.content])),
            appended=len(ids) - len(pieces),
        )

    def _added_tokens(self) -> List[Tuple[AddedToken, Optional[int]]]:
        """Return all added tokens with their ids; None: Hugging Face's tokenizer chooses the id."""
        numbered = self.added.root if self.added else {}
        listed: Dict[str, AddedToken] = {}
        for token in self._listed():
            listed.setdefault(token.content, token)
        tokens = {
            content: (AddedToken(content, content in listed, content not in listed), number)
            for content, number in numbered.items()
        }
        described: List[Tuple[int, _Token]] = (
            [(token.id, token) for token in self.tokenizer.added_tokens] if self.tokenizer else []
        )
        decoder = self.settings.added_tokens_decoder if self.settings else None
        described += [(int(number), token) for number, token in (decoder or {}).items()]
        for number, entry in described:
            if tokens.get(entry.content, (None, number))[1] != number:
                raise self._refusal(f"the files beside it give the added token {entry.content!r} several ids")
            special = entry.special or entry.content in listed or entry.content in SPECIAL_TOKENS
            tokens[entry.content] = entry.read()._replace(special=special), number
        if decoder is not None:
            undescribed = set(numbered) - {token.content for _, token in described}
            if undescribed:
                raise self._refusal(f"{ADDED_NAME} has {min(undescribed)!r}, which {SETTINGS_NAME} lacks; add it there")
        numbers = [number for _, number in tokens.values()]
        if len(set(numbers)) < len(numbers):
            raise self._refusal("the files beside it give two added tokens the same id")
        new = [(token, None) for content, token in listed.items() if content not in tokens]
        return [*sorted(tokens.values(), key=lambda pair: pair[1]), *new]

    def _listed(self) -> List[AddedToken]:
        """Return the special tokens that the files name by their use."""
        settings = self.settings or _Settings()
        if settings.added_tokens_decoder is not None or self.special is None:
            return settings.listed()
        given = {name: getattr(self.special, name) for name in self.special.model_fields_set & _NAMED_BY_USE}
        more = [*(settings.additional_special_tokens or []), *(given.pop("additional_special_tokens", None) or [])]
        return settings.model_copy(update={**given, "additional_special_tokens": more}).listed()

    def _option(self, setting: str, normalizer: str, default: Optional[bool]) -> Optional[bool]:
        """Return an option: that of ``tokenizer_config.json``, else that of the normalizer in ``tokenizer.json``."""
        given = getattr(self.settings, setting, None)
        if self.tokenizer is None:
            return default if given is None else given
        is_general = self.settings is not None and self.settings.tokenizer_class in _GENERAL
        own: Optional[bool] = getattr(self.tokenizer.normalizer, normalizer)
        return own if given is None or is_general else given

    def _refusal(self, reason: str) -> UserError:
        return UserError(f"{self.prefix}{self.path}: {reason}")


_NAMED_BY_USE = set(_SpecialTokens.model_fields)


def read_tokenizer_files(vocabulary: Path, prefix: str = "") -> TokenizerFiles:
    """Read the files beside a ``vocab.txt`` or ``tokenizer.json``; a file of another name has none.

    Args:
        vocabulary: the vocabulary, which may be one of these files itself.
        prefix: beginning of messages.

    Raises:
        UserError: a file cannot be read, or has a setting that is not followed.
    """
    if vocabulary.name not in (VOCABULARY_NAME, TOKENIZER_NAME):
        return TokenizerFiles(vocabulary, prefix)
    folder = vocabulary.parent
    return TokenizerFiles(
        vocabulary,
        prefix,
        _read(folder / SETTINGS_NAME, _Settings, prefix),
        _read(folder / SPECIAL_NAME, _SpecialTokens, prefix),
        _read(folder / TOKENIZER_NAME, _Tokenizer, prefix),
        _read(folder / ADDED_NAME, _AddedIds, prefix),
    )
