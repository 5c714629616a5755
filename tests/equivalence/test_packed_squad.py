"""A window in a pack is that window alone: its logits, its loss and its answer; and packs give back what they took."""

from __future__ import annotations

import numpy as np
import pytest

from data_utils.records.arrays import ArrayReader
from data_utils.records.features import in_packs
from data_utils.records.packs import PackReader
from data_utils.squad.windows import squad_features
from execution.software.platform import SoftwarePlatform
from keras_extensions.backend import tf
from model.architecture import QA_HEAD, SQUAD
from model.bert import assemble
from model.conversion import convert
from model.huggingface import untrained
from model.losses import END_ACCURACY, LOSS, START_ACCURACY, SpanObjective
from tests.equivalence.bert_pairs import architecture

S, N = 40, 4
LENGTHS = np.array([5, 23, 12, 40, 11, 7, 9, 13, 30, 6])
PACKS = [[1, 0, 2], [3], [4, 5, 6, 7], [9, 8]]
OUTPUTS = ("start_logits", "end_logits")


@pytest.fixture(scope="module")
def windows():
    """Windows of random pieces; some of their answers are [CLS]."""
    random = np.random.default_rng(0)
    mask = (np.arange(S) < LENGTHS[:, None]).astype("int32")
    start = random.integers(0, LENGTHS) * random.integers(0, 2, len(LENGTHS))
    return {
        "input_ids": random.integers(1, 120, mask.shape) * mask,
        "input_mask": mask,
        "segment_ids": (np.arange(S) >= random.integers(1, LENGTHS)[:, None]) * mask,
        "start_positions": start[:, None],
        "end_positions": np.where(start, random.integers(start, LENGTHS), 0)[:, None],
    }


@pytest.fixture(scope="module")
def reader(windows):
    single = ArrayReader(squad_features(S, 120), windows)
    return PackReader(in_packs(single.spec, N), single, LENGTHS, PACKS)


@pytest.fixture(scope="module")
def models():
    """Hugging Face's model, and ours for packs with the same weights."""
    a = architecture()
    source = untrained(SQUAD, a, seed=3)
    random = np.random.default_rng(5)
    for variable in source.weights:
        variable.assign(variable + random.normal(0, 0.05, variable.shape).astype("float32"))
    platform = SoftwarePlatform(seed=1, xla=False, recompute=False)
    blocks, conversion = convert(SQUAD, source, a, platform, [QA_HEAD])
    shapes = in_packs(squad_features(S, 120), N).shapes
    model = assemble(blocks, shapes, OUTPUTS, [[block.name for block in blocks]], platform)
    conversion.carry_weights(source)
    return source, model


def test_a_pack_holds_its_windows_one_behind_the_other(windows, reader):
    assert (reader.count, reader.samples) == (4, 10)
    batch = reader.read(np.array([2, 0]))
    for row, pack in enumerate([PACKS[2], PACKS[0]]):
        begin = 0
        for place, window in enumerate(pack):
            length = LENGTHS[window]
            part = slice(begin, begin + length)
            for name in ("input_ids", "segment_ids"):
                np.testing.assert_array_equal(batch[name][row, part], windows[name][window, :length])
            np.testing.assert_array_equal(batch["input_mask"][row, part], place + 1)
            np.testing.assert_array_equal(batch["position_ids"][row, part], np.arange(length))
            for name in ("start_positions", "end_positions"):
                assert batch[name][row, place] == begin + windows[name][window, 0]
            begin += length
        for name in ("input_ids", "input_mask", "segment_ids", "position_ids"):
            assert not batch[name][row, begin:].any()
        np.testing.assert_array_equal(batch["sequence_weights"][row], np.arange(N) < len(pack))
    for feature in reader.spec.features:
        assert batch[feature.name].shape == (2, feature.length)
        assert batch[feature.name].dtype == feature.dtype


def test_scores_go_back_to_their_windows(windows, reader):
    whole = reader.read(np.arange(reader.count))
    np.testing.assert_array_equal(reader.of_samples(whole["input_ids"]), windows["input_ids"])


def test_logits_of_a_window_are_those_of_the_window_alone(windows, reader, models):
    source, model = models
    whole = reader.read(np.arange(reader.count))
    names = ("input_ids", "input_mask", "segment_ids", "position_ids")
    ours = model({name: whole[name] for name in names})
    ours = {name: reader.of_samples(ours[name].numpy()) for name in OUTPUTS}
    for window, length in enumerate(LENGTHS):
        tokens = {name: windows[name][window : window + 1, :length].astype("int32") for name in windows}
        theirs = source(
            input_ids=tokens["input_ids"],
            attention_mask=tokens["input_mask"],
            token_type_ids=tokens["segment_ids"],
        )
        for name in OUTPUTS:
            np.testing.assert_allclose(ours[name][window, :length], getattr(theirs, name)[0], atol=1e-5, rtol=1e-5)


def test_losses_are_those_of_the_windows_alone(windows, reader):
    """A mean over windows, each a softmax over its own tokens (Devlin et al. 2019, section 4.2)."""
    random = np.random.default_rng(1)
    logits = {name: random.normal(size=(reader.count, S)).astype("float32") for name in OUTPUTS}
    whole = reader.read(np.arange(reader.count))
    objective = SpanObjective()
    sums = objective.sums({name: tf.constant(values) for name, values in logits.items()}, tensors(whole))
    counts = objective.counts(tensors(whole))
    loss, right = 0.0, dict.fromkeys(OUTPUTS, 0)
    for name, label in zip(OUTPUTS, ("start_positions", "end_positions")):
        for window, scores in enumerate(reader.of_samples(logits[name])):
            scores, place = scores[: LENGTHS[window]].astype("float64"), windows[label][window, 0]
            loss -= (scores[place] - np.log(np.exp(scores).sum())) / 2
            right[name] += int(scores.argmax() == place)
    assert float(counts[LOSS]) == len(LENGTHS)
    assert float(sums[LOSS]) == pytest.approx(loss, rel=1e-5)
    assert float(sums[START_ACCURACY]) == right["start_logits"]
    assert float(sums[END_ACCURACY]) == right["end_logits"]
    assert float(sums["sequences_per_pack"] / counts["sequences_per_pack"]) == 2.5
    assert float(sums["tokens_per_pack"] / counts["tokens_per_pack"]) == LENGTHS.sum() / 4


def tensors(arrays):
    return {name: tf.constant(values) for name, values in arrays.items()}
