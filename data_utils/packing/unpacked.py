"""Reads the data set to be packed: records by position, with the checks of training, and their lengths.

Shapes: B records asked for, L their max_seq_length, Q their max_predictions_per_seq.
"""

from __future__ import annotations

import functools
from dataclasses import replace
from pathlib import Path
from typing import Any, NamedTuple, Optional, Tuple

import numpy as np

from data_utils.recipe import identify_files
from data_utils.records.decoding import ExampleError, record_sizes
from data_utils.records.features import ANY_VOCABULARY, PACKS_FORMAT, SEQUENCES_FORMAT, pretraining_features
from data_utils.records.files import RecordFiles
from data_utils.records.framing import RecordError
from data_utils.records.reader import RecordReader
from data_utils.records.validation import find_sequence_problem
from utilities.errors import UserError

_RECORDS_AT_ONCE = 4096
_MEASURED = ("input_mask", "masked_lm_positions", "masked_lm_weights")


class Shape(NamedTuple):
    """The sizes of a data set's records: L and Q."""

    max_seq_length: int
    max_predictions_per_seq: int


class UnpackedRecords(NamedTuple):
    """A folder of pre-training records of one sequence each. Picklable; each worker opens it once."""

    folder: Path
    shape: Shape  # of the first record, which all others must have
    identity: Tuple[Tuple[str, Any], ...]  # the items of ``identify_files``

    @classmethod
    def open(cls, folder: Path) -> UnpackedRecords:
        """Examine a folder of ``*.tfrecord`` files; index files and a manifest are used if they exist."""
        files = RecordFiles(folder)
        manifest = files.manifest
        if manifest is not None and manifest.format != SEQUENCES_FORMAT:
            what = "packed already" if manifest.format == PACKS_FORMAT else f"of format {manifest.format!r}"
            raise UserError(f"{manifest.path}: the data set is {what}; name one of {SEQUENCES_FORMAT!r} records")
        (first,) = files.fetch(np.zeros(1, np.int64))
        if isinstance(first, RecordError):
            raise first
        try:
            length, predictions, *_ = record_sizes(first)
        except ExampleError as error:
            raise RecordError(*files.locate(0), error.reason, "make the data set again") from None
        identity = identify_files(files.paths, ends_only=True)
        return cls(folder.absolute(), Shape(length, predictions), tuple(identity.items()))

    @property
    def reader(self) -> RecordReader:
        return _reader(self)

    def measure(self, begin: int, end: int) -> np.ndarray:
        """Return the numbers of tokens and of masked positions of some records, uint16 (end - begin, 2)."""
        measured = np.empty((end - begin, 2), np.uint16)
        for at in range(begin, end, _RECORDS_AT_ONCE):
            batch = _reader(self, _MEASURED).read(np.arange(at, min(at + _RECORDS_AT_ONCE, end)))
            problem = find_sequence_problem(batch)
            if problem is not None:
                raise RecordError(*self.reader.locate(at + problem.row), problem.reason, problem.fix)
            counts = batch["input_mask"].sum(axis=1), (batch["masked_lm_weights"] > 0).sum(axis=1)
            measured[at - begin :][:_RECORDS_AT_ONCE] = np.stack(counts, axis=1)
        return measured


@functools.lru_cache(maxsize=2)
def _reader(source: UnpackedRecords, names: Optional[Tuple[str, ...]] = None) -> RecordReader:
    spec = pretraining_features(*source.shape, ANY_VOCABULARY, ANY_VOCABULARY)
    chosen = (feature for feature in spec.features if names is None or feature.name in names)
    features = tuple(replace(feature, length_setting=None, range_setting=None) for feature in chosen)
    return RecordReader(source.folder, replace(spec, features=features, manifest_settings={}))
