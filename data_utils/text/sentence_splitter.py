"""Splits text into sentences with NLTK's Punkt, and at the full stops of scripts that Punkt does not support.

Kiss and Strunk 2006, "Unsupervised Multilingual Sentence Boundary Detection".
"""

from __future__ import annotations

import functools
import json
import re
from collections.abc import Iterable
from pathlib import Path

import nltk
from nltk.tokenize.punkt import PunktParameters, PunktSentenceTokenizer, PunktToken, PunktTrainer, load_punkt_params

from utilities.errors import UserError
from utilities.files import write_atomically

MIN_TRAINING_CHARACTERS = 100_000
COMMON_ABBREVIATIONS = (
    "mr mrs ms dr prof st jr sr gen col lt capt sgt rev hon gov sen rep vs etc al cf ca approx e.g i.e u.s u.k"
    " a.m p.m b.c a.d no vol fig pp ed inc ltd co corp jan feb mar apr aug sept oct nov dec ph.d m.d"
)

# Chinese, Japanese, Devanagari, Arabic and Urdu have no ambiguous abbreviations: the mark alone decides.
_PLAIN_END = re.compile(
    r"(?<=[。！？｡।॥؟۔])(?![。！？｡।॥؟۔”’」』）】》\"'])"  # if no mark or quote follows
    r"|(?<=[。！？｡][”’」』）】》\"'])(?![”’」』）】》\"'])"  # or after the closing quote
)
_PLAIN_MARK = re.compile(r"[。！？｡।॥؟۔]")
_PUNKT_MARK = re.compile(r"[.!?]")
_ANY_WORD = re.compile(r"\w")


class _Token(PunktToken):
    """NLTK's token, which looks for an ellipsis only where there is one: it does so in every word of a text."""

    __slots__ = ()

    @property
    def is_ellipsis(self) -> bool:
        return self.tok.startswith("..") and bool(super().is_ellipsis)


def make_parameters(
    abbreviations: Iterable[str] = (),  # in lower case, without their full stop
    collocations: Iterable[Iterable[str]] = (),  # pairs of words between which no sentence ends
    sentence_starters: Iterable[str] = (),
    orthography: Iterable[tuple[str, int]] = (),  # where words were seen, by the case of their first letter
) -> PunktParameters:
    parameters = PunktParameters()
    parameters.abbrev_types.update(abbreviations)
    parameters.collocations.update((first, second) for first, second in collocations)
    parameters.sent_starters.update(sentence_starters)
    parameters.ortho_context.update(orthography)
    return parameters


def train(texts: Iterable[str]) -> PunktParameters:
    """Learn Punkt's parameters from texts, unsupervised; the same texts give the same parameters.

    With less than 100,000 characters the statistics are misleading: any word seen a few times, always at a sentence's
    end, would count as an abbreviation. The parameters are then a short list of English abbreviations.
    """
    texts = list(texts)
    if sum(map(len, texts)) < MIN_TRAINING_CHARACTERS:
        return make_parameters(COMMON_ABBREVIATIONS.split())
    trainer = PunktTrainer(token_cls=_Token)
    for text in texts:
        trainer.train(text, finalize=False)
    return trainer.get_params()


def save_parameters(parameters: PunktParameters, path: Path) -> None:
    """Write parameters as sorted JSON; equal parameters give equal bytes."""
    data = {
        "abbreviations": sorted(parameters.abbrev_types),
        "collocations": sorted(map(list, parameters.collocations)),
        "sentence_starters": sorted(parameters.sent_starters),
        "orthography": dict(sorted(parameters.ortho_context.items())),
    }
    write_atomically(path, json.dumps(data, ensure_ascii=False).encode())


def load_parameters(path: Path) -> PunktParameters:
    try:
        data = json.loads(path.read_text(encoding="utf-8"))
        return make_parameters(
            data["abbreviations"], data["collocations"], data["sentence_starters"], data["orthography"].items()
        )
    except (ValueError, KeyError, TypeError, AttributeError) as error:
        raise UserError(f"{path}: not Punkt parameters ({error}); delete it, it is trained again") from error


def has_trained_model(language: str) -> bool:
    """Return whether NLTK's trained Punkt model (package ``punkt_tab``) is installed for a language."""
    if not re.fullmatch(r"[\w-]+", language):
        raise UserError(f"--language {language}: not a name of a Punkt model; name one such as english or german")
    try:
        nltk.data.find(f"tokenizers/punkt_tab/{language}/")
    except LookupError:
        return False
    return True


@functools.lru_cache(maxsize=2)
def load_splitter(model: str) -> Splitter:
    """Return the splitter of one of NLTK's models (``english``), or of a ``.json`` file of ``save_parameters``."""
    if model.endswith(".json"):
        return Splitter(load_parameters(Path(model)))
    try:
        return Splitter(load_punkt_params(nltk.data.find(f"tokenizers/punkt_tab/{model}/")))
    except (LookupError, OSError, ValueError) as error:
        reason = f"NLTK's model punkt_tab for it cannot be read on this machine ({str(error).strip().splitlines()[0]})"
        raise UserError(f"--language {model}: {reason}; install it again") from error


class Splitter:
    """Splits paragraphs into sentences; Punkt decides about ``. ! ?``."""

    def __init__(self, parameters: PunktParameters):
        self._punkt = PunktSentenceTokenizer(parameters, token_cls=_Token)

    def split(self, paragraph: str) -> list[str]:
        """Return the sentences of a paragraph with normal white space; pieces without a word are left out."""
        parts = _PLAIN_END.split(paragraph) if _PLAIN_MARK.search(paragraph) else [paragraph]
        sentences: list[str] = []
        for part in parts:
            sentences += self._punkt.tokenize(part) if _PUNKT_MARK.search(part) else [part]
        return [" ".join(sentence.split()) for sentence in sentences if _ANY_WORD.search(sentence)]
