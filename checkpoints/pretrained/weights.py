"""The one form that every checkpoint is brought into: arrays by the names of Hugging Face's PyTorch BERT.

Shapes and names are known at once; an array is read when it is asked for.
"""

from __future__ import annotations

import contextlib
import dataclasses
from typing import Callable, Dict, Iterator, Tuple

import numpy as np

from utilities.errors import UserError


@dataclasses.dataclass(frozen=True)
class Weight:
    """One array of a checkpoint.

    Attributes:
        shape: of the array.
        read: reads it.
        place: file, and name of the array in it, for error messages.
    """

    shape: Tuple[int, ...]
    read: Callable[[], np.ndarray]
    place: str

    def value(self) -> np.ndarray:
        """The array, in float32 whatever its number format in the file.

        Raises:
            UserError: it cannot be read, or holds numbers that are not finite.
        """
        with readable(self.place):
            array = np.asarray(self.read())
            if array.shape != self.shape:
                raise ValueError(f"its shape is {list(array.shape)} in place of {list(self.shape)}")
            array = array.astype(np.float32, copy=False)
        if not np.isfinite(array).all():
            raise UserError(f"{self.place}: holds numbers that are not finite; use a checkpoint from before that")
        return array

    def transposed(self) -> Weight:
        """The same with its two axes exchanged."""
        return Weight(self.shape[::-1], lambda: self.read().T, self.place)


Weights = Dict[str, Weight]


@contextlib.contextmanager
def readable(place: str) -> Iterator[None]:
    """Turns what goes wrong while a file is read into one line that names the place."""
    try:
        yield
    except UserError:
        raise
    except Exception as error:  # each library has exceptions of its own for a damaged file
        reason = " ".join(str(error).split())[:200] or type(error).__name__
        raise UserError(f"{place}: cannot be read ({reason}); the file is damaged, get it anew") from error
