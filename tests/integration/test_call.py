"""The Python call trains as the command does: to the same bits, repeatedly, from any thread; and the guide runs."""

from __future__ import annotations

import gc
import logging
import random
import re
import signal
import threading
import weakref
from pathlib import Path
from typing import TYPE_CHECKING, Any

import numpy as np
import pytest
from transformers import BertTokenizerFast

from checkpoints.export.hf_folder import export
from data_utils.classification.features import text_features
from data_utils.tokenizer import load_tokenizer
from execution.software.cluster.membership import Membership, tf_config  # room: cluster
from keras_extensions.backend import tf
from settings.schema import TrainingConfig
from tasks import train
from tests import ROOT
from tests.support import fine_tuning_runs
from tests.support.hf_models import tensorflow_model
from tests.support.runs import (
    assert_same_run,
    at_step,
    metrics,
    prepare_dataset,
    read_json,
    state,
    terminate,
    trained,
    write_config,
    write_csv,
    write_text,
)
from utilities.errors import Stopped, UserError

pytestmark = pytest.mark.slow

if TYPE_CHECKING:
    from training.trainer import Result


@pytest.fixture(scope="module")
def config(root: Path, dataset: Path) -> Path:
    return write_config(root / "tiny.json", dataset, updates=6, global_batches_per_log=3)


@pytest.fixture(scope="module")
def by_command(config: Path, root: Path) -> Path:
    return trained(config, root / "by-command", "--optimizer-opts.name", "LAMB", "--seed", "7")


def assert_same(result: Result, by_command: Path) -> None:
    assert_same_run(by_command, result.folder)
    assert result.history == metrics(result.folder) and len(result.history) == 2
    saved = [value for name, value in state(result.folder).items() if name.startswith("weights/")]
    own = sorted(weight.numpy().tobytes() for weight in result.model.trainable_variables)
    assert own == sorted(value.tobytes() for value in saved if getattr(value, "dtype", None) == np.float32)


def process_state() -> list[Any]:
    logger = logging.getLogger()
    handlers = [signal.getsignal(number) for number in (signal.SIGINT, signal.SIGTERM)]
    return [*handlers, list(logger.handlers), logger.level]


def test_calls_in_one_process_train_as_the_command(
    config: Path, by_command: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """A call in a thread, one that is interrupted, and one that resumes it; the memory of the first is freed."""
    before, values, results = process_state(), read_json(config), []
    overlays = [TrainingConfig.model_validate(values), {"optimizer_opts": {"name": "LAMB"}}, {"seed": 7}]
    thread = threading.Thread(
        target=lambda: results.append(train("pretraining", overlays, output_dir=tmp_path / "thread", name="first"))
    )
    thread.start()
    thread.join()
    assert results[0].folder == tmp_path / "thread" / "first"
    assert results[0].scores == {}
    assert_same(results[0], by_command)
    first = weakref.ref(used(results.pop()))

    with at_step(monkeypatch, 3, terminate), pytest.raises(Stopped, match="SIGTERM at step 3 of 6"):
        path = {"output_dir": tmp_path / "path", "name": "second"}
        train("pretraining", str(config), seed=7, optimizer_opts={"name": "LAMB"}, **path)
    overrides = {"optimizer_opts.name": "LAMB", "seed": 7, **path}
    second = train("pretraining", values, **overrides)
    assert values == read_json(config)
    assert_same(second, by_command)
    assert first() is None
    last = weakref.ref(second.model)
    del second
    gc.collect()
    assert last() is None
    assert process_state() == before


def used(result: Result) -> Any:
    """Return the model of a result after predictions and gradients, which trace graphs that refer to it."""
    model = result.model
    inputs = {name: np.ones((4, *shape[1:]), np.int32) for name, shape in model.input_shape.items()}
    outputs = model.predict(inputs, verbose=0)
    with tf.GradientTape() as tape:  # of the layers' own gradients
        loss = tf.reduce_sum(model(inputs)["next_sentence"])
    assert all(np.isfinite(value).all() for value in outputs.values())
    assert tape.gradient(loss, model.trainable_variables[0]) is not None
    return model


def test_the_returned_model_predicts_as_the_exported_one(tmp_path: Path) -> None:
    fine_tuning_runs.write_sst2(tmp_path)
    vocabulary = fine_tuning_runs.write_pieces(tmp_path / "vocab.txt", fine_tuning_runs.PIECES)
    path = fine_tuning_runs.write_config(tmp_path, "sst2", glue_task="sst2", num_epochs=2)
    result = train("classification", path, evaluation={"every": "epoch"})
    assert result.history == metrics(result.folder) and result.scores == read_json(result.folder / "scores.json")
    evaluations = [record["evaluation"] for record in result.history if "evaluation" in record]
    assert len(evaluations) == 2 and max(one["accuracy"] for one in evaluations) == result.scores["accuracy"]

    texts = ["the film is good", "a very dull story"]
    features = text_features(load_tokenizer(str(vocabulary), True), [(text,) for text in texts], 16)
    logits = result.model.predict(features.arrays, verbose=0)["logits"]
    export(str(result.folder), tmp_path / "exported")
    theirs = tensorflow_model(tmp_path / "exported")
    tokenizer = BertTokenizerFast.from_pretrained(str(tmp_path / "exported"))
    expected = theirs(tokenizer(texts, padding=True, return_tensors="tf")).logits
    np.testing.assert_allclose(logits, expected, atol=1e-5)


def test_threads_that_are_fixed_are_an_error_of_one_line(config: Path, tmp_path: Path) -> None:
    tf.zeros(1)  # fixes the number of threads
    with pytest.raises(UserError, match=r"\A.*restart Python.*\Z"):
        train("pretraining", config, **{"output_dir": tmp_path, "execution.threads": 63})


def test_several_processes_are_for_the_commands(config: Path, monkeypatch: pytest.MonkeyPatch) -> None:  # room: cluster
    monkeypatch.setenv("TF_CONFIG", tf_config(Membership(("localhost:1", "localhost:2"), 1)))
    with pytest.raises(UserError, match=r"one of 2 processes; start them with run_pretraining\.py"):
        train("pretraining", config)


def test_the_guide(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    prepare_dataset(tmp_path / "data" / "python", write_text(tmp_path / "text.txt"))
    chance = random.Random(0)
    rows = [(fine_tuning_runs.sentence(chance, word), word) for word in chance.choices(["good", "bad"], k=40)]
    write_csv(tmp_path / "reviews.csv", ["review", "sentiment"], rows)
    (tmp_path / "configs").symlink_to(ROOT / "configs")
    monkeypatch.chdir(tmp_path)
    guide = (ROOT / "guides" / "python.md").read_text(encoding="utf-8")
    cells = re.findall(r"^```python\n(.*?)^```$", guide, re.DOTALL | re.MULTILINE)
    assert len(cells) >= 4
    names: dict[str, Any] = {}
    without_xla = '"execution": {"platform": "software", "xla": False},'  # compiling would take most of the time
    for cell in cells:
        exec(
            compile(re.sub(r"^(config|start) = {", rf"\g<0>{without_xla}", cell, flags=re.MULTILINE), "cell", "exec"),
            names,
        )
    assert names["losses"][-1][1] < names["losses"][0][1]
    assert names["second"].history[0]["metrics"]["mlm_loss"] < names["losses"][0][1]
    assert "accuracy" in names["reviews"].scores
    assert {choice.label for choice in names["answer"]} == {"good", "bad"}
    assert sum(choice.probability for choice in names["answer"]) == pytest.approx(1)
    assert len(names["both"]) == 2 and names["both"][0][0].label == names["answer"][0].label
    assert [filling.blank for filling in names["fillings"]] == [1, 1, 1]
