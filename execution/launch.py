# PYTHON_ARGCOMPLETE_OK
"""Starts the processes of a run on this machine.

    python -m execution.launch --processes 2 -- run_pretraining.py --config … --dataset-dir …

Each process gets ``TF_CONFIG`` with free ports, and its share of the cores and GPUs. The output of the chief, process
0, is printed unchanged; lines of the others are preceded by their number. SIGINT and SIGTERM are passed on. When a
process ends with an error, the others end by themselves, or are killed after some time. When the launcher itself is
killed, all processes save their state and end.

Imports no TensorFlow.
"""

from __future__ import annotations

import argparse
import contextlib
import itertools
import os
import signal
import socket
import subprocess
import sys
import threading
import time
from pathlib import Path
from typing import IO, Dict, Iterator, List, Mapping, Optional, Sequence, TextIO

from execution.software.cluster.lifeline import LIFELINE, SECONDS_TO_STOP, lifeline_variable
from execution.software.cluster.membership import TF_CONFIG, Membership, tf_config
from utilities.commands import make_parser, run_main
from utilities.environment import usable_cores
from utilities.errors import EXIT_USER_ERROR, UserError

SECONDS_BETWEEN_CHECKS = 0.2
STOPPED = (128 + signal.SIGINT, 128 + signal.SIGTERM)  # exit statuses of a run that a signal stopped
THREADS_FLAG = "--execution.threads"
GPUS, GPUS_OF_PROCESS = "/proc/driver/nvidia/gpus", "CUDA_VISIBLE_DEVICES"


def main(argv: Optional[Sequence[str]] = None) -> int:
    """Start the processes; return the status of the first that failed, 2 if a signal ended it, 0 if none failed."""
    parser = make_parser("execution.launch", (__doc__ or "").partition("\n")[0])
    parser.add_argument(
        "--processes", "--replicas", type=int, required=True, metavar="N", help="number of processes to start"
    )
    parser.add_argument(
        "--threads-per-process", "--threads-per-replica", type=int, metavar="N",
        help="CPU threads of each process (execution.threads); by default the cores are shared evenly",
    )  # fmt: skip
    parser.add_argument("command", nargs=argparse.REMAINDER, metavar="-- PROGRAM …", help="program and its arguments")
    return run_main(parser, _launch, argv)


def _launch(options: argparse.Namespace) -> int:
    command = options.command[1:] if options.command[:1] == ["--"] else options.command
    if options.processes < 1:
        raise UserError(f"--processes {options.processes}: give a number of processes, 1 or more")
    if options.threads_per_process is not None and options.threads_per_process < 1:
        raise UserError(f"--threads-per-process {options.threads_per_process}: give a number of threads, 1 or more")
    if not command:
        raise UserError("no program to start; give one after --: … -- run_pretraining.py --config …")
    return run(command, options.processes, options.threads_per_process)


def run(command: Sequence[str], processes: int, threads: Optional[int] = None) -> int:
    """Run ``command`` in several processes; see :func:`main`."""
    with free_ports(processes) as ports:
        addresses = tuple(f"localhost:{port}" for port in ports)
    line = with_threads(with_interpreter(command), processes, threads)
    gpus = gpu_shares(processes, os.environ)
    started: List[subprocess.Popen] = []
    printers: List[threading.Thread] = []
    # The handlers are installed first, so no signal can arrive between a start and their installation.
    with signals_passed_on(started), lifeline() as reader:
        for index in range(processes):
            variables = {TF_CONFIG: tf_config(Membership(addresses, index)), LIFELINE: lifeline_variable(reader)}
            output = subprocess.PIPE if index else None  # None: where this process writes
            try:
                process = subprocess.Popen(
                    line, env={**os.environ, **variables, **gpus[index]}, stdout=output, stderr=output,
                    stdin=subprocess.DEVNULL, pass_fds=[reader],
                    start_new_session=True,  # in which only this process passes a terminal's Ctrl-C on
                )  # fmt: skip
            except OSError as error:
                raise UserError(f"{line[0]}: cannot be started ({error.strerror}); name a program") from error
            started.append(process)
            if index:
                printers += [
                    print_lines(stream, sink, index)
                    for stream, sink in ((process.stdout, sys.stdout), (process.stderr, sys.stderr))
                    if stream is not None
                ]
        status = wait(started)
    for printer in printers:
        printer.join(timeout=5)
    return status


@contextlib.contextmanager
def free_ports(count: int) -> Iterator[List[int]]:
    """Yield different unused ports, which are reserved until the block ends."""
    with contextlib.ExitStack() as stack:
        try:
            sockets = [stack.enter_context(socket.socket()) for _ in range(count)]
            for each in sockets:
                each.bind(("localhost", 0))
        except OSError as error:
            raise UserError(
                f"--processes {count}: there are no {count} free ports ({error.strerror}); start fewer"
            ) from error
        yield [each.getsockname()[1] for each in sockets]


@contextlib.contextmanager
def lifeline() -> Iterator[int]:
    """Yield the end of a pipe for child processes to inherit; this process keeps the other end open.

    When this process ends, even if it is killed, the pipe is closed, by which the children know that they must stop.
    """
    reader, writer = os.pipe()
    try:
        yield reader
    finally:
        os.close(reader)
        os.close(writer)


def with_interpreter(command: Sequence[str]) -> List[str]:
    is_python = command[0].endswith(".py") or command[0] == "-m"
    return [sys.executable, *command] if is_python else list(command)


def with_threads(command: Sequence[str], processes: int, threads: Optional[int]) -> List[str]:
    """Append the process's share of the cores, unless the command sets the number of threads itself."""
    is_set = any(argument == THREADS_FLAG or argument.startswith(f"{THREADS_FLAG}=") for argument in command)
    if is_set and threads is None:
        return list(command)
    share = threads or max(usable_cores() // processes, 1)
    return [*command, THREADS_FLAG, str(share)]


def gpu_shares(processes: int, environment: Mapping[str, str]) -> List[Dict[str, str]]:
    """Return the environment variables that divide the GPUs between the processes."""
    folder = Path(GPUS)
    visible = environment.get(GPUS_OF_PROCESS)
    count = len(list(folder.iterdir())) if folder.is_dir() else 0
    listed = map(str, range(count)) if visible is None else filter(None, map(str.strip, visible.split(",")))
    gpus = list(itertools.takewhile(lambda gpu: not gpu.startswith("-"), listed))  # as CUDA reads the list
    if not gpus:
        return [{} for _ in range(processes)]
    if len(gpus) < processes:
        raise UserError(
            f"--processes {processes}: only {len(gpus)} GPUs, and each process needs one; start fewer processes"
            f" or use CPUs ({GPUS_OF_PROCESS}= and --execution.device cpu)"
        )
    share = len(gpus) // processes
    return [{GPUS_OF_PROCESS: ",".join(gpus[i * share : (i + 1) * share])} for i in range(processes)]


def print_lines(stream: IO[bytes], sink: TextIO, index: int) -> threading.Thread:
    """Start a thread that prints the lines of a stream, each preceded by the number of its process."""

    def read() -> None:
        for line in stream:  # to its end, also if nobody reads the sink any more: the process would wait
            text = f"[{index}] {line.decode('utf-8', 'replace')}"
            with contextlib.suppress(OSError):
                sink.write(text.encode(sink.encoding or "utf-8", "replace").decode(sink.encoding or "utf-8"))
                sink.flush()

    thread = threading.Thread(target=read, daemon=True)
    thread.start()
    return thread


@contextlib.contextmanager
def signals_passed_on(processes: List[subprocess.Popen]) -> Iterator[None]:

    def pass_on(number: int, frame: object) -> None:
        for process in processes:
            with contextlib.suppress(ProcessLookupError):
                process.send_signal(number)

    previous = {number: signal.signal(number, pass_on) for number in (signal.SIGINT, signal.SIGTERM)}
    try:
        yield
    finally:
        for process in processes:  # leave no process behind after an error
            if process.poll() is None:
                process.kill()
        for number, handler in previous.items():
            signal.signal(number, handler)


def wait(processes: Sequence[subprocess.Popen]) -> int:
    """Wait until all processes have ended; return the exit status as :func:`main` does."""
    status, deadline = 0, float("inf")
    running = dict(enumerate(processes))
    while running:
        time.sleep(SECONDS_BETWEEN_CHECKS)
        # If several have ended since the last check, one that a signal ended is reported as the cause.
        ended = {index: process.poll() for index, process in running.items() if process.poll() is not None}
        for index, code in sorted(ended.items(), key=lambda item: (item[1] or 0, item[0])):
            del running[index]
            if code and not status:
                status, deadline = (EXIT_USER_ERROR if code < 0 else code), time.monotonic() + SECONDS_TO_STOP
                how = f"was ended by {signal.Signals(-code).name}" if code < 0 else f"ended with status {code}"
                if len(processes) > 1 and code not in STOPPED:
                    print(f"process {index} {how}; the others stop", file=sys.stderr, flush=True)
        if time.monotonic() > deadline:
            for index, process in running.items():
                print(f"process {index} does not stop and is killed", file=sys.stderr, flush=True)
                process.kill()
            deadline = float("inf")
    return status


if __name__ == "__main__":
    sys.exit(main())
