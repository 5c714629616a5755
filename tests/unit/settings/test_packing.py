"""The section packing: derived values, and its effect on steps and on the optimizer's betas."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest

from planning.estimates import planned_if_known
from settings.derived import betas, training_samples, training_steps
from settings.loading import LoadedConfig
from tests.support.config_files import TINY, changed, load_config, plan_of, write

ROWS = 24  # of TINY's global batch: 2 × 1 × 12


def load(folder: Path, change: dict[str, Any], *flags: str) -> LoadedConfig:
    values = changed(TINY, {"dataset_dir": str(folder), **change})
    return load_config("pretraining", ["--config", str(write(folder, values)), *flags])


def write_manifest(folder: Path) -> None:
    totals = {"records": 1000, "sequences": 1500}
    write(folder, {"totals": totals, "settings": {"max_predictions_per_pack": 21}}, "manifest.json")


def test_nothing_is_packed_without_the_section(tmp_path: Path) -> None:
    config = load(tmp_path, {}).config
    assert config.packing.max_sequences_per_pack is None
    assert training_steps(config) == 2400 // ROWS
    assert planned_if_known(config, "pretraining").masked_positions == 20
    assert betas(config.optimizer_opts, config.packing, 2.0) == (0.9, 0.999)


def test_predictions_of_a_pack_follow_from_the_manifest_or_its_sequences(tmp_path: Path) -> None:
    packing = {"packing/max_sequences_per_pack": 3}
    loaded = load(tmp_path, packing)
    assert loaded.config.packing.max_predictions_per_pack == 20 + 3
    assert loaded.origins["packing.max_predictions_per_pack"] == "derived"
    write_manifest(tmp_path)
    assert load(tmp_path, packing).config.packing.max_predictions_per_pack == 21
    given = load(tmp_path, packing, "--packing.max-predictions-per-pack", "22").config
    assert planned_if_known(given, "pretraining").masked_positions == 22


def test_samples_count_sequences_and_the_batch_counts_packs(tmp_path: Path) -> None:
    packing = {"packing/max_sequences_per_pack": 3}
    unknown = load(tmp_path, packing).config
    assert training_steps(unknown) is None  # the number of sequences in a pack is not known
    assert training_steps(unknown, factor=2.0) == 2400 // (ROWS * 2)
    write_manifest(tmp_path)
    config = load(tmp_path, packing).config
    assert training_steps(config) == 2400 // (ROWS * 3 // 2)
    epochs = load(tmp_path, {**packing, "total_num_train_samples": ..., "num_epochs": 3}).config
    assert training_steps(epochs, records=1000) == 3 * 1000 // ROWS
    assert training_samples(epochs.total_num_train_samples, epochs.num_epochs, 1000, 1.5) == 3 * 1500


def test_random_packs_are_full(tmp_path: Path) -> None:
    config = load(tmp_path, {"packing/max_sequences_per_pack": 4, "generated_dataset": True}).config
    assert training_steps(config) == 2400 // (ROWS * 4)


def test_adjusted_betas_equal_two_updates_with_the_same_gradient(tmp_path: Path) -> None:
    """arXiv 2107.02027: for a factor of 2 the heuristic is exact while the gradient does not change."""
    config = load(tmp_path, {"packing/max_sequences_per_pack": 2}).config
    for beta, adjusted in zip((0.9, 0.999), betas(config.optimizer_opts, config.packing, 2.0)):
        moment, gradient = 0.3, -1.7
        twice = moment
        for _ in range(2):
            twice = beta * twice + (1 - beta) * gradient
        assert adjusted * moment + (1 - adjusted) * gradient == pytest.approx(twice)
    unadjusted = load(tmp_path, {"packing": {"max_sequences_per_pack": 3, "adjust_betas": False}}).config
    assert betas(unadjusted.optimizer_opts, unadjusted.packing, 2.0) == (0.9, 0.999)


def test_plan_counts_packs(tmp_path: Path) -> None:
    packing = {"packing/max_sequences_per_pack": 3}
    unknown = plan_of(load(tmp_path, packing))
    assert unknown["global batch"].startswith("24 packs = ")
    assert unknown["steps"] == unknown["betas"] == unknown["samples in a pack"] == "unknown until the data set is read"
    write_manifest(tmp_path)
    plan = plan_of(load(tmp_path, packing))
    assert plan["steps"] == "66 weight updates"  # 2400 / (24 × 1.5)
    assert plan["samples in a pack"] == "1.5 on average"
    assert plan["betas"] == "0.8538 and 0.9985"  # 0.9 and 0.999 to the power of 1.5
    assert plan["epochs"] == "1.60"  # 2400 of 1500
    assert "model FLOPs per pack" in plan
