"""Reads what both programs left, as a row of the table."""

from __future__ import annotations

import re
from collections.abc import Mapping
from pathlib import Path
from typing import Any

import numpy as np
from transformers import BertTokenizerFast

from checkpoints.export.arrays import exported_arrays
from checkpoints.pretrained.opening import open_pretrained
from data_utils.records.reader import RecordReader
from tests.emulation.published_program import comparison
from tests.emulation.published_program.cases import BATCH, Case
from tests.emulation.published_program.inputs import spec
from tests.emulation.published_program.weights import as_hugging_face
from tests.support.runs import metrics, read_json

RUN = "run"  # name of this project's run
NO_GRADIENT = {  # on which no softmax depends: their gradients are rounding
    "pretraining": ["attention.self.key.bias"],
    "squad": ["qa_outputs.bias", "layer.1.output.LayerNorm.bias"],
    "classification": [],
}
RECORD_FIELDS = {  # here: there
    "input_ids": "input_ids", "input_mask": "attention_mask", "segment_ids": "token_type_ids",
    "masked_lm_positions": "masked_lm_positions", "masked_lm_ids": "ids", "next_sentence_labels": "next_sentence",
}  # fmt: skip
PATTERNS = {  # of Graphcore's benchmarks.yml
    "throughput": r"throughput: *(.*?) samples\/sec",
    "mlm_loss": r"mlm_loss: *(\d*\.\d*)",
    "nsp_loss": r"nsp_loss: *(\d*\.\d*)",
}
LOSSES = {  # here: there, the mean of several
    "pretraining": {"mlm_loss": ["mlm_loss"], "nsp_loss": ["nsp_loss"]},
    "squad": {"loss": ["start_positions_loss", "end_positions_loss"]},
    "classification": {"loss": ["glue_loss"]},
}


def row(case: Case, settings: Mapping[str, Any], folder: Path) -> comparison.Row:
    """Compare the two sides of a case."""
    there, run = folder / "there", folder / "here" / RUN
    updates = read_json(there / "updates.json")
    periods = [period for period in metrics(run) if "metrics" in period]
    losses = LOSSES[case.task]
    theirs = {
        name: [float(np.mean([update[part] for part in parts])) for update in updates] for name, parts in losses.items()
    }
    summed = {"mlm_loss": BATCH * (settings.get("max_predictions_per_seq", 1) - 1)}
    micro_batches = 0 if case.task == "pretraining" else case.steps  # there Keras' own metrics are float16
    before, after = (their_weights(case, settings, there, name) for name in ("before", "after"))
    ours = exported_arrays(open_pretrained(str(run), "run"), None, False).arrays
    faults = other_records(settings, folder) if case.task == "pretraining" else []
    predictions, wrong = PREDICTIONS[case.task](folder) if case.task in PREDICTIONS else ("", [])
    return comparison.Row(
        name=case.name,
        theirs=theirs,
        ours={name: [period["metrics"][name] for period in periods] for name in losses},
        rounding={
            name: comparison.logged_rounding(theirs[name][0], summed.get(name, BATCH), micro_batches) for name in losses
        },
        rates=([update["learning_rate"] for update in updates], [period["learning_rate"] for period in periods]),
        weights=comparison.weight_difference(before, after, ours, NO_GRADIENT[case.task]),
        predictions=predictions,
        counts=comparison.other_counts(read_json(there / "counts.json"), read_json(folder / "here" / "counts.json")),
        faults=[*faults, *wrong, *other_lines(folder, max(case.instances, 1))],
    )


def their_weights(case: Case, settings: Mapping[str, Any], side: Path, name: str) -> dict[str, np.ndarray]:
    return as_hugging_face(dict(np.load(side / f"{name}.npz")), settings, case.task)


def other_records(settings: Mapping[str, Any], folder: Path) -> list[str]:
    """Return the fields in which the records that both read differ."""
    theirs, reader = np.load(folder / "there" / "records.npz"), RecordReader(folder / "data", spec(settings))
    ours = reader.read(np.arange(reader.count))
    equal = {name: np.array_equal(ours[name], theirs[other]) for name, other in RECORD_FIELDS.items()}
    return [f"{name} is read differently" for name, same in equal.items() if not same]


def other_lines(folder: Path, instances: int) -> list[str]:
    """Return the patterns of Graphcore's benchmarks that do not find as many values of an instance in both outputs.

    Theirs writes the lines of all instances, this project those of the first.
    """
    outputs = [(folder / side / "output.txt").read_text(errors="replace") for side in ("there", "here")]
    found = {name: [len(re.findall(pattern, text)) for text in outputs] for name, pattern in PATTERNS.items()}
    return [
        f"{there} lines have {name} there, {here} here"
        for name, (there, here) in found.items()
        if there != instances * here
    ]


def answers(folder: Path) -> tuple[str, list[str]]:
    """Compare the answers to SQuAD's questions, also with those that their logits give if only contexts can answer."""
    theirs, ours = (
        read_json(folder / "there" / "predictions.json"),
        read_json(folder / "here" / RUN / "predictions.json"),
    )
    rows, logits = read_json(folder / "data" / "data.json")["validation"], np.load(folder / "there" / "predictions.npz")
    tokenizer = BertTokenizerFast(str(folder / "data" / "vocab.txt"))
    within = {}
    for number, name in enumerate(rows["id"][: len(theirs)]):
        context = rows["context"][number]
        row = tokenizer(rows["question"][number], context, return_offsets_mapping=True)
        tokens = [token for token, sequence in enumerate(row.sequence_ids()) if sequence == 1]
        offsets = [row["offset_mapping"][token] for token in tokens]
        start, end = best_span(*(logits[f"{side}_positions"][number][tokens] for side in ("start", "end")))
        within[name] = context[offsets[start][0] : offsets[end][1]]
    equal = sum(ours[name] == text for name, text in theirs.items())
    faults = [f"{name} is answered otherwise" for name, text in within.items() if ours[name] != text]
    return f"{equal} of {len(theirs)} answers equal, {len(within) - len(faults)} within contexts", faults


def best_span(starts: np.ndarray, ends: np.ndarray) -> tuple[int, int]:
    """Return the span of at most 30 tokens with the largest sum of its (S,) start and end logits."""
    sums = np.add.outer(starts.astype(np.float32), ends.astype(np.float32))
    allowed = np.triu(np.ones(sums.shape, bool)) & ~np.triu(np.ones(sums.shape, bool), 30)
    return tuple(np.unravel_index(np.argmax(np.where(allowed, sums, -np.inf)), sums.shape))  # type: ignore[return-value]


def classes(folder: Path) -> tuple[str, list[str]]:
    """Compare the predicted classes of MRPC's test set."""
    logits = np.load(folder / "there" / "predictions.npz")["labels"]
    (file,) = (folder / "here" / RUN).glob("submission/*")
    ours = [int(line.split("\t")[1]) for line in file.read_text().splitlines()[1:]]
    equal = int(np.sum(logits.argmax(axis=-1) == ours))
    return f"{equal} of {len(ours)} classes equal", [] if equal == len(ours) else ["other classes"]


PREDICTIONS = {"squad": answers, "classification": classes}
