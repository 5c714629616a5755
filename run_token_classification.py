#!/usr/bin/env python3
"""Fine-tune BERT on named entities: ``python run_token_classification.py --config configs/… --dataset-dir …``."""

from __future__ import annotations

import sys
import time

from tasks import task_class
from utilities.cli import main
from utilities.config.loading import LoadedConfig

TASK = "token_classification"
STARTED = time.perf_counter()


def run(loaded: LoadedConfig) -> None:
    """Train and evaluate; TensorFlow is imported here, so that plans and errors of the config come at once."""
    from training.seeds import train_with_seeds

    train_with_seeds(loaded, task_class(TASK), started=STARTED)


if __name__ == "__main__":
    sys.exit(main(TASK, run))
