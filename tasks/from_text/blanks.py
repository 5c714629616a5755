"""Blanks in held-out sentences, and what the model fills them with."""

from __future__ import annotations

from pathlib import Path
from typing import Any, Dict, Iterator, List, NamedTuple, Set

from data_utils.records.manifest import VALIDATION_FOLDER
from data_utils.text.__main__ import CORPUS_FOLDER
from data_utils.tokenizer import read_vocabulary
from data_utils.tokenizer_files import MASK
from model.tasks import PRETRAINING

SENTENCES, SHOWN = 5, 3
WORDS = range(6, 21)  # of a sentence that is short enough to read and long enough to guess from


class Blank(NamedTuple):
    """A sentence with one blank, and the word that was there."""

    text: str
    word: str


def held_out_blanks(data: Path) -> List[Blank]:
    """Return sentences of the held-out documents, evenly spaced, each with a blank for a word that is one piece."""
    known = set(read_vocabulary(data).pieces)
    files = sorted((data / VALIDATION_FOLDER / CORPUS_FOLDER).glob("*.txt"))
    found = [blank for path in files for blank in _blanks(path, known)]
    return found[:: max(1, len(found) // SENTENCES)][:SENTENCES]


def _blanks(path: Path, known: Set[str]) -> Iterator[Blank]:
    with open(path, encoding="utf-8") as lines:
        for line in lines:
            spaced = " " in line.strip()
            words = line.split() if spaced else list(line.strip())
            middle = len(words) // 2
            if len(words) in WORDS and words[middle].isalpha() and {words[middle], words[middle].lower()} & known:
                yield Blank((" " if spaced else "").join([*words[:middle], MASK, *words[middle + 1 :]]), words[middle])


def fillings(data: Path, model: Path) -> List[Dict[str, Any]]:
    """Return what a model fills into blanks of the held-out sentences, the likeliest first.

    Args:
        data: Folder of a data set with held-out documents.
        model: Hugging Face folder of the model.
    """
    blanks = held_out_blanks(data)
    if not blanks:
        return []
    from tasks.answering import load_model

    ask = load_model(str(model), "--checkpoint", PRETRAINING)
    answers = ask([blank.text for blank in blanks], top=SHOWN)
    return [
        {**blank._asdict(), "fillings": [[each.piece, round(each.probability, 4)] for each in answer]}
        for blank, answer in zip(blanks, answers)
    ]
