"""A SavedModel, loaded by TensorFlow alone, gives the outputs of the run's model and those of PyTorch."""

from __future__ import annotations

import json
import os
import re
import shlex
import subprocess
import sys
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from safetensors.numpy import load_file, save_file

from checkpoints.export.__main__ import main
from checkpoints.export.hf_folder import export
from checkpoints.export.saved_model import write_saved_model
from model.tasks import CLASSIFICATION, PRETRAINING, SENTENCE_EMBEDDING, SQUAD, TOKEN_CLASSIFICATION
from tasks import load
from tests import ROOT
from tests.support.command_errors import assert_refused
from tests.support.hf_models import outputs_of
from tests.support.pytorch_process import NEEDS_PYTORCH, run_pytorch
from tests.support.runs import read_json, write_json
from tests.support.saved_checkpoints import OPTIONS, PIECES, Saved, samples, save

pytestmark = pytest.mark.slow

# What TensorFlow writes to standard error while it is loaded, whatever its log level.
LOADING = ("All log messages before absl", "oneDNN custom operations", "cuda drivers", "register cu")
ALL, PUBLISHED = OPTIONS["everything"], OPTIONS["as published"]
SEVERAL = {"label_separator": ";"}
# By name: the task, the options of its architecture, and what else is saved.
MODELS: dict[str, tuple[str, dict[str, Any], dict[str, Any]]] = {
    "pretraining": (PRETRAINING, ALL, {}),
    "as published": (PRETRAINING, PUBLISHED, {}),
    "masked words alone": (PRETRAINING, {**PUBLISHED, "use_next_sentence": False}, {}),
    "squad": (SQUAD, PUBLISHED, {}),
    "classes": (CLASSIFICATION, PUBLISHED, {}),
    "several labels": (CLASSIFICATION, ALL, {"classes": 4, "classification_data": SEVERAL}),
    "a number": (CLASSIFICATION, ALL, {"classes": 1, "glue_task": "stsb"}),
    "tags": (TOKEN_CLASSIFICATION, ALL, {"classes": 5}),
    "mean": (SENTENCE_EMBEDDING, ALL, {}),
    "cls": (SENTENCE_EMBEDDING, {**ALL, "pooling": "cls"}, {"embedding": {"pooling": "cls"}}),
}
THEIRS = {
    "masked_lm": "prediction_logits", "next_sentence": "seq_relationship_logits", "embeddings": "sentence_embedding",
}  # fmt: skip
OF_TOKENS = ("prediction_logits", "start_logits", "end_logits", "last_hidden_state")
NORMALIZE = {"idx": 2, "name": "2", "path": "2_Normalize", "type": "sentence_transformers.models.Normalize"}


def tokenized() -> dict[str, np.ndarray]:
    """Return the samples as a tokenizer of Hugging Face would."""
    data = samples()
    names = {"input_ids": "input_ids", "attention_mask": "input_mask", "token_type_ids": "segment_ids"}
    return {theirs: data[ours] for theirs, ours in names.items()}


@pytest.fixture(scope="module")
def saved(root: Path) -> dict[str, Saved]:
    """The models that were saved; ``root`` has their exports, and what TensorFlow alone makes of them."""
    models = {}
    for name, (task, options, more) in MODELS.items():
        models[name] = save(task, options, root / "runs" / name / "checkpoints", pieces=PIECES, **more)
        export(str(root / "runs" / name), root / name, more=[write_saved_model])
    export(str(root / "runs" / "squad"), root / "encoder", encoder_only=True, more=[write_saved_model])
    modules = root / "mean" / "modules.json"  # from here on, embeddings have length 1
    write_json(modules, [*read_json(modules), NORMALIZE])
    export(str(root / "mean"), root / "unit", more=[write_saved_model])
    np.savez(root / "data.npz", **tokenized())
    command = [sys.executable, ROOT / "tests" / "support" / "tensorflow_alone.py", root / "data.npz"]
    folders = [root / name for name in (*MODELS, "encoder", "unit")]
    quiet = {**os.environ, "TF_CPP_MIN_LOG_LEVEL": "3"}
    ended = subprocess.run([*command, *folders], cwd=root, env=quiet, capture_output=True, text=True, check=False)
    assert ended.returncode == 0, ended.stderr
    assert not [line for line in ended.stderr.splitlines() if not any(known in line for known in LOADING)]
    return models


@pytest.fixture(scope="module")
def pytorch(root: Path, saved: dict[str, Saved]) -> dict[str, dict[str, np.ndarray]]:
    names = [*MODELS, "encoder"]
    run_pytorch("tests.support.pytorch_outputs", root / "data.npz", *(root / name for name in names))
    return {name: dict(np.load(root / f"{name}.npz")) for name in names}


def alone(root: Path, name: str, inputs: str = "padded") -> dict[str, np.ndarray]:
    found = np.load(root / f"{name}.alone.npz")
    return {path.split("/")[1]: found[path] for path in found.files if path.startswith(f"{inputs}/")}


@pytest.mark.parametrize("name", MODELS)
def test_outputs_are_those_of_the_runs_model(name: str, root: Path, saved: dict[str, Saved]) -> None:
    data, found = samples(), alone(root, name)
    expected = {THEIRS.get(output, output): values for output, values in outputs_of(saved[name].model, data).items()}
    if name == "masked words alone":
        expected = {"logits": expected["prediction_logits"]}
    if MODELS[name][0] == PRETRAINING:
        words = min(expected)  # at some positions, also of pieces that only pad the table
        found[words] = np.take_along_axis(found[words], data["masked_lm_positions"][..., None], axis=1)
        expected[words] = expected[words][..., :PIECES]
    assert found.keys() == expected.keys()
    for output, values in found.items():
        np.testing.assert_allclose(values, expected[output], rtol=1e-6, atol=1e-6, err_msg=output)


@NEEDS_PYTORCH
@pytest.mark.parametrize("name", [*MODELS, "encoder"])
def test_outputs_are_those_of_pytorch(name: str, root: Path, pytorch: dict[str, dict[str, np.ndarray]]) -> None:
    """By the same names; Hugging Face's class has no output for embeddings."""
    expected, mask = pytorch[name], tokenized()["attention_mask"][..., None]
    hidden = expected.get("last_hidden_state")
    embeddings = {} if hidden is None else {"mean": (hidden * mask).sum(1) / mask.sum(1), "cls": hidden[:, 0]}
    found = alone(root, name)
    assert found.keys() == ({"sentence_embedding"} if name in embeddings else expected.keys() - {"pooler_output"})
    for output, values in found.items():
        theirs = embeddings[name] if name in embeddings else expected[output]
        np.testing.assert_allclose(values, theirs, rtol=1e-5, atol=1e-5, err_msg=output)


@pytest.mark.parametrize("name", [*MODELS, "encoder"])
def test_padding_and_other_texts_change_nothing(name: str, root: Path, saved: dict[str, Saved]) -> None:
    padded, lengths = alone(root, name), tokenized()["attention_mask"].sum(axis=1)
    assert len(set(lengths)) > 1
    for row, length in enumerate(lengths):
        for output, values in alone(root, name, f"row {row}").items():
            of_tokens = output in OF_TOKENS or (name in ("tags", "masked words alone"))
            expected = padded[output][row : row + 1, : length if of_tokens else None]
            np.testing.assert_allclose(values, expected, rtol=1e-6, atol=1e-6, err_msg=output)


@pytest.mark.parametrize("name", MODELS)
def test_one_text_needs_no_segments(name: str, root: Path, saved: dict[str, Saved]) -> None:
    for row in range(len(samples()["input_ids"])):
        first, pair = alone(root, name, f"first segment {row}"), alone(root, name, f"row {row}")
        for output, values in alone(root, name, f"one text {row}").items():
            np.testing.assert_array_equal(values, first[output])
            assert np.abs(values - pair[output]).max() > 1e-4  # a hundred times the noise


def test_embeddings_of_length_1(root: Path, saved: dict[str, Saved]) -> None:
    vectors = alone(root, "mean")["sentence_embedding"]
    expected = vectors / np.linalg.norm(vectors, axis=-1, keepdims=True)
    np.testing.assert_allclose(alone(root, "unit")["sentence_embedding"], expected, atol=1e-6)


def test_the_command_says_what_it_wrote(
    root: Path, saved: dict[str, Saved], tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    arguments = ["--checkpoint", str(root / "classes"), "--output", str(tmp_path / "out"), "--saved-model"]
    assert main(arguments) == 0
    line = "`saved_model/1`, for TensorFlow alone: input_ids, attention_mask, token_type_ids → logits."
    assert f"  {line}" in capsys.readouterr().out.splitlines()
    card = (tmp_path / "out" / "README.md").read_text(encoding="utf-8")  # room: model_card
    assert f"- {line}" in card.splitlines()  # room: model_card
    assert (tmp_path / "out" / "saved_model" / "1" / "saved_model.pb").is_file()
    assert set(read_json(tmp_path / "out" / "config.json")["label2id"]) == {"entailment", "neutral", "contradiction"}


@pytest.mark.parametrize(
    ("changes", "reason"),
    [
        ({"architectures": ["BertForMultipleChoice"]}, "--saved-model: BertForMultipleChoice is not one of"),
        ({"without": "bert.pooler.dense.weight"}, "lacks bert.pooler.dense.weight, so outputs would be random"),
    ],
)
def test_what_cannot_be_served_is_refused(
    changes: dict[str, Any],
    reason: str,
    root: Path,
    saved: dict[str, Saved],
    tmp_path: Path,
    capsys: pytest.CaptureFixture[str],
) -> None:
    folder = tmp_path / "in"
    folder.mkdir()
    arrays = load_file(root / "classes" / "model.safetensors")
    arrays.pop(changes.pop("without", ""), None)
    save_file(arrays, folder / "model.safetensors")
    write_json(folder / "config.json", {**read_json(root / "classes" / "config.json"), **changes})
    arguments = ["--checkpoint", str(folder), "--output", str(tmp_path / "out"), "--saved-model"]
    assert_refused(main(arguments), capsys.readouterr(), reason)
    assert {path.name for path in tmp_path.iterdir()} == {"in"}


def printed(code: str) -> Any:
    """Return the JSON that Python code prints last, in a process of its own."""
    environment = {name: value for name, value in os.environ.items() if name != "USE_TORCH"}  # which this process sets
    command = [sys.executable, "-c", code]
    ended = subprocess.run(command, env=environment, capture_output=True, text=True, check=False)
    assert ended.returncode == 0, ended.stderr
    return json.loads(ended.stdout.splitlines()[-1])


@NEEDS_PYTORCH
def test_the_guide(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Its command, and its ways that need no further package, give the probabilities of a loaded model."""
    run = tmp_path / "runs" / "reviews"
    save(CLASSIFICATION, PUBLISHED, run / "checkpoints", pieces=PIECES, classes=2, glue_task="sst2")
    monkeypatch.chdir(tmp_path)
    guide = (ROOT / "guides" / "serving.md").read_text(encoding="utf-8").replace("a waste of time", "W7 W8 W9")
    (command,) = re.findall(r"^```sh\npython (.*?)^```$", guide, re.DOTALL | re.MULTILINE)
    assert command.startswith("-m checkpoints.export ") and main([*shlex.split(command)[2:], "--saved-model"]) == 0
    cells = re.findall(r"^```python\n(.*?)^```$", guide, re.DOTALL | re.MULTILINE)
    assert len(cells) == 4 and all(len(cell.splitlines()) <= 10 for cell in cells)
    answers = load("runs/reviews")(["a gorgeous, witty movie", "W7 W8 W9"])
    names = read_json(tmp_path / "exported" / "served" / "config.json")["id2label"].values()
    expected = [[dict(answer)[name] for name in names] for answer in answers]
    served = printed(f"{cells[0]}\nimport json\nprint(json.dumps(probabilities.numpy().tolist()))")
    np.testing.assert_allclose(served, expected, atol=1e-5)
    piped = printed(f"{cells[1]}\nimport json\nprint(json.dumps(answers))")
    shares = [{each["label"]: each["score"] for each in answer} for answer in piped]
    np.testing.assert_allclose([[share[name] for name in names] for share in shares], expected, atol=1e-5)
