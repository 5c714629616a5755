"""The tokenizer that lies beside a vocabulary in a folder of Hugging Face: reads it, and writes what is unusual.

It is in ``tokenizer_config.json``, ``tokenizer.json``, ``special_tokens_map.json``, ``added_tokens.json`` and, by its
class, in ``config.json``. Hugging Face's ``AutoTokenizer`` reads them; what is not a tokenizer of BERT is refused.
"""

from __future__ import annotations

from pathlib import Path
from typing import Any, Dict, List, NamedTuple, Optional, Sequence, Tuple

from pydantic import Field, ValidationError, field_validator
from typing_extensions import Annotated, Literal

from utilities.environment import prepare_transformers
from utilities.errors import UserError
from utilities.files import read_json_object
from utilities.validation import Strict, first_problem

PADDING, UNKNOWN, CLASSIFIER, SEPARATOR, MASK = "[PAD]", "[UNK]", "[CLS]", "[SEP]", "[MASK]"
SPECIAL_TOKENS = (PADDING, UNKNOWN, CLASSIFIER, SEPARATOR, MASK)
VOCABULARY_NAME, TOKENIZER_NAME, SETTINGS_NAME = "vocab.txt", "tokenizer.json", "tokenizer_config.json"
CONFIG_NAME, _CLASS = "config.json", "tokenizer_class"
SPECIAL_NAME, ADDED_NAME = "special_tokens_map.json", "added_tokens.json"
TOKENIZER_FILES = (VOCABULARY_NAME, TOKENIZER_NAME, SETTINGS_NAME, SPECIAL_NAME, ADDED_NAME)
CONTINUATION = "##"
LONGEST_WORD = 100  # characters; a longer word is [UNK]
LONGEST_TEXT = 10**9  # tokens; files have larger numbers, too


class AddedToken(NamedTuple):
    """A token that is looked for in a text before this is split into words."""

    content: str
    special: bool = True  # whether it is no text, such as a mark
    normalized: bool = False  # whether it is looked for after the text has been normalized, itself normalized too
    lstrip: bool = False  # whether it takes the white space before it
    rstrip: bool = False
    single_word: bool = False  # whether it is found only where no letter or digit adjoins it


class TokenizerRules(NamedTuple):
    """How a tokenizer of BERT differs from the usual one, apart from lower-casing."""

    strip_accents: Optional[bool] = None  # None: as text is lower-cased
    tokenize_chinese_chars: bool = True  # whether each is a word
    clean_text: bool = True  # whether control characters are removed, and white space becomes blanks
    model_input_names: Optional[Tuple[str, ...]] = None  # if these do not tell the texts of a pair apart
    added: Tuple[AddedToken, ...] = ()  # in the order of their ids; [PAD] and the like only if they are unusual
    appended: int = 0  # how many of the vocabulary's last pieces are added tokens alone, and no pieces of words

    def described(self) -> Dict[str, Any]:
        """Return the options that are not the usual ones, by name."""
        return {
            name: value
            for name, value in self._asdict().items()
            if name not in ("added", "appended") and value != self._field_defaults[name]
        }

    def settings(self, lower_case: bool, pieces: Sequence[str]) -> Dict[str, Any]:
        """Return the content of a ``tokenizer_config.json`` with these rules, which Hugging Face reads as well."""
        settings = {"tokenizer_class": "BertTokenizer", "do_lower_case": lower_case, **self.described()}
        if self.added:
            described = {str(pieces.index(token.content)): token._asdict() for token in self.added}
            settings["added_tokens_decoder"] = described
        return settings


USUAL_RULES = TokenizerRules()


class _Token(Strict):
    id: Annotated[int, Field(ge=0)]
    content: Annotated[str, Field(min_length=1)]
    special: bool
    normalized: bool
    lstrip: bool
    rstrip: bool
    single_word: bool


class _Model(Strict):
    type: Literal["WordPiece"]
    vocab: Dict[str, int]
    continuing_subword_prefix: Literal["##"]
    unk_token: Literal["[UNK]"]
    max_input_chars_per_word: Literal[100]


class _Normalizer(Strict):
    type: Literal["BertNormalizer"]
    lowercase: bool
    strip_accents: Optional[bool] = None
    handle_chinese_chars: bool
    clean_text: bool


class _PreTokenizer(Strict):
    type: Literal["BertPreTokenizer"]


_Template = List[Dict[str, Any]]
_SINGLE: _Template = [
    {"SpecialToken": {"id": CLASSIFIER, "type_id": 0}},
    {"Sequence": {"id": "A", "type_id": 0}},
    {"SpecialToken": {"id": SEPARATOR, "type_id": 0}},
]
_PAIR = [*_SINGLE, {"Sequence": {"id": "B", "type_id": 1}}, {"SpecialToken": {"id": SEPARATOR, "type_id": 1}}]


class _PostProcessor(Strict):
    type: Literal["BertProcessing", "TemplateProcessing"]
    single: _Template = _SINGLE
    pair: _Template = _PAIR

    @field_validator("single", "pair")
    @classmethod
    def _is_berts(cls, parts: _Template, info: Any) -> _Template:
        if parts != (_SINGLE if info.field_name == "single" else _PAIR):
            raise ValueError("input should have [CLS] first and [SEP] after each text")
        return parts


class _Tokenizer(Strict):
    """A tokenizer as the library ``tokenizers`` writes it, as far as it determines the pieces of a text."""

    model: _Model
    normalizer: _Normalizer
    pre_tokenizer: _PreTokenizer
    post_processor: _PostProcessor
    added_tokens: List[_Token]


class _Settings(Strict):
    """What Hugging Face's tokenizer has beside it. With another value of a setting, it is not followed."""

    pad_token: Literal["[PAD]", None]
    unk_token: Literal["[UNK]", None]
    cls_token: Literal["[CLS]", None]
    sep_token: Literal["[SEP]", None]
    mask_token: Literal["[MASK]", None]
    padding_side: Literal["right"]
    truncation_side: Literal["right"]
    split_special_tokens: Literal[False]
    auto_map: None
    clean_text: Optional[bool]
    model_input_names: List[str]
    model_max_length: Annotated[Optional[float], Field(allow_inf_nan=False)]


_SEGMENTS = "token_type_ids"  # tell the texts of a pair apart


class TokenizerFiles(NamedTuple):
    """The tokenizer that the files beside a vocabulary describe, as Hugging Face reads them.

    Without such files, ``tokenizer`` and ``settings`` are None; ``prefix`` is the beginning of messages.
    """

    path: Path
    prefix: str
    tokenizer: Optional[_Tokenizer] = None
    settings: Optional[_Settings] = None

    @property
    def longest_text(self) -> Optional[int]:
        """Tokens of a text at most; None if no file says it."""
        longest = None if self.settings is None else self.settings.model_max_length
        return None if longest is None else int(min(longest, LONGEST_TEXT))

    @property
    def lower_case(self) -> Optional[bool]:
        """Whether text is lower-cased; None if no file says so."""
        if self.tokenizer is not None:
            return self.tokenizer.normalizer.lowercase
        said = _content(self.path.with_name(SETTINGS_NAME)).get("do_lower_case")  # of a vocabulary that lies elsewhere
        return said if isinstance(said, bool) else None

    def pieces(self) -> List[str]:
        """Return the pieces of words by their ids, which must be 0, 1, 2, …; an added token among them is a piece."""
        assert self.tokenizer is not None, "the vocabulary is read from tokenizer.json"
        ids = dict(self.tokenizer.model.vocab)
        last = max(ids.values(), default=-1)
        ids.update({token.content: token.id for token in self.tokenizer.added_tokens if token.id <= last})
        pieces = sorted(ids, key=ids.__getitem__)
        if [ids[piece] for piece in pieces] != list(range(len(pieces))) or "\n" in "".join(pieces):
            raise self._refusal("its ids are not 0, 1, 2, …, or a piece has several lines; name a tokenizer of BERT")
        return pieces

    def check_pieces(self, pieces: Sequence[str]) -> None:
        """Check that ``tokenizer.json`` has the pieces of the ``vocab.txt``."""
        is_read = self.tokenizer is not None and self.path.name != TOKENIZER_NAME
        if not (is_read and self.path.with_name(TOKENIZER_NAME).is_file()):
            return
        theirs = self.pieces()
        if theirs != list(pieces):
            first = next((n for n, pair in enumerate(zip(theirs, pieces)) if pair[0] != pair[1]), None)
            what = f"{len(theirs):,} pieces, not {len(pieces):,}" if first is None else f"another piece {first}"
            raise self._refusal(f"{TOKENIZER_NAME} beside it has {what}; delete the one that is out of date")

    def rules(self, pieces: Sequence[str]) -> TokenizerRules:
        """Return how the tokenizer differs from the usual one.

        An added token without an id of its own, or that cannot be found in texts, is a ``UserError``.
        """
        if self.tokenizer is None or self.settings is None:
            return USUAL_RULES
        normalizer, ids = self.tokenizer.normalizer, {piece: number for number, piece in enumerate(pieces)}
        described = sorted(self.tokenizer.added_tokens, key=lambda token: token.id)
        given = {AddedToken(**token.model_dump(exclude={"id"})): token.id for token in described}
        added = [token for token in given if token not in map(AddedToken, SPECIAL_TOKENS)]
        for token in added:
            number = given[token]
            if ids.setdefault(token.content, len(ids)) != number:
                raise self._refusal(f"the added token {token.content!r} has the id {number}, which is another's")
        blank = next((token.content for token in added if token.content != token.content.strip()), None)
        if blank is not None and any(token.lstrip or token.rstrip for token in added):
            raise self._refusal(
                f"the added token {blank!r} has white space at an end, which another one takes (lstrip, rstrip); remove"
                " it, or these settings"
            )
        strip, inputs = normalizer.strip_accents, self.settings.model_input_names
        return TokenizerRules(
            strip_accents=None if strip == normalizer.lowercase else strip,
            tokenize_chinese_chars=normalizer.handle_chinese_chars,
            clean_text=normalizer.clean_text and self.settings.clean_text is not False,
            model_input_names=None if _SEGMENTS in inputs else tuple(inputs),
            added=tuple(added),
            appended=len(ids) - len(pieces),
        )

    def _refusal(self, reason: str) -> UserError:
        return UserError(f"{self.prefix}{self.path}: {reason}")


def read_tokenizer_files(vocabulary: Path, prefix: str = "") -> TokenizerFiles:
    """Read the files beside a ``vocab.txt`` or ``tokenizer.json`` as Hugging Face does; other files have none."""
    folder, files = vocabulary.parent, TokenizerFiles(vocabulary, prefix)
    described = [name for name in TOKENIZER_FILES if name != VOCABULARY_NAME and (folder / name).is_file()]
    described += [name for name in (CONFIG_NAME,) if _content(folder / name).get(_CLASS)]
    if vocabulary.name not in (VOCABULARY_NAME, TOKENIZER_NAME) or not described or not vocabulary.is_file():
        return files
    try:
        theirs = _hugging_face(folder)
        tokenizer = _Tokenizer.model_validate_json(theirs.backend_tokenizer.to_str())
        said = {name: theirs.init_kwargs.get(name) for name in ("auto_map", "clean_text", "model_max_length")}
        others = {name: getattr(theirs, name) for name in _Settings.model_fields if name not in said}
        settings = _Settings.model_validate({**said, **others})
    except Exception as error:  # of a file that has anything
        reason = first_problem(error) if isinstance(error, ValidationError) else " ".join(str(error).split())[:200]
        kind = _content(folder / SETTINGS_NAME).get(_CLASS) or _content(folder / CONFIG_NAME).get(_CLASS)
        named = f"{kind}: " if kind else ""
        what = f"{', '.join(described)} beside it: {named}{reason or type(error).__name__}"
        raise files._refusal(f"{what}; it is not a tokenizer of BERT that is followed here, name another") from error
    return TokenizerFiles(vocabulary, prefix, tokenizer, settings)


def _content(path: Path) -> Dict[str, Any]:
    try:
        return read_json_object(path) if path.is_file() else {}
    except UserError:  # which the reader of the file reports
        return {}


def _hugging_face(folder: Path) -> Any:
    """Return Hugging Face's tokenizer of a folder; a folder that names no class has one of BERT."""
    prepare_transformers()
    from transformers import AutoTokenizer, BertTokenizerFast, PreTrainedTokenizerFast

    config, settings = _content(folder / CONFIG_NAME), _content(folder / SETTINGS_NAME)
    is_named = bool(settings.get(_CLASS) or config.get(_CLASS) or config.get("model_type"))  # old ones have no type
    kind = AutoTokenizer if is_named else BertTokenizerFast
    tokenizer = kind.from_pretrained(str(folder), local_files_only=True, trust_remote_code=False)
    if not isinstance(tokenizer, PreTrainedTokenizerFast):
        raise ValueError(f"{type(tokenizer).__name__} has rules of its own")
    return tokenizer
