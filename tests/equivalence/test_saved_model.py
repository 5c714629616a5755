"""A SavedModel, loaded by TensorFlow alone, gives the outputs of the run's model and of PyTorch's."""

from __future__ import annotations

import subprocess
import sys
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from checkpoints.export.__main__ import main
from checkpoints.export.hf_folder import export
from checkpoints.pretrained.opening import open_pretrained
from model.tasks import CLASSIFICATION, PRETRAINING, SENTENCE_EMBEDDING, SQUAD, TOKEN_CLASSIFICATION
from tests.support.bert_pairs import architecture, batch
from tests.support.hf_models import outputs_of
from tests.support.pytorch_process import NEEDS_PYTORCH, run_pytorch
from tests.support.runs import read_json, write_json
from tests.support.saved_checkpoints import OPTIONS, Saved, save

pytestmark = pytest.mark.slow

PIECES = 118  # in vocab.txt; the tables have 120 rows
ALONE = {**OPTIONS["everything"], "use_next_sentence": False}
SEVERAL = {"classification_data": {"label_separator": ";"}}
# By name: the task, the options of its architecture, and what else is saved.
MODELS: dict[str, tuple[str, dict, dict[str, Any]]] = {
    "pretraining": (PRETRAINING, OPTIONS["everything"], {}),
    "as published": (PRETRAINING, OPTIONS["as published"], {}),
    "masked words alone": (PRETRAINING, ALONE, {}),
    "squad": (SQUAD, OPTIONS["as published"], {}),
    "classes": (CLASSIFICATION, OPTIONS["as published"], {}),
    "several labels": (CLASSIFICATION, OPTIONS["everything"], {"classes": 4, **SEVERAL}),
    "a number": (CLASSIFICATION, OPTIONS["everything"], {"classes": 1, "glue_task": "stsb"}),
    "tags": (TOKEN_CLASSIFICATION, OPTIONS["everything"], {"classes": 5}),
    "mean": (SENTENCE_EMBEDDING, OPTIONS["everything"], {}),
    "cls": (SENTENCE_EMBEDDING, {**OPTIONS["ReLU"], "pooling": "cls"}, {"embedding": {"pooling": "cls"}}),
}
NAMES = {"masked_lm": "prediction_logits", "next_sentence": "seq_relationship_logits"}
OF_TOKENS = ("prediction_logits", "start_logits", "end_logits", "last_hidden_state")

# Loads each folder by TensorFlow alone, and gives it all texts together, and each without its padding.
ALONE_WITH_TENSORFLOW = """
import sys
sys.modules.update(dict.fromkeys(("keras", "tf_keras", "transformers", "checkpoints", "model", "execution")))
import numpy as np
import tensorflow as tf
data = dict(np.load(sys.argv[1]))
for folder in sys.argv[2:]:
    signatures = tf.saved_model.load(folder + "/saved_model/1").signatures
    serve, one_text = signatures["serving_default"], signatures["one_text"]
    results = {"padded": serve(**data)}
    for number, length in enumerate(data["attention_mask"].sum(axis=1)):
        row = {name: tf.constant(values[number : number + 1, :length]) for name, values in data.items()}
        results[f"row {number}"] = serve(**row)
        segments = row.pop("token_type_ids")
        results[f"one text {number}"] = one_text(**row)
        results[f"first segment {number}"] = serve(**row, token_type_ids=tf.zeros_like(segments))
    np.savez(folder + ".alone.npz", **{f"{key}/{name}": value.numpy() for key, outputs in results.items() for name, value in outputs.items()})
"""


def samples() -> dict[str, np.ndarray]:
    data = batch(architecture())
    return {**data, "input_ids": data["input_ids"] % PIECES}


def tokenized() -> dict[str, np.ndarray]:
    """Return the samples as a tokenizer of Hugging Face would."""
    names = {"input_ids": "input_ids", "attention_mask": "input_mask", "token_type_ids": "segment_ids"}
    return {theirs: samples()[ours] for theirs, ours in names.items()}


@pytest.fixture(scope="module")
def root(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return tmp_path_factory.mktemp("served")


@pytest.fixture(scope="module")
def saved(root: Path) -> dict[str, Saved]:
    """The models that were saved, of each of which ``root`` has the export, and what TensorFlow alone makes of it."""
    models = {}
    for name, (task, options, more) in MODELS.items():
        models[name] = save(task, options, root / "runs" / name / "checkpoints", pieces=PIECES, **more)
        export(str(root / "runs" / name), root / name, saved_model=True)
    export(str(root / "runs" / "squad"), root / "encoder", encoder_only=True, saved_model=True)
    write_json(root / "mean" / "modules.json", [*read_json(root / "mean" / "modules.json"), NORMALIZE])
    export(str(root / "mean"), root / "unit", saved_model=True)
    np.savez(root / "data.npz", **tokenized())
    command = [sys.executable, "-c", ALONE_WITH_TENSORFLOW, root / "data.npz"]
    folders = [root / name for name in (*MODELS, "encoder", "unit")]
    ended = subprocess.run([*command, *folders], cwd=root, capture_output=True, text=True, check=False)
    assert ended.returncode == 0, ended.stderr
    assert "WARNING" not in ended.stderr
    return models


NORMALIZE = {"idx": 2, "name": "2", "path": "2_Normalize", "type": "sentence_transformers.models.Normalize"}


def alone(root: Path, name: str, key: str = "padded") -> dict[str, np.ndarray]:
    """Return the outputs of TensorFlow alone for one of its inputs."""
    results = dict(np.load(root / f"{name}.alone.npz"))
    return {path.split("/")[1]: value for path, value in results.items() if path.startswith(f"{key}/")}


@pytest.mark.parametrize("name", MODELS)
def test_outputs_are_those_of_the_runs_model(name: str, root: Path, saved: dict[str, Saved]) -> None:
    data, found = samples(), alone(root, name)
    for output, expected in outputs_of(saved[name].model, data).items():
        theirs = NAMES.get(output, output)
        if output == "masked_lm":
            theirs = theirs if "prediction_logits" in found else "logits"
            found[theirs] = np.take_along_axis(found[theirs], data["masked_lm_positions"][..., None], axis=1)
            expected = expected[..., :PIECES]
        theirs = "sentence_embedding" if output == "embeddings" else theirs
        np.testing.assert_allclose(found.pop(theirs), expected, rtol=1e-6, atol=1e-6, err_msg=output)
    assert not found
