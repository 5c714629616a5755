"""Time to make features of SQuAD, compared with Hugging Face's: ``python -m benchmarks.squad_features``.

From questions and contexts in memory to dense arrays of ids, masks, segments and labels; reading the file is left out.
All competitors work in this process and those that they start, in alternation; each may use all cores. Hugging Face's
own function for SQuAD uses its slow tokenizer.
"""

from __future__ import annotations

import argparse
import os
import sys
import time
from collections.abc import Callable
from functools import partial
from pathlib import Path
from typing import Any

import numpy as np

from benchmarks import measuring
from benchmarks.measuring import Column
from benchmarks.samples import SQUAD_TRAINING, WORDS
from data_utils.squad.examples import SquadSet, read_squad
from data_utils.squad.windows import Geometry, WindowReader, make_windows, squad_features
from data_utils.tokenizer import load_tokenizer, read_vocabulary
from utilities.environment import usable_cores

GEOMETRY = Geometry(max_seq_length=384, max_query_length=64, doc_stride=128)
SECONDS = "seconds"

Prepare = Callable[[], int]  # makes features, and returns the number of windows


def ours(squad: SquadSet, vocabulary: Path) -> Prepare:
    """Prepare by this project, without its cache."""
    words = read_vocabulary(vocabulary)
    tokenizer = load_tokenizer(str(vocabulary), True)
    spec = squad_features(GEOMETRY.max_seq_length, len(words.pieces))

    def prepare() -> int:
        windows = make_windows(squad, tokenizer, GEOMETRY, labels=True)
        WindowReader(spec, windows, words).read(np.arange(windows.count))
        return windows.count

    return prepare


def hugging_face_processor(squad: SquadSet, vocabulary: Path) -> Prepare:
    """Prepare by ``squad_convert_examples_to_features`` and the slow tokenizer, with a process for each core."""
    from transformers import BertTokenizer
    from transformers.data.processors.squad import SquadExample, squad_convert_examples_to_features

    tokenizer = BertTokenizer(str(vocabulary), do_lower_case=True)
    examples = [
        SquadExample(q.id, q.text, squad.context(q), q.answers[0].text, q.answers[0].start, "", [])
        for q in squad.questions
    ]

    def prepare() -> int:
        sizes = (GEOMETRY.max_seq_length, GEOMETRY.doc_stride, GEOMETRY.max_query_length)
        options = {"is_training": True, "threads": usable_cores(), "tqdm_enabled": False}
        features = squad_convert_examples_to_features(examples, tokenizer, *sizes, **options)
        for name in ("input_ids", "attention_mask", "token_type_ids", "start_position", "end_position"):
            np.array([getattr(feature, name) for feature in features], np.int32)
        return len(features)

    return prepare


def hugging_face_fast(squad: SquadSet, vocabulary: Path) -> Prepare:
    """Prepare as Transformers' documentation does: its fast tokenizer cuts the windows, a loop labels the answers."""
    from transformers import BertTokenizerFast

    tokenizer = BertTokenizerFast(vocab_file=str(vocabulary), do_lower_case=True)
    texts = [q.text for q in squad.questions], [squad.context(q) for q in squad.questions]
    answers = [(q.answers[0].start, q.answers[0].start + len(q.answers[0].text)) for q in squad.questions]
    overlap = GEOMETRY.max_seq_length - GEOMETRY.max_query_length - 3 - GEOMETRY.doc_stride

    def prepare() -> int:
        encoded = tokenizer(
            *texts,
            truncation="only_second",
            max_length=GEOMETRY.max_seq_length,
            stride=overlap,
            return_overflowing_tokens=True,
            return_offsets_mapping=True,
            padding="max_length",
        )
        labels = [
            label(offsets, encoded.sequence_ids(number), *answers[encoded["overflow_to_sample_mapping"][number]])
            for number, offsets in enumerate(encoded["offset_mapping"])
        ]
        for name in ("input_ids", "attention_mask", "token_type_ids"):
            np.array(encoded[name], np.int32)
        return len(np.array(labels, np.int32))

    return prepare


def label(offsets: Any, sequence: Any, start: int, end: int) -> tuple[int, int]:
    """Return the first and last token of an answer in a window; [CLS] if the window does not contain it."""
    first = sequence.index(1)
    last = len(sequence) - 1 - sequence[::-1].index(1)
    if offsets[first][0] > start or offsets[last][1] < end:
        return 0, 0
    while first <= last and offsets[first][0] <= start:
        first += 1
    while offsets[last][1] >= end:
        last -= 1
    return first - 1, last + 1


OURS, FAST, SLOW = "this project", "HF fast tokenizer, as in its documentation", "HF slow tokenizer, its own function"
COMPETITORS = {OURS: ours, FAST: hugging_face_fast, SLOW: hugging_face_processor}


@measuring.benchmark({}, rounds=3)
def main(options: argparse.Namespace) -> list[str]:
    root = measuring.real_data_root()
    measuring.require([], [root / SQUAD_TRAINING, root / WORDS])
    squad, vocabulary = read_squad(root / SQUAD_TRAINING), root / WORDS
    prepared = {name: competitor(squad, vocabulary) for name, competitor in COMPETITORS.items()}
    windows: dict[str, int] = {}

    def measure(name: str) -> measuring.Values:
        begin = time.perf_counter()
        windows[name] = prepared[name]()
        return {SECONDS: time.perf_counter() - begin}

    variants = {name: partial(measure, name) for name in prepared}
    measured = measuring.alternate(variants, options.rounds)
    count = len(squad.questions)
    columns = [
        Column("windows", lambda name: [windows[name]], "{:,}"),
        measured.column("s", SECONDS),
        Column("questions/s", lambda name: [count / s for s in measured.values(name, SECONDS)], "{:,.0f}"),
        Column("this project is faster", lambda name: measured.ratios(name, OURS, SECONDS), "{:.1f} ×"),
    ]
    about = (
        f"From texts in memory to dense arrays, windows of {GEOMETRY.max_seq_length} tokens, stride"
        f" {GEOMETRY.doc_stride}; all cores; median (min–max) of {options.rounds} rounds."
    )
    return [about, measuring.table(f"{count:,} questions", {name: name for name in prepared}, columns)]


if __name__ == "__main__":
    # Transformers reads them when it is imported: only tokenizers are used, so no framework should be loaded.
    os.environ.update(USE_TF="0", USE_TORCH="0", TOKENIZERS_PARALLELISM="true")
    sys.exit(main())
