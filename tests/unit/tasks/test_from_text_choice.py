"""The choice of ``run_from_text.py``: between the figures of the measured recipes, and never smaller with more time."""

from __future__ import annotations

import itertools
import json
from dataclasses import replace
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from safetensors.numpy import save_file

from tasks.from_text.choice import FEWEST_DOCUMENTS, FEWEST_PASSES, LONG_TEXT, choose, text_tokens
from tasks.from_text.folder import Folder
from tasks.from_text.inputs import Machine, Text
from tasks.from_text.judgement import FORECAST, forecasts
from tasks.from_text.phases import phases, released
from tasks.from_text.recipe import (
    FEWEST_UPDATES,
    LARGER_MODEL_PASSES,
    MOST_PASSES,
    REAL_TOKENS,
    TOKENS_PER_UPDATE,
    Recipe,
)
from tasks.from_text.table import ROWS, expected_bits, interpolated, updates_in
from tests.support.config_files import load_config
from utilities.errors import UserError

WIKIPEDIA = Text(153.0, 24_000_000, 6_700, 0.0, "LATIN", False, False)
SHORT = Text(2.0, 300_000, 79, 0.0, "LATIN", False, True)
ZEN4 = Machine(2, "avx512_bf16", 24.0, "", "")
ZEN3 = Machine(2, "", 24.0, "", "")
BUDGETS = [0.04, 0.06, 0.1, 0.2, 0.4, 0.6, 1, 2, 4, 8, 16, 40, 200]


def recipes(text: Text, machine: Machine = ZEN4, **settings: Any) -> list[Recipe]:
    found = []
    for hours in BUDGETS:
        try:
            found.append(choose(text, machine, hours, **settings))
        except UserError:
            assert not found, "only the shortest budgets are too short"
    assert len(found) > 5
    return found


@pytest.mark.parametrize("machine", [ZEN4, ZEN3, Machine(16, "amx_bf16", 64.0, "", "")])
@pytest.mark.parametrize("text", [WIKIPEDIA, SHORT])
def test_more_time_never_gives_a_smaller_model_and_all_are_as_measured(text: Text, machine: Machine) -> None:
    found = recipes(text, machine)
    for less, more in itertools.pairwise(found):
        assert more.layers >= less.layers and more.hidden >= less.hidden
        assert more.training >= 0.999 * less.training and more.masked >= less.masked
        assert more.initializer_range <= less.initializer_range
    for recipe in found:
        assert ROWS[0].layers <= recipe.layers <= ROWS[-1].layers
        assert ROWS[0].hidden <= recipe.hidden <= ROWS[-1].hidden and recipe.hidden % 64 == 0
        assert ROWS[-1].initializer_range <= recipe.initializer_range <= ROWS[0].initializer_range
        assert 0.06 <= recipe.first_share <= 0.35


@pytest.mark.parametrize("row", ROWS, ids=lambda row: row.name)
def test_the_table_has_the_figures_of_the_configs(row: Any) -> None:
    recipe = row.name.removeprefix("shortened ")
    prefix = f"configs/pretraining/pretrain_{'tiny' if recipe == 'speedrun' else recipe}"
    suffix = "_speedrun" if recipe == "speedrun" else ""
    whole = []
    for length in (32, 128):
        config = load_config(
            "pretraining", ["--config", f"{prefix}_{length}{suffix}.json", "--dataset-dir", "x"]
        ).config
        sizes = config.bert_config
        assert sizes is not None
        assert (sizes.num_hidden_layers, sizes.hidden_size) == (row.layers, row.hidden)
        assert sizes.initializer_range == row.initializer_range
        assert config.total_num_train_samples is not None
        assert config.samples_per_update * length == TOKENS_PER_UPDATE
        whole.append(config.total_num_train_samples // config.samples_per_update)
    assert recipe != row.name or [row.short_updates, row.long_updates] == whole
    minutes = {"speedrun": 6.4, "half_hour": 32.7}.get(recipe, row.minutes)  # of the guide's table
    assert row.minutes / row.updates == pytest.approx(minutes / sum(whole), rel=0.005)
    assert interpolated(row.minutes, lambda each: each.hidden) == pytest.approx(row.hidden)
    assert updates_in(row.minutes) == pytest.approx(row.updates)


# Trainings on English Wikipedia: minutes of their updates, the files' megabytes, the updates in which the training
# documents are read once (their tokens, of which an update reads 3,482), the held-out loss in nats, and bits of a byte
# for a nat: tokens of the held-out documents, divided by their bytes and ln 2 (test_from_text_figures.py computes it).
TRAININGS = [
    (2.88, 1, 75.3, 3.976, 0.40372),
    (4.45, 1, 75.3, 3.861, 0.40372),
    (8.2, 1, 75.3, 3.665, 0.40372),
    (20.4, 1, 75.3, 3.542, 0.40372),
    (1.71, 10, 740.7, 4.377, 0.38128),
    (2.5, 10, 740.7, 4.085, 0.38128),
    (31.6, 10, 740.7, 3.048, 0.38128),
    (5.71, 10, 682.7, 3.785, 0.35248),
    (7.03, 10, 682.7, 3.687, 0.35248),
    (7.03, 10, 682.7, 3.706, 0.35248),
    (6.4, 153, 11_075, 3.500, 0.36555),
    (26.05, 153, 11_075, 3.004, 0.36555),
    (117.4, 153, 11_075, 2.735, 0.36555),
]


def expected(minutes: float, updates: float) -> float:
    bits = expected_bits(minutes, updates)
    assert bits is not None
    return bits


@pytest.mark.parametrize(("minutes", "_", "updates", "nats", "bits_of_a_nat"), TRAININGS)
def test_the_expected_loss_is_near_the_measured_one(
    minutes: float, _: int, updates: float, nats: float, bits_of_a_nat: float
) -> None:
    assert expected(minutes, updates) == pytest.approx(nats * bits_of_a_nat, rel=0.03)


def test_forecasts_among_the_measured_trainings_are_as_wrong_as_is_said() -> None:
    errors = [
        nats * scale * expected(*then) / expected(minutes, updates) / (later * other_scale) - 1
        for minutes, text, updates, nats, scale in TRAININGS
        for *then, later, other_scale in (
            (u, p, n, b) for u, other, p, n, b in TRAININGS if is_pair(minutes, text, u, other)
        )
    ]
    assert len(errors) > 20 and 0.04 < max(map(abs, errors)) < 0.05
    assert "up to 5 % too low or too high" in FORECAST


def is_pair(minutes: float, text: int, later: float, other: int) -> bool:
    """Return whether two trainings differ in time alone, by at most 18 times, or in their texts alone."""
    return 1.7 < later / minutes < 18.6 if text == other else other > text and 1 / 1.3 < later / minutes < 1.3


@pytest.mark.parametrize(
    ("words", "pieces", "tokens"),
    [
        (160_970, 3_072, 282_565),
        (1_609_560, 5_632, 2_709_852),
        (1_609_560, 8_192, 2_497_792),
        (24_099_021, 8_192, 38_921_273),
    ],
)
def test_the_tokens_of_a_text_are_nearly_those_that_were_counted(words: int, pieces: int, tokens: int) -> None:
    text = SHORT._replace(words=words)
    assert text_tokens(text, pieces) == pytest.approx(tokens, rel=0.04)


def test_of_other_texts_and_models_nothing_is_expected() -> None:
    for text in (WIKIPEDIA._replace(script="CJK"), WIKIPEDIA._replace(is_code=True), SHORT.part(0.05)):
        recipe = choose(text, ZEN4, 0.5)
        assert recipe.expected_bits is None and recipe.expectation[0].startswith("expect: not known")
        assert forecasts(recipe, 3.0) == []
    given = choose(WIKIPEDIA, ZEN4, 0.5, given={"bert_config.hidden_size": 256})
    assert (given.hidden, given.expected_bits) == (256, None)


@pytest.mark.parametrize(
    ("field", "value", "choice"),
    [
        ("optimizer_opts.learning_rate.max_learning_rate", 1e-4, "optimizer"),
        ("word_vectors", False, "word vectors"),
        ("bert_config.vocab_size", 4_000, "vocabulary"),
        ("optimizer_opts.weight_decay_rate", 0.5, "weight decay"),
        ("global_batch.micro_batch_size", 8, "batch"),
    ],
)
def test_what_the_user_decides_is_not_said_to_be_chosen_or_measured(field: str, value: Any, choice: str) -> None:
    recipe = choose(WIKIPEDIA, ZEN4, 0.5, given={field: value})
    names = [each.name for each in recipe.choices]
    assert recipe.vocabulary == 4_000 or field != "bert_config.vocab_size"
    assert choice not in names and names[-1] == field and recipe.expected_bits is None
    listed = recipe.choices[-1]
    assert listed.value == value and "command line" in listed.reason


def test_other_lengths_were_not_measured_and_a_seed_does_not_matter() -> None:
    plain, seed = choose(WIKIPEDIA, ZEN4, 0.5), choose(WIKIPEDIA, ZEN4, 0.5, given={"seed": 7})
    assert seed.expected_bits == plain.expected_bits is not None
    assert choose(WIKIPEDIA, ZEN4, 0.5, (64, 128)).expected_bits is None


def test_the_measured_tokens_replace_the_estimate() -> None:
    recipe = choose(SHORT, ZEN4, 0.5)
    measured = recipe.with_training_tokens(262_133)  # of 1 MB
    assert measured.pass_updates == pytest.approx(75.3, abs=0.05)
    assert measured.most_updates == 80 * 262_133 // 3_481.6


def test_forecasts_of_a_text_that_is_read_often_enough_are_of_more_text_only() -> None:
    half, once = choose(SHORT, ZEN4, 0.5), choose(WIKIPEDIA, ZEN4, 1)
    assert [what for what, _, _ in forecasts(half, 4.0)] == ["twice the time", "twice the text"]
    often = half.with_updates(half.most_updates)
    assert often.minutes < 118 and not forecasts(choose(SHORT, ZEN4, 16), 4.0), "no training as long was measured"
    ((what, loss, _),) = forecasts(often, 4.0)
    assert what == "twice the text" and 3.5 < loss < 4.0
    ((time, shorter, _),) = forecasts(once, 3.0)  # a longer text than Wikipedia's 153 MB was not measured
    assert time == "twice the time" and 2.6 < shorter < 2.95
    part = choose(WIKIPEDIA.part(20.0), ZEN4, 1)
    assert part.documents_share < 1 and [what for what, _, _ in forecasts(part, 3.0)] == ["twice the time"]
    assert not forecasts(choose(WIKIPEDIA, ZEN4, 1.5), 3.0)
    assert not forecasts(once.with_updates(100), 6.0), "the first plateau has not ended"


def test_a_slower_machine_gets_a_smaller_model_for_the_same_time() -> None:
    fast, slow = choose(WIKIPEDIA, ZEN4, 2), choose(WIKIPEDIA, ZEN3, 2)
    assert (slow.layers * slow.hidden, slow.minutes) < (fast.layers * fast.hidden, fast.minutes)
    assert (fast.precision, slow.precision) == ("mixed_bfloat16", "float32")


def test_a_short_text_gets_a_larger_model_before_it_is_read_more_often() -> None:
    short, long = recipes(SHORT), recipes(WIKIPEDIA)
    for with_little, with_much in zip(short, long):
        assert with_little.layers * with_little.hidden >= with_much.layers * with_much.hidden
    for recipe in short:
        largest = (recipe.layers, recipe.hidden) == (ROWS[-1].layers, ROWS[-1].hidden)
        assert recipe.passes <= 1.01 * (MOST_PASSES if largest else LARGER_MODEL_PASSES)
    assert short[-1].passes == pytest.approx(MOST_PASSES, rel=0.01)


def test_a_text_that_is_read_often_enough_ends_the_command_earlier_and_it_says_so() -> None:
    recipe = choose(SHORT, ZEN4, 16)
    assert recipe.updates == pytest.approx(recipe.most_updates, abs=1)
    assert recipe.training < 0.5 * 16 * 3600
    assert "read 80 times" in recipe.warning[0] and "more time will not" in recipe.warning[0]
    assert any("--start-from" in line for line in recipe.advice)
    assert not choose(SHORT, ZEN4, 1).warning
    half = recipe.with_training_tokens(round(recipe.pass_updates / 2 * TOKENS_PER_UPDATE * REAL_TOKENS))
    assert half.with_updates(half.most_updates).warning and not half.with_updates(half.most_updates // 2).warning
    assert recipe.vocabulary < choose(WIKIPEDIA, ZEN4, 16).vocabulary
    assert choose(WIKIPEDIA, ZEN4, 2).advice == ()


def test_a_text_that_is_read_more_often_has_more_weight_decay() -> None:
    decays = [recipe.weight_decay for recipe in recipes(SHORT)]
    assert decays == sorted(decays)
    megabyte = SHORT._replace(megabytes=1.03, words=161_000, documents=38)
    assert choose(megabyte, ZEN4, 0.5).weight_decay == pytest.approx(1.0, abs=0.02)  # the best of the guide's table
    ten = WIKIPEDIA._replace(megabytes=10.2, words=1_610_000, documents=450)
    assert 0.05 < choose(ten, ZEN4, 0.5).weight_decay < 0.3  # 0.2 was better than 0.5
    assert choose(WIKIPEDIA, ZEN4, 0.5).weight_decay == 0.01  # as in the recipes


def test_a_quarter_is_masked_in_long_trainings_and_in_texts_that_are_read_often() -> None:
    assert [choose(WIKIPEDIA, ZEN4, hours).masked for hours in (0.08, 0.15, 0.5)] == [0.15, 0.25, 0.25]
    assert choose(SHORT, ZEN4, 0.15).masked == 0.25


@pytest.mark.parametrize("megabytes", [20.0, 153.0, 10_000.0])
def test_of_a_text_that_is_too_long_for_the_time_a_part_is_prepared(megabytes: float) -> None:
    text = WIKIPEDIA.part(megabytes / WIKIPEDIA.megabytes)
    for hours in (0.2, 0.5, 4.0):
        recipe = choose(text, ZEN4, hours)
        part = recipe.documents_share * megabytes
        tokens = text_tokens(text, recipe.vocabulary) * recipe.documents_share * (1 - recipe.held_out)
        assert recipe.passes == pytest.approx(recipe.updates * TOKENS_PER_UPDATE * REAL_TOKENS / tokens, rel=0.01)
        assert recipe.passes >= FEWEST_PASSES or part <= LONG_TEXT
        assert recipe.documents_share == 1 or recipe.passes < 2.5 * FEWEST_PASSES
        assert recipe.preparation < 0.3 * hours * 3600


@pytest.mark.parametrize("machine", [ZEN4, ZEN3, Machine(16, "amx_bf16", 64.0, "", "")])
@pytest.mark.parametrize("text", [WIKIPEDIA, WIKIPEDIA.part(1 / 15), WIKIPEDIA.part(1 / 150), SHORT])
def test_the_plan_is_as_long_as_the_time(text: Text, machine: Machine) -> None:
    for hours in BUDGETS[2:]:
        recipe = choose(text, machine, hours)
        planned = recipe.preparation + recipe.training + machine.start_seconds
        assert planned < 1.015 * hours * 3600
        assert recipe.is_limited_by_text or planned > 0.985 * hours * 3600


def test_a_part_of_a_long_text_has_enough_documents() -> None:
    text = WIKIPEDIA.part(65.0)._replace(documents=100)  # 10 GB in a hundred files
    assert FEWEST_DOCUMENTS <= choose(text, ZEN4, 4).documents_share * text.documents < 100
    with pytest.raises(UserError, match="give at least"):
        choose(text, ZEN4, 0.2)


def test_a_training_that_is_too_short_to_learn_from_neighbours_is_said_to_be() -> None:
    shortest, short, long = (choose(WIKIPEDIA, ZEN4, hours) for hours in (0.02, 0.03, 0.1))
    assert shortest.updates < FEWEST_UPDATES < short.updates
    assert "give more --hours" in shortest.warning[0] and not short.warning and not short.advice
    assert shortest.with_updates(28).warning[0].startswith("In 28 updates")  # as many as there was time for
    few = replace(long, updates=FEWEST_UPDATES - 1)  # by a larger model, in more time
    assert few.warning and few.expectation
    assert shortest.expected_bits is None and short.expected_bits is None and long.expected_bits is not None


def test_the_share_held_out_is_that_of_the_size_however_few_the_documents() -> None:
    assert choose(SHORT._replace(documents=1), ZEN4, 0.1).held_out == choose(SHORT, ZEN4, 0.1).held_out
    assert choose(SHORT, ZEN4, 0.5).held_out == pytest.approx(0.113, abs=0.002)
    assert choose(WIKIPEDIA, ZEN4, 1).held_out == pytest.approx(0.01, abs=0.001)


@pytest.mark.parametrize("text", [WIKIPEDIA, SHORT])
def test_a_budget_shorter_than_the_start_is_refused_with_one_that_is_long_enough(text: Text) -> None:
    with pytest.raises(UserError, match="give at least") as refusal:
        choose(text, ZEN4, 0.001)
    choose(text, ZEN4, float(str(refusal.value).split()[-1]))


def test_a_text_too_short_to_hold_out_a_part_is_refused() -> None:
    with pytest.raises(UserError, match="the text is too short: 1,000 bytes"):
        choose(SHORT._replace(megabytes=0.01, documents=10, repeated=0.9, is_whole=True), ZEN4, 1)


def test_released_weights_decide_sizes_and_vocabulary() -> None:
    recipe = choose(SHORT, ZEN4, 1, [128], "some-bert")
    assert (recipe.layers, recipe.hidden, recipe.vocabulary, recipe.first_share) == (0, 0, 0, 1.0)
    assert recipe.start_from == "some-bert" and not any("--start-from" in line for line in recipe.advice)


@pytest.mark.parametrize(("has_head", "rate"), [(True, 5e-5), (False, 5e-4)])
def test_a_new_masked_lm_head_takes_a_higher_rate(has_head: bool, rate: float, tmp_path: Path) -> None:
    recipe = choose(SHORT, ZEN4, 1, [128], "some-bert", has_head=has_head)
    shown = next(choice.value for choice in recipe.choices if choice.name == "optimizer")
    assert float(shown.removeprefix("AdamW, ")) == rate
    (phase,) = phases(Folder(tmp_path / "mine", 0.0), recipe, {}, 1000)
    path = Folder(tmp_path, 0.0).write("c.json", phase.config)
    config = load_config("pretraining", ["--config", str(path)]).config
    assert config.optimizer_opts.name == "AdamW" and config.optimizer_opts.muon_scale is None
    assert config.optimizer_opts.learning_rate.max_learning_rate == rate
    assert config.optimizer_opts.learning_rate.warmup_frac == 0.06


TRANSFORM = [f"transform.{name}" for name in ("dense.weight", "dense.bias", "LayerNorm.weight", "LayerNorm.bias")]


@pytest.mark.parametrize("head", [[], [f"cls.predictions.{name}" for name in ("bias", *TRANSFORM)]])
def test_weights_of_a_sentence_encoder_have_no_masked_lm_head(head: list[str], tmp_path: Path) -> None:
    names = ["bert.embeddings.word_embeddings.weight", *head]
    save_file({name: np.zeros((30, 8), np.float32) for name in names}, tmp_path / "model.safetensors")
    sizes = {"hidden_size": 8, "num_hidden_layers": 1, "num_attention_heads": 1, "intermediate_size": 8}
    config = {"model_type": "bert", "vocab_size": 30, "max_position_embeddings": 16, "type_vocab_size": 2, **sizes}
    (tmp_path / "config.json").write_text(json.dumps(config), encoding="utf-8")
    assert (not released(str(tmp_path)).missing_of_masked_lm()) is bool(head)
