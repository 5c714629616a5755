"""A corrupt record in training causes an error that names it, or the run skips it and says so."""

from __future__ import annotations

from pathlib import Path

import pytest

from tests.support.runs import metrics, prepare_dataset, read_lines, train, trained, write_text, write_text_config

pytestmark = pytest.mark.slow


@pytest.fixture(scope="module")
def dataset(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """Records, two of which are damaged."""
    folder = tmp_path_factory.mktemp("data")
    prepare_dataset(folder / "set", write_text(folder / "text.txt", documents=20))
    path = sorted((folder / "set").glob("*.tfrecord"))[0]
    data = bytearray(path.read_bytes())
    for line in path.with_suffix(".index").read_text().splitlines()[3:5]:
        data[int(line.split()[0]) + 40] ^= 1
    path.write_bytes(data)
    return folder / "set"


def test_skipped_records_are_counted_in_the_report(dataset: Path, tmp_path: Path) -> None:
    config = write_text_config(tmp_path / "skip.json", total_num_train_samples=None, num_epochs=1)
    arguments = ("--dataset-dir", str(dataset), "--data.on-corrupt", "skip")
    run = trained(config, tmp_path, *arguments)
    assert metrics(run)[-1]["step"] == metrics(run)[-1]["total_steps"]
    assert "since the run was last started: corrupt_records: 2." in (run / "report.html").read_text()
    history = read_lines(run / "history.jsonl")
    assert [event["corrupt_records"] for event in history if "corrupt_records" in event][-1] == 2
    assert (run / "train.log").read_text().count("record skipped, as data.on_corrupt says") == 2
    few = train(config, tmp_path, *arguments, "--data.max-corrupt-records", "1")
    assert few.status == 2
    assert "2 corrupt records, more than data.max_corrupt_records 1 allows" in few.errors
    fails = train(config, tmp_path, *arguments[:2])
    assert fails.status == 2
    assert "is damaged" in fails.errors
