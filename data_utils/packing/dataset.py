"""Makes a folder of packs from a folder of pre-training records: TFRecords, index files and manifest.

All records are measured, the packs are planned, and written in an order drawn from the seed, each file as a shard.
"""

from __future__ import annotations

import functools
import math
import shutil
import sys
from pathlib import Path
from typing import Any, Dict, Iterator, List, Mapping, NamedTuple, Optional, Tuple, Union

import numpy as np

from data_utils.packing.assignment import Packs, fill_packs, histogram
from data_utils.packing.merge import pack_arrays
from data_utils.packing.plan import DEFAULT_ALGORITHM, UNLIMITED, PackingPlan, plan_packing, write_plan
from data_utils.packing.unpacked import Shape, UnpackedRecords
from data_utils.recipe import clear_work, prepare_folder
from data_utils.records.features import MAX_SEQ_LENGTH, PACKS_FORMAT, SHORTEST_SAMPLE
from data_utils.records.index import index_path
from data_utils.records.manifest import MANIFEST_NAME, VALIDATION_FOLDER, WORK_FOLDER, load_manifest, write_manifest
from data_utils.records.order import permute
from data_utils.records.writer import encode_examples, write_record_file
from data_utils.shards import ALONE, Shard, Step, Workers, run_shards
from data_utils.tokenizer_files import SETTINGS_NAME
from utilities.errors import UserError
from utilities.files import json_digest, write_atomically
from utilities.progress import progress_bar

DEFAULT_SEQUENCES = 3
DEFAULT_SEED = 42

_MAX_PACKS_OF_FILE = 8192
_MIN_PACKS_OF_FILE = 256  # used if the input has more files than that
_PACKS_AT_ONCE = 1024
_PACKS_COUNTED = 1 << 20  # at a time, which limits memory
_EPOCH = 0  # of the permutation of the packs
RECORDS_OF_SHARD = 1 << 17
_FOR_HELD_OUT: Dict[str, Any] = {"algorithm": DEFAULT_ALGORITHM, "seed": DEFAULT_SEED}


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
    workers: Workers = ALONE,
    overwrite: bool = False,
) -> Path:
    """Pack a data set, and its held-out records into packs of the same sizes, in the folder ``validation`` within.

    Args:
        input_folder: pre-training records, with or without manifest and index files.
        max_sequences_per_pack: N, or ``"max"`` for as many as fit.
        max_seq_length: S, tokens of a pack; None: those of a record.
        max_predictions_per_pack: P, masked positions of a pack; see :func:`choose_max_predictions`.
    """
    if output.exists() and input_folder.exists() and output.samefile(input_folder):
        raise UserError(f"--output {output}: is the input; choose another folder")
    source = UnpackedRecords.open(input_folder)
    max_length = source.shape.max_seq_length if max_seq_length is None else max_seq_length
    check_sizes(max_length, max_sequences_per_pack)  # rejected before the input is read
    choices = {
        "max_seq_length": max_length,
        "max_sequences_per_pack": max_sequences_per_pack,
        "max_predictions_per_pack": max_predictions_per_pack,
        "algorithm": algorithm,
        "seed": seed,
    }
    held_out = _pack(source, output, choices, workers, overwrite)
    if (input_folder / VALIDATION_FOLDER / MANIFEST_NAME).exists():
        manifest = load_manifest(output)
        assert manifest is not None, "it was just written"
        sizes = {name: manifest.settings[name] for name in Sizes._fields}
        choices = {**sizes, **_FOR_HELD_OUT}
        source = UnpackedRecords.open(input_folder / VALIDATION_FOLDER)
        _pack(source, output / VALIDATION_FOLDER, choices, workers, overwrite, held_out)
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


class _Planned(NamedTuple):
    plan: PackingPlan
    packs: Packs
    masked_positions: int  # of all records
    most_in_a_pack: int  # masked positions


def _pack(
    source: UnpackedRecords,
    output: Path,
    choices: Dict[str, Any],
    workers: Workers,
    overwrite: bool,
    planned: Optional[_Planned] = None,
) -> Optional[_Planned]:
    """Plan the packs of one folder and write them, up to the manifest, unless that is done."""
    recipe = {"input": dict(source.identity), "packs": choices}
    if prepare_folder(output, recipe, overwrite):
        print(f"packing: {output} is complete already", file=sys.stderr)
        return None
    if overwrite:  # held-out packs of another data set, whose documents this one may train on
        shutil.rmtree(output / VALIDATION_FOLDER, ignore_errors=True)
    max_length, sequences = choices["max_seq_length"], choices["max_sequences_per_pack"]
    held_out, folder = None, source.folder / VALIDATION_FOLDER
    try:
        planned = planned or _planned(source, Step(output, "measure"), choices, workers)
        sequences = planned.plan.max_sequences_in_a_pack if sequences == UNLIMITED else sequences
        if (folder / MANIFEST_NAME).exists():
            others = {**choices, "max_sequences_per_pack": sequences, **_FOR_HELD_OUT}
            held_out = _planned(UnpackedRecords.open(folder), Step(output, "measure-held-out"), others, workers)
        most = planned.most_in_a_pack, held_out.most_in_a_pack if held_out else 0
        requested = choices["max_predictions_per_pack"]
        predictions = choose_max_predictions(source.shape, max_length, sequences, *most, requested)
    except UserError:
        clear_work(output)  # no pack is written yet, so that the folder can be used with other settings
        raise
    sizes = Sizes(max_length, predictions, sequences)
    write_plan(output, planned.plan)
    entries = _write(source, output, planned, sizes, choices["seed"], workers)
    _finish(source, output, planned, sizes, entries, {name: choices[name] for name in ("algorithm", "seed")})
    return held_out


def _planned(source: UnpackedRecords, step: Step, choices: Mapping[str, Any], workers: Workers) -> _Planned:
    max_length = choices["max_seq_length"]
    lengths, masked_positions = _measured(source, step, workers)
    counts = histogram(lengths, max_length)
    if counts.size > max_length:
        longer = int(counts[max_length:].sum())
        problem = f"{longer:,} records are longer, up to {counts.size} tokens"
        raise UserError(f"--max-seq-length {max_length}: {problem}; give that or more")
    plan = plan_packing(counts, max_length, choices["max_sequences_per_pack"], choices["algorithm"])
    packs = fill_packs(plan, lengths, choices["seed"])
    needed = max(
        _most_in_a_pack(packs, np.arange(begin, min(begin + _PACKS_COUNTED, packs.number)), masked_positions)
        for begin in range(0, packs.number, _PACKS_COUNTED)
    )
    return _Planned(plan, packs, int(masked_positions.sum(dtype=np.int64)), needed)


def _most_in_a_pack(packs: Packs, chosen: np.ndarray, amounts: np.ndarray) -> int:
    """Return the largest sum of ``amounts`` (R,) over the records of one pack."""
    records, sizes = packs.select(chosen)
    return int(np.add.reduceat(amounts[records].astype(np.int64), np.cumsum(sizes) - sizes).max())


def _measured(source: UnpackedRecords, step: Step, workers: Workers) -> Tuple[np.ndarray, np.ndarray]:
    """Return the numbers of tokens and of masked positions of all records, both (R,) uint16."""
    count = source.reader.count
    bounds = [*range(0, count, RECORDS_OF_SHARD), count]
    shards = [Shard(n, (begin, end), end - begin) for n, (begin, end) in enumerate(zip(bounds, bounds[1:]))]
    make = functools.partial(_measure, source, step)
    (step.folder / WORK_FOLDER).mkdir(exist_ok=True)
    with progress_bar(count, "measure", "records") as progress:
        done = dict(run_shards(workers, step, make, shards, progress))
    parts = [np.fromfile(step.folder / done[shard.number]["file"], "<u2") for shard in shards]
    measured = np.concatenate(parts).reshape(-1, 2)
    assert len(measured) == count
    return measured[:, 0], measured[:, 1]


def _measure(source: UnpackedRecords, step: Step, shard: Shard) -> Tuple[List[str], Dict[str, Any]]:
    name = f"{WORK_FOLDER}/{step.name}_{shard.number:06d}.bin"
    write_atomically(step.folder / name, source.measure(*shard.content).astype("<u2").tobytes())
    return [name], {"file": name}


def choose_max_predictions(
    shape: Shape,
    max_seq_length: int,
    max_sequences_per_pack: int,
    needed: int,
    held_out: int = 0,
    requested: Optional[int] = None,
) -> int:
    """Return P, the number of masked positions of a pack, of which some need ``needed``, or ``held_out`` ones.

    The share of masked tokens hardly depends on a sequence's length, and their number is rounded up. A full pack
    therefore has as many masked positions as a full sequence, plus at most one for each of its sequences: P = Q·S/L +
    N, the published choice (20 becomes 23 at three sequences, 76 becomes 79), or S if that is less. If a pack needs
    more, P is increased, because no masked position may be lost.
    """
    most = max(needed, held_out)
    if requested is not None:
        option = f"--max-predictions-per-pack {requested}"
        if requested < most:
            packs = "a pack has" if needed == most else "a pack of held-out records has"
            raise UserError(f"{option}: {packs} {most} masked positions; give {most} or more")
        if requested > max_seq_length:
            raise UserError(f"{option}: a pack has {max_seq_length} tokens; give that or less")
        return requested
    usual = math.ceil(shape.max_predictions_per_seq * max_seq_length / shape.max_seq_length) + max_sequences_per_pack
    usual = min(usual, max_seq_length)
    if most > usual:
        print(f"packing: {most} masked positions in a pack, not {usual} as usual: a pack needs them", file=sys.stderr)
    return max(usual, most)


def _write(
    source: UnpackedRecords, output: Path, planned: _Planned, sizes: Sizes, seed: int, workers: Workers
) -> List[Dict[str, Any]]:
    """Write about as many record files as the input has; return their entries in the manifest, in order."""
    packs = planned.packs
    as_input = min(len(source.reader.paths), packs.number // _MIN_PACKS_OF_FILE)
    count = max(-(-packs.number // _MAX_PACKS_OF_FILE), as_input, 1)
    each = -(-packs.number // count)
    digits = max(3, len(str(count - 1)))

    def shards() -> Iterator[Shard]:
        for number, begin in enumerate(range(0, packs.number, each)):
            positions = np.arange(begin, min(begin + each, packs.number))
            order = permute(positions, packs.number, seed, np.array([_EPOCH]))
            yield Shard(number, packs.select(order), len(order))

    # Files of another plan, such as another version's, must not be mixed with this one's.
    made_with = json_digest([sizes, planned.plan.packs, planned.plan.repeats])
    step, make = Step(output, f"pack-{made_with[:12]}"), functools.partial(_write_file, source, output, sizes, digits)
    with progress_bar(packs.number, "pack", "packs") as progress:
        entries = dict(run_shards(workers, step, make, shards(), progress))
    return [entries[number] for number in sorted(entries)]


def _write_file(
    source: UnpackedRecords, output: Path, sizes: Sizes, digits: int, shard: Shard
) -> Tuple[List[str], Dict[str, Any]]:
    path = output / f"packed_{shard.number:0{digits}d}.tfrecord"
    entry = write_record_file(path, _messages(source, sizes, *shard.content))
    return [path.name, index_path(path).name], entry


def _messages(source: UnpackedRecords, sizes: Sizes, records: np.ndarray, amounts: np.ndarray) -> Iterator[bytes]:
    """Yield packs of ``records``, of which each pack has as many as ``amounts`` says."""
    bounds = np.cumsum([0, *amounts])
    for begin in range(0, len(amounts), _PACKS_AT_ONCE):
        inside = bounds[begin : begin + _PACKS_AT_ONCE + 1]
        rows = [range(first, last) for first, last in zip(inside - inside[0], inside[1:] - inside[0])]
        batch = source.reader.read(records[inside[0] : inside[-1]])
        yield from encode_examples(pack_arrays(batch, rows, *sizes))


def _finish(
    source: UnpackedRecords,
    output: Path,
    planned: _Planned,
    sizes: Sizes,
    entries: List[Dict[str, Any]],
    choices: Mapping[str, Any],
) -> None:
    """Copy the vocabulary, write the manifest, and remove the work folder."""
    plan, manifest = planned.plan, source.reader.manifest
    vocabulary = dict(manifest.vocabulary) if manifest else {}
    if manifest is not None and manifest.vocabulary_path is not None:
        for name in (manifest.vocabulary_path.name, SETTINGS_NAME):
            if manifest.path.with_name(name).is_file():
                shutil.copyfile(manifest.path.with_name(name), output / name)
    effect = {"efficiency": plan.efficiency, "factor": plan.packing_factor, "fewest_packs": plan.fewest_packs}
    packing = {**choices, "unpacked_max_seq_length": source.shape.max_seq_length, **effect}
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
        "masked_positions": planned.masked_positions,
    }
    entropy, context_free = (manifest.unigram_entropy_nats, manifest.context_free) if manifest else (None, None)
    write_manifest(output, settings, vocabulary, entries, totals, entropy, PACKS_FORMAT, context_free)
    clear_work(output)
