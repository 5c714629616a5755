"""Step ``examples``: sentence files to pre-training TFRecords with index and manifest, in one global random order.

Two passes: ``scatter`` makes the records of each work unit, ``gather`` brings those of all units into their order and
writes the files. A killed run goes on where it stopped.
"""

from __future__ import annotations

import argparse
import json
import sys
from collections.abc import Mapping
from pathlib import Path
from typing import Any

import numpy as np

from data_utils.parallel import Pool
from data_utils.records.writer import MANIFEST_NAME, entropy_nats, write_atomically, write_manifest
from data_utils.text.command_line import fraction, make_parser, natural, positive, run_main
from data_utils.text.instances import Settings, check_settings
from data_utils.text.ledger import forget
from data_utils.text.output_folder import take_up
from data_utils.text.passes import RecordsJob, gather_all, scatter_all
from data_utils.text.running import add_pool_options, on_every_machine, pool_of
from data_utils.text.sentences import Corpus, read_corpus
from data_utils.text.set_aside import FILE_NAME as SET_ASIDE_NAME
from data_utils.text.units import plan_units
from data_utils.text.vocabulary import add_case_option
from data_utils.tokenizer import VOCABULARY_NAME, Vocabulary, read_vocabulary
from utilities.errors import UserError


def recipe_of(settings: Settings, unit_bytes: int | None, vocabulary: Any, sentences: Any = None) -> dict[str, Any]:
    """What a data set is made from and with.

    Args:
        settings: of the records.
        unit_bytes: text of a unit, if given.
        vocabulary: what tells it from others.
        sentences: identity of the corpus, where known.
    """
    recipe = {"records": {**settings._asdict(), "unit_bytes": unit_bytes}, "vocabulary": vocabulary}
    return recipe if sentences is None else {**recipe, "sentences": sentences}


def write_examples(
    corpus: Corpus,
    vocabulary_file: Path,
    output: Path,
    settings: Settings,
    pool: Pool | None = None,
    overwrite: bool = False,
    unit_bytes: int | None = None,
    vocabulary_recipe: Any = None,
) -> Path:
    """Makes a data set: TFRecord files, an index beside each, ``vocab.txt``, and last ``manifest.json``.

    Args:
        corpus: sentence files.
        vocabulary_file: BERT ``vocab.txt``; copied into the folder.
        output: the folder.
        settings: see ``Settings``.
        pool: where; the bytes written do not depend on it. None: in this process.
        overwrite: whether a data set in the folder may be replaced.
        unit_bytes: text per file; see ``plan_units``.
        vocabulary_recipe: what tells the vocabulary from others, where that is not its checksum.

    Returns:
        The manifest.

    Raises:
        UserError: settings, vocabulary, folder or corpus are unfit.
    """
    check_settings(settings)
    vocabulary = read_vocabulary(vocabulary_file)
    recipe = recipe_of(settings, unit_bytes, vocabulary_recipe or {"sha256": vocabulary.sha256}, corpus.identity)
    if take_up(output, recipe, overwrite):
        print(f"examples: {output} is complete already", file=sys.stderr)
        return output / MANIFEST_NAME
    local_vocabulary = output / VOCABULARY_NAME
    if not (local_vocabulary.exists() and local_vocabulary.samefile(vocabulary_file)):
        write_atomically(local_vocabulary, vocabulary_file.read_bytes())
    _write(corpus, vocabulary, output, settings, pool or Pool(), unit_bytes, recipe)
    return output / MANIFEST_NAME


def _write(
    corpus: Corpus,
    vocabulary: Vocabulary,
    output: Path,
    settings: Settings,
    pool: Pool,
    unit_bytes: int | None,
    recipe: Mapping[str, Any],
) -> None:
    units = plan_units(corpus.files, unit_bytes)
    job = RecordsJob.plan(units, output, len(vocabulary.pieces), settings, recipe)
    totals = scatter_all(job, units, pool)
    if not totals["records"]:
        raise UserError("the corpus is empty: no sentence, so no records")
    entries = gather_all(job, units, totals["records"], pool)
    write_manifest(
        output,
        {**settings._asdict(), "vocab_size": len(vocabulary.pieces)},
        {"file": VOCABULARY_NAME, "sha256": vocabulary.sha256, "size": len(vocabulary.pieces)},
        entries,
        {**totals, "set_aside": corpus.set_aside},
        entropy_nats(job.pieces(units)),
    )
    forget(output)


def describe(manifest: Mapping[str, Any], folder: Path) -> str:
    """Two lines for the end of a run."""
    totals = manifest["totals"]
    bad = f", {totals['set_aside']:,} articles set aside ({SET_ASIDE_NAME})" if totals.get("set_aside") else ""
    return (
        f"{folder}: {totals['records']:,} records in {len(manifest['files']):,} files, from"
        f" {totals['documents']:,} documents, {totals['sentences']:,} sentences, {totals['words']:,} words,"
        f" {totals['tokens']:,} tokens{bad}\n"
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
    group.add_argument("--seed", type=natural, default=default.seed, help="of all chance (default %(default)s)")
    group.add_argument(
        "--unit-megabytes",
        type=float,
        metavar="X",
        help="text that is worked on at once, and goes into a file at most (default: 4, less if small)",
    )
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


def _action(options: argparse.Namespace) -> None:
    corpus = read_corpus(on_every_machine(options).sentences)
    with pool_of(options, options.output, corpus.files) as pool:
        manifest = write_examples(
            corpus,
            options.vocab_file,
            options.output,
            settings_of(options),
            pool,
            options.overwrite,
            unit_bytes_of(options),
        )
    print(describe(json.loads(manifest.read_text(encoding="utf-8")), options.output))


def main(arguments: list[str] | None = None) -> int:
    """Command line of the step."""
    parser = make_parser("data_utils.text.examples", "Sentence files to pre-training TFRecords.")
    parser.add_argument("--sentences", type=Path, required=True, metavar="DIR", help="what the sentences step wrote")
    parser.add_argument("--vocab-file", type=Path, required=True, metavar="FILE", help="BERT vocab.txt")
    parser.add_argument("--output", type=Path, required=True, metavar="DIR", help="folder for the records")
    add_example_options(parser)
    add_case_option(parser)
    add_pool_options(parser)
    return run_main(parser, _action, arguments)


if __name__ == "__main__":
    sys.exit(main())
