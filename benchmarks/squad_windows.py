"""Windows that the speed of fine-tuning on SQuAD is measured on: full ones of random word pieces, or real ones.

N windows · S sequence
"""

from __future__ import annotations

from pathlib import Path

import numpy as np

from benchmarks.fine_tuning_tasks import SQUAD_TRAINING, Arrays
from benchmarks.jobs import VOCABULARY
from data_utils.squad.examples import read_squad
from data_utils.squad.windows import Geometry, WindowReader, make_windows, squad_features
from data_utils.tokenizer import load_tokenizer, read_vocabulary
from utilities.errors import UserError

SEQUENCE_LENGTH = 384
FULL, REAL = "full", "real"
FULL_WINDOWS, QUESTION_TOKENS, STRIDE = 64, 64, 128
WORDS = Path("vocab", "vocab-bert-base-uncased.txt")


def windows_of(kind: str, data: Path) -> Arrays:
    """Ids, masks, segments ``(N, S)``, start and end positions ``(N, 1)``, by this project's names.

    Raises:
        UserError: real windows are asked for and ``data`` has none.
    """
    return real_windows(data) if kind == REAL else full_windows()


def full_windows() -> Arrays:
    """No padding, random answers."""
    random = np.random.default_rng(1984)
    shape = (FULL_WINDOWS, SEQUENCE_LENGTH)
    start = random.integers(0, SEQUENCE_LENGTH, (FULL_WINDOWS, 1))
    made = {
        "input_ids": random.integers(0, VOCABULARY, shape),
        "input_mask": np.ones(shape),
        "segment_ids": np.broadcast_to(np.arange(SEQUENCE_LENGTH) >= 16, shape),
        "start_positions": start,
        "end_positions": random.integers(start, SEQUENCE_LENGTH),
    }
    return {name: values.astype("int32") for name, values in made.items()}


def real_windows(data: Path) -> Arrays:
    """Those of the training questions that there are, padded, in random order."""
    questions, words = data / "squad" / SQUAD_TRAINING, data / WORDS
    for path in (questions, words):
        if not path.exists():
            raise UserError(f"no real windows: {path} does not exist; set BERT_REAL_DATA, or measure --windows {FULL}")
    geometry = Geometry(SEQUENCE_LENGTH, QUESTION_TOKENS, STRIDE)
    windows = make_windows(read_squad(questions), load_tokenizer(str(words), True), geometry, labels=True)
    reader = WindowReader(squad_features(SEQUENCE_LENGTH, VOCABULARY), windows, read_vocabulary(words))
    return reader.read(np.random.default_rng(1984).permutation(windows.count))


def by_their_names(windows: Arrays, integer: str) -> Arrays:
    """The same as Hugging Face's models take it."""
    return {
        "input_ids": windows["input_ids"].astype(integer),
        "attention_mask": windows["input_mask"].astype(integer),
        "token_type_ids": windows["segment_ids"].astype(integer),
        "start_positions": windows["start_positions"][:, 0].astype(integer),
        "end_positions": windows["end_positions"][:, 0].astype(integer),
    }
