# PYTHON_ARGCOMPLETE_OK
"""``python -m checkpoints.export --checkpoint RUN_OR_CHECKPOINT --output FOLDER``: a folder for users of PyTorch."""

from __future__ import annotations

import argparse
import sys
from pathlib import Path
from typing import List, Optional

from checkpoints.pretrained.naming import check_exists
from utilities.commands import make_parser, run_main
from utilities.files import check_new_folder

SWITCHES = {
    "--encoder-only": "leave out the heads",
    "--saved-model": "also write saved_model/1, which TensorFlow loads without any other package",  # room: saved_model
}


def main(arguments: Optional[List[str]] = None) -> int:
    """Run the command and return its exit status."""
    parser = make_parser(
        "checkpoints.export",
        "Write a checkpoint as a Hugging Face folder: config, safetensors in PyTorch's naming, tokenizer."
        " Transformers loads it with AutoModel….from_pretrained(FOLDER).",
    )
    parser.add_argument(
        "--checkpoint",
        required=True,
        metavar="PATH",
        help="a run's folder (its best checkpoint is taken, or else the newest), a checkpoint, a Hugging Face folder"
        " or file, Google's bert_model.ckpt, or N.ckpt of Graphcore's program",
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
    for flag, text in SWITCHES.items():
        parser.add_argument(flag, action="store_true", help=text)
    return run_main(parser, _export, arguments)


def _export(options: argparse.Namespace) -> None:
    check_exists(options.checkpoint, "--checkpoint")
    check_new_folder(options.output, "--output")
    from checkpoints.export.hf_folder import WriteMore, export  # loads TensorFlow, which --help does not need
    from checkpoints.export.saved_model import write_saved_model  # room: saved_model

    more: List[WriteMore] = []
    more += [write_saved_model] if options.saved_model else []  # room: saved_model
    lower_case = None if options.lower_case is None else options.lower_case == "true"
    outcome = export(options.checkpoint, options.output, options.vocab_file, lower_case, options.encoder_only, more)
    print(f"{outcome.head.model} of {outcome.origin} written to {options.output}")
    for note in outcome.notes:
        print(f"  {note}")


if __name__ == "__main__":
    sys.exit(main())
