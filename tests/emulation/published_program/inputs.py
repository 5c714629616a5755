"""The data of a case, in the forms that both programs read, and the flags that only one of them knows."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import numpy as np

from data_utils.records.arrays import GeneratedReader
from data_utils.records.features import FeatureSpec, pretraining_features
from tests.emulation.published_program.cases import Case
from tests.support.record_samples import write_arrays

PADDING = 8  # tokens at the end of each record


def spec(settings: dict[str, Any]) -> FeatureSpec:
    """Return the features of a case's records."""
    sizes = settings["bert_config"]
    return pretraining_features(settings["max_seq_length"], settings["max_predictions_per_seq"], sizes["vocab_size"])


def write_inputs(case: Case, settings: dict[str, Any], folder: Path) -> str:
    """Write the samples of one update, all that there are; return why this cannot be done, or nothing.

    The order of samples is then irrelevant in both programs: each update has all of them, and all have the same number
    of masked words, so that the mean over an update does not depend on how its micro batches are made up.
    """
    folder.mkdir(exist_ok=True)
    rows = GeneratedReader(spec(settings), 3, case.samples).read(np.arange(case.samples))
    padding = slice(settings["max_seq_length"] - PADDING, None)
    for name in ("input_ids", "input_mask", "segment_ids"):
        rows[name][:, padding] = 0
    for name in ("masked_lm_positions", "masked_lm_ids", "masked_lm_weights"):
        rows[name][:, -1] = 0  # one prediction less than there may be
    rows["masked_lm_positions"][:, :-1].clip(max=settings["max_seq_length"] - PADDING - 1, out=rows["masked_lm_positions"][:, :-1])
    write_arrays(folder / "part.tfrecord", rows)
    return ""
