"""Every published config gives the IPU settings of the published table; an unknown setting or argument fails."""

from __future__ import annotations

import dataclasses
import os
from collections.abc import Iterator
from types import ModuleType
from typing import Any

import pytest

from execution.interface import ExecutionOptions, Update
from execution.select import processes_for, select_platform
from tests.support.graphcore.double import Recorder, installed
from tests.support.published_configs import ROWS, load
from training.machine import execution_options
from utilities.environment import graphcore_installed
from utilities.errors import UserError

SIZE_OF_POD = {1: 1, 2: 2, 3: 4, 4: 4, 5: 8}  # IPUs are allocated in powers of two


@pytest.fixture
def recorder() -> Iterator[Recorder]:
    with installed({"popdist.isPopdistEnvSet": lambda: False}) as recorder:
        yield recorder


@pytest.fixture
def adapter(recorder: Recorder) -> ModuleType:
    import graphcore.platform

    return graphcore.platform


@pytest.mark.parametrize("name", sorted(ROWS))
def test_system_of_every_published_config(name: str, adapter: ModuleType) -> None:
    row, options = ROWS[name], execution_options(load(name).config)
    system = adapter.system_config(options).to_dict()
    ipus = SIZE_OF_POD[max(row["device_mapping"]) + 1]
    changed = {
        "auto_select_ipus": ipus * row["replicas"],
        "allow_recompute": True,
        "compilation_poplar_options": {"target.deterministicWorkers": "portable"},
        "matmuls.poplar_options": {"partialsType": "half"},
        "norms.use_stable_statistics": True,
        "optimizations.minimum_remote_tensor_size": 50000,
        "optimizations.merge_infeed_io_copies": True,
        "optimizations.maximum_cross_replica_sum_buffer_size": 10 * 2**20,
        "device_connection.enable_remote_buffers": True,
    }
    assert {key: system[key] for key in changed} == changed
    assert system["floating_point_behaviour.esr"].name == "ON"
    assert system["device_connection.type"].name == "ON_DEMAND"
    untouched = adapter.IPUConfig().to_dict()
    others = set(system) - set(changed) - {"floating_point_behaviour.esr", "device_connection.type"}
    assert {key: system[key] for key in others} == {key: untouched[key] for key in others}


@pytest.mark.parametrize("name", sorted(ROWS))
def test_pipeline_of_every_published_config(name: str, adapter: ModuleType, recorder: Recorder) -> None:
    row, options = ROWS[name], execution_options(load(name).config)
    update = Update(row["replicas"] * row["grad_acc_steps_per_replica"], row["replicas"])
    given = adapter.training_options(options, update)
    forward = given.pop("forward_propagation_stages_poplar_options")
    assert given.pop("backward_propagation_stages_poplar_options") == forward
    assert {key: getattr(value, "name", value) for key, value in given.items()} == {
        "device_mapping": row["device_mapping"],
        "pipeline_schedule": "Grouped",
        "gradient_accumulation_steps_per_replica": row["grad_acc_steps_per_replica"],
        "gradient_accumulation_reduction_method": "MEAN",
        "offload_weight_update_variables": True,  # also if state is sharded, because only off-chip state can be
        "replicated_optimizer_state_sharding": row["rts"],
        "recomputation_mode": "RecomputeAndBackpropagateInterleaved",
    }
    matmuls = [call["matmul_options"] for call in recorder.called("PipelineStageOptions")]
    assert len(forward) == len(matmuls) == len(row["pipeline_stages"])
    shares = [str(row["matmul_memory_proportion"][ipu]) for ipu in row["device_mapping"]]
    assert [options["availableMemoryProportion"] for options in matmuls] == shares
    assert {options["partialsType"] for options in matmuls} == {"half"}


def changed(**values: Any) -> ExecutionOptions:
    return dataclasses.replace(ExecutionOptions(device_mapping=(0, 1, 0), recompute=True), **values)


@pytest.mark.parametrize(
    ("schedule", "mode"),
    [
        ("grouped", "RecomputeAndBackpropagateInterleaved"),
        ("interleaved", "RecomputeThenBackpropagate"),  # the only mode that this schedule has
        ("sequential", "RecomputeAndBackpropagateInterleaved"),
    ],
)
def test_recomputation_fits_the_schedule(schedule: str, mode: str, adapter: ModuleType) -> None:
    given = adapter.training_options(changed(pipeline_schedule=schedule), Update(12))
    assert (given["pipeline_schedule"].name, given["recomputation_mode"].name) == (schedule.capitalize(), mode)
    assert "recomputation_mode" not in adapter.training_options(changed(recompute=False), Update(12))


def test_switches_reach_the_system(adapter: ModuleType) -> None:
    system = adapter.system_config(changed(fp_exceptions=True, min_remote_tensor_size=7, matmul_partials="float"))
    values = system.to_dict()
    assert all(values[f"floating_point_behaviour.{name}"] is True for name in ("inv", "div0", "oflo", "nanoo"))
    assert values["optimizations.minimum_remote_tensor_size"] == 7
    assert values["matmuls.poplar_options"] == {"partialsType": "float"}
    compiling = adapter.system_config(changed(compile_only=True)).to_dict()
    assert compiling["device_connection.type"].name == "PRE_COMPILE"
    assert compiling["device_connection.version"] == "ipu2"


def test_auto_selects_graphcore_where_it_is_installed(recorder: Recorder, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.delenv("TF_POPLAR_FLAGS", raising=False)
    assert graphcore_installed()
    platform = select_platform(ExecutionOptions(platform="auto", seed=5, replicas=2, executable_cache="/cache"))
    assert (platform.name, platform.precision) == ("graphcore", "float16")
    names = [call.name.rpartition(".")[2] for call in recorder.calls]
    order = ["IPUConfig", "configure_ipu_system", "IPUStrategyV1", "reset_ipu_seed"]
    assert [name for name in names if name in order] == order  # the system is configured before it is used
    assert recorder.called("reset_ipu_seed")[0]["seed"] == 5
    assert os.environ["TF_POPLAR_FLAGS"] == "--executable_cache_path=/cache"
    monkeypatch.delenv("TF_POPLAR_FLAGS")


def test_poprun_starts_the_processes() -> None:
    popdist = {
        "popdist.isPopdistEnvSet": lambda: True, "popdist.getNumTotalReplicas": lambda: 4,
        "popdist.getNumInstances": lambda: 2, "popdist.getInstanceIndex": lambda: 1,
    }  # fmt: skip
    with installed(popdist) as recorder:
        select_platform(ExecutionOptions(platform="graphcore", replicas=4, device_mapping=(0, 1, 2)))
        assert len(recorder.called("PopDistStrategy")) == 1 and not recorder.called("IPUStrategyV1")
        assert recorder.called("PopDistStrategy.update_ipu_config")
        assert recorder.called("set_ipu_config")[0]["ipus_per_replica"] == 4
        assert not processes_for("auto").is_chief  # only instance 0 is the chief; this one writes no files
        with pytest.raises(UserError, match="PopRun started 4; start it with --num-replicas 2"):
            select_platform(ExecutionOptions(platform="graphcore", replicas=2))
