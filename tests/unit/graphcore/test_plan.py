"""The figures of IPUs in a plan, compared with published figures and hand calculations."""

from __future__ import annotations

import pytest

from graphcore.plan import bubble, communication, ipu_memory, streaming_memory
from planning.estimates import HALF, MOMENTS
from planning.overview import plan_lines
from tests.support.config_files import load_config
from tests.unit.planning.test_planner import BASE, LARGE, ONE_STAGE, planned, pretraining_parameters


@pytest.mark.parametrize("flags, fits", [((), True), (ONE_STAGE, False)])
def test_a_model_that_is_too_large_for_an_ipu_is_named(flags, fits):
    """BERT-large has 336 million parameters: weights and gradients take 1,344 MB of one IPU's 900."""
    lines = plan_lines(load_config("pretraining", ["--config", str(LARGE), "--generated-dataset", "true", *flags]))
    assert any(line.startswith("On IPUs this run does not fit") for line in lines) != fits


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
