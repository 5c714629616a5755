"""Checkpoint folders: the newest intact one is selected, and damage is reported."""

from __future__ import annotations

import json
import logging
import os
from pathlib import Path

import pytest

from checkpoints.folder import Checkpoint, NewerVersionError, damage, find_checkpoint, read_description
from tests.support.run_folders import write_step
from utilities.errors import UserError


def test_the_newest_is_taken(tmp_path):
    for step in (9, 100, 20):
        write_step(tmp_path / "checkpoints", step, {})
    checkpoint = find_checkpoint(tmp_path)
    assert checkpoint.weights == tmp_path / "checkpoints" / "step-00000100" / "weights"
    assert checkpoint.description["step"] == 100


def test_a_damaged_checkpoint_is_reported_and_skipped(tmp_path, caplog):
    write_step(tmp_path, 1, {})
    bad = write_step(tmp_path, 2, {})
    (bad / "weights.index").write_text("other")
    with caplog.at_level(logging.WARNING):
        assert find_checkpoint(tmp_path).description["step"] == 1
    assert str(bad) in caplog.text and "SHA-256" in caplog.text
    assert bad.exists()


def test_a_damaged_checkpoint_is_refused_by_name(tmp_path):
    with pytest.raises(UserError, match="no intact checkpoint"):
        find_checkpoint(tmp_path)
    bad = write_step(tmp_path, 2, {})
    (bad / "weights.data-00000-of-00001").unlink()
    with pytest.raises(UserError, match="damaged"):
        find_checkpoint(bad)
    with pytest.raises(UserError, match=r"no intact checkpoint \(step-00000002: weights.data"):
        find_checkpoint(tmp_path)


def test_a_renamed_checkpoint_is_damaged(tmp_path):
    good = write_step(tmp_path, 2, {})
    assert "that of step 2" in damage(good.rename(tmp_path / "step-00000099"))
    assert damage((tmp_path / "step-00000099").rename(tmp_path / "my-model")) is None


def test_a_newer_version_is_refused_rather_than_damaged(tmp_path):
    """An older checkpoint must not be taken instead, and the newer one must keep its name."""
    write_step(tmp_path, 1, {})
    description = read_description(write_step(tmp_path, 2, {}))
    (tmp_path / "step-00000002" / "checkpoint.json").write_text(json.dumps({**description, "version": 3}))
    for read in (damage, find_checkpoint):
        with pytest.raises(NewerVersionError, match="newer version of this program; update"):
            read(tmp_path / "step-00000002")
    with pytest.raises(NewerVersionError):
        find_checkpoint(tmp_path)


def test_a_missing_best_checkpoint_is_reported(tmp_path, caplog):
    write_step(tmp_path, 2, {})
    (tmp_path / "best.json").write_text('{"step": 1}')
    assert find_checkpoint(tmp_path).description["step"] == 2
    assert "step-00000001, is missing" in caplog.text


@pytest.mark.parametrize(
    "change, named",
    [
        ({"architecture": []}, "its architecture"),
        ({"config": "x"}, "its config"),
        ("", "checkpoint.json"),
        ('{"format": "other", "files": {}}', "checkpoint.json"),
        ('{"format": "bert-checkpoint"}', "checkpoint.json"),
    ],
)
def test_a_broken_description_is_damage(tmp_path, change, named):
    folder = write_step(tmp_path, 1, change if isinstance(change, dict) else {})
    if isinstance(change, str):
        (folder / "checkpoint.json").write_text(change)
    assert named in damage(folder)


def write_bare(folder: Path, *names: str) -> None:
    for age, name in enumerate(names):
        (folder / f"{name}.index").write_text("")
        os.utime(folder / f"{name}.index", (1000 - age, 1000 - age))


@pytest.mark.parametrize(
    "names, state, chosen",
    [
        (["model"], None, "model"),
        (["model-9000", "model-10000"], None, "model-10000"),
        (["model-9000", "model-10000"], "model-9000", "model-9000"),
        (["model-9000", "model-10000"], "/where/it/was/trained/model-9000", "model-9000"),
        (["model-9000", "model-10000"], "model-gone", "model-10000"),
        (["900.ckpt", "1000.ckpt"], None, "1000.ckpt"),
    ],
)
def test_of_several_bare_tensorflow_checkpoints_the_newest_is_that_of_tensorflow(tmp_path, names, state, chosen):
    write_bare(tmp_path, *names)
    if state:
        last = "".join(f'all_model_checkpoint_paths: "{name}"\n' for name in names)
        (tmp_path / "checkpoint").write_text(f'model_checkpoint_path: "{state}"\n{last}')
    assert find_checkpoint(tmp_path).weights == tmp_path / chosen


def test_bare_tensorflow_checkpoints_without_an_order_are_refused_and_found_by_file(tmp_path):
    write_bare(tmp_path, "model", "model-2")
    with pytest.raises(UserError, match="several checkpoints"):
        find_checkpoint(tmp_path)
    for given in ("model", "model.index"):
        assert find_checkpoint(tmp_path / given) == Checkpoint(tmp_path / "model", None)
