"""Wrong paths and checkpoints are refused before TensorFlow is loaded, and broken files by a plan, too."""

from __future__ import annotations

import json
import subprocess
import sys
from pathlib import Path

import pytest

from checkpoints.folder import DESCRIPTION, WEIGHTS, description_as_json
from tasks.cli import main
from utilities.files import PROJECT, sha256

RECIPE = ["--config", "configs/fine_tuning.json", "--bert-model-name", "bert-base-uncased"]
OWN = ["--classification-data.text", "text", "--classification-data.label", "label"]
LENGTH = ["--max-seq-length", "96"]  # otherwise the data decide it
PROGRAM = """
{code}
assert status == 2, status
assert "tensorflow" not in sys.modules and "tf_keras" not in sys.modules, "TensorFlow was loaded"
"""


def refused(*codes: str) -> list[str]:
    """Run codes that set ``status`` in one process, and return their errors; TensorFlow must not be loaded."""
    program = "import sys" + "".join(PROGRAM.format(code=code) for code in codes)
    ended = subprocess.run(
        [sys.executable, "-c", program], cwd=PROJECT, capture_output=True, text=True, check=False, timeout=120
    )
    assert ended.returncode == 0, ended.stderr
    lines = [line for line in ended.stderr.splitlines() if line.startswith("error: ")]
    assert len(lines) == len(codes), ended.stderr
    return lines


def training(task: str, *flags: str) -> str:
    arguments = [*RECIPE, *flags]
    return f"from tasks.cli import main\nstatus = main({task!r}, {arguments!r})"


def command(module: str, *arguments: str) -> str:
    return f"from {module} import main\nstatus = main({list(arguments)!r})"


def checkpoint(folder: Path, task: str) -> Path:
    step = folder / "checkpoints" / "step-00000004"
    step.mkdir(parents=True)
    (step / f"{WEIGHTS}.index").write_bytes(b"")
    description = {"task": task, "step": 4, "files": {f"{WEIGHTS}.index": sha256(step / f"{WEIGHTS}.index")}}
    (step / DESCRIPTION).write_text(description_as_json(description), "utf-8")
    return folder


PATHS = [
    ("classification", [*OWN, "--classification-data.train-file", "missing.csv"], "there is no file missing.csv"),
    ("classification", ["--glue-task", "sst2", "--dataset-dir", "nowhere", *LENGTH], "there is no folder nowhere"),
    ("classification", ["--glue-task", "sst2", "--pretrained-ckpt-path", "no"], "there is no folder or file no;"),
    ("squad", ["--dataset-dir", "nowhere", *LENGTH], "nowhere/train-v1.1.json: cannot be read"),
    ("squad", ["--vocab-file", "nowhere"], "nowhere: no such vocabulary file"),
    ("token_classification", ["--dataset-dir", "nowhere", *LENGTH], "nowhere has no train.txt"),
    ("token_classification", [], "dataset_dir is not set"),
    ("sentence_embedding", ["--embedding.train-file", "no.csv", "--embedding.text", "a", "b"], "no file no.csv"),
]


def test_a_training_with_a_wrong_path(tmp_path: Path) -> None:
    shown = refused(*(training(task, *flags, "--output-dir", str(tmp_path)) for task, flags, _ in PATHS))
    for line, (_, _, error) in zip(shown, PATHS, strict=True):
        assert error in line


ASKED = {  # commands, and what each needs beside a checkpoint
    "tasks.classify": ["a text"],
    "tasks.fill_mask": ["a [MASK]"],
    "tasks.embed": ["--file", "README.md", "--output", "nothing.npy"],
    "checkpoints.export.__main__": ["--output", "nothing"],
}


def test_a_checkpoint_that_is_not_there_or_of_another_task(tmp_path: Path) -> None:
    embedding = checkpoint(tmp_path / "embedding", "sentence_embedding")
    squad = checkpoint(tmp_path / "squad", "squad")
    *nowhere, other, headless = refused(
        *(command(module, "--checkpoint", "nowhere", *flags) for module, flags in ASKED.items()),
        command("tasks.classify", "--checkpoint", str(embedding), "a text"),
        command("tasks.fill_mask", "--checkpoint", str(squad), "a [MASK]"),
    )
    assert set(nowhere) == {"error: --checkpoint: there is no folder or file nowhere; correct the path"}
    assert f"{embedding}/checkpoints/step-00000004" in other
    assert "was trained for sentence_embedding; fine-tune it with" in other
    assert f"{squad}/checkpoints/step-00000004" in headless
    assert "has no masked-LM head (it was trained for squad)" in headless


CALL = """
from tasks import load
from utilities.errors import UserError
try:
    load{arguments}
except UserError as error:
    print("error:", error, file=sys.stderr)
    status = 2
"""


def test_the_call_from_python(tmp_path: Path) -> None:
    run = str(checkpoint(tmp_path / "run", "classification"))
    missing, other = refused(*(CALL.format(arguments=given) for given in ('("nowhere")', (run, "squad"))))
    assert "there is no folder or file nowhere" in missing and "is of classification, not of squad" in other


WRONG = {"id": "1", "question": "q", "answers": [{"text": "a", "answer_start": "x"}]}
SQUAD = {"data": [{"title": "t", "paragraphs": [{"context": "a", "qas": [WRONG]}]}]}
TABLE = [*OWN, "--classification-data.train-file", "train.csv"]
CLASSES = ["--classification-data.classes", "x", "y"]
PAIRS = ["--embedding.train-file", "train.csv", "--embedding.text", "one", "two", "--embedding.label", "score"]


@pytest.mark.parametrize(
    ("task", "files", "flags", "error"),
    [
        ("squad", {"train-v1.1.json": json.dumps(SQUAD)}, [], "train-v1.1.json: data[0]"),
        ("token_classification", {"train.txt": "a O\nb\n", "valid.txt": "a O\n"}, [], "train.txt: line 2"),
        ("classification", {"train.csv": "text,label\na,1\nb,0\nc,\n"}, TABLE, "train.csv: line 4"),
        ("classification", {"train.csv": "text,label\na,x\nb,y\nc,z\n"}, [*TABLE, *CLASSES], "train.csv: line 4"),
        ("sentence_embedding", {"train.csv": "one,two,score\na,b,0.5\nc,d,high\n"}, PAIRS, "train.csv: line 3"),
    ],
)
def test_a_broken_file_is_refused_by_the_plan(
    tmp_path: Path,
    monkeypatch: pytest.MonkeyPatch,
    capsys: pytest.CaptureFixture[str],
    task: str,
    files: dict[str, str],
    flags: list[str],
    error: str,
) -> None:
    for name, content in files.items():
        (tmp_path / name).write_text(content, "utf-8")
    monkeypatch.chdir(tmp_path)
    config = ["--config", str(PROJECT / "configs" / "fine_tuning.json"), *RECIPE[2:], *flags]
    folder = ["--dataset-dir", str(tmp_path)]
    here = folder if task in ("squad", "token_classification") else []  # tables are also looked for where one is
    for more in ([*folder, "--plan"], [*folder, "--plan", "all"], [*here, *LENGTH, "--plan"]):
        assert main(task, [*config, *more], pytest.fail) == 2
        printed = capsys.readouterr()
        assert error in printed.err and printed.err.count("\n") == 1 and not printed.out


@pytest.mark.parametrize("length", [[], LENGTH])
def test_a_plan_needs_the_vocabulary_and_the_folder_of_tags(
    length: list[str], tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.chdir(tmp_path)
    recipe = ["--config", str(PROJECT / "configs" / "fine_tuning.json"), *RECIPE[2:], *length, "--plan"]
    for task, flags, error in (
        ("squad", ["--vocab-file", "nowhere"], "nowhere: no such vocabulary file"),
        ("token_classification", [], "dataset_dir is not set"),
    ):
        assert main(task, [*recipe, *flags], pytest.fail) == 2
        assert error in capsys.readouterr().err
