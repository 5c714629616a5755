"""Inputs other than plain files: compressed text, Parquet, data sets of the hub, standard input."""

from __future__ import annotations

import argparse
import bz2
import gzip
import io
import json
import lzma
import re
import sys
from collections.abc import Callable
from pathlib import Path
from types import ModuleType, SimpleNamespace

import pytest

from data_utils.text import sources
from data_utils.text.compressed import opened
from data_utils.text.readers import Document, RejectedDocument
from data_utils.text.sources import add_source_options, source_from_options, standard_input_copied
from tests.unit.data_utils.text.test_sources import documents, source_of
from utilities.errors import UserError

pyarrow = pytest.importorskip("pyarrow")
parquet = pytest.importorskip("pyarrow.parquet")


def zstd(data: bytes) -> bytes:
    return pyarrow.Codec("zstd").compress(data, asbytes=True)


COMPRESS: dict[str, Callable[[bytes], bytes]] = {
    "gz": gzip.compress,
    "bz2": bz2.compress,
    "xz": lzma.compress,
    "zst": zstd,
    "two streams": lambda data: gzip.compress(data[:333]) + gzip.compress(data[333:]),
}


@pytest.mark.parametrize("compression", COMPRESS)
@pytest.mark.parametrize(
    ("arguments", "one"),
    [
        (["--text"], "\ufeffÜber document {}.\nIt has two lines.\n\n"),
        (["--text"], "CRLF {}.\r\nTwo lines.\r\n \t\r\n"),
        (["--text", "--document-per-file"], "Document {}.\n\nIt has two lines.\n\n"),
        (["--jsonl"], '{{"title": "T{}", "text": "Text\\nof it."}}\n'),
        (["--wikiextractor"], '<doc id="1" title="T{}">\nT{}\n\nText of it.\n\nMore.\n</doc>\n\n'),
        (["--wikitext"], " = Title {} = \n\n Text of it .\n = = Section = = \n More .\n\n"),
    ],
    ids=["text", "CRLF", "document per file", "jsonl", "wikiextractor", "wikitext"],
)
def test_documents_do_not_depend_on_compression_and_shards(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, arguments: list[str], one: str, compression: str
) -> None:
    option, *others = arguments
    many = [one.replace("{}", str(number)).replace("{{", "{").replace("}}", "}") for number in range(100)]
    plain, compressed = [], []
    for name, part in (("wiki_0", many[:60]), ("wiki_1", many[60:])):
        text = "".join(part).encode()
        plain.append(tmp_path / "plain" / name)
        compressed.append(tmp_path / "compressed" / name)
        for path, content in ((plain[-1], text), (compressed[-1], COMPRESS[compression](text))):
            path.parent.mkdir(exist_ok=True)
            path.write_bytes(content)
    expected = documents(option, *plain, *others)
    assert len(expected) == (2 if others else 100)
    for shard_bytes in (1 << 20, 1, 333):
        monkeypatch.setattr(sources, "SMALLEST_SHARD", shard_bytes)
        monkeypatch.setattr(sources, "LARGEST_SHARD", shard_bytes)
        for files in (plain, compressed, [plain[0], compressed[1]]):
            assert documents(option, *files, *others) == expected


@pytest.mark.parametrize("name", ["a.ndjson", "a.json", "a.json.gz", "AA/wiki_00", "part-00000"])
def test_folders_of_json_lines_of_other_names(tmp_path: Path, name: str) -> None:
    (tmp_path / "AA").mkdir()
    text = b'{"text": "One."}\n'
    (tmp_path / name).write_bytes(gzip.compress(text) if name.endswith("gz") else text)
    (tmp_path / "notes.txt").write_text("no JSON\n")
    assert documents("--jsonl", tmp_path) == [("", "One.")]
    (tmp_path / "b.jsonl.gz").write_bytes(gzip.compress(b'{"text": "Two."}\n'))
    assert documents("--jsonl", tmp_path) == [("", "Two.")]


def test_lines_of_compressed_files_are_named(tmp_path: Path) -> None:
    path = tmp_path / "a.jsonl.xz"
    path.write_bytes(lzma.compress(b'{"text": "a"}\n' * 50 + b"{oops\n" + b'{"text": "b"}\n' * 50))
    result = documents("--jsonl", path)
    assert len(result) == 101
    assert re.search(f"^{re.escape(str(path))}, line 51: not JSON", result[50][1])


@pytest.mark.parametrize("compression", ["gz", "bz2", "xz", "zst"])
def test_a_truncated_file_is_refused(tmp_path: Path, compression: str) -> None:
    path = tmp_path / f"a.txt.{compression}"
    text = "".join(f"Document {number} ends here.\n\n" for number in range(5000))
    path.write_bytes(COMPRESS[compression](text.encode())[:-20])
    with pytest.raises(UserError, match=re.escape(f"{path}: cannot be decompressed")):
        documents("--text", path)


def test_other_errors_are_not_damage(tmp_path: Path) -> None:
    path = tmp_path / "a.txt.gz"
    path.write_bytes(gzip.compress(b"One.\n"))
    with pytest.raises(OSError, match="no program"), opened(path):
        raise OSError("no program")


def test_zstd_without_its_package(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    path = tmp_path / "a.txt.zst"
    path.write_bytes(zstd(b"One.\n"))
    monkeypatch.setitem(sys.modules, "pyarrow", None)
    with pytest.raises(UserError, match=re.escape(str(path)) + ".*pip install pyarrow"):
        documents("--text", path)


def write_parquet(path: Path, columns: dict[str, list], row_group: int = 7, **kinds: object) -> Path:
    arrays = {name: pyarrow.array(values, kinds.get(name)) for name, values in columns.items()}
    parquet.write_table(pyarrow.table(arrays), path, row_group_size=row_group)
    return path


@pytest.mark.parametrize("kind", ["string", "large_string", "binary", "large_binary", "dictionary"])
@pytest.mark.parametrize("shard_bytes", [1, 50, 10**6])
def test_parquet(tmp_path: Path, monkeypatch: pytest.MonkeyPatch, kind: str, shard_bytes: int) -> None:
    texts = [f"Über document {number}.\nIt has two lines." for number in range(60)]
    many = {"id": list(range(60)), "body": texts}
    categories = [pyarrow.int32(), pyarrow.string()] if kind == "dictionary" else []  # as pandas writes categories
    of_text = getattr(pyarrow, kind)(*categories)
    first = write_parquet(tmp_path / "0.parquet", {n: v[:37] for n, v in many.items()}, body=of_text)
    second = write_parquet(tmp_path / "1.parquet", {n: v[37:] for n, v in many.items()}, body=of_text)
    monkeypatch.setattr(sources, "SMALLEST_SHARD", shard_bytes)
    monkeypatch.setattr(sources, "LARGEST_SHARD", shard_bytes)
    expected = [("", text) for text in texts]
    assert documents("--parquet", first, second, "--parquet-column", "body") == expected
    assert documents("--parquet", tmp_path, "--parquet-column", "body") == expected


def test_rows_without_text_are_rejected(tmp_path: Path) -> None:
    values = [b"a", None, b"\xff", b"b"]
    path = write_parquet(tmp_path / "a.parquet", {"text": values}, row_group=3, text=pyarrow.binary())
    first, absent, broken, last = source_of("--parquet", path).documents()
    assert (first, last) == (Document("", "a"), Document("", "b"))
    assert isinstance(absent, RejectedDocument) and absent.reason.startswith(f"{path}, row 2: ")
    assert isinstance(broken, RejectedDocument) and broken.reason.startswith(f"{path}, row 3: not UTF-8")


def test_parquet_files_that_cannot_be_used(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    columns = {"number": list(range(5000)), "text": [f"Text {number * 7919 % 5003}" for number in range(5000)]}
    path = write_parquet(tmp_path / "a.parquet", columns, row_group=5000)
    with pytest.raises(UserError, match=r"--parquet-column body: .*a\.parquet .* it has number, text"):
        source_of("--parquet", path, "--parquet-column", "body")
    with pytest.raises(UserError, match=r"--parquet-column number: .*a\.parquet is int64, not text"):
        source_of("--parquet", path, "--parquet-column", "number")
    content = path.read_bytes()
    cut = tmp_path / "cut.parquet"
    for broken in (content[:-30], b"", b"Just some text, which is longer than a footer."):
        cut.write_bytes(broken)
        with pytest.raises(UserError, match=re.escape(f"{cut}: cannot be read as Parquet")):
            source_of("--parquet", path, cut)
    cut.write_bytes(content[:100] + bytes(len(content) - 4000) + content[len(content) - 3900 :])
    with pytest.raises(UserError, match=re.escape(f"{cut}: cannot be read as Parquet")):
        list(source_of("--parquet", cut).documents())
    monkeypatch.setitem(sys.modules, "pyarrow", None)
    with pytest.raises(UserError, match=r"--parquet: .*pip install pyarrow"):
        source_of("--parquet", path)


@pytest.fixture
def hub(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """Return a folder that the datasets library understands as a data set; its cache is in another folder."""
    datasets = pytest.importorskip("datasets")
    monkeypatch.setattr(datasets.config, "HF_DATASETS_CACHE", str(tmp_path / "cache"))
    folder = tmp_path / "hub"
    folder.mkdir()
    for split, count in (("train", 40), ("test", 3)):
        rows = [{"body": f"{split} {number}", "id": number} for number in range(count)]
        (folder / f"{split}.jsonl").write_text("".join(json.dumps(row) + "\n" for row in rows))
    return folder


def test_a_data_set_of_the_hub(hub: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    arguments = ("--hub-dataset", hub, "--hub-column", "body")
    source = source_of(*arguments)
    assert [tuple(document) for document in source.documents()] == [("", f"train {number}") for number in range(40)]
    assert [d.text for d in source_of(*arguments, "--hub-split", "test").documents()] == ["test 0", "test 1", "test 2"]
    monkeypatch.setattr(sources, "LARGEST_SHARD", 50)
    monkeypatch.setattr(sources, "SMALLEST_SHARD", 50)
    shards = list(source.shards())
    assert len(shards) > 3
    assert [document for shard in shards for document in shard.content] == list(source.documents())
    before = source.identity()
    assert source_of(*arguments).identity() == before
    with open(hub / "train.jsonl", "a") as stream:
        stream.write('{"body": "another", "id": 7}\n')
    assert source_of(*arguments).identity() != before  # a run of other data is not resumed


def test_a_data_set_that_cannot_be_streamed(monkeypatch: pytest.MonkeyPatch) -> None:
    """The library's own signal for such formats; whatever is downloaded is then read like any other."""
    done = []

    def refuse(split: str) -> None:
        raise NotImplementedError("TAR archives")

    builder = SimpleNamespace(
        hash="a1b2",
        as_streaming_dataset=refuse,
        download_and_prepare=lambda: done.append("downloaded"),
        as_dataset=lambda split: [{"text": split}],
    )
    monkeypatch.setitem(sys.modules, "datasets", SimpleNamespace(load_dataset_builder=lambda *_: builder))
    assert list(source_of("--hub-dataset", "a/b").documents()) == [Document("", "train")]
    assert done == ["downloaded"]


def test_data_sets_of_the_hub_that_cannot_be_used(hub: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    with pytest.raises(UserError, match=r"--hub-column text: .*/hub has no such column; it has body, id"):
        list(source_of("--hub-dataset", hub).documents())
    with pytest.raises(UserError, match=r"cannot get .*/hub .*dev"):
        source_of("--hub-dataset", hub, "--hub-split", "dev")
    (hub / "train.jsonl").write_text('{"body": "a"}\n{"body": \n')
    with pytest.raises(UserError, match=r"cannot get .*/hub "):
        list(source_of("--hub-dataset", hub, "--hub-column", "body").documents())
    for module in (None, ModuleType("datasets")):  # the second is that of a folder of this name
        monkeypatch.setitem(sys.modules, "datasets", module)
        with pytest.raises(UserError, match=r"--hub-dataset a/b: .*pip install -r requirements-datasets\.txt"):
            source_of("--hub-dataset", "a/b")


def test_standard_input(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    other = tmp_path / "b.txt"
    other.write_text("Two.\n")
    parser = argparse.ArgumentParser()
    add_source_options(parser)
    parser.set_defaults(output=tmp_path / "out" / "set")
    identities = []
    for content in (b"One.\n", b"One.\n", gzip.compress(b"One.\n")):
        monkeypatch.setattr(sys, "stdin", SimpleNamespace(buffer=io.BytesIO(content)))
        options = parser.parse_args(["--text", "-", str(other)])
        with standard_input_copied(options, tmp_path / "out" / "set"):
            source = source_from_options(options, tmp_path)
            assert list(source.documents()) == list(source.documents()) == [Document("", "One."), Document("", "Two.")]
            identities.append(source.identity())
        assert list((tmp_path / "out" / "set").iterdir()) == []
    assert identities[0] == identities[1] != identities[2]
    options = parser.parse_args(["--text", str(other)])
    with standard_input_copied(options, tmp_path / "none"):
        assert not (tmp_path / "none").exists()
