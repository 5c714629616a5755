"""Records that cannot be used and are passed over: which, how many, and what comes in their place."""

from __future__ import annotations

import logging
import threading
from typing import Dict, Mapping, Tuple

import numpy as np

from data_utils.records.framing import RecordError
from utilities.errors import UserError

logger = logging.getLogger(__name__)

_TOLD = 10  # one by one; of more, only the number is told


class CorruptRecords:
    """The corrupt records that were met so far. May be used from several threads.

    In place of a corrupt record comes the next good one, the first after the last: a function of the position, whatever
    was read before.

    Args:
        count: records in the data set.
        most: more corrupt ones are too many.
    """

    def __init__(self, count: int, most: int) -> None:
        self._count, self._most = count, most
        self._errors: Dict[int, RecordError] = {}
        self._adding = threading.Lock()

    def __len__(self) -> int:
        """Different ones; each is counted once, however often it comes up."""
        return len(self._errors)

    @property
    def errors(self) -> Tuple[RecordError, ...]:
        """What is wrong with each, in the order of the data set."""
        errors = dict(self._errors)
        return tuple(errors[position] for position in sorted(errors))

    def passed_over(self, positions: np.ndarray) -> np.ndarray:
        """The positions, those of corrupt records moved to the next that is not known to be one.

        Args:
            positions: int64 ``(N,)``.
        """
        if not self._errors:
            return positions
        moved = positions.copy()
        for row in np.flatnonzero(np.isin(moved, list(self._errors))).tolist():
            while int(moved[row]) in self._errors:
                moved[row] = (moved[row] + 1) % self._count
        return moved

    def add(self, errors: Mapping[int, RecordError]) -> None:
        """Notes corrupt records, by position.

        Raises:
            UserError: they are too many now.
        """
        with self._adding:
            new = {position: error for position, error in errors.items() if position not in self._errors}
            if not new:
                return
            known = {**self._errors, **new}
            last = new[max(new)]
            if len(known) > self._most or len(known) == self._count:
                raise UserError(
                    f"{len(known):,} corrupt records, more than data.max_corrupt_records {self._most:,} allows; the"
                    f" last is {last.path}: record {last.record}, which {last.reason}; see all of them with: python -m"
                    f" data_utils.doctor {last.path.parent}"
                )
            for number, error in enumerate(new.values(), len(self._errors) + 1):
                if number <= _TOLD:
                    logger.warning("record skipped, as data.on_corrupt says: %s", error)
                if number == _TOLD:
                    logger.warning("further records that are skipped are counted, not told")
            self._errors = known  # replaced, not changed: other threads read it
