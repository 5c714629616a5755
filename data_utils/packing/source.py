"""Reads the data set to be packed: records by position, and the first pass, which measures all of them.

Shapes: R records, B records asked for, L their max_seq_length, Q their max_predictions_per_seq.
"""

from __future__ import annotations

import functools
from pathlib import Path
from typing import Any, Dict, List, NamedTuple, Optional, Tuple

import numpy as np

from data_utils.command_line import Progress
from data_utils.completion_log import CompletionLog, Done, identify_files, run_units
from data_utils.packing.merge import is_one_sequence
from data_utils.parallel import Pool
from data_utils.records.decoding import ExampleDecoder, ExampleError
from data_utils.records.features import PACKS_FORMAT, SEQUENCES_FORMAT, pretraining_features
from data_utils.records.files import RecordFiles
from data_utils.records.framing import RecordError
from data_utils.records.manifest import WORK_FOLDER, Manifest
from utilities.errors import UserError
from utilities.files import json_digest, write_atomically

RECORDS_OF_UNIT = 1 << 17
_RECORDS_AT_ONCE = 4096
_BYTES_OF_TOKEN = 4  # rough size in a file; used only to distinguish small data sets from large ones

_MEASURED = ("input_mask", "masked_lm_positions", "masked_lm_weights")
_ANY_VOCABULARY = 1 << 31


class Shape(NamedTuple):
    """The sizes of a data set's records: L and Q."""

    max_seq_length: int
    max_predictions_per_seq: int


class Source:
    """A folder of pre-training records of one sequence each; each worker opens it once.

    Args:
        folder: folder of ``*.tfrecord`` files; index files and a manifest are used if they exist.

    Raises:
        UserError: there are no records, or records of another kind.

    Attributes:
        count: R.
        shape: the shape of the first record, which all others must have.
    """

    def __init__(self, folder: Path) -> None:
        self.folder = folder
        self._files = RecordFiles(folder)
        self.count = self._files.count
        manifest = self.manifest
        if manifest is not None and manifest.format != SEQUENCES_FORMAT:
            what = "packed already" if manifest.format == PACKS_FORMAT else f"of format {manifest.format!r}"
            raise UserError(f"{manifest.path}: the data set is {what}; name one of {SEQUENCES_FORMAT!r} records")
        any_shape = ExampleDecoder(pretraining_features(1, 1, _ANY_VOCABULARY).features)
        first = self._decode(np.zeros(1, np.int64), any_shape, True)
        self.shape = Shape(first["input_ids"].shape[1], first["masked_lm_ids"].shape[1])
        features = pretraining_features(*self.shape, _ANY_VOCABULARY).features
        self._all = ExampleDecoder(features)
        self._measured = ExampleDecoder([feature for feature in features if feature.name in _MEASURED])

    @functools.cached_property
    def identity(self) -> Dict[str, Any]:
        """A value that changes with the content of the files."""
        return identify_files(self._files.paths)

    def __reduce__(self) -> Tuple[Any, ...]:
        return _open_source, (str(self.folder.absolute()), json_digest(self.identity))

    @property
    def manifest(self) -> Optional[Manifest]:
        return self._files.manifest

    @property
    def paths(self) -> List[Path]:
        return self._files.paths

    def read(self, positions: np.ndarray) -> Dict[str, np.ndarray]:
        """Return the records at some positions: feature → (B, L, Q or 1), int64 or float32."""
        return self._decode(positions, self._all)

    def measure(self, positions: np.ndarray) -> np.ndarray:
        """Return the numbers of tokens and of masked positions of the records at some positions, uint16 (B, 2).

        Raises:
            RecordError: a record is damaged, or its mask or masked positions are invalid.
        """
        batch = self._decode(positions, self._measured)
        good = is_one_sequence(batch["input_mask"])
        if not good.all():
            reason = "has an input_mask that is not ones followed by zeros: not one padded sequence"
            raise self._error(positions, int(np.argmin(good)), reason)
        lengths = batch["input_mask"].sum(axis=1)
        masked = batch["masked_lm_weights"] > 0
        outside = masked & ((batch["masked_lm_positions"] < 0) | (batch["masked_lm_positions"] >= lengths[:, None]))
        if outside.any():
            row, column = np.argwhere(outside)[0].tolist()
            position = batch["masked_lm_positions"][row, column]
            raise self._error(positions, row, f"masks position {position}, and has {lengths[row]} tokens")
        return np.stack([lengths, masked.sum(axis=1)], axis=1).astype(np.uint16)

    def _decode(
        self, positions: np.ndarray, decoder: ExampleDecoder, any_length: bool = False
    ) -> Dict[str, np.ndarray]:
        try:
            return decoder.decode(self._files.fetch(positions), any_length)
        except ExampleError as error:
            raise self._error(positions, error.row, error.reason) from None

    def _error(self, positions: np.ndarray, row: int, reason: str) -> RecordError:
        path, record = self._files.locate(int(positions[row]))
        return RecordError(path, record, reason, "make the data set again")


@functools.lru_cache(maxsize=1)
def _open_source(folder: str, identity: str) -> Source:
    return Source(Path(folder))


class WorkUnit(NamedTuple):
    """The records, or the packs, from ``begin`` to ``end``, which a worker handles together."""

    number: int
    begin: int
    end: int

    @property
    def size(self) -> int:
        return self.end - self.begin


def work_units(count: int, each: int) -> List[WorkUnit]:
    """Divide a number of records or packs into units of ``each``."""
    begins = range(0, count, max(1, each))
    return [WorkUnit(number, begin, min(begin + each, count)) for number, begin in enumerate(begins)]


def _file_name(unit: int) -> str:
    return f"{WORK_FOLDER}/measured_{unit:06d}.bin"


def _measure(source: Source, completion_log: CompletionLog, unit: WorkUnit) -> Done:
    chunks = np.split(np.arange(unit.begin, unit.end), range(_RECORDS_AT_ONCE, unit.size, _RECORDS_AT_ONCE))
    measured = np.concatenate([source.measure(positions) for positions in chunks])
    name = _file_name(unit.number)
    write_atomically(completion_log.files / name, measured.astype("<u2").tobytes())
    facts = {"longest": int(measured[:, 0].max())}
    return Done(unit.number, unit.size, completion_log.finish(unit.number, [name], facts))


def survey(source: Source, output: Path, pool: Pool) -> Tuple[np.ndarray, np.ndarray]:
    """Measure all records that a killed run has not measured yet, in the work folder of ``output``.

    Returns:
        The numbers of tokens and of masked positions of all records, both (R,) uint16, mapped from a file.
    """
    completion_log = CompletionLog.begin(output, "measure", source.identity)
    units = work_units(source.count, RECORDS_OF_UNIT)
    longest = 0

    def on_unit(_: int, facts: Dict[str, Any]) -> str:
        nonlocal longest
        longest = max(longest, facts["longest"])
        return f"longest {longest} tokens"

    size = source.count * source.shape.max_seq_length * _BYTES_OF_TOKEN
    with Progress(source.count, "measure", "records") as progress:
        run_units(
            pool, completion_log, functools.partial(_measure, source, completion_log), units, size, progress, on_unit
        )
    path = output / WORK_FOLDER / "measured.bin"
    with open(path, "wb") as stream:
        for unit in units:
            stream.write((output / _file_name(unit.number)).read_bytes())
    measured = np.memmap(path, "<u2", "r").reshape(-1, 2)
    assert len(measured) == source.count
    return measured[:, 0], measured[:, 1]
