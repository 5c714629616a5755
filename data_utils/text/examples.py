# PYTHON_ARGCOMPLETE_OK
"""Step ``examples``: makes pre-training TFRecords, with vocabulary, index files and manifest, from sentence files.

Each shard of the corpus becomes one file, with its records in random order; training shuffles the whole data set. A
killed run can be resumed.
"""

from __future__ import annotations

import argparse
import functools
import shutil
import sys
from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np

from data_utils.command_line import fraction, natural, positive
from data_utils.recipe import check_folder, clear_work, prepare_folder
from data_utils.records.index import index_path
from data_utils.records.manifest import (
    MANIFEST_NAME,
    RANDOM_NEXT,
    VALIDATION_FOLDER,
    WORK_FOLDER,
    load_manifest,
    write_manifest,
)
from data_utils.records.writer import write_record_file
from data_utils.shards import ALONE, Shard, Step, Workers, run_shards
from data_utils.text.corpus import REJECTED_NAME, Corpus, corpus_shards, read_corpus, shard_bytes_of
from data_utils.text.first_look import check_vocabulary
from data_utils.text.held_out import (
    PARTS_OF,
    HeldOut,
    choose_held_out,
    describe_held_out,
    select,
    split_documents,
    write_held_out,
)
from data_utils.text.instances import COUNTS, Settings, check_settings, make_shard, use_one_tokenizer_thread
from data_utils.text.masking import context_free_optimum
from data_utils.text.vocabulary import add_case_option, check_case
from data_utils.tokenizer import Vocabulary, extended, read_vocabulary
from data_utils.tokenizer_files import UNKNOWN, VOCABULARY_NAME
from data_utils.workers import add_worker_options, with_absolute_paths, workers_from_options
from utilities.commands import make_parser, run_main
from utilities.errors import UserError
from utilities.files import write_atomically
from utilities.progress import progress_bar

FILE_PREFIX = "wiki"
UNBALANCED = 0.05  # a share of random next sentences that is further from a half is reported
UNKNOWN_TOKENS = "unknown_tokens"  # in the manifest's totals: how many of its tokens are [UNK]
MANY_UNKNOWN = 0.01  # share of the tokens above which the vocabulary does not fit the text
BYTES_NEEDED = 1.8  # on disk, per byte of text and pass over it


def make_recipe(settings: Settings, unit_bytes: int | None, vocabulary: Any, sentences: Any = None) -> dict[str, Any]:
    """Return the inputs and settings of a data set; ``sentences`` is the identity of the corpus, if known."""
    recipe = {"records": {**settings.described(), "unit_bytes": unit_bytes}, "vocabulary": vocabulary}
    return recipe if sentences is None else {**recipe, "sentences": sentences}


def write_examples(
    corpus: Corpus,
    vocabulary: Vocabulary | Callable[[], Vocabulary],
    output: Path,
    settings: Settings,
    workers: Workers = ALONE,
    overwrite: bool = False,
    unit_bytes: int | None = None,
    vocabulary_recipe: Any = None,
) -> None:
    """Make a data set: TFRecord files with their indices, ``vocab.txt``, and finally ``manifest.json``.

    Text that is held out becomes a data set of one pass in the folder ``validation`` within, which is made first.

    Args:
        vocabulary: BERT's vocabulary; its ``vocab.txt`` is written into the folder. Or a function that trains it,
            called unless the data set is complete.
        workers: Where the shards are made; the files do not depend on them.
        unit_bytes: Text of a shard; None: see ``shard_bytes_of``.
        vocabulary_recipe: Identifies a vocabulary that is to be trained in the recipe.
    """
    if isinstance(vocabulary, Vocabulary):
        vocabulary_recipe = vocabulary.identity
    recipe = make_recipe(settings, unit_bytes, vocabulary_recipe, corpus.identity)
    is_complete = prepare_folder(output, recipe, overwrite)
    if not isinstance(vocabulary, Vocabulary):
        vocabulary = read_vocabulary(output / VOCABULARY_NAME) if is_complete else vocabulary()
    if not is_complete:
        check_vocabulary(vocabulary, corpus, settings.lower_case, output)
    has_held_out = not settings.validation_fraction or (output / VALIDATION_FOLDER / MANIFEST_NAME).exists()
    held_out = None
    if not (is_complete and has_held_out):
        held_out = _write_held_out(corpus, vocabulary, output, settings, workers, overwrite)
    if is_complete:
        print(f"examples: {output} is complete already", file=sys.stderr)
        return
    for name, content in vocabulary.files(settings.lower_case).items():
        write_atomically(output / name, content)
    vocabulary_size, pieces = len(vocabulary.pieces), np.zeros(len(vocabulary.pieces), np.int64)
    text_bytes = sum(path.stat().st_size for path in corpus.files)
    shard_bytes = unit_bytes or shard_bytes_of(text_bytes)
    digits = max(3, len(str(text_bytes // shard_bytes)))  # of the numbers in the names of files, which are sorted
    make = functools.partial(_write_shard, output, settings, digits, held_out)
    _warn_of_full_disk(output, text_bytes * settings.duplicate_factor)
    entries: dict[int, dict[str, Any]] = {}
    totals = dict.fromkeys(("records", *COUNTS, RANDOM_NEXT), 0)
    step, shards = Step(output, "examples"), corpus_shards(corpus.files, shard_bytes)
    with progress_bar(text_bytes, "examples") as progress:
        for number, result in run_shards(workers, step, make, shards, progress):
            entries[number] = result["entry"]
            pieces += np.fromfile(output / _pieces_file(number), np.int64)
            for name in totals:
                totals[name] += result[name]
            progress.set_postfix_str(f"{totals['documents']:,} documents, {totals['records']:,} records", refresh=False)
    if not totals["records"]:
        clear_work(output)  # the folder can be used with other settings
        if totals["sentences"]:
            raise UserError("the text is one sentence, which has no next one; give more, or --no-next-sentence")
        raise UserError("the corpus is empty: no sentence, so no records")
    shares = pieces[pieces > 0] / pieces.sum()
    write_manifest(
        output,
        {**settings.described(), **vocabulary.rules.described(), "vocab_size": vocabulary_size},
        {"file": VOCABULARY_NAME, "sha256": vocabulary.sha256, "size": vocabulary_size},
        [entries[number] for number in sorted(entries) if entries[number]],
        {
            **totals,
            UNKNOWN_TOKENS: int(pieces[vocabulary.piece_id(UNKNOWN)]),
            "set_aside": corpus.rejected,
            **({PARTS_OF: held_out.parts_of} if held_out is not None and held_out.parts_of else {}),
        },
        unigram_entropy_nats=float(-(shares * np.log(shares)).sum()),
        context_free=context_free_optimum(pieces, vocabulary.ordinary_ids()),
    )
    clear_work(output)


def check_held_out(output: Path, settings: Settings, overwrite: bool) -> None:
    """Check that the folder for held-out text may be used, which may have a data set of the user's own."""
    if settings.validation_fraction:
        records = {"records": make_recipe(_once(settings), None, None)["records"]}
        check_folder(output / VALIDATION_FOLDER, records, overwrite)


def _once(settings: Settings) -> Settings:
    return settings._replace(duplicate_factor=1, validation_fraction=0.0, masked_lm_prob=Settings().masked_lm_prob)


def _write_held_out(
    corpus: Corpus, vocabulary: Vocabulary, output: Path, settings: Settings, workers: Workers, overwrite: bool
) -> HeldOut | None:
    """Write one pass over the held-out text, with the default share of masked tokens; return what is held out."""
    folder = output / VALIDATION_FOLDER
    if settings.validation_fraction:
        check_held_out(output, settings, overwrite)
        chosen = choose_held_out(corpus.files, settings.validation_fraction)
        held_out = write_held_out(corpus, folder / "corpus", chosen)
        write_examples(held_out, vocabulary, folder, _once(settings), workers, overwrite)
        return chosen
    if overwrite:  # documents that another recipe held out are now used for training
        shutil.rmtree(folder, ignore_errors=True)
    elif folder.exists():  # left by a command that was killed, or the user's
        raise UserError(
            f"{folder}: exists, and training would evaluate on it, but no document is held out (--validation-fraction);"
            " delete it, or give --overwrite"
        )
    return None


def _write_shard(
    output: Path, settings: Settings, digits: int, held_out: HeldOut | None, shard: Shard
) -> tuple[list[str], dict[str, Any]]:
    """Write the records of what is not held out of a shard, and how often each piece occurs in its text."""
    use_one_tokenizer_thread()
    if held_out is not None:
        rests = (select(each, held_out, is_held_out=False) for each in split_documents([shard.content]))
        kept = [rest for rest in rests if rest]
        shard = shard._replace(content=b"".join(kept))
    records, counts, pieces = make_shard(shard, output / VOCABULARY_NAME, settings)
    if held_out is not None and held_out.parts_of:  # a document that is cut is one nevertheless
        counts["documents"] = len(kept)
    names, entry = [_pieces_file(shard.number)], None
    (output / WORK_FOLDER).mkdir(exist_ok=True)
    write_atomically(output / names[0], pieces.tobytes())
    if records:  # none if all of the shard is held out
        path = output / f"{FILE_PREFIX}_{shard.number:0{digits}d}.tfrecord"
        names += [path.name, index_path(path).name]
        entry = write_record_file(path, records)
    return names, {"records": len(records), "entry": entry, **counts}


def _pieces_file(shard: int) -> str:
    return f"{WORK_FOLDER}/pieces_{shard:06d}"


def _warn_of_full_disk(output: Path, text_bytes: int) -> None:
    needed = text_bytes * BYTES_NEEDED
    needed -= sum(path.stat().st_size for path in output.glob(f"{FILE_PREFIX}_*.tfrecord"))
    free = shutil.disk_usage(output).free
    if needed > free:
        text = f"examples: about {needed / 1e9:,.1f} GB will be needed in {output}, {free / 1e9:,.1f} GB are free"
        print(f"{text}; if the disk is full, the run ends; it can be resumed once there is more", file=sys.stderr)


def describe(folder: Path) -> str:
    """Return the summary of a preparation; the manifest of an earlier version does not have the share of [UNK]."""
    manifest = load_manifest(folder)
    assert manifest is not None and manifest.unigram_entropy_nats is not None, "it was just written"
    totals, size = manifest.totals, manifest.vocabulary["size"]
    bad = f", {totals['set_aside']:,} documents rejected ({REJECTED_NAME})" if totals.get("set_aside") else ""
    lines = [
        f"{folder}: {totals['records']:,} records in {len(manifest.files):,} files, from"
        f" {totals['documents']:,} documents, {totals['sentences']:,} sentences, {totals['words']:,} words,"
        f" {totals['tokens']:,} tokens{bad}",
        *(f"held out: {held_out}" for held_out in [describe_held_out(folder)] if held_out),
        f"entropy of the word pieces: {manifest.unigram_entropy_nats:.3f} nats (ln of {size:,} pieces:"
        f" {np.log(size):.3f})",
    ]
    if manifest.context_free is not None:
        lines.append(
            f"context-free baseline: {manifest.context_free.loss_nats:.3f} nats,"
            f" {manifest.context_free.accuracy:.1%} right, from the frequencies of the pieces alone"
        )
    random_next = manifest.random_next_share
    if manifest.has_next_sentences and random_next is not None and abs(random_next - 0.5) > UNBALANCED:
        lines.append(
            f"warning: {random_next:.0%} of the second sentences are random ones, because documents have few sentences;"
            " --no-next-sentence makes rows without a second sentence"
        )
    if UNKNOWN_TOKENS in totals:
        share = totals[UNKNOWN_TOKENS] / totals["tokens"]
        lines.append(f"{UNKNOWN}: {share:.3%} of the tokens")
        if share > MANY_UNKNOWN:
            lines.append(
                f"warning: the vocabulary lacks much of this text, which is {UNKNOWN} in the records; give a larger"
                " --vocab-size, or a --vocab-file of its language"
            )
    return "\n".join(lines)


def add_vocabulary_file_options(parser: argparse.ArgumentParser, otherwise: str, required: bool = False) -> None:
    """Add the options of :func:`vocabulary_from_options`; ``otherwise`` is the end of the help: the default."""
    parser.add_argument(
        "--vocab-file", type=Path, required=required, metavar="PATH",
        help=f"BERT's vocab.txt or tokenizer.json to use, or a folder with one{otherwise}",
    )  # fmt: skip
    parser.add_argument(
        "--extra-tokens", type=Path, metavar="FILE", help="tokens to append to that vocabulary, one on each line"
    )


def add_example_options(parser: argparse.ArgumentParser) -> None:
    group = parser.add_argument_group("records")
    group.add_argument("--max-seq-length", type=positive, metavar="N", help="tokens (default %(default)s)")
    group.add_argument(
        "--max-predictions", dest="max_predictions_per_seq", type=positive, metavar="N",
        help="maximum number of masked tokens of a sequence (default %(default)s)",
    )  # fmt: skip
    group.add_argument(
        "--masked-lm-prob", type=fraction,
        help="share of the tokens to mask (default %(default)s); held-out text always has the default",
    )  # fmt: skip
    group.add_argument(
        "--short-seq-prob", type=fraction, help="share of shorter rows, drawn for each row (default %(default)s)"
    )
    group.add_argument(
        "--duplicate-factor", type=positive, metavar="N",
        help="passes over the corpus, each with new pairs and masks (default %(default)s)",
    )  # fmt: skip
    group.add_argument(
        "--validation-fraction", type=fraction, metavar="X",
        help="share of the text to hold out of training, in whole documents or, where there are few, in parts of them,"
        f" into the folder {VALIDATION_FOLDER} of the data set (default: none)",
    )  # fmt: skip
    group.add_argument("--whole-word-masking", action="store_true", help="mask all pieces of a word or none")
    group.add_argument(
        "--no-next-sentence", dest="next_sentence", action="store_false",
        help="rows of consecutive sentences, for training on masked words alone, instead of sentence pairs",
    )  # fmt: skip
    group.add_argument("--seed", type=natural, help="random seed (default %(default)s)")
    group.add_argument(
        "--unit-megabytes", type=float, metavar="X",
        help="text of a shard, and so of a file (default: 4, less for a small corpus)",
    )  # fmt: skip
    group.add_argument("--overwrite", action="store_true", help="replace a data set in the output folder")
    parser.set_defaults(**{name: value for name, value in Settings()._asdict().items() if name != "lower_case"})


def vocabulary_from_options(options: argparse.Namespace) -> Vocabulary | None:
    """Return the vocabulary that ``--vocab-file`` names, with the tokens of ``--extra-tokens``; None if unset.

    If its files say that it keeps capitals, ``options.cased`` is set; if it only looks like that, a warning is printed.
    """
    check_case(options)
    if options.vocab_file is None:
        if options.extra_tokens:
            raise UserError("--extra-tokens: extends an existing vocabulary; name it with --vocab-file")
        return None
    vocabulary = read_vocabulary(options.vocab_file)
    if options.cased and vocabulary.lower_case:
        raise UserError(f"--cased: the tokenizer of {vocabulary.path} lower-cases text; leave --cased out")
    options.cased = options.cased or vocabulary.lower_case is False
    if options.keep_accents and vocabulary.rules.strip_accents is not False:
        if vocabulary.lower_case is not None:
            what = f"the tokenizer of {vocabulary.path} strips accents, or keeps capitals"
            raise UserError(f"--keep-accents: {what}; leave --keep-accents out")
        vocabulary = vocabulary._replace(rules=vocabulary.rules._replace(strip_accents=False))
    what, has_capitals = "", not vocabulary.looks_lower_cased()
    if options.cased and not has_capitals:
        what = "has no capitals, so that words with capitals are [UNK]; leave --cased out"
    elif not options.cased and has_capitals:
        what = "seems to be a vocabulary of cased text, because it has capitals; without --cased, text is lower-cased"
    elif not (options.cased or options.keep_accents) and vocabulary.looks_accented():
        what = "has accents or marks, which text loses, so that these pieces never occur; --keep-accents keeps them"
    if what and vocabulary.lower_case is None:
        print(f"warning: {vocabulary.path} {what}", file=sys.stderr)
    return extended(vocabulary, options.extra_tokens, not options.cased) if options.extra_tokens else vocabulary


def settings_from_options(options: argparse.Namespace) -> Settings:
    """Return the settings that the options of ``add_example_options`` and ``add_case_option`` describe."""
    given = {name: getattr(options, name) for name in Settings._fields if name != "lower_case"}
    settings = Settings(**given, lower_case=not options.cased)
    check_settings(settings)
    return settings


def unit_bytes_from_options(options: argparse.Namespace) -> int | None:
    if options.unit_megabytes is None:
        return None
    unit_bytes = options.unit_megabytes * 2**20
    if not 0 < unit_bytes < float("inf"):
        raise UserError(f"--unit-megabytes {options.unit_megabytes}: must be a number above 0")
    return int(unit_bytes)


def _run(options: argparse.Namespace) -> None:
    corpus = read_corpus(with_absolute_paths(options).sentences, options.output)
    vocabulary = vocabulary_from_options(options)
    assert vocabulary is not None, "the option is required"
    settings, unit_bytes = settings_from_options(options), unit_bytes_from_options(options)
    with workers_from_options(options) as workers:
        write_examples(corpus, vocabulary, options.output, settings, workers, options.overwrite, unit_bytes)
    print(describe(options.output))


def main(arguments: list[str] | None = None) -> int:
    parser = make_parser("data_utils.text.examples", "Sentence files to pre-training TFRecords.")
    parser.add_argument("--sentences", type=Path, required=True, metavar="DIR", help="output of the sentences step")
    add_vocabulary_file_options(parser, "", required=True)
    parser.add_argument("--output", type=Path, required=True, metavar="DIR", help="folder for the records")
    add_example_options(parser)
    add_case_option(parser)
    add_worker_options(parser)
    return run_main(parser, _run, arguments)


if __name__ == "__main__":
    sys.exit(main())
