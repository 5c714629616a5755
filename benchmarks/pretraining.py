"""Training speed and memory beside Hugging Face's: ``python -m benchmarks.pretraining``.

Every competitor trains the same model on the same data in a process of its own. The processes take turns,
round after round. PyTorch is needed for this only: ``pip install -r requirements-bench.txt``.
"""

from __future__ import annotations

import argparse
import json
import resource
import subprocess
import sys
import tempfile
import time
from collections.abc import Callable, Sequence
from functools import partial
from pathlib import Path
from typing import Any, NamedTuple

from benchmarks import measuring
from benchmarks.settings import (
    LEARNING_RATE,
    MASKED_POSITIONS,
    MICRO_BATCH,
    SEQUENCE_LENGTH,
    SIZES,
    VOCABULARY,
    WEIGHT_DECAY,
    Trainer,
    architecture_of,
    flops_per_sample,
)
from model.architecture import PRETRAINING, Architecture

SPEED, MEMORY, FIRST_STEP, GFLOPS = "samples_per_second", "peak_memory_mib", "first_step_seconds", "gflops"
GEMM_SHAPES = ((1024, 768, 3072), (1024, 3072, 768))  # (micro batch × sequence, inner, columns) of BERT-base
GEMM_WINDOWS, GEMM_SECONDS = 6, 0.5
POLL_SECONDS = 0.05

# --- Competitors, each in a process of its own; imports are inside, because Transformers loads one framework ---


def _ours(architecture: Architecture, steps: int) -> Trainer:
    from benchmarks.ours import trainer
    from benchmarks.samples import full_sequences, pretraining_spec
    from data_utils.records.arrays import ArrayReader

    return trainer(PRETRAINING, architecture, ArrayReader(pretraining_spec(), full_sequences()), MICRO_BATCH, steps)


def _tensorflow(way: str, architecture: Architecture, steps: int) -> Trainer:
    from benchmarks import peers_tensorflow
    from benchmarks.samples import full_sequences, hugging_face_samples

    return getattr(peers_tensorflow, way)(PRETRAINING, architecture, hugging_face_samples(full_sequences()))


def _pytorch(tuned: bool, architecture: Architecture, steps: int) -> Trainer:
    from benchmarks.peers_pytorch import pretraining
    from benchmarks.samples import full_sequences

    return pretraining(architecture, full_sequences(), tuned=tuned)


class Competitor(NamedTuple):
    """A way to pre-train BERT.

    Attributes:
        title: in tables.
        prepare: makes a trainer of an architecture, for executions of a number of steps; None: measures itself.
        framework: that Transformers loads; the other one would count as time and memory.
    """

    title: str
    prepare: Callable[[Architecture, int], Trainer] | None
    framework: str = "TF"


OURS, GENERATED, GEMM = "ours", "generated", "gemm"
TENSORFLOW_FIT, TENSORFLOW_FUNCTION = TENSORFLOW = ("hf-tensorflow-fit", "hf-tensorflow-function")
PYTORCH, PYTORCH_TUNED = "hf-pytorch", "hf-pytorch-tuned"
OTHERS = (*TENSORFLOW, PYTORCH, PYTORCH_TUNED)
COMPETITORS = {
    OURS: Competitor("this project", _ours),
    TENSORFLOW_FIT: Competitor("HF TensorFlow, `fit` as shipped", partial(_tensorflow, "with_fit")),
    TENSORFLOW_FUNCTION: Competitor("HF TensorFlow, one `tf.function`", partial(_tensorflow, "with_function")),
    PYTORCH: Competitor("HF PyTorch, eager", partial(_pytorch, False), "TORCH"),
    PYTORCH_TUNED: Competitor("HF PyTorch, tuned by hand", partial(_pytorch, True), "TORCH"),
    GENERATED: Competitor("this project, `run_pretraining.py`", None),
    GEMM: Competitor("matrix products alone", None),
}


def measure(competitor: str, size: str, warm_up: int, steps: int, started: float) -> measuring.Values:
    """Warm up, then time the steps, in this process.

    Args:
        competitor: key of ``COMPETITORS``.
        size: key of ``SIZES``.
        warm_up: steps before the measured ones, at least 1.
        started: ``time.time()`` just before the process was started.
    """
    if competitor == GEMM:
        return {GFLOPS: max(_gflops(*shape) for shape in GEMM_SHAPES)}
    if competitor == GENERATED:
        return _run_command(architecture_of(size), steps, started)
    prepare = COMPETITORS[competitor].prepare
    assert prepare is not None
    train = prepare(architecture_of(size), steps)
    train(1)
    first = time.time() - started
    if warm_up > 1:
        train(warm_up - 1)
    seconds = train(steps)
    memory = resource.getrusage(resource.RUSAGE_SELF).ru_maxrss / 1024
    return {SPEED: steps * MICRO_BATCH / seconds, FIRST_STEP: first, MEMORY: memory}


def _gflops(rows: int, inner: int, columns: int) -> float:
    """Return the rate of float32 products (rows, inner) × (inner, columns) on all cores, median of several windows."""
    from keras_extensions.backend import tf

    left, right = tf.random.normal((rows, inner)), tf.random.normal((inner, columns))
    tf.matmul(left, right)
    found = []
    for _ in range(GEMM_WINDOWS):
        count, begin = 0, time.perf_counter()
        while time.perf_counter() - begin < GEMM_SECONDS:
            tf.matmul(left, right)
            count += 1
        found.append(count * 2e-9 * rows * inner * columns / (time.perf_counter() - begin))
    return measuring.median_of(found) or 0.0


def _run_command(architecture: Architecture, steps: int, started: float) -> measuring.Values:
    """Measure ``run_pretraining.py`` on generated data, with all that it writes."""
    with tempfile.TemporaryDirectory() as name:
        folder = Path(name)
        config = folder / "config.json"
        config.write_text(json.dumps(_config_of(architecture, steps, folder)), encoding="utf-8")
        line = [sys.executable, str(measuring.REPOSITORY / "run_pretraining.py"), "--config", str(config)]
        with open(folder / "log.txt", "w+", encoding="utf-8") as log:
            process = subprocess.Popen(line, stdout=log, stderr=log, cwd=measuring.REPOSITORY)
            first_line = None
            while process.poll() is None:
                if first_line is None and _periods(folder):
                    first_line = time.time()
                time.sleep(POLL_SECONDS)
            if process.returncode:
                log.seek(0)
                sys.exit(log.read())
        periods = _periods(folder)
    assert first_line is not None
    speed = measuring.median_of([period["throughput"] for period in periods if not period["compiling"]]) or 0.0
    later_steps = (steps - 1) * MICRO_BATCH / speed
    memory = resource.getrusage(resource.RUSAGE_CHILDREN).ru_maxrss / 1024
    return {SPEED: speed, FIRST_STEP: first_line - started - later_steps, MEMORY: memory}


def _periods(folder: Path) -> list[dict[str, Any]]:
    """Return the logging periods that the run has written so far."""
    files = folder.glob("output/**/metrics.jsonl")
    return [json.loads(line) for file in files for line in file.read_text(encoding="utf-8").splitlines()]


def _config_of(a: Architecture, steps: int, folder: Path) -> dict[str, Any]:
    """Return a config of a first execution that compiles, and two that are measured."""
    sizes = ("vocab_size", "hidden_size", "num_hidden_layers", "num_attention_heads", "intermediate_size")
    dropout = ("hidden_dropout_prob", "attention_probs_dropout_prob")
    biases = ("use_qkv_bias", "use_qkv_split", "use_projection_bias", "use_cls_layer")
    return {
        "generated_dataset": True,
        "output_dir": str(folder / "output"),
        "max_seq_length": SEQUENCE_LENGTH,
        "max_predictions_per_seq": MASKED_POSITIONS,
        "total_num_train_samples": 3 * steps * MICRO_BATCH,
        "global_batches_per_log": steps,
        "global_batch": {"micro_batch_size": MICRO_BATCH, "grad_acc_steps_per_replica": 1, "replicas": 1},
        "bert_config": {name: getattr(a, name) for name in (*sizes, *dropout)},
        **{name: getattr(a, name) for name in biases},
        "optimizer_opts": {
            "name": "AdamW",
            "weight_decay_rate": WEIGHT_DECAY,
            "learning_rate": {"max_learning_rate": LEARNING_RATE, "warmup_frac": 0.1},
        },
        "execution": {"platform": "software", "device": "cpu"},
    }


# --- Figures; variants are (competitor, size) ---


def ratio(measured: measuring.Measured, competitor: str, size: str) -> float | None:
    """Return this project's speed over a competitor's: within each round, then the median."""
    return measuring.median_of(measured.ratios((OURS, size), (competitor, size), SPEED))


def ratio_to_best(measured: measuring.Measured, competitors: Sequence[str], size: str) -> float | None:
    """Return the ratio to the fastest of several."""
    ratios = [ratio(measured, competitor, size) for competitor in competitors]
    return min((value for value in ratios if value is not None), default=None)


def gemm_shares(measured: measuring.Measured, size: str) -> list[float]:
    """Return our model FLOP/s over the rate of matrix products, within each round."""
    speeds, limits = measured.values((OURS, size), SPEED), measured.values((GEMM, size), GFLOPS)
    return [speed * flops_per_sample(size) * 1e-9 / limit for speed, limit in zip(speeds, limits)]


def memory_share(measured: measuring.Measured, size: str) -> float | None:
    """Return our peak memory over that of the most frugal competitor."""
    ours = measured.median((OURS, size), MEMORY)
    theirs = [value for value in (measured.median((name, size), MEMORY) for name in OTHERS) if value is not None]
    return ours / min(theirs) if ours is not None and theirs else None


def goals(measured: measuring.Measured, sizes: Sequence[str]) -> list[measuring.Goal]:
    """Return what is to be reached at these sizes, and what was."""
    wanted: list[measuring.Goal] = []
    for size in sizes:
        over = {"mini": (3.0, 2.5), "base": (1.7, 1.7)}.get(size)
        if over:
            best = ratio_to_best(measured, TENSORFLOW, size)
            wanted.append(measuring.Goal(f"{size}: speed over HF TensorFlow, the better", over[0], best))
            wanted.append(
                measuring.Goal(f"{size}: speed over HF PyTorch, eager", over[1], ratio(measured, PYTORCH, size))
            )
        tuned, memory = ratio(measured, PYTORCH_TUNED, size), memory_share(measured, size)
        wanted.append(measuring.Goal(f"{size}: speed over HF PyTorch, tuned by hand", 1.2, tuned))
        wanted.append(measuring.Goal(f"{size}: peak memory over the least of the others", 1.0, memory, at_least=False))
        if size == "base":
            share = measuring.median_of(gemm_shares(measured, size))
            wanted.append(measuring.Goal("base: model FLOP/s of the matrix-product rate", 0.8, share, form="{:.0%}"))
            first = measured.median((OURS, size), FIRST_STEP)
            title = "base: start of the process to first step done"
            wanted.append(measuring.Goal(title, 30.0, first, at_least=False, form="{:.1f} s"))
    return wanted


# --- The report ---


def report(measured: measuring.Measured, sizes: Sequence[str], competitors: Sequence[str], rounds: int) -> list[str]:
    """Return everything that a run of the benchmark found."""
    trained = [name for name in competitors if name != GEMM]

    def table(title: str, name: str, form: str) -> str:
        rows = [[title, *sizes]]
        for competitor in trained:
            cells = [measuring.spread(measured.values((competitor, size), name), form) for size in sizes]
            rows.append([COMPETITORS[competitor].title, *cells])
        return measuring.markdown(rows)

    parts = [
        f"BERT pre-training with dropout and AdamW in float32: sequence {SEQUENCE_LENGTH}, {MASKED_POSITIONS}"
        f" predictions, micro batch {MICRO_BATCH}, vocabulary {VOCABULARY:,}. Each figure is the median (min–max) of"
        f" {rounds} processes, run in alternation; ratios are taken within a round.",
        table("samples/s", SPEED, "{:.2f}"),
    ]
    if OURS in competitors:
        parts += [_ratio_table(measured, sizes, competitors), _limit_table(measured, sizes)]
    parts += [
        table("peak memory of the process, MiB", MEMORY, "{:,.0f}"),
        table("start of the process to first step done, s", FIRST_STEP, "{:.1f}"),
    ]
    if OURS in competitors:
        parts.append(measuring.goal_table(goals(measured, sizes)))
    return parts


def _ratio_table(measured: measuring.Measured, sizes: Sequence[str], competitors: Sequence[str]) -> str:
    rows = [["this project is faster than", *sizes]]
    if set(TENSORFLOW) <= set(competitors):
        best = [ratio_to_best(measured, TENSORFLOW, size) for size in sizes]
        rows.append(["HF TensorFlow, the better of both", *(_cell(value, "{:.2f} ×") for value in best)])
    for name in (*OTHERS, GENERATED):
        if name in competitors:
            cells = [measuring.spread(measured.ratios((OURS, size), (name, size), SPEED), "{:.2f} ×") for size in sizes]
            rows.append([COMPETITORS[name].title, *cells])
    return measuring.markdown(rows)


def _limit_table(measured: measuring.Measured, sizes: Sequence[str]) -> str:
    """Return the model's operations beside the machine's matrix products."""
    speeds = {size: measured.values((OURS, size), SPEED) for size in sizes}
    ours = {size: [value * flops_per_sample(size) * 1e-9 for value in values] for size, values in speeds.items()}
    return measuring.markdown(
        [
            ["GFLOP/s", *sizes],
            ["this project, operations of the model", *(measuring.spread(ours[size], "{:.0f}") for size in sizes)],
            [
                "matrix products alone",
                *(measuring.spread(measured.values((GEMM, size), GFLOPS), "{:.0f}") for size in sizes),
            ],
            ["share", *(measuring.spread(gemm_shares(measured, size), "{:.0%}") for size in sizes)],
        ]
    )


def _cell(value: float | None, form: str) -> str:
    return measuring.NOTHING if value is None else form.format(value)


def parse(arguments: Sequence[str] | None) -> argparse.Namespace:
    parser = measuring.parser_of("pretraining", __doc__)
    published = ["mini", "small", "base"]
    parser.add_argument("--sizes", nargs="+", choices=SIZES, default=published, help="default: mini small base")
    others = [name for name in COMPETITORS if name != GENERATED]
    text = f"default: all but {GENERATED}"
    parser.add_argument("--competitors", nargs="+", choices=COMPETITORS, default=others, help=text)
    text = "also run_pretraining.py itself, on generated data: is the command as fast as its engine?"
    parser.add_argument("--generated", action="store_true", help=text)
    measuring.add_rounds(parser, 3)
    parser.add_argument("--steps", type=measuring.at_least_one, help="measured steps of a process; default: by size")
    parser.add_argument(
        "--warm-up", type=measuring.at_least_one, default=3, help="steps before those (default %(default)s)"
    )
    parser.add_argument("--markdown", type=Path, metavar="FILE", help="write the tables")
    options = parser.parse_args(arguments)
    if options.generated and GENERATED not in options.competitors:
        options.competitors = [*options.competitors, GENERATED]
    return options


@measuring.command_line
def main(arguments: Sequence[str] | None = None) -> int:
    """Measure, and print the tables on standard output."""
    options = parse(arguments)
    is_pytorch = any(COMPETITORS[name].framework == "TORCH" for name in options.competitors)
    measuring.require(["torch"] if is_pytorch else [], otherwise="leave PyTorch out with --competitors")
    facts = measuring.facts_of_machine()

    def process(competitor: str, size: str) -> measuring.Values:
        steps, fix = options.steps or SIZES[size].steps, f"leave {competitor} out with --competitors"
        job = {"competitor": competitor, "size": size, "warm_up": options.warm_up, "steps": steps}
        return measuring.in_process(
            measure, measuring.only(COMPETITORS[competitor].framework), fix, **job, started=time.time()
        )

    def save(measured: measuring.Measured) -> None:
        medians = {
            size: {
                name: {value: measured.median((name, size), value) for value in (SPEED, MEMORY, FIRST_STEP)}
                for name in options.competitors
                if name != GEMM
            }
            for size in options.sizes
        }
        reached = [{**goal._asdict(), "reached": goal.reached} for goal in goals(measured, options.sizes)]
        facts_and_figures = {"machine": facts, "medians": medians, "targets": reached}
        measuring.write_json(options.json, {**facts_and_figures, "measurements": measured.as_json()})

    variants = {(name, size): partial(process, name, size) for size in options.sizes for name in options.competitors}
    measured = measuring.alternate(variants, options.rounds, save)
    parts = report(measured, options.sizes, options.competitors, options.rounds)
    if options.markdown:
        options.markdown.write_text("\n\n".join(parts) + "\n", encoding="utf-8")
    measuring.print_report(*parts)
    return 0


if __name__ == "__main__":
    sys.exit(main())
