"""How long features of SQuAD take, beside Hugging Face's: ``python -m benchmarks.squad_features``.

From questions and contexts in memory to dense arrays of ids, masks, segments and labels; reading the file is left out.
All competitors work in this process and those that they start, one after the other, round after round; each may use
all cores.
"""

from __future__ import annotations

import argparse
import os
import sys
import time
from collections.abc import Callable
from pathlib import Path
from statistics import median
from typing import Any, NamedTuple

import numpy as np

from benchmarks.tables import machine, markdown
from data_utils.squad.examples import SquadSet, read_squad
from data_utils.squad.windows import Geometry, WindowReader, make_windows, squad_features
from data_utils.tokenizer import load_tokenizer, read_vocabulary
from tests.real_data import real_data_root
from utilities.environment import environment_facts
from utilities.errors import UserError

GEOMETRY = Geometry(max_seq_length=384, max_query_length=64, doc_stride=128)
TARGET = 5.0

Prepare = Callable[[], int]  # makes features; tells how many windows


class Material(NamedTuple):
    """What all competitors work on."""

    squad: SquadSet
    vocabulary: Path
    workers: int


def parse(arguments: list[str] | None) -> argparse.Namespace:
    """The command line."""
    parser = argparse.ArgumentParser(prog="python -m benchmarks.squad_features", description=__doc__)
    parser.add_argument(
        "--data", type=Path, metavar="FILE", help="questions with answers; default: the tests' part of the training set"
    )
    parser.add_argument("--vocab-file", type=Path, metavar="FILE", help="default: the tests' bert-base-uncased")
    parser.add_argument("--questions", type=int, metavar="N", help="the first N only")
    parser.add_argument("--rounds", type=int, default=3, help="default %(default)s")
    options = parser.parse_args(arguments)
    root = real_data_root()
    options.data = options.data or root / "squad" / "train-v1.1-prefix.json"
    options.vocab_file = options.vocab_file or root / "vocab" / "vocab-bert-base-uncased.txt"
    return options


def ours(material: Material) -> Prepare:
    """This project, without its cache."""
    vocabulary = read_vocabulary(material.vocabulary)
    tokenizer = load_tokenizer(str(material.vocabulary), True)
    spec = squad_features(GEOMETRY.max_seq_length, len(vocabulary.pieces))

    def prepare() -> int:
        windows = make_windows(material.squad, tokenizer, GEOMETRY, labels=True)
        WindowReader(spec, windows, vocabulary).read(np.arange(windows.count))
        return windows.count

    return prepare


def hugging_face_processor(material: Material) -> Prepare:
    """``squad_convert_examples_to_features``, with a process for each core."""
    from transformers import BertTokenizer
    from transformers.data.processors.squad import SquadExample, squad_convert_examples_to_features

    tokenizer = BertTokenizer(str(material.vocabulary), do_lower_case=True)
    squad = material.squad
    examples = [
        SquadExample(q.id, q.text, squad.context(q), q.answers[0].text, q.answers[0].start, "", [])
        for q in squad.questions
    ]

    def prepare() -> int:
        features = squad_convert_examples_to_features(
            examples,
            tokenizer,
            GEOMETRY.max_seq_length,
            GEOMETRY.doc_stride,
            GEOMETRY.max_query_length,
            is_training=True,
            threads=material.workers,
            tqdm_enabled=False,
        )
        for name in ("input_ids", "attention_mask", "token_type_ids", "start_position", "end_position"):
            np.array([getattr(feature, name) for feature in features], np.int32)
        return len(features)

    return prepare


def hugging_face_fast(material: Material) -> Prepare:
    """The recipe of Transformers' documentation: its fast tokenizer cuts the windows, a loop places the answers."""
    from transformers import BertTokenizerFast

    tokenizer = BertTokenizerFast(vocab_file=str(material.vocabulary), do_lower_case=True)
    squad = material.squad
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
    """First and last token of an answer in a window; [CLS] where the window does not have it."""
    first = sequence.index(1)
    last = len(sequence) - 1 - sequence[::-1].index(1)
    if offsets[first][0] > start or offsets[last][1] < end:
        return 0, 0
    while first <= last and offsets[first][0] <= start:
        first += 1
    while offsets[last][1] >= end:
        last -= 1
    return first - 1, last + 1


COMPETITORS = {
    "this project": ours,
    "HF `squad_convert_examples_to_features`": hugging_face_processor,
    "HF fast tokenizer, as in its documentation": hugging_face_fast,
}


def measure(material: Material, rounds: int) -> dict[str, tuple[int, list[float]]]:
    """Windows and seconds of every round, by competitor."""
    prepared = {name: make(material) for name, make in COMPETITORS.items()}
    measured: dict[str, tuple[int, list[float]]] = {name: (0, []) for name in prepared}
    for number in range(rounds):
        for name, prepare in prepared.items():
            begin = time.perf_counter()
            windows = prepare()
            seconds = time.perf_counter() - begin
            measured[name] = (windows, [*measured[name][1], seconds])
            print(f"round {number + 1} of {rounds}, {name}: {seconds:.2f} s", file=sys.stderr)
    return measured


def report(material: Material, measured: dict[str, tuple[int, list[float]]], facts: dict[str, Any]) -> str:
    """Medians; ratios are taken within a round."""
    base, *others = measured
    rows = [[f"{len(material.squad.questions):,} questions", "windows", "s", "questions/s", "this project is faster"]]
    ratios = {}
    for name, (windows, seconds) in measured.items():
        ratios[name] = median(theirs / own for theirs, own in zip(seconds, measured[base][1]))
        faster = "" if name == base else f"{ratios[name]:.1f} ×"
        middle = median(seconds)
        rows.append([name, f"{windows:,}", f"{middle:.2f}", f"{len(material.squad.questions) / middle:,.0f}", faster])
    rounds = len(measured[base][1])
    verdict = "reached" if ratios[others[0]] >= TARGET else "NOT reached"
    return "\n\n".join(
        [
            machine(facts),
            f"Windows of {GEOMETRY.max_seq_length} tokens, stride {GEOMETRY.doc_stride}; medians of {rounds} rounds.",
            markdown(rows),
            f"Wanted: {TARGET:.0f} × over {others[0]}: {verdict}.",
        ]
    )


def main(arguments: list[str] | None = None) -> int:
    """Measure, and print a table on standard output."""
    options = parse(arguments)
    try:
        squad = first_questions(read_squad(options.data), options.questions)
        workers = len(os.sched_getaffinity(0)) if hasattr(os, "sched_getaffinity") else os.cpu_count() or 1
        material = Material(squad, options.vocab_file, workers)
        read_vocabulary(material.vocabulary)
    except UserError as error:
        print(f"error: {error}", file=sys.stderr)
        return 2
    print(report(material, measure(material, options.rounds), environment_facts()))
    return 0


def first_questions(squad: SquadSet, count: int | None) -> SquadSet:
    """The first questions that have answers, and the contexts that they need."""
    questions = [question for question in squad.questions if question.answers][:count]
    if not questions:
        raise UserError(f"{squad.origin}: no question has an answer; name a file to train on with --data")
    return squad._replace(questions=questions, paragraphs=squad.paragraphs[: questions[-1].paragraph + 1])


if __name__ == "__main__":
    # Read by transformers when it is imported: only tokenizers are used, frameworks would be loaded beside them.
    os.environ.update(USE_TF="0", USE_TORCH="0", TOKENIZERS_PARALLELISM="true")
    sys.exit(main())
