"""Fine-tuning speed on SQuAD beside Hugging Face's: ``python -m benchmarks.squad_training``.

Every competitor trains the same span model on the same windows in a process of its own; the processes take turns, round
after round. ``--windows real`` are those of real questions: Hugging Face pads them, this project can pack them. PyTorch
is needed for this only: ``pip install -r requirements-bench.txt``.
"""

from __future__ import annotations

import argparse
import sys
from collections.abc import Callable, Sequence
from functools import partial
from pathlib import Path
from typing import NamedTuple

from benchmarks import measuring
from benchmarks.samples import FULL, REAL, SQUAD_TRAINING, WINDOW_LENGTH, WORDS, Arrays, squad_windows
from benchmarks.settings import MICRO_BATCH, SEED, SIZES, VOCABULARY, Trainer, architecture_of
from model.architecture import SQUAD, Architecture

WARM_UP = 4
OURS, PACKED = "ours", "ours-packed"
WINDOWS_IN_A_PACK = 6
SPEED = "windows_per_second"
Prepared = tuple[Trainer, float]  # how to train a number of steps, and the windows in a step


def _ours(packed: bool, architecture: Architecture, windows: Arrays, steps: int) -> Prepared:
    """Train with one window per row, or packed with as many rows as keep the windows of a batch about the same."""
    from benchmarks.ours import trainer
    from data_utils.records.arrays import ArrayReader
    from data_utils.records.packs import rows_of
    from data_utils.squad.windows import squad_features

    reader = ArrayReader(squad_features(WINDOW_LENGTH, VOCABULARY), windows)
    in_a_row, rows = 1.0, MICRO_BATCH
    if packed:
        count = reader.count
        reader = rows_of(reader, windows["input_mask"].sum(axis=1), WINDOWS_IN_A_PACK, seed=SEED)
        in_a_row = count / reader.count
        rows = max(1, round(MICRO_BATCH / in_a_row))
    return trainer(SQUAD, architecture, reader, rows, steps), rows * in_a_row


def _tensorflow(architecture: Architecture, windows: Arrays, steps: int) -> Prepared:
    from benchmarks.peers_tensorflow import with_fit
    from benchmarks.samples import hugging_face_windows

    return with_fit(SQUAD, architecture, hugging_face_windows(windows, "int32")), MICRO_BATCH


def _pytorch(fused: bool, architecture: Architecture, windows: Arrays, steps: int) -> Prepared:
    from benchmarks.peers_pytorch import span

    return span(architecture, windows, **({"fused": True} if fused else {})), MICRO_BATCH


class Competitor(NamedTuple):
    """A way to fine-tune; see :class:`benchmarks.pretraining.Competitor`."""

    title: str
    prepare: Callable[[Architecture, Arrays, int], Prepared]
    framework: str = "TF"


COMPETITORS = {
    OURS: Competitor("this project", partial(_ours, False)),
    PACKED: Competitor("this project, windows packed", partial(_ours, True)),
    "hf-tensorflow": Competitor("HF TensorFlow, `fit` as shipped", _tensorflow),
    "hf-pytorch": Competitor("HF PyTorch, eager", partial(_pytorch, False), "TORCH"),
    "hf-pytorch-fused": Competitor("HF PyTorch, fused AdamW", partial(_pytorch, True), "TORCH"),
}


def measure(competitor: str, size: str, windows: str, data: str, steps: int) -> measuring.Values:
    """Warm up and train, in this process."""
    architecture = architecture_of(size)
    train, windows_in_a_step = COMPETITORS[competitor].prepare(architecture, squad_windows(windows, Path(data)), steps)
    train(1)
    train(WARM_UP - 1)
    return {SPEED: steps * windows_in_a_step / train(steps)}


def parse(arguments: Sequence[str] | None) -> argparse.Namespace:
    parser = measuring.parser_of("squad_training", __doc__)
    parser.add_argument("--sizes", nargs="+", choices=SIZES, default=["mini", "base"], help="default: mini base")
    parser.add_argument("--competitors", nargs="+", choices=COMPETITORS, help="default: all that the windows fit")
    parser.add_argument("--windows", choices=(FULL, REAL), default=FULL, help="default: %(default)s")
    parser.add_argument(
        "--data", type=Path, default=measuring.real_data_root(), metavar="DIR", help="has squad/ and vocab/"
    )
    measuring.add_rounds(parser, 3)
    parser.add_argument("--steps", type=measuring.at_least_one, help="measured steps of a process; default: by size")
    options = parser.parse_args(arguments)
    if options.competitors is None:  # full windows cannot be packed
        options.competitors = [name for name in COMPETITORS if options.windows == REAL or name != PACKED]
    return options


def report(measured: measuring.Measured, options: argparse.Namespace) -> list[str]:
    """Return medians, and ratios taken within a round."""
    best = PACKED if PACKED in options.competitors and options.windows == REAL else OURS
    speed = [["windows/s", *options.sizes]]
    ratio = [["this project is faster than", *options.sizes]]
    for name in options.competitors:
        title = COMPETITORS[name].title
        speed.append([title, *(measuring.spread(measured.values((name, size), SPEED)) for size in options.sizes)])
        if name not in (OURS, PACKED) and best in options.competitors:
            ratios = [measured.ratios((best, size), (name, size), SPEED) for size in options.sizes]
            ratio.append([title, *(measuring.spread(values, "{:.2f} ×") for values in ratios)])
    about = (
        f"Fine-tuning a span model on {options.windows} windows of {WINDOW_LENGTH} tokens, micro batch {MICRO_BATCH},"
        f" dropout 0.1, AdamW, float32; median (min–max) of {options.rounds} processes in alternation."
    )
    return [about, measuring.markdown(speed), measuring.markdown(ratio)]


@measuring.command_line
def main(arguments: Sequence[str] | None = None) -> int:
    """Measure, and print tables on standard output."""
    options = parse(arguments)
    is_pytorch = any(COMPETITORS[name].framework == "TORCH" for name in options.competitors)
    measuring.require(["torch"] if is_pytorch else [], otherwise="leave PyTorch out with --competitors")
    if options.windows == REAL:
        measuring.require([], [options.data / SQUAD_TRAINING, options.data / WORDS], f"measure --windows {FULL}")

    def process(competitor: str, size: str) -> measuring.Values:
        # Half the steps of the pre-training benchmark: windows are three times as long as its sequences.
        steps = options.steps or max(2, SIZES[size].steps // 2)
        job = {"competitor": competitor, "size": size, "windows": options.windows, "data": str(options.data)}
        return measuring.in_process(measure, measuring.only(COMPETITORS[competitor].framework), **job, steps=steps)

    variants = {(name, size): partial(process, name, size) for size in options.sizes for name in options.competitors}
    measured = measuring.alternate(variants, options.rounds)
    measuring.write_json(options.json, measured.as_json())
    measuring.print_report(*report(measured, options))
    return 0


if __name__ == "__main__":
    sys.exit(main())
