"""Where sentences end: NLTK's Punkt, and the full stops of scripts that Punkt does not know.

Punkt: Kiss and Strunk 2006, "Unsupervised Multilingual Sentence Boundary Detection".
"""

from __future__ import annotations

import functools
import json
import re
from collections.abc import Iterable
from pathlib import Path

import nltk.data
from nltk.tokenize.punkt import (
    PunktParameters,
    PunktSentenceTokenizer,
    PunktToken,
    PunktTokenizer,
    PunktTrainer,
    load_punkt_params,
)

from data_utils.records_writer import write_atomically
from utilities.errors import UserError

# Chinese and Japanese, Devanagari, Arabic and Urdu: no abbreviations to tell apart, so the mark itself
# decides.
_PLAIN_END = re.compile(
    r"(?<=[。！？｡।॥؟۔])(?![。！？｡।॥؟۔”’」』）】》\"'])"  # no mark or quote follows
    r"|(?<=[。！？｡][”’」』）】》\"'])(?![”’」』）】》\"'])"  # or behind the closing quote
)
_PLAIN_MARK = re.compile(r"[。！？｡।॥؟۔]")
_PUNKT_MARK = re.compile(r"[.!?]")
_WORD = re.compile(r"\w")
LEAST_TRAINING_CHARACTERS = 100_000
TYPES_KEPT = 1 << 17
_COMMON_ABBREVIATIONS = (
    "mr mrs ms dr prof st jr sr gen col lt capt sgt rev hon gov sen rep vs etc al cf ca approx e.g i.e u.s u.k"
    " a.m p.m b.c a.d no vol fig pp ed inc ltd co corp jan feb mar apr aug sept oct nov dec ph.d m.d"
)


@functools.lru_cache(maxsize=TYPES_KEPT)
def _type_of(text: str) -> str:
    return PunktToken(text).type


class Token(PunktToken):
    """Punkt's token, at half the price: what it is counted as is found once for each different one, and patterns that
    can only match dots and initials are tried on nothing else."""

    __slots__ = ()

    def __init__(self, tok: str, parastart: bool | None = None, linestart: bool | None = None):
        self.tok = tok
        self.type = _type_of(tok)
        self.period_final = tok.endswith(".")
        self.parastart, self.linestart = parastart, linestart
        self.sentbreak = self.abbr = self.ellipsis = None

    @property
    def is_ellipsis(self) -> bool:
        return self.tok.startswith("..") and bool(super().is_ellipsis)

    @property
    def is_initial(self) -> bool:
        return len(self.tok) == 2 and self.period_final and bool(super().is_initial)


class Splitter:
    """Splits paragraphs into sentences.

    Args:
        punkt: the sentence tokenizer for ``. ! ?``.

    Example:
        >>> Splitter(PunktSentenceTokenizer()).split("It rains. We stay.")
        ['It rains.', 'We stay.']
    """

    def __init__(self, punkt: PunktSentenceTokenizer):
        self.punkt = punkt

    def split(self, paragraph: str) -> list[str]:
        """Sentences of one paragraph, white space tidied; pieces without a word are left out."""
        parts = _PLAIN_END.split(paragraph) if _PLAIN_MARK.search(paragraph) else [paragraph]
        sentences: list[str] = []
        for part in parts:
            sentences += self.punkt.tokenize(part) if _PUNKT_MARK.search(part) else [part]
        return [" ".join(sentence.split()) for sentence in sentences if _WORD.search(sentence)]


def trained_model_exists(language: str) -> bool:
    """Whether NLTK's trained Punkt model (package ``punkt_tab``) is installed for a language.

    Raises:
        UserError: no language can have this name.
    """
    try:
        PunktTokenizer(language)
    except LookupError:
        return False
    except ValueError as error:
        raise UserError(f"--language {language}: no name of a Punkt model; such as english or german") from error
    return True


def train(texts: Iterable[str]) -> PunktParameters:
    """Punkt parameters learned from texts, unsupervised; the same texts give the same parameters.

    Under 100,000 characters the statistics mislead (any word seen a few times, always at a sentence's end,
    passes for an abbreviation): then the parameters are a short list of English abbreviations.
    """
    trainer = PunktTrainer(token_cls=Token)
    characters = 0
    for text in texts:
        trainer.train(text, finalize=False)
        characters += len(text)
    if characters < LEAST_TRAINING_CHARACTERS:
        parameters = PunktParameters()
        parameters.abbrev_types.update(_COMMON_ABBREVIATIONS.split())
        return parameters
    trainer.finalize_training()
    return trainer.get_params()


def save_parameters(parameters: PunktParameters, path: Path) -> None:
    """Writes parameters as JSON, sorted: equal parameters are equal bytes."""
    data = {
        "abbreviations": sorted(parameters.abbrev_types),
        "collocations": sorted(map(list, parameters.collocations)),
        "sentence_starters": sorted(parameters.sent_starters),
        "orthography": dict(sorted(parameters.ortho_context.items())),
    }
    write_atomically(path, json.dumps(data, ensure_ascii=False).encode())


def load_parameters(path: Path) -> PunktParameters:
    """Reads what ``save_parameters`` wrote."""
    parameters = PunktParameters()
    try:
        data = json.loads(path.read_text(encoding="utf-8"))
        parameters.abbrev_types.update(data["abbreviations"])
        parameters.collocations.update(map(tuple, data["collocations"]))
        parameters.sent_starters.update(data["sentence_starters"])
        parameters.ortho_context.update(data["orthography"])
    except (ValueError, KeyError, TypeError) as error:
        raise UserError(f"{path}: not Punkt parameters ({error}); delete it, it is trained again") from error
    return parameters


@functools.lru_cache(maxsize=2)
def load_splitter(model: str) -> Splitter:
    """A splitter, once per process.

    Args:
        model: a language of NLTK's trained models (``english``), or the path of a ``.json`` of
        ``save_parameters``.
    """
    if model.endswith(".json"):
        parameters = load_parameters(Path(model))
    else:
        parameters = load_punkt_params(nltk.data.find(f"tokenizers/punkt_tab/{model}/"))
    return Splitter(PunktSentenceTokenizer(parameters, token_cls=Token))
