"""Which device is used, and what is said of one that stays idle."""

from __future__ import annotations

import pytest

from execution.interface import ExecutionOptions
from execution.select import select_platform
from execution.software import devices
from tests import ROOT
from tests.support.config_files import load_config
from training.machine import execution_options
from utilities.environment import Gpu, graphcore_installed
from utilities.errors import UserError


@pytest.mark.parametrize(("visible", "named"), [(None, True), ("", False), ("-1", False)])
def test_an_idle_gpu_is_named_unless_the_user_hides_it(
    visible: str | None, named: bool, monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    monkeypatch.setattr(devices, "nvidia_gpus", lambda: (Gpu("NVIDIA L4", 23034, 8.9),))
    monkeypatch.delenv("CUDA_VISIBLE_DEVICES", raising=False)
    if visible is not None:
        monkeypatch.setenv("CUDA_VISIBLE_DEVICES", visible)
    devices.use_device("auto")
    words = ("GPU stays idle", "requirements-cuda.txt")
    assert [all(word in line for word in words) for line in caplog.messages] == [True] * named


@pytest.mark.parametrize(("platform", "saves_memory"), [("graphcore", True), ("software", False)])
def test_settings_that_save_memory_are_on_where_the_machine_needs_them(platform: str, saves_memory: bool) -> None:
    recipe = str(ROOT / "configs" / "pretraining" / "pretrain_base_128_phase1.json")
    flags = ["--execution.platform", platform, "--generated-dataset", "true"]
    config = load_config("pretraining", ["--config", recipe, *flags]).config
    assert (config.enable_recomputation, config.optimizer_state_offchip) == (None, None)
    options = execution_options(config)
    assert (options.recompute, options.optimizer_state_offchip) == (saves_memory, saves_memory)


def test_ipus_without_graphcores_packages_are_refused() -> None:
    assert not graphcore_installed()
    with pytest.raises(UserError, match=r"has no Graphcore TensorFlow.*set execution.platform to software"):
        select_platform(ExecutionOptions(platform="graphcore"))
