"""Runs the commands of ``python -m``; those that train have their own main function, in ``tasks/cli.py``."""

from __future__ import annotations

import argparse
import contextlib
import difflib
import importlib
import io
import itertools
import logging
import os
import re
import select
import shlex
import sys
import traceback
from pathlib import Path
from typing import Any, Callable, List, NoReturn, Optional, Sequence

from utilities.environment import program_version
from utilities.errors import EXIT_USER_ERROR, UserError
from utilities.files import DISK_FULL, PROJECT, failed_write, is_unicode
from utilities.secrets import MaskingFormatter, mask, shown_line

_FLAG = re.compile(r"(?<![\w-])--[a-z][\w.-]*")
MOST_SHOWN, FIRST_SHOWN = 6, 3  # values of a flag
EXIT_UNREAD = 128 + 13  # SIGPIPE, as in shells
RUN_AGAIN = "run the command again: it resumes where it stopped"


def start_command(module: str, arguments: Sequence[str]) -> str:
    """Return a shell command that starts a module or script of this project; outside its folder, by a path."""
    is_here, script = Path.cwd() == PROJECT, PROJECT / f"{module}.py"
    words = [script.name if is_here else str(script)]
    if not script.is_file():
        words = ["-m", module] if is_here else [str(PROJECT / "start.py"), module]
    return shlex.join(["python", *words, *arguments])


def shortened(words: Sequence[str]) -> List[str]:
    """Return a command line to show, of which long lists, such as the files that a shell has found, have a beginning.

    Example:
        >>> shortened(["--text", *"abcdefgh", "--hours", "1"])
        ['--text', 'a', 'b', 'c', '… 5 more', '--hours', '1']
    """
    shown: List[str] = []
    for is_flag, group in itertools.groupby(words, lambda word: word.startswith("-")):
        listed = list(group)
        if not is_flag and len(listed) > MOST_SHOWN:
            listed = [*listed[:FIRST_SHOWN], f"… {len(listed) - FIRST_SHOWN:,} more"]
        shown += listed
    return shown


class ShowVersion(argparse.Action):
    """Prints the version, which asks git, and exits."""

    def __call__(self, parser: argparse.ArgumentParser, *_: Any) -> None:
        print(program_version())
        parser.exit()


class Parser(argparse.ArgumentParser):
    """A parser whose errors name the flag that a mistyped one may mean."""

    def parse_known_args(self, args: Any = None, namespace: Any = None) -> Any:
        """Parse, and remember the command line for errors."""
        self.words = list(sys.argv[1:] if args is None else args)
        return super().parse_known_args(args, namespace)

    def error(self, message: str) -> NoReturn:
        """Print the error and exit."""
        flags = flags_of(self)
        given = itertools.takewhile(lambda word: word != "--", getattr(self, "words", ()))
        for word in (each.partition("=")[0] for each in given if each.startswith("--")):
            meant = [] if word in flags else difflib.get_close_matches(word, flags, n=1, cutoff=0.75)
            if meant and not meant[0].startswith(word):
                super().error(f"{word}: unknown flag; did you mean {meant[0]}?")
        super().error(message)


def flags_of(parser: argparse.ArgumentParser) -> List[str]:
    return sorted(set(_FLAG.findall(parser.format_help())))


def make_parser(module: str, description: str) -> argparse.ArgumentParser:
    """Return a parser with the options that every such command has."""
    parser = Parser(prog=start_command(module, ()), description=description)
    parser.add_argument("--debug", action="store_true", help="show the traceback of an error")
    parser.add_argument("--version", action=ShowVersion, nargs=0, help="print the version, then exit")
    return parser


def completes() -> bool:
    """Return whether a shell asks for completions of the command line, which argcomplete does by a variable."""
    return "_ARGCOMPLETE" in os.environ


def check_arguments(arguments: Sequence[str]) -> None:
    """Refuse an argument that is not UTF-8: it is no text, and a file that names it cannot be written."""
    for argument in arguments:
        if not is_unicode(argument):
            raise UserError(f"the argument {argument!a} is not UTF-8; write it in UTF-8, or rename the file")


def complete(parser: argparse.ArgumentParser) -> None:
    """Answer a shell that asks for completions, and exit; argcomplete is optional, and imported only then."""
    if completes():
        with contextlib.suppress(ImportError):
            importlib.import_module("argcomplete").autocomplete(parser)


def print_any_character() -> None:
    """Let the output show characters that its encoding lacks as codes, such as ``\\xd7`` for × in ASCII, not fail."""
    if isinstance(sys.stdout, io.TextIOWrapper):
        sys.stdout.reconfigure(errors="backslashreplace")


def log_to_stderr(level: str = "INFO") -> None:
    """Send the log, and the warnings of Python and TensorFlow, to standard error in the form of a run's log."""
    handler = logging.StreamHandler()
    handler.setFormatter(MaskingFormatter())
    logging.basicConfig(handlers=[handler])
    logging.captureWarnings(True)
    logging.getLogger().setLevel(level)


def run_main(
    parser: argparse.ArgumentParser,
    action: Callable[[argparse.Namespace], Optional[int]],
    arguments: Optional[Sequence[str]] = None,
) -> int:
    """Parse the arguments and run the command; an error that the user can fix is printed as one line.

    The action returns the exit status, None for 0. The result is 2 for an error that the user can fix, 130 after
    Ctrl-C, and 141 if the reader of the output has exited.
    """
    complete(parser)
    print_any_character()
    log_to_stderr()
    options = parser.parse_args(arguments)
    try:
        check_arguments(sys.argv[1:] if arguments is None else arguments)
        status = action(options) or 0
        sys.stdout.flush()
        return status
    except (UserError, OSError) as error:
        if isinstance(error, BrokenPipeError) and output_is_unread():
            return EXIT_UNREAD
        if options.debug:
            print(mask(traceback.format_exc()), end="", file=sys.stderr)
        if isinstance(error, OSError) and error.errno in DISK_FULL:
            error = _full_disk(error, options)
        print(f"error: {shown_line(str(error))}", file=sys.stderr)
        return EXIT_USER_ERROR
    except MemoryError as error:
        if options.debug:
            raise
        reason = f"out of memory ({error})" if str(error) else "out of memory"
        fewer = "fewer --workers, or " if "workers" in options else ""
        print(f"error: {reason}; use {fewer}a machine with more memory", file=sys.stderr)
        return EXIT_USER_ERROR
    except KeyboardInterrupt:
        if options.debug:
            raise
        print("interrupted", file=sys.stderr)
        return 130


def output_is_unread() -> bool:
    """Return whether the reader of the output, such as ``head``, has exited; what is left is then not written."""
    output = select.poll()
    output.register(1, 0)
    is_unread = any(event & select.POLLERR for _, event in output.poll(0))
    if is_unread:
        sys.stdout = open(os.devnull, "w", encoding="utf-8")  # noqa: SIM115 (open until the process ends)
    return is_unread


def _full_disk(error: OSError, options: argparse.Namespace) -> UserError:
    """Return the error for a full disk; commands with workers and an output can resume."""
    resumes = "workers" in options and "output" in options
    fix = f"free space there and {RUN_AGAIN if resumes else 'run the command again'}"
    another = ", or name another --output" if "output" in options else ""
    return failed_write(error, getattr(options, "output", None) or Path(), fix + another)
