"""Packed configs: each is its unpacked sibling on packed data, and nothing else."""

from __future__ import annotations

from pathlib import Path

import pytest

from tests.unit.test_published_settings import CONFIGS, load
from utilities.config.figures import training_steps

PACKED = sorted(path.stem for path in (CONFIGS / "pretraining").glob("*_packed*.json"))
ABOUT_PACKS = {"name", "about", "extends", "dataset_dir", "packing"}


@pytest.fixture(autouse=True)
def _datasets_dir(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("DATASETS_DIR", "/data")


def test_every_model_and_phase_is_there() -> None:
    phases = ("128_phase1", "384_phase2", "512_phase2")
    machines = {f"{phase}_packed{variant}" for phase in phases for variant in ("_cpu", "_gpu")}
    for model, published in (("tiny", phases[:1]), ("base", phases), ("large", phases)):
        expected = machines | {f"{phase}_packed" for phase in published}
        beginning = f"pretrain_{model}_"
        assert {name[len(beginning) :] for name in PACKED if name.startswith(beginning)} == expected


@pytest.mark.parametrize("name", PACKED)
def test_a_packed_config_differs_in_its_data_alone(name: str) -> None:
    packed, plain = load(name).config, load(name.replace("_packed", "")).config
    assert packed.packing.max_sequences_per_pack == 3
    assert packed.packing.max_predictions_per_pack == plain.max_predictions_per_seq + 3
    assert packed.packing.adjust_betas
    assert Path(packed.dataset_dir) == Path(f"{plain.dataset_dir}_packed")
    values, others = packed.model_dump(exclude=ABOUT_PACKS), plain.model_dump(exclude=ABOUT_PACKS)
    assert values == others
    assert training_steps(packed, factor=2.0) == training_steps(plain) // 2
