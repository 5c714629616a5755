"""Blanks in held-out sentences, and what the model fills them with."""

from __future__ import annotations

import re
import sys
from pathlib import Path
from typing import Any, Dict, Iterator, List, NamedTuple, Set

from data_utils.records.manifest import VALIDATION_FOLDER, load_manifest
from data_utils.text.__main__ import CORPUS_FOLDER
from data_utils.text.pairs import SPECIAL_IN_SINGLE
from data_utils.tokenizer import make_tokenizer, read_vocabulary
from data_utils.tokenizer_files import MASK
from model.tasks import PRETRAINING
from utilities.errors import UserError

SENTENCES, SHOWN = 5, 3
IDEOGRAPH = re.compile(r"[\u3400-\u9fff\uf900-\ufaff]")
WORDS = range(6, 21)  # of a sentence that is short enough to read and long enough to guess from


class Blank(NamedTuple):
    """A sentence with one blank, and the word that was there."""

    text: str
    word: str


def held_out_blanks(data: Path) -> List[Blank]:
    """Return sentences of the held-out documents, evenly spaced, each with a blank for a word that is one piece."""
    vocabulary = read_vocabulary(data)
    manifest = load_manifest(data)
    assert manifest is not None, "the data is prepared"
    known, most = set(vocabulary.pieces), manifest.settings["max_seq_length"] - SPECIAL_IN_SINGLE
    tokenizer = make_tokenizer(vocabulary, manifest.settings["lower_case"], special_tokens=True)
    files = sorted((data / VALIDATION_FOLDER / CORPUS_FOLDER).glob("*.txt"))
    found = [blank for path in files for blank in _blanks(path, known)]
    short = [blank for blank in found if len(tokenizer.encode(blank.text, add_special_tokens=False)) <= most]
    return short[:: max(1, len(short) // SENTENCES)][:SENTENCES]


def _blanks(path: Path, known: Set[str]) -> Iterator[Blank]:
    """Yield a blank in the middle of each sentence of running text: words between blanks, or ideographs."""
    with open(path, encoding="utf-8") as lines:
        for line in map(str.strip, lines):
            separator = "" if IDEOGRAPH.search(line) else " "
            words = line.split() if separator else list(line)
            middle = len(words) // 2
            if len(words) in WORDS and words[middle].isalpha() and {words[middle], words[middle].lower()} & known:
                yield Blank(separator.join([*words[:middle], MASK, *words[middle + 1 :]]), words[middle])


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

    try:
        ask = load_model(str(model), "--checkpoint", PRETRAINING)
        answers = ask([blank.text for blank in blanks], top=SHOWN)
    except UserError as error:  # the result is complete without blanks
        print(f"no blanks are filled: {error}", file=sys.stderr)
        return []
    return [
        {**blank._asdict(), "fillings": [[each.piece, round(each.probability, 4)] for each in answer]}
        for blank, answer in zip(blanks, answers)
    ]
