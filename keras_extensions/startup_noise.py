"""Hides the messages that libraries print at every start and that users cannot act on.

TensorFlow's C++ code writes to file descriptor 2 while it is being loaded, before it reads its log settings, so those
lines can be filtered only there, by a process that also prints what TensorFlow says before it aborts. Only known lines
are dropped. If the user sets ``TF_CPP_MIN_LOG_LEVEL``, nothing is filtered.
"""

from __future__ import annotations

import contextlib
import os
import subprocess
import sys
from typing import Iterator, Optional

LOG_LEVEL = "TF_CPP_MIN_LOG_LEVEL"
NVIDIA_DRIVERS = ("/proc/driver/nvidia", "/dev/dxg")  # Linux, and Linux on Windows

NOISE = (  # extended regular expressions of grep
    r"^WARNING: All log messages before absl::InitializeLog\(\)",
    r"\] oneDNN custom operations are on\.",
    r"\] Could not find cuda drivers on your machine",
    r"\] This TensorFlow binary is optimized to use available CPU instructions",
    r"^To enable the following instructions:",
    r"Unable to register cu(FFT|DNN|BLAS) factory",
)


@contextlib.contextmanager
def quiet_loading() -> Iterator[None]:
    """Within the block, which imports TensorFlow, drop the known messages from standard error.

    Also sets the environment variables that limit TensorFlow and Transformers to warnings and errors later, unless the
    user has set them. Without an NVIDIA driver, errors are hidden too, because TensorFlow reports its absence as one.
    """
    os.environ.setdefault("TRANSFORMERS_VERBOSITY", "error")  # hides a deprecation notice
    if LOG_LEVEL in os.environ:
        yield
        return
    os.environ[LOG_LEVEL] = "2" if any(map(os.path.exists, NVIDIA_DRIVERS)) else "3"
    grep = _start_filter()
    if grep is None:
        yield
        return
    assert grep.stdin is not None
    with grep, _descriptor_2_to(grep.stdin.fileno()):
        yield


def _start_filter() -> Optional[subprocess.Popen[bytes]]:
    """Start a process that copies its input to standard error without the known messages; None if it cannot start."""
    if sys.stderr is None:
        return None
    command = ["grep", "-a", "-v", "-E", "|".join(NOISE)]
    with contextlib.suppress(OSError):
        return subprocess.Popen(command, stdin=subprocess.PIPE, stdout=2, env={**os.environ, "LC_ALL": "C"})
    return None


@contextlib.contextmanager
def _descriptor_2_to(descriptor: int) -> Iterator[None]:
    sys.stderr.flush()
    stderr = os.dup(2)
    os.dup2(descriptor, 2)
    try:
        yield
    finally:
        sys.stderr.flush()
        os.dup2(stderr, 2)
        os.close(stderr)
