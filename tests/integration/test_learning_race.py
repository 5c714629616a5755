"""The learning race trains PyTorch in both ways on small random rows, and says who reaches which loss when."""

from __future__ import annotations

import time
from dataclasses import asdict
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from safetensors.numpy import load_file
from transformers import BertConfig, TFBertForMaskedLM

from benchmarks import measuring
from benchmarks.learning_race import reached_after
from checkpoints.pretrained.opening import open_pretrained
from data_utils.records.arrays import GeneratedReader
from data_utils.records.features import pretraining_features
from model.architecture import Architecture

pytest.importorskip("torch")

from benchmarks.race_pytorch import held_out_losses, rate_factor, train_pytorch

pytestmark = pytest.mark.slow

VOCABULARY, ROWS = 50, 64


def make_part(folder: Path, **changes: Any) -> dict[str, Any]:
    sizes = Architecture(16, VOCABULARY, 2, 1, 32, 0.0, 0.0, 16)
    part = {
        "rows": str(folder), "length": 16, "predictions": 3, "architecture": asdict(sizes), "batch": 8, "total": 4,
        "seconds": None, "decays": True, "learning_rate": 1e-3, "warm_up": 0.0, "muon_scale": 10.0,
        "word_vectors": True, "weight_decay": 0.01, "betas": [0.9, 0.98], "epsilon": 1e-6, "clip": 1.0, "seed": 1,
    }  # fmt: skip
    return {**part, **changes}


def make_rows(folder: Path, length: int) -> Path:
    folder.mkdir()
    reader = GeneratedReader(pretraining_features(length, 3, VOCABULARY), 1, ROWS)
    for name, values in reader.read(np.arange(ROWS)).items():
        np.save(folder / f"{name}.npy", values)
    return folder


def loss_by_tensorflow(folder: str, rows: Path) -> float:
    """Return the masked-LM loss of a Hugging Face folder over all rows, by Hugging Face's model in TensorFlow."""
    names = ["input_ids", "input_mask", "segment_ids", "masked_lm_positions", "masked_lm_ids", "masked_lm_weights"]
    ids, mask, segments, positions, labels, weights = (np.load(rows / f"{name}.npy") for name in names)
    model = TFBertForMaskedLM(BertConfig.from_pretrained(folder))
    model.build_in_name_scope()
    open_pretrained(folder, "bert_model_name").set_initial_weights(model)
    logits = model(input_ids=ids, attention_mask=mask, token_type_ids=segments).logits.numpy()  # (N, S, V)
    logits = np.take_along_axis(logits, positions[:, :, None].astype(np.int64), axis=1)  # (N, P, V)
    log_sums = np.log(np.exp(logits).sum(axis=-1))
    chosen = np.take_along_axis(logits, labels[:, :, None].astype(np.int64), axis=-1)[..., 0]
    return float(((log_sums - chosen) * weights).sum() / weights.sum())


def test_two_parts_are_trained_and_scored(tmp_path: Path) -> None:
    """The second part has longer rows, and a rate of 0: its positions are copies of those of the first."""
    first, rows = make_rows(tmp_path / "8", 8), make_rows(tmp_path / "16", 16)
    parts = [make_part(first, length=8), make_part(rows, muon_scale=None, word_vectors=False, learning_rate=0.0)]
    arguments = {"parts": parts, "folder": str(tmp_path), "start": time.time(), "snapshot_minutes": 60.0}
    result = measuring.in_process(train_pytorch, measuring.only("TORCH"), **arguments)
    ((minutes, folder),) = result["snapshots"]
    assert minutes > 0 and len(result["samples_per_second"]) == 2
    (loss,) = measuring.in_process(held_out_losses, measuring.only("TORCH"), folders=[folder], rows=str(rows))
    assert loss == pytest.approx(loss_by_tensorflow(folder, rows), abs=1e-4)
    positions = load_file(f"{folder}/model.safetensors")["bert.embeddings.position_embeddings.weight"]
    np.testing.assert_array_equal(positions[7:], np.concatenate([positions[1:7]] * 2)[: len(positions) - 7])


def test_rates_are_those_of_a_linear_warm_up_and_decay() -> None:
    part = {"total": 10, "warm_up": 0.4, "decays": True}
    assert [rate_factor(done, part) for done in (0, 3, 4, 7, 10)] == [0.25, 1.0, 1.0, 0.5, 0.0]


def test_the_first_snapshot_at_most_as_high_counts() -> None:
    result = {"snapshots": [(1.0, "a"), (2.0, "b"), (3.0, "c")], "losses": [5.0, 4.0, 3.0]}
    assert reached_after(result, 4.5) == 2.0
    assert reached_after(result, 2.0) is None
