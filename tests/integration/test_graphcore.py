"""All tasks except token classification, run on a strict double of Graphcore's packages, from files to checkpoints.

The configs are published ones for smaller models with unchanged IPU settings; sentence embeddings have two stages. The
calls of Graphcore's packages are compared with the config, according to its published documentation.
"""

from __future__ import annotations

import math
import os
import subprocess
import sys
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from tests import ROOT
from tests.support.fine_tuning_runs import PIECES, write_pieces, write_squad, write_sst2, write_texts_to_embed
from tests.support.record_samples import PREDICTIONS, SEQUENCE, VOCABULARY
from tests.support.runs import evaluations, last_checkpoint, metrics, read_json, write_dataset, write_json
from tests.support.squad_files import write_vocabulary

pytestmark = pytest.mark.slow

SIZES = {
    "hidden_size": 16, "num_attention_heads": 2, "intermediate_size": 32, "hidden_dropout_prob": 0.1,
    "attention_probs_dropout_prob": 0.0, "max_position_embeddings": 32,
}  # fmt: skip
WORDS = VOCABULARY + VOCABULARY % 2  # makes two parts of the vocabulary equal
SHARED = {"tensorboard": False, "report": False, "execution": {"platform": "graphcore", "executable_cache": "/cache"}}


def write(path: Path, published: str, **changes: Any) -> str:
    values = {"extends": str(ROOT / "configs" / published), "output_dir": str(path.parent / "runs"), **SHARED}
    return str(write_json(path, {**values, **changes}))


def pretraining(root: Path) -> str:
    return write(
        root / "pretrain.json", "pretraining/pretrain_tiny_128_phase1.json",
        dataset_dir=str(write_dataset(root / "records")), max_seq_length=SEQUENCE, max_predictions_per_seq=PREDICTIONS,
        bert_config={**SIZES, "num_hidden_layers": 2, "vocab_size": WORDS}, optimizer_opts={"loss_scaling": 128},
        global_batch={"micro_batch_size": 2, "replicas": 2, "grad_acc_steps_per_replica": 12},
        total_num_train_samples=48 * 6, global_batches_per_log=2, ckpt_every_n_steps_per_execution=2,
    )  # fmt: skip


def packed(root: Path) -> str:
    return write(
        root / "packed.json", "pretraining/pretrain_tiny_128_phase1_packed.json",
        generated_dataset=True, max_seq_length=32, max_predictions_per_seq=4, total_num_train_samples=12 * 12,
        bert_config={**SIZES, "num_hidden_layers": 2, "vocab_size": WORDS}, optimizer_opts={"loss_scaling": 128},
        global_batch={"micro_batch_size": 2, "replicas": 1, "grad_acc_steps_per_replica": 6},
    )  # fmt: skip


def with_vocabulary(root: Path, layers: int) -> dict[str, Any]:
    """Return the settings of a fine-tuning with a vocabulary, whose rows are an even number, and random weights."""
    vocabulary = write_vocabulary(root).path
    words = len(vocabulary.read_text(encoding="utf-8").splitlines())
    bert = {**SIZES, "num_hidden_layers": layers, "vocab_size": words + words % 2}
    return {"vocab_file": str(vocabulary), "bert_config": bert, "pretrained_ckpt_path": None, "num_epochs": None}


def squad(root: Path) -> str:
    write_squad(root, train=12, dev=2)
    return write(
        root / "squad.json", "squad/squad_base_checkpoint_path.json", **with_vocabulary(root, 12),
        dataset_dir=str(root), max_seq_length=32, squad={"doc_stride": 12, "max_query_length": 8},
        global_batch={"micro_batch_size": 1, "replicas": 2, "grad_acc_steps_per_replica": 10},
        total_num_train_samples=40, global_batches_per_log=1, evaluation={"every": 1},
        optimizer_opts={"loss_scaling": 128},
    )  # fmt: skip


def classification(root: Path) -> str:
    write_sst2(root)
    stages = {
        "pipeline_stages": [["emb", "hid", "pool", "glue_head"]], "pipeline_device_mapping": [0],
        "matmul_available_memory_proportion_per_pipeline_stage": [0.3], "replicated_tensor_sharding": True,
    }  # fmt: skip
    return write(
        root / "glue.json", "glue/glue_base_checkpoint_path.json", **with_vocabulary(root / "SST-2", 1),
        glue_task="sst2", dataset_dir=str(root), max_seq_length=16, ipu_config=stages,
        global_batch={"micro_batch_size": 4, "replicas": 2, "grad_acc_steps_per_replica": 3},
        total_num_train_samples=24 * 3, enable_stochastic_rounding=False, matmul_partials_type="float",
        optimizer_opts={"name": "AdamW", "gradient_accumulation_reduction": "mean"},
    )  # fmt: skip


def sentence_embedding(root: Path) -> str:
    write_texts_to_embed(root)
    return write(
        root / "embed.json", "sentence_embedding/base.json", dataset_dir=str(root), bert_model_name=None,
        vocab_file=str(write_pieces(root / "pieces.txt", PIECES)), max_seq_length=32, num_epochs=4,
        bert_config={**SIZES, "num_hidden_layers": 2, "vocab_size": 40},
        embedding={"train_file": "texts.csv", "text": ["film", "right"]},
        global_batch={"micro_batch_size": 4, "replicas": 2, "grad_acc_steps_per_replica": 4},
        ipu_config={"pipeline_stages": ["emb hid", "hid embedding_head"], "pipeline_device_mapping": [0, 1]},
        optimizer_opts={"learning_rate": {"max_learning_rate": 0.01}},
    )  # fmt: skip


class Run:
    def __init__(self, record: dict[str, Any], folder: Path):
        assert record["status"] == 0
        self.calls, self.folder = record["calls"], folder

    def called(self, name: str) -> list[dict[str, Any]]:
        return [call["arguments"] for call in self.calls if call["name"].endswith(f".{name}") or call["name"] == name]

    def once(self, name: str) -> dict[str, Any]:
        (arguments,) = self.called(name)
        return arguments

    @property
    def system(self) -> dict[str, Any]:
        return self.once("IPUConfig.configure_ipu_system")["self"]

    @property
    def stages(self) -> dict[str, int]:
        """The pipeline stage of each layer of the trained model."""
        return next(stages for stages in self.called("set_pipeline_stage_assignment") if "objective" in stages)

    @property
    def training(self) -> dict[str, Any]:
        """The options of the trained model; those of evaluation have no reduction."""
        names = "set_pipelining_options", "set_gradient_accumulation_options"
        options = [arguments for name in names for arguments in self.called(name)]
        (one,) = (arguments for arguments in options if "gradient_accumulation_reduction_method" in arguments)
        return one

    @property
    def periods(self) -> list[dict[str, Any]]:
        return metrics(self.folder)


@pytest.fixture(scope="module")
def runs(tmp_path_factory: pytest.TempPathFactory) -> dict[str, Run]:
    root = tmp_path_factory.mktemp("graphcore")
    writers = (pretraining, squad, classification, sentence_embedding)
    configs = {writer.__name__: writer(root) for writer in writers}
    runs = [["pretraining", "--config", packed(root)], *([task, "--config", configs[task]] for task in configs)]
    runs.append(["pretraining", "--config", configs["pretraining"], "--name", "compiled", "--compile-only"])
    record = root / "record.json"
    python = os.environ.get("IPU_PYTHON", sys.executable)  # a Python 3.8 with TensorFlow 2.6: make ipu-test
    command = [python, "-m", "tests.support.graphcore_run", str(record)]
    command += [word for run in runs for word in ("--", *run)]
    ended = subprocess.run(command, cwd=ROOT, capture_output=True, text=True, check=False, env=os.environ)
    assert ended.returncode == 0 and record.exists(), (ended.stdout + ended.stderr)[-4000:]
    records = read_json(record)
    assert all(one["status"] == 0 for one in records), (ended.stdout + ended.stderr)[-4000:]
    folders = [root / "runs" / name for name in ("packed", "pretrain", "squad", "glue", "embed", "compiled")]
    names = ["packed", *configs, "compiled"]
    return {name: Run(one, folder) for name, one, folder in zip(names, records, folders, strict=True)}


def test_blocks_are_in_their_stages(runs: dict[str, Run]) -> None:
    tiny = {"emb": 0, "hid_0": 1, "hid_1": 1, "enc_out": 1, "pool": 2, "heads": 2, "objective": 2}
    assert runs["pretraining"].stages == tiny
    base = {"emb": 0, **{f"hid_{number}": 1 + number // 4 for number in range(12)}, "qa_head": 4, "objective": 4}
    assert runs["squad"].stages == base
    assert not runs["classification"].called("set_pipeline_stage_assignment")


def test_sentence_embeddings_are_trained_and_scored(runs: dict[str, Run]) -> None:
    run = runs["sentence_embedding"]
    assert run.stages == {"emb": 0, "hid_0": 0, "hid_1": 1, "embedding_head": 1, "objective": 1}
    losses = [period["metrics"]["loss"] for period in run.periods]
    assert losses[0] == pytest.approx(math.log(4), rel=0.3) and losses[-1] < losses[0]
    assert set(read_json(run.folder / "scores.json")) == {"recall_at_1", "recall_at_10"}


def test_pipeline_follows_the_config(runs: dict[str, Run]) -> None:
    """``tests/unit/graphcore/test_settings.py`` has the options of every published config."""
    options = runs["pretraining"].training
    assert options["device_mapping"] == [0, 1, 0] and options["pipeline_schedule"] == "Grouped"
    assert options["gradient_accumulation_steps_per_replica"] == 12
    assert options["gradient_accumulation_reduction_method"] == "RUNNING_MEAN"
    matmuls = [stage["matmul_options"] for stage in runs["squad"].called("PipelineStageOptions")[:5]]
    shares = ["0.25", "0.23", "0.28", "0.25", "0.25"]  # options of IPUs 0, 1, 2, 3 and 0 again
    assert matmuls == [{"partialsType": "half", "availableMemoryProportion": share} for share in shares]


def test_one_stage_accumulates_and_shards(runs: dict[str, Run]) -> None:
    run = runs["classification"]
    assert run.training == {
        "gradient_accumulation_steps_per_replica": 3,
        "gradient_accumulation_reduction_method": "MEAN",
        "offload_weight_update_variables": True,
        "replicated_optimizer_state_sharding": True,
    }
    assert run.system["matmuls.poplar_options"] == {"partialsType": "float", "availableMemoryProportion": "0.3"}
    assert run.system["floating_point_behaviour.esr"] == "OFF"
    assert not run.called("recomputation_checkpoint")


def test_layers_and_operations(runs: dict[str, Run]) -> None:
    run = runs["pretraining"]
    norms = run.called("LayerNormalization")
    assert len(norms) == 1 + 2 * 2 and all(norm["epsilon"] > 0 for norm in norms)
    assert all(layer["rate"] in (0.1, 0.0) for layer in run.called("Dropout"))
    assert {lookup["serialization_factor"] for lookup in run.called("embedding_lookup")} == {1, 2}
    products = run.called("serialized_matmul")
    assert {(call["serialization_factor"], call["serialization_dimension"]) for call in products} == {(2, "b_rows")}
    assert run.called("gelu") and all(call["approximate"] for call in run.called("gelu"))  # Poplar's own kernel
    outlined, marked = run.called("outlined_function"), run.called("recomputation_checkpoint")
    assert len(marked) == 2 and len(outlined) == 4 * 2  # for each layer: attention, its output, and both dense layers


def test_optimizers(runs: dict[str, Run]) -> None:
    lamb, adam = runs["pretraining"].once("LAMBIpuOptimizer"), runs["classification"].once("AdamIpuOptimizer")
    assert lamb["optimizer_compute_precisions"] == ["float32", "float16"]
    assert adam["optimizer_compute_precisions"] == ["float32"]
    for optimizer in (lamb, adam):
        assert (optimizer["m_dtype"], optimizer["v_dtype"]) == ("float32", "float32")
    assert lamb["outline_apply_gradients"] is True
    assert lamb["outline_apply_gradients_kwargs"] == {"unique_sharding": True}
    assert "outline_apply_gradients" not in adam  # its state is sharded
    assert lamb["weight_decay_rate"] == 0.01


def test_steps(runs: dict[str, Run]) -> None:
    run = runs["pretraining"]
    compiled = next(call for call in run.called("compile") if "loss" in call)
    assert compiled["steps_per_execution"] == 2 * 12  # two updates; a step is a micro batch on every replica
    assert run.once("fit")["steps_per_epoch"] == 6 * 12 * 2  # micro batches of all replicas


def test_callbacks_see_updates_and_streamed_values(runs: dict[str, Run]) -> None:
    periods = runs["pretraining"].periods
    assert [period["step"] for period in periods] == [2, 4, 6]
    for period in periods:
        metrics = period["metrics"]
        assert metrics["mlm_loss"] == pytest.approx(math.log(VOCABULARY), rel=0.1)
        assert metrics["nsp_loss"] == pytest.approx(math.log(2), rel=0.2)
        assert "learning_rate" not in metrics
    logged = [1e-7, 0.006, 0.0036, 0.0024, 0.0012, 1e-7]  # by the published program for this length and warm-up
    assert [period["learning_rate"] for period in periods] == pytest.approx(logged[1::2], rel=1e-3)


def test_checkpoints_contain_weights_and_moments(runs: dict[str, Run]) -> None:
    from keras_extensions.backend import tf

    folder = last_checkpoint(runs["pretraining"].folder)
    weights = tf.train.load_checkpoint(str(folder / "weights"))
    table = weights.get_tensor("emb/embeddings/word/.ATTRIBUTES/VARIABLE_VALUE")
    assert table.dtype == np.float16 and np.isfinite(table).all()
    optimizer = tf.train.load_checkpoint(str(folder / "optimizer"))
    moments = [optimizer.get_tensor(name) for name in optimizer.get_variable_to_shape_map() if "/v/" in name]
    assert len(moments) > 20 and all(moment.dtype == np.float32 for moment in moments)
    assert sum(moment.any() for moment in moments) == len(moments)


def test_evaluation_answers_every_sample(runs: dict[str, Run]) -> None:
    scores = read_json(runs["squad"].folder / "scores.json")
    assert set(scores) >= {"f1", "exact_match"}
    predict = runs["squad"].called("predict")[-1]
    assert predict["steps"] % (2 * 5 * 2) == 0  # full pipelines on both replicas
    assert set(read_json(runs["classification"].folder / "scores.json")) == {"accuracy"}


def test_evaluation_while_training_compiles_predictions_once(runs: dict[str, Run]) -> None:
    run = runs["squad"]
    assert [step for step, _ in evaluations(run.folder)] == [1, 2]
    assert len(run.called("predict")) == 3  # after each update and at the end
    compiled = [arguments for arguments in run.called("compile") if "loss" not in arguments]
    assert len(compiled) == 1


def test_packs_are_trained(runs: dict[str, Run]) -> None:
    assert runs["packed"].periods and runs["packed"].stages["objective"] == 2
    assert all(0 < period["metrics"]["mlm_loss"] < 2 * math.log(WORDS) for period in runs["packed"].periods)


def test_compile_only_needs_no_ipu_and_trains_nothing(runs: dict[str, Run]) -> None:
    run = runs["compiled"]
    assert run.system["device_connection.type"] == "PRE_COMPILE" and run.system["device_connection.version"] == "ipu2"
    assert run.once("fit") and not (run.folder / "metrics.jsonl").exists()
    assert not list(run.folder.glob("checkpoints/*"))
