"""A sample in a pack is that sample alone: its scores come back to it, and are those of Hugging Face's model."""

from __future__ import annotations

import numpy as np
import pytest

from data_utils.classification.features import classification_features
from data_utils.records.arrays import ArrayReader
from data_utils.records.features import in_packs
from data_utils.records.packs import PackReader
from execution.software.platform import SoftwarePlatform
from model.architecture import CLASSIFICATION
from model.bert import assemble
from model.conversion import convert
from model.huggingface import untrained
from tests.equivalence.bert_pairs import architecture

S, N, CLASSES = 40, 4, 3
LENGTHS = np.array([5, 23, 12, 40, 11, 7, 9, 13, 30, 3])
PACKS = [[1, 0, 2], [3], [4, 5, 6, 7], [9, 8]]


@pytest.fixture(scope="module")
def samples():
    random = np.random.default_rng(0)
    mask = (np.arange(S) < LENGTHS[:, None]).astype("int32")
    return {
        "input_ids": random.integers(1, 120, mask.shape) * mask,
        "input_mask": mask,
        "segment_ids": (np.arange(S) >= random.integers(1, LENGTHS)[:, None]) * mask,
        "labels": random.integers(0, CLASSES, (len(LENGTHS), 1)),
    }


@pytest.fixture(scope="module")
def reader(samples):
    single = ArrayReader(classification_features(S, 120, CLASSES), samples)
    return PackReader(in_packs(single.spec, N, cls_positions=True), single, LENGTHS, PACKS)


def test_a_pack_tells_where_its_samples_begin_and_their_labels(samples, reader):
    batch = reader.read(np.array([2, 0]))
    for row, pack in enumerate([PACKS[2], PACKS[0]]):
        begins = np.cumsum([0, *LENGTHS[pack]])[:-1]
        np.testing.assert_array_equal(batch["cls_positions"][row, : len(pack)], begins)
        np.testing.assert_array_equal(batch["labels"][row, : len(pack)], samples["labels"][pack, 0])
        np.testing.assert_array_equal(batch["sequence_weights"][row], np.arange(N) < len(pack))
        for name in ("cls_positions", "labels"):
            assert not batch[name][row, len(pack) :].any()
    for feature in reader.spec.features:
        assert batch[feature.name].shape == (2, feature.length) and batch[feature.name].dtype == feature.dtype


@pytest.mark.parametrize("converted", [True, False], ids=["converted", "unconverted"])
def test_scores_of_a_sample_are_those_of_the_sample_alone(samples, reader, converted):
    a = architecture()
    source = untrained(CLASSIFICATION, a, seed=3, labels=CLASSES)
    random = np.random.default_rng(5)
    for variable in source.weights:
        variable.assign(variable + random.normal(0, 0.05, variable.shape).astype("float32"))
    platform = SoftwarePlatform(seed=1, xla=False, recompute=False)
    blocks, conversion = convert(CLASSIFICATION, source, a, platform, replace_layers=converted)
    model = assemble(blocks, reader.spec.shapes, ("logits",), [[block.name for block in blocks]], platform)
    if conversion is not None:
        conversion.carry_weights(source)
    whole = reader.read(np.arange(reader.count))
    ours = reader.of_samples(model({name: whole[name] for name in model.input_names})["logits"].numpy())
    for sample, length in enumerate(LENGTHS):
        tokens = {name: samples[name][sample : sample + 1, :length].astype("int32") for name in samples}
        theirs = source(
            input_ids=tokens["input_ids"], attention_mask=tokens["input_mask"], token_type_ids=tokens["segment_ids"]
        )
        np.testing.assert_allclose(ours[sample], theirs.logits[0], atol=1e-5, rtol=1e-5)
