# PYTHON_ARGCOMPLETE_OK
"""``python -m tasks.fill_mask --checkpoint RUN "paris is the [MASK] of france"`` fills the blanks of texts."""

from __future__ import annotations

import argparse
import sys
from pathlib import Path
from typing import Iterator, Optional, Sequence

from data_utils.command_line import positive
from model.tasks import PRETRAINING
from tasks.file_predictions import CHECKPOINT, FILE, FILLINGS, TEXT, add_model_flags, read_texts
from tasks.named_models import check_named
from utilities.commands import make_parser, run_main
from utilities.errors import UserError
from utilities.progress import waiting


def fill(options: argparse.Namespace) -> Iterator[str]:
    """Yield the lines to print: each of several texts, and the fillings of its blanks."""
    if bool(options.texts) == bool(options.file) or (options.text and not options.file):
        raise UserError(f"give either texts with blanks, or {FILE} (and {TEXT} for its column)")
    texts = read_texts(options.file, options.text) if options.file else options.texts
    check_named(options.checkpoint, CHECKPOINT, PRETRAINING)
    with waiting("loading TensorFlow"):
        from tasks.answering import load_model
    model = load_model(options.checkpoint, CHECKPOINT, PRETRAINING, vocab_file=options.vocab_file)
    among = None if options.among is None else options.among.split() or [options.among]
    for text, answer in zip(texts, model(texts, top=options.top, among=among)):
        if len(texts) > 1:
            yield text
        several = answer[-1].blank > 1
        for blank, piece, probability in answer:
            yield f"{f'{blank}  ' if several else ''}{probability:7.2%}  {piece}"


def main(arguments: Optional[Sequence[str]] = None) -> int:
    parser = make_parser("tasks.fill_mask", "Fill the blanks of texts with a pre-trained model.")
    add_model_flags(parser, ", with a masked-LM head")
    parser.add_argument("texts", nargs="*", metavar="TEXT", help="a text with [MASK] for each blank")
    what = "fill the texts of a file instead: a table (.csv, .tsv, .jsonl), or a text on each line"
    parser.add_argument(FILE, type=Path, metavar="FILE", help=what)
    parser.add_argument(TEXT, metavar="COLUMN", help="the table's column of texts [text]")
    parser.add_argument("--top", type=positive, default=FILLINGS, metavar="N", help="pieces for a blank [%(default)s]")
    parser.add_argument(
        "--among", metavar="WORDS", help='consider only these words, as in "good bad"; the probabilities are among them'
    )
    return run_main(parser, lambda options: print(*fill(options), sep="\n"), arguments)


if __name__ == "__main__":
    sys.exit(main())
