"""Tables are written as Python's ``csv`` and ``json`` read them, and read without having the whole file in memory."""

from __future__ import annotations

import csv
import io
import json
import random
import tracemalloc
from pathlib import Path

import numpy as np
import pandas  # of the package datasets
import pytest

from utilities.errors import UserError
from utilities.table_output import unwritable, write_table
from utilities.tables import LARGEST_CELL, distinct_values, read_table, short, values_as_text

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
    assert [dict(row) for _, row in read_table(tmp_path / "out.jsonl")] == ROWS


MARKS = ["a", "é", "中", " ", ",", '"', ";", "\t", "\n", "\r", "\0", "\ufeff", "\u2028", "\x85", "\x1f", "\\", "="]


def random_rows(chance: random.Random) -> list[dict[str, object]]:
    def text(most: int) -> str:
        return "".join(chance.choice(MARKS if chance.random() < 0.2 else "ab ") for _ in range(chance.randint(0, most)))

    def value() -> object:
        return chance.choice([text(6), text(6), text(0), None, True, -3, 0.5, [text(3), {}], {text(2): None}])

    names = [text(3) if chance.random() < 0.3 else f"n{n}" for n in range(chance.randint(0, 3))]
    other = [{**dict.fromkeys(names), "more": 1}] if chance.random() < 0.1 else []
    return [{name: value() for name in names} for _ in range(chance.randint(1, 4))] + other


def cell(value: object) -> str:
    text = value if isinstance(value, str) else json.dumps(value, ensure_ascii=False)
    return "" if text == "null" else text


@pytest.mark.parametrize("suffix", [".csv", ".tsv", ".jsonl"])
def test_whatever_is_written_is_read_back(suffix: str, tmp_path: Path) -> None:
    chance = random.Random(f"tables{suffix}")
    path, written, refused = tmp_path / f"table{suffix}", 0, 0
    for _ in range(1500):
        rows = random_rows(chance)
        path.unlink(missing_ok=True)
        if any(unwritable(row, rows[0], suffix) for row in rows):
            with pytest.raises(UserError, match="name an output"):
                write_table(path, rows)
            assert not path.exists()
            refused += 1
            continue
        write_table(path, rows)
        written += 1
        expected = rows if suffix == ".jsonl" else [{name: cell(row[name]) for name in row} for row in rows]
        assert [row for _, row in read_table(path)] == expected
    assert written > 500 and (refused > 200 or suffix == ".jsonl")


@pytest.mark.parametrize("mark", [";", "\t", ","])
@pytest.mark.parametrize("named", [False, True])
def test_excel_s_csv_is_read(mark: str, named: bool, tmp_path: Path) -> None:
    rows = [["text", "label; kind" if mark == "," else "label"], ["good, and; long", "0,5"], ['a "b"', "1"]]
    stream = io.StringIO()
    csv.writer(stream, delimiter=mark).writerows(rows)
    text = f"sep={mark}\r\n" * named + stream.getvalue()
    for encoding in ("utf-8-sig", "utf-16"):
        (tmp_path / "a.csv").write_text(text, encoding=encoding, newline="")
        lines = list(read_table(tmp_path / "a.csv"))
        assert [row for _, row in lines] == [dict(zip(rows[0], row)) for row in rows[1:]]
        assert [number for number, _ in lines] == [2 + named, 3 + named]


def test_a_json_array_is_read_with_its_lines(tmp_path: Path) -> None:
    rows = [{"text": f"a\n{n}", "label": ["[", n]} for n in range(3)]
    for indent, lines in ((1, [2, 9, 16]), (None, [1, 1, 1])):
        (tmp_path / "a.json").write_text(json.dumps(rows, indent=indent))
        assert list(read_table(tmp_path / "a.json")) == list(zip(lines, rows))
    (tmp_path / "a.json").write_text("[]")
    assert not list(read_table(tmp_path / "a.json"))


def test_a_long_cell_and_columns_without_a_name(tmp_path: Path) -> None:
    rows = [{"text": "x" * 131_073, "": "y"}]
    for suffix in (".csv", ".tsv"):
        write_table(tmp_path / f"long{suffix}", rows)
        assert [row for _, row in read_table(tmp_path / f"long{suffix}")] == rows
    (tmp_path / "unnamed.csv").write_text(",text,,\n1,2,3,4\n", encoding="utf-8")
    read = [row for _, row in read_table(tmp_path / "unnamed.csv")]
    assert read == [{"": "1", "text": "2", "column 3": "3", "column 4": "4"}]
    (tmp_path / "open.csv").write_text('text\n"' + "x" * (LARGEST_CELL + 1), encoding="utf-8")
    with pytest.raises(UserError, match=r"line 2: .*close the quotation marks"):
        list(read_table(tmp_path / "open.csv"))


def test_blanks_after_commas_are_read_as_pandas_can(tmp_path: Path) -> None:
    path = tmp_path / "table.csv"
    path.write_text('text, label\n"a, b", "x"\n c , "y ""z"""\n', encoding="utf-8")
    expected = pandas.read_csv(path, skipinitialspace=True).to_dict("records")
    assert [row for _, row in read_table(path)] == expected
    path.write_text("text,label\na, x\n", encoding="utf-8")  # not after each comma of the header
    assert [row for _, row in read_table(path)] == pandas.read_csv(path).to_dict("records")


def test_a_quoted_name_that_begins_with_a_blank_keeps_it(tmp_path: Path) -> None:
    path = tmp_path / "a.csv"
    pandas.DataFrame({"text": ["a"], " label": ["b"]}).to_csv(path, index=False, quoting=csv.QUOTE_ALL)
    assert [set(row.values()) for _, row in read_table(path)] == [{"a", "b"}]


@pytest.mark.parametrize("labels", [["a b", "c"], ["it's", "d"], [3, 17]])
def test_labels_that_numpy_writes_as_a_list_are_the_list(labels: list[object], tmp_path: Path) -> None:
    pandas.DataFrame({"labels": [np.array(labels)]}).to_csv(tmp_path / "lists.csv", index=False)
    (cell,) = (row["labels"] for _, row in read_table(tmp_path / "lists.csv"))
    assert values_as_text(cell, ",") == list(map(str, labels))


def test_lists_are_read_as_json_before_python() -> None:
    assert values_as_text(json.dumps(["😀", "b"]), ",") == ["😀", "b"]  # with escapes, of which Python makes halves
    assert values_as_text(json.dumps([True, False]), ",") == ["true", "false"]


def test_tab_separated_text_that_pandas_has_quoted_is_refused(tmp_path: Path) -> None:
    table = pandas.DataFrame({"text": ["plain", 'He said "hi" to me'], "label": ["a", "b"]})
    table.to_csv(tmp_path / "quoted.tsv", sep="\t", index=False)
    with pytest.raises(UserError, match=r"quoted\.tsv: line 3: the text '\"He said .* is quoted as in CSV"):
        list(read_table(tmp_path / "quoted.tsv"))
    table.to_csv(tmp_path / "plain.tsv", sep="\t", index=False, quoting=csv.QUOTE_NONE)
    assert [row for _, row in read_table(tmp_path / "plain.tsv")] == table.to_dict("records")


@pytest.mark.parametrize("labels", [["x", "y"], [], ["it's", 'a "b"'], ["a;b"]])
def test_labels_that_pandas_writes_as_a_list_are_the_list(labels: list[str], tmp_path: Path) -> None:
    pandas.DataFrame({"labels": [labels, ["x"]]}).to_csv(tmp_path / "lists.csv", index=False)
    cells = [row["labels"] for _, row in read_table(tmp_path / "lists.csv")]
    assert [values_as_text(cell, ";") for cell in cells] == [labels, ["x"]]
    assert values_as_text(json.dumps(labels), ";") == labels  # as a table here is written
    assert values_as_text("[a]; b", ";") == ["[a]", "b"]


@pytest.mark.parametrize("cell", [{"POSITIVE": 1, "NEGATIVE": 0}, [{"label": "x"}], [["x"], "y"]])
def test_objects_are_no_labels(cell: object, tmp_path: Path) -> None:
    """As spaCy's ``cats``, which would become the name of a class."""
    write_table(tmp_path / "cats.jsonl", [{"cats": "x"}, {"cats": cell}])
    with pytest.raises(UserError, match=r"cats\.jsonl: line 2: cats is .*, which is no label; write a name"):
        distinct_values(tmp_path / "cats.jsonl", "cats", ";")


def test_a_value_is_shown_on_one_line() -> None:
    assert short(pandas.Series(["good  film"])) == "0    good  film dtype: str"
    assert short("two\nlines  of text") == "'two\\nlines  of text'"


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
    write_table(output, (row for _, row in read_table(source)))
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
