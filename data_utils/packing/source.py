"""The data set that is packed: its records by position as checked arrays, and what is said of it.

Shapes: R records, L their max_seq_length, Q their max_predictions_per_seq.
"""

from __future__ import annotations

import functools
from pathlib import Path
from typing import Dict, List, Mapping, NamedTuple, Optional

import numpy as np

from data_utils.packing.decoding import FLOATS, INTEGERS, ExampleError, decode_examples
from data_utils.packing.merge import sequence_lengths
from data_utils.records.features import PACKS_FORMAT, SEQUENCES_FORMAT
from data_utils.records.files import RecordFiles
from data_utils.records.framing import RecordError
from data_utils.records.manifest import Manifest
from data_utils.records.writer import FLOAT_FEATURES, INTEGER_FEATURES
from utilities.errors import UserError

_KINDS = {**dict.fromkeys(INTEGER_FEATURES, INTEGERS), **dict.fromkeys(FLOAT_FEATURES, FLOATS)}
_MEASURED = ("input_mask", "masked_lm_positions", "masked_lm_weights")
_REMAKE = "make the data set again"


class Shape(NamedTuple):
    """Sizes of a data set's records.

    Attributes:
        max_seq_length: L.
        max_predictions_per_seq: Q.
    """

    max_seq_length: int
    max_predictions_per_seq: int

    @property
    def sizes(self) -> Dict[str, int]:
        """Numbers of each feature."""
        masked = ("masked_lm_positions", "masked_lm_ids", "masked_lm_weights")
        tokens = ("input_ids", "input_mask", "segment_ids")
        return {
            **dict.fromkeys(tokens, self.max_seq_length),
            **dict.fromkeys(masked, self.max_predictions_per_seq),
            "next_sentence_labels": 1,
        }


class Source:
    """A folder of pre-training records.

    Args:
        folder: with ``*.tfrecord`` files; index files and manifest are used where they are.

    Raises:
        UserError: nothing to read, or not pre-training records of one sequence each.

    Attributes:
        folder: as given.
        count: R.
        shape: of the records: that of the first one.
    """

    def __init__(self, folder: Path) -> None:
        self.folder = folder
        self._files = RecordFiles(folder)
        self.count = self._files.count
        manifest = self._files.manifest
        if manifest is not None and manifest.format != SEQUENCES_FORMAT:
            what = "packed already" if manifest.format == PACKS_FORMAT else f"of format {manifest.format!r}"
            raise UserError(f"{manifest.path}: the data set is {what}; name one of {SEQUENCES_FORMAT!r} records")
        first = self._decode(np.zeros(1, np.int64), _KINDS, None)
        self.shape = Shape(first["input_ids"].shape[1], first["masked_lm_ids"].shape[1])

    @property
    def manifest(self) -> Optional[Manifest]:
        """The folder's manifest, if it has one."""
        return self._files.manifest

    @property
    def paths(self) -> List[Path]:
        """The record files, in order."""
        return self._files.paths

    def read(self, positions: np.ndarray) -> Dict[str, np.ndarray]:
        """Records at some positions: feature → ``(len(positions), L, Q or 1)``, int64 or float32."""
        return self._decode(positions, _KINDS, self.shape.sizes)

    def measure(self, positions: np.ndarray) -> np.ndarray:
        """Tokens and masked positions of records at some positions.

        Returns:
            uint16 ``(len(positions), 2)``.

        Raises:
            RecordError: a record is damaged, or its mask or masked positions cannot be.
        """
        batch = self._decode(positions, {name: _KINDS[name] for name in _MEASURED}, self.shape.sizes)
        try:
            lengths = sequence_lengths(batch["input_mask"])
        except ValueError:
            for row in range(len(positions)):
                self._check_mask(positions, row, batch["input_mask"][row])
            raise
        masked = batch["masked_lm_weights"] > 0
        outside = masked & ((batch["masked_lm_positions"] < 0) | (batch["masked_lm_positions"] >= lengths[:, None]))
        if outside.any():
            row, column = np.argwhere(outside)[0].tolist()
            found = batch["masked_lm_positions"][row, column]
            raise self._error(positions, row, f"masks position {found}, and has {lengths[row]} tokens")
        return np.stack([lengths, masked.sum(axis=1)], axis=1).astype(np.uint16)

    def _check_mask(self, positions: np.ndarray, row: int, mask: np.ndarray) -> None:
        try:
            sequence_lengths(mask[None])
        except ValueError:
            reason = "has an input_mask that is not ones followed by zeros: not one padded sequence"
            raise self._error(positions, row, reason) from None

    def _decode(
        self, positions: np.ndarray, kinds: Mapping[str, str], sizes: Optional[Mapping[str, int]]
    ) -> Dict[str, np.ndarray]:
        try:
            return decode_examples(self._files.fetch(positions), kinds, sizes)
        except ExampleError as error:
            raise self._error(positions, error.row, error.reason) from None

    def _error(self, positions: np.ndarray, row: int, reason: str) -> RecordError:
        path, record = self._files.locate(int(positions[row]))
        return RecordError(path, record, reason, _REMAKE)


@functools.lru_cache(maxsize=1)
def source_of(folder: str, identity: str) -> Source:
    """The source of a folder, opened once in each process; ``identity`` tells its present content from another."""
    return Source(Path(folder))
