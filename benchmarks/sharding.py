"""The optimizer's memory in each process, with and without sharding: ``python -m benchmarks.sharding --processes 2``.

Weights of the shapes of a BERT get one LAMB update in every process; no model is run.
"""

from __future__ import annotations

import argparse
import json
import sys
import tempfile
from pathlib import Path
from typing import Any

from benchmarks import measuring
from benchmarks.settings import SIZES, make_architecture

WHOLE, SHARDED = "whole", "sharded"


def measure(size: str, folder: str) -> None:
    """Write the bytes of the moments of this process, one of several, with and without sharding."""
    from execution.select import processes_for
    from model.huggingface import build_hf_model
    from model.tasks import PRETRAINING

    processes = processes_for("software")
    processes.join()
    shapes = [weight.shape for weight in build_hf_model(PRETRAINING, make_architecture(size), 0).trainable_weights]
    sizes = {name: moments(shapes, processes, name == SHARDED) for name in (SHARDED, WHOLE)}
    (Path(folder) / f"{processes.index}.json").write_text(json.dumps(sizes), encoding="utf-8")
    processes.barrier()


def moments(shapes: list[Any], processes: Any, sharded: bool) -> int:
    """Return the bytes of an optimizer that has made one update."""
    from execution.interface import OptimizerSettings
    from execution.software.platform import SoftwarePlatform
    from keras_extensions.backend import tf
    from keras_extensions.schedules import UpDown

    platform = SoftwarePlatform(0, xla=False, recompute=False, processes=processes, sharded=sharded)
    weights = [tf.Variable(tf.fill(shape, 0.01)) for shape in shapes]
    optimizer = platform.optimizer(OptimizerSettings("LAMB", UpDown(1e-3, 10, 0.1)))
    optimizer.build(weights)
    update = tf.function(lambda gradients: optimizer.apply_gradients(zip(gradients, weights)), autograph=False)
    update([tf.fill(weight.shape, 0.01) for weight in weights])
    return sum(variable.numpy().nbytes for variable in optimizer.variables)


ARGUMENTS: dict[str, dict[str, Any]] = {
    "--processes": {"type": int, "default": 2, "help": "that share the optimizer"},
    "--size": {"choices": SIZES, "default": "base", "help": "of the BERT"},
}


@measuring.benchmark(ARGUMENTS)
def main(options: argparse.Namespace) -> list[str]:
    rows = [["process", "whole, MB", "sharded, MB", "less"]]
    with tempfile.TemporaryDirectory() as folder:
        child = measuring.child_arguments(measure, size=options.size, folder=folder)
        measuring.command("-m", "execution.launch", "--processes", options.processes, "--", *child)
        measured = {path.stem: json.loads(path.read_text(encoding="utf-8")) for path in Path(folder).glob("*.json")}
    for process, sizes in sorted(measured.items()):
        less = 1 - sizes[SHARDED] / sizes[WHOLE]
        rows.append([process, f"{sizes[WHOLE] / 1e6:.1f}", f"{sizes[SHARDED] / 1e6:.1f}", f"{less:.1%}"])
    about = f"BERT-{options.size}, optimizer of each of {options.processes} processes"
    return [about, measuring.markdown(rows)]


if __name__ == "__main__":
    sys.exit(main())
