# PYTHON_ARGCOMPLETE_OK
"""Runs all steps in one command, from text to pre-training TFRecords.

``python -m data_utils.text --dump FILE --output FOLDER`` reads a dump (or text, JSON Lines, …), writes sentences to
``FOLDER/corpus``, trains a vocabulary unless one is given, and writes records, index files and ``manifest.json``. A
killed run is resumed. For a second data set from the same text: ``--sentences FOLDER/corpus --vocab-file …``.
"""

from __future__ import annotations

import argparse
import functools
import sys
from pathlib import Path
from typing import Any

from data_utils.command_line import positive
from data_utils.packing.dataset import check_sizes, pack_dataset
from data_utils.packing.plan import read_plan
from data_utils.packing.report import before_and_after
from data_utils.recipe import check_folder
from data_utils.shards import Step
from data_utils.text.corpus import Corpus, read_corpus
from data_utils.text.examples import (
    add_example_options,
    add_vocabulary_file_options,
    check_held_out,
    describe,
    make_recipe,
    settings_from_options,
    unit_bytes_from_options,
    vocabulary_from_options,
    write_examples,
)
from data_utils.text.first_look import look_at_beginning, look_at_sentences
from data_utils.text.instances import use_one_tokenizer_thread
from data_utils.text.sentences import SENTENCE_OPTIONS, add_sentence_options, sentences_from_options
from data_utils.text.sources import (
    OPTIONS_OF_INPUTS,
    Source,
    refuse_options,
    share_of,
    source_from_options,
    standard_input_copied,
)
from data_utils.text.vocabulary import MIN_FREQUENCY, add_vocabulary_options, check_size, train_vocabulary
from data_utils.tokenizer import Vocabulary, read_vocabulary
from data_utils.tokenizer_files import VOCABULARY_NAME
from data_utils.workers import with_absolute_paths, workers_from_options
from utilities.commands import make_parser, run_main

CORPUS_FOLDER = "corpus"
PACKED_FOLDER = "packed"


def _vocabulary_recipe(options: argparse.Namespace, given: Vocabulary | None) -> dict[str, Any]:
    if given is not None:
        return given.identity
    return {
        "pieces": options.vocab_size,
        "min_frequency": MIN_FREQUENCY,
        "lower_case": not options.cased,
        "ideographs": "by coverage",
        **({"strip_accents": False} if options.keep_accents else {}),
    }


def _trained(options: argparse.Namespace, corpus: Corpus) -> Vocabulary:
    """Return the vocabulary that is trained on the corpus; train it unless that is done already."""
    path, step = options.output / VOCABULARY_NAME, Step(options.output, "vocabulary")
    if step.done(0) is None:
        print("vocabulary: training", file=sys.stderr, flush=True)
        vocabulary = train_vocabulary(corpus.files, path, options.vocab_size, not options.cased, options.keep_accents)
        step.finish(0, [*vocabulary.files(vocabulary.lower_case)], {})
    return read_vocabulary(path)


def _pack(options: argparse.Namespace) -> None:
    folder = options.output / PACKED_FOLDER
    with workers_from_options(options) as workers:
        pack_dataset(options.output, folder, options.pack, workers=workers, overwrite=options.overwrite)
    print(f"{folder}:\n{before_and_after(read_plan(folder), options.max_seq_length)}")


def _run(options: argparse.Namespace) -> None:
    with standard_input_copied(with_absolute_paths(options), options.output):
        _run_steps(options)


def _print_notes(notes: list[str]) -> None:
    for note in notes:
        print(f"note: {note}", file=sys.stderr)


def _run_steps(options: argparse.Namespace) -> None:
    vocabulary = vocabulary_from_options(options)
    settings = settings_from_options(options)
    if options.pack:
        check_sizes(options.max_seq_length, options.pack, "--pack")
    if vocabulary is None:
        check_size(options.vocab_size)
    if options.workers == 1:
        use_one_tokenizer_thread()  # must be set before a vocabulary is trained: one worker uses one core
    folder = options.output / CORPUS_FOLDER
    if options.sentences:
        for defaults in (SENTENCE_OPTIONS, *OPTIONS_OF_INPUTS.values()):
            refuse_options(options, defaults, "is an option of the sentences step, which was done; leave it out")
        given: Corpus | Source = read_corpus(options.sentences, options.output)
    else:
        given = share_of(source_from_options(options, folder), options.documents_share)
    look = vocabulary is None and not (options.cased or options.keep_accents), options.whole_word_masking
    if isinstance(given, Source) and given.files and not options.dump:
        _print_notes(look_at_beginning(given, *look))
    output, overwrite, unit_bytes = options.output, options.overwrite, unit_bytes_from_options(options)
    identity = _vocabulary_recipe(options, vocabulary)
    with workers_from_options(options) as workers:
        # Rejected before hours of work, not after: all is compared except the corpus, which may have to be made first.
        check_folder(output, make_recipe(settings, unit_bytes, identity), overwrite)
        check_held_out(output, settings, overwrite)
        if isinstance(given, Source):
            given = sentences_from_options(options, given, folder, workers)
            if options.dump:  # to look at its beginning before, WikiExtractor would have to read all of it
                _print_notes(look_at_sentences(given, *look))
        pieces = vocabulary or functools.partial(_trained, options, given)
        write_examples(given, pieces, output, settings, workers, overwrite, unit_bytes, identity)
    print(describe(output))
    if options.pack:
        _pack(options)
    elif options.overwrite and (options.output / PACKED_FOLDER).exists():
        replaced = f"{options.output / PACKED_FOLDER} has packs of the data set that was replaced"
        print(f"warning: {replaced}; pack this one with --pack, or delete them", file=sys.stderr)


def prepare(arguments: list[str]) -> None:
    """Run the whole preparation, for a program that handles its errors."""
    _run(_parser().parse_args(arguments))


def main(arguments: list[str] | None = None) -> int:
    return run_main(_parser(), _run, arguments)


def _parser() -> argparse.ArgumentParser:
    parser = make_parser("data_utils.text", "Makes pre-training TFRecords from text, all steps in one.")
    parser.add_argument("--output", type=Path, required=True, metavar="DIR", help="folder for the data set")
    add_sentence_options(parser, sentences_too=True)
    add_vocabulary_file_options(parser, "; without it one is trained")
    add_vocabulary_options(parser)
    add_example_options(parser)
    parser.add_argument(
        "--pack", type=positive, metavar="N",
        help=f"at the end, pack up to N sequences into one, into DIR/{PACKED_FOLDER}",
    )  # fmt: skip
    return parser


if __name__ == "__main__":
    sys.exit(main())
