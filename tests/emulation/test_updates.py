"""Three updates on emulated IPUs give the losses and weights of the same updates on stock TensorFlow.

The runs use float32, no dropout, and the same weights and data. All micro batches have equal weight, because on IPUs
losses are averaged within each.
"""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from data_utils.packing.merge import pack_arrays
from data_utils.records.arrays import GeneratedReader
from tests.emulation.conftest import Emulation, Run, write_config
from tests.support.fine_tuning_runs import PIECES, write_pieces, write_squad, write_sst2
from tests.support.published_checkpoints import Options, Sizes, write_random
from tests.support.record_samples import PREDICTIONS, SEQUENCE, VOCABULARY, spec, write_arrays
from tests.support.runs import evaluations, read_json
from tests.support.squad_files import write_vocabulary

TOLERANCE = 1e-4
UPDATES, BATCH, STEPS = 3, 2, 6  # STEPS: micro batches of an update
SAMPLES = UPDATES * BATCH * STEPS
PER_PACK = 2  # sequences in a pack

SIZES = {
    "hidden_size": 16, "num_attention_heads": 2, "intermediate_size": 32, "num_hidden_layers": 2,
    "hidden_dropout_prob": 0.0, "attention_probs_dropout_prob": 0.0, "max_position_embeddings": 32,
    "initializer_range": 0.1,
}  # fmt: skip
SHARED: dict[str, Any] = {
    "global_batch": {"micro_batch_size": BATCH, "replicas": 1, "grad_acc_steps_per_replica": STEPS},
    "total_num_train_samples": SAMPLES, "num_epochs": None, "global_batches_per_log": 1,
}  # fmt: skip
# This epsilon keeps Adam from amplifying rounding errors of a gradient that is 0 (of a bias before softmax).
ADAMW = {
    "name": "AdamW",
    "decay_rule": "published",
    "epsilon": 1e-4,
    "loss_scaling": 128,
    "learning_rate": {"max_learning_rate": 0.01},
}
LAMB = {"name": "LAMB", "decay_rule": "published", "loss_scaling": 128, "learning_rate": {"max_learning_rate": 0.01}}


def records(count: int) -> dict[str, np.ndarray]:
    """Return sequences without padding, each with the maximum number of masked words."""
    return GeneratedReader(spec(), 3, count).read(np.arange(count))


def pretraining(folder: Path, **changes: Any) -> Path:
    (folder / "records").mkdir()
    write_arrays(folder / "records" / "part.tfrecord", records(96))
    return write_config(
        folder / "pretraining.json",
        "pretraining/pretrain_tiny_128_phase1",
        dataset_dir=str(folder / "records"),
        max_seq_length=SEQUENCE,
        max_predictions_per_seq=PREDICTIONS,
        **{**SHARED, "bert_config": {**SIZES, "vocab_size": VOCABULARY}, "optimizer_opts": LAMB, **changes},
    )


def unconverted(folder: Path) -> Path:
    return pretraining(folder, replace_layers=False, optimizer_opts=ADAMW)


def packs(folder: Path) -> Path:
    rows = [range(first, first + PER_PACK) for first in range(0, 96, PER_PACK)]
    length, predictions = PER_PACK * SEQUENCE, PER_PACK * PREDICTIONS
    (folder / "packs").mkdir()
    packed = pack_arrays(records(96), rows, length, predictions, PER_PACK)
    write_arrays(folder / "packs" / "part.tfrecord", packed)
    return write_config(
        folder / "packs.json",
        "pretraining/pretrain_tiny_128_phase1",
        dataset_dir=str(folder / "packs"),
        bert_config={**SIZES, "vocab_size": VOCABULARY},
        max_seq_length=length,
        packing={"max_sequences_per_pack": PER_PACK, "max_predictions_per_pack": predictions},
        optimizer_opts=ADAMW,
        **{**SHARED, "total_num_train_samples": PER_PACK * SAMPLES},
    )


def squad(folder: Path) -> Path:
    write_squad(folder, train=12, dev=2)
    vocabulary = write_vocabulary(folder).path
    words = len(vocabulary.read_text(encoding="utf-8").splitlines())
    return write_config(
        folder / "squad.json",
        "squad/squad_base_checkpoint_path",
        dataset_dir=str(folder),
        vocab_file=str(vocabulary),
        pretrained_ckpt_path=None,
        bert_config={**SIZES, "vocab_size": words + words % 2},
        max_seq_length=32,
        squad={"doc_stride": 12, "max_query_length": 8},
        ipu_config={
            "pipeline_stages": ["emb", "hid", "hid qa_head"],
            "pipeline_device_mapping": [0, 1, 0],
            "matmul_available_memory_proportion_per_pipeline_stage": [0.2, 0.2],
        },
        optimizer_opts=ADAMW,
        **SHARED,
    )


def classification(folder: Path) -> Path:
    write_sst2(folder)
    return write_config(
        folder / "classification.json",
        "glue/glue_base_checkpoint_path",
        glue_task="sst2",
        dataset_dir=str(folder),
        vocab_file=str(write_pieces(folder / "vocab.txt", PIECES)),
        pretrained_ckpt_path=None,
        bert_config={**SIZES, "vocab_size": len(PIECES) + len(PIECES) % 2},
        max_seq_length=16,
        ipu_config={
            "pipeline_stages": [["emb", "hid", "hid", "pool", "glue_head"]],
            "pipeline_device_mapping": [0],
            "matmul_available_memory_proportion_per_pipeline_stage": [0.3],
        },
        optimizer_opts=ADAMW,
        **SHARED,
    )


def assert_same(one: Run, other: Run, loss: str) -> None:
    assert len(one.losses(loss)) == len(other.losses(loss)) == UPDATES
    np.testing.assert_allclose(one.losses(loss), other.losses(loss), rtol=0, atol=TOLERANCE)
    mine, others = one.weights(), other.weights()
    assert sorted(mine) == sorted(others)
    for name, values in mine.items():
        np.testing.assert_allclose(values, others[name], rtol=0, atol=TOLERANCE, err_msg=name)


def initial_weights(emulation: Emulation, task: str, config: Path, name: str, samples: int, *arguments: str) -> Run:
    """Return a run of one update, because the releases of TensorFlow draw different random numbers."""
    one_update = ["--total-num-train-samples", str(samples)]
    return emulation.software(task, config, f"{name}-weights", *one_update, *arguments)


@pytest.mark.parametrize(
    ("task", "loss", "prepared"),
    [
        ("pretraining", "mlm_loss", pretraining),
        ("pretraining", "mlm_loss", unconverted),
        ("pretraining", "mlm_loss", packs),
        ("squad", "loss", squad),
        ("classification", "loss", classification),
    ],
    ids=["pretraining", "unconverted", "packs", "squad", "classification"],
)
def test_updates_equal_those_on_stock_tensorflow(
    emulation: Emulation, tmp_path: Path, task: str, loss: str, prepared: Callable[[Path], Path]
) -> None:
    config, name = prepared(tmp_path), prepared.__name__
    train = ["--do-validation", "false"] if task != "pretraining" else []
    samples = SAMPLES // UPDATES * (PER_PACK if prepared is packs else 1)
    weights = initial_weights(emulation, task, config, name, samples, *train)
    start = ["--pretrained-ckpt-path", str(weights.folder), *train]
    stock = emulation.software(task, config, f"{name}-stock", *start)
    ipu = emulation.emulated(task, config, f"{name}-ipu", *start)
    assert ipu.counts["updates"] == UPDATES
    assert ipu.counts["random_ops"] == 0
    assert_same(ipu, stock, loss)
    before, after = weights.weights(), stock.weights()
    assert all(np.abs(after[name] - before[name]).max() > TOLERANCE for name in before if "kernel" in name)


def test_a_training_of_graphcores_program_goes_on_as_on_stock_tensorflow(emulation: Emulation, tmp_path: Path) -> None:
    begun, sizes = 4, Sizes(layers=2, words=VOCABULARY, positions=32)
    prefix, *_ = write_random(tmp_path / f"{begun}.ckpt", "pretraining", sizes, Options(), begun)
    config = pretraining(tmp_path, total_num_train_samples=(begun + UPDATES) * BATCH * STEPS)
    start = ["--pretrained-ckpt-path", str(prefix), "--continue-pretrained", "true"]
    stock = emulation.software("pretraining", config, "continued-stock", *start)
    ipu = emulation.emulated("pretraining", config, "continued-ipu", *start)
    assert ipu.counts["updates"] == UPDATES
    assert_same(ipu, stock, "mlm_loss")


def test_two_replicas_and_two_instances_equal_one_with_twice_the_steps(emulation: Emulation, tmp_path: Path) -> None:
    batch = SHARED["global_batch"]
    changes = {"total_num_train_samples": 2 * SAMPLES, "optimizer_opts": ADAMW}
    config = pretraining(tmp_path, **changes, global_batch={**batch, "grad_acc_steps_per_replica": 2 * STEPS})
    one = emulation.emulated("pretraining", config, "one")
    replicas = ["--global-batch.replicas", "2", "--global-batch.grad-acc-steps-per-replica", str(STEPS)]
    two = emulation.emulated("pretraining", config, "two", *replicas)
    flags = ("--instances", "2", "--replicas", "2")
    instances = emulation.emulated("pretraining", config, "instances", *replicas, flags=flags)
    assert (two.counts["replicas"], two.counts["micro_batches"]) == (2, UPDATES * 2 * STEPS)
    assert instances.counts["micro_batches"] == UPDATES * STEPS  # its own half of the data
    assert (instances.counts["ipus"], instances.counts["stage_ipus"]) == (4, [0, 1, 0])
    assert_same(two, one, "mlm_loss")
    assert_same(instances, one, "mlm_loss")
    # Both write to one pipe, so that a line of the second may follow on an unfinished one of the first.
    other = [line.partition("[1] ")[2] for line in instances.output.splitlines() if "[1] " in line]
    assert any(line.startswith("emulation: ") for line in other), "the second instance ends"
    assert not [line for line in other if "checkpoint " in line], "the second instance writes no checkpoint"
    assert [path.name for path in instances.folder.parent.glob("instances*") if path.is_dir()] == ["instances"]


@pytest.mark.parametrize(("task", "prepared"), [("squad", squad), ("classification", classification)])
def test_evaluations_while_training_equal_those_on_stock_tensorflow(
    emulation: Emulation, tmp_path: Path, task: str, prepared: Callable[[Path], Path]
) -> None:
    """SQuAD is a pipeline of three stages, classification has one stage."""
    config, name, samples = prepared(tmp_path), f"evaluated-{task}", SAMPLES // UPDATES
    weights = initial_weights(emulation, task, config, name, samples, "--do-validation", "false")
    start = ["--pretrained-ckpt-path", str(weights.folder), "--total-num-train-samples", str(20 * samples)]
    start += ["--global-batches-per-log", "5", "--evaluation.every", "5"]
    start += ["--optimizer-opts.decay-rule", "usual"]  # the published rule leaves too little of the weights to learn
    stock = emulation.software(task, config, f"{name}-stock", *start)
    ipu = emulation.emulated(task, config, f"{name}-ipu", *start)
    scores = evaluations(stock.folder)
    assert [step for step, _ in scores] == [5, 10, 15, 20]
    assert len({str(one) for _, one in scores}) > 1, "the scores change, so that equal ones mean equal weights"
    assert evaluations(ipu.folder) == scores
    for file in ("scores.json", "checkpoints/best.json"):
        assert read_json(ipu.folder / file) == read_json(stock.folder / file)
    assert ipu.counts["programs"] == 2  # training and prediction, each compiled once
