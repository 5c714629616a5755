"""Draws cases from a seed, and tries each within a time limit."""

from __future__ import annotations

import contextlib
import random
import signal
import traceback
from collections import Counter
from collections.abc import Callable, Iterator, Sequence
from typing import Any, NamedTuple, Protocol

SECONDS = 60.0  # time limit for one case, even on a busy machine

ACCEPTED, REFUSED = "accepted", "refused"


class Hanging(BaseException):
    """A case took too long. It is not an Exception, because the code under test must not catch it."""


class WrongError(AssertionError):
    """Something was accepted wrongly, misread, or refused without a clear line."""


class Suite(Protocol):
    name: str

    def draw(self, chance: random.Random) -> Sequence[Any]:
        """Draw a case: a list of mutations."""

    def attempt(self, mutations: Sequence[Any]) -> str:
        """Apply mutations to something valid and use it; return ``ACCEPTED`` or ``REFUSED`` or raise ``WrongError``."""


class Report(NamedTuple):
    outcomes: Counter[str]
    failures: list[str]


def run_suite(suite: Suite, cases: int, seed: int) -> Report:
    """Try cases ``seed/0``, ``seed/1`` …; each failure is told with the mutations that repeat it."""
    report = Report(Counter(), [])
    for number in range(cases):
        mutations = list(suite.draw(random.Random(f"{suite.name}/{seed}/{number}")))
        outcome = try_case(suite, mutations)
        if outcome in (ACCEPTED, REFUSED):
            report.outcomes[outcome] += 1
        else:
            told = [f"  {suite.name} case {number} of seed {seed}: {outcome}", *(f"    {each!r}" for each in mutations)]
            report.failures.append("\n".join(line[:600] for line in told))
    return report


def try_case(suite: Suite, mutations: Sequence[Any]) -> str:
    """Return ``ACCEPTED``, ``REFUSED``, or a description of the failure."""
    try:
        with limited(SECONDS):
            return suite.attempt(mutations)
    except Hanging:
        return f"hangs: more than {SECONDS:.0f} s"
    except WrongError as error:
        return f"wrong: {error}"
    except BaseException as error:
        where = traceback.extract_tb(error.__traceback__)[-1]
        return f"{type(error).__name__} in {where.filename}:{where.lineno}: {error}"


@contextlib.contextmanager
def limited(seconds: float) -> Iterator[None]:
    """Raise ``Hanging`` in a block that takes longer."""

    def raise_hanging(number: int, frame: Any) -> None:
        raise Hanging

    before = signal.signal(signal.SIGALRM, raise_hanging)
    signal.setitimer(signal.ITIMER_REAL, seconds)
    try:
        yield
    finally:
        signal.setitimer(signal.ITIMER_REAL, 0)
        signal.signal(signal.SIGALRM, before)


def check_line(message: str, names: Callable[[str], bool]) -> None:
    """Raise ``WrongError`` unless a refusal is one printable line of reasonable length that names what to change."""
    if len(message.splitlines()) != 1 or not message.isprintable():
        raise WrongError(f"the message is not one printable line: {message!r}")
    if len(message) > 1000:
        raise WrongError(f"the message has {len(message)} characters: {message[:200]!r}…")
    if not names(message):
        raise WrongError(f"the message names no field, file or record: {message!r}")
