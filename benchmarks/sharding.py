"""Memory of the optimizer in each process, with and without replicated tensor sharding.

    python -m benchmarks.sharding --replicas 2 --size base

Weights of the shapes of a BERT get one LAMB update in every process; no model is run.
"""

from __future__ import annotations

import argparse
import json
import subprocess
import sys
import tempfile
from pathlib import Path
from typing import Any

VOCABULARY, POSITIONS = 30_528, 512
SIZES = {"tiny": (2, 128), "mini": (4, 256), "small": (4, 512), "base": (12, 768)}  # layers, hidden size


def shapes_of(size: str) -> list[tuple[int, ...]]:
    """Shapes of the weights of a BERT with all biases."""
    layers, hidden = SIZES[size]
    norm, square = [(hidden,), (hidden,)], (hidden, hidden)
    layer = [*[square, (hidden,)] * 4, (hidden, 4 * hidden), (4 * hidden,), (4 * hidden, hidden), (hidden,), *norm * 2]
    embeddings: list[tuple[int, ...]] = [(VOCABULARY, hidden), (POSITIONS, hidden), (2, hidden), *norm]
    heads = [square, (hidden,), *[square, (hidden,)], *norm, (VOCABULARY,), (hidden, 2), (2,)]
    return [*embeddings, *layer * layers, *heads]


def measure(size: str, folder: Path) -> None:
    """In one process: the moments' bytes with and without sharding."""
    from execution.select import processes_for

    processes = processes_for("software")
    processes.join()
    found = {name: optimizer_memory(size, processes, name == "sharded") for name in ("sharded", "whole")}
    (folder / f"{processes.index}.json").write_text(json.dumps(found), encoding="utf-8")
    processes.barrier()


def optimizer_memory(size: str, processes: Any, sharded: bool) -> dict[str, int]:
    """Bytes of an optimizer that has made one update."""
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
    return {"moments": sum(variable.numpy().nbytes for variable in optimizer.variables)}


def main() -> None:
    """Starts the processes and prints what each of them held."""
    parser = argparse.ArgumentParser(description=(__doc__ or "").partition("\n")[0])
    parser.add_argument("--replicas", type=int, default=2, help="processes")
    parser.add_argument("--size", choices=SIZES, default="base", help="of the BERT")
    parser.add_argument("--folder", type=Path, help=argparse.SUPPRESS)  # of a process that was started here
    options, _ = parser.parse_known_args()
    if options.folder is not None:
        measure(options.size, options.folder)
        return
    with tempfile.TemporaryDirectory() as folder:
        command = [sys.executable, "-m", "execution.launch", "--replicas", str(options.replicas), "--"]
        command += ["-m", "benchmarks.sharding", "--size", options.size, "--folder", folder]
        subprocess.run(command, check=True)
        print(f"BERT-{options.size}, optimizer of each of {options.replicas} processes, in MB")
        print(f"{'process':<10}{'whole':>10}{'sharded':>10}{'less':>8}")
        for path in sorted(Path(folder).glob("*.json")):
            found = json.loads(path.read_text(encoding="utf-8"))
            row = f"{path.stem:<10}"
            whole, sharded = found["whole"]["moments"], found["sharded"]["moments"]
            print(f"{row}{whole / 1e6:>10.1f}{sharded / 1e6:>10.1f}{1 - sharded / whole:>8.1%}")


if __name__ == "__main__":
    main()
