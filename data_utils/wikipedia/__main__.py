"""All steps in one command: text in, pre-training TFRecords out.

``python -m data_utils.wikipedia --dump FILE --output FOLDER`` reads a dump (or text, JSON Lines, …), writes
sentences to ``FOLDER/corpus``, trains a vocabulary unless one is given, and writes records, index files and
``manifest.json``. For a second data set from the same text, say of longer sequences:
``--sentences FOLDER/corpus --vocab-file FOLDER/vocab.txt --max-seq-length 384 --max-predictions 56 --output
OTHER``.
"""

from __future__ import annotations

import argparse
import sys
from pathlib import Path

from data_utils.tokenizer import VOCABULARY_NAME, read_vocabulary
from data_utils.wikipedia.command_line import make_parser, run_main
from data_utils.wikipedia.examples import (
    add_example_options,
    describe,
    prepare_output,
    quiet_tokenizers,
    settings_of,
    unit_bytes_of,
    write_examples,
)
from data_utils.wikipedia.extract import add_extract_options
from data_utils.wikipedia.instances import check_settings
from data_utils.wikipedia.sentences import Corpus, add_sentence_options, read_corpus, write_sentences
from data_utils.wikipedia.sources import source_of
from data_utils.wikipedia.vocabulary import add_vocabulary_options, train_vocabulary

CORPUS_FOLDER = "corpus"


def _corpus(options: argparse.Namespace) -> Corpus:
    """The sentences: made from the input, or those that ``--sentences`` names."""
    if options.sentences:
        return read_corpus(options.sentences)
    return write_sentences(
        source_of(options),
        options.output / CORPUS_FOLDER,
        options.workers,
        options.language,
        options.min_characters,
        options.punkt_training_megabytes,
    )


def _action(options: argparse.Namespace) -> None:
    quiet_tokenizers()
    settings, unit_bytes = settings_of(options), unit_bytes_of(options)
    check_settings(settings)  # before hours of work, not after
    vocabulary_file = options.vocab_file
    if vocabulary_file:
        read_vocabulary(vocabulary_file)
    prepare_output(options.output, options.overwrite)
    corpus = _corpus(options)
    if not vocabulary_file:
        vocabulary_file = options.output / VOCABULARY_NAME
        print("vocabulary: training", file=sys.stderr, flush=True)
        train_vocabulary(corpus.files, vocabulary_file, options.vocab_size, settings.lower_case, options.min_frequency)
    manifest = write_examples(
        corpus.files,
        vocabulary_file,
        options.output,
        settings,
        options.workers,
        options.overwrite,
        unit_bytes,
    )
    print(describe(manifest, options.output))


def main(arguments: list[str] | None = None) -> int:
    """Command line of the whole preparation."""
    parser = make_parser("data_utils.wikipedia", "Text to pre-training TFRecords, all steps in one.")
    parser.add_argument("--output", type=Path, required=True, metavar="DIR", help="folder for the data set")
    add_extract_options(parser, sentences_too=True)
    add_sentence_options(parser)
    parser.add_argument(
        "--vocab-file", type=Path, metavar="FILE", help="BERT vocab.txt to use; without it one is trained"
    )
    add_vocabulary_options(parser)
    add_example_options(parser)
    return run_main(parser, _action, arguments)


if __name__ == "__main__":
    sys.exit(main())
