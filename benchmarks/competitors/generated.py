"""This project as users run it: ``run_pretraining.py`` on generated data, with all that it writes."""

from __future__ import annotations

import json
import resource
import subprocess
import sys
import tempfile
import time
from pathlib import Path
from statistics import median
from typing import Any

from benchmarks.commands import REPOSITORY
from benchmarks.jobs import (
    LEARNING_RATE,
    MASKED_POSITIONS,
    MICRO_BATCH,
    SEQUENCE_LENGTH,
    WEIGHT_DECAY,
    Job,
)

POLL_SECONDS = 0.05


def measure(job: Job) -> dict[str, Any]:
    """See :func:`benchmarks.worker.measure`."""
    with tempfile.TemporaryDirectory() as folder:
        config = Path(folder) / "config.json"
        config.write_text(json.dumps(config_of(job, Path(folder))), encoding="utf-8")
        command = [sys.executable, str(REPOSITORY / "run_pretraining.py"), "--config", str(config)]
        with open(Path(folder) / "log.txt", "w+", encoding="utf-8") as log:
            process = subprocess.Popen(command, stdout=log, stderr=log, cwd=REPOSITORY)
            first_line = None
            while process.poll() is None:
                if first_line is None and metrics(Path(folder)):
                    first_line = time.time()
                time.sleep(POLL_SECONDS)
            if process.returncode:
                log.seek(0)
                sys.exit(log.read())
        periods = metrics(Path(folder))
    assert first_line is not None
    speed = median(period["throughput"] for period in periods if not period["compiling"])
    later_steps = (job.steps - 1) * MICRO_BATCH / speed
    return {
        "samples_per_second": speed,
        "first_step_seconds": first_line - job.started - later_steps,
        "peak_memory_mib": resource.getrusage(resource.RUSAGE_CHILDREN).ru_maxrss / 1024,
    }


def metrics(folder: Path) -> list[dict[str, Any]]:
    """The logging periods that the run has written so far."""
    return [
        json.loads(line)
        for file in folder.glob("output/**/metrics.jsonl")
        for line in file.read_text(encoding="utf-8").splitlines()
    ]


def config_of(job: Job, folder: Path) -> dict[str, Any]:
    """The config: a first execution that compiles, and two that are measured."""
    a = job.architecture
    return {
        "generated_dataset": True,
        "output_dir": str(folder / "output"),
        "max_seq_length": SEQUENCE_LENGTH,
        "max_predictions_per_seq": MASKED_POSITIONS,
        "total_num_train_samples": 3 * job.steps * MICRO_BATCH,
        "global_batches_per_log": job.steps,
        "global_batch": {"micro_batch_size": MICRO_BATCH, "grad_acc_steps_per_replica": 1, "replicas": 1},
        "bert_config": {
            "vocab_size": a.vocab_size,
            "hidden_size": a.hidden_size,
            "num_hidden_layers": a.num_hidden_layers,
            "num_attention_heads": a.num_attention_heads,
            "intermediate_size": a.intermediate_size,
            "hidden_dropout_prob": a.hidden_dropout_prob,
            "attention_probs_dropout_prob": a.attention_probs_dropout_prob,
        },
        "use_qkv_bias": True,
        "use_qkv_split": True,
        "use_projection_bias": True,
        "use_cls_layer": True,
        "optimizer_opts": {
            "name": "AdamW",
            "weight_decay_rate": WEIGHT_DECAY,
            "learning_rate": {"max_learning_rate": LEARNING_RATE, "warmup_frac": 0.1},
        },
        "execution": {"platform": "software", "device": "cpu"},
    }
