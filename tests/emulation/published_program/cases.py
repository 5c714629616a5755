"""What is compared: one small config for both programs, and what each case changes in it."""

from __future__ import annotations

from typing import Any, NamedTuple

BATCH = 2  # sequences of a micro batch
UPDATES = 20
SIZES = {
    "hidden_size": 32, "vocab_size": 512, "num_attention_heads": 2, "num_hidden_layers": 2, "intermediate_size": 64,
    "hidden_dropout_prob": 0.0, "attention_probs_dropout_prob": 0.0, "max_position_embeddings": 512,
    "type_vocab_size": 2, "initializer_range": 0.02, "layer_norm_eps": 1e-12, "position_embedding_type": "absolute",
}  # fmt: skip
PIECES = 30522  # of the real vocabulary, for fine-tuning
STAGES = {  # in classification five, because their predictions come ten micro batches at a time
    "pretraining": ([["emb"], ["hid", "hid", "enc_out"], ["pool", "heads"]], [0, 1, 0]),
    "squad": ([["emb"], ["hid", "hid"], ["qa_head"]], [0, 1, 0]),
    "classification": ([["emb"], ["hid"], ["hid"], ["pool"], ["glue_head"]], [0, 1, 2, 3, 0]),
}
ADAMW = {"name": "AdamW", "weight_decay_rate": 0.01, "learning_rate": {"max_learning_rate": 0.001}}
LAMB = {"name": "LAMB", "weight_decay_rate": 0.01, "learning_rate": {"max_learning_rate": 0.01}}
SHARDED = {"replicated_tensor_sharding": True}
HALVED = ("--optimizer-opts.loss-scaling", "64", "--optimizer-opts.epsilon", "2e-6")
SCRIPTS = {
    "pretraining": "run_pretraining.py",
    "squad": "run_squad.py",
    "classification": "run_seq_classification.py",
}


class Case(NamedTuple):
    """A case.

    Attributes:
        changes: what it changes in the config.
        instances: processes of PopDist; 0: none.
        here: flags for this project alone, without which it does not do what theirs does (README.md).
        own_order: whether this project takes the samples in its own order; otherwise as they are in the file.
    """

    name: str
    changes: dict[str, Any]
    task: str = "pretraining"
    replicas: int = 1
    instances: int = 0
    length: int = 128
    here: tuple[str, ...] = ()
    own_order: bool = False
    updates: int = UPDATES

    @property
    def steps(self) -> int:
        """Micro batches of an update on each replica: two for each stage."""
        return 2 * len(STAGES[self.task][0])

    @property
    def samples(self) -> int:
        """Samples of an update, which are all that there are."""
        return BATCH * self.steps * self.replicas


BIASES = {"use_qkv_split": True, "use_qkv_bias": True}
LAYERS = {**BIASES, "use_cls_layer": True, "use_projection_bias": True, "use_prediction_bias": False}
PLAIN = {"use_outlining": False, "enable_recomputation": False, "optimizer_state_offchip": False}
CASES = [
    Case("lamb", {}, own_order=True),
    Case("adamw", {"optimizer_opts": ADAMW}, own_order=True),
    Case("adamw, no decay", {"optimizer_opts": {**ADAMW, "weight_decay_rate": 0.0}}, own_order=True),
    Case("two replicas", {}, replicas=2),
    Case("sharded state", {"ipu_config": SHARDED}, replicas=2),
    Case("two instances", {}, replicas=2, instances=2, here=HALVED),
    Case("all use options changed", LAYERS),
    Case("plain execution", {**PLAIN, "embedding_serialization_factor": 1}),
    Case("squad", {"optimizer_opts": ADAMW}, task="squad"),
    Case("glue", {"optimizer_opts": ADAMW}, task="classification"),
    Case("phase 2, lamb", {}, length=384),
    Case("phase 2, adamw", {"optimizer_opts": ADAMW}, length=384),
    Case("no outlining", {"use_outlining": False}),
    Case("no recomputation", {"enable_recomputation": False}),
    Case("state on the chip", {"optimizer_state_offchip": False}),
    Case("use_cls_layer", {"use_cls_layer": True}),
    Case("use_qkv_bias", BIASES),
    Case("use_projection_bias", {"use_projection_bias": True}),
    Case("no use_prediction_bias", {"use_prediction_bias": False}),
    Case("use_qkv_split", {"use_qkv_split": True}),
    Case("serialization factor 1", {"embedding_serialization_factor": 1}),
]


def config(case: Case) -> dict[str, Any]:
    """Return the config of a case, which both programs read."""
    stages, ipus = STAGES[case.task]
    whole: dict[str, Any] = {
        **(pretraining(case) if case.task == "pretraining" else fine_tuning(case)),
        "max_seq_length": case.length,
        "global_batch": {
            "replicas": case.replicas,
            "micro_batch_size": BATCH,
            "grad_acc_steps_per_replica": case.steps,
        },
        "ipu_config": {
            "pipeline_stages": stages,
            "pipeline_device_mapping": ipus,
            "matmul_available_memory_proportion_per_pipeline_stage": [0.2] * (max(ipus) + 1),
            "replicated_tensor_sharding": False,
        },
        "optimizer_opts": LAMB,
        "use_cls_layer": False,
        "use_prediction_bias": True,
        "use_qkv_bias": False,
        "use_qkv_split": False,
        "use_projection_bias": False,
        "embedding_serialization_factor": 2,
        "seed": 1984,
        "global_batches_per_log": 1,
        "enable_wandb": False,
        "wandb_tags": ["comparison"],
    }
    for name, value in case.changes.items():
        whole[name] = {**whole[name], **value} if name == "ipu_config" else value
    rate = {"schedule_name": "up_down", "warmup_frac": 0.3, **whole["optimizer_opts"]["learning_rate"]}
    whole["optimizer_opts"] = {**whole["optimizer_opts"], "learning_rate": rate}
    if case.task == "pretraining":  # in fine-tuning they scale no loss
        whole["optimizer_opts"]["loss_scaling"] = 128
    return whole


def pretraining(case: Case) -> dict[str, Any]:
    return {
        "bert_config": SIZES,
        "max_predictions_per_seq": 56 if case.length > 128 else 20,
        "total_num_train_samples": case.updates * case.samples,
    }


def fine_tuning(case: Case) -> dict[str, Any]:
    task = {"glue_task": "mrpc", "do_test": True} if case.task == "classification" else {}
    squad = {"squad": {"align_to_words": False}} if case.task == "squad" else {}
    # With small weights attention is uniform and gradients cancel; Adam would make their rounding as large as any.
    sizes = {**SIZES, "vocab_size": PIECES, "initializer_range": 0.2}
    return {"bert_config": sizes, "num_epochs": case.updates, **task, **squad}
