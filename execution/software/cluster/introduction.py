"""Introduces the processes of a run to each other, before TensorFlow's servers start.

TensorFlow only needs that somebody listens at an address, not who: with wrong addresses or numbers it waits forever,
and a process that is connected with itself takes all memory. Therefore every process first listens on its own port and
asks each address, its own included, who is there. A question and an answer are one line of JSON each, with the number
of the process, all addresses, and the settings that all processes must share. Both sides judge the same two lines, and
therefore end with the same message. A process that ends in the meantime tells all others why.

There are two rounds. At the end of the first, a process knows all others; at the end of the second it knows that all
others have ended the first, so that none needs its answers any more.

Imports no TensorFlow.
"""

from __future__ import annotations

import contextlib
import json
import logging
import os
import socket
import threading
import time
import uuid
from typing import Any, Callable, Dict, Iterable, List, Mapping, NamedTuple, Optional, Set

from execution.software.cluster.membership import TF_CONFIG, Membership, host_and_port
from utilities.errors import UserError
from utilities.validation import different_setting

logger = logging.getLogger(__name__)

ROUNDS = 2
LARGEST = 1 << 24  # bytes of a line
REASON = 1000  # characters of the message of a process that has ended
NAMELESS, STRANGE, UNREACHED = "no address is known for its name", "another program answers there", ""


class Times(NamedTuple):
    """Seconds; the names of Kubernetes' pods can be resolved only when these have started."""

    warn_after: float = 5.0
    warn_every: float = 15.0
    name_limit: float = 600.0  # until a name without an address ends the run
    pause: float = 0.2
    answer: float = 2.0


def introduce(membership: Membership, settings: Mapping[str, Any], times: Optional[Times] = None) -> None:
    """Wait until all processes know that they belong together; the settings must be values that JSON can represent."""
    _Introduction(membership, settings, times or Times()).run()


def contradiction(asking: Mapping[str, Any], answering: Mapping[str, Any], number: int) -> Optional[str]:
    """Return what two processes disagree on, if anything; the one that asks has expected process ``number`` there."""
    first, second = sorted((asking, answering), key=lambda each: each["index"])
    if asking["token"] == answering["token"]:
        if number == asking["index"]:
            return None
        return (
            f"{TF_CONFIG}: the address of process {number} ({asking['addresses'][number]}) leads to process"
            f" {asking['index']} itself ({asking['place']}); give each process its own index and address"
        )
    if first["index"] == second["index"]:
        places = " and ".join(sorted((first["place"], second["place"])))
        return f"{TF_CONFIG}: two processes have the number {first['index']}: {places}; give each its own index"
    if first["addresses"] != second["addresses"]:
        lists = " and ".join(
            f"[{', '.join(each['addresses'])}] for process {each['index']}" for each in (first, second)
        )
        return f"{TF_CONFIG}: the addresses are {lists}; give all processes the same list"
    if number != answering["index"]:
        return (
            f"{TF_CONFIG}: process {answering['index']} ({answering['place']}) listens at the address of process"
            f" {number} ({asking['addresses'][number]}); give it that index, or exchange the addresses"
        )
    return different_setting(first["settings"], second["settings"], second["index"], first["index"])


class _Introduction:
    """See :func:`introduce`; the threads for questions and answers end with it."""

    def __init__(self, membership: Membership, settings: Mapping[str, Any], times: Times) -> None:
        self._membership, self._times = membership, times
        self._own = {
            "token": uuid.uuid4().hex,
            "place": f"{socket.gethostname()}, process id {os.getpid()}",
            "index": membership.index,
            "addresses": list(membership.addresses),
            "settings": json.loads(json.dumps(dict(settings))),
        }
        self._changed = threading.Condition()  # guards all that follows
        self._round = 0
        self._ended = False
        self._failure: Optional[str] = None
        self._message = ""  # for the others, when this process ends
        self._answers: List[Set[int]] = [set() for _ in range(ROUNDS)]  # who has answered, by round
        self._questions: List[Set[int]] = [set() for _ in range(ROUNDS)]  # who has asked
        self._obstacles: Dict[int, str] = {}  # why nobody answers

    def run(self) -> None:
        number = self._membership.index
        try:
            try:
                listener = self._listen()
            except OSError as error:
                self._together(self._ask, range(self._membership.count))  # perhaps a process of the run has the port
                raise UserError(self._failure or self._no_port(error)) from None
            with listener:
                answers = self._start(self._answer_questions, listener)
                for other in range(self._membership.count):
                    self._start(self._ask_repeatedly, other)
                try:
                    self._wait()
                finally:
                    self._ended = True
                    answers.join()  # the port is free when nothing uses the listener any more
        except (UserError, KeyboardInterrupt) as error:
            reason = str(error) or "interrupted"
            self._message = self._failure or f"process {number} ({self._address(number)}) has ended: {reason}"
            self._together(self._tell, self._membership.others)
            raise

    def _no_port(self, error: OSError) -> str:
        number = self._membership.index
        address, reason = self._address(number), os.strerror(error.errno) if error.errno else str(error)
        return (
            f"port {address.rpartition(':')[2]} of process {number} ({address}) cannot be opened ({reason});"
            f" end the program that has it, or give the process another port ({TF_CONFIG})"
        )

    def _address(self, number: int) -> str:
        return self._membership.addresses[number]

    def _listen(self) -> socket.socket:
        """Open the own port: on the loopback device only, if no process is on another machine."""
        host, port = host_and_port(self._address(self._membership.index))
        if self._membership.is_on_loopback:
            found = socket.getaddrinfo(host, port, type=socket.SOCK_STREAM)
            family, _, _, _, address = min(found, key=lambda each: each[0] != socket.AF_INET)
            listener = socket.create_server(address[:2], family=family, backlog=128)
        elif socket.has_dualstack_ipv6():
            listener = socket.create_server(("", port), family=socket.AF_INET6, backlog=128, dualstack_ipv6=True)
        else:
            listener = socket.create_server(("", port), backlog=128)
        listener.settimeout(self._times.pause)
        return listener

    def _start(self, target: Any, *arguments: Any) -> threading.Thread:
        thread = threading.Thread(target=target, args=arguments, name="introduction", daemon=True)
        thread.start()
        return thread

    def _together(self, action: Callable[[int], None], numbers: Iterable[int]) -> None:
        """Do the same for several processes at a time, but not for long."""
        threads = [self._start(action, number) for number in numbers]
        until = time.monotonic() + self._times.answer
        for thread in threads:
            thread.join(max(until - time.monotonic(), 0))

    def _wait(self) -> None:
        begun = time.monotonic()
        warn_at = begun + self._times.warn_after
        while True:
            with self._changed:
                if self._failure is not None:
                    raise UserError(self._failure)
                if self._missing():
                    self._changed.wait(self._times.pause)
                elif self._round + 1 < ROUNDS:
                    self._round += 1
                    self._changed.notify_all()
                    continue
                else:
                    return
                missing, now = self._missing(), time.monotonic()
                nameless = [self._address(number) for number in missing if self._obstacles.get(number) == NAMELESS]
                described = ", ".join(self._described(number) for number in missing)
            if nameless and now - begun >= self._times.name_limit:
                raise UserError(
                    f"no address is known for the name of {', '.join(nameless)} after {self._times.name_limit:.0f} s;"
                    f" correct the name ({TF_CONFIG}), or the name service"
                )
            if missing and now >= warn_at:
                warn_at = now + self._times.warn_every
                logger.warning("process %d waits for %s", self._membership.index, described)

    def _missing(self) -> List[int]:
        both = self._answers[self._round] & self._questions[self._round]
        return [number for number in self._membership.others if number not in both]

    def _described(self, number: int) -> str:
        text = f"{number} ({self._address(number)})"
        if number in self._answers[self._round]:
            own = self._address(self._membership.index)
            return f"{text}, which answers" + (f" but has not reached {own}" if self._round == 0 else "")
        obstacle = self._obstacles.get(number, UNREACHED)
        if obstacle == NAMELESS:
            obstacle += f", which ends the run after {self._times.name_limit:.0f} s"
        if not obstacle and number in self._questions[self._round]:
            obstacle = "which has reached this process, but does not answer there"
        return f"{text}: {obstacle}" if obstacle else text

    def _ask_repeatedly(self, number: int) -> None:
        while not self._ended:
            if number not in self._answers[self._round]:
                self._ask(number)
            time.sleep(self._times.pause)

    def _ask(self, number: int) -> None:
        round_, own = self._round, self._own
        try:
            with self._connected(number) as connection:
                connection.sendall(_line({**own, "asks": number, "round": round_}))
                answer = _read_line(connection)
        except (socket.gaierror, UnicodeError):  # UnicodeError: a part of the name is empty or too long
            self._obstacles[number] = NAMELESS
        except OSError:
            self._obstacles[number] = UNREACHED
        else:
            if not _is_introduction(answer):
                self._obstacles[number] = STRANGE
                return
            failure = contradiction(own, answer, number)
            with self._changed:
                self._failure = self._failure or failure
                if failure is None:
                    self._answers[round_].add(number)
                self._changed.notify_all()

    def _connected(self, number: int) -> socket.socket:
        return socket.create_connection(host_and_port(self._address(number)), timeout=self._times.answer)

    def _answer_questions(self, listener: socket.socket) -> None:
        while not self._ended:
            with contextlib.suppress(OSError):  # nobody asks now, or who asks is gone and will ask again
                connection, _ = listener.accept()
                with connection:
                    connection.settimeout(self._times.answer)
                    self._answer(connection)

    def _answer(self, connection: socket.socket) -> None:
        question = _read_line(connection)
        if not _is_introduction(question):
            return
        failure: Optional[str]
        if "ended" in question:
            failure = str(question["ended"])[:REASON]
        elif "asks" in question and "round" in question:
            failure = contradiction(question, self._own, question["asks"])
            connection.sendall(_line(self._own))
        else:
            return
        with self._changed:
            self._failure = self._failure or failure
            if failure is None:
                for number in range(question["round"] + 1):
                    self._questions[number].add(question["index"])
            self._changed.notify_all()

    def _tell(self, number: int) -> None:
        with contextlib.suppress(OSError, UnicodeError), self._connected(number) as connection:
            connection.sendall(_line({**self._own, "settings": {}, "ended": self._message}))


def _line(message: Mapping[str, Any]) -> bytes:
    return json.dumps(message).encode("utf-8") + b"\n"


def _read_line(connection: socket.socket) -> Any:
    """Return the JSON value of a line; None if it is none."""
    with connection.makefile("rb") as stream:
        line = stream.readline(LARGEST)
    try:
        return json.loads(line)
    except (ValueError, RecursionError):
        return None


def _is_introduction(value: Any) -> bool:
    """Return whether a value has the form of a question, an answer, or the message of a process that has ended."""
    form = {"token": str, "place": str, "index": int, "addresses": list, "settings": dict}
    if not isinstance(value, dict) or not all(isinstance(value.get(name), kind) for name, kind in form.items()):
        return False
    addresses, numbers = value["addresses"], (value["index"], value.get("asks", 0))
    return (
        all(isinstance(each, str) for each in addresses)
        and all(isinstance(number, int) and 0 <= number < len(addresses) for number in numbers)
        and value.get("round", 0) in range(ROUNDS)
    )
