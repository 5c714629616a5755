"""The section sparsity: refusals, overlay, a sparse model's operations, plan and report."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pytest

from model.architecture import Architecture, block_flops, block_parameters
from planning.estimates import planned_if_known
from planning.overview import plan_lines
from reports.page import write_report
from settings.loading import LoadedConfig
from sparsity.figures import sparse_weights
from tests.support.config_files import TINY, assert_config_refused, changed, load_config, write
from tests.support.published_configs import SIZES
from tests.support.published_configs import load as load_recipe


def load(folder: Path, sparsity: dict[str, Any]) -> LoadedConfig:
    values = changed(TINY, {"dataset_dir": str(folder), "sparsity": sparsity})
    return load_config("pretraining", ["--config", str(write(folder, values))])


BLOCKS = {"sparsity/ratio": 0.9}
BROKEN = [
    ({"sparsity/ratio": 0.5, "bert_config/hidden_size": 136, "bert_config/intermediate_size": 540}, ("set it to 4",)),
    ({"sparsity/block_size": 5}, ("sparsity.block_size", "1, 4, 8 or 16")),
    ({**BLOCKS, "bert_config/intermediate_size": 500}, ("sparsity", "blocks must divide")),
    ({"sparsity/layers": ["pooler"]}, ("sparsity.layers", "is not one of qkv, projection, intermediate, output")),
    ({"sparsity/ratio": 1.0}, ("sparsity.ratio",)),
    ({**BLOCKS, "sparsity/kernel": "native", "execution/xla": True}, ("sparsity.kernel", "outside of XLA")),
    ({**BLOCKS, "sparsity/kernel": "native", "sparsity/block_size": 1}, ("sparsity", "single weights")),
    ({**BLOCKS, "execution/platform": "graphcore"}, ("sparsity.ratio", "only on stock TensorFlow")),
    ({**BLOCKS, "replace_layers": False}, ("sparsity.ratio", "replace_layers to true")),
]


@pytest.mark.parametrize(("change", "words"), BROKEN, ids=str)
def test_broken_rules(
    change: dict[str, Any], words: tuple[str, ...], tmp_path: Path, capsys: pytest.CaptureFixture
) -> None:
    assert_config_refused("pretraining", changed(TINY, change), words, tmp_path, capsys)


@pytest.mark.parametrize("model", list(SIZES))
def test_the_overlay_changes_only_the_ratio(model: str) -> None:
    overlays, others = ["devlin", "systems/cpu"], {"about", "extends"}
    loaded = [load_recipe(f"pretrain_{model}_128_phase1", overlays=each) for each in ([*overlays, "sparse"], overlays)]
    sparse, dense = (each.config.model_dump(exclude=others) for each in loaded)
    assert sparse == {**dense, "sparsity": {**dense["sparsity"], "ratio": 0.9}}


def test_parameters_and_operations_count_the_blocks_that_exist() -> None:
    sizes = {"hidden_size": 128, "intermediate_size": 512, "num_attention_heads": 2}
    dense = Architecture(**sizes)
    sparse = Architecture(**sizes, sparsity_ratio=0.9, sparsity_block_size=16)
    # By hand: 8 × 24, 8 × 8, 8 × 32 and 32 × 8 blocks of 256 weights, of which a tenth exists.
    weights = 256 * (19 + 6 + 26 + 26)
    outside = 4 * 128 + 512 + 128  # gains, offsets and biases
    assert block_parameters(sparse, "hid") == weights + outside
    assert block_parameters(dense, "hid") == 4 * 128 * 128 + 2 * 128 * 512 + outside
    attention = 4 * 64 * 64 * 128
    assert block_flops(sparse, "hid", 64) == 2 * 64 * weights + attention
    some = Architecture(**sizes, sparsity_ratio=0.9, sparse_parts=["output"])
    assert sparse_weights(some, "output", 512, 128) == 256 * 26 and sparse_weights(some, "qkv", 128, 384) is None
    assert some.matrix_weights() == 256 * 26 + 4 * 128 * 128 + 128 * 512


def test_plan_compares_with_the_dense_model(tmp_path: Path) -> None:
    loaded = load(tmp_path, {"ratio": 0.9})
    text = "\n".join(plan_lines(loaded))
    assert "10.0% of its matrices' weights exist" in text and "of the parameters" in text and "of the FLOPs" in text
    figures, _ = planned_if_known(loaded.config, "pretraining").of_rooms()
    assert figures["encoder_density"] == pytest.approx(256 * 77 / (4 * 128 * 128 + 2 * 128 * 512))
    assert 0 < figures["flops_of_dense"] < 1 and 0 < figures["parameters_of_dense"] < 1
    dense = load(tmp_path, {})
    figures, _ = planned_if_known(dense.config, "pretraining").of_rooms()
    assert "encoder_density" not in figures
    assert "sparse" not in "\n".join(plan_lines(dense)).split("Run", 1)[1]


def test_report_shows_the_explored_blocks(tmp_path: Path) -> None:
    def row(step: int, explored: float, **more: Any) -> dict[str, Any]:
        parts = {"hid_0/qkv": explored - 0.1, "hid_0/output": explored + 0.1}
        return {"step": step, "explored": explored, "density": dict.fromkeys(parts, 0.25), "layers": parts, **more}

    rows = [row(0, 0.2), row(10, 0.4), row(20, 0.9), row(20, 0.5)]  # a resumed run repeats a step
    lines = [json.dumps(value) for value in rows]
    (tmp_path / "sparsity.jsonl").write_text("\n".join([*lines, '{"step": 30, "expl']), encoding="utf-8")
    periods = [{"step": s, "samples": 32 * s, "metrics": {"mlm_loss": 9.0 - s / 10}} for s in (10, 20)]
    (tmp_path / "metrics.jsonl").write_text("\n".join(map(json.dumps, periods)) + "\n", encoding="utf-8")
    derived = {"config": {}, "origins": {}, "derived": {"flops_per_sample": 1e9, "encoder_density": 0.25}}
    (tmp_path / "resolved_config.json").write_text(json.dumps(derived), encoding="utf-8")
    page = write_report(tmp_path).read_text(encoding="utf-8")
    assert "blocks that ever existed" in page and "loss against FLOPs" in page
    assert "hid_0/output" in page and "25.00%" in page and "60.0%" in page and "100.0%" not in page
