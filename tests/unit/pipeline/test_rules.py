"""Refusals of devices and schedules of a pipeline."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest

from tests.support.config_files import TINY, assert_config_refused, changed

STAGES, DEVICES = "ipu_config/pipeline_stages", "ipu_config/pipeline_device_mapping"
ACCUMULATION, SCHEDULE = "global_batch/grad_acc_steps_per_replica", "ipu_config/pipeline_schedule"
PARALLEL, SEVERAL = {"execution/parallel_micro_batches": True}, {"execution/pipeline_devices": 2}
BROKEN = [
    ({STAGES: ...}, ("pipeline_device_mapping", "1 of pipeline_stages")),
    ({DEVICES: [0, 1]}, ("pipeline_device_mapping", "one device for each stage, 3")),
    ({DEVICES: [0, 2, 0]}, ("pipeline_device_mapping", "write [0, 1, 0]")),
    ({DEVICES: [0, 1, 1]}, ("pipeline_device_mapping", "as in [0, 1, 0]")),
    ({ACCUMULATION: 13}, ("grad_acc_steps_per_replica", "12 or 18")),
    ({ACCUMULATION: 1}, ("grad_acc_steps_per_replica", "set it to 6")),
    ({ACCUMULATION: 10, SCHEDULE: "interleaved"}, ("grad_acc_steps_per_replica", "9 or 12")),
    (
        {**PARALLEL, **SEVERAL},
        ("execution.parallel_micro_batches", "computes micro batches at the same time by itself"),
    ),
]


@pytest.mark.parametrize(("change", "words"), BROKEN, ids=str)
def test_broken_rules(
    change: dict[str, Any], words: tuple[str, ...], tmp_path: Path, capsys: pytest.CaptureFixture
) -> None:
    assert_config_refused("pretraining", changed(TINY, change), words, tmp_path, capsys)
