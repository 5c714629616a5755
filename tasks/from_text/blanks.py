"""Blanks for whole words in held-out sentences, and the words that the model fills them with."""

from __future__ import annotations

import functools
import re
import sys
from pathlib import Path
from typing import Any, Callable, Dict, Iterator, List, NamedTuple, Sequence, Tuple

from data_utils.records.manifest import VALIDATION_FOLDER, load_manifest
from data_utils.text.__main__ import CORPUS_FOLDER
from data_utils.text.pairs import SPECIAL_IN_SINGLE
from data_utils.tokenizer import CONTINUATION, make_tokenizer, read_vocabulary
from data_utils.tokenizer_files import MASK, UNKNOWN
from model.tasks import PRETRAINING
from utilities.errors import UserError

SENTENCES, SHOWN = 5, 3
CONSIDERED = 1_000  # pieces for each blank, of which some are no letters, or cannot begin a word, or go on with it
MOST_PIECES = 3  # of a word, because nobody guesses longer ones
IDEOGRAPH = re.compile(r"[\u3400-\u9fff\uf900-\ufaff]")
WORDS = range(6, 21)  # of a sentence that is short enough to read and long enough to guess from


class Blank(NamedTuple):
    """A sentence with one blank, the word that was there, and the pieces that this word has."""

    text: str
    word: str
    pieces: int

    def asked(self, begun: str, pieces: int) -> str:
        """Return the sentence with the beginning of a word and a blank for each piece that is missing."""
        return self.text.replace(MASK, " ".join([begun, *[MASK] * pieces]).strip())


def held_out_blanks(data: Path) -> List[Blank]:
    """Return sentences of the held-out documents, evenly spaced, each with a blank for a whole word."""
    vocabulary = read_vocabulary(data)
    manifest = load_manifest(data)
    assert manifest is not None, "the data is prepared"
    most = manifest.settings["max_seq_length"] - SPECIAL_IN_SINGLE
    tokenizer = make_tokenizer(vocabulary, manifest.settings["lower_case"], special_tokens=True)

    def pieces(text: str) -> List[str]:
        return list(tokenizer.encode(text, add_special_tokens=False).tokens)

    files = sorted((data / VALIDATION_FOLDER / CORPUS_FOLDER).glob("*.txt"))
    found = [blank for path in files for blank in _blanks(path, pieces)]
    short = [blank for blank in found if len(pieces(blank.asked("", blank.pieces))) <= most]
    return short[:: max(1, len(short) // SENTENCES)][:SENTENCES]


def _blanks(path: Path, pieces: Callable[[str], List[str]]) -> Iterator[Blank]:
    """Yield a blank in the middle of each sentence of running text: words between blanks, or ideographs."""
    with open(path, encoding="utf-8") as lines:
        for line in map(str.strip, lines):
            separator = "" if IDEOGRAPH.search(line) else " "
            words = line.split() if separator else list(line)
            middle = len(words) // 2
            if len(words) in WORDS and words[middle].isalpha() and MASK not in line:
                parts = pieces(words[middle])
                if len(parts) <= MOST_PIECES and UNKNOWN not in parts:
                    text = separator.join([*words[:middle], MASK, *words[middle + 1 :]])
                    yield Blank(text, words[middle], len(parts))


def likeliest(fillings: Sequence[Tuple[int, str, float]], is_first: bool) -> List[Tuple[str, float]]:
    """Return the letters that may begin a word, or go on with it, in the first of the blanks, the likeliest first.

    Args:
        fillings: number of the blank, from 1; piece; probability. The likeliest of a blank are before others.
        is_first: whether they begin the word.

    Example:
        >>> likeliest([(1, ",", 0.5), (1, "##s", 0.2), (1, "sun", 0.1), (2, "##ny", 0.5)], is_first=True)
        [('sun', 0.1)]
    """
    found = [
        (piece if is_first else piece[len(CONTINUATION) :], share)
        for blank, piece, share in fillings
        if blank == 1 and piece.startswith(CONTINUATION) is not is_first
    ]
    return [(letters, share) for letters, share in found if letters.isalpha()][:SHOWN]


def whole_words(blank: Blank, ask: Callable[[List[str]], Any]) -> List[Tuple[str, float]]:
    """Return words that fill a blank, the likeliest first, with the product of the probabilities of their pieces.

    A word is filled in from left to right: each piece is that of a sentence which has the letters before it.
    """
    words = [("", 1.0)]
    for place in range(blank.pieces):
        answers = ask([blank.asked(begun, blank.pieces - place) for begun, _ in words])
        longer = [
            (begun + letters, before * share)
            for (begun, before), answer in zip(words, answers)
            for letters, share in likeliest(answer, is_first=place == 0)
        ]
        words = sorted(longer, key=lambda word: -word[1])[:SHOWN]
    return words


def fillings(data: Path, model: Path) -> List[Dict[str, Any]]:
    """Return what a model fills into blanks of a data set's held-out sentences, the likeliest first."""
    blanks = held_out_blanks(data)
    if not blanks:
        return []
    from tasks.answering import load_model

    try:
        ask = functools.partial(load_model(str(model), "--checkpoint", PRETRAINING), top=CONSIDERED)
        found = [(blank, whole_words(blank, ask)) for blank in blanks]
    except UserError as error:  # the result is complete without blanks
        print(f"no blanks are filled: {error}", file=sys.stderr)
        return []
    return [
        {"text": blank.text, "word": blank.word, "fillings": [[word, round(share, 6)] for word, share in words]}
        for blank, words in found
    ]
