"""What is compared: one small config for both programs, and what each case changes in it."""

from __future__ import annotations

from typing import Any, NamedTuple

BATCH, STEPS = 2, 6  # sequences of a micro batch, micro batches of an update on each replica
SIZES = {
    "hidden_size": 32, "vocab_size": 512, "num_attention_heads": 2, "num_hidden_layers": 2, "intermediate_size": 64,
    "hidden_dropout_prob": 0.0, "attention_probs_dropout_prob": 0.0, "max_position_embeddings": 512,
    "type_vocab_size": 2, "initializer_range": 0.02, "layer_norm_eps": 1e-12, "position_embedding_type": "absolute",
}  # fmt: skip
STAGES = {
    "pretraining": [["emb"], ["hid", "hid", "enc_out"], ["pool", "heads"]],
    "squad": [["emb"], ["hid", "hid"], ["qa_head"]],
    "classification": [["emb"], ["hid", "hid"], ["pool", "glue_head"]],
}
ADAMW = {"name": "AdamW", "weight_decay_rate": 0.0, "learning_rate": {"max_learning_rate": 0.001}}
LAMB = {"name": "LAMB", "weight_decay_rate": 0.01, "learning_rate": {"max_learning_rate": 0.01}}
SCRIPTS = {
    "pretraining": "run_pretraining.py",
    "squad": "run_squad.py",
    "classification": "run_seq_classification.py",
}


class Case(NamedTuple):
    """A case: its name, number of updates, task, replicas and instances, and what it changes in the config."""

    name: str
    updates: int
    changes: dict[str, Any]
    task: str = "pretraining"
    replicas: int = 1
    instances: int = 0
    length: int = 128

    @property
    def samples(self) -> int:
        """Samples of an update, which are all that there are."""
        return BATCH * STEPS * self.replicas


CASES = [
    Case("lamb", 20, {"optimizer_opts": LAMB}),
    Case("adamw", 20, {"optimizer_opts": ADAMW}),
    Case("phase 2, lamb", 6, {"optimizer_opts": LAMB}, length=384),
    Case("phase 2, adamw", 6, {"optimizer_opts": ADAMW}, length=384),
    Case("two replicas, lamb", 6, {"optimizer_opts": LAMB}, replicas=2),
    Case("two replicas, adamw", 6, {"optimizer_opts": ADAMW}, replicas=2),
    Case("two instances", 6, {"optimizer_opts": LAMB}, replicas=2, instances=2),
    Case(
        "sharded state",
        6,
        {"optimizer_state_offchip": False, "ipu_config": {"replicated_tensor_sharding": True}},
        replicas=2,
    ),
    Case("state on the chip", 6, {"optimizer_state_offchip": False}),
    Case("no recomputation", 6, {"enable_recomputation": False}),
    Case("no outlining", 6, {"use_outlining": False}),
    Case("use_cls_layer", 6, {"use_cls_layer": True}),
    Case("no use_prediction_bias", 6, {"use_prediction_bias": False}),
    Case("use_qkv_split", 6, {"use_qkv_split": True}),
    Case("use_qkv_bias", 6, {"use_qkv_split": True, "use_qkv_bias": True}),
    Case("use_projection_bias", 6, {"use_projection_bias": True}),
    Case("serialization factor 1", 6, {"embedding_serialization_factor": 1}),
    Case("serialization factor 4", 6, {"embedding_serialization_factor": 4}),
    Case("squad", 6, {"optimizer_opts": ADAMW}, task="squad"),
    Case("glue", 6, {"optimizer_opts": ADAMW}, task="classification"),
]


def config(case: Case) -> dict[str, Any]:
    """Return the config of a case, which both programs read."""
    predictions = {"max_predictions_per_seq": 56 if case.length > 128 else 20} if case.task == "pretraining" else {}
    whole: dict[str, Any] = {
        "bert_config": SIZES,
        "max_seq_length": case.length,
        "max_predictions_per_seq": None,
        **predictions,
        "global_batch": {"replicas": case.replicas, "micro_batch_size": BATCH, "grad_acc_steps_per_replica": STEPS},
        "total_num_train_samples": case.updates * case.samples,
        "ipu_config": {
            "pipeline_stages": STAGES[case.task],
            "pipeline_device_mapping": [0, 1, 0],
            "matmul_available_memory_proportion_per_pipeline_stage": [0.2, 0.2],
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
    whole["optimizer_opts"] = {**whole["optimizer_opts"], "learning_rate": rate, "loss_scaling": 128}
    return whole
