"""The command that goes on with a run that was stopped."""

from __future__ import annotations

import shlex
from typing import List, Sequence

from utilities.config.flags import FALSE_WORDS, TRUE_WORDS


def resume_command(program: str, arguments: Sequence[str], name: str) -> str:
    """The command for the same config and the run of this name, as a shell takes it.

    Args:
        program: the script.
        arguments: those that the run was begun with.
        name: of the run.

    Example:
        >>> resume_command("run_pretraining.py", ["--config", "c.json", "--name", "x"], "x-2")
        'python run_pretraining.py --config c.json --name x-2 --resume'
    """
    return shlex.join(["python", program, *_without(arguments), "--name", name, "--resume"])


def _without(arguments: Sequence[str]) -> List[str]:
    """The arguments without --name and --resume and their values."""
    kept: List[str] = []
    rest = list(arguments)
    while rest:
        argument = rest.pop(0)
        if argument == "--name":
            rest = rest[1:]
        elif argument == "--resume":
            if rest and rest[0].lower() in (*TRUE_WORDS, *FALSE_WORDS):
                rest.pop(0)
        elif not argument.startswith(("--name=", "--resume=")):
            kept.append(argument)
    return kept
