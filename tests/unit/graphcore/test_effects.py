"""Flags for an IPU that another machine ignores are listed in one warning."""

from __future__ import annotations

import dataclasses
from pathlib import Path

import pytest

from graphcore.effects import EFFECTS, Machine, ignored_fields, warning_line
from planning.overview import plan_lines
from settings.loading import LoadedConfig
from settings.schema import leaves
from tests.support.config_files import TINY, load_config, write
from tests.support.published_configs import ROWS, load

CPU = Machine("float32", pipelined=False)
FLOAT16 = Machine("float16", pipelined=False)


def warning(loaded: LoadedConfig, machine: Machine = CPU) -> str:
    return warning_line(loaded.config, loaded.origins, machine) or ""


def load_tiny(tmp_path: Path, *flags: str) -> LoadedConfig:
    return load_config("pretraining", ["--config", str(write(tmp_path, TINY)), *flags])


@pytest.mark.parametrize("name", ROWS)
def test_published_configs_give_no_warning_and_flags_one_line(name: str) -> None:
    loaded = load(name)
    assert len(ignored_fields(loaded.config, CPU)) > 3 and not warning(loaded)
    typed = dict.fromkeys(("ipu_config.pipeline_device_mapping", "optimizer_opts.loss_scaling"), "command line")
    line = warning(dataclasses.replace(loaded, origins={**loaded.origins, **typed}))
    assert "\n" not in line and "pipeline_device_mapping (" in line
    assert "min_remote_tensor_size" not in line, "a default is not listed"


@pytest.mark.parametrize("overlay", ["cpu", "gpu"])
@pytest.mark.parametrize("name", [name for name in ROWS if "POD64" not in name])
def test_overlays_for_other_machines_leave_no_ignored_field(name: str, overlay: str) -> None:
    loaded = load(name, overlays=[f"systems/{overlay}"])
    ignored = ignored_fields(loaded.config, CPU)
    names = {name for name in ignored if loaded.origins[name] not in ("default", "derived")}
    assert names <= {"embedding_serialization_factor"}  # a property of the published model


def test_effects_are_of_fields_in_the_schema_s_order() -> None:
    assert list(EFFECTS) == [name for name in leaves() if name in EFFECTS]


SHARDED = ("--ipu-config.replicated-tensor-sharding", "true", "--optimizer-state-offchip", "false")


@pytest.mark.parametrize(
    ("flags", "field", "machine", "listed"),
    [
        ((), "use_outlining", CPU, False),
        (("--use-outlining", "true"), "use_outlining", CPU, True),
        (("--use-outlining", "false"), "use_outlining", CPU, False),
        (("--matmul-partials-type", "half"), "matmul_partials_type", CPU, True),
        (("--matmul-partials-type", "float"), "matmul_partials_type", CPU, False),
        (("--enable-stochastic-rounding", "true"), "stochastic_rounding", CPU, True),
        (("--enable-stochastic-rounding", "true"), "stochastic_rounding", FLOAT16, False),
        (("--optimizer-opts.loss-scaling", "4096"), "loss_scaling", CPU, True),
        (("--optimizer-opts.loss-scaling", "4096"), "loss_scaling", Machine("bfloat16", pipelined=False), True),
        (("--optimizer-opts.loss-scaling", "4096"), "loss_scaling", FLOAT16, False),
        (("--execution.executable-cache", "programs"), "execution.executable_cache", CPU, True),
        ((), "execution.executable_cache", CPU, False),
        (("--optimizer-state-offchip", "true"), "optimizer_state_offchip", CPU, True),
        (("--optimizer-state-offchip", "true"), "optimizer_state_offchip", CPU._replace(on_gpu=True), False),
        (SHARDED, "replicated_tensor_sharding", CPU, True),
        (SHARDED, "replicated_tensor_sharding", CPU._replace(processes=2), False),
        (("--ipu-config.pipeline-device-mapping", "0", "1", "0"), "pipeline_device_mapping", CPU, True),
        (
            ("--ipu-config.pipeline-device-mapping", "0", "1", "0"), "pipeline_device_mapping",
            Machine("float32", pipelined=True), False,
        ),
    ],
)  # fmt: skip
def test_ignored_fields_depend_on_value_and_machine(
    tmp_path: Path, flags: tuple[str, ...], field: str, machine: Machine, listed: bool
) -> None:
    assert (field in warning(load_tiny(tmp_path, *flags), machine)) == listed


def test_plan_lists_ignored_fields_with_their_defaults(tmp_path: Path) -> None:
    lines = list(plan_lines(load_tiny(tmp_path)))
    start = next(number for number, line in enumerate(lines) if line.startswith("Without effect on stock TensorFlow"))
    assert "min_remote_tensor_size" in "\n".join(lines[start:])
    ipu = load_tiny(tmp_path, "--execution.platform", "graphcore")
    assert not any(line.startswith("Without effect") for line in plan_lines(ipu))
