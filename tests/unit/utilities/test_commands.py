"""Errors of commands are one line for the user."""

from __future__ import annotations

import argparse
import errno
import os
import subprocess
import sys
from pathlib import Path

import pytest

from tests import ROOT
from utilities.commands import make_parser, run_main


@pytest.mark.parametrize(
    ("arguments", "path"), [([], "."), (["--output", "out"], "out")], ids=["without an output", "with one"]
)
def test_a_full_disk_is_one_line(arguments: list[str], path: str, capsys: pytest.CaptureFixture[str]) -> None:
    """The error of a write to an open file, such as the standard output, names no file."""

    def action(options: argparse.Namespace) -> None:
        raise OSError(errno.ENOSPC, os.strerror(errno.ENOSPC))

    parser = make_parser("some.command", "Do something.")
    parser.add_argument("--output", type=Path)
    assert run_main(parser, action, arguments) == 2
    error = capsys.readouterr().err
    assert error.startswith(f"error: {path}: No space left on device; free space there") and error.count("\n") == 1


@pytest.mark.parametrize(
    ("words", "message"),
    [
        (["--checkpont", "a", "x"], "--checkpont: unknown flag; did you mean --checkpoint?"),
        (["--checkpoint", "a", "--unlike", "b"], "unrecognized arguments: --unlike"),
        (["--file", "a", "--", "--checkpont"], "the following arguments are required: --checkpoint"),
    ],
)
def test_a_mistyped_flag_is_named_with_the_right_one(words, message, capsys):
    parser = make_parser("tasks.classify", "Answers.")
    parser.add_argument("--checkpoint", required=True)
    parser.add_argument("--file", help="of --checkpoint")
    parser.add_argument("text", nargs="*")
    with pytest.raises(SystemExit) as caught:
        parser.parse_args(words)
    assert caught.value.code == 2 and message in capsys.readouterr().err


ENDS = "from utilities.commands import *; sys.exit(run_main(make_parser('x', ''), lambda options: print(), []))"


@pytest.mark.parametrize("command", [["-c", ENDS], ["run_pretraining.py", "--schema"]])
def test_a_reader_that_exits_ends_the_command_without_a_word(command: list[str]) -> None:
    read, write = os.pipe()
    os.close(read)
    done = subprocess.run([sys.executable, *command], cwd=ROOT, stdout=write, stderr=subprocess.PIPE, check=False)
    os.close(write)
    assert not done.stderr and done.returncode == 128 + 13


def test_another_pipe_that_breaks_is_an_error(capsys: pytest.CaptureFixture[str]) -> None:
    def action(options: argparse.Namespace) -> None:
        raise BrokenPipeError("a worker has ended")

    assert run_main(make_parser("some.command", ""), action, []) == 2
    assert capsys.readouterr().err == "error: a worker has ended\n"


def test_a_terminal_without_unicode_ends_no_command() -> None:
    code = (
        "from utilities.commands import make_parser, run_main\n"
        "parser = make_parser('some.command', 'Do something.')\n"
        "raise SystemExit(run_main(parser, lambda options: print('2 × 192…'), []))\n"
    )
    env = {**os.environ, "PYTHONIOENCODING": "iso-8859-1"}
    done = subprocess.run([sys.executable, "-c", code], cwd=ROOT, env=env, capture_output=True, check=False)
    assert (done.returncode, done.stdout.decode("latin-1")) == (0, "2 × 192\\u2026\n")
