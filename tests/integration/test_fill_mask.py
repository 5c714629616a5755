"""Blanks are filled as by Transformers' pipeline in PyTorch."""

from __future__ import annotations

from pathlib import Path

import pytest

from checkpoints.export.hf_folder import export
from model.tasks import PRETRAINING
from tasks import load
from tasks.fill_mask import main
from tests.support.pytorch_fillings import pytorch_fillings
from tests.support.pytorch_process import NEEDS_PYTORCH
from tests.support.saved_checkpoints import OPTIONS, save
from training.prediction import batches_by_length

pytestmark = pytest.mark.slow

TEXTS = ["W3 W4 [MASK] W9", "[MASK]", "W1 [MASK] W7 W8 [MASK] W2 W2 W2 W2 W5", *[f"W{n} W5 [MASK]" for n in range(9)]]


@pytest.fixture(scope="module")
def models(tmp_path_factory: pytest.TempPathFactory) -> dict[str, Path]:
    root = tmp_path_factory.mktemp("models")
    save(PRETRAINING, OPTIONS["as published"], root / "run" / "checkpoints", pieces=120)
    export(str(root / "run"), root / "exported")
    return {name: root / name for name in ("run", "exported")}


@NEEDS_PYTORCH
def test_fillings_are_those_of_transformers_pipeline(models: dict[str, Path]) -> None:
    expected = pytorch_fillings(models["exported"], TEXTS, 4)
    for path in models.values():
        found = load(str(path))(TEXTS, top=4)
        for fillings, theirs in zip(found, expected, strict=True):
            assert [filling.piece for filling in fillings] == [piece for piece, _ in theirs]
            shares = [filling.probability for filling in fillings]
            assert shares == pytest.approx([share for _, share in theirs], abs=1e-5)
        assert [filling.blank for filling in found[2]] == [1] * 4 + [2] * 4


def test_the_command_fills_texts_and_files(
    models: dict[str, Path], tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    run = ["--checkpoint", str(models["run"])]
    assert main([*run, "W3 [MASK]", "--top", "2"]) == 0
    assert [line.split()[0][-1] for line in capsys.readouterr().out.splitlines()] == ["%", "%"]
    file = tmp_path / "texts.txt"
    file.write_text("W3 [MASK]\nW4 [MASK] W5\n", encoding="utf-8")
    assert main([*run, "--file", str(file), "--among", "W1 W2"]) == 0
    lines = capsys.readouterr().out.splitlines()
    assert [lines[0], lines[3]] == ["W3 [MASK]", "W4 [MASK] W5"]
    assert {line.split()[-1].lower() for line in lines[1:3]} == {"w1", "w2"}


@pytest.mark.parametrize(
    ("words", "reason"),
    [
        (["no blank"], "no blank"),
        (["[MASK]", "--among", "notapieceatall"], "not one piece"),
        ([], "give either texts"),
        (["W1 " * 600 + "[MASK]"], "more than the"),
    ],
)
def test_what_cannot_be_filled_is_refused_in_one_line(
    words: list[str], reason: str, models: dict[str, Path], capsys: pytest.CaptureFixture[str]
) -> None:
    assert main(["--checkpoint", str(models["run"]), *words]) == 2
    (line,) = capsys.readouterr().err.splitlines()
    assert line.startswith("error: ") and reason in line


def test_batches_hold_no_more_tokens_than_their_bound() -> None:
    import numpy as np

    lengths = np.sort(np.random.default_rng(0).integers(3, 512, 300))[::-1]
    batches = batches_by_length(lengths)
    assert [number for batch in batches for number in range(300)[batch]] == list(range(300))
    assert all((batch.stop - batch.start) * lengths[batch.start] <= 1024 for batch in batches)
