# PYTHON_ARGCOMPLETE_OK
"""``python -m tasks.embed --checkpoint RUN --file texts.csv --output embeddings.npy`` embeds the texts of a file.

The output is a NumPy array with a row for each text, float32.
"""

from __future__ import annotations

import argparse
import sys
from pathlib import Path
from typing import List, Optional, Sequence

import numpy as np

from model.tasks import SENTENCE_EMBEDDING
from tasks.file_predictions import (
    CHECKPOINT,
    FILE,
    OUTPUT,
    TEXT,
    add_model_flags,
    add_precision_flag,
    check_new_file,
    read_texts,
    sequence_length,
)
from tasks.named_models import check_named
from utilities.commands import make_parser, run_main
from utilities.errors import UserError
from utilities.files import replacing
from utilities.progress import waiting


def embed(options: argparse.Namespace) -> List[str]:
    """Write the embeddings of the texts in a file, and return the lines to print."""
    source, output = options.file, options.output
    if output.suffix != ".npy":
        raise UserError(f"{OUTPUT}: {output} must end with .npy")
    check_new_file(output)
    check_named(options.checkpoint, CHECKPOINT, SENTENCE_EMBEDDING)
    texts = read_texts(source, options.text)
    with waiting("loading TensorFlow"):  # which --help and errors of the command line do not need
        from tasks.answering import load_model

    names = ("vocab_file", "max_seq_length", "pooling", "prompt", "normalize", "precision")
    given = {name: getattr(options, name) for name in names}
    model = load_model(options.checkpoint, CHECKPOINT, SENTENCE_EMBEDDING, **given)
    with replacing(output) as file:  # before the work: the folder may not be writable
        embeddings = model(texts)
        np.save(file, embeddings)
    return [f"embeddings of {len(texts):,} texts, {embeddings.shape[1]} numbers each: {output}"]


def main(arguments: Optional[Sequence[str]] = None) -> int:
    parser = make_parser("tasks.embed", "Write the embeddings of texts as a NumPy array: a row for each text, float32.")
    add_model_flags(parser, ", also one of sentence-transformers")
    what = "table (.csv, .tsv, .jsonl), or a file with a text on each line"
    parser.add_argument(FILE, type=Path, required=True, metavar="FILE", help=what)
    parser.add_argument(TEXT, metavar="COLUMN", help="the table's column of texts [text]")
    parser.add_argument(OUTPUT, type=Path, required=True, metavar="FILE", help="new file, .npy")
    parser.add_argument("--pooling", choices=("mean", "cls"), help="how to pool [as in training, else mean]")
    what = "name of one of the model's prompts, which is put before each text, or none [its default one]"
    parser.add_argument("--prompt", metavar="NAME", help=what)
    add_precision_flag(parser)
    parser.add_argument("--normalize", action="store_true", help="scale each embedding to length 1")
    what = "tokens of a text at most [as in training, or as the model's files say]"
    parser.add_argument("--max-seq-length", type=sequence_length, metavar="N", help=what)
    return run_main(parser, lambda options: print(*embed(options), sep="\n"), arguments)


if __name__ == "__main__":
    sys.exit(main())
