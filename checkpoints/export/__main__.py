"""``python -m checkpoints.export --checkpoint RUN_OR_CHECKPOINT --output FOLDER``: a folder for users of PyTorch."""

from __future__ import annotations

import argparse
import sys
import traceback
from pathlib import Path
from typing import List, Optional

from utilities.errors import EXIT_USER_ERROR, UserError


def make_parser() -> argparse.ArgumentParser:
    """Return the command's parser."""
    parser = argparse.ArgumentParser(
        prog="python -m checkpoints.export",
        description="Write a checkpoint as a Hugging Face folder: config, safetensors in PyTorch's naming, tokenizer,"
        " model card. Transformers loads it with AutoModel….from_pretrained(FOLDER).",
    )
    parser.add_argument(
        "--checkpoint",
        required=True,
        metavar="PATH",
        help="a run's folder (its best checkpoint is taken, or else the newest), a checkpoint, a Hugging Face folder"
        " or file, or Google's bert_model.ckpt",
    )
    parser.add_argument("--output", required=True, type=Path, metavar="FOLDER", help="folder to make")
    parser.add_argument(
        "--vocab-file",
        type=Path,
        metavar="PATH",
        help="vocab.txt or tokenizer.json, or a folder with one [the one that belongs to the checkpoint]",
    )
    parser.add_argument(
        "--lower-case", choices=("true", "false"), help="whether text is lower-cased [as the checkpoint says]"
    )
    parser.add_argument("--encoder-only", action="store_true", help="leave out the heads")
    parser.add_argument(
        "--tensorflow", action="store_true", help="also write tf_model.h5, which Transformers' TensorFlow classes load"
    )
    parser.add_argument("--debug", action="store_true", help="show the traceback of an error")
    return parser


def main(arguments: Optional[List[str]] = None) -> int:
    """Run the command and return its exit status."""
    options = make_parser().parse_args(arguments)
    lower_case = None if options.lower_case is None else options.lower_case == "true"
    try:
        from checkpoints.export.folder import export  # loads TensorFlow, which --help does not need

        outcome = export(
            options.checkpoint, options.output, options.vocab_file, lower_case, options.encoder_only, options.tensorflow
        )
    except UserError as error:
        if options.debug:
            traceback.print_exc()
        print(f"error: {' '.join(str(error).split())}", file=sys.stderr)
        return EXIT_USER_ERROR
    print(f"{outcome.head.model} of {outcome.origin} written to {options.output}")
    for note in outcome.notes:
        print(f"  {note}")
    return 0


if __name__ == "__main__":
    sys.exit(main())
