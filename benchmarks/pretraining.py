"""Training speed and memory, and Hugging Face's in TensorFlow and PyTorch: ``python -m benchmarks.pretraining``.

Every competitor trains the same model on the same data in a process of its own. The processes take turns, round after
round. The machine's rate of matrix products, in both formats and both frameworks, is measured in turn with them.
"""

from __future__ import annotations

import argparse
import resource
import sys
import time
from collections.abc import Callable, Mapping, Sequence
from functools import partial
from typing import Any, NamedTuple

from benchmarks import measuring
from benchmarks.measuring import GFLOPS, Column, Measured
from benchmarks.settings import (
    MASKED_POSITIONS,
    MICRO_BATCH,
    SEQUENCE_LENGTH,
    SIZES,
    VOCABULARY,
    Trainer,
    make_architecture,
)
from data_utils.command_line import positive
from model.architecture import Architecture
from model.tasks import PRETRAINING

SPEED, MEMORY, FIRST_STEP = "samples_per_second", "peak_memory_mib", "first_step_seconds"
PRODUCT = (1024, 768, 3072)  # micro batch × sequence, inner, columns of BERT-base
AUTO, FLOAT32 = "auto", "float32"

# --- Competitors, each in a process of its own; imports are inside, because Transformers loads one framework ---


def _ours(precision: str, architecture: Architecture, steps: int) -> Trainer:
    from benchmarks.ours import cpu_platform, trainer
    from benchmarks.samples import full_sequences, pretraining_spec
    from data_utils.records.arrays import ArrayReader

    reader = ArrayReader(pretraining_spec(), full_sequences())
    return trainer(PRETRAINING, architecture, reader, MICRO_BATCH, steps, cpu_platform(precision=precision))


def _tensorflow(architecture: Architecture, steps: int) -> Trainer:
    from benchmarks.peers_tensorflow import trainer
    from benchmarks.samples import full_sequences, iterate_batches, select_rows

    return trainer(architecture, lambda: iterate_batches(full_sequences(), MICRO_BATCH, select_rows))


def _pytorch(architecture: Architecture, steps: int, **way: bool) -> Trainer:
    from benchmarks.peers_pytorch import trainer
    from benchmarks.samples import full_sequences, iterate_batches, select_rows

    return trainer(PRETRAINING, architecture, iterate_batches(full_sequences(), MICRO_BATCH, select_rows), **way)


class Competitor(NamedTuple):
    """A way to train BERT.

    Attributes:
        title: in tables.
        prepare: makes a trainer; its last argument is the number of steps of an execution.
        framework: that Transformers loads; the other one would count as time and memory.
    """

    title: str
    prepare: Callable[..., Any]
    framework: str = "TF"


OURS, OURS_FLOAT32, TENSORFLOW = "ours", "ours-float32", "hf-tensorflow-xla"
BEST = "PyTorch's"  # variants, of which the fastest in a round counts
PYTORCH: dict[str, tuple[str, dict[str, Any]]] = {  # title and options of ``peers_pytorch.trainer``
    "pytorch": ("float32", {}),
    "pytorch-compiled": ("float32, `torch.compile`", {"compiled": True}),
    "pytorch-bfloat16": ("bfloat16 autocast", {"bfloat16": True}),
    "pytorch-bfloat16-compiled": ("bfloat16 autocast, `torch.compile`", {"bfloat16": True, "compiled": True}),
}
COMPETITORS = {
    OURS: Competitor("**this project**, precision auto", partial(_ours, AUTO)),
    OURS_FLOAT32: Competitor("this project, float32", partial(_ours, FLOAT32)),
    TENSORFLOW: Competitor("HF TensorFlow, `jit_compile`", _tensorflow),
    **{
        name: Competitor(f"PyTorch, {title}", partial(_pytorch, **way), "TORCH")
        for name, (title, way) in PYTORCH.items()
    },
}
PRODUCTS = {
    (framework, precision): f"{name}, {precision}"
    for framework, name in {"TF": "TensorFlow", "TORCH": "PyTorch"}.items()
    for precision in ("float32", "bfloat16")
}


def measure(competitor: str, size: str, warm_up: int, steps: int, started: float) -> measuring.Values:
    """Warm up, then time the steps, in this process.

    Args:
        competitor: key of ``COMPETITORS``.
        size: key of ``SIZES``.
        warm_up: steps before the measured ones, at least 1.
        steps: number of measured steps.
        started: ``time.time()`` just before the process was started.
    """
    train = COMPETITORS[competitor].prepare(make_architecture(size), steps)
    train(1)
    first = time.time() - started
    if warm_up > 1:
        train(warm_up - 1)
    seconds = train(steps)
    return {SPEED: steps * MICRO_BATCH / seconds, FIRST_STEP: first, MEMORY: peak_memory()}


def peak_memory() -> float:
    """Return the peak memory of this process in MiB."""
    return resource.getrusage(resource.RUSAGE_SELF).ru_maxrss / 1024


# --- Derived figures ---


def over_best(measured: Measured, size: str, others: Sequence[str]) -> list[float]:
    """Return our speed over that of the fastest of others, in each round."""
    of_ours = measured.values((OURS, size), SPEED)
    speeds = [values for values in (measured.values((name, size), SPEED) for name in others) if values]
    return [own / max(theirs) for own, *theirs in zip(of_ours, *speeds)] if speeds else []


def table_by_case(
    corner: str, titles: Mapping[str, str], cases: Sequence[str], values: Callable[[Any], Sequence[float]], form: str
) -> str:
    """Return a row for each competitor and a column for each case (a size, or a task and a size)."""

    def column(case: str) -> Column:
        return Column(case, lambda name: values((name, case)), form)

    return measuring.table(corner, titles, [column(case) for case in cases])


def speed_tables(measured: Measured, titles: Mapping[str, str], cases: Sequence[str]) -> list[str]:
    """Return tables of speed, of ratios within a round, and of memory."""
    others = {name: title for name, title in titles.items() if name != OURS}

    def ratios(variant: tuple[str, str]) -> list[float]:
        name, case = variant
        return over_best(measured, case, list(PYTORCH) if name == BEST else [name])

    tables = [table_by_case("samples/s", titles, cases, measured.column("", SPEED).values, "{:.2f}")]
    if OURS in titles:
        corner = "this project, precision auto, is faster than"
        rows = {**others, BEST: f"the best of {BEST}"}
        tables.append(table_by_case(corner, rows, cases, ratios, "{:.2f} ×"))
    memory = measured.column("", MEMORY).values
    return [*tables, table_by_case("peak memory of the process, MiB", titles, cases, memory, "{:,.0f}")]


def report(measured: Measured, sizes: Sequence[str], competitors: Sequence[str], rounds: int) -> list[str]:
    """Return the tables of all measurements."""
    titles = {name: COMPETITORS[name].title for name in competitors}
    first = measured.column("", FIRST_STEP).values
    parts = [
        f"BERT pre-training with dropout and AdamW: sequence {SEQUENCE_LENGTH}, {MASKED_POSITIONS} predictions, micro"
        f" batch {MICRO_BATCH}, vocabulary {VOCABULARY:,}. Each figure is the median (min–max) of {rounds} processes,"
        " run in alternation; ratios are taken within a round. All compute the masked-LM head on the masked positions"
        " only; PyTorch uses its fused AdamW.",
        measuring.table("matrix products of this machine", PRODUCTS, [measured.column("GFLOP/s", GFLOPS, "{:,.0f}")]),
        *speed_tables(measured, titles, sizes),
        table_by_case("start of the process to first step done, s", titles, sizes, first, "{:.1f}"),
    ]
    return parts


ARGUMENTS: dict[str, dict[str, Any]] = {
    "--sizes": {"nargs": "+", "choices": SIZES, "default": ["mini", "small", "base"], "help": "size of the model"},
    "--competitors": {"nargs": "+", "choices": COMPETITORS, "default": list(COMPETITORS), "help": "to be measured"},
    "--steps": {"type": positive, "metavar": "N", "help": "measured steps of a process; None: depends on the size"},
    "--warm-up": {"type": positive, "default": 3, "metavar": "N", "help": "steps before the measured ones"},
}


@measuring.benchmark(ARGUMENTS, rounds=3)
def main(options: argparse.Namespace) -> list[str]:
    with_pytorch = any(COMPETITORS[name].framework == "TORCH" for name in options.competitors)
    measuring.require(["torch"] if with_pytorch else [], otherwise="leave PyTorch out with --competitors")

    def process(competitor: str, size: str) -> measuring.Values:
        job = {"competitor": competitor, "size": size, "warm_up": options.warm_up}
        steps, environment = options.steps or SIZES[size].steps, measuring.only(COMPETITORS[competitor].framework)
        fix = f"leave {competitor} out with --competitors"
        return measuring.in_process(measure, environment, fix, **job, steps=steps, started=time.time())

    def products(framework: str, precision: str) -> measuring.Values:
        peer = "peers_tensorflow" if framework == "TF" else "peers_pytorch"
        job: dict[str, Any] = {"shape": PRODUCT, "bfloat16": precision == "bfloat16"}
        return measuring.in_process(f"benchmarks.{peer}:product_rate", measuring.only(framework), **job)

    variants: dict[Any, Callable[[], measuring.Values]] = {
        product: partial(products, *product) for product in PRODUCTS if product[0] == "TF" or with_pytorch
    }
    variants |= {(name, size): partial(process, name, size) for size in options.sizes for name in options.competitors}
    measured = measuring.alternate(variants, options.rounds)
    parts = report(measured, options.sizes, options.competitors, options.rounds)
    if OURS in options.competitors:
        described = measuring.in_process("benchmarks.ours:describe", precision=AUTO)
        parts.insert(1, f"this project, precision auto: {described}")
    return parts


if __name__ == "__main__":
    sys.exit(main())
