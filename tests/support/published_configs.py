"""The table of settings that Graphcore published for its IPU systems, and this project's configs by name."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import pytest

from settings.loading import LoadedConfig
from tests import ROOT
from tests.support.config_files import load_config

CONFIGS = ROOT / "configs"
FOLDERS = {"pretrain": "pretraining", "squad": "squad", "glue": "glue", "conll2003": "token_classification"}
TASKS = {
    "pretrain": "pretraining", "squad": "squad", "glue": "classification", "conll2003": "token_classification"
}  # fmt: skip
SIZES = {  # layers, hidden, heads, intermediate
    "tiny": (2, 128, 2, 512),
    "base": (12, 768, 12, 3072),
    "large": (24, 1024, 16, 4096),
}


def stages(hidden: Sequence[int], *last: str) -> dict[str, Any]:
    """Return five stages on four IPUs: the embeddings with ``hidden[0]`` layers, three of layers, and the last."""
    names = [" ".join(["hid"] * count) for count in hidden]
    return {"pipeline_stages": [f"emb {names[0]}".strip(), *names[1:], *last], "device_mapping": [0, 1, 2, 3, 0]}


def batch(micro: int, replicas: int, accumulation: int) -> dict[str, int]:
    return {"micro_batch_size": micro, "replicas": replicas, "grad_acc_steps_per_replica": accumulation}


def memory(*proportions: float) -> dict[str, Any]:
    return {"matmul_memory_proportion": list(proportions)}


COMMON = {"rts": False, "weight_decay": 0.01, "embedding_serialization_factor": 2, "seed": 1984}
PRETRAINING = {**COMMON, "vocab_size": 30400, "hidden_dropout": 0.1, "attention_dropout": 0.0, "optimizer": "LAMB"}
PHASE_1 = {"max_seq_length": 128, "max_predictions_per_seq": 20, "max_lr": 0.006, "warmup_frac": 0.28}
PHASE_2 = {"max_seq_length": 384, "max_predictions_per_seq": 56, "max_lr": 0.002828, "warmup_frac": 0.129}
PHASE_2_512 = {**PHASE_2, "max_seq_length": 512, "max_predictions_per_seq": 76}

TINY = {
    **PRETRAINING, **PHASE_1, **memory(0.2, 0.2), "model": "tiny", "loss_scaling": 1,
    "pipeline_stages": ["emb", "hid hid enc_out", "pool heads"], "device_mapping": [0, 1, 0],
}  # fmt: skip
BASE_STAGES, LARGE_STAGES = (0, 4, 4, 4), (3, 7, 7, 7)
BASE = {**PRETRAINING, **stages(BASE_STAGES, "enc_out pool heads"), "model": "base", "loss_scaling": 4096}
BASE_1 = {**BASE, **PHASE_1, **memory(0.28, 0.26, 0.28, 0.28)}
BASE_2 = {**BASE, **PHASE_2, **memory(0.28, 0.26, 0.28, 0.28)}
BASE_2_512 = {**BASE, **PHASE_2_512, **memory(0.2, 0.2, 0.2, 0.2)}
LARGE = {**PRETRAINING, **stages(LARGE_STAGES, "enc_out pool heads"), "model": "large", "loss_scaling": 32768}
LARGE_1 = {**LARGE, **PHASE_1, **memory(0.1, 0.19, 0.2, 0.25), "seed": 4708}
LARGE_2 = {**LARGE, **PHASE_2, **memory(0.15, 0.28, 0.4, 0.4)}
LARGE_2_512 = {
    **LARGE, **PHASE_2_512, **memory(0.05, 0.1, 0.1, 0.1), **stages((2, 7, 7, 8), "enc_out pool heads")
}  # fmt: skip

FINE_TUNING = {**COMMON, "num_epochs": 3}
SQUAD = {**FINE_TUNING, "optimizer": "LAMB", "max_lr": 0.001, "warmup_frac": 0.3}
SQUAD_BASE = {**SQUAD, **batch(4, 4, 20), **stages(BASE_STAGES, "qa_head"), **memory(0.25, 0.23, 0.28, 0.25)}
SQUAD_LARGE = {
    **SQUAD, **batch(2, 4, 40), **stages(LARGE_STAGES, "qa_head"), **memory(0.1, 0.15, 0.15, 0.15),
    "pipeline_stages": [*LARGE["pipeline_stages"][:3], "hid hid hid hid hid hid hid enc_out pool", "qa_head"],
}  # fmt: skip
GLUE = {
    **FINE_TUNING, **batch(1, 1, 30), **stages(BASE_STAGES, "pool glue_head"), **memory(0.25, 0.23, 0.28, 0.25),
    "optimizer": "AdamW", "max_lr": 2e-5, "warmup_frac": 0.1,
}  # fmt: skip
CHECKPOINT = {"vocab_size": 30400, "hidden_dropout": 0.1, "attention_dropout": 0.1}

ROWS: dict[str, dict[str, Any]] = {
    "pretrain_tiny_128_phase1": {**TINY, **batch(2, 1, 600)},
    "pretrain_base_128_phase1": {**BASE_1, **batch(32, 4, 510)},
    "pretrain_base_128_phase1_pod4": {**BASE_1, **batch(32, 1, 2040)},
    "pretrain_base_128_phase1_POD64": {**BASE_1, **batch(32, 16, 130)},
    "pretrain_base_384_phase2": {**BASE_2, **batch(8, 4, 510)},
    "pretrain_base_384_phase2_pod4": {**BASE_2, **batch(8, 1, 2040)},
    "pretrain_base_512_phase2": {**BASE_2_512, **batch(8, 4, 510)},
    "pretrain_base_512_phase2_pod4": {**BASE_2_512, **batch(8, 1, 2040)},
    "pretrain_large_128_phase1": {**LARGE_1, **batch(8, 4, 2040)},
    "pretrain_large_128_phase1_pod4": {**LARGE_1, **batch(8, 1, 8160)},
    "pretrain_large_128_phase1_POD64": {
        **LARGE_1, **batch(8, 16, 1020), **memory(0.1, 0.19, 0.2, 0.2), "rts": True,
        "embedding_serialization_factor": 5,
    },
    "pretrain_large_384_phase2": {**LARGE_2, **batch(2, 4, 2040)},
    "pretrain_large_384_phase2_pod4": {**LARGE_2, **batch(2, 1, 8160)},
    "pretrain_large_384_phase2_POD64": {
        **LARGE_2, **batch(2, 16, 510), **memory(0.15, 0.2, 0.2, 0.25), "seed": 4708,
        "embedding_serialization_factor": 4,
    },
    "pretrain_large_512_phase2": {**LARGE_2_512, **batch(2, 4, 2040)},
    "pretrain_large_512_phase2_pod4": {**LARGE_2_512, **batch(2, 1, 8160)},
    "squad_base": {**SQUAD_BASE, "model": "bert-base-uncased"},
    "squad_base_checkpoint_path": {**SQUAD_BASE, **CHECKPOINT, "model": "base"},
    "squad_large": {**SQUAD_LARGE, "model": "bert-large-uncased"},
    "squad_large_checkpoint_path": {**SQUAD_LARGE, **CHECKPOINT, **memory(0.08, 0.15, 0.15, 0.15), "model": "large"},
    "glue_base": {**GLUE, "model": "bert-base-uncased"},
    "glue_base_checkpoint_path": {**GLUE, **CHECKPOINT, "model": "base"},
}  # fmt: skip


def load(name: str, *flags: str, overlays: Sequence[str] = ()) -> LoadedConfig:
    kind = name.split("_")[0]
    paths = [CONFIGS / FOLDERS[kind] / f"{name}.json", *(CONFIGS / f"{overlay}.json" for overlay in overlays)]
    with pytest.MonkeyPatch.context() as patch:
        patch.setenv("DATASETS_DIR", "/data")  # which the pre-training configs name
        return load_config(TASKS[kind], ["--config", *map(str, paths), *flags])
