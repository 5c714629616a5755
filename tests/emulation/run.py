"""Runs a script of the project in the current directory on emulated IPUs.

    python tests/emulation/run.py [--ipus N] [--instances N [--replicas N]] [--counts FILE] [--trace-only] SCRIPT ARGS…

The last line of each process is ``emulation: {counts}``. With --instances, processes stand for those of PopRun: what
the first one prints appears as it is, lines of the others with their number before them; FILE gets the first one's.
"""

from __future__ import annotations

import argparse
import os
import subprocess
import sys
import tempfile
import threading
from pathlib import Path
from typing import Dict, List

from ipu_emulation import default_environment
from ipu_emulation.exchange import ADDRESS, serve

HERE = Path(__file__).resolve().parent


def parse() -> argparse.Namespace:
    parser = argparse.ArgumentParser(description=__doc__.partition("\n")[0])
    parser.add_argument("--env", type=Path, default=default_environment(), metavar="DIR", help="default: %(default)s")
    parser.add_argument("--ipus", type=int, metavar="N", help="IPUs attached; default: as many as are asked for")
    parser.add_argument("--instances", type=int, metavar="N", help="processes, as poprun --num-instances")
    parser.add_argument("--replicas", type=int, metavar="N", help="of all instances; default: one each")
    parser.add_argument("--counts", metavar="FILE", help="write the counts there, as JSON")
    parser.add_argument("--trace-only", action="store_true", help="make the programs and run none")
    parser.add_argument("script")
    parser.add_argument("arguments", nargs=argparse.REMAINDER)
    return parser.parse_args()


def environment(options: argparse.Namespace) -> Dict[str, str]:
    """Return the environment of a process, with the variables that the emulation reads."""
    paths = [str(HERE), str(HERE / "ipu_emulation" / "stubs"), os.environ.get("PYTHONPATH", "")]
    own = {
        "PYTHONPATH": os.pathsep.join(path for path in paths if path),
        "IPU_EMULATION_IPUS": options.ipus and str(options.ipus),
        "IPU_EMULATION_TRACE_ONLY": "1" if options.trace_only else None,
        "IPU_EMULATION_COUNTS": options.counts and os.path.abspath(options.counts),
        "TF_CPP_MIN_LOG_LEVEL": os.environ.get("TF_CPP_MIN_LOG_LEVEL", "2"),
        "PYTHONDONTWRITEBYTECODE": "1",
    }
    return {**os.environ, **{name: value for name, value in own.items() if value}}


def instance(options: argparse.Namespace, shared: Dict[str, str], number: int, folder: str) -> Dict[str, str]:
    """Return the environment of one of several processes."""
    own = {
        "IPU_EMULATION_INSTANCES": str(options.instances),
        "IPU_EMULATION_INSTANCE": str(number),
        "IPU_EMULATION_REPLICAS": str(options.replicas or options.instances),
        ADDRESS: os.path.join(folder, "exchange"),
    }
    return {**{name: value for name, value in shared.items() if number == 0 or name != "IPU_EMULATION_COUNTS"}, **own}


def relay(process: subprocess.Popen, number: int) -> threading.Thread:
    """Return a thread that prints a process's lines with its number before them."""

    def read() -> None:
        for line in process.stdout:
            print(f"[{number}] {line.decode(errors='replace')}", end="", flush=True)

    thread = threading.Thread(target=read)
    thread.start()
    return thread


def run_instances(options: argparse.Namespace, command: List[str]) -> int:
    """Run processes that exchange what replicas share; return the first status that is not 0."""
    with tempfile.TemporaryDirectory() as folder, serve(os.path.join(folder, "exchange"), options.instances):
        processes = []
        for number in range(options.instances):
            quiet = {"stdout": subprocess.PIPE, "stderr": subprocess.STDOUT} if number else {}
            variables = instance(options, environment(options), number, folder)
            processes.append(subprocess.Popen(command, env=variables, **quiet))
        threads = [relay(process, number) for number, process in enumerate(processes) if number]
        statuses = [process.wait() for process in processes]
        for thread in threads:
            thread.join()
    return next((status for status in statuses if status), 0)


def main() -> int:
    options = parse()
    python = options.env / "bin" / "python"
    if not python.exists():
        fix = f"make one with tests/emulation/make_environment.py --env {options.env}"
        print(f"error: {options.env} has no environment; {fix}", file=sys.stderr)
        return 1
    command = [str(python), "-W", "ignore", "-m", "ipu_emulation.start", options.script, *options.arguments]
    if options.instances:
        return run_instances(options, command)
    return subprocess.call(command, env=environment(options))


if __name__ == "__main__":
    sys.exit(main())
