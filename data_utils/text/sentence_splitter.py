"""Splits text into sentences with NLTK's Punkt, and at the full stops of scripts that Punkt does not support.

Kiss and Strunk 2006, "Unsupervised Multilingual Sentence Boundary Detection".
"""

from __future__ import annotations

import functools
import json
import re
from collections.abc import Iterable
from pathlib import Path

from nltk.data import find
from nltk.tokenize.punkt import PunktParameters, PunktSentenceTokenizer, PunktTokenizer, PunktTrainer

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


def train(texts: Iterable[str]) -> PunktParameters:
    """Learn Punkt's parameters from texts, unsupervised; the same texts give the same parameters.

    With less than 100,000 characters the statistics are misleading: any word seen a few times, always at a sentence's
    end, would count as an abbreviation. The parameters are then a short list of English abbreviations.
    """
    texts = list(texts)
    if sum(map(len, texts)) < MIN_TRAINING_CHARACTERS:
        parameters = PunktParameters()
        parameters.abbrev_types = set(COMMON_ABBREVIATIONS.split())
        return parameters
    trainer = PunktTrainer()
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
    """Read parameters that ``save_parameters`` wrote.

    Raises:
        UserError: The file contains something else.
    """
    parameters = PunktParameters()
    try:
        data = json.loads(path.read_text(encoding="utf-8"))
        parameters.abbrev_types = set(data["abbreviations"])
        parameters.collocations = {(first, second) for first, second in data["collocations"]}
        parameters.sent_starters = set(data["sentence_starters"])
        parameters.ortho_context.update(data["orthography"])
    except (ValueError, KeyError, TypeError) as error:
        raise UserError(f"{path}: not Punkt parameters ({error}); delete it, it is trained again") from error
    return parameters


def has_trained_model(language: str) -> bool:
    """Return whether NLTK's trained Punkt model (package ``punkt_tab``) is installed for a language.

    Raises:
        UserError: The name is not possible for a language.
    """
    if not re.fullmatch(r"[\w-]+", language):
        raise UserError(f"--language {language}: not a name of a Punkt model; name one such as english or german")
    try:
        find(f"tokenizers/punkt_tab/{language}/")
    except LookupError:
        return False
    return True


def load_splitter(model: str) -> Splitter:
    """Return the splitter of one of NLTK's models (``english``), or of a ``.json`` file of ``save_parameters``."""
    if model.endswith(".json"):
        return Splitter(PunktSentenceTokenizer(load_parameters(Path(model))))
    return _trained_splitter(model)


@functools.lru_cache(maxsize=2)
def _trained_splitter(model: str) -> Splitter:
    try:
        return Splitter(PunktTokenizer(model))
    except (LookupError, ValueError) as error:
        raise UserError(
            f"--language {model}: NLTK's model for it is missing or broken on this machine; install it with"
            " python -m nltk.downloader punkt_tab"
        ) from error


class Splitter:
    """Splits paragraphs into sentences; Punkt decides about ``. ! ?``.

    Example:
        >>> Splitter(PunktSentenceTokenizer()).split("It rains. We stay.")
        ['It rains.', 'We stay.']
    """

    def __init__(self, punkt: PunktSentenceTokenizer):
        self._punkt = punkt

    def split(self, paragraph: str) -> list[str]:
        """Return the sentences of a paragraph with normal white space; pieces without a word are left out."""
        parts = _PLAIN_END.split(paragraph) if _PLAIN_MARK.search(paragraph) else [paragraph]
        sentences: list[str] = []
        for part in parts:
            sentences += self._punkt.tokenize(part) if _PUNKT_MARK.search(part) else [part]
        return [" ".join(sentence.split()) for sentence in sentences if _ANY_WORD.search(sentence)]
