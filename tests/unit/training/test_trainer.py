"""A run that is resumed only to be evaluated has the weights of its checkpoint wherever it predicts."""

from __future__ import annotations

import logging
from types import SimpleNamespace
from typing import Any

import numpy as np

from checkpoints.folder import find_checkpoint
from execution.processes import Processes
from keras_extensions.backend import tf
from model.losses import ClassificationObjective
from model.tasks import CLASSIFICATION, PRETRAINING
from settings.schema import TrainingConfig
from tests.support.bert_pairs import architecture, on_cpu
from tests.support.hf_models import built, hugging_face
from tests.support.saved_checkpoints import STEP, save
from training.initial_weights import ResumedWeights
from training.resume import Position
from training.run_folder import RunFolder
from training.task import BuiltModel
from training.trainer import fit_and_evaluate, log_next_command


def test_processes_beside_the_chief_predict_with_the_weights_of_a_resumed_run(tmp_path):
    """IPUs execute the same programs in all processes."""
    saved = save(CLASSIFICATION, {}, tmp_path / "checkpoints")
    checkpoint, platform = find_checkpoint(tmp_path / "checkpoints"), on_cpu()
    platform.all_processes_predict = True
    model, blocks = built(CLASSIFICATION, hugging_face(CLASSIFICATION), architecture(), True)
    for variable in model.weights:
        variable.assign(tf.zeros_like(variable))
    seen: list[np.ndarray] = []

    def evaluate(predict: Any, folder: Any) -> dict[str, float]:
        seen.extend(model.get_weights())
        return {}

    config = TrainingConfig.model_validate({"do_training": False, "report": False})
    task = SimpleNamespace(
        build=lambda platform, set_initial_weights: BuiltModel(blocks, None, model), evaluate=evaluate,
        objective=ClassificationObjective(),
    )  # fmt: skip
    context: Any = SimpleNamespace(
        config=config, task=task, platform=platform, processes=Processes(2, 1), listeners=[],
        run=RunFolder.create(str(tmp_path), "run"), position=Position(STEP, checkpoint=checkpoint),
    )  # fmt: skip
    fit_and_evaluate(context, None, ResumedWeights(checkpoint))
    for ours, expected in zip(seen, saved.model.get_weights(), strict=True):
        np.testing.assert_array_equal(ours, expected)
    assert not context.run.history.finished, "the same command without do_training false still continues it"


def test_the_next_command_names_the_folder_of_the_checkpoints(tmp_path, caplog):
    caplog.set_level(logging.INFO)
    for elsewhere, named in ((None, tmp_path / "run"), (str(tmp_path / "kept"), tmp_path / "kept")):
        context: Any = SimpleNamespace(
            config=TrainingConfig.model_validate({"save_ckpt_path": elsewhere}),
            task=SimpleNamespace(name=PRETRAINING), run=RunFolder(tmp_path / "run"),
        )  # fmt: skip
        log_next_command(context)
        assert caplog.messages[-1].endswith(f"--checkpoint {named} --output {tmp_path / 'run'}-export")
