"""Runs Graphcore's published BERT and this project on emulated IPUs, and prints what differs (README.md)."""

from __future__ import annotations

import argparse
import hashlib
import json
import os
import shutil
import subprocess
import sys
from collections.abc import Iterable
from pathlib import Path
from typing import Any

import numpy as np

from tests import ROOT
from tests.emulation.published_program.cases import CASES, SCRIPTS, UPDATES, Case, config
from tests.emulation.published_program.comparison import Row, table
from tests.emulation.published_program.environment import (
    SetupError,
    default_environment,
    extract_program,
    make_environment,
)
from tests.emulation.published_program.inputs import write_inputs
from tests.emulation.published_program.results import RUN, row
from tests.emulation.published_program.weights import as_hugging_face, write_folder

HERE = Path(__file__).resolve().parent
DONE = "done"  # a file in the folder of each side of a case, with the command that made it


class RunError(Exception):
    """One of the programs did not run to its end."""


def compared(case: Case, program: Path, environment: Path, output: Path) -> Row | str:
    """Run a case on both sides, as far as that has not been done, and compare them; or return why it cannot be run."""
    folder, settings = output / case.name.replace(", ", " ").replace(" ", "-"), config(case)
    folder.mkdir(parents=True, exist_ok=True)
    reason = write_inputs(case, settings, folder / "data")
    if reason:
        return reason
    data = digest(path.read_bytes() for path in sorted((folder / "data").iterdir()))
    shared = ["--config", folder / "config.json", "--dataset-dir", folder / "data"]
    if case.task != "pretraining":  # which their program does not know as flags
        settings = {**settings, "vocab_file": str(folder / "data" / "vocab.txt"), "output_dir": str(folder / "there")}
    (folder / "config.json").write_text(json.dumps(settings, indent=1))
    side = folder / "there"
    there = [HERE / "driver.py", side, program / SCRIPTS[case.task], *shared, "--save-ckpt-path", side]
    emulated(case, [settings, data], side, ["--env", environment], there)
    first = as_hugging_face(dict(np.load(folder / "there" / "before.npz")), settings, case.task)
    write_folder(folder / "first weights", first, settings, case.task)
    here = [ROOT / SCRIPTS[case.task], *shared, "--pretrained-ckpt-path", folder / "first weights"]
    here += [] if case.own_order else ["--data.shuffle", "false"]
    command = [*here, *case.here, "--output-dir", folder / "here", "--name", RUN]
    emulated(case, [settings, data, own_code()], folder / "here", [], command)
    return row(case, settings, folder)


def own_code() -> str:
    """Return what identifies this project's own code, without its tests."""
    files = ["--", "*.py", ":!tests"]
    states = [subprocess.check_output(["git", *words, *files], cwd=ROOT) for words in (["ls-files", "-s"], ["diff"])]
    return digest(states)


def digest(parts: Iterable[bytes]) -> str:
    return hashlib.sha256(b"".join(parts)).hexdigest()


def emulated(case: Case, made_from: Any, side: Path, flags: list[Any], command: list[Any]) -> None:
    """Run one side of a case on the emulation, unless it has been run with the same command from the same."""
    if case.instances:
        flags = [*flags, "--instances", case.instances, "--replicas", case.replicas]
    words = [
        str(word)
        for word in (sys.executable, HERE.parent / "run.py", "--counts", side / "counts.json", *flags, *command)
    ]
    mark = json.dumps([made_from, words], sort_keys=True)
    if (side / DONE).exists() and (side / DONE).read_text() == mark:
        return
    shutil.rmtree(side, ignore_errors=True)
    side.mkdir()
    print(f"{case.name}: {side.name}", flush=True)
    with open(side / "output.txt", "w") as file:
        variables = {**os.environ, "TF_CPP_MIN_LOG_LEVEL": "3"}
        ended = subprocess.run(words, cwd=ROOT, env=variables, stdout=file, stderr=file, check=False)
    if ended.returncode:
        raise RunError(f"failed {side.name}: see {side / 'output.txt'}")
    (side / DONE).write_text(mark)


def parse() -> argparse.Namespace:
    parser = argparse.ArgumentParser(prog="python -m tests.emulation.published_program", description=__doc__)
    names = [case.name for case in CASES]
    parser.add_argument(
        "--sources", type=Path, required=True, metavar="DIR", help="folder of the clone of graphcore/examples"
    )
    parser.add_argument("--branch", default="master", metavar="NAME", help="of that clone; default: %(default)s")
    parser.add_argument("--only", nargs="+", choices=names, metavar="CASE", default=names, help=", ".join(names))
    parser.add_argument("--updates", type=int, metavar="N", default=UPDATES, help="of each case; default: %(default)s")
    parser.add_argument("--env", type=Path, default=default_environment(), metavar="DIR", help="default: %(default)s")
    parser.add_argument("--output", type=Path, default=ROOT / "runs/published_program", metavar="DIR",
                        help="what is there already is not run again; default: %(default)s")  # fmt: skip
    return parser.parse_args()


def main() -> int:
    options = parse()
    output = options.output.absolute()
    rows, left_out, failed = [], [], False
    try:
        make_environment(options.env)
        program = extract_program(options.sources.resolve(), output / "program", options.branch)
        for case in (case for case in CASES if case.name in options.only):
            try:
                result = compared(case._replace(updates=options.updates), program, options.env.absolute(), output)
            except RunError as problem:
                result, failed = str(problem), True
            if isinstance(result, Row):
                rows.append(result)
                print(f"{case.name}: {'; '.join(result.problems()) or 'as wanted'}", flush=True)
            else:
                left_out.append(f"{case.name}: {result}")
    except SetupError as problem:
        print(f"error: {problem}", file=sys.stderr)
        return 1
    print(table(rows), *left_out, sep="\n")
    return int(failed or any(row.problems() for row in rows))


if __name__ == "__main__":
    sys.exit(main())
