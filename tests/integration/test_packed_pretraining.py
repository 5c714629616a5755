"""Pre-training on packs through the command line: its log, counts and learning."""

from __future__ import annotations

import re
from pathlib import Path

import numpy as np
import pytest

from data_utils.packing.__main__ import main as pack
from data_utils.packing.merge import pack_arrays, sequence_lengths
from data_utils.records.features import pretraining_features
from data_utils.records.reader import RecordReader
from tests.support.packs import packs_in_order
from tests.support.record_samples import write_arrays
from tests.support.runs import (
    TEXT_PREDICTIONS,
    TEXT_SEQUENCE,
    TEXT_VOCABULARY,
    metrics,
    prepare_dataset,
    read_json,
    read_lines,  # room: sparsity
    trained,
    write_text,
    write_text_config,
)

pytestmark = pytest.mark.slow

PLACES, ROOM = 3, 13
PACKED = {"max_sequences_per_pack": PLACES, "max_predictions_per_pack": ROOM}
LENGTH = 2 * TEXT_SEQUENCE  # of a pack
ROWS = 8  # packs per update: 4 × 2
UPDATES = 12


@pytest.fixture(scope="module")
def sequences(root) -> Path:
    return prepare_dataset(root / "sequences", write_text(root / "text.txt"))


@pytest.fixture(scope="module")
def packs(root, sequences) -> Path:
    """The sequences in packs of twice their length, in their order, without a manifest."""
    reader = RecordReader(sequences, pretraining_features(TEXT_SEQUENCE, TEXT_PREDICTIONS, TEXT_VOCABULARY))
    arrays = reader.read(np.arange(reader.count))
    rows = packs_in_order(sequence_lengths(arrays["input_mask"]), LENGTH, PLACES)
    packed = pack_arrays(arrays, rows, LENGTH, ROOM, PLACES)
    folder = root / "packs"
    folder.mkdir()
    write_arrays(folder / "packs.tfrecord", packed)
    return folder


def packed_config(path: Path, **changes) -> Path:
    samples = round(ROWS * UPDATES * 2.6)
    sizes = {"packing": PACKED, "max_seq_length": LENGTH, "total_num_train_samples": samples}
    return write_text_config(path, **{**sizes, **changes})


@pytest.fixture(scope="module")
def run(root, packs) -> Path:
    config = packed_config(root / "packed.json", global_batch={"micro_batch_size": 4, "grad_acc_steps_per_replica": 2})
    return trained(config, root / "runs", "--dataset-dir", str(packs))


def test_samples_are_sequences(run):
    derived = read_json(run / "resolved_config.json")["derived"]
    factor = derived["packing_factor"]
    assert 1 < factor <= PLACES
    samples = round(ROWS * UPDATES * 2.6)
    assert derived["updates"] == samples // (ROWS * factor)
    assert metrics(run)[-1]["samples"] == round(derived["updates"] * ROWS * factor)
    page = (run / "report.html").read_text()
    assert "packs per second" in page and "tokens per second" in page


def test_the_log_has_the_packing_factor_and_the_betas_after_it(run):
    log = (run / "train.log").read_text()
    factor, first, second = map(
        float, re.search(r"([\d.]+) sequences in a pack; betas ([\d.]+) and ([\d.]+)", log).groups()
    )
    assert first == pytest.approx(0.9**factor, rel=1e-3) and second == pytest.approx(0.999**factor, rel=1e-3)


def test_a_data_set_of_the_packing_command_needs_no_more_than_its_sequences(root, sequences):
    """The manifest gives the room for masked tokens and the sequences in a pack."""
    folder = root / "packed-by-command"
    command = ["--input", str(sequences), "--output", str(folder), "--max-seq-length", str(LENGTH), "--workers", "1"]
    assert pack([*command, "--max-sequences-per-pack", str(PLACES)]) in (0, None)
    changes = {"packing": {"max_sequences_per_pack": PLACES}}
    changes["sparsity"] = {"ratio": 0.5, "block_size": 4, "method": "rigl", "pattern_updates": 3}  # room: sparsity
    config = packed_config(root / "command.json", **changes)
    run = trained(config, root / "runs", "--dataset-dir", str(folder), "--total-num-train-samples", "1000")
    manifest, resolved = read_json(folder / "manifest.json"), read_json(run / "resolved_config.json")
    room = manifest["settings"]["max_predictions_per_pack"]
    assert resolved["config"]["packing"]["max_predictions_per_pack"] == room
    factor = manifest["totals"]["sequences"] / manifest["totals"]["records"]
    assert resolved["derived"]["packing_factor"] == factor
    assert resolved["derived"]["updates"] == int(1000 // (16 * factor))
    patterns = read_lines(run / "sparsity.jsonl")  # room: sparsity
    assert len(patterns) == 4 and all(pattern["grown"] for pattern in patterns[1:])  # room: sparsity
