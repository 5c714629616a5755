"""The choice of ``run_from_text.py``: between the figures of the measured recipes, and never smaller with more time."""

from __future__ import annotations

import itertools
from dataclasses import replace
from typing import Any

import pytest

from settings.loading import load_config
from tasks.from_text.choice import (
    FEWEST_DOCUMENTS,
    FEWEST_PASSES,
    FEWEST_UPDATES,
    LARGER_MODEL_PASSES,
    LONG_TEXT,
    MOST_PASSES,
    REAL_TOKENS,
    TOKENS_PER_UPDATE,
    Recipe,
    choose,
    start_seconds,
    text_tokens,
)
from tasks.from_text.facts import MachineFacts, TextFacts
from tasks.from_text.judgement import forecasts
from tasks.from_text.table import ROWS, expected_bits, expected_loss, interpolated, updates_in
from utilities.errors import UserError

WIKIPEDIA = TextFacts(153.0, 24_000_000, 6_700, 0.0, "LATIN", False, False)
SHORT = TextFacts(2.0, 300_000, 79, 0.0, "LATIN", False, True)
ZEN4 = MachineFacts(2, "avx512_bf16", 24.0, "", "")
ZEN3 = MachineFacts(2, "", 24.0, "", "")
BUDGETS = [0.04, 0.06, 0.1, 0.2, 0.4, 0.6, 1, 2, 4, 8, 16, 40, 200]


def recipes(text: TextFacts, machine: MachineFacts = ZEN4, **settings: Any) -> list[Recipe]:
    """Return the recipes for all budgets that are long enough."""
    found = []
    for hours in BUDGETS:
        try:
            found.append(choose(text, machine, hours, **settings))
        except UserError:
            assert not found, "only the shortest budgets are too short"
    assert len(found) > 5
    return found


@pytest.mark.parametrize("machine", [ZEN4, ZEN3, MachineFacts(16, "amx_bf16", 64.0, "", "")])
@pytest.mark.parametrize("text", [WIKIPEDIA, SHORT])
def test_more_time_never_gives_a_smaller_model(text: TextFacts, machine: MachineFacts) -> None:
    for less, more in itertools.pairwise(recipes(text, machine)):
        assert more.layers >= less.layers and more.hidden >= less.hidden
        assert more.training >= 0.999 * less.training and more.masked >= less.masked
        assert more.initializer_range <= less.initializer_range


def test_every_choice_is_within_the_measured_figures() -> None:
    for recipe in recipes(WIKIPEDIA) + recipes(SHORT):
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


@pytest.mark.parametrize(
    ("minutes", "loss"), [(1.11, 4.768), (1.44, 4.518), (2.0, 4.189), (6.4, 3.500), (32.7, 2.981), (113.0, 2.753)]
)
def test_the_expected_loss_is_the_measured_one(minutes: float, loss: float) -> None:
    assert expected_loss(minutes) == pytest.approx(loss, abs=0.01)


@pytest.mark.parametrize(
    ("units", "text", "bits"),
    [
        # trainings on 1, 10 and 153 MB of Wikipedia; the units are those of their updates
        (2.88, 75, 1.459),
        (4.45, 75, 1.417),
        (8.2, 75, 1.345),
        (20.4, 75, 1.300),
        (1.71, 685, 1.597),
        (2.5, 685, 1.490),
        (5.71, 685, 1.272),
        (7.03, 685, 1.239),
        (7.03, 685, 1.246),
        (31.6, 685, 1.112),
        (6.4, 9_500, 1.275),
        (26.05, 9_500, 1.094),
        (117.4, 9_500, 0.996),
    ],
)
def test_the_expected_bits_are_near_those_of_short_and_long_texts(units: float, text: float, bits: float) -> None:
    assert expected_bits(units, text) == pytest.approx(bits, rel=0.03)


def test_more_time_and_more_text_never_let_expect_a_higher_loss() -> None:
    for updates in (10, 100, 1_000, 10_000):
        bits = [expected_bits(units, updates) for units in (1, 4, 16, 64, 256, 1024)]
        assert bits == sorted(bits, reverse=True)
    bits = [expected_bits(9.0, updates) for updates in (1, 10, 100, 1_000, 10_000)]
    assert bits == sorted(bits, reverse=True)


def test_forecasts_of_a_text_that_is_read_often_enough_are_of_more_text_only() -> None:
    often, once = choose(SHORT, ZEN4, 16), choose(WIKIPEDIA, ZEN4, 1)
    ((what, loss, _),) = forecasts(often, 4.0)
    assert what == "twice the text" and 3.5 < loss < 4.0
    (time, shorter, _), (text, same, _) = forecasts(once, 3.0)
    assert (time, text) == ("twice the time", "twice the text")
    assert 2.6 < shorter < 2.95 and same == pytest.approx(3.0, abs=0.03)
    assert not forecasts(once.with_updates(100), 6.0), "the first plateau has not ended"


def test_of_a_text_that_is_read_in_part_more_is_not_forecast() -> None:
    part = choose(WIKIPEDIA.part(20.0), ZEN4, 1)
    assert part.documents_share < 1
    assert [what for what, _, _ in forecasts(part, 3.0)] == ["twice the time"]


def test_a_slower_machine_gets_a_smaller_model_for_the_same_time() -> None:
    fast, slow = choose(WIKIPEDIA, ZEN4, 2), choose(WIKIPEDIA, ZEN3, 2)
    assert (slow.layers * slow.hidden, slow.units) < (fast.layers * fast.hidden, fast.units)
    assert (fast.precision, slow.precision) == ("mixed_bfloat16", "float32")


def test_a_short_text_gets_a_larger_model_before_it_is_read_more_often() -> None:
    short, long = recipes(SHORT), recipes(WIKIPEDIA)
    for with_little, with_much in zip(short, long):
        assert with_little.layers * with_little.hidden >= with_much.layers * with_much.hidden
    for recipe in short:
        tokens = text_tokens(SHORT, recipe.vocabulary)
        assert recipe.updates * TOKENS_PER_UPDATE * REAL_TOKENS == pytest.approx(recipe.passes * tokens, rel=0.01)
        largest = (recipe.layers, recipe.hidden) == (ROWS[-1].layers, ROWS[-1].hidden)
        assert recipe.passes <= 1.01 * (MOST_PASSES if largest else LARGER_MODEL_PASSES)
    assert short[-1].passes == pytest.approx(MOST_PASSES, rel=0.01)


def test_a_text_that_is_read_often_enough_ends_the_command_earlier_and_it_says_so() -> None:
    recipe = choose(SHORT, ZEN4, 16)
    assert recipe.updates == pytest.approx(recipe.most_updates, abs=1)
    assert recipe.training < 0.5 * 16 * 3600
    assert any("more time will not" in line for line in recipe.advice)
    assert any("--start-from" in line for line in recipe.advice)
    assert not any("more time will not" in line for line in choose(SHORT, ZEN4, 1).advice)
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
        tokens = text_tokens(text, recipe.vocabulary) * recipe.documents_share
        assert recipe.passes == pytest.approx(recipe.updates * TOKENS_PER_UPDATE * REAL_TOKENS / tokens, rel=0.01)
        assert recipe.passes >= FEWEST_PASSES or part <= LONG_TEXT
        assert recipe.documents_share == 1 or recipe.passes < 2.5 * FEWEST_PASSES
        assert recipe.preparation < 0.3 * hours * 3600
        assert recipe.held_out * recipe.documents_share * text.documents >= 5


@pytest.mark.parametrize("machine", [ZEN4, ZEN3, MachineFacts(16, "amx_bf16", 64.0, "", "")])
@pytest.mark.parametrize("text", [WIKIPEDIA, WIKIPEDIA.part(1 / 15), WIKIPEDIA.part(1 / 150), SHORT])
def test_the_plan_is_as_long_as_the_time(text: TextFacts, machine: MachineFacts) -> None:
    for hours in BUDGETS[2:]:
        recipe = choose(text, machine, hours)
        planned = recipe.preparation + recipe.training + start_seconds(machine)
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


def test_a_few_documents_are_held_out_of_few() -> None:
    assert choose(SHORT._replace(documents=20), ZEN4, 0.1).held_out == pytest.approx(0.25)
    assert choose(WIKIPEDIA, ZEN4, 1).held_out == pytest.approx(0.01, abs=0.001)


@pytest.mark.parametrize("text", [WIKIPEDIA, SHORT])
def test_a_budget_shorter_than_the_start_is_refused_with_one_that_is_long_enough(text: TextFacts) -> None:
    with pytest.raises(UserError, match="give at least") as refusal:
        choose(text, ZEN4, 0.001)
    choose(text, ZEN4, float(str(refusal.value).split()[-1]))


def test_one_document_cannot_be_held_out() -> None:
    with pytest.raises(UserError, match="one document"):
        choose(SHORT._replace(documents=1), ZEN4, 1)


def test_released_weights_decide_sizes_and_vocabulary() -> None:
    recipe = choose(SHORT, ZEN4, 1, [128], "some-bert")
    assert (recipe.layers, recipe.hidden, recipe.vocabulary, recipe.first_share) == (0, 0, 0, 1.0)
    assert recipe.start_from == "some-bert" and not any("--start-from" in line for line in recipe.advice)


def test_the_users_values_are_chosen_and_listed() -> None:
    recipe = choose(SHORT, ZEN4, 1, given={"bert_config.vocab_size": 3000, "seed": 7})
    assert recipe.vocabulary == 3000
    listed = [choice for choice in recipe.choices if "command line" in choice.reason]
    assert [(choice.name, choice.value) for choice in listed] == [("bert_config.vocab_size", 3000), ("seed", 7)]
