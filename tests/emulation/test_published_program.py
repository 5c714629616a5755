"""The arithmetic of the comparison with Graphcore's program, by hand-computed values; nothing is run here."""

from __future__ import annotations

import json
from pathlib import Path

import numpy as np
import pytest

from checkpoints.pretrained.opening import open_pretrained
from tests.emulation.published_program.cases import CASES, SIZES, config
from tests.emulation.published_program.comparison import (
    Row,
    WeightDifference,
    line,
    logged_rounding,
    other_counts,
    table,
    weight_difference,
)
from tests.emulation.published_program.results import best_span
from tests.emulation.published_program.weights import as_hugging_face, names_in_order, write_folder

# The variables of a model with one layer, as their program lists them (width 4, 6 word pieces).
NAMES = {
    "word_embeddings/weight:0": (6, 4), "token_type_embeddings/embeddings:0": (2, 4),
    "position_embeddings/embeddings:0": (8, 4), "gamma:0": (4,), "beta:0": (4,), "qkv/qkv_weight:0": (4, 12),
    "layer/gamma:0": (4,), "layer/beta:0": (4,), "kernel:0": (4, 4), "intermediate/dense/kernel:0": (4, 8),
    "intermediate/dense/bias:0": (8,), "output/dense/kernel:0": (8, 4), "output/dense/bias:0": (4,),
    "output/gamma:0": (4,), "output/beta:0": (4,), "pooler/dense/kernel:0": (4, 4), "pooler/dense/bias:0": (4,),
    "bias:0": (6,), "seq_relationship/kernel:0": (4, 2), "seq_relationship/bias:0": (2,),
}  # fmt: skip
SMALL = {**SIZES, "hidden_size": 4, "intermediate_size": 8, "num_hidden_layers": 1, "vocab_size": 6,
         "max_position_embeddings": 8}  # fmt: skip


def row(**changes: object) -> Row:
    usual = Row(
        name="lamb",
        theirs={"mlm_loss": [7.0, 6.0]},
        ours={"mlm_loss": [7.001, 6.004]},
        rounding={"mlm_loss": 0.005},
        rates=([1e-7, 1e-3], [1e-7, 1e-3]),
        weights=WeightDifference("kernel", 0.01, 3.0, 0.8, 0.0),
        predictions="",
        counts={"matmuls": (30, 36)},
    )
    return usual._replace(**changes)


def test_rounding_of_a_logged_loss_is_a_step_of_its_sum_and_one_of_its_terms() -> None:
    assert logged_rounding(7.0, 40) == 0.25 / 40 + 2**-8  # 280 lies between 256 and 512, 7 between 4 and 8
    assert logged_rounding(0.8, 2, 10) == 2**-10 / 2 + 2**-11 + 2**-7 / 10  # 1.6 is below 2, and 8 not below 8
    losses = np.random.default_rng(0).normal(7.0, 0.5, 40)
    logged = np.float32(np.sum(losses.astype(np.float16), dtype=np.float32).astype(np.float16)) / 40
    assert abs(logged - losses.mean()) < logged_rounding(7.0, 40)


def test_weights_are_compared_by_what_they_have_changed() -> None:
    before = {"a": np.zeros(4), "b": np.zeros(2), "key.bias": np.zeros(2), "gain": np.array([0.999, 1.0])}
    theirs = {**before, "a": np.full(4, 100.0), "b": np.array([3.0, 4.0]), "key.bias": np.array([1.0, 0.0])}
    theirs["gain"] = np.array([1.0, 1.0])
    ours = {**theirs, "a": np.array([100.0, 100.0, 100.0, 110.0]), "key.bias": np.array([-1.0, 0.0])}
    ours["gain"] = np.array([1.0, 1.0 + 2**-11])  # 0.00049, where the rms change is 0.00071: turned
    worst = weight_difference(before, theirs, ours, ignored=["key.bias"])
    assert worst.name == "a" and worst.share == pytest.approx(0.05)  # rms of (0, 0, 0, 10) is 5, that of the change 100
    assert worst.steps == pytest.approx(5 * 2**4) and not worst.is_rounding
    assert (worst.equal, worst.turned) == (7 / 10, 1 / 10)
    ours["a"][3] = 111.0
    turned = weight_difference(before, theirs, ours, ignored=["key.bias"])
    assert (turned.share, turned.turned) == (0, 2 / 10)
    assert weight_difference(before, theirs, ours).turned == 3 / 10


def test_what_is_not_as_wanted_is_named() -> None:
    assert row().problems() == []
    assert row(ours={"mlm_loss": [7.001, 6.006]}).problems() == ["mlm_loss differs by 0.0060, rounding explains 0.0050"]
    assert row(ours={"mlm_loss": [7.0]}).problems() == ["2 and 1 updates"]
    assert row(rates=([1e-7, 1e-3], [1e-7, 1.001e-3])).problems() == ["rates differ"]
    assert row(weights=WeightDifference("kernel", 0.021, 3.0, 0.8, 0.0)).problems() == [
        "kernel differs by 2.1% of its change"
    ]
    assert row(weights=WeightDifference("gain", 0.021, 0.4, 0.8, 0.0)).problems() == []
    many = row(weights=WeightDifference("gain", 0.01, 0.4, 0.8, 0.03))
    assert many.problems() == ["3.0% of the numbers have turned"]


def test_a_row_shows_both_programs() -> None:
    cells = line(row())
    assert cells[:5] == ["lamb", "2", "7.0000 → 6.0000", "7.0010 → 6.0040", "0.0040 (0.0050)"]
    assert cells[-2:] == ["matmuls 30/36", "as wanted"]
    assert [text.count("|") for text in table([row()]).splitlines()] == [len(cells) + 1] * 3
    assert other_counts({"a": 1, "b": 2}, {"a": 1, "b": 3}) == {"b": (2, 3)}


def test_their_variables_become_a_complete_hugging_face_folder(tmp_path: Path) -> None:
    random = np.random.default_rng(0)
    arrays = {f"{number:03d} {name}": random.normal(size=shape) for number, (name, shape) in enumerate(NAMES.items())}
    settings = {"bert_config": SMALL}
    weights = as_hugging_face(arrays, settings, "pretraining")
    merged, layer = arrays["005 qkv/qkv_weight:0"], "bert.encoder.layer.0."
    np.testing.assert_array_equal(weights[f"{layer}attention.self.key.weight"], merged[:, 4:8].T.astype(np.float32))
    kernel = arrays["009 intermediate/dense/kernel:0"].T.astype(np.float32)
    np.testing.assert_array_equal(weights[f"{layer}intermediate.dense.weight"], kernel)
    write_folder(tmp_path / "folder", weights, settings, "pretraining")
    opened = open_pretrained(str(tmp_path / "folder"), "pretrained_ckpt_path")
    assert set(weights) <= set(opened.weights)


@pytest.mark.parametrize(
    ("options", "more"),
    [({"use_cls_layer": True}, 4), ({"use_prediction_bias": False}, -1), ({"use_projection_bias": True}, 1),
     ({"use_qkv_split": True}, 2), ({"use_qkv_split": True, "use_qkv_bias": True}, 5)],
)  # fmt: skip
def test_options_add_variables(options: dict[str, bool], more: int) -> None:
    assert len(list(names_in_order({"bert_config": SMALL, **options}, "pretraining"))) == len(NAMES) + more


def test_configs_of_the_cases_are_json_with_samples_for_whole_updates() -> None:
    for case in CASES:
        settings = json.loads(json.dumps(config(case)))
        batch = settings["global_batch"]
        size = batch["micro_batch_size"] * batch["grad_acc_steps_per_replica"] * batch["replicas"]
        assert size == case.samples
        if case.task == "pretraining":
            assert settings["total_num_train_samples"] == case.updates * size


def test_the_best_span_does_not_end_before_it_starts_and_has_at_most_30_tokens() -> None:
    starts, ends = np.zeros(40, np.float16), np.zeros(40, np.float16)
    starts[5], ends[3], ends[36] = 9.0, 8.0, 7.0  # 5 to 36 has 32 tokens; 3 comes before 5
    ends[34] = 6.0
    assert best_span(starts, ends) == (5, 34)
