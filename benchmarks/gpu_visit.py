"""A whole visit to a GPU machine in one command and one file: ``python -m benchmarks.gpu_visit --output visit.txt``.

For machines that one has for minutes. Each section runs in processes of its own with a time limit, and its result is
in the file as soon as it ends: the environment, the tests that apply, speed and memory beside PyTorch, a profile by
kernel with the calls of the host that wait, and float16 with an automatic loss scale. Sections of this project alone
also run on a CPU (``--device cpu``), to try the command before the visit.

A machine with PyTorch but without CUDA's libraries for TensorFlow can lend it PyTorch's (``--borrow FOLDER``).
"""

from __future__ import annotations

import argparse
import importlib.util
import json
import os
import subprocess
import sys
import time
from collections import defaultdict
from collections.abc import Callable, Mapping
from pathlib import Path
from typing import Any

from benchmarks import measuring
from benchmarks.measuring import CPU, GPU, HelpFormatter
from data_utils.command_line import positive
from utilities.commands import make_parser, run_main
from utilities.environment import nvidia_gpus
from utilities.errors import UserError
from utilities.files import PROJECT

# Libraries that TensorFlow 2.21 opens by name: those that PyTorch brings along for CUDA 13, and two of the bundle.
LIBRARIES = {
    "libcublas.so.12": "libcublas.so.13",
    "libcublasLt.so.12": "libcublasLt.so.13",
    "libcufft.so.11": "libcufft.so.12",
    "libcusolver.so.11": "libcusolver.so.12",
    "libcusparse.so.12": "libcusparse.so.12",
    "libcudnn.so.9": "libcudnn.so.9",
    "libnccl.so.2": "libnccl.so.2",
    "libnvJitLink.so.12": "libnvJitLink.so.13",
    "libcudart.so.12": "libcudart.so.12",
    "libcupti.so.12": "libcupti.so.12",
}
TESTS = (
    "tests/unit/execution/test_fused.py", "tests/unit/execution/test_layers.py", "tests/unit/optimization",
    "tests/equivalence/test_precision.py", "tests/equivalence/test_updates.py",
)  # fmt: skip
PYTORCH = ("pytorch-bfloat16", "pytorch-bfloat16-compiled")
LONGEST, WAITING = 60, 12  # rows of the profile
MILLISECOND = 1e3  # in microseconds
ENDS = 60  # lines of a section


def environment(options: argparse.Namespace) -> str:
    code = (
        "import tensorflow as tf; print(tf.__version__, tf.config.list_physical_devices());"
        " print(tf.sysconfig.get_build_info())"
    )
    tools = [_output(["nvidia-smi"]), _output(["nvcc", "--version"])] if options.device == GPU else []
    return "\n".join([measuring.machine(), _output([sys.executable, "-c", code]), *tools])


def tests(options: argparse.Namespace) -> str:
    hidden = {} if options.device == GPU else measuring.only("TF")
    return _output([sys.executable, "-m", "pytest", "-q", "-m", "not slow and not long", "--tb=line", *TESTS], hidden)


def speed(options: argparse.Namespace) -> str:
    tasks = ["pretraining", "pretraining-512", "wikipedia-512"]
    competitors = ["ours", *(PYTORCH if importlib.util.find_spec("torch") else ())]
    words = ["--tasks", *tasks, "--sizes", options.size, "--competitors", *competitors, "--device", options.device]
    words += ["--rounds", str(options.rounds), "--steps", str(options.steps)]
    return _output([sys.executable, "-m", "benchmarks.speed", *words])


def profile(options: argparse.Namespace) -> str:
    job: dict[str, Any] = {"size": options.size, "steps": options.steps, "device": options.device}
    return str(measuring.in_process(profile_steps, measuring.only("TF", options.device), **job))


def float16(options: argparse.Namespace) -> str:
    job: dict[str, Any] = {"size": options.size, "steps": options.steps, "device": options.device}
    return str(measuring.in_process(train_in_float16, measuring.only("TF", options.device), **job))


SECTIONS: dict[str, Callable[[argparse.Namespace], str]] = {
    section.__name__: section for section in (environment, speed, profile, float16, tests)
}


def profile_steps(size: str, steps: int, device: str) -> str:
    """Return the kernels of an update by their time, and the host's calls that take longest, by PyTorch's profiler."""
    from torch.profiler import ProfilerActivity, profile

    train = _trainer(size, steps, device)
    train(steps)
    kinds = [ProfilerActivity.CPU, *([ProfilerActivity.CUDA] if device == GPU else [])]
    with profile(activities=kinds) as profiled:
        train(steps)
    file = Path(f"/tmp/gpu_visit_{os.getpid()}.json")
    profiled.export_chrome_trace(str(file))
    events = json.loads(file.read_text(encoding="utf-8"))["traceEvents"]
    file.unlink()
    return "\n".join(trace_lines(events, steps))


def trace_lines(events: list[dict[str, Any]], steps: int) -> list[str]:
    """Return the kernels of a trace, and the host's calls of CUDA, by their time in an update."""
    kernels = sorted((e for e in events if e.get("cat") in ("kernel", "gpu_memcpy", "gpu_memset")), key=_begin)
    if not kernels:
        return ["no kernels: no GPU, or the profiler could not listen to it"]
    span, busy = _begin(kernels[-1]) + kernels[-1]["dur"] - _begin(kernels[0]), sum(e["dur"] for e in kernels)
    about = f"an update: {span / steps / MILLISECOND:.2f} ms, kernels run {busy / steps / MILLISECOND:.2f} ms of them"
    calls = [event for event in events if event.get("cat") in ("cuda_runtime", "cuda_driver")]
    longest = _longest(kernels, steps, LONGEST)
    return [about, *longest, "calls of CUDA by the host:", *_longest(calls, steps, WAITING)]


def _longest(events: list[dict[str, Any]], steps: int, rows: int) -> list[str]:
    durations: dict[str, list[float]] = defaultdict(list)
    for event in events:
        durations[event["name"]].append(event["dur"])
    longest = sorted(durations.items(), key=lambda item: -sum(item[1]))[:rows]
    scale = steps * MILLISECOND
    return [f"{sum(times) / scale:9.3f} ms {len(times) / steps:8.1f} × {name[:120]}" for name, times in longest]


def _begin(event: Mapping[str, Any]) -> float:
    return float(event["ts"])


def train_in_float16(size: str, steps: int, device: str) -> str:
    """Train in float16 with an automatic loss scale, and return the loss before and after."""
    from benchmarks.ours import Clock, platform_of, training
    from benchmarks.samples import full_sequences, pretraining_spec
    from benchmarks.settings import MICRO_BATCH, make_architecture
    from data_utils.records.arrays import ArrayReader
    from execution.interface import Update
    from model.tasks import PRETRAINING
    from optimization.loss_scaling import INITIAL_SCALE

    platform = platform_of(device, precision="float16")
    reader = ArrayReader(pretraining_spec(), full_sequences())
    update = Update(1, loss_scale=INITIAL_SCALE, adaptive_loss_scale=True)
    made = training(PRETRAINING, make_architecture(size), reader, MICRO_BATCH, platform=platform, update=update)
    clock = Clock(4 * steps, steps)
    made.run(4 * steps, clock)
    losses = ", ".join(f"{means['mlm_loss']:.4f}" for means in clock.means)
    scale = clock.means[-1]["loss_scale"]
    return f"{platform.describe()}: loss {losses}; loss scale {scale:g}; {clock.calls()[-1][0] / steps * 1e3:.2f} ms"


def _trainer(size: str, steps: int, device: str) -> Callable[[int], float]:
    from benchmarks.speed import COMPETITORS, OURS, TASKS, Job, make_architecture, make_samples

    task = TASKS["pretraining"]
    return COMPETITORS[OURS].prepare(Job(task, make_architecture(size), steps, device), make_samples(task))[0]


def borrow(folder: Path) -> None:
    """Link PyTorch's libraries under the names by which TensorFlow opens them, and use them in all sections."""
    folder.mkdir(parents=True, exist_ok=True)
    places = [Path(path) / "nvidia" for path in sys.path if path]
    for name, source in LIBRARIES.items():
        found = [file for place in places for file in place.glob(f"**/{source}")]
        link = folder / name
        if found and not link.exists():
            link.symlink_to(found[0])
    ahead = [str(folder), *{str(link.resolve().parent) for link in folder.iterdir()}]
    os.environ["LD_LIBRARY_PATH"] = os.pathsep.join([*ahead, os.environ.get("LD_LIBRARY_PATH", "")])


def visit(options: argparse.Namespace) -> int:
    if options.device == GPU and not nvidia_gpus():
        raise UserError("nvidia-smi finds no GPU; --device cpu tries the sections that need none")
    if options.borrow is not None:
        borrow(Path(options.borrow))
    with Path(options.output).open("a", encoding="utf-8") as file:
        for name in options.sections:
            begin = time.monotonic()
            try:
                text = SECTIONS[name](options)
            except UserError as error:
                text = f"failed: {error}"
            print(f"=== {name}, {time.monotonic() - begin:.0f} s\n{text}\n", file=file, flush=True)
            print(f"{name}: {time.monotonic() - begin:.0f} s", flush=True)
    return 0


def _output(words: list[str], environment: Mapping[str, str] | None = None) -> str:
    """Return the last lines that a command prints, errors too; a command that is missing or too slow is named."""
    try:
        done = subprocess.run(
            words, cwd=PROJECT, env={**os.environ, **(environment or {})}, stdout=subprocess.PIPE,
            stderr=subprocess.STDOUT, text=True, check=False, timeout=600,
        )  # fmt: skip
    except (OSError, subprocess.TimeoutExpired) as error:
        return f"{words[0]}: {error}"
    return "\n".join(done.stdout.splitlines()[-ENDS:])


def make_visit_parser() -> argparse.ArgumentParser:
    parser = make_parser("benchmarks.gpu_visit", __doc__)
    parser.formatter_class = HelpFormatter
    parser.add_argument("--output", default="visit.txt", metavar="FILE", help="file to add to")
    parser.add_argument("--sections", nargs="+", choices=SECTIONS, default=list(SECTIONS), help="to run, in this order")
    parser.add_argument("--device", choices=measuring.DEVICES, default=GPU, help=f"{CPU} to try the command")
    parser.add_argument("--size", choices=("tiny", "mini", "small", "base"), default="base", help="of the model")
    parser.add_argument("--steps", type=positive, default=20, metavar="N", help="updates of a measurement")
    parser.add_argument("--rounds", type=positive, default=2, metavar="N", help="measurements of each speed")
    parser.add_argument("--borrow", metavar="FOLDER", help="lend TensorFlow PyTorch's CUDA libraries by links here")
    return parser


if __name__ == "__main__":
    sys.exit(run_main(make_visit_parser(), visit))
