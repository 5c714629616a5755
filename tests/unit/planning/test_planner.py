"""The planner's figures, compared with published figures and hand calculations."""

from __future__ import annotations

import pytest

from model.architecture import total_parameters
from model.tasks import expected_blocks
from planning import estimates
from planning.estimates import (
    HALF,
    MOMENTS,
    bubble,
    communication,
    flops_per_row,
    host_memory,
    ipu_memory,
    streaming_memory,
)
from planning.lines import host_memory_lines, planner_lines
from settings.architecture import known_architecture
from settings.loading import load_config
from tests import ROOT


def pretraining_parameters(architecture):
    return total_parameters(architecture, expected_blocks("pretraining", architecture.num_hidden_layers))


def planned(path, *flags, task="pretraining"):
    if task == "pretraining":
        flags = ("--generated-dataset", "true", *flags)
    return estimates.planned(load_config(task, ["--config", str(path), *flags]).config, task)


@pytest.fixture(autouse=True)
def no_data(monkeypatch):
    monkeypatch.setenv("DATASETS_DIR", "/data")


LARGE = ROOT / "configs" / "pretraining" / "pretrain_large_128_phase1.json"
BASE = ROOT / "configs" / "pretraining" / "pretrain_base_128_phase1.json"


ONE_STAGE = ("--ipu-config.pipeline-stages", "none", "--ipu-config.pipeline-device-mapping", "none",
             "--ipu-config.matmul-available-memory-proportion-per-pipeline-stage", "none")  # fmt: skip


def test_operations_agree_with_measurements():
    """BERT-base with 128 tokens and 20 predictions takes 70 GFLOP for a sample, measured elsewhere."""
    run = planned(BASE, "--bert-config.vocab-size", "30528", *ONE_STAGE)
    assert flops_per_row(run.config, "pretraining", run.architecture) == pytest.approx(70e9, rel=0.01)


@pytest.mark.parametrize("flags, fits", [((), True), (ONE_STAGE, False)])
def test_a_model_that_is_too_large_for_an_ipu_is_named(flags, fits):
    """BERT-large has 336 million parameters: weights and gradients take 1,344 MB of one IPU's 900."""
    lines = list(
        planner_lines(load_config("pretraining", ["--config", str(LARGE), "--generated-dataset", "true", *flags]))
    )
    assert any(line.startswith("On IPUs this run does not fit") for line in lines) != fits


def test_memory_of_the_host_is_checked(monkeypatch):
    config = load_config("pretraining", ["--config", str(LARGE), "--generated-dataset", "true"])
    architecture = known_architecture(config.config, "pretraining")
    needed = 16 * pretraining_parameters(architecture)  # weights, gradients, two moments
    for memory, warned in ((needed - 1, True), (needed, False), (None, False)):
        monkeypatch.setattr("planning.lines.memory_bytes", lambda memory=memory: memory)
        shown = [line for line in host_memory_lines(config) if line.startswith("warning: on a CPU this run needs")]
        assert bool(shown) == warned


def test_weights_and_moments_add_up_to_the_model():
    run = planned(BASE, "--optimizer-state-offchip", "false")
    memory = ipu_memory(run)
    parameters = pretraining_parameters(run.architecture)
    assert sum(ipu.weights for ipu in memory) == HALF * parameters
    assert sum(ipu.optimizer for ipu in memory) == MOMENTS * parameters
    flags = ("--optimizer-state-offchip", "false", "--ipu-config.replicated-tensor-sharding", "true")
    sharded = planned(BASE, *flags)
    expected = MOMENTS * parameters / sharded.config.global_batch.replicas
    assert sum(ipu.optimizer for ipu in ipu_memory(sharded)) == expected
    muon = planned(BASE, "--optimizer-state-offchip", "false", "--optimizer-opts.name", "Muon")
    matrices = 12 * (4 * 768**2 + 2 * 768 * 3072) + 768**2  # encoder layers and the pooler
    assert sum(ipu.optimizer for ipu in ipu_memory(muon)) == 8 * parameters - 4 * matrices
    assert host_memory(run) - host_memory(muon) == 4 * matrices


@pytest.mark.parametrize("stages, micro_batches", [(2, 8), (4, 16), (4, 64)])
def test_bubble_of_equal_stages_is_the_published_formula(stages, micro_batches):
    """Huang et al. 2019, section 2.3: (K - 1) / (M + K - 1) for K equal stages and M micro batches."""
    steps = ("--global-batch.grad-acc-steps-per-replica", str(micro_batches * 5))
    run = planned(BASE, *steps, "--enable-recomputation", "false")
    batch = run.config.global_batch.model_copy(update={"grad_acc_steps_per_replica": micro_batches})
    config = run.config.model_copy(update={"global_batch": batch})
    run = run._replace(config=config, stages=[["hid"]] * stages, devices=list(range(stages)))
    assert bubble(run, "grouped") == pytest.approx((stages - 1) / (micro_batches + stages - 1))


def test_communication_by_hand():
    run = planned(BASE)
    bytes_moved, parameters = communication(run), pretraining_parameters(run.architecture)
    assert bytes_moved.between_replicas == pytest.approx(2 * 2 * parameters * 3 / 4)
    assert bytes_moved.between_stages == 2 * 2 * (32 * 128 * 768) * 4 * 510
    assert bytes_moved.streaming == 16 * parameters
    sharded = planned(BASE, "--ipu-config.replicated-tensor-sharding", "true")
    assert communication(sharded).streaming == 16 * parameters / 4
    assert streaming_memory(sharded) == streaming_memory(run) / 4


def test_duration_of_a_packed_run_follows_its_samples():
    flags = ["--config", str(BASE), "--generated-dataset", "true", "--packing.max-sequences-per-pack", "3"]
    lines = "\n".join(planner_lines(load_config("pretraining", flags), throughput=1000))
    assert "128.1 hours" in lines and "for 2,355 updates" in lines  # 461,242,368 samples, 3 × 65,280 in an update
