# PYTHON_ARGCOMPLETE_OK
"""``python -m tasks.embed --checkpoint RUN --file texts.csv --output embeddings.npy`` embeds the texts of a file.

The output is a NumPy array with a row for each text, float32.
"""

from __future__ import annotations

import os
import sys

if not __package__:  # started by its path, from any folder
    sys.path[0] = os.path.dirname(os.path.dirname(os.path.realpath(__file__)))

import argparse
from pathlib import Path
from typing import List, Optional, Sequence

import numpy as np

from model.tasks import SENTENCE_EMBEDDING
from tasks import prediction_config, restore_task
from tasks.classify import FILE_PACKING, USUAL_LENGTH
from tasks.file_predictions import (
    CHECKPOINT,
    FILE,
    OUTPUT,
    ROWS,
    TEXT,
    add_model_flags,
    check_new_file,
    read_rows,
    sequence_length,
)
from utilities.commands import make_parser, run_main
from utilities.errors import UserError
from utilities.files import replacing
from utilities.progress import waiting
from utilities.tables import FORMATS, REPAIR, check_columns, read_text


def embed(options: argparse.Namespace) -> List[str]:
    """Write the embeddings of the texts in a file, and return the lines to print.

    Raises:
        UserError: there is no such checkpoint, or one of the files cannot be used.
    """
    source, output = options.file, options.output
    if output.suffix != ".npy":
        raise UserError(f"{OUTPUT}: {output} must end with .npy")
    check_new_file(output)
    texts = read_texts(source, options.text)
    # These import TensorFlow, which --help and errors of the command line do not need.
    with waiting("loading TensorFlow"):
        from checkpoints.pretrained.opening import open_pretrained
        from checkpoints.pretrained.sentence_transformers import EmbeddingSettings, embedding_prompt, embedding_settings
        from tasks.sentence_embedding import normalized
        from training.prediction import EVALUATION_BATCH_SIZE, Predictor

    start = open_pretrained(options.checkpoint, CHECKPOINT)
    known = embedding_settings(start) or EmbeddingSettings()
    pooling = options.pooling or known.pooling
    prompt = embedding_prompt(start, pooling, options.prompt)
    positions = start.architecture["max_position_embeddings"]
    config = prediction_config(
        embedding={"pooling": pooling},
        max_seq_length=options.max_seq_length or min(known.length or USUAL_LENGTH, positions),
        vocab_file=options.vocab_file,
        packing=FILE_PACKING,
    )
    task, built, platform = restore_task(start, SENTENCE_EMBEDDING, config)
    predictor = Predictor(built.model, EVALUATION_BATCH_SIZE, platform, total=len(texts))
    texts = [prompt + text for text in texts]
    parts = [task.embeddings(predictor, texts[begin : begin + ROWS]) for begin in range(0, len(texts), ROWS)]
    embeddings = np.concatenate(parts)  # (rows, H)
    if known.normalize or options.normalize:
        embeddings = normalized(embeddings)
    with replacing(output) as file:
        np.save(file, embeddings)
    return [f"embeddings of {len(texts):,} texts, {embeddings.shape[1]} numbers each: {output}"]


def read_texts(source: Path, column: Optional[str]) -> List[str]:
    """Return the texts of a file: those of a table's column, or the lines of a file of another kind.

    Raises:
        UserError: the file cannot be read, or a text is missing.
    """
    if source.suffix.lower() in FORMATS:
        name = column or "text"
        check_columns(source, [name])
        rows = [(number, row.get(name)) for number, row in read_rows(source)]
    elif column is not None:
        raise UserError(f"{TEXT}: {source} has no columns; leave it out, or name a table ({', '.join(FORMATS)})")
    else:
        lines = read_text(source).split("\n")
        rows = list(enumerate(lines if lines[-1] else lines[:-1], start=1))
    texts = []
    for number, text in rows:
        if not isinstance(text, str) or not text.strip():
            raise UserError(f"{source}: line {number}: has no text; {REPAIR}")
        texts.append(text)
    if not texts:
        raise UserError(f"{source}: is empty; name a file with texts")
    return texts


def main(arguments: Optional[Sequence[str]] = None) -> int:
    """Run the command and return its exit status."""
    parser = make_parser("tasks.embed", "Write the embeddings of texts as a NumPy array: a row for each text, float32.")
    add_model_flags(parser, ", also one of sentence-transformers")
    what = "table (.csv, .tsv, .jsonl), or a file with a text on each line"
    parser.add_argument(FILE, type=Path, required=True, metavar="FILE", help=what)
    parser.add_argument(TEXT, metavar="COLUMN", help="the table's column of texts [text]")
    parser.add_argument(OUTPUT, type=Path, required=True, metavar="FILE", help="new file, .npy")
    parser.add_argument("--pooling", choices=("mean", "cls"), help="how to pool [as in training, else mean]")
    what = "name of one of the model's prompts, which is put before each text, or none [its default one]"
    parser.add_argument("--prompt", metavar="NAME", help=what)
    parser.add_argument("--normalize", action="store_true", help="scale each embedding to length 1")
    what = f"tokens of a text at most [as in training, else {USUAL_LENGTH}]"
    parser.add_argument("--max-seq-length", type=sequence_length, metavar="N", help=what)
    return run_main(parser, lambda options: print(*embed(options), sep="\n"), arguments)


if __name__ == "__main__":
    sys.exit(main())
