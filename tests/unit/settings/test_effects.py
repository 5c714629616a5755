"""Settings for an IPU that a machine ignores are reported once, in words."""

from __future__ import annotations

import pytest

from planning.overview import ignored_fields, plan_lines, warning_line
from settings.fields import Machine
from settings.loading import load_config
from tests.support.config_files import TINY, changed, write
from tests.unit.settings.test_published_settings import ROWS, load

CPU = Machine("float32", pipelined=False)


@pytest.fixture(autouse=True)
def _datasets_dir(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("DATASETS_DIR", "/data")


def line_of(loaded, machine=CPU):
    return warning_line(loaded.config, loaded.origins, machine)


def loaded(tmp_path, *flags, **changes):
    return load_config("pretraining", ["--config", str(write(tmp_path, changed(TINY, changes))), *flags])


@pytest.mark.parametrize("name", sorted(ROWS))
def test_published_ipu_configs_give_one_line_that_names_their_keys(name):
    line = line_of(load(name))
    assert "\n" not in line
    assert "matmul_available_memory_proportion_per_pipeline_stage (limits the memory for temporaries" in line
    assert "pipeline_device_mapping (puts stages on IPUs of their own)" in line
    assert "min_remote_tensor_size" not in line, "a default is no one's wish"


@pytest.mark.parametrize("overlay", ["cpu", "gpu"])
@pytest.mark.parametrize("name", [name for name in sorted(ROWS) if "POD64" not in name])
def test_configs_for_other_machines_ask_for_nothing_that_is_not_there(name, overlay):
    keys = [found.name for found in _given(load(name, over=[f"systems/{overlay}"]))]
    assert set(keys) <= {"embedding_serialization_factor"}  # in the published base, which says what model it is


def _given(config):
    return [
        found
        for found in ignored_fields(config.config, config.origins, CPU)
        if found.origin not in ("default", "derived")
    ]


def test_what_is_set_is_named_and_what_is_default_is_not(tmp_path):
    before = line_of(loaded(tmp_path)) or ""
    assert "use_outlining" not in before and "matmul_partials_type" not in before
    for key, value in [("use_outlining", "true"), ("matmul_partials_type", "half"), ("min_remote_tensor_size", "9")]:
        assert key in line_of(loaded(tmp_path, "--" + key.replace("_", "-"), value))
    assert "matmul_partials_type" not in (line_of(loaded(tmp_path, "--matmul-partials-type", "float")) or "")
    assert "use_outlining" not in (line_of(loaded(tmp_path, "--use-outlining", "false")) or "")


def test_it_depends_on_the_machine(tmp_path):
    config = loaded(tmp_path, "--enable-stochastic-rounding", "true", "--optimizer-opts.loss-scaling", "auto")
    assert "stochastic_rounding" in line_of(config) and "loss_scaling" in line_of(config)
    narrow = line_of(config, Machine("float16", pipelined=False)) or ""
    assert "stochastic_rounding" not in narrow and "loss_scaling" not in narrow
    pipelined = line_of(load(sorted(ROWS)[0]), Machine("float32", pipelined=True))
    assert "pipeline_device_mapping" not in pipelined


@pytest.mark.parametrize("precision, noted", [("float32", True), ("bfloat16", True), ("float16", False)])
def test_a_loss_scale_works_in_float16_only(tmp_path, precision, noted):
    given = loaded(tmp_path, "--optimizer-opts.loss-scaling", "4096")
    assert ("optimizer_opts.loss_scaling" in (line_of(given, Machine(precision, pipelined=False)) or "")) == noted
    assert "loss_scaling" not in (line_of(loaded(tmp_path, "--optimizer-opts.loss-scaling", "none")) or "")


def test_where_the_optimizer_state_lies_depends_on_device_and_processes(tmp_path):
    offchip = loaded(tmp_path, "--optimizer-state-offchip", "true")
    assert "optimizer_state_offchip" in line_of(offchip)
    assert "optimizer_state_offchip" not in (line_of(offchip, CPU._replace(on_gpu=True)) or "")
    sharded = loaded(tmp_path, "--ipu-config.replicated-tensor-sharding", "true", "--optimizer-state-offchip", "false")
    assert "replicated_tensor_sharding" in line_of(sharded)
    assert "replicated_tensor_sharding" not in (line_of(sharded, CPU._replace(processes=2)) or "")


def test_the_plan_has_the_table_with_defaults(tmp_path):
    lines = list(plan_lines(loaded(tmp_path)))
    start = next(number for number, line in enumerate(lines) if line.startswith("Without effect on stock TensorFlow"))
    shown = "\n".join(lines[start:])
    assert "min_remote_tensor_size" in shown and "there is no such memory" in shown
    ipu = loaded(tmp_path, "--execution.platform", "graphcore")
    assert not any(line.startswith("Without effect") for line in plan_lines(ipu))
