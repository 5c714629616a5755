"""Makes three updates of a very small BERT, in one process or shared by several.

    python -m execution.launch --processes 2 -- -m tests.support.replica_cases FOLDER further

writes the weights of each case into FOLDER; without ``further``, only those of the cases in every run of the suite.
"""

from __future__ import annotations

import functools  # room: pipeline
import sys
from collections.abc import Callable
from pathlib import Path
from typing import Any, NamedTuple

import numpy as np

from checkpoints.folder import find_checkpoint
from checkpoints.state import TrainingState
from checkpoints.writer import write_checkpoint
from execution.interface import OptimizerSettings, Update
from execution.processes import Processes
from execution.select import processes_for
from execution.software.platform import SoftwarePlatform
from execution.software.precision import FLOAT32, MIXED, Numerics
from keras_extensions.schedules import WarmUp
from model.blocks import hidden_matrices
from model.huggingface import build_hf_model
from model.losses import PretrainingObjective
from model.tasks import PRETRAINING
from pipeline.platform import PipelinePlatform, pipeline_devices  # room: pipeline
from tests.support.bert_pairs import Pair, architecture, batch, dataset_of, on_cpu, pair_of, weights_by_name
from tests.support.sparse_cases import SPARSE, pattern_change  # room: sparsity
from tests.support.updates import make_updates

UPDATES, MICRO_BATCHES, MICRO_BATCH_SIZE = 3, 8, 2
STAGES = [["emb", "hid_0"], ["hid_1"], ["enc_out", "pool", "heads"]]
DEVICES = ("/CPU:0", "/CPU:1", "/CPU:0")  # the embedding is tied to the heads, so both are on one device


class Case(NamedTuple):
    optimizer: str
    sharded: bool = False
    pipelined: bool = False
    reduction: str = "mean"
    clipped: bool = False
    sparse: bool = False  # room: sparsity
    offchip: bool = False
    precision: str = FLOAT32
    resumed: bool = False

    @property
    def name(self) -> str:
        options = [name for name, value in self._asdict().items() if value is True]
        return "-".join([self.optimizer, self.reduction, self.precision, *options])


CASES = [
    Case("AdamW", sharded=True, clipped=True, sparse=True),  # room: sparsity
    Case("AdamW", precision=MIXED),
    Case("AdamW", precision=MIXED, resumed=True),
    Case("Muon", sharded=True, pipelined=True, clipped=True, reduction="running_mean", offchip=True),  # room: pipeline
]
MORE = [
    Case("LAMB", reduction="sum"),
    Case("LAMB", sharded=True, pipelined=True, reduction="running_mean", offchip=True),  # room: pipeline
    Case("Muon", sharded=True, precision=MIXED),
    Case("Muon", sharded=True, precision=MIXED, resumed=True),
]
FURTHER = {  # by number of processes
    2: [
        *(*MORE, Case("AdamW"), Case("LAMB", sharded=True), Case("Muon")),
        Case("Muon", sharded=True, sparse=True),  # room: sparsity
    ],
    4: [*CASES, *MORE],
}


class Training(NamedTuple):
    pair: Pair
    optimizer: Any
    state: TrainingState


def compiled(case: Case, processes: Processes) -> Training:
    """Return a new model with the chief's random weights."""
    options: dict[str, Any] = {"hidden_dropout_prob": 0.1, "attention_probs_dropout_prob": 0.1}
    options.update(SPARSE if case.sparse else {})  # room: sparsity
    a = architecture(**options)
    kind: Any = SoftwarePlatform
    kind = functools.partial(PipelinePlatform, DEVICES) if case.pipelined else kind  # room: pipeline
    on = on_cpu(
        kind,
        numerics=Numerics(case.precision),
        processes=processes,
        sharded=case.sharded,
        state_device="/CPU:0" if case.offchip else None,  # some of the pipelined weights are on /CPU:1
    )
    source = build_hf_model(PRETRAINING, a, seed=11 if processes.is_chief else 12)  # others begin with other weights
    pair = pair_of(source, a, on, stages=STAGES if case.pipelined else None)
    norm = 0.5 if case.clipped else None
    matrices = hidden_matrices(pair.blocks)
    optimizer = on.optimizer(
        OptimizerSettings(case.optimizer, WarmUp(0.01, UPDATES, 0.4), max_gradient_norm=norm, matrices=matrices)
    )
    share = MICRO_BATCHES // processes.count
    update = Update(share, virtual_replicas=4 / processes.count, reduction=case.reduction)
    on.compile(pair.model, optimizer, PretrainingObjective(), update, 2)
    variables, shards = pair.model.trainable_variables, on.shards(optimizer)
    state = TrainingState(pair.blocks, on.state(optimizer), variables, shards=shards)
    state.restore_on_all(None, processes)
    return Training(pair, optimizer, state)


def weights_after(case: Case, processes: Processes, folder: Path | None = None) -> tuple[dict[str, np.ndarray], Any]:
    """Return the weights by name, and the means since the start or the resume from a checkpoint in ``folder``."""
    size, share = MICRO_BATCHES * MICRO_BATCH_SIZE, MICRO_BATCHES // processes.count
    own = slice(processes.index * size // processes.count, (processes.index + 1) * size // processes.count)
    updates = [{n: v[own] for n, v in batch(architecture(), size, seed=step).items()} for step in range(UPDATES)]
    trained = compiled(case, processes)
    if case.resumed:
        fitted(trained, updates[:2], share)
        trained = resumed(trained.state, case, processes, folder)
        updates = updates[2:]
    change = None
    change = pattern_change(trained, processes) if case.sparse else None  # room: sparsity
    means = fitted(trained, updates, share, change)
    return weights_by_name(trained.pair.blocks), means


def fitted(
    trained: Training, updates: list[Any], micro_batches: int, after: Callable[[int], None] | None = None
) -> dict[str, float]:
    """Train in calls of at most two updates, and return the means of the last call."""
    pair, data = trained.pair, dataset_of(updates, micro_batches)
    return make_updates(pair.platform, pair.model, data, len(updates), per_call=2, after=after)[-1]


def resumed(state: TrainingState, case: Case, processes: Processes, folder: Path) -> Training:
    """Save the state, and return a new model that continues from it."""
    copy = state.copy()
    if processes.is_chief:
        write_checkpoint(copy, folder, 2, {})
    processes.barrier()
    trained = compiled(case, processes)
    trained.state.restore_on_all(find_checkpoint(folder), processes)
    return trained


def main(folder: Path, further: bool) -> None:
    processes = processes_for("software")
    pipeline_devices(2)  # room: pipeline
    processes.join()
    for case in FURTHER[processes.count] if further else CASES:
        weights, metrics = weights_after(case, processes, folder / f"{case.name}-checkpoints")
        np.savez(
            folder / f"{case.name}-{processes.index}.npz", **weights, **{f"metric_{n}": m for n, m in metrics.items()}
        )
    decision = processes.decide(lambda: {"text": "größer", "of": processes.index})
    assert decision == {"text": "größer", "of": 0}, decision
    assert processes.maximum(processes.index) == processes.count - 1
    arrays = [np.array([1.5, -0.0], np.float64) * (1 + processes.index), np.arange(3, dtype=np.int8) + processes.index]
    back = processes.broadcast(arrays)
    assert back[0].tobytes() == np.array([1.5, -0.0]).tobytes() and back[1].tolist() == [0, 1, 2]
    processes.barrier()


if __name__ == "__main__":
    main(Path(sys.argv[1]), "further" in sys.argv)
