"""Inputs other than dumps, and sentence files."""

from __future__ import annotations

import argparse
import io
import json
import os
import re
from pathlib import Path

import pytest

from data_utils.text import sources
from data_utils.text.corpus import REJECTED_NAME, read_corpus
from data_utils.text.sentences import write_sentences
from data_utils.text.sources import Source, add_source_options, share_of, source_from_options, standard_input_copied
from utilities.errors import UserError
from utilities.files import only_command_in


def source_of(*arguments: object) -> Source:
    parser = argparse.ArgumentParser()
    add_source_options(parser)
    parser.add_argument("--output", type=Path, default=Path("out"))
    parser.set_defaults(workers=1)
    options = parser.parse_args([str(argument) for argument in arguments])
    return source_from_options(options, options.output)


def documents(*arguments: object) -> list[tuple[str, str]]:
    source = source_of(*arguments)
    shards = list(source.shards())
    assert [shard.number for shard in shards] == list(range(len(shards)))
    assert sum(shard.size for shard in shards) <= source.total_bytes
    assert [document for shard in shards for document in shard.content] == list(source.documents())
    return [tuple(document) for document in source.documents()]


def test_plain_text(tmp_path: Path) -> None:
    first, second = tmp_path / "a.txt", tmp_path / "b.txt"
    first.write_text("\ufeffOne.\nTwo.\n\n\nThree.\n", encoding="utf-8")
    second.write_bytes(b"Four.\r\n")
    assert documents("--text", first, second) == [("", "One.\nTwo."), ("", "Three."), ("", "Four.")]
    assert documents("--text", tmp_path) == documents("--text", first, second)
    whole = documents("--text", first, second, "--document-per-file")
    assert whole == [("a.txt", "One.\nTwo.\nThree."), ("b.txt", "Four.")]
    assert documents("--text", first, "--join-lines") == [("", "One. Two."), ("", "Three.")]


def test_a_line_can_be_a_document(tmp_path: Path) -> None:
    path = tmp_path / "a.txt"
    path.write_text("One.\nTwo.\n\n  \nThree.\n", encoding="utf-8")
    assert documents("--text", path, "--document-per-line") == [("", "One."), ("", "Two."), ("", "Three.")]
    for other in ("--document-per-file", "--join-lines"):
        with pytest.raises(UserError, match="leave one of them out"):
            source_of("--text", path, "--document-per-line", other)
    with pytest.raises(UserError, match="--document-per-line"):
        source_of("--wikitext", path, "--document-per-line")


def test_short_documents_are_counted(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    path = tmp_path / "a.txt"
    path.write_text("Too short.\n\nAlso.\n\n" + "This one is long enough. " * 5, encoding="utf-8")
    assert write_sentences(source_of("--text", path), tmp_path / "out").documents == 1
    assert "2 documents of fewer than 100 characters are left out (--min-characters)" in capsys.readouterr().err


def test_a_share_of_the_documents_is_evenly_spread(tmp_path: Path) -> None:
    path = tmp_path / "a.txt"
    path.write_text("\n\n".join(f"Document {number}." for number in range(20)))
    source = source_of("--text", path)
    assert share_of(source, 1.0) is source
    quarter = share_of(source, 0.25)
    assert [document[1] for document in quarter.documents()] == [f"Document {number}." for number in (3, 7, 11, 15, 19)]
    assert len(list(share_of(source, 0.9).documents())) == 18
    assert quarter.identity() != share_of(source, 0.5).identity() != source.identity()


def test_json_lines(tmp_path: Path) -> None:
    path = tmp_path / "a.jsonl"
    path.write_text('{"title": "T", "text": "One."}\n\n{"text": "Two."}\n{"title": null, "text": "Three."}\n')
    assert documents("--jsonl", path) == [("T", "One."), ("", "Two."), ("", "Three.")]
    path.write_text('{"body": "One."}\n')
    assert documents("--jsonl", path, "--jsonl-field", "body") == [("", "One.")]


@pytest.mark.parametrize("indent", [None, 1])
def test_an_array_is_not_taken_for_json_lines(indent: int | None, tmp_path: Path) -> None:
    """Of several lines, the last one could be an object, and a data set of one document the result."""
    (tmp_path / "a.json").write_text(json.dumps([{"text": "One."}, {"text": "Two."}], indent=indent))
    with pytest.raises(UserError, match=r"a\.json: is a JSON array, not JSON Lines; write each object on a line"):
        documents("--jsonl", tmp_path)


def test_options_of_another_input_are_refused(tmp_path: Path) -> None:
    (tmp_path / "a.txt").write_text('{"body": "One."}\n')
    with pytest.raises(UserError, match="--jsonl-field: is an option of --jsonl, which is not the input"):
        source_of("--text", tmp_path / "a.txt", "--jsonl-field", "body")
    with pytest.raises(UserError, match="--join-lines: is an option of --text"):
        source_of("--jsonl", tmp_path / "a.txt", "--join-lines")


@pytest.mark.parametrize("name", ["a.jsonl", "a.JSON", "a.parquet", "a.csv", "a.jsonl.gz"])
def test_a_table_is_no_text(name: str, tmp_path: Path) -> None:
    (tmp_path / name).write_text('{"text": "One."}\n')
    with pytest.raises(UserError, match=rf"--text .*{name}: is a table by its name; give its texts to --jsonl"):
        source_of("--text", tmp_path / name)


def test_wikiextractor_and_wikitext(tmp_path: Path) -> None:
    (tmp_path / "AA").mkdir()
    (tmp_path / "AA" / "wiki_00").write_text(
        '<doc id="1" url="u" title="A &amp; B">\nA & B\n\nOne &lt; two.\n</doc>\n'
        '<doc id="2" url="u" title="C">\nC.\n</doc>\n'
    )
    assert documents("--wikiextractor", tmp_path) == [("A & B", "\nOne < two."), ("C", "C.")]
    lines = [{"id": "1", "title": "A &amp; B", "text": "One &lt; two."}, {"id": "2", "title": "C", "text": "C."}]
    (tmp_path / "AA" / "wiki_00").write_text("".join(json.dumps(line) + "\n" for line in lines))
    assert documents("--wikiextractor", tmp_path) == [("A & B", "One < two."), ("C", "C.")]
    (tmp_path / "wiki.raw").write_text(
        " \n = Cat = \n \n A well @-@ fed cat .\n = = Life = = \n It sat .\n = Dog = \n Ran .\n"
    )
    assert documents("--wikitext", tmp_path / "wiki.raw") == [("Cat", "A well-fed cat .\nIt sat ."), ("Dog", "Ran .")]


@pytest.mark.parametrize(
    ("option", "content", "message"),
    [
        ("--text", b"ok\n\xff\xfe\n", "line 2: not UTF-8"),
        ("--wikiextractor", b"plain text\n", "contains no <doc"),
        ("--wikiextractor", b'<doc id="1" title="A">\nA\n', "ends within a document"),
    ],
)
def test_broken_inputs(tmp_path: Path, option: str, content: bytes, message: str) -> None:
    path = tmp_path / "wiki_00"
    with pytest.raises(UserError, match="no such file"):
        documents(option, path)
    with pytest.raises(UserError, match="contains no files"):
        documents(option, tmp_path)
    os.mkfifo(path)  # a shell's <(command)
    with pytest.raises(UserError, match="not a regular file; - is standard input"):
        documents(option, path)
    path.unlink()
    path.write_bytes(content)
    with pytest.raises(UserError, match=message) as caught:
        documents(option, path)
    assert str(path) in str(caught.value)


@pytest.mark.parametrize(
    ("option", "content", "title", "reason"),
    [
        ("--jsonl", b'{"text": "a"}\n{"text": \n{"text": "b"}\n', "", "line 2: not JSON"),
        ("--jsonl", b'{"text": "a"}\n{"text": "\xff"}\n{"text": "b"}', "", "line 2: not UTF-8"),
        ("--jsonl", b'{"text": "a"}\n{"body": "c"}\n{"text": "b"}', "", r"line 2: no text .*'text' \(it has body\)"),
        ("--jsonl", b'{"text": "a"}\n{"n": %s}\n{"text": "b"}' % (b"1" * 5000), "", "line 2: not JSON .*digits"),
        ("--jsonl", b'{"text": "a"}\n{"text": "\\ud800"}\n{"text": "b"}', "", "line 2: not JSON .*half a character"),
        ("--jsonl", b'{"text": "a"}\n["c"]\n{"text": "b"}', "", "line 2: .*not an object"),
        ("--jsonl", b'{"text": "a"}\n{"text": 5}\n{"text": "b"}', "", "line 2: no text in field 'text', but '5'"),
        (
            "--wikiextractor",
            b'<doc title="A">\na\n</doc>\n<doc title="B &amp; C">\n\xff\n</doc>\n<doc title="D">\nb\n</doc>\n',
            "B & C",
            "line 4: not UTF-8",
        ),
    ],
)
def test_one_bad_document_is_rejected(tmp_path: Path, option: str, content: bytes, title: str, reason: str) -> None:
    path = tmp_path / "wiki_00"
    path.write_bytes(content)
    first, rejected, last = documents(option, path)
    assert (first[1], last[1]) == ("a", "b")
    assert rejected[0] == title
    assert re.search(f"^{re.escape(str(path))}, {reason}", rejected[1])


def test_what_a_command_has_written_is_not_its_input(tmp_path: Path) -> None:
    files = {"a.txt", "b/c.txt", "out2/d.txt", "out/corpus/e.txt", "out.txt"}
    for name in files:
        (tmp_path / name).parent.mkdir(parents=True, exist_ok=True)
        (tmp_path / name).write_text("Text.")
    source = source_of("--text", tmp_path, "--output", tmp_path / "b" / ".." / "out")
    assert {str(path.relative_to(tmp_path)) for path in source.files} == files - {"out/corpus/e.txt"}
    inside = source_of("--text", tmp_path / "b", "--output", tmp_path)
    assert inside.files == (tmp_path / "b" / "c.txt",)
    with pytest.raises(UserError, match="is the output folder"):  # with corpus/e.txt and vocab.txt
        source_of("--text", tmp_path / "out", "--output", tmp_path / "b" / ".." / "out")


def test_files_of_a_folder_are_found_in_any_case_and_others_are_counted(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    for name in ("a.txt", "B.TXT", "c.Txt.GZ", "d.md", "e.text"):
        (tmp_path / name).write_text("Text.")
    source = source_of("--text", tmp_path)
    assert [path.name for path in source.files] == ["B.TXT", "a.txt", "c.Txt.GZ"]
    assert capsys.readouterr().err == (f"--text {tmp_path}: 2 files with other names than *.txt are left out\n")


def test_standard_input_does_not_replace_that_of_another_command(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("sys.stdin", io.TextIOWrapper(io.BytesIO(b"Second.")))
    (tmp_path / "standard_input").write_text("First.")
    options = argparse.Namespace(text=[Path("-")])
    refused = pytest.raises(UserError, match="another command")
    with only_command_in(tmp_path), refused, standard_input_copied(options, tmp_path):
        pass
    assert (tmp_path / "standard_input").read_text() == "First."
    with standard_input_copied(options, tmp_path):
        assert options.text == [tmp_path / "standard_input"] and options.text[0].read_text() == "Second."
    assert not options.text[0].exists()


def test_records_are_not_written_among_their_sentences(tmp_path: Path) -> None:
    (tmp_path / "a.txt").write_text("A sentence.\n")
    with pytest.raises(UserError, match="is the folder of the sentences"):
        read_corpus(tmp_path, tmp_path / ".." / tmp_path.name)
    assert read_corpus(tmp_path, tmp_path / "out").files == [tmp_path / "a.txt"]


def test_sentence_files(tmp_path: Path) -> None:
    lines = [json.dumps({"text": f"Here is sentence {number}. And another one."}) for number in range(50)]
    (tmp_path / "a.jsonl").write_text("\n".join([*lines, json.dumps({"text": "No."})]))
    source = source_of("--jsonl", tmp_path / "a.jsonl")
    corpus = write_sentences(source, tmp_path / "out", min_characters=10)
    assert (corpus.documents, corpus.sentences, corpus.words) == (50, 100, 350)
    text = (tmp_path / "out" / "sentences_000.txt").read_text()
    assert text.startswith("Here is sentence 0.\nAnd another one.\n\nHere is sentence 1.\n")
    assert read_corpus(tmp_path / "out") == corpus
    (tmp_path / "out" / "corpus.json").unlink()  # as if the command had been killed
    with pytest.raises(UserError, match=r"out: has no corpus\.json.*; run it again"):
        read_corpus(tmp_path / "out")


def test_rejected_documents_are_listed_in_the_order_of_the_input(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(sources, "LARGEST_SHARD", 1)
    lines = ["{", json.dumps({"text": "Here is a sentence."}), "[]", json.dumps({"title": "Über", "n": 1})]
    (tmp_path / "a.jsonl").write_text("\n".join(lines))
    source, out = source_of("--jsonl", tmp_path / "a.jsonl"), tmp_path / "out"
    with pytest.raises(UserError, match=r"3 documents .* --max-bad-articles 2 .*line 1: not JSON"):
        write_sentences(source, out, min_characters=1, max_bad_articles=2)
    assert write_sentences(source, out, min_characters=1, max_bad_articles=3).rejected == 3
    listed = [json.loads(line)["reason"] for line in (out / REJECTED_NAME).read_text(encoding="utf-8").splitlines()]
    assert [re.search(r"line (\d)", reason).group(1) for reason in listed] == ["1", "3", "4"]
    (tmp_path / "a.jsonl").write_text("7\n")
    with pytest.raises(UserError, match=r"no prose.* 1 could not be used, the first: .*line 1"):
        write_sentences(source_of("--jsonl", tmp_path / "a.jsonl"), tmp_path / "none")
    (tmp_path / "a.jsonl").write_text(lines[1])
    write_sentences(source_of("--jsonl", tmp_path / "a.jsonl"), out, min_characters=1, overwrite=True)
    assert not (out / REJECTED_NAME).exists()
