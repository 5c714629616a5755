"""A sample in a pack has the logits, loss and answer of that sample alone, and outputs are returned per sample."""

from __future__ import annotations

import numpy as np
import pytest

from data_utils.classification.features import classification_features
from data_utils.packing.assignment import given_packs
from data_utils.records.arrays import ArrayReader
from data_utils.records.features import in_packs
from data_utils.records.packs import PackReader
from data_utils.squad.windows import squad_features
from data_utils.token_classification import token_features
from keras_extensions.backend import tf
from model.losses import END_ACCURACY, LOSS, SEQUENCES_PER_PACK, START_ACCURACY, SpanObjective
from model.tasks import CLASSIFICATION, SQUAD, TOKEN_CLASSIFICATION
from tasks.token_classification import TagObjective
from tests.support.bert_pairs import (
    OUTPUTS,
    architecture,
    assert_same_logits,
    hugging_face,
    on_cpu,
    pair_of,
    source_with_random_weights,
)

S, N, CLASSES = 40, 4, 3
LENGTHS = np.array([5, 23, 12, 40, 11, 7, 9, 13, 30, 6])
PACKS = [[1, 0, 2], [3], [4, 5, 6, 7], [9, 8]]
TASKS = (SQUAD, CLASSIFICATION, TOKEN_CLASSIFICATION)


@pytest.fixture(scope="module")
def samples():
    """Random word pieces with the labels of each task; some of SQuAD's answers are [CLS]."""
    random = np.random.default_rng(0)
    mask = (np.arange(S) < LENGTHS[:, None]).astype("int32")
    start = random.integers(0, LENGTHS) * random.integers(0, 2, len(LENGTHS))
    shared = {
        "input_ids": random.integers(1, 120, mask.shape) * mask,
        "input_mask": mask,
        "segment_ids": (np.arange(S) >= random.integers(1, LENGTHS)[:, None]) * mask,
    }
    end = np.where(start, random.integers(start, LENGTHS), 0)
    return {
        SQUAD: {**shared, "start_positions": start[:, None], "end_positions": end[:, None]},
        CLASSIFICATION: {**shared, "labels": random.integers(0, CLASSES, (len(LENGTHS), 1))},
        TOKEN_CLASSIFICATION: {**shared, "labels": random.integers(0, CLASSES + 1, mask.shape) * mask},
    }


@pytest.fixture(scope="module")
def readers(samples):
    features = {
        SQUAD: squad_features(S, 120),
        CLASSIFICATION: classification_features(S, 120, CLASSES),
        TOKEN_CLASSIFICATION: token_features(S, 120, CLASSES),
    }
    result = {}
    for task, spec in features.items():
        packed = in_packs(spec, N, cls_positions=task == CLASSIFICATION)
        result[task] = PackReader(packed, ArrayReader(spec, samples[task]), LENGTHS, given_packs(PACKS))
    return result


@pytest.mark.parametrize("task", TASKS)
def test_a_pack_holds_its_samples_one_behind_the_other(samples, readers, task):
    reader, alone = readers[task], samples[task]
    assert (reader.count, reader.samples) == (4, 10)
    batch = reader.read(np.array([2, 0]))
    of_tokens = ["input_ids", "segment_ids"] + (["labels"] if task == TOKEN_CLASSIFICATION else [])
    for row, pack in enumerate([PACKS[2], PACKS[0]]):
        begins = np.cumsum([0, *LENGTHS[pack]])
        for slot, (sample, begin) in enumerate(zip(pack, begins)):
            part = slice(begin, begin + LENGTHS[sample])
            for name in of_tokens:
                np.testing.assert_array_equal(batch[name][row, part], alone[name][sample, : LENGTHS[sample]])
            np.testing.assert_array_equal(batch["input_mask"][row, part], slot + 1)
            np.testing.assert_array_equal(batch["position_ids"][row, part], np.arange(LENGTHS[sample]))
            if task == SQUAD:
                for name in ("start_positions", "end_positions"):
                    assert batch[name][row, slot] == begin + alone[name][sample, 0]
            if task == CLASSIFICATION:
                assert batch["cls_positions"][row, slot] == begin
                assert batch["labels"][row, slot] == alone["labels"][sample, 0]
        for name in (*of_tokens, "input_mask", "position_ids"):
            assert not batch[name][row, begins[-1] :].any()
        if task == CLASSIFICATION:
            assert not any(batch[name][row, len(pack) :].any() for name in ("cls_positions", "labels"))
        np.testing.assert_array_equal(batch["sequence_weights"][row], np.arange(N) < len(pack))
    for feature in reader.spec.features:
        assert batch[feature.name].shape == (2, feature.length) and batch[feature.name].dtype == feature.dtype


def test_a_pack_holds_the_labels_of_each_sample(samples):
    spec = classification_features(S, 120, CLASSES, multi_label=True)
    labels = np.random.default_rng(2).integers(0, 2, (len(LENGTHS), CLASSES))
    reader = PackReader(
        in_packs(spec, N, cls_positions=True),
        ArrayReader(spec, {**samples[CLASSIFICATION], "labels": labels}),
        LENGTHS,
        given_packs(PACKS),
    )
    packed = reader.read(np.arange(reader.count))["labels"]
    assert packed.shape == (len(PACKS), N * CLASSES)
    for row, pack in zip(packed.reshape(-1, N, CLASSES), PACKS):
        np.testing.assert_array_equal(row[: len(pack)], labels[pack])
        assert not row[len(pack) :].any()


def test_scores_go_back_to_their_windows(samples, readers):
    whole = readers[SQUAD].read(np.arange(readers[SQUAD].count))
    np.testing.assert_array_equal(readers[SQUAD].unpack_outputs(whole["input_ids"]), samples[SQUAD]["input_ids"])


@pytest.mark.parametrize("task, replace", [*((task, True) for task in TASKS), (CLASSIFICATION, False)])
def test_logits_of_a_sample_are_those_of_the_sample_alone(samples, readers, task, replace):
    a, reader = architecture(), readers[task]
    source = source_with_random_weights(a, task, 2 if task == SQUAD else CLASSES)
    pair = pair_of(source, a, on_cpu(), task, reader.spec.shapes, replace=replace)
    outputs = pair(reader.read(np.arange(reader.count)))
    ours = {name: reader.unpack_outputs(values.numpy()) for name, values in outputs.items()}
    for sample, length in enumerate(LENGTHS):
        tokens = {
            name: samples[task][name][sample : sample + 1, :length].astype("int32")
            for name in ("input_ids", "input_mask", "segment_ids")
        }
        theirs = {name: hugging_face(source, tokens)[name][0] for name in OUTPUTS[task]}
        real = slice(None) if task == CLASSIFICATION else slice(length)
        assert_same_logits({name: values[sample][real] for name, values in ours.items()}, theirs)


def test_losses_of_windows_are_those_of_the_windows_alone(samples, readers):
    """The loss is a mean over windows, each with a softmax over its own tokens (Devlin et al. 2019, section 4.2)."""
    reader, windows, names = readers[SQUAD], samples[SQUAD], OUTPUTS[SQUAD]
    random = np.random.default_rng(1)
    logits = {name: random.normal(size=(reader.count, S)).astype("float32") for name in names}
    sums, counts = sums_and_counts(SpanObjective(), logits, reader.read(np.arange(reader.count)))
    loss, right = 0.0, dict.fromkeys(names, 0)
    for name, label in zip(names, ("start_positions", "end_positions")):
        for window, scores in enumerate(reader.unpack_outputs(logits[name])):
            scores, target = scores[: LENGTHS[window]].astype("float64"), windows[label][window, 0]
            loss -= (scores[target] - np.log(np.exp(scores).sum())) / 2
            right[name] += int(scores.argmax() == target)
    assert counts[LOSS] == len(LENGTHS)
    assert sums[LOSS] == pytest.approx(loss, rel=1e-5)
    assert (sums[START_ACCURACY], sums[END_ACCURACY]) == tuple(right.values())
    assert sums[SEQUENCES_PER_PACK] / counts[SEQUENCES_PER_PACK] == 2.5
    assert sums["tokens_per_pack"] / counts["tokens_per_pack"] == LENGTHS.sum() / 4


def test_losses_of_tags_are_those_of_the_sentences_alone(samples, readers):
    reader, sentences = readers[TOKEN_CLASSIFICATION], samples[TOKEN_CLASSIFICATION]
    logits = np.random.default_rng(1).normal(size=(reader.count, S, CLASSES)).astype("float32")
    packed, counts = sums_and_counts(TagObjective(), {"logits": logits}, reader.read(np.arange(reader.count)))
    alone, counts_alone = sums_and_counts(TagObjective(), {"logits": reader.unpack_outputs(logits)}, sentences)
    assert SEQUENCES_PER_PACK in counts and SEQUENCES_PER_PACK not in counts_alone
    for name in alone:
        assert (packed[name], counts[name]) == (pytest.approx(alone[name], rel=1e-5), counts_alone[name])


def sums_and_counts(objective, outputs, batch):
    data = {name: tf.constant(values) for name, values in batch.items()}
    result = (
        objective.sums({name: tf.constant(values) for name, values in outputs.items()}, data),
        objective.counts(data),
    )
    return tuple({name: float(value) for name, value in part.items()} for part in result)
