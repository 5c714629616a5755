"""Sparse training through the command line: patterns, resume to the bit, export to a dense model and back."""

from __future__ import annotations

from pathlib import Path

import numpy as np
import pytest
from safetensors.numpy import load_file

from checkpoints.export.hf_folder import export
from sparsity import native
from sparsity.patterns import dense_matrix
from tests.support.runs import assert_same_run, killed_at, read_lines, train, trained, variables, write_config

pytestmark = pytest.mark.slow

SPARSITY = {"ratio": 0.75, "block_size": 4, "pattern_updates": 6}


def config_of(root: Path, name: str, sparsity: dict, **changes) -> Path:
    path = root / f"{name}.json"
    return path if path.exists() else write_config(path, root / "data", sparsity={**SPARSITY, **sparsity}, **changes)


@pytest.fixture(scope="module")
def whole(root, dataset):
    """Uninterrupted runs, by method; RigL with recomputation, and with evaluations within logging periods."""
    evaluated = {"evaluation": {"every": 3}, "validation_dir": str(root / "data")}
    result = {}
    for method in ("set", "rigl"):
        changes = {"enable_recomputation": True, **evaluated} if method == "rigl" else {}
        config = config_of(root, method, {"method": method}, **changes)
        result[method] = root / "runs" / method, train(config, root / "runs", status=0).errors
    return result


def sparse_parts(values: dict[str, np.ndarray]) -> list[str]:
    return sorted(name[: -len("/positions")] for name in values if name.endswith("/positions"))


def patterns(run: Path) -> list[dict]:
    return read_lines(run / "sparsity.jsonl")


@pytest.mark.parametrize("method", ["set", "rigl"])
def test_checkpoints_have_only_the_existing_blocks_and_their_moments(whole, method):
    run, _ = whole[method]
    values = variables(run, "weights")
    parts = sparse_parts(values)
    assert len(parts) == 4  # qkv, projection, intermediate, output
    for part in parts:
        inputs, outputs = values[f"{part}/matrix_shape"]
        size = inputs * outputs // 16
        count = round(0.25 * size)
        positions = values[f"{part}/positions"]
        assert positions.shape == (count,) and (np.diff(positions) > 0).all()
        assert set(positions) <= set(range(size))
        assert values[f"{part}/blocks"].shape == (count, 4, 4) and f"{part}/kernel" not in values
    trained = sum(value.size for name, value in values.items() if value.dtype == np.float32)
    moments = sum(value.size for value in variables(run, "optimizer").values())
    assert 2 * trained <= moments <= 2 * trained + 4  # and counters


def test_patterns_change_as_often_as_asked_and_explore(whole):
    random, gradients = (patterns(whole[method][0]) for method in ("set", "rigl"))
    # due after 3, 7, 11, 14, 18 and 22 updates; an execution of two is not interrupted
    assert [row["step"] for row in random] == [row["step"] for row in gradients] == [0, 4, 8, 12, 14, 18, 22]
    explored = [row["explored"] for row in random]
    assert explored == sorted(explored) and explored[0] == pytest.approx(0.25) and explored[-1] > 0.4
    assert all(density == pytest.approx(0.25) for density in random[-1]["density"].values())
    fractions = [row["fraction"] for row in random[1:]]
    assert fractions == sorted(fractions, reverse=True)
    random, gradients = (variables(whole[method][0], "weights") for method in ("set", "rigl"))
    assert any((random[f"{part}/positions"] != gradients[f"{part}/positions"]).any() for part in sparse_parts(random))


def test_the_log_names_the_kernels(whole):
    lines = [line for line in whole["set"][1].splitlines() if "sparse matrices of" in line]
    kernel = "native" if native.is_available() else "masked"
    assert len(lines) == 4 and all(f"25.0% in 4×4 blocks: {kernel}, " in line for line in lines)


def test_killed_and_resumed(whole, root, monkeypatch):
    """RigL needs the next update's samples in addition to step and seed."""
    config, (run, _) = config_of(root, "rigl", {}), whole["rigl"]
    killed_at(monkeypatch, 14, config, root / "runs", "--name", "killed")  # last saved after step 12
    assert "resuming from step 12" in train(config, root / "runs", "--name", "killed", "--resume", status=0).errors
    assert_same_run(root / "runs" / "killed", run)
    assert patterns(root / "runs" / "killed") == patterns(run)


def test_an_export_is_dense_and_a_sparse_run_starts_from_the_same_blocks(whole, root):
    run, _ = whole["set"]
    values = variables(run, "weights")
    folder = root / "exported"
    export(str(run), folder, encoder_only=True)
    arrays = load_file(folder / "model.safetensors")
    for part, names in {
        "hid_0/layer/attention/qkv": [f"attention.self.{name}" for name in ("query", "key", "value")],
        "hid_0/layer/intermediate/dense": ["intermediate.dense"],
        "hid_0/layer/feed_forward_output/dense": ["output.dense"],
    }.items():
        matrix = dense_matrix(values[f"{part}/blocks"], values[f"{part}/positions"], values[f"{part}/matrix_shape"])
        assert (matrix == 0).mean() >= 0.75
        exported = np.concatenate([arrays[f"encoder.layer.0.{name}.weight"].T for name in names], axis=-1)
        np.testing.assert_array_equal(exported, matrix)
    # Sparse training from the run begins with its largest blocks, which are those that exist.
    config = config_of(root, "sparse-again", {"method": "static"}, updates=2)
    again = trained(config, root / "runs", "--pretrained-ckpt-path", str(run))
    assert [row["step"] for row in patterns(again)] == [0]  # a static one does not change
    taken = variables(again, "weights")
    for part in sparse_parts(values):
        real = values[f"{part}/blocks"].any(axis=(1, 2))  # a block that is new may still be zero
        missing = set(values[f"{part}/positions"][real].tolist()) - set(taken[f"{part}/positions"].tolist())
        assert not missing
