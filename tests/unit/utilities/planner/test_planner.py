"""The planner's estimates: published systems fit, too large ones do not, partitions are the best there are."""

from __future__ import annotations

import itertools
import subprocess
import sys

import pytest

from model.architecture import total_parameters
from tests import ROOT
from utilities.config.figures import architecture_of, blocks_of
from utilities.config.loading import load_config
from utilities.errors import UserError
from utilities.planner.estimates import (
    HALF,
    IN_PROCESSOR_MEMORY,
    MOMENTS,
    Layout,
    balance,
    bubble,
    communication,
    ipu_memory,
    is_feasible,
    layout_of,
    stage_flops,
    streaming_memory,
)
from utilities.planner.lines import planner_lines
from utilities.planner.suggest import layout_of_counts, suggest

PUBLISHED = sorted(
    (task, path)
    for task, folder in (("pretraining", "pretraining"), ("squad", "squad"), ("classification", "glue"))
    for path in (ROOT / "configs" / folder).glob("*.json")
)


def planned(task, path, *flags):
    """Config, architecture and layout of a config file."""
    if task == "pretraining":
        flags = ("--generated-dataset", "true", *flags)
    config = load_config(task, ["--config", str(path), *flags]).config
    architecture = architecture_of(config)
    return config, architecture, layout_of(config, blocks_of(config, task))


@pytest.fixture(autouse=True)
def no_data(monkeypatch):
    monkeypatch.setenv("DATASETS_DIR", "/data")


@pytest.mark.parametrize("task, path", PUBLISHED, ids=lambda value: getattr(value, "stem", value))
def test_published_systems_are_feasible(task, path):
    config, architecture, layout = planned(task, path)
    assert is_feasible(config, task, architecture, layout)


LARGE = ROOT / "configs" / "pretraining" / "pretrain_large_128_phase1.json"
BASE = ROOT / "configs" / "pretraining" / "pretrain_base_128_phase1.json"


def test_what_is_obviously_too_large_is_infeasible():
    config, architecture, layout = planned("pretraining", LARGE)
    one_ipu = Layout([[block for stage in layout.stages for block in stage]], [0])
    assert not is_feasible(config, "pretraining", architecture, one_ipu)
    wide = planned("pretraining", LARGE, "--global-batch.micro-batch-size", "256")
    assert not is_feasible(wide[0], "pretraining", *wide[1:])
    whole = planned("pretraining", LARGE, "--enable-recomputation", "false", "--global-batch.micro-batch-size", "32")
    assert not is_feasible(whole[0], "pretraining", *whole[1:])


def test_memory_of_the_host_is_checked(monkeypatch):
    config = load_config("pretraining", ["--config", str(LARGE), "--generated-dataset", "true"])
    weights = 16 * total_parameters(architecture_of(config.config), "pretraining")
    for memory, warned in ((weights, True), (100 * weights, False), (None, False)):
        monkeypatch.setattr("utilities.planner.lines.memory_bytes", lambda memory=memory: memory)
        shown = [line for line in planner_lines(config) if line.startswith("warning: on a CPU this run needs at least")]
        assert bool(shown) == warned


def test_weights_and_moments_add_up_to_the_model():
    config, architecture, layout = planned("pretraining", BASE, "--optimizer-state-offchip", "false")
    memory = ipu_memory(config, "pretraining", architecture, layout)
    parameters = total_parameters(architecture, "pretraining")
    assert sum(ipu.weights for ipu in memory) == HALF * parameters
    assert sum(ipu.optimizer for ipu in memory) == MOMENTS * parameters
    flags = ("--optimizer-state-offchip", "false", "--ipu-config.replicated-tensor-sharding", "true")
    config, architecture, layout = planned("pretraining", BASE, *flags)
    sharded = ipu_memory(config, "pretraining", architecture, layout)
    assert sum(ipu.optimizer for ipu in sharded) == MOMENTS * parameters / config.global_batch.replicas


def test_recomputation_needs_less():
    kept = planned("pretraining", BASE, "--enable-recomputation", "false")
    recomputed = planned("pretraining", BASE)
    for one, other in zip(ipu_memory(kept[0], "pretraining", *kept[1:]),
                          ipu_memory(recomputed[0], "pretraining", *recomputed[1:])):  # fmt: skip
        assert other.activations <= one.activations


def test_bubble_of_equal_stages_is_the_published_formula():
    """Huang et al. 2019, section 2.3: (K - 1) / (M + K - 1) for K equal stages and M micro batches."""
    for stages, micro_batches in ((2, 8), (4, 16), (4, 64)):
        config, _, _ = planned(
            "pretraining", BASE, "--global-batch.grad-acc-steps-per-replica", str(micro_batches * 5),
            "--enable-recomputation", "false",
        )  # fmt: skip
        batch = config.global_batch.model_copy(update={"grad_acc_steps_per_replica": micro_batches})
        config = config.model_copy(update={"global_batch": batch})
        layout = Layout([["hid"]] * stages, list(range(stages)))
        expected = (stages - 1) / (micro_batches + stages - 1)
        assert bubble(config, [1] * stages, layout, "grouped") == pytest.approx(expected)


def test_communication_by_hand():
    config, architecture, layout = planned("pretraining", BASE)
    moved = communication(config, architecture, layout)
    parameters = total_parameters(architecture, "pretraining")
    assert moved.between_replicas == pytest.approx(2 * 2 * parameters * 3 / 4)
    assert moved.between_stages == 2 * 2 * (32 * 128 * 768) * 4 * 510
    assert moved.streaming == 16 * parameters
    sharded = planned("pretraining", BASE, "--ipu-config.replicated-tensor-sharding", "true")
    assert communication(*sharded).streaming == 16 * parameters / 4
    assert streaming_memory(*sharded) == streaming_memory(config, architecture, layout) / 4


@pytest.mark.parametrize("ipus, layers", [(1, 2), (2, 5), (3, 7), (4, 9)])
def test_suggestion_is_the_best_of_all_partitions(ipus, layers):
    heads = ("--bert-config.num-hidden-layers", str(layers), "--ipu-config.pipeline-stages", "none",
             "--ipu-config.pipeline-device-mapping", "none",
             "--ipu-config.matmul-available-memory-proportion-per-pipeline-stage", "none")  # fmt: skip
    config, architecture, _ = planned("pretraining", BASE, *heads)
    tail, best = ["enc_out", "pool", "heads"], None
    for counts in itertools.product(range(layers + 1), repeat=ipus):
        if sum(counts) != layers or 0 in counts[1:]:
            continue
        layout = layout_of_counts(list(counts), tail)
        if max(ipu.total for ipu in ipu_memory(config, "pretraining", architecture, layout)) > IN_PROCESSOR_MEMORY:
            continue
        flops = stage_flops(config, "pretraining", architecture, layout)
        busiest = max(
            sum(f for f, device in zip(flops, layout.devices) if device == ipu)
            for ipu in range(max(layout.devices) + 1)
        )
        best = busiest if best is None else min(best, busiest)
    found = suggest(config, "pretraining", architecture, ipus)
    assert found.bottleneck == best
    assert found.memory <= IN_PROCESSOR_MEMORY
    flops = stage_flops(config, "pretraining", architecture, found.layout)
    assert 0 < balance(flops, found.layout) <= 1


def test_no_partition_is_said():
    config, architecture, _ = planned("pretraining", LARGE)
    with pytest.raises(UserError, match=r"--suggest 1: no partition of 24 encoder layers"):
        suggest(config, "pretraining", architecture, 1)


def test_the_command_prints_a_config_fragment_and_draws(tmp_path):
    picture = tmp_path / "plan.svg"
    command = [sys.executable, "run_pretraining.py", "--config", str(BASE), "--generated-dataset", "true", "--plan"]
    options = ["--suggest", "4", "--throughput", "1000", "--picture", str(picture)]
    done = subprocess.run([*command, *options], cwd=ROOT, capture_output=True, text=True)
    assert done.returncode == 0, done.stderr
    assert '"pipeline_device_mapping"' in done.stdout and "On IPUs this run is feasible" in done.stdout
    assert "128.1 hours" in done.stdout  # 461,242,368 samples, rounded down to whole updates, at 1,000 a second
    assert picture.read_text().lstrip().startswith("<?xml")
    refused = subprocess.run([*command, "--suggest", "0"], cwd=ROOT, capture_output=True, text=True)
    assert refused.returncode == 2 and refused.stderr.count("\n") == 1
