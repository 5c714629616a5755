"""Which checkpoints stay."""

from __future__ import annotations

from pathlib import Path

import pytest

from checkpoints.folder import (
    clear_unfinished,
    damage,
    name_of,
    read_facts,
    rewrite_facts,
    set_aside,
    writing,
)
from checkpoints.folder import step_folders as folders
from checkpoints.rotation import Rotation, rotate


def write(folder: Path, step: int, run: str = "mine") -> Path:
    with writing(folder, step, {"run": run}) as temporary:
        (temporary / "weights.index").write_text(f"weights {step}")
    return folder / name_of(step)


def steps(folder: Path):
    return [read_facts(path)["step"] for path in folders(folder)]


@pytest.mark.parametrize(
    "keep_last, keep_every, left",
    [
        (None, None, [30, 60, 90, 120, 150, 180]),
        (1, None, [180]),
        (3, None, [120, 150, 180]),
        # Of every stretch of 100 updates the first one at or after its begin: 120 for 100.
        (1, 100, [120, 180]),
        (2, 60, [60, 120, 150, 180]),
        (1, 30, [30, 60, 90, 120, 150, 180]),
        (99, None, [30, 60, 90, 120, 150, 180]),
    ],
)
def test_rotation_after_every_checkpoint(tmp_path, keep_last, keep_every, left):
    for step in range(30, 181, 30):
        write(tmp_path, step)
        rotate(tmp_path, "mine", Rotation(keep_last, keep_every))
    assert steps(tmp_path) == left


def test_checkpoints_of_another_run_and_strange_folders_stay(tmp_path):
    write(tmp_path, 10, run="other")
    (tmp_path / "step-mine").mkdir()
    damaged = write(tmp_path, 20)
    (damaged / "checkpoint.json").write_text("{")
    for step in (30, 40):
        write(tmp_path, step)
        rotate(tmp_path, "mine", Rotation(1))
    assert sorted(path.name for path in tmp_path.iterdir()) == [
        "step-00000010", "step-00000020", "step-00000040", "step-mine"
    ]  # fmt: skip


def test_steps_beyond_eight_digits_are_ordered_as_numbers(tmp_path):
    for step in (99_999_999, 100_000_000):
        write(tmp_path, step)
    assert steps(tmp_path) == [99_999_999, 100_000_000]


def test_what_a_killed_writer_left_is_cleared(tmp_path):
    whole = write(tmp_path, 10)
    (tmp_path / ".writing-step-00000020").mkdir()
    (tmp_path / ".writing-step-00000020" / "weights.index").write_text("half")
    (tmp_path / ".writing-step-00000010.json").write_text("half")
    # Killed between the two renames that replace a checkpoint, and killed after them.
    whole.rename(tmp_path / ".replaced-step-00000010")
    (tmp_path / ".replaced-step-00000005").mkdir()
    write(tmp_path, 5)
    clear_unfinished(tmp_path)
    assert sorted(path.name for path in tmp_path.iterdir()) == ["step-00000005", "step-00000010"]
    assert damage(whole) is None


def test_facts_can_be_changed_and_stay_checked(tmp_path):
    folder = write(tmp_path, 10)
    rewrite_facts(folder, {"skipped": [3]})
    facts = read_facts(folder)
    assert facts["skipped"] == [3] and facts["run"] == "mine" and facts["step"] == 10
    assert damage(folder) is None
    text = (folder / "checkpoint.json").read_text()
    (folder / "checkpoint.json").write_text(text.replace('"step": 10', '"step": 11'))
    assert "SHA-256" in damage(folder)


def test_what_is_set_aside_is_kept_under_a_name_of_its_own(tmp_path):
    names = [set_aside(write(tmp_path, 10), "damaged").name for _ in range(2)]
    assert names == ["damaged-step-00000010", "damaged-step-00000010-2"]
    assert folders(tmp_path) == []
