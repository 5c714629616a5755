"""Tables are written as Python's ``csv`` and ``json`` read them, and read without having the whole file in memory."""

from __future__ import annotations

import csv
import json
import tracemalloc
from pathlib import Path

import pytest

from utilities.errors import UserError
from utilities.tables import read_table, unwritable, write_table

ROWS = [
    {"text": 'a, "b"', "number": 0.5, "list": [1, "é"], "none": None},
    {"text": "", "number": -3, "list": [], "none": True},
]
CELLS = [['a, "b"', "0.5", '[1, "é"]', ""], ["", "-3", "[]", "true"]]


def test_what_is_written_is_read_by_python(tmp_path: Path) -> None:
    for suffix in (".csv", ".tsv", ".jsonl"):
        write_table(tmp_path / f"out{suffix}", ROWS)
    with open(tmp_path / "out.csv", encoding="utf-8", newline="") as file:
        assert list(csv.reader(file)) == [list(ROWS[0]), *CELLS]
    lines = (tmp_path / "out.tsv").read_text(encoding="utf-8").splitlines()
    assert [line.split("\t") for line in lines] == [list(ROWS[0]), *CELLS]
    lines = (tmp_path / "out.jsonl").read_text(encoding="utf-8").splitlines()
    assert [json.loads(line) for line in lines] == ROWS
    assert [dict(row or {}) for _, row in read_table(tmp_path / "out.jsonl")] == ROWS


def test_rows_without_a_place_in_a_format() -> None:
    columns = ["text", "number"]
    for row, refusing in (
        ({"text": "a", "number": 1}, []),
        ({"number": 1, "text": "a"}, []),
        ({"text": "a"}, [".csv", ".tsv"]),
        ({"text": "a\tb", "number": 1}, [".tsv"]),
        ({"text": "a\nb", "number": 1}, [".tsv"]),
    ):
        assert [suffix for suffix in (".csv", ".tsv", ".jsonl") if unwritable(row, columns, suffix)] == refusing


@pytest.mark.parametrize("suffix", [".csv", ".tsv", ".jsonl"])
def test_memory_does_not_grow_with_the_file(suffix: str, tmp_path: Path) -> None:
    source, output = tmp_path / f"in{suffix}", tmp_path / f"out{suffix}"
    write_table(source, ({"text": f"a text with the number {n}" * 8} for n in range(10_000)))
    size = source.stat().st_size
    tracemalloc.start()
    write_table(output, (row for _, row in read_table(source) if row is not None))
    _, peak = tracemalloc.get_traced_memory()
    tracemalloc.stop()
    assert output.read_bytes() == source.read_bytes()
    assert peak < size / 5


@pytest.mark.parametrize(
    ("content", "named"), [(b"text\na\n\xff\n", "line 3: is not UTF-8"), (b"text\na\0\n", "line 2")]
)
def test_a_broken_line_far_in_the_file_is_named(content: bytes, named: str, tmp_path: Path) -> None:
    for suffix in (".csv", ".tsv"):
        path = tmp_path / f"in{suffix}"
        path.write_bytes(content)
        with pytest.raises(UserError, match=named):
            list(read_table(path))
