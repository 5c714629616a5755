"""``python -m ipu_emulation.start SCRIPT ARGS…``: the script as ``__main__``, on the emulated machine."""

from __future__ import annotations

import atexit
import os
import runpy
import sys

sys.path[0] = os.path.dirname(os.path.abspath(sys.argv[1]))  # as without -m, whose place is the current directory

from ipu_emulation.devices import install  # noqa: E402
from ipu_emulation.machine import Machine  # noqa: E402


def main() -> None:
    machine = Machine.of_environment()
    install(machine)
    atexit.register(machine.counts.report)
    del sys.argv[0]
    runpy.run_path(sys.argv[0], run_name="__main__")


if __name__ == "__main__":
    main()
