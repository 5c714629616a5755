# PYTHON_ARGCOMPLETE_OK
"""Packs a data set: ``python -m data_utils.packing --input data/512 --output data/512-packed``.

Reads pre-training TFRecords; writes packed TFRecords, index files, manifest and plan, and prints a table. A killed run
resumes when it is started again.
"""

from __future__ import annotations

import argparse
import sys
from pathlib import Path
from typing import List, Optional, Union

from data_utils.command_line import natural, positive
from data_utils.packing.dataset import DEFAULT_SEED, DEFAULT_SEQUENCES, pack_dataset
from data_utils.packing.picture import add_picture_options, check_picture, draw_picture  # room: planners
from data_utils.packing.plan import ALGORITHMS, DEFAULT_ALGORITHM, UNLIMITED, read_plan
from data_utils.packing.report import before_and_after
from data_utils.records.manifest import load_manifest
from data_utils.workers import add_worker_options, with_absolute_paths, workers_from_options
from utilities.commands import make_parser, run_main


def _limit(text: str) -> Union[int, str]:
    return text if text == UNLIMITED else positive(text)


def _action(options: argparse.Namespace) -> None:
    with_absolute_paths(options)
    check_picture(options)  # room: planners
    names = "max_sequences_per_pack", "algorithm", "max_seq_length", "max_predictions_per_pack", "seed", "overwrite"
    choices = {name: getattr(options, name) for name in names}
    with workers_from_options(options) as workers:
        pack_dataset(options.input, options.output, workers=workers, **choices)
    plan, manifest = read_plan(options.output), load_manifest(options.output)
    assert manifest is not None, "it was just written"
    settings = manifest.settings
    unpacked = settings["packing"]["unpacked_max_seq_length"]
    print(before_and_after(plan, unpacked))
    draw_picture(options, plan, unpacked)  # room: planners
    print(
        f"{options.output}: {len(manifest.files):,} files of packs of {settings['max_seq_length']} tokens,"
        f" up to {settings['max_sequences_per_pack']} sequences and"
        f" {settings['max_predictions_per_pack']} masked positions"
    )


def main(arguments: Optional[List[str]] = None) -> int:
    parser = make_parser("data_utils.packing", "Packs pre-training TFRecords: several short sequences in one row.")
    parser.add_argument("--input", type=Path, required=True, metavar="DIR", help="folder of pre-training TFRecords")
    parser.add_argument("--output", type=Path, required=True, metavar="DIR", help="folder for the packs")
    parser.add_argument(
        "--max-sequences-per-pack", type=_limit, default=DEFAULT_SEQUENCES, metavar="N",
        help=f"limit on the sequences in a pack, or {UNLIMITED} for as many as fit (default %(default)s)",
    )  # fmt: skip
    parser.add_argument(
        "--algorithm", choices=ALGORITHMS, default=DEFAULT_ALGORITHM,
        help="how packs are planned (default %(default)s, which packs tightest): see arXiv 2107.02027",
    )  # fmt: skip
    parser.add_argument(
        "--max-seq-length", type=positive, metavar="S", help="tokens of a pack (default: those of the input's records)"
    )
    parser.add_argument(
        "--max-predictions-per-pack", type=positive, metavar="P",
        help="masked positions of a pack (default: those of a sequence of S tokens plus N, or more where a pack needs"
        " them)",
    )  # fmt: skip
    parser.add_argument(
        "--seed", type=natural, default=DEFAULT_SEED,
        help="decides which sequences share a pack, and the order of the packs (default %(default)s)",
    )  # fmt: skip
    add_picture_options(parser)  # room: planners
    parser.add_argument("--overwrite", action="store_true", help="replace a data set in the output folder")
    add_worker_options(parser)
    return run_main(parser, _action, arguments)


if __name__ == "__main__":
    sys.exit(main())
