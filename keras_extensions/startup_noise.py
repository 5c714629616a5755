"""Keeps what the libraries say at every start, and nobody can act on, away from the lines that users look for.

TensorFlow's C++ side writes to file descriptor 2 while it is being loaded, before any of its settings for logging is
read; so those lines can be held back only there. Only lines known as noise are dropped. Whoever sets
``TF_CPP_MIN_LOG_LEVEL`` decides alone: then nothing is held back.
"""

from __future__ import annotations

import contextlib
import os
import re
import sys
import tempfile
from typing import IO, Iterator

LOG_LEVEL = "TF_CPP_MIN_LOG_LEVEL"
NVIDIA_DRIVERS = ("/proc/driver/nvidia", "/dev/dxg")  # Linux, and Linux within Windows

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
    """For the time of ``import tensorflow``: holds standard error back, then prints all of it but the noise.

    Also sets, unless the user has, the environment variables by which TensorFlow and Transformers are told to
    keep to warnings and errors afterwards. Without an NVIDIA driver, TensorFlow's one error at every start is that
    there is none, so it is not shown either.
    """
    os.environ.setdefault("TRANSFORMERS_VERBOSITY", "error")  # else: a notice that the TensorFlow classes end
    if LOG_LEVEL in os.environ:
        yield
        return
    os.environ[LOG_LEVEL] = "2" if any(map(os.path.exists, NVIDIA_DRIVERS)) else "3"
    with tempfile.TemporaryFile() as held:
        try:
            with _descriptor_2_to(held):
                yield
        finally:
            held.seek(0)
            for line in held:
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
