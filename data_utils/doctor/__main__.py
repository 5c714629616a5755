# PYTHON_ARGCOMPLETE_OK
"""``python -m data_utils.doctor FOLDER`` reads every record of a data set before days are spent on it."""

from __future__ import annotations

import argparse
import math
import sys
import tempfile
from collections import Counter
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path

from data_utils.doctor.records import PROBLEMS_SHOWN, Checker, FileFindings, find_features
from data_utils.records.features import ANY_VOCABULARY, FeatureSpec
from data_utils.records.files import list_record_files
from data_utils.records.manifest import Manifest, check_files, load_manifest
from data_utils.shards import Shard, Step, Workers, run_shards
from data_utils.text.masking import MASK_SHARE
from data_utils.tokenizer import Vocabulary, read_vocabulary
from data_utils.tokenizer_files import VOCABULARY_NAME
from data_utils.workers import add_worker_options, open_workers, with_absolute_paths
from utilities.commands import make_parser, run_main
from utilities.errors import UserError
from utilities.progress import progress_bar

SIGMAS = 5.0  # a share is wrong if chance alone would cause it in only one of a million data sets
MASK_TOLERANCE = 0.01  # accepted deviation of a share, in addition to chance
RANDOM_NEXT_TOLERANCE = 0.03
MOST_UNKNOWN = 0.05  # share of [UNK]; more mean a vocabulary of another language or script


@dataclass(frozen=True)
class DataSet:
    """A data set, what must be fixed in it before training, and what is worth knowing."""

    folder: Path
    files: list[Path]
    manifest: Manifest | None
    vocabulary: Vocabulary | None
    vocab_size: int | None
    spec: FeatureSpec
    wrong: list[str]
    notes: list[str]


def open_dataset(folder: Path, vocabulary_file: Path | None) -> DataSet:
    """Examine a folder without reading all of its records; its own vocabulary is used if none is named."""
    files = list_record_files(folder)
    wrong: list[str] = []
    notes: list[str] = []
    manifest = vocabulary = None
    try:
        manifest = load_manifest(folder)
        if manifest is None:
            notes.append("has no manifest.json: counts and checksums are not known")
        else:
            check_files(manifest, folder)
    except UserError as error:
        wrong.append(str(error))
    path = vocabulary_file or folder / VOCABULARY_NAME
    if vocabulary_file is None and not path.exists():
        notes.append(f"has no {VOCABULARY_NAME}: ids and masks are not checked; name one with --vocab-file")
    else:
        try:
            vocabulary = read_vocabulary(path)
            expected = manifest.vocabulary.get("sha256") if manifest is not None else None
            if expected not in (None, vocabulary.sha256):
                wrong.append(f"{path.name} is not the vocabulary that the records were made with (SHA-256)")
        except UserError as error:
            if vocabulary_file is not None:
                raise
            wrong.append(str(error))
    vocab_size = manifest.settings.get("vocab_size") if manifest is not None else None
    if vocabulary is not None:
        vocab_size = len(vocabulary.pieces)
    spec = find_features(files, manifest, vocab_size or ANY_VOCABULARY)
    return DataSet(folder, files, manifest, vocabulary, vocab_size, spec, wrong, notes)


def examine(data: DataSet, workers: Workers) -> list[FileFindings]:
    special = data.vocabulary.special_ids().tolist() if data.vocabulary is not None else None
    whole_words = data.manifest is not None and data.manifest.settings.get("whole_word_masking") is True
    checker = Checker(data.spec, special, whole_words)
    shards = [Shard(number, path, path.stat().st_size) for number, path in enumerate(data.files)]
    size = sum(shard.size for shard in shards)
    with tempfile.TemporaryDirectory() as folder, progress_bar(size, "records") as progress:
        done = dict(run_shards(workers, Step(Path(folder), "examine"), checker.examine, shards, progress))
    return [FileFindings(**done[shard.number]) for shard in shards]


def find_wrong(data: DataSet, files: Sequence[FileFindings], counts: Counter[str], shares: Sequence[str]) -> list[str]:
    """Return what must be fixed: damage, copies, differences from the manifest, and unusual shares."""
    wrong = [*data.wrong, *(file.index_problem for file in files if file.index_problem is not None)]
    entries = {entry.name: entry for entry in data.manifest.files} if data.manifest is not None else {}
    first: dict[str, str] = {}
    for file in files:
        name, entry = file.name, entries.get(file.name)
        records = file.counts.get("records", 0) + file.counts.get("bad", 0)
        if entry is not None and records != entry.records:
            wrong.append(f"{name}: has {records:,} records, the manifest says {entry.records:,}")
        elif entry is not None and entry.sha256 not in (None, file.sha256):
            wrong.append(f"{name}: is not the file that the manifest describes (SHA-256)")
        if first.setdefault(file.sha256, name) != name:
            wrong.append(f"{name}: is a copy of {first[file.sha256]}")
    if counts["bad"]:
        problem = next(problem for file in files for problem in file.problems)
        wrong.append(f"{counts['bad']:,} records are bad, the first of which is {problem}")
    if not counts["records"]:
        wrong.append("no record can be used")
    elif not counts["predictions"]:
        wrong.append("no record has a token to predict")
    return wrong + [share.removesuffix(_WRONG) for share in shares if share.endswith(_WRONG)]


_WRONG = " ← wrong"


def compare_shares(data: DataSet, counts: Counter[str]) -> list[str]:
    """Compare shares with the published preparation (Devlin et al. 2019, section 3.1), a line for each."""
    if not counts["predictions"]:
        return []

    def share(part: str, whole: str, text: str, expected: float, tolerance: float) -> str:
        given, chance = counts[part] / counts[whole], SIGMAS * math.sqrt(expected * (1 - expected) / counts[whole])
        is_wrong = abs(given - expected) > tolerance + chance
        return f"{given:.2%} {text}, {expected:.1%} expected" + _WRONG * is_wrong

    lines = []
    if data.vocabulary is not None:
        unknown = counts["unknown"] / counts["tokens"]
        text = f"{unknown:.2%} of the pieces are [UNK], at most {MOST_UNKNOWN:.0%} expected"
        lines.append(text + _WRONG * (unknown > MOST_UNKNOWN))
        text = "of the tokens to predict show [MASK]"
        lines.append(share("masked", "predictions", text, MASK_SHARE, MASK_TOLERANCE))
    if counts["second segments"] if data.manifest is None else data.manifest.has_next_sentences:
        text = "of the second sentences are random ones"
        known = data.manifest.random_next_share if data.manifest is not None else None
        lines.append(share("random next", "sequences", text, 0.5 if known is None else known, RANDOM_NEXT_TOLERANCE))
    return lines


def as_text(data: DataSet, counts: Counter[str], shares: list[str], problems: list[str], wrong: list[str]) -> str:
    names, bad = ("input_ids", "masked_lm_ids", "next_sentence_labels"), counts["bad"]
    length, predictions, sequences = (data.spec.shapes[name][0] for name in names)
    what = f"packs of up to {sequences} sequences" if data.spec.packed else "sequences"
    lines = [
        f"{data.folder}: {counts['records'] + bad:,} records in {len(data.files):,} files; {what},"
        f" {length} tokens, {predictions} predictions"
        + (f", vocabulary of {data.vocab_size:,}" if data.vocab_size else ""),
        f"{counts['records']:,} good records, {bad:,} bad ones, {counts['tokens']:,} tokens",
        *shares,
    ]
    if problems:
        lines += ["bad records:", *(f"  {problem}" for problem in problems)]
    lines += ["Something is wrong:", *(f"  - {text}" for text in wrong)] if wrong else ["The data set is fine."]
    if data.notes:
        lines += ["Worth knowing:", *(f"  - {note}" for note in data.notes)]
    return "\n".join(lines)


def _action(options: argparse.Namespace) -> int:
    with_absolute_paths(options)
    data = open_dataset(options.folder, options.vocab_file)
    with open_workers(options.workers, elsewhere=options.elsewhere) as workers:
        files = examine(data, workers)
    counts = sum((Counter(file.counts) for file in files), Counter())
    problems = [problem for file in files for problem in file.problems][:PROBLEMS_SHOWN]
    shares = compare_shares(data, counts)
    wrong = find_wrong(data, files, counts, shares)
    print(as_text(data, counts, shares, problems, wrong))
    return 1 if wrong else 0


def main(arguments: list[str] | None = None) -> int:
    """Run the command; return 0 for a good data set, 1 if something is wrong, 2 if it cannot be read."""
    parser = make_parser("data_utils.doctor", "Examines a data set of pre-training records, packed or not.")
    parser.add_argument("folder", type=Path, metavar="DIR", help="the data set")
    parser.add_argument(
        "--vocab-file", type=Path, metavar="FILE", help="vocab.txt or tokenizer.json (default: the one in DIR)"
    )
    add_worker_options(parser)
    return run_main(parser, _action, arguments)


if __name__ == "__main__":
    sys.exit(main())
