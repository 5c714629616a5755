"""Where sentences end: Punkt, and the full stops of scripts that Punkt does not know."""

from __future__ import annotations

import functools
import json
import os
import re
import sys
from collections.abc import Iterable
from pathlib import Path

from data_utils.records.writer import write_atomically
from data_utils.text.punkt import Parameters, split
from data_utils.text.punkt_training import Trainer
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
_COMMON_ABBREVIATIONS = (
    "mr mrs ms dr prof st jr sr gen col lt capt sgt rev hon gov sen rep vs etc al cf ca approx e.g i.e u.s u.k"
    " a.m p.m b.c a.d no vol fig pp ed inc ltd co corp jan feb mar apr aug sept oct nov dec ph.d m.d"
)
# What NLTK's downloader writes, and where it is looked for.
_MODEL_FOLDER = "tokenizers/punkt_tab"
_MODEL_FILES = ("abbrev_types.txt", "collocations.tab", "sent_starters.txt", "ortho_context.tab")
_NLTK_FOLDERS = ("nltk_data", "share/nltk_data", "lib/nltk_data")


class Splitter:
    """Splits paragraphs into sentences.

    Args:
        parameters: of Punkt, which decides for ``. ! ?``.

    Example:
        >>> Splitter(Parameters.empty()).split("It rains. We stay.")
        ['It rains.', 'We stay.']
    """

    def __init__(self, parameters: Parameters):
        self.parameters = parameters

    def split(self, paragraph: str) -> list[str]:
        """Sentences of one paragraph, white space tidied; pieces without a word are left out."""
        parts = _PLAIN_END.split(paragraph) if _PLAIN_MARK.search(paragraph) else [paragraph]
        sentences: list[str] = []
        for part in parts:
            sentences += split(part, self.parameters) if _PUNKT_MARK.search(part) else [part]
        return [" ".join(sentence.split()) for sentence in sentences if _WORD.search(sentence)]


def _model_folder(language: str) -> Path | None:
    """NLTK's trained Punkt model (package ``punkt_tab``) of a language, where it is installed."""
    given = [Path(folder).expanduser() for folder in os.environ.get("NLTK_DATA", "").split(os.pathsep) if folder]
    roots = [Path(sys.prefix), Path("/usr"), Path("/usr/local")]
    usual = [Path("~/nltk_data").expanduser(), *(root / name for root in roots for name in _NLTK_FOLDERS)]
    for folder in (*given, *usual):
        model = folder / _MODEL_FOLDER / language
        if all((model / name).is_file() for name in _MODEL_FILES):
            return model
    return None


def trained_model_exists(language: str) -> bool:
    """Whether NLTK's trained Punkt model (package ``punkt_tab``) is installed for a language.

    Raises:
        UserError: no language can have this name.
    """
    if not re.fullmatch(r"[\w-]+", language):
        raise UserError(f"--language {language}: no name of a Punkt model; such as english or german")
    return _model_folder(language) is not None


def train(texts: Iterable[str]) -> Parameters:
    """Punkt parameters learned from texts, unsupervised; the same texts give the same parameters.

    Under 100,000 characters the statistics mislead (any word seen a few times, always at a sentence's end,
    passes for an abbreviation): then the parameters are a short list of English abbreviations.
    """
    trainer = Trainer()
    characters = 0
    for text in texts:
        trainer.add(text)
        characters += len(text)
    if characters < LEAST_TRAINING_CHARACTERS:
        return Parameters.empty()._replace(abbreviations=set(_COMMON_ABBREVIATIONS.split()))
    return trainer.parameters()


def save_parameters(parameters: Parameters, path: Path) -> None:
    """Writes parameters as JSON, sorted: equal parameters are equal bytes."""
    data = {
        "abbreviations": sorted(parameters.abbreviations),
        "collocations": sorted(map(list, parameters.collocations)),
        "sentence_starters": sorted(parameters.starters),
        "orthography": dict(sorted(parameters.orthography.items())),
    }
    write_atomically(path, json.dumps(data, ensure_ascii=False).encode())


def load_parameters(path: Path) -> Parameters:
    """Reads what ``save_parameters`` wrote."""
    try:
        data = json.loads(path.read_text(encoding="utf-8"))
        return Parameters(
            set(data["abbreviations"]),
            {(first, second) for first, second in data["collocations"]},
            set(data["sentence_starters"]),
            dict(data["orthography"]),
        )
    except (ValueError, KeyError, TypeError) as error:
        raise UserError(f"{path}: not Punkt parameters ({error}); delete it, it is trained again") from error


def _load_model(folder: Path) -> Parameters:
    """Reads a model as NLTK's ``punkt_tab`` holds it: an entry a line, its parts separated by tabs."""
    abbreviations, collocations, starters, orthography = (
        [line.split("\t") for line in (folder / name).read_text(encoding="utf-8").split("\n") if line]
        for name in _MODEL_FILES
    )
    try:
        return Parameters(
            {name for (name,) in abbreviations},
            {(first, second) for first, second in collocations},
            {name for (name,) in starters},
            {name: int(seen) for name, seen in orthography},
        )
    except ValueError as error:
        raise UserError(f"{folder}: not a Punkt model ({error}); install NLTK's punkt_tab again") from error


@functools.lru_cache(maxsize=2)
def load_splitter(model: str) -> Splitter:
    """A splitter, once per process.

    Args:
        model: a language of NLTK's trained models (``english``), or the path of a ``.json`` of
        ``save_parameters``.
    """
    if model.endswith(".json"):
        return Splitter(load_parameters(Path(model)))
    folder = _model_folder(model)
    if folder is None:
        raise UserError(f"--language {model}: NLTK's model punkt_tab for it is not installed on this machine")
    return Splitter(_load_model(folder))
