"""Record files and their indexes, compared with TensorFlow and the tfrecord package."""

from __future__ import annotations

import subprocess
import sys
import threading
from pathlib import Path

import numpy as np
import pytest

from data_utils.records.files import RecordFiles
from data_utils.records.framing import record_boundaries
from data_utils.records.index import find_index, load_index
from keras_extensions.backend import tf
from tests import ROOT
from tests.support.record_samples import write
from utilities.errors import UserError

PAYLOADS = [b"", b"a", b"b" * 100, b"c" * 5000, bytes(range(256)) * 20, b"d"]


@pytest.fixture
def record_file(tmp_path: Path) -> Path:
    path = tmp_path / "wiki_000.tfrecord"
    write(path, PAYLOADS)
    return path


@pytest.fixture(scope="module")
def reference_index(tmp_path_factory: pytest.TempPathFactory) -> bytes:
    """The index of the tfrecord package, in a separate process, because it and TensorFlow both define Example."""
    path = tmp_path_factory.mktemp("reference") / "wiki_000.tfrecord"
    write(path, PAYLOADS)
    target = path.with_suffix(".index")
    subprocess.run([sys.executable, "-m", "tfrecord.tools.tfrecord2idx", str(path), str(target)], check=True)
    return target.read_bytes()


def test_built_index_is_that_of_the_tfrecord_package(record_file: Path, reference_index: bytes) -> None:
    """Building it does not need TensorFlow."""
    program = (
        "import sys; from data_utils.records.files import RecordFiles; "
        f"RecordFiles({str(record_file.parent)!r}); sys.exit('tensorflow' in sys.modules)"
    )
    assert subprocess.run([sys.executable, "-c", program], cwd=ROOT, check=False).returncode == 0
    index, size = record_file.with_suffix(".index"), record_file.stat().st_size
    assert index.read_bytes() == reference_index
    assert [path.name for path in record_file.parent.iterdir() if path.name.startswith(".")] == []
    assert np.array_equal(load_index(index, record_file, size), record_boundaries(record_file)[0])
    index.write_bytes(index.read_bytes().rstrip())  # a last line without its newline counts too
    assert load_index(index, record_file, size).size == len(PAYLOADS) + 1


@pytest.mark.parametrize("name", ["wiki_000.index", "wiki_000.tfrecord.index", "wiki_000.tfindex"])
def test_names_of_an_index(record_file: Path, reference_index: bytes, name: str) -> None:
    assert find_index(record_file) is None
    record_file.with_name(name).write_bytes(reference_index)
    assert find_index(record_file) == record_file.with_name(name)
    assert RecordFiles(record_file.parent).counts == [len(PAYLOADS)]


def test_records_are_those_that_tensorflow_reads(tmp_path: Path) -> None:
    for number, payloads in enumerate([PAYLOADS, [], PAYLOADS[::-1], [b"last"]]):
        write(tmp_path / f"part_{number}.tfrecord", payloads)
    names = sorted(str(path) for path in tmp_path.glob("*.tfrecord"))
    reference = [record.numpy() for record in tf.data.TFRecordDataset(names)]
    files = RecordFiles(tmp_path)
    assert files.count == len(reference)
    assert files.fetch(np.arange(files.count)) == reference
    wanted = np.random.default_rng(0).integers(0, files.count, 200)
    assert files.fetch(wanted) == [reference[position] for position in wanted]
    assert files.fetch(np.array([], np.int64)) == []
    assert files.locate(len(PAYLOADS)) == (tmp_path / "part_2.tfrecord", 0)


def test_threads_may_read_at_the_same_time_with_few_open_files(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("data_utils.records.files._OPEN_FILES", 2)
    for number in range(8):
        write(tmp_path / f"{number}.tfrecord", [b"%d %d" % (number, record) for record in range(20)])
    files, wrong = RecordFiles(tmp_path), []

    def read(seed: int) -> None:
        for _ in range(30):
            wanted = np.random.default_rng(seed).integers(0, 160, 40)
            if files.fetch(wanted) != [b"%d %d" % divmod(int(position), 20) for position in wanted]:
                wrong.append(seed)

    threads = [threading.Thread(target=read, args=(seed,)) for seed in range(4)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert wrong == []


def test_folder_that_cannot_be_written_is_still_read(
    record_file: Path, monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    def refuse(target: Path) -> None:
        raise PermissionError(13, "Permission denied", str(target))

    monkeypatch.setattr("data_utils.records.index.replacing", refuse)
    assert RecordFiles(record_file.parent).count == len(PAYLOADS)
    assert "Permission denied" in caplog.text


@pytest.mark.parametrize(
    ("text", "part"),
    [
        ("garbage\n", "line 1 is not"),
        ("0 16\n16 17\n33 116\n149 5016\n5165 5136\n10301 18\n", "ends at byte"),
        ("0 16\n16 18\n33 116\n149 5016\n5165 5136\n10301 17\n", "line 2"),
        ("5 11\n16 17\n33 116\n149 5016\n5165 5136\n10301 17\n", "line 1"),
        ("0 16\n99999999999999999999999999 17\n33 116\n149 5016\n5165 5136\n10301 17\n", "line"),
        ("", "ends at byte 0"),
    ],
)
def test_an_index_that_does_not_fit_is_refused_with_the_fix(record_file: Path, text: str, part: str) -> None:
    assert record_file.stat().st_size == 10318
    index = record_file.with_suffix(".index")
    index.write_text(text)
    with pytest.raises(UserError, match="delete it, and the next start builds it again") as caught:
        RecordFiles(record_file.parent).fetch(np.arange(2))
    assert str(index) in str(caught.value) and part in str(caught.value)
    index.unlink()
    assert RecordFiles(record_file.parent).fetch(np.arange(2)) == PAYLOADS[:2]
