"""The planner's figures, compared with published figures and hand calculations."""

from __future__ import annotations

import pytest

from model.architecture import total_parameters
from model.tasks import expected_blocks
from planning import estimates
from planning.estimates import host_memory
from planning.overview import duration_lines, host_memory_lines
from settings.architecture import known_architecture
from tests import ROOT
from tests.support.config_files import load_config


def pretraining_parameters(architecture):
    return total_parameters(architecture, expected_blocks("pretraining", architecture.num_hidden_layers))


def planned(path, *flags, task="pretraining"):
    if task == "pretraining":
        flags = ("--generated-dataset", "true", *flags)
    return estimates.planned_if_known(load_config(task, ["--config", str(path), *flags]).config, task)


LARGE = ROOT / "configs" / "pretraining" / "pretrain_large_128_phase1.json"
BASE = ROOT / "configs" / "pretraining" / "pretrain_base_128_phase1.json"


ONE_STAGE = ("--ipu-config.pipeline-stages", "none", "--ipu-config.pipeline-device-mapping", "none",
             "--ipu-config.matmul-available-memory-proportion-per-pipeline-stage", "none")  # fmt: skip


def test_operations_agree_with_measurements():
    """BERT-base with 128 tokens and 20 predictions takes 70 GFLOP for a sample, measured elsewhere."""
    run = planned(BASE, "--bert-config.vocab-size", "30528", *ONE_STAGE)
    assert run.flops_per_row == pytest.approx(70e9, rel=0.01)


def test_memory_of_the_host_is_checked(monkeypatch):
    config = load_config("pretraining", ["--config", str(LARGE), "--generated-dataset", "true"])
    architecture = known_architecture(config.config, "pretraining")
    needed = 16 * pretraining_parameters(architecture)  # weights, gradients, two moments
    for memory, warned in ((needed - 1, True), (needed, False), (None, False)):
        monkeypatch.setattr("planning.overview.memory_bytes", lambda memory=memory: memory)
        shown = [line for line in host_memory_lines(config) if line.startswith("warning: on a CPU this run needs")]
        assert bool(shown) == warned


def test_muon_saves_memory_of_the_host():
    run, muon = planned(BASE), planned(BASE, "--optimizer-opts.name", "Muon")
    matrices = 12 * (4 * 768**2 + 2 * 768 * 3072) + 768**2  # encoder layers and pooler: no second moments
    assert host_memory(run) - host_memory(muon) == 4 * matrices


def test_duration_of_a_packed_run_follows_its_samples():
    flags = ["--config", str(BASE), "--generated-dataset", "true", "--packing.max-sequences-per-pack", "3"]
    lines = "\n".join(duration_lines(load_config("pretraining", flags), 1000))
    assert "128.1 hours" in lines and "for 2,355 updates" in lines  # 461,242,368 samples, 3 × 65,280 in an update
