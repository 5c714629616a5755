"""A rewind goes back to a checkpoint of the run itself from before the divergence."""

from __future__ import annotations

from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pytest

from checkpoints.folder import WEIGHTS, Checkpoint, read_description
from execution.processes import SINGLE_PROCESS
from keras_extensions.listeners.safeguards import DivergenceError
from model.architecture import Architecture
from tests.support.config_files import TINY, load_config, write
from tests.support.run_folders import write_step
from training.checkpointing import RunCheckpoints, rewind
from training.resume import Position
from training.run_context import Plan
from training.run_folder import RunFolder
from utilities.errors import UserError


def save(folder: Path, step: int, identity: str | None) -> Path:
    return write_step(folder, step, {"run": identity, **Position().description(step, 5.0, 24, "data")})


def rewound(tmp_path: Path, run: RunFolder, resumed: Path, error: DivergenceError) -> Position:
    """Return the position after the divergence of a run that was resumed from a checkpoint in another folder."""
    flags = ["--save-ckpt-path", str(tmp_path / "now"), "--keep-last", "1", "--on-divergence", "rewind"]
    context: Any = SimpleNamespace(
        config=load_config("pretraining", ["--config", str(write(tmp_path, TINY)), *flags]).config,
        task=SimpleNamespace(name="pretraining"), architecture=Architecture(), trained_positions=128, run=run,
        platform=SimpleNamespace(precision="float32"), processes=SINGLE_PROCESS, listeners=[],
        position=Position.of(Checkpoint(resumed / WEIGHTS, read_description(resumed))), fits_data=False,
    )  # fmt: skip
    data: Any = SimpleNamespace(reader=None, plan=Plan(100, 1, 1, 1.0), identity="data")
    state: Any = None
    return rewind(context, RunCheckpoints(context, data, state, lambda: 9.0), error)


def test_checkpoints_of_another_run_in_an_earlier_folder_are_neither_used_nor_renamed(tmp_path):
    run, earlier = RunFolder.create(str(tmp_path), "mine", "pretraining"), tmp_path / "earlier"
    own, others = save(earlier, 8, run.identity), [save(earlier, step, "other") for step in (9, 14)]
    diverged = save(tmp_path / "now", 12, run.identity)
    position = rewound(tmp_path, run, own, DivergenceError(13, 1, "the loss is nan"))
    assert (position.step, position.skipped, position.rewinds) == (8, (11, 12), 1)
    assert position.checkpoint is not None and position.checkpoint.folder == own
    assert all(path.is_dir() for path in others) and not diverged.exists()
    description = read_description(own)
    assert (description["data"]["skipped_batches"], description["rewinds"]) == ([11, 12], 1)
    assert description["seconds"] == position.seconds == 5.0, "a resumed run counts the same time"


def test_without_a_checkpoint_from_before_the_divergence_keep_last_is_named(tmp_path):
    run = RunFolder.create(str(tmp_path), "mine", "pretraining")
    resumed = save(tmp_path / "now", 12, run.identity)
    with pytest.raises(UserError, match=r"no earlier checkpoint .* raise keep_last \(1\)"):
        rewound(tmp_path, run, resumed, DivergenceError(13, 3, "the loss is 9"))
