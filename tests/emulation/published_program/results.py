"""Reads what both programs left, as a row of the table."""

from __future__ import annotations

import re
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

import numpy as np

from checkpoints.export.arrays import exported_arrays
from checkpoints.pretrained.opening import open_pretrained
from data_utils.records.reader import RecordReader
from tests.emulation.published_program.cases import BATCH, Case
from tests.emulation.published_program.comparison import Row, logged_rounding, other_counts, weight_difference
from tests.emulation.published_program.inputs import spec
from tests.emulation.published_program.weights import as_hugging_face
from tests.support.runs import metrics, read_json

RUN = "run"  # name of this project's run
NO_GRADIENT = ("attention.self.key.bias",)  # softmax does not depend on it: its gradient is rounding
RECORD_FIELDS = {  # here: there
    "input_ids": "input_ids", "input_mask": "attention_mask", "segment_ids": "token_type_ids",
    "masked_lm_positions": "masked_lm_positions", "masked_lm_ids": "ids", "next_sentence_labels": "next_sentence",
}  # fmt: skip
PATTERNS = {  # of Graphcore's benchmarks.yml
    "throughput": r"throughput: *(.*?) samples\/sec",
    "mlm_loss": r"mlm_loss: *(\d*\.\d*)",
    "nsp_loss": r"nsp_loss: *(\d*\.\d*)",
}


def row(case: Case, settings: Mapping[str, Any], folder: Path) -> Row:
    """Compare the two sides of a case."""
    there, run = folder / "there", folder / "here" / RUN
    updates, periods = read_json(there / "updates.json"), metrics(run)
    summed = BATCH * (settings["max_predictions_per_seq"] - 1)
    names = {"mlm_loss": summed, "nsp_loss": BATCH}
    theirs = {name: [update[name] for update in updates] for name in names}
    before, after = (
        as_hugging_face(dict(np.load(there / f"{name}.npz")), settings, case.task) for name in ("before", "after")
    )
    return Row(
        name=case.name,
        theirs=theirs,
        ours={name: [period["metrics"][name] for period in periods] for name in names},
        rounding={name: logged_rounding(theirs[name][0], number) for name, number in names.items()},
        rates=([update["learning_rate"] for update in updates], [period["learning_rate"] for period in periods]),
        weights=weight_difference(before, after, exported_arrays(open_pretrained(str(run), "run"), None, False).arrays, NO_GRADIENT),
        predictions="",
        counts=other_counts(read_json(there / "counts.json"), read_json(folder / "here" / "counts.json")),
        faults=[*other_records(settings, folder), *other_lines(folder)],
    )


def other_records(settings: Mapping[str, Any], folder: Path) -> list[str]:
    """Return the fields in which the records that both read differ."""
    theirs, reader = np.load(folder / "there" / "records.npz"), RecordReader(folder / "data", spec(settings))
    ours = reader.read(np.arange(reader.count))
    return [
        f"{name} is read differently" for name, other in RECORD_FIELDS.items() if not np.array_equal(ours[name], theirs[other])
    ]


def other_lines(folder: Path) -> list[str]:
    """Return the patterns of Graphcore's benchmarks that do not find as many values in both outputs."""
    outputs = [(folder / side / "output.txt").read_text(errors="replace") for side in ("there", "here")]
    found = {name: [len(re.findall(pattern, text)) for text in outputs] for name, pattern in PATTERNS.items()}
    return [f"{there} lines have {name} there, {here} here" for name, (there, here) in found.items() if there != here]
