"""Hides the messages that libraries print at every start and that users cannot act on.

TensorFlow's C++ code writes to file descriptor 2 while it is being loaded, before it reads its log settings, so those
lines can be filtered only there. Only known lines are dropped. If the user sets ``TF_CPP_MIN_LOG_LEVEL``, nothing is
filtered.
"""

from __future__ import annotations

import contextlib
import os
import re
import sys
import tempfile
from typing import IO, Iterator

LOG_LEVEL = "TF_CPP_MIN_LOG_LEVEL"
NVIDIA_DRIVERS = ("/proc/driver/nvidia", "/dev/dxg")  # Linux, and Linux on Windows

NOISE = re.compile(
    rb"WARNING: All log messages before absl::InitializeLog\(\)"
    rb"|.*\] oneDNN custom operations are on\."
    rb"|.*\] Could not find cuda drivers on your machine"
    rb"|.*\] This TensorFlow binary is optimized to use available CPU instructions"
    rb"|To enable the following instructions:"
    rb"|.*Unable to register cu(?:FFT|DNN|BLAS) factory"
)


@contextlib.contextmanager
def quiet_loading() -> Iterator[None]:
    """Within the block, which imports TensorFlow, collect standard error; then print it without the known messages.

    Also sets the environment variables that limit TensorFlow and Transformers to warnings and errors later, unless the
    user has set them. Without an NVIDIA driver, errors are hidden too, because TensorFlow reports its absence as one.
    """
    os.environ.setdefault("TRANSFORMERS_VERBOSITY", "error")  # hides a deprecation notice
    if LOG_LEVEL in os.environ:
        yield
        return
    os.environ[LOG_LEVEL] = "2" if any(map(os.path.exists, NVIDIA_DRIVERS)) else "3"
    with tempfile.TemporaryFile() as collected:
        try:
            with _descriptor_2_to(collected):
                yield
        finally:
            collected.seek(0)
            for line in collected:
                if not NOISE.match(line):
                    os.write(2, line)


@contextlib.contextmanager
def _descriptor_2_to(file: IO[bytes]) -> Iterator[None]:
    sys.stderr.flush()
    stderr = os.dup(2)
    os.dup2(file.fileno(), 2)
    try:
        yield
    finally:
        sys.stderr.flush()
        os.dup2(stderr, 2)
        os.close(stderr)
