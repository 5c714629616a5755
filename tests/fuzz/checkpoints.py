"""Mutated checkpoints. Loaded values must be bit-equal to those saved at the step that the checkpoint names."""

from __future__ import annotations

import json
import random
import shutil
from collections.abc import Sequence
from pathlib import Path
from typing import Any

import numpy as np

from checkpoints.folder import Checkpoint, find_checkpoint
from checkpoints.state import TrainingState, load_weights
from checkpoints.writer import write_checkpoint
from keras_extensions.backend import keras, tf
from tests.fuzz.damage import PATH_DAMAGE, Damage, apply, draw_bytes, draw_json, list_keys
from tests.fuzz.harness import ACCEPTED, REFUSED, WrongError, check_line
from training.resume import Position, newest_position
from training.run_folder import RunFolder
from utilities.errors import UserError
from utilities.secrets import shown_line

STEPS = (10, 20)


class Checkpoints:
    """A run with two checkpoints of a small model with its optimizer."""

    name = "checkpoints"

    def __init__(self, folder: Path) -> None:
        self._good = RunFolder.create(str(folder), "good").path
        self._folder = folder / "run"
        self._blocks = [keras.layers.Dense(3, name="emb"), keras.layers.Dense(2, name="heads")]
        for block, width in zip(self._blocks, (4, 3)):
            block.build((None, width))
        self._optimizer = keras.optimizers.Adam(0.1)
        self._variables = [variable for block in self._blocks for variable in block.trainable_variables]
        self._state = TrainingState(self._blocks, self._optimizer)
        run = RunFolder(self._good)
        self._saved: dict[int, list[np.ndarray]] = {}
        for step in STEPS:
            self._optimizer.apply_gradients([(tf.ones_like(v) * step, v) for v in self._variables])
            description = {
                **Position().description(step, 1.0, 8, "data"),
                "task": "pretraining",
                "run": run.identity,
                "seed": 1,
            }
            path = write_checkpoint(
                self._state.copy(), run.checkpoints(), step, {**description, "architecture": {"hidden_size": 3}}
            )
            self._saved[step] = self._values()
        self._files = sorted(file.name for file in path.iterdir())
        self._others = {
            f"{step}/{name}": (run.checkpoints() / f"step-{step:08d}" / name).read_bytes()
            for step in STEPS
            for name in self._files
        }
        self._others["a zip archive"] = b"PK\x03\x04" + bytes(60)
        self._keys = list_keys(json.loads(self._others["20/checkpoint.json"]))

    def _values(self) -> list[np.ndarray]:
        return [variable.numpy() for variable in [*self._variables, *self._optimizer.variables]]

    def draw(self, chance: random.Random) -> list[Damage]:
        drawn = [("ask", chance.choice(["run", "folder", "step", "prefix", "resume", "resume"]))]
        return drawn + [self._one(chance) for _ in range(chance.choice([1, 1, 1, 2, 3]))]

    def _one(self, chance: random.Random) -> Damage:
        folder = f"checkpoints/step-{chance.choice([10, 20, 20, 20]):08d}"
        name = f"{folder}/{chance.choice([*self._files, 'checkpoint.json'])}"
        kind = chance.choices(["bytes", "json", "path", "rename", "history"], [6, 4, 3, 1, 1])[0]
        if kind == "bytes":
            return draw_bytes(chance, name)
        if kind == "json":
            return draw_json(chance, f"{folder}/checkpoint.json", self._keys)
        if kind == "path":
            return (chance.choice(PATH_DAMAGE), name, chance.choice(sorted(self._others)))
        if kind == "history":
            return draw_bytes(chance, "history.jsonl")
        names = ["step-00000030", "step-30", "step-x", ".writing-step-00000020", ".replaced-step-00000020", "other"]
        return ("rename", folder, chance.choice(names))

    def attempt(self, mutations: Sequence[Damage]) -> str:
        shutil.rmtree(self._folder, ignore_errors=True)
        shutil.copytree(self._good, self._folder)
        (_, ask), *damages = mutations
        for damage in damages:
            self._apply(damage)
        for variable in self._variables:
            variable.assign(tf.zeros_like(variable))
        try:
            result = self._resumed() if ask == "resume" else find_checkpoint(self._asked(ask))
            if result is None:
                return REFUSED  # no checkpoint is used: the run begins again, and says so
            if result.description is None:
                load_weights(result, self._blocks)
            else:
                self._state.restore(result)
        except UserError as error:
            check_line(shown_line(str(error)), lambda line: str(self._folder) in line and ("; " in line or "(" in line))
            return REFUSED
        self._check(result)
        return ACCEPTED

    def _asked(self, ask: str) -> Path:
        last = self._folder / "checkpoints" / "step-00000020"
        return {"run": self._folder, "folder": last.parent, "step": last, "prefix": last / "weights"}[ask]

    def _resumed(self) -> Checkpoint | None:
        run = RunFolder(self._folder)
        if run.identity is None:
            return None
        position, notes = newest_position([run.checkpoints()], run)
        for note in notes:
            check_line(note, lambda line: str(self._folder) in line or "checkpoint" in line)
        return position.checkpoint

    def _apply(self, mutation: Damage) -> None:
        if mutation[0] == "rename":
            source = self._folder / mutation[1]
            target = source.with_name(mutation[2])
            if source.is_dir() and not target.exists():
                source.rename(target)
        else:
            apply(self._folder, mutation, self._others)

    def _check(self, result: Checkpoint) -> None:
        values = self._values()[: len(self._variables)] if result.description is None else self._values()
        steps = STEPS if result.description is None else (result.description["step"],)
        for step in steps:
            saved: list[Any] = self._saved.get(step, [])
            if saved and all(np.array_equal(a, b) for a, b in zip(values, saved)):
                return
        raise WrongError(f"{result.weights} of step {steps} holds other values than were saved")
