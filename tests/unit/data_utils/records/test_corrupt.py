"""Corrupt records are skipped: their replacements, their maximum number, and the log."""

from __future__ import annotations

import functools
import logging
import weakref
from pathlib import Path

import numpy as np
import pytest

from data_utils.records.framing import RecordError
from data_utils.records.pipeline import evaluation_dataset, training_dataset
from data_utils.records.reader import RecordReader
from data_utils.records.validation import find_problem, good_records
from tests.support.record_samples import VOCABULARY, example, numbers_of, sample, spec, write
from utilities.errors import UserError

COUNT = 40
BAD = {5: "checksum", 6: "not a tf.train.Example", 20: "no feature segment_ids", 39: f"masked_lm_ids {VOCABULARY}"}


@pytest.fixture(scope="module")
def folder(tmp_path_factory: pytest.TempPathFactory) -> Path:
    folder = tmp_path_factory.mktemp("records")
    payloads = [example(sample(number)) for number in range(COUNT)]
    payloads[6] = b"\xff" * 50
    payloads[20] = example(sample(20, segment_ids=None))
    payloads[39] = example(sample(39, masked_lm_ids=[1, VOCABULARY, 2]))
    write(folder / "a.tfrecord", payloads[:15])
    write(folder / "b.tfrecord", payloads[15:])
    data = bytearray((folder / "a.tfrecord").read_bytes())
    RecordReader(folder, spec())  # makes the index
    lines = (folder / "a.index").read_text().splitlines()
    data[int(lines[5].split()[0]) + 30] ^= 1
    (folder / "a.tfrecord").write_bytes(data)
    return folder


def reader(folder: Path, most: int = 10) -> RecordReader:
    return RecordReader(folder, spec(), on_corrupt="skip", max_corrupt_records=most)


def replacement(position: int) -> int:
    """Return the next good record; after the last one, the first."""
    while position in BAD:
        position = (position + 1) % COUNT
    return position


def test_errors_do_not_keep_the_batch() -> None:
    """Frames of a traceback would, until garbage is collected, which is rare here."""
    messages = [example(sample(number, segment_ids=None)) for number in range(8)]
    find = functools.partial(find_problem, spec())
    _, problems = good_records(messages, spec().features, find)
    assert [problem.reason.split(" (")[0] for problem in problems.values()] == ["has no feature segment_ids"] * 8
    kept = weakref.ref(find)
    del find
    assert kept() is None


def test_a_corrupt_record_is_replaced_by_the_next_good_one(folder: Path, caplog: pytest.LogCaptureFixture) -> None:
    source = reader(folder)
    with caplog.at_level(logging.WARNING):
        batch = source.read(np.arange(COUNT))
    expected = [sample(replacement(position)) for position in range(COUNT)]
    for name in expected[0]:
        np.testing.assert_array_equal(batch[name], [one[name] for one in expected], err_msg=name)
    assert source.corrupt_records == len(BAD)
    records = ("a.tfrecord: record 5 ", "a.tfrecord: record 6 ", "b.tfrecord: record 5 ", "b.tfrecord: record 24 ")
    for record, reason in zip(records, BAD.values(), strict=True):
        assert sum(record in message and reason in message for message in caplog.messages) == 1


def test_replacements_do_not_depend_on_earlier_reads(folder: Path) -> None:
    rng = np.random.default_rng(0)
    for _ in range(20):
        source = reader(folder)
        for _ in range(5):
            wanted = rng.integers(0, COUNT, rng.integers(1, 30))
            assert numbers_of(source.read(wanted)["input_ids"]) == [replacement(n) for n in wanted.tolist()]


def test_training_continues_and_resumes_with_the_same_records(folder: Path) -> None:
    def read(first: int) -> list[list[int]]:
        dataset = training_dataset(
            reader(folder), micro_batch_size=4, micro_batches_per_update=2, seed=3, num_updates=15 - first,
            first_update=first, reader_threads=3,
        )  # fmt: skip
        return [numbers_of(batch["input_ids"]) for batch in dataset.as_numpy_iterator()]

    whole = read(0)
    assert not {number for numbers in whole for number in numbers} & set(BAD)
    assert read(7) == whole[7:]
    evaluated = evaluation_dataset(reader(folder), batch_size=7).as_numpy_iterator()
    assert len([number for batch in evaluated for number in numbers_of(batch["input_ids"])]) == COUNT


def test_too_many_corrupt_records_end_the_run(folder: Path, caplog: pytest.LogCaptureFixture) -> None:
    source = reader(folder, most=3)
    with caplog.at_level(logging.WARNING):
        source.read(np.arange(38))
    assert source.corrupt_records == 3
    assert sum("data.on_corrupt" in message for message in caplog.messages) == 3
    with pytest.raises(UserError, match=r"4 corrupt records, .*data.max_corrupt_records 3") as caught:
        source.read(np.arange(38, COUNT))
    assert source.failures[-1] is caught.value
    assert source.corrupt_records == 3
    with pytest.raises(RecordError, match=r"record 5 .*damaged"):  # by default, no record is skipped
        RecordReader(folder, spec()).read(np.arange(COUNT))


def test_data_of_another_kind_is_always_refused(tmp_path: Path) -> None:
    write(tmp_path / "a.tfrecord", [example(sample(number, input_ids=[1] * 8)) for number in range(5)])
    with pytest.raises(UserError, match="8 values of input_ids"):
        reader(tmp_path)
    write(tmp_path / "b.tfrecord", [example(sample(number)) for number in range(5)])
    assert reader(tmp_path).corrupt_records == 0  # one file is good, so the limit decides


def test_a_data_set_of_corrupt_records_only_ends_the_run(tmp_path: Path) -> None:
    good, bad = example(sample(0)), example(sample(1, masked_lm_ids=[1, VOCABULARY, 2]))
    write(tmp_path / "a.tfrecord", [good, bad, bad])
    data = bytearray((tmp_path / "a.tfrecord").read_bytes())
    source = reader(tmp_path, most=100)
    data[30] ^= 1
    (tmp_path / "a.tfrecord").write_bytes(data)
    with pytest.raises(UserError, match="3 corrupt records"):
        source.read(np.array([1]))
