"""Refusals of what IPUs do not support."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest

from tests.support.config_files import TINY, assert_config_refused, changed, run_command, write

PROPORTIONS = "ipu_config/matmul_available_memory_proportion_per_pipeline_stage"
SCHEDULE, SHARDING = "ipu_config/pipeline_schedule", "ipu_config/replicated_tensor_sharding"
ON_IPU = {"execution/platform": "graphcore"}
SHARDED_ON_THE_CHIP = {"optimizer_state_offchip": False, SHARDING: True}
BROKEN = [
    ({PROPORTIONS: [0.2, 0.2, 0.2]}, ("proportion_per_pipeline_stage", "2 in all")),
    ({**ON_IPU, **SHARDED_ON_THE_CHIP}, ("optimizer_state_offchip", "replicated_tensor_sharding", "to true")),
    ({**ON_IPU, SCHEDULE: "interleaved"}, ("_schedule", "pipeline_device_mapping", "on one IPU", "to grouped")),
    ({**ON_IPU, "optimizer_opts/name": "Muon"}, ("optimizer_opts.name", "no Muon", "to AdamW or LAMB")),
    ({**ON_IPU, "optimizer_opts/max_gradient_norm": 1.0}, ("max_gradient_norm", "on IPUs", "set it to none")),
    ({**ON_IPU, "optimizer_opts/loss_scaling": "auto"}, ("loss_scaling", "IPUs have no automatic", "4096")),
    ({**ON_IPU, "execution/precision": "bfloat16"}, ("execution.precision", "IPUs lack", "float16 or float32")),
    ({**ON_IPU, "evaluation/every": 5}, ("evaluation.every", "IPUs do not measure losses", "on a CPU or GPU")),
    (
        {**ON_IPU, "do_training": False, "pretrained_ckpt_path": "run", "validation_dir": "data"},
        ("do_training = false", "IPUs do not measure losses"),
    ),
]


@pytest.mark.parametrize(("change", "words"), BROKEN, ids=str)
def test_broken_rules(
    change: dict[str, Any], words: tuple[str, ...], tmp_path: Path, capsys: pytest.CaptureFixture
) -> None:
    assert_config_refused("pretraining", changed(TINY, change), words, tmp_path, capsys)


@pytest.mark.parametrize("change", [SHARDED_ON_THE_CHIP, {SCHEDULE: "interleaved"}])
def test_limits_of_ipus_apply_to_graphcore_only(change: dict[str, Any], tmp_path: Path) -> None:
    path = str(write(tmp_path, changed(TINY, change)))
    assert run_command("pretraining", ["--config", path, "--execution.platform", "software", "--plan"]) == 0
