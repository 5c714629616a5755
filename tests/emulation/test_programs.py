"""What the programs of runs on emulated IPUs consist of, as the config asks for it."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import numpy as np
import pytest

from tests.emulation.conftest import Emulation, Run, write_config
from tests.emulation.test_updates import ADAMW, PREDICTIONS, SEQUENCE, SHARED, SIZES, UPDATES, VOCABULARY, pretraining

MICRO_BATCHES = UPDATES * SHARED["global_batch"]["grad_acc_steps_per_replica"]
DROPOUT = {**SIZES, "hidden_dropout_prob": 0.1, "vocab_size": VOCABULARY}
ONE_STAGE = {
    "pipeline_stages": [["emb", "hid", "hid", "enc_out", "pool", "heads"]], "pipeline_device_mapping": [0],
    "matmul_available_memory_proportion_per_pipeline_stage": [0.2],
}  # fmt: skip


def trained(emulation: Emulation, folder: Path, *arguments: str, flags: tuple[str, ...] = (), **changes: Any) -> Run:
    return emulation.emulated("pretraining", pretraining(folder, **changes), "run", *arguments, flags=flags)


def test_published_optimizer_in_float16_on_three_stages(emulation: Emulation, tmp_path: Path) -> None:
    changes = {"execution": {"platform": "graphcore"}, "embedding_serialization_factor": 2, "bert_config": DROPOUT}
    counts = trained(emulation, tmp_path, **changes).counts
    assert (counts["micro_batches"], counts["updates"]) == (MICRO_BATCHES, UPDATES)
    assert (counts["stages"], counts["backward_stages"], counts["stage_ipus"]) == (3, 3, [0, 1, 0])
    assert counts["recomputation_checkpoints"] == SIZES["num_hidden_layers"]
    assert counts["outlined_functions"] > 0 and counts["offloaded_variables"] > 0


def test_products_lookups_and_outlined_functions_are_those_that_the_readme_explains(
    emulation: Emulation, tmp_path: Path
) -> None:
    factor, layers, each = 2, SIZES["num_hidden_layers"], 3  # a product forward and two backward
    changes = {"execution": {"platform": "graphcore"}, "embedding_serialization_factor": factor}
    options = {"use_cls_layer": False, "use_qkv_bias": False, "use_qkv_split": False, "use_projection_bias": False}
    run = trained(emulation, tmp_path, flags=("--trace-only",), **changes, **options)
    dense = 4 * layers + 2  # a layer's: QKV, projection, intermediate, output; pooler, next sentence
    assert run.counts["matmuls"] == each * (dense + factor)
    assert run.counts["lookups"] == factor + 1  # words, a slice of the table each, and segments
    weights = 5 + 10 * layers + 2 + 1 + 2  # embeddings, layers, pooler, masked words, next sentence
    assert run.counts["outlined_functions"] == weights + 2 * 4 * layers + factor  # updates, four in a layer, lookups


def test_a_sequential_schedule_without_recomputation(emulation: Emulation, tmp_path: Path) -> None:
    changes = {"enable_recomputation": False, "ipu_config": {"pipeline_schedule": "sequential"}}
    counts = trained(emulation, tmp_path, optimizer_opts=ADAMW, **changes).counts
    assert (counts["updates"], counts["schedule"], counts["recomputation_checkpoints"]) == (UPDATES, 2, 0)


def test_dropout_of_attention_is_a_random_op_a_layer_and_none_without_dropout(
    emulation: Emulation, tmp_path: Path
) -> None:
    found = []
    for number, (hidden, attention) in enumerate([(0.1, 0.1), (0.1, 0.0), (0.0, 0.0)]):
        (tmp_path / str(number)).mkdir()
        rates = {"hidden_dropout_prob": hidden, "attention_probs_dropout_prob": attention}
        sizes = {**SIZES, "vocab_size": VOCABULARY, **rates}
        run = trained(emulation, tmp_path / str(number), flags=("--trace-only",), bert_config=sizes)
        found.append(run.counts["random_ops"])
    assert found[0] - found[1] == SIZES["num_hidden_layers"]
    assert found[1] > 0 and found[2] == 0


def test_one_stage_is_no_pipeline(emulation: Emulation, tmp_path: Path) -> None:
    counts = trained(emulation, tmp_path, ipu_config=ONE_STAGE).counts
    assert (counts["updates"], counts["micro_batches"], counts["stages"], counts["ipus"]) == (3, MICRO_BATCHES, 0, 1)


def test_the_published_packed_config_is_trained(emulation: Emulation, tmp_path: Path) -> None:
    published = "pretraining/pretrain_tiny_128_phase1_packed"
    sizes = {"bert_config": DROPOUT, "max_seq_length": 2 * SEQUENCE, "max_predictions_per_seq": PREDICTIONS}
    samples = {"generated_dataset": True, "total_num_train_samples": 144}  # a pack has several
    config = write_config(tmp_path / "packed.json", published, **{**SHARED, **sizes, **samples})
    assert emulation.emulated("pretraining", config, "packed").counts["updates"] > 0


def test_state_is_sharded_over_replicas_and_offloaded(emulation: Emulation, tmp_path: Path) -> None:
    changes = {"ipu_config": {"replicated_tensor_sharding": True}, "optimizer_state_offchip": True}
    batch = {**SHARED["global_batch"], "replicas": 2}
    samples = 2 * SHARED["total_num_train_samples"]
    counts = trained(emulation, tmp_path, **changes, global_batch=batch, total_num_train_samples=samples).counts
    assert counts["sharded_variables"] > 0 and counts["offloaded_variables"] > 0


def test_a_resumed_run_ends_with_the_same_loss(emulation: Emulation, tmp_path: Path) -> None:
    samples = 2 * SHARED["total_num_train_samples"]
    config = pretraining(
        tmp_path, optimizer_opts=ADAMW, total_num_train_samples=samples, ckpt_every_n_steps_per_execution=2
    )
    whole = emulation.emulated("pretraining", config, "resumed")
    losses = whole.losses("mlm_loss")
    *_, last = sorted((whole.folder / "checkpoints").glob("step-*"))
    last.rename(tmp_path / "last checkpoint")
    again = emulation.emulated("pretraining", config, "resumed", "--resume")
    assert 0 < again.counts["updates"] < 2 * UPDATES
    np.testing.assert_allclose(again.losses("mlm_loss")[-1], losses[-1], rtol=0, atol=1e-4)


def test_compile_only_makes_a_program_and_executes_none(emulation: Emulation, tmp_path: Path) -> None:
    counts = trained(emulation, tmp_path, "--compile-only").counts
    assert (counts["programs"], counts["executions"]) == (1, 0)


@pytest.mark.parametrize("ipus", [1, 2])
def test_a_config_that_wants_more_ipus_than_there_are_is_refused(
    emulation: Emulation, tmp_path: Path, ipus: int
) -> None:
    config = pretraining(tmp_path)
    end = "asks for 2 IPUs, and 1 are attached" if ipus == 1 else ""
    run = emulation.emulated("pretraining", config, "few", flags=("--ipus", str(ipus)), end=end)
    assert run.counts.get("updates", 0) == (UPDATES if ipus == 2 else 0)
