"""Copies of the state in memory are what TensorFlow itself would have written, and are written beside training."""

from __future__ import annotations

import os
import sys
import threading
import time

import numpy as np
import pytest

from checkpoints.folder import Checkpoint, damage, find_checkpoint, read_facts
from checkpoints.rotation import Rotation
from checkpoints.state import TrainingState, save_checkpoint
from checkpoints.writer import NICENESS, CheckpointWriter
from keras_extensions.backend import keras, tf
from optimization.lamb import LAMB
from utilities.errors import UserError


class Block(keras.layers.Layer):
    """A layer with layers in a list, and one that another block has too."""

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


def trained(updates=2):
    """Blocks and an optimizer whose moments are not zero."""
    shared = keras.layers.Dense(3, name="shared")
    blocks = [Block("first", shared), Block("second", shared)]
    variables = list({id(v): v for block in blocks for v in block.trainable_variables}.values())
    optimizer = LAMB(0.1)
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
    folder = TrainingState(blocks, optimizer, others={"loss_scale": loss_scale}).copy().write(tmp_path, 2, {})
    tf.train.Checkpoint(first=blocks[0], second=blocks[1]).write(str(tmp_path / "weights"))
    tf.train.Checkpoint(optimizer=optimizer, loss_scale=loss_scale).write(str(tmp_path / "optimizer"))
    for name in ("weights", "optimizer"):
        ours, theirs = (tf.train.load_checkpoint(str(place / name)) for place in (folder, tmp_path))
        assert ours.get_variable_to_dtype_map() == theirs.get_variable_to_dtype_map()
        for key in theirs.get_variable_to_shape_map():
            if key != "_CHECKPOINTABLE_OBJECT_GRAPH":
                np.testing.assert_array_equal(ours.get_tensor(key), theirs.get_tensor(key))


def test_restored_to_the_bit(tmp_path):
    blocks, optimizer = trained()
    before = values(blocks, optimizer)
    save_checkpoint(tmp_path, 2, blocks, optimizer, {})
    others, other = trained(updates=3)
    TrainingState(others, other).restore(find_checkpoint(tmp_path))
    for left, right in zip(before, values(others, other)):
        np.testing.assert_array_equal(left, right)
    assert int(other.iterations) == 2


def test_a_checkpoint_without_a_weight_is_refused(tmp_path):
    blocks, optimizer = trained()
    save_checkpoint(tmp_path, 2, blocks[:1], optimizer, {})
    with pytest.raises(UserError, match="does not fit the model"):
        TrainingState(blocks, optimizer).restore(find_checkpoint(tmp_path))


def test_moments_in_another_order_are_refused(tmp_path):
    blocks, optimizer = trained()
    variables = [v for block in blocks for v in block.parts[0].variables]  # all of one shape, by twos
    TrainingState(blocks, optimizer, variables).copy().write(tmp_path, 2, {})
    found = find_checkpoint(tmp_path)
    TrainingState(blocks, optimizer, variables).restore(found)
    with pytest.raises(UserError, match=r"first/parts/0/kernel where second/parts/0/kernel"):
        TrainingState(blocks, optimizer, variables[2:] + variables[:2]).restore(found)


def test_the_copy_keeps_the_values_of_its_moment(tmp_path):
    blocks, optimizer = trained()
    before = values(blocks, optimizer)
    copy = TrainingState(blocks, optimizer).copy()
    for variable in [v for block in blocks for v in block.variables]:
        variable.assign_add(tf.ones_like(variable))
    copy.write(tmp_path, 2, {})
    others, other = trained(updates=0)
    TrainingState(others, other).restore(find_checkpoint(tmp_path))
    for left, right in zip(before, values(others, other)):
        np.testing.assert_array_equal(left, right)


def test_the_vocabulary_goes_with_the_weights(tmp_path):
    blocks, optimizer = trained(0)
    (tmp_path / "words.txt").write_text("[PAD]\n")
    folder = save_checkpoint(tmp_path / "c", 1, blocks, optimizer, {"lower_case": True}, tmp_path / "words.txt")
    found = find_checkpoint(folder)
    assert found.vocabulary == folder / "vocab.txt"
    assert found.vocabulary.read_text() == "[PAD]\n"
    assert found.facts["lower_case"] is True
    (folder / "vocab.txt").write_text("[UNK]\n")
    assert "vocab.txt" in damage(folder)
    assert Checkpoint(tmp_path / "bare", None).vocabulary is None


class SlowCopy:
    """Stands for a copy whose writing takes until it is let go."""

    def __init__(self, error=None):
        self.go, self.error = threading.Event(), error

    def write(self, folder, step, facts, vocabulary):
        assert self.go.wait(20)
        if self.error:
            raise self.error
        return folder / str(step)


class Copies:
    """Stands for a state; gives one slow copy after the other."""

    def __init__(self, *copies):
        self.copies = list(copies)

    def copy(self):
        return self.copies.pop(0)


def writer_of(folder, *copies, **options):
    return CheckpointWriter(folder, Copies(*copies), lambda step: {"step": step}, "mine", **options)


def test_training_goes_on_while_a_checkpoint_is_written_and_the_next_save_waits(tmp_path):
    first, second, written = SlowCopy(), SlowCopy(), []
    writer = writer_of(tmp_path, first, second, on_written=written.append)
    writer.save(1)  # does not wait for the disk
    writer.check()
    assert written == []
    threading.Timer(0.2, first.go.set).start()
    started = time.monotonic()
    writer.save(2)
    assert time.monotonic() - started > 0.1
    assert written == [tmp_path / "1"]
    second.go.set()
    writer.wait()
    assert written == [tmp_path / "1", tmp_path / "2"]
    writer.close()


def test_a_save_that_is_waited_for_is_written_at_the_priority_of_who_waits(tmp_path):
    """The writer's own thread has stepped back; who waits may be in a strategy's scope, which a thread is not."""
    threads = []

    class Copy:
        def write(self, folder, step, facts, vocabulary):
            thread = threading.get_native_id()
            threads.append((thread, os.getpriority(os.PRIO_PROCESS, thread)))
            return folder / str(step)

    written, own = [], os.getpriority(os.PRIO_PROCESS, 0)
    writer = writer_of(tmp_path, Copy(), Copy(), on_written=written.append)
    writer.save(1)
    writer.save_now(2)
    assert written == [tmp_path / "1", tmp_path / "2"]  # on return
    (beside, low), (another, priority) = threads
    assert another not in (beside, threading.get_native_id()) and priority == own
    if sys.platform == "linux":
        assert low == max(NICENESS, own)
    writer.close()


def test_what_went_wrong_in_the_thread_comes_out_once(tmp_path):
    copy = SlowCopy(UserError("save_ckpt_path: no space"))
    writer = writer_of(tmp_path, copy)
    writer.save(1)
    copy.go.set()
    with pytest.raises(UserError, match="no space"):
        while True:
            writer.check()
    writer.wait()
    writer.close()


def test_saving_rotates(tmp_path):
    blocks, optimizer = trained(0)
    state = TrainingState(blocks, optimizer)
    writer = CheckpointWriter(tmp_path, state, lambda step: {"seconds": 1.5}, "mine", rotation=Rotation(2))
    for step in (1, 2, 3):
        writer.save(step)
    writer.wait()
    writer.close()
    assert sorted(path.name for path in tmp_path.iterdir()) == ["step-00000002", "step-00000003"]
    assert read_facts(tmp_path / "step-00000003")["seconds"] == 1.5


def test_a_disk_that_refuses_is_one_line_and_leaves_nothing(tmp_path, monkeypatch):
    blocks, optimizer = trained(0)
    (tmp_path / "file").write_text("in the way")
    with pytest.raises(UserError, match="save_ckpt_path: cannot write") as caught:
        save_checkpoint(tmp_path / "file", 1, blocks, optimizer, {})
    assert "\n" not in str(caught.value)
