"""Copies of the state in memory equal what TensorFlow itself would write, and are written during training."""

from __future__ import annotations

import numpy as np
import pytest

from checkpoints.folder import find_checkpoint
from checkpoints.state import TrainingState, by_name, variable_names
from checkpoints.writer import write_checkpoint
from keras_extensions.backend import keras, tf
from optimization.muon import Muon
from optimization.optimizers import LAMB
from utilities.errors import UserError

GRAPH = "_CHECKPOINTABLE_OBJECT_GRAPH"  # the only value in a checkpoint that does not belong to a variable


class Block(keras.layers.Layer):
    """A layer with layers in a list, and one that is shared with another block."""

    def __init__(self, name, shared):
        super().__init__(name=name)
        self.parts = [keras.layers.Dense(3), keras.layers.LayerNormalization()]
        self.shared = shared
        self.build((None, 3))

    def build(self, shape):
        for part in [*self.parts, self.shared]:
            if not part.built:
                part.build(shape)
        super().build(shape)


def trained(updates=2, muon=False):
    """Return blocks and an optimizer whose moments are not zero."""
    shared = keras.layers.Dense(3, name="shared")
    blocks = [Block("first", shared), Block("second", shared)]
    variables = list({id(v): v for block in blocks for v in block.trainable_variables}.values())
    optimizer = Muon(0.1, matrices=[(shared.kernel, 1)]) if muon else LAMB(0.1)
    optimizer.build(variables)
    for update in range(updates):
        optimizer.apply_gradients([(tf.fill(v.shape, 0.5 + update), v) for v in variables])
    return blocks, optimizer


def values(blocks, optimizer):
    variables = [v for block in blocks for v in block.variables] + list(optimizer.variables)
    return [variable.numpy() for variable in variables]


def test_the_same_names_types_and_values_as_tensorflow_writes(tmp_path):
    blocks, optimizer = trained()
    loss_scale = tf.Variable(64.0)
    state = TrainingState(blocks, optimizer, others={"loss_scale": loss_scale})
    folder = write_checkpoint(state.copy(), tmp_path, 2, {})
    tf.train.Checkpoint(first=blocks[0], second=blocks[1]).write(str(tmp_path / "weights"))
    tf.train.Checkpoint(optimizer=optimizer, loss_scale=loss_scale).write(str(tmp_path / "optimizer"))
    for name in ("weights", "optimizer"):
        ours, theirs = (tf.train.load_checkpoint(str(parent / name)) for parent in (folder, tmp_path))
        assert ours.get_variable_to_dtype_map() == theirs.get_variable_to_dtype_map()
        for key in theirs.get_variable_to_shape_map():
            if key != GRAPH:
                np.testing.assert_array_equal(ours.get_tensor(key), theirs.get_tensor(key))
    variables = [variable for block in blocks for variable in block.weights]
    named = dict(zip(variable_names(variables, by_name(blocks)), variables, strict=True))
    weights = tf.train.load_checkpoint(str(tmp_path / "weights"))
    end = "/.ATTRIBUTES/VARIABLE_VALUE"
    assert {f"{name}{end}" for name in named} == weights.get_variable_to_shape_map().keys() - {GRAPH}
    for name, variable in named.items():
        np.testing.assert_array_equal(weights.get_tensor(f"{name}{end}"), variable.numpy())


@pytest.mark.parametrize("muon", [False, True])
def test_a_copy_is_restored_to_the_bit(tmp_path, muon):
    """Updates after the copy was made do not change it."""
    blocks, optimizer = trained(muon=muon)
    before = values(blocks, optimizer)
    copy = TrainingState(blocks, optimizer).copy()
    for variable in [v for block in blocks for v in block.variables]:
        variable.assign_add(tf.ones_like(variable))
    write_checkpoint(copy, tmp_path, 2, {})
    others, other = trained(updates=3, muon=muon)
    TrainingState(others, other).restore(find_checkpoint(tmp_path))
    for left, right in zip(before, values(others, other)):
        np.testing.assert_array_equal(left, right)
    assert int(other.iterations) == 2


def test_a_checkpoint_without_a_weight_is_refused(tmp_path):
    blocks, optimizer = trained()
    write_checkpoint(TrainingState(blocks[:1], optimizer).copy(), tmp_path, 2, {})
    with pytest.raises(UserError, match="does not fit the model"):
        TrainingState(blocks, optimizer).restore(find_checkpoint(tmp_path))


def test_moments_in_another_order_are_refused(tmp_path):
    blocks, optimizer = trained()
    variables = [v for block in blocks for v in block.parts[0].variables]  # all of one shape, in pairs
    write_checkpoint(TrainingState(blocks, optimizer, variables).copy(), tmp_path, 2, {})
    checkpoint = find_checkpoint(tmp_path)
    TrainingState(blocks, optimizer, variables).restore(checkpoint)
    with pytest.raises(UserError, match=r"first/parts/0/kernel where second/parts/0/kernel"):
        TrainingState(blocks, optimizer, variables[2:] + variables[:2]).restore(checkpoint)
