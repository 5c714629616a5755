"""The programs of published configs can be built completely for emulated IPUs; they are not executed.

The emulation invents the outputs of a program that is not executed as if they came from one replica. A run with several
replicas therefore ends in Keras' own code after its program is built.
"""

from __future__ import annotations

from pathlib import Path

import pytest

from tests.emulation.conftest import Emulation, write_config

IPUS = 4  # IPUs of a replica
REPLICAS = {"POD4": 1, "POD16": 4, "POD64": 16}
NO_OUTPUT_OF_REPLICAS = "Index out of range using input dim 0; input has only 0 dims"
CONFIGS = [
    ("pretrain_base_128_phase1_pod4", "POD4"),
    ("pretrain_base_128_phase1", "POD16"),
    ("pretrain_base_128_phase1_POD64", "POD64"),
    ("pretrain_large_128_phase1_pod4", "POD4"),
    ("pretrain_large_128_phase1", "POD16"),
    ("pretrain_large_128_phase1_POD64", "POD64"),
]


@pytest.mark.parametrize(("name", "system"), CONFIGS, ids=[name for name, _ in CONFIGS])
def test_the_program_is_traced(emulation: Emulation, tmp_path: Path, name: str, system: str) -> None:
    config = write_config(tmp_path / f"{name}.json", f"pretraining/{name}", execution={"platform": "graphcore"})
    arguments = ["--generated-dataset", "true", "--total-num-train-samples", "1000000"]
    end = NO_OUTPUT_OF_REPLICAS if REPLICAS[system] > 1 else ""
    run = emulation.emulated("pretraining", config, name, *arguments, flags=("--trace-only",), end=end)
    counts = run.counts
    assert (counts["ipus"], counts["replicas"]) == (IPUS * REPLICAS[system], REPLICAS[system])
    assert counts["stages"] == counts["backward_stages"] == len(counts["stage_ipus"])
    assert counts["offloaded_variables"] > 0
    assert (counts["sharded_variables"] > 0) == (name == "pretrain_large_128_phase1_POD64")
    assert (counts["programs"], counts["executions"]) == (1, 0)
