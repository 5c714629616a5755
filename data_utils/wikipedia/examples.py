"""Step ``examples``: sentence files to pre-training TFRecords with index and manifest."""

from __future__ import annotations

import argparse
import functools
import os
import shutil
import sys
from collections.abc import Mapping
from pathlib import Path
from typing import Any, NamedTuple

import numpy as np

from data_utils.records_writer import (
    MANIFEST_NAME,
    entropy_nats,
    index_path,
    write_manifest,
    write_record_file,
)
from data_utils.tokenizer import VOCABULARY_NAME, read_vocabulary
from data_utils.wikipedia.command_line import Progress, fraction, make_parser, positive, run_main
from data_utils.wikipedia.extract import add_workers_option
from data_utils.wikipedia.instances import Settings, UnitCounts, check_settings, make_unit
from data_utils.wikipedia.parallel import ordered_map
from data_utils.wikipedia.sentences import read_corpus
from data_utils.wikipedia.units import Unit, plan_units
from data_utils.wikipedia.vocabulary import add_case_option
from utilities.errors import UserError


class _Written(NamedTuple):
    """What remains of a unit once its file is on disk."""

    entry: dict[str, Any]
    counts: UnitCounts
    pieces: np.ndarray
    size: int


def _write_unit(folder: Path, prefix: str, vocabulary_file: str, settings: Settings, unit: Unit) -> _Written:
    result = make_unit(unit, vocabulary_file, settings)
    path = folder / f"{prefix}_{unit.number:03d}.tfrecord"
    if result.encoded.index:
        entry = write_record_file(path, result.encoded)
    else:
        entry = {}
    return _Written(entry, result.counts, result.pieces, unit.size)


def prepare_output(folder: Path, overwrite: bool) -> None:
    """Makes the output folder; a data set in it is refused, or removed where that was asked for.

    Raises:
        UserError: the folder holds records or a manifest, and ``overwrite`` is false.
    """
    if folder.exists() and not folder.is_dir():
        raise UserError(f"--output {folder}: a file, not a folder")
    folder.mkdir(parents=True, exist_ok=True)
    records = sorted(folder.glob("*.tfrecord"))
    there = [path for path in (folder / MANIFEST_NAME, *records) if path.exists()]
    if there and not overwrite:
        raise UserError(f"--output {folder}: holds a data set already ({there[0].name}); choose another or --overwrite")
    for path in there:
        path.unlink()
    for path in records:
        index_path(path).unlink(missing_ok=True)


def write_examples(
    sentence_files: list[Path],
    vocabulary_file: Path,
    output: Path,
    settings: Settings,
    workers: int = 1,
    overwrite: bool = False,
    unit_bytes: int | None = None,
    prefix: str = "wiki",
) -> Mapping[str, Any]:
    """Makes a data set: TFRecord files, an index beside each, ``vocab.txt``, and last ``manifest.json``.

    Args:
        sentence_files: one sentence a line, blank line between documents.
        vocabulary_file: BERT ``vocab.txt``; copied into the folder.
        output: the folder.
        settings: see ``Settings``.
        workers: processes; the bytes written do not depend on it.
        overwrite: whether a data set in the folder may be replaced.
        unit_bytes: text per file; see ``plan_units``.
        prefix: of the file names.

    Returns:
        The manifest.

    Raises:
        UserError: settings, vocabulary, folder or corpus are unfit.
    """
    check_settings(settings)
    vocabulary = read_vocabulary(vocabulary_file)
    units = plan_units(sentence_files, unit_bytes)
    prepare_output(output, overwrite)
    local_vocabulary = output / VOCABULARY_NAME
    if not (local_vocabulary.exists() and local_vocabulary.samefile(vocabulary_file)):
        shutil.copyfile(vocabulary_file, local_vocabulary)
    function = functools.partial(_write_unit, output, prefix, str(local_vocabulary), settings)
    entries: list[dict[str, Any]] = []
    totals = np.zeros(len(UnitCounts._fields), np.int64)
    pieces = np.zeros(len(vocabulary.pieces), np.int64)
    records = 0
    with Progress(sum(unit.size for unit in units), "examples") as progress:
        for written in ordered_map(function, units, workers):
            if written.entry:
                entries.append(written.entry)
                records += written.entry["records"]
            totals += written.counts
            pieces += written.pieces
            progress.advance(written.size, f"{records:,} records")
    if not records:
        raise UserError("the corpus is empty: no sentence, so no records")
    return write_manifest(
        output,
        {**settings._asdict(), "vocab_size": len(vocabulary.pieces)},
        {"file": VOCABULARY_NAME, "sha256": vocabulary.sha256, "size": len(vocabulary.pieces)},
        entries,
        {"records": records, **dict(zip(UnitCounts._fields, totals.tolist()))},
        entropy_nats(pieces),
    )


def describe(manifest: Mapping[str, Any], folder: Path) -> str:
    """Two lines for the end of a run."""
    totals = manifest["totals"]
    return (
        f"{folder}: {totals['records']:,} records in {len(manifest['files']):,} files, from"
        f" {totals['documents']:,} documents, {totals['sentences']:,} sentences, {totals['words']:,} words,"
        f" {totals['tokens']:,} tokens\n"
        f"entropy of the word pieces: {manifest['unigram_entropy_nats']:.3f} nats"
        f" (ln of {manifest['vocabulary']['size']:,} pieces: {np.log(manifest['vocabulary']['size']):.3f})"
    )


def add_example_options(parser: argparse.ArgumentParser) -> None:
    """Options of pairing, masking and writing."""
    default = Settings()
    group = parser.add_argument_group("records")
    group.add_argument(
        "--max-seq-length",
        type=positive,
        default=default.max_seq_length,
        metavar="N",
        help="tokens (default %(default)s)",
    )
    group.add_argument(
        "--max-predictions", type=positive, default=default.max_predictions_per_seq, metavar="N",
        help="masked tokens of a sequence, at most (default %(default)s)",
    )  # fmt: skip
    group.add_argument(
        "--masked-lm-prob",
        type=fraction,
        default=default.masked_lm_prob,
        help="share to mask (default %(default)s)",
    )
    group.add_argument(
        "--short-seq-prob",
        type=fraction,
        default=default.short_seq_prob,
        help="share cut shorter (default %(default)s)",
    )
    group.add_argument(
        "--duplicate-factor", type=positive, default=default.duplicate_factor, metavar="N",
        help="passes over the corpus, each paired and masked anew (default %(default)s)",
    )  # fmt: skip
    group.add_argument("--whole-word-masking", action="store_true", help="mask all pieces of a word or none")
    group.add_argument("--seed", type=int, default=default.seed, help="of all chance (default %(default)s)")
    group.add_argument("--unit-megabytes", type=float, metavar="X", help="text per file (default: 4, less if small)")
    group.add_argument("--overwrite", action="store_true", help="replace a data set in the output folder")


def settings_of(options: argparse.Namespace) -> Settings:
    """The settings that the options of ``add_example_options`` and ``add_case_option`` describe."""
    return Settings(
        options.max_seq_length,
        options.max_predictions,
        options.masked_lm_prob,
        options.short_seq_prob,
        options.duplicate_factor,
        options.whole_word_masking,
        options.seed,
        not options.cased,
    )


def unit_bytes_of(options: argparse.Namespace) -> int | None:
    """``--unit-megabytes`` in bytes."""
    if options.unit_megabytes is None:
        return None
    if options.unit_megabytes <= 0:
        raise UserError(f"--unit-megabytes {options.unit_megabytes}: must be above 0")
    return int(options.unit_megabytes * 2**20)


def quiet_tokenizers() -> None:
    """One thread per tokenizer: the processes fill the cores already. Read by the library when first used."""
    os.environ.setdefault("TOKENIZERS_PARALLELISM", "false")


def _action(options: argparse.Namespace) -> None:
    quiet_tokenizers()
    corpus = read_corpus(options.sentences)
    manifest = write_examples(
        corpus.files,
        options.vocab_file,
        options.output,
        settings_of(options),
        options.workers,
        options.overwrite,
        unit_bytes_of(options),
    )
    print(describe(manifest, options.output))


def main(arguments: list[str] | None = None) -> int:
    """Command line of the step."""
    parser = make_parser("data_utils.wikipedia.examples", "Sentence files to pre-training TFRecords.")
    parser.add_argument("--sentences", type=Path, required=True, metavar="DIR", help="what the sentences step wrote")
    parser.add_argument("--vocab-file", type=Path, required=True, metavar="FILE", help="BERT vocab.txt")
    parser.add_argument("--output", type=Path, required=True, metavar="DIR", help="folder for the records")
    add_example_options(parser)
    add_case_option(parser)
    add_workers_option(parser)
    return run_main(parser, _action, arguments)


if __name__ == "__main__":
    sys.exit(main())
