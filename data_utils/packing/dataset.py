"""From a folder of pre-training records to one of packs: TFRecords, index files and manifest.

Two passes: every record is measured, the lengths planned; then the packs are written in an order drawn from the seed,
their records fetched by position. Memory does not grow with the data. A killed run goes on where it stopped.
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
from data_utils.packing.assignment import Assignment, assign, histogram, list_by_length, most_in_a_pack
from data_utils.packing.merge import pack_arrays
from data_utils.packing.plan import PackingPlan, checked_choices, plan_packing
from data_utils.packing.plan_file import write_plan
from data_utils.packing.source import Shape, Source, source_of
from data_utils.packing.survey import Stretch, stretches, survey
from data_utils.parallel import Pool
from data_utils.records.features import PACKS_FORMAT
from data_utils.records.writer import (
    MANIFEST_NAME,
    RecordFile,
    encode_examples,
    frame_records,
    index_path,
    write_manifest,
)
from data_utils.resume import (
    WORK_FOLDER,
    Done,
    Ledger,
    digest_of,
    forget,
    identity_of,
    prepare_dataset_folder,
    run_units,
)
from utilities.errors import UserError

DEFAULT_SEQUENCES = 3
DEFAULT_ALGORITHM = "optimal"
DEFAULT_SEED = 42
PREFIX = "packed"

_PACKS_OF_FILE = 8192  # at most
_FEWEST_OF_FILE = 256  # where there are more input files than that makes
_PACKS_AT_ONCE = 1024
_BYTES_OF_PACK_TOKEN = 8  # read and written, about: only to tell a small data set from a large one


class Sizes(NamedTuple):
    """Of the packs' arrays.

    Attributes:
        max_seq_length: S.
        max_predictions_per_pack: P.
        max_sequences_per_pack: N.
    """

    max_seq_length: int
    max_predictions_per_pack: int
    max_sequences_per_pack: int


class _Task(NamedTuple):
    """What a worker must know."""

    folder: str
    identity: str
    assignment: Assignment  # its list is a file mapped to memory: see `_list_path`
    list_path: str
    sizes: Sizes
    digits: int
    ledger: Ledger


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
    """Packs a data set.

    Args:
        input_folder: pre-training records, with or without manifest and index files.
        output: folder for the packs.
        max_sequences_per_pack: N, or ``"max"`` for as many as fit.
        algorithm: of the plan; see :func:`data_utils.packing.plan_packing`.
        max_seq_length: S, tokens of a pack; those of a record by default.
        max_predictions_per_pack: P, masked positions of a pack; see :func:`predictions_of_pack`.
        seed: of which records of a length go together, and of the order of the packs.
        pool: workers; the bytes written do not depend on it. None: in this process.
        overwrite: whether another data set in the output folder may be replaced.

    Returns:
        the manifest of the packs.

    Raises:
        UserError: input, output or a setting is unfit.

    Example:
        >>> pack_dataset(Path("data/128"), Path("data/128-packed"), 3)  # doctest: +SKIP
        PosixPath('data/128-packed/manifest.json')
    """
    if output.exists() and input_folder.exists() and output.samefile(input_folder):
        raise UserError(f"--output {output}: is the input; choose another folder")
    source = Source(input_folder)
    room = source.shape.max_seq_length if max_seq_length is None else max_seq_length
    checked_choices(room, max_sequences_per_pack, algorithm)
    recipe = {
        "input": identity_of(source.paths),
        "packs": {
            "max_seq_length": room,
            "max_sequences_per_pack": max_sequences_per_pack,
            "max_predictions_per_pack": max_predictions_per_pack,
            "algorithm": algorithm,
            "seed": seed,
        },
    }
    if prepare_dataset_folder(output, recipe, overwrite):
        print(f"packing: {output} is complete already", file=sys.stderr)
        return output / MANIFEST_NAME
    pool = pool or Pool()
    measured = survey(source, output, recipe["input"], pool)
    counts = histogram(measured.lengths, room)
    if counts.size > room:
        longer = int(counts[room:].sum())
        raise UserError(
            f"--max-seq-length {room}: {longer:,} records are longer, up to {counts.size} tokens; give that or more"
        )
    plan = plan_packing(counts, room, max_sequences_per_pack, algorithm)
    write_plan(output, plan)
    list_path = output / WORK_FOLDER / "by_length.npy"
    assignment = assign(plan, list_by_length(measured.lengths, counts, seed, list_path), seed)
    sequences = plan.max_sequences_in_a_pack if isinstance(max_sequences_per_pack, str) else max_sequences_per_pack
    needed = most_in_a_pack(assignment, measured.predictions)
    predictions = predictions_of_pack(source.shape, room, sequences, needed, max_predictions_per_pack)
    sizes = Sizes(room, predictions, sequences)
    entries = _write(source, output, recipe, plan, assignment, list_path, sizes, pool)
    _finish(source, output, plan, sizes, entries, {"algorithm": algorithm, "seed": seed}, measured.predictions)
    return output / MANIFEST_NAME


def predictions_of_pack(
    shape: Shape, max_seq_length: int, max_sequences_per_pack: int, needed: int, wanted: Optional[int] = None
) -> int:
    """P: room for the masked positions of every pack.

    A sequence masks about the same share of its tokens however long it is, rounded up, so a full pack masks what a full
    sequence does and at most one position more for each of its sequences: P = Q·S/L + N, the published choice (20
    becomes 23 at three sequences, 76 becomes 79). Where a pack needs more, P is what it needs: no masked position is
    lost.

    Args:
        shape: L and Q of the records.
        max_seq_length: S.
        max_sequences_per_pack: N.
        needed: masked positions of the pack that has most.
        wanted: P, if it was asked for.

    Raises:
        UserError: more are needed than were asked for.
    """
    if wanted is not None:
        if wanted < needed:
            raise UserError(
                f"--max-predictions-per-pack {wanted}: a pack has {needed} masked positions; give {needed} or more"
            )
        return wanted
    usual = math.ceil(shape.max_predictions_per_seq * max_seq_length / shape.max_seq_length) + max_sequences_per_pack
    if needed > usual:
        print(f"packing: {needed} masked positions in a pack, not {usual} as usual: a pack needs them", file=sys.stderr)
    return max(usual, needed)


def _packs_per_file(packs: int, input_files: int) -> int:
    """About as many files as the input has, none too large, and none very small."""
    files = max(-(-packs // _PACKS_OF_FILE), min(input_files, packs // _FEWEST_OF_FILE), 1)
    return -(-packs // files)


def _write(
    source: Source,
    output: Path,
    recipe: Mapping[str, Any],
    plan: PackingPlan,
    assignment: Assignment,
    list_path: Path,
    sizes: Sizes,
    pool: Pool,
) -> List[Dict[str, Any]]:
    """Second pass: the record files; returns their entries in the manifest, in order."""
    files = stretches(assignment.packs, _packs_per_file(assignment.packs, len(source.paths)))
    # Files of another plan, say another version's, must not be mixed with this one's.
    made_with = {**recipe, "sizes": sizes._asdict(), "plan": digest_of([plan.packs, plan.repeats])}
    task = _Task(
        folder=str(source.folder.absolute()),
        identity=digest_of(recipe["input"]),
        assignment=assignment._replace(by_length=np.empty(0, np.int64)),
        list_path=str(list_path.absolute()),
        sizes=sizes,
        digits=max(3, len(str(len(files) - 1))),
        ledger=Ledger.begin(output, "pack", made_with),
    )
    entries: Dict[int, Dict[str, Any]] = {}

    def on_file(number: int, facts: Dict[str, Any]) -> str:
        entries[number] = facts["entry"]
        return f"{len(entries):,} files, {sum(entry['bytes'] for entry in entries.values()) / 1e6:,.1f} MB"

    size = assignment.packs * sizes.max_seq_length * _BYTES_OF_PACK_TOKEN
    with Progress(assignment.packs, "pack", "packs") as progress:
        run_units(pool, task.ledger, functools.partial(_write_file, task), files, size, progress, on_file)
    return [entries[number] for number in sorted(entries)]


def _write_file(task: _Task, stretch: Stretch) -> Done:
    """One record file of packs."""
    source = source_of(task.folder, task.identity)
    assignment = task.assignment._replace(by_length=np.load(task.list_path, mmap_mode="r", allow_pickle=False))
    path = task.ledger.files / f"{PREFIX}_{stretch.number:0{task.digits}d}.tfrecord"
    with RecordFile(path) as file:
        for begin in range(stretch.begin, stretch.end, _PACKS_AT_ONCE):
            packs = assignment.shuffled(begin, min(begin + _PACKS_AT_ONCE, stretch.end))
            records, amounts = assignment.records_of(packs)
            bounds = np.cumsum([0, *amounts]).tolist()
            rows = [range(first, last) for first, last in zip(bounds, bounds[1:])]
            features = pack_arrays(source.read(records), rows, *task.sizes)
            file.add(frame_records(encode_examples(features)))
        entry = file.finish()
    names = [entry["name"], index_path(path).name]
    return Done(stretch.number, stretch.size, task.ledger.finish(stretch.number, names, {"entry": entry}))


def _finish(
    source: Source,
    output: Path,
    plan: PackingPlan,
    sizes: Sizes,
    entries: List[Dict[str, Any]],
    choices: Mapping[str, Any],
    predictions: np.ndarray,
) -> None:
    """The vocabulary, the manifest, and away with what was only needed on the way."""
    made, vocabulary, totals, entropy = {}, {}, {}, None
    if source.manifest is not None:
        made, vocabulary, totals = (dict(part) for part in (
            source.manifest.settings, source.manifest.vocabulary, source.manifest.totals
        ))  # fmt: skip
        entropy = source.manifest.unigram_entropy_nats
    name = vocabulary.get("file")
    if isinstance(name, str) and Path(name).name == name and (source.folder / name).is_file():
        shutil.copyfile(source.folder / name, output / name)
    write_manifest(
        output,
        {
            **made,
            "max_predictions_per_seq": source.shape.max_predictions_per_seq,
            **sizes._asdict(),
            "packing": {
                **choices,
                "unpacked_max_seq_length": source.shape.max_seq_length,
                "efficiency": plan.efficiency,
                "factor": plan.packing_factor,
                "fewest_packs": plan.fewest_packs,
            },
        },
        vocabulary,
        entries,
        {
            **totals,
            "records": plan.number_of_packs,
            "sequences": plan.number_of_sequences,
            "real_tokens": plan.number_of_tokens,
            "masked_positions": int(predictions.sum(dtype=np.int64)),
        },
        entropy,
        PACKS_FORMAT,
    )
    forget(output)
