"""Makes a folder of packs from a folder of pre-training records: TFRecords, index files and manifest.

The first pass measures every record, and the packs are planned; the second writes them in an order drawn from the seed,
and reads their records by position. Memory does not grow with the data, and a killed run resumes.
"""

from __future__ import annotations

import functools
import math
import shutil
import sys
from pathlib import Path
from typing import Any, Dict, List, Mapping, NamedTuple, Optional, Union

import numpy as np

from data_utils.command_line import Progress
from data_utils.completion_log import (
    CompletionLog,
    Done,
    clear_work,
    prepare_dataset_folder,
    run_units,
)
from data_utils.packing.assignment import Assignment, assign, histogram, list_by_length, most_in_a_pack
from data_utils.packing.merge import pack_arrays
from data_utils.packing.plan import UNLIMITED, PackingPlan, most_sequences, plan_packing, write_plan
from data_utils.packing.source import Shape, Source, WorkUnit, survey, work_units
from data_utils.parallel import Pool
from data_utils.records.features import MAX_SEQ_LENGTH, PACKS_FORMAT, SHORTEST_SAMPLE
from data_utils.records.index import index_path
from data_utils.records.manifest import MANIFEST_NAME, VALIDATION_FOLDER, WORK_FOLDER, load_manifest, write_manifest
from data_utils.records.writer import RecordFile, encode_examples, frame_records
from utilities.errors import UserError
from utilities.files import json_digest

DEFAULT_SEQUENCES = 3
DEFAULT_ALGORITHM = "optimal"
DEFAULT_SEED = 42

_MAX_PACKS_OF_FILE = 8192
_MIN_PACKS_OF_FILE = 256  # used if the input has more files than that
_PACKS_AT_ONCE = 1024
_BYTES_OF_PACK_TOKEN = 8  # rough size, read and written; used only to distinguish small data sets from large ones
_ROUNDING = 1e-6  # error of floating-point sums that should be whole numbers


class Sizes(NamedTuple):
    """The sizes of the packs' arrays: S, P and N."""

    max_seq_length: int
    max_predictions_per_pack: int
    max_sequences_per_pack: int


def pack_dataset(
    input_folder: Path,
    output: Path,
    max_sequences_per_pack: Union[int, str] = DEFAULT_SEQUENCES,
    algorithm: str = DEFAULT_ALGORITHM,
    max_seq_length: Optional[int] = None,
    max_predictions_per_pack: Optional[int] = None,
    seed: int = DEFAULT_SEED,
    pool: Optional[Pool] = None,
    overwrite: bool = False,
) -> Path:
    """Pack a data set, and its held-out records into packs of the same sizes, in the folder ``validation`` within.

    Args:
        input_folder: pre-training records, with or without manifest and index files.
        max_sequences_per_pack: N, or ``"max"`` for as many as fit.
        algorithm: the planning algorithm; see :func:`data_utils.packing.plan_packing`.
        max_seq_length: S, tokens of a pack; None: those of a record.
        max_predictions_per_pack: P, masked positions of a pack; see :func:`choose_max_predictions`.
        seed: determines the choice among records of equal length and the order of the packs.
        pool: workers; None: this process. The output does not depend on them.
        overwrite: whether another data set in the output folder may be replaced.

    Returns:
        The path of the packs' manifest.

    Raises:
        UserError: input, output or a setting cannot be used.

    Example:
        >>> pack_dataset(Path("data/128"), Path("data/128-packed"), 3)  # doctest: +SKIP
        PosixPath('data/128-packed/manifest.json')
    """
    if output.exists() and input_folder.exists() and output.samefile(input_folder):
        raise UserError(f"--output {output}: is the input; choose another folder")
    source = Source(input_folder)
    max_length = source.shape.max_seq_length if max_seq_length is None else max_seq_length
    most_sequences(max_length, max_sequences_per_pack, algorithm)  # rejected before the input is read
    check_sizes(max_length, max_sequences_per_pack)
    recipe = {
        "input": source.identity,
        "packs": {
            "max_seq_length": max_length,
            "max_sequences_per_pack": max_sequences_per_pack,
            "max_predictions_per_pack": max_predictions_per_pack,
            "algorithm": algorithm,
            "seed": seed,
        },
    }
    pool = pool or Pool()
    if prepare_dataset_folder(output, recipe, overwrite):
        print(f"packing: {output} is complete already", file=sys.stderr)
    else:
        if overwrite:  # held-out packs of another data set, whose documents this one may train on
            shutil.rmtree(output / VALIDATION_FOLDER, ignore_errors=True)
        _make_packs(source, output, recipe, pool)
    if (input_folder / VALIDATION_FOLDER / MANIFEST_NAME).exists():
        manifest = load_manifest(output)
        assert manifest is not None, "it was just written"
        pack_dataset(
            input_folder / VALIDATION_FOLDER,
            output / VALIDATION_FOLDER,
            manifest.settings["max_sequences_per_pack"],
            max_seq_length=manifest.settings["max_seq_length"],
            max_predictions_per_pack=manifest.settings["max_predictions_per_pack"],
            pool=pool,
            overwrite=overwrite,
        )
    return output / MANIFEST_NAME


def check_sizes(
    max_seq_length: int, max_sequences_per_pack: Union[int, str], option: str = "--max-sequences-per-pack"
) -> None:
    """Reject packs that are too long, or that cannot have as many sequences as ``option`` says."""
    if max_seq_length > MAX_SEQ_LENGTH:
        raise UserError(f"--max-seq-length {max_seq_length}: too long, at most {MAX_SEQ_LENGTH}")
    most = max(1, max_seq_length // SHORTEST_SAMPLE)
    if max_sequences_per_pack != UNLIMITED and int(max_sequences_per_pack) > most:
        problem = f"sequences have at least {SHORTEST_SAMPLE} tokens, and a pack {max_seq_length}"
        raise UserError(f"{option} {max_sequences_per_pack}: {problem}; give {most} or less")


def _make_packs(source: Source, output: Path, recipe: Mapping[str, Any], pool: Pool) -> None:
    """Plan the packs of a recipe and write them, up to the manifest."""
    choices = recipe["packs"]
    max_length, limit, seed = choices["max_seq_length"], choices["max_sequences_per_pack"], choices["seed"]
    lengths, masked_positions = survey(source, output, pool)
    counts = histogram(lengths, max_length)
    if counts.size > max_length:
        clear_work(output)  # nothing is written yet, so that the folder can be used with other settings
        longer = int(counts[max_length:].sum())
        problem = f"{longer:,} records are longer, up to {counts.size} tokens"
        raise UserError(f"--max-seq-length {max_length}: {problem}; give that or more")
    plan = plan_packing(counts, max_length, limit, choices["algorithm"])
    write_plan(output, plan)
    list_path = (output / WORK_FOLDER / "by_length.npy").absolute()
    list_by_length(lengths, counts, seed, list_path)
    assignment = assign(plan, list_path, seed)
    sequences = plan.max_sequences_in_a_pack if isinstance(limit, str) else limit
    needed, held_out = most_in_a_pack(assignment, masked_positions), most_held_out(source, max_length, sequences)
    try:
        predictions = choose_max_predictions(
            source.shape, max_length, sequences, needed, held_out, choices["max_predictions_per_pack"]
        )
    except UserError:
        clear_work(output)
        raise
    sizes = Sizes(max_length, predictions, sequences)
    entries = _write(source, output, recipe, plan, assignment, sizes, pool)
    total = int(masked_positions.sum(dtype=np.int64))
    _finish(source, output, plan, sizes, entries, {name: choices[name] for name in ("algorithm", "seed")}, total)


def most_held_out(source: Source, max_length: int, sequences: int) -> int:
    """Return the most masked positions that a pack of held-out records may have; 0 if the data set has none.

    A record of n tokens has share · n masked positions, rounded, but at least 1 and at most Q. Rounding adds up to 0.5,
    and the minimum of 1 may add more to the shortest records.
    """
    held_out = load_manifest(source.folder / VALIDATION_FOLDER)
    if held_out is None:
        return 0
    share = held_out.settings.get("masked_lm_prob") or 1.0
    most_added = max(0.5, 1 - SHORTEST_SAMPLE * share)
    limit = math.floor(share * max_length + most_added * sequences + _ROUNDING)
    return min(limit, sequences * source.shape.max_predictions_per_seq)


def choose_max_predictions(
    shape: Shape,
    max_seq_length: int,
    max_sequences_per_pack: int,
    needed: int,
    held_out: int = 0,
    requested: Optional[int] = None,
) -> int:
    """Return P, the number of masked positions of a pack.

    The share of masked tokens hardly depends on a sequence's length, and their number is rounded up. A full pack
    therefore has as many masked positions as a full sequence, plus at most one for each of its sequences: P = Q·S/L +
    N, the published choice (20 becomes 23 at three sequences, 76 becomes 79), or S if that is less. If a pack needs
    more, P is increased, because no masked position may be lost.

    Args:
        shape: L and Q of the records.
        needed: the largest number of masked positions in a pack.
        held_out: the largest number that a pack of held-out records, which has the same P, may have.
        requested: the user's choice of P, if there is one.

    Raises:
        UserError: a pack needs more than the user chose, or cannot have as many.
    """
    most = max(needed, held_out)
    if requested is not None:
        if requested < most:
            packs = "a pack has" if needed == most else "a pack of held-out records may have"
            raise UserError(
                f"--max-predictions-per-pack {requested}: {packs} {most} masked positions; give {most} or more"
            )
        if requested > max_seq_length:
            problem = f"a pack has {max_seq_length} tokens"
            raise UserError(f"--max-predictions-per-pack {requested}: {problem}; give that or less")
        return requested
    usual = math.ceil(shape.max_predictions_per_seq * max_seq_length / shape.max_seq_length) + max_sequences_per_pack
    usual = min(usual, max_seq_length)
    if most > usual:
        print(f"packing: {most} masked positions in a pack, not {usual} as usual: a pack needs them", file=sys.stderr)
    return max(usual, most)


def _write(
    source: Source,
    output: Path,
    recipe: Mapping[str, Any],
    plan: PackingPlan,
    assignment: Assignment,
    sizes: Sizes,
    pool: Pool,
) -> List[Dict[str, Any]]:
    """Write about as many record files as the input has; return their entries in the manifest, in order."""
    packs = assignment.packs
    files = max(-(-packs // _MAX_PACKS_OF_FILE), min(len(source.paths), packs // _MIN_PACKS_OF_FILE), 1)
    units = work_units(packs, -(-packs // files))
    # Files of another plan, such as another version's, must not be mixed with this one's.
    made_with = {**recipe, "sizes": sizes._asdict(), "plan": json_digest([plan.packs, plan.repeats])}
    completion_log = CompletionLog.begin(output, "pack", made_with)
    digits = max(3, len(str(len(units) - 1)))
    write_file = functools.partial(_write_file, source, assignment, sizes, digits, completion_log)
    entries: Dict[int, Dict[str, Any]] = {}

    def on_file(number: int, facts: Dict[str, Any]) -> str:
        entries[number] = facts["entry"]
        return f"{len(entries):,} files, {sum(entry['bytes'] for entry in entries.values()) / 1e6:,.1f} MB"

    size = packs * sizes.max_seq_length * _BYTES_OF_PACK_TOKEN
    with Progress(packs, "pack", "packs") as progress:
        run_units(pool, completion_log, write_file, units, size, progress, on_file)
    return [entries[number] for number in sorted(entries)]


def _write_file(
    source: Source, assignment: Assignment, sizes: Sizes, digits: int, completion_log: CompletionLog, unit: WorkUnit
) -> Done:
    path = completion_log.files / f"packed_{unit.number:0{digits}d}.tfrecord"
    with RecordFile(path) as file:
        for begin in range(unit.begin, unit.end, _PACKS_AT_ONCE):
            packs = assignment.shuffled(begin, min(begin + _PACKS_AT_ONCE, unit.end))
            records, amounts = assignment.select_records(packs)
            bounds = np.cumsum([0, *amounts]).tolist()
            rows = [range(first, last) for first, last in zip(bounds, bounds[1:])]
            features = pack_arrays(source.read(records), rows, *sizes)
            file.add(frame_records(encode_examples(features)))
        entry = file.finish()
    names = [entry["name"], index_path(path).name]
    return Done(unit.number, unit.size, completion_log.finish(unit.number, names, {"entry": entry}))


def _finish(
    source: Source,
    output: Path,
    plan: PackingPlan,
    sizes: Sizes,
    entries: List[Dict[str, Any]],
    choices: Mapping[str, Any],
    masked_positions: int,
) -> None:
    """Copy the vocabulary, write the manifest, and remove the work folder."""
    manifest = source.manifest
    vocabulary = dict(manifest.vocabulary) if manifest else {}
    if manifest is not None and manifest.vocabulary_path is not None:
        shutil.copyfile(manifest.vocabulary_path, output / manifest.vocabulary_path.name)
    packing = {
        **choices,
        "unpacked_max_seq_length": source.shape.max_seq_length,
        "efficiency": plan.efficiency,
        "factor": plan.packing_factor,
        "fewest_packs": plan.fewest_packs,
    }
    settings = {
        **(manifest.settings if manifest else {}),
        "max_predictions_per_seq": source.shape.max_predictions_per_seq,
        **sizes._asdict(),
        "packing": packing,
    }
    totals = {
        **(manifest.totals if manifest else {}),
        "records": plan.number_of_packs,
        "sequences": plan.number_of_sequences,
        "real_tokens": plan.number_of_tokens,
        "masked_positions": masked_positions,
    }
    entropy = manifest.unigram_entropy_nats if manifest else None
    write_manifest(output, settings, vocabulary, entries, totals, entropy, PACKS_FORMAT)
    clear_work(output)
