"""The optimizer's memory in each process, with and without replicated tensor sharding.

``python -m benchmarks.sharding --replicas 2 --size base``. Weights of the shapes of a BERT get one LAMB update in every
process; no model is run.
"""

from __future__ import annotations

import json
import sys
import tempfile
from collections.abc import Sequence
from pathlib import Path
from typing import Any

from benchmarks import measuring
from benchmarks.settings import SIZES, VOCABULARY

POSITIONS = 512


def shapes_of(size: str) -> list[tuple[int, ...]]:
    """Return the shapes of the weights of a BERT with all biases."""
    hidden = SIZES[size].hidden
    norm, square = [(hidden,), (hidden,)], (hidden, hidden)
    layer = [*[square, (hidden,)] * 4, (hidden, 4 * hidden), (4 * hidden,), (4 * hidden, hidden), (hidden,), *norm * 2]
    embeddings: list[tuple[int, ...]] = [(VOCABULARY, hidden), (POSITIONS, hidden), (2, hidden), *norm]
    heads = [square, (hidden,), *[square, (hidden,)], *norm, (VOCABULARY,), (hidden, 2), (2,)]
    return [*embeddings, *layer * SIZES[size].layers, *heads]


def measure(size: str, folder: str) -> None:
    """Write the bytes of the moments of this process, one of several, with and without sharding."""
    from execution.select import processes_for

    processes = processes_for("software")
    processes.join()
    found = {name: _moments(size, processes, name == "sharded") for name in ("sharded", "whole")}
    (Path(folder) / f"{processes.index}.json").write_text(json.dumps(found), encoding="utf-8")
    processes.barrier()


def _moments(size: str, processes: Any, sharded: bool) -> int:
    """Return the bytes of an optimizer that has made one update."""
    from execution.interface import OptimizerSettings
    from execution.software.platform import SoftwarePlatform
    from keras_extensions.backend import tf
    from keras_extensions.schedules import UpDown

    platform = SoftwarePlatform(0, xla=False, recompute=False, processes=processes, sharded=sharded)
    weights = [tf.Variable(tf.fill(shape, 0.01)) for shape in shapes_of(size)]
    optimizer = platform.optimizer(OptimizerSettings("LAMB", UpDown(1e-3, 10, 0.1)))
    optimizer.build(weights)
    update = tf.function(lambda gradients: optimizer.apply_gradients(zip(gradients, weights)), autograph=False)
    update([tf.fill(weight.shape, 0.01) for weight in weights])
    return sum(variable.numpy().nbytes for variable in optimizer.variables)


@measuring.command_line
def main(arguments: Sequence[str] | None = None) -> int:
    """Start the processes and print what each of them held."""
    parser = measuring.parser_of("sharding", __doc__)
    parser.add_argument("--replicas", type=int, default=2, help="processes (default %(default)s)")
    parser.add_argument("--size", choices=SIZES, default="base", help="of the BERT (default %(default)s)")
    options = parser.parse_args(arguments)
    rows = [["process", "whole, MB", "sharded, MB", "less"]]
    with tempfile.TemporaryDirectory() as folder:
        child = measuring.child_arguments(measure, size=options.size, folder=folder)
        measuring.command("-m", "execution.launch", "--replicas", options.replicas, "--", *child)
        for path in sorted(Path(folder).glob("*.json")):
            found = json.loads(path.read_text(encoding="utf-8"))
            whole, sharded = found["whole"], found["sharded"]
            rows.append([path.stem, f"{whole / 1e6:.1f}", f"{sharded / 1e6:.1f}", f"{1 - sharded / whole:.1%}"])
    measuring.print_report(
        f"BERT-{options.size}, optimizer of each of {options.replicas} processes", measuring.markdown(rows)
    )
    return 0


if __name__ == "__main__":
    sys.exit(main())
