"""Sharded optimizer state: threads that stand for R processes make the same update as one process."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest

from keras_extensions.backend import tf
from optimization.muon import Muon
from optimization.optimizers import LAMB, AdamW
from optimization.sharding import Shards, pieces
from tests.support.fake_processes import Exchange, in_threads

SHAPES = [(5, 3), (7,), (4, 4), (1,), (5, 3), (5, 3)]


def weights() -> list[Any]:
    rng = np.random.default_rng(3)
    return [tf.Variable(rng.normal(size=shape).astype(np.float32)) for shape in SHAPES]


def train(make: Any, steps: int = 3, **options: Any) -> tuple[list[np.ndarray], Any]:
    variables, rng = weights(), np.random.default_rng(4)
    if make is Muon:
        options["matrices"] = [(variable, 1) for variable in variables[2:] if variable.shape.rank == 2]
    optimizer = make(learning_rate=0.05, global_clipnorm=2.0, **options)
    for _ in range(steps):
        gradients = [tf.constant(rng.normal(size=shape).astype(np.float32)) for shape in SHAPES]
        optimizer.apply_gradients(zip(gradients, variables))
    return [variable.numpy() for variable in variables], optimizer


@pytest.mark.parametrize("make", [AdamW, LAMB, Muon])
@pytest.mark.parametrize("count", [2, 3])
def test_sharded_updates_equal_unsharded_updates(make, count):
    whole, optimizer = train(make)
    exchange, results = Exchange(count), {}

    def work(index: int) -> None:
        values, sharded = train(make, shards=exchange.shards(index))
        shards, moments = sharded.sharded_moments(), sharded.variables[2:]
        assert shards.whole(sharded.iterations) == 3 and shards.own(sharded.iterations, np.int64(5)) == 5
        # In graphs, three threads that wait for each other could be all that TensorFlow has.
        joined = [shards.whole(moment) for moment in moments] if count == 2 else []
        results[index] = values, [moment.numpy() for moment in moments], joined
        for moment, whole in zip(moments, joined):
            assert shards.blank(moment).shape == whole.shape
            np.testing.assert_array_equal(shards.own(moment, whole), moment.numpy())

    in_threads(count, work)
    for index in range(count):
        for one, other in zip(results[index][0], whole):
            np.testing.assert_allclose(one, other, rtol=1e-5, atol=1e-6)
    for number, moment in enumerate(optimizer.variables[2:]):
        parts = [results[index][1][number].ravel() for index in range(count)]
        # A shard of each process, or, of Muon's matrices, everything in one of them.
        assert sorted({part.size for part in parts}) in ([-(-moment.numpy().size // count)], [0, moment.numpy().size])
        joined = np.concatenate(parts)[: moment.numpy().size].reshape(moment.shape)
        np.testing.assert_allclose(joined, moment.numpy(), rtol=1e-5, atol=1e-7)
        for index in range(count if count == 2 else 0):
            np.testing.assert_allclose(results[index][2][number], moment.numpy(), rtol=1e-5, atol=1e-7)


def test_shards_of_many_lengths_cause_no_retracing(caplog):
    variables = [tf.Variable(tf.zeros([length])) for length in range(1, 9)]
    optimizer = AdamW(shards=Shards(1, 0, tf.identity, tf.identity))
    optimizer.build(variables)
    shards = optimizer.sharded_moments()
    assert [shards.whole(optimizer.moments(variable)[0]).size for variable in variables] == list(range(1, 9))
    assert "retracing" not in caplog.text


@pytest.mark.parametrize(("elements", "padding"), [(11, 1), (2, 2)])
def test_shards_cover_a_tensor_once(elements, padding):
    values = np.arange(5, 5 + elements, dtype=np.float32).reshape(1, elements)
    parts = [Shards(4, index, tf.identity, tf.identity).own(tf.constant(values)).numpy() for index in range(4)]
    assert len({part.shape for part in parts}) == 1
    np.testing.assert_array_equal(np.concatenate(parts), [*values[0], *[0] * padding])


def test_state_on_another_device_changes_nothing():
    for make in (AdamW, LAMB, Muon):
        here, _ = train(make)
        there, _ = train(make, state_device="/CPU:0")
        for one, other in zip(here, there):
            np.testing.assert_allclose(one, other, rtol=1e-5, atol=1e-6)


def test_pieces_contain_all_tensors_in_order():
    assert pieces([4, 4, 9, 1], limit=9) == [[0, 1], [2], [3]]
