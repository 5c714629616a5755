"""Sets the number format of new layers."""

from __future__ import annotations

import contextlib
from typing import Iterator

from keras_extensions.backend import keras


@contextlib.contextmanager
def layers_in(precision: str) -> Iterator[None]:
    """Within the block, create layers that compute and keep their weights in a format such as ``mixed_bfloat16``."""
    policy = keras.mixed_precision.global_policy()
    keras.mixed_precision.set_global_policy(precision)
    try:
        yield
    finally:
        keras.mixed_precision.set_global_policy(policy)
