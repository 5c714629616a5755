"""Elements of the data sets for training and evaluation: their records, order and shapes."""

from __future__ import annotations

from pathlib import Path

import numpy as np
import pytest

from data_utils.records.arrays import GeneratedReader
from data_utils.records.order import samples_at
from data_utils.records.pipeline import SampleReader, evaluation_dataset, raise_data_errors, training_dataset
from data_utils.records.reader import RecordReader
from data_utils.records.validation import find_problem
from keras_extensions.backend import keras, tf
from tests.support.record_samples import (
    PREDICTIONS,
    SEQUENCE,
    VOCABULARY,
    example,
    numbers_of,
    sample,
    spec,
    write,
    write_samples,
)
from utilities.errors import UserError

COUNT = 37


@pytest.fixture(scope="module")
def folder(tmp_path_factory: pytest.TempPathFactory) -> Path:
    folder = tmp_path_factory.mktemp("records")
    write_samples(folder / "a.tfrecord", range(20))
    write_samples(folder / "b.tfrecord", range(0))
    write_samples(folder / "c.tfrecord", range(20, COUNT))
    return folder


@pytest.fixture(scope="module")
def reader(folder: Path) -> RecordReader:
    return RecordReader(folder, spec())


def updates(reader: SampleReader, **changes: int) -> list[dict[str, np.ndarray]]:
    arguments = {"micro_batch_size": 4, "micro_batches_per_update": 3, "seed": 9, "num_updates": 8, **changes}
    return list(training_dataset(reader, **arguments).as_numpy_iterator())


def test_an_element_is_a_whole_update_with_static_shapes(reader: RecordReader) -> None:
    dataset = training_dataset(reader, micro_batch_size=4, micro_batches_per_update=3, seed=9, num_updates=8)
    element = dataset.element_spec
    assert element["input_ids"] == tf.TensorSpec((3, 4, SEQUENCE), tf.int32)
    assert element["masked_lm_weights"] == tf.TensorSpec((3, 4, PREDICTIONS), tf.float32)
    assert element["next_sentence_labels"] == tf.TensorSpec((3, 4, 1), tf.int32)
    assert int(dataset.cardinality()) == 8 and len(list(dataset)) == 8
    first = next(dataset.as_numpy_iterator())
    for name, values in reader.read(samples_at(9, 0, 12, COUNT)).items():
        np.testing.assert_array_equal(first[name].reshape(12, -1), values, err_msg=name)


def test_samples_follow_the_order_function_however_they_are_split(reader: RecordReader) -> None:
    def numbers(**changes: int) -> list[list[int]]:
        return [numbers_of(batch["input_ids"]) for batch in updates(reader, **changes)]

    whole = numbers()
    seen = [number for batch in whole for number in batch]
    assert seen == samples_at(9, 0, 8 * 12, COUNT).tolist()
    assert sorted(seen[:COUNT]) == sorted(seen[COUNT : 2 * COUNT]) == list(range(COUNT))
    assert seen[:COUNT] != seen[COUNT : 2 * COUNT]
    in_file_order = [number for batch in numbers(shuffle=False) for number in batch]
    assert in_file_order == [position % COUNT for position in range(8 * 12)]
    assert numbers(reader_threads=1, prefetch=1) == numbers(reader_threads=4, prefetch=4) == whole
    halves = [numbers(micro_batch_size=2, replica=replica, replicas=2) for replica in range(2)]
    assert whole == [first + second for first, second in zip(*halves, strict=True)]
    for micro_batch, accumulated in ((12, 1), (1, 12), (3, 4), (6, 2)):
        assert numbers(micro_batch_size=micro_batch, micro_batches_per_update=accumulated) == whole
    for done in (1, 3, 4, 7, 8):  # a resumed run; update 3 of 12 samples crosses the end of the first epoch of 37
        assert numbers(first_update=done, num_updates=8 - done) == whole[done:]


def test_autotuning_is_off(reader: RecordReader) -> None:
    """Such a thread delays the end of a run: dropping an iterator waits up to a minute for the thread's next round."""
    training = training_dataset(reader, micro_batch_size=4, micro_batches_per_update=3, seed=9, num_updates=8)
    for dataset in (training, evaluation_dataset(reader, batch_size=4)):
        assert dataset.options().autotune.enabled is False


def test_evaluation_reads_every_record_once(reader: RecordReader) -> None:
    batches = list(evaluation_dataset(reader, batch_size=10).as_numpy_iterator())
    assert [len(batch["input_ids"]) for batch in batches] == [10, 10, 10, 7]
    padded = evaluation_dataset(reader, batch_size=10, pad_last=True)
    assert padded.element_spec["input_ids"].shape == (10, SEQUENCE)
    read = [number for batch in padded.as_numpy_iterator() for number in numbers_of(batch["input_ids"])]
    assert read == [*range(COUNT), *[COUNT - 1] * 3]
    assert [number for batch in batches for number in numbers_of(batch["input_ids"])] == list(range(COUNT))


def test_fit_raises_the_users_error_of_a_bad_record(tmp_path: Path) -> None:
    payloads = [example(sample(number)) for number in range(10)]
    payloads[6] = example(sample(6, masked_lm_ids=[1, VOCABULARY, 2]))
    write(tmp_path / "ünï %s {}.tfrecord", payloads)
    reader = RecordReader(tmp_path, spec())
    dataset = training_dataset(
        reader, micro_batch_size=2, micro_batches_per_update=1, seed=0, num_updates=5, shuffle=False
    )
    pairs = dataset.map(lambda batch: (tf.cast(batch["input_ids"][0], tf.float32), batch["next_sentence_labels"][0]))
    model = keras.Sequential([keras.layers.Dense(1)])
    model.compile("sgd", "mse")
    expected = pytest.raises(UserError, match=r"record 6 .*masked_lm_ids 50 .*bert_config\.vocab_size")
    with expected as caught, raise_data_errors(reader):
        model.fit(pairs, verbose=0)
    assert caught.value is reader.failures[-1] and "ünï" in str(caught.value)


def test_other_errors_of_tensorflow_are_not_changed(reader: RecordReader) -> None:
    reader.failures.append(UserError("an old failure that another error must not be taken for"))
    with pytest.raises(tf.errors.InvalidArgumentError), raise_data_errors(reader):
        tf.reshape(tf.zeros(3), [2])
    reader.failures.clear()


def test_generated_samples_are_valid_and_follow_from_the_seed(reader: RecordReader) -> None:
    def batches(seed: int = 1, **changes: int) -> list[dict[str, np.ndarray]]:
        sizes = {"micro_batches_per_update": 2, "num_updates": 5, **changes}
        return updates(GeneratedReader(spec(), seed), seed=seed, **sizes)

    first = batches()
    for batch in first:
        assert batch["input_ids"].shape == (2, 4, SEQUENCE)
        assert len(np.unique(batch["input_ids"][..., 0])) == 1  # [CLS]
        masked = batch["masked_lm_positions"]
        assert (np.diff(masked, axis=-1) > 0).all() and masked.min() > 0
    for again, later in zip(batches()[2:], batches(first_update=2, num_updates=3), strict=True):
        np.testing.assert_array_equal(again["input_ids"], later["input_ids"])
    np.testing.assert_array_equal(first[0]["input_ids"], batches()[0]["input_ids"])
    assert not np.array_equal(first[0]["input_ids"], batches(seed=2)[0]["input_ids"])
    real, generated = reader.read(np.arange(37)), GeneratedReader(spec(), seed=0).read(np.arange(37))
    assert find_problem(spec(), generated) is None
    assert {name: (values.shape, values.dtype) for name, values in real.items()} == {
        name: (values.shape, values.dtype) for name, values in generated.items()
    }
