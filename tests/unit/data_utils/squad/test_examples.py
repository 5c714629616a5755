"""SQuAD files, or rows of the ``datasets`` library, are read exactly, and errors name their position in the file."""

from __future__ import annotations

import copy
import json
import re
import sys
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pytest

from data_utils.squad.examples import (
    TRAIN,
    VALIDATION,
    Answer,
    answer_position,
    check_alignment,
    open_squad,
    read_squad,
)
from tests.support.real_data import real_data
from tests.support.squad_files import parsed, random_document, single
from utilities.errors import UserError


def asked(identity: str, text: str, start: int) -> dict[str, Any]:
    return {"id": identity, "question": "What?", "answers": [{"text": text, "answer_start": start}]}


FIRST = {"context": "a b", "qas": [{"id": "1", "question": "?", "answers": []}]}
OSLO = {"context": "Oslo is a city.", "qas": [asked("2", "Oslo", 0), asked("3", "city", 10)]}
NORWAY = {"title": "Norway", "paragraphs": [{"context": "x y", "qas": []}, OSLO]}
DOCUMENT: dict[str, Any] = {"version": "1.1", "data": [{"title": "First", "paragraphs": [FIRST]}, NORWAY]}
ARTICLE = ("data", 1)
PARAGRAPH = (*ARTICLE, "paragraphs", 1)
QUESTION = (*PARAGRAPH, "qas", 1)
ANSWER = (*QUESTION, "answers", 0)
MISSING = object()

WRONG = [
    (("data",), MISSING, "data is missing"),
    (("data",), [], "no questions"),
    ((*ARTICLE, "paragraphs"), MISSING, "data[1].paragraphs is missing"),
    ((*PARAGRAPH, "context"), " \n", "paragraphs[1].context is ' \\n'"),
    ((*PARAGRAPH, "context"), "half \ud83d", "paragraphs[1].context is 'half \\ud83d'"),
    ((*QUESTION, "id"), 2, "data[1].paragraphs[1].qas[1].id is '2', as data[1].paragraphs[1].qas[0].id is"),
    ((*QUESTION, "answers"), {"text": ["city"], "answer_start": []}, "but there are as many texts as positions"),
    ((*QUESTION, "is_impossible"), "maybe", "qas[1].is_impossible is 'maybe'"),
    ((*ANSWER, "text"), "", "answers[0].text is ''"),
    ((*ANSWER, "answer_start"), "ten", "answers[0].answer_start is 'ten'"),
    ((*ANSWER, "answer_start"), True, "answers[0].answer_start is True"),
    ((*ANSWER, "answer_start"), -2, "answers[0].answer_start is -2"),
]


@pytest.mark.parametrize(("path", "value", "part"), WRONG)
def test_a_broken_document_is_refused_with_its_place(path: tuple[Any, ...], value: Any, part: str) -> None:
    document = copy.deepcopy(DOCUMENT)
    target: Any = document
    for key in path[:-1]:
        target = target[key]
    if value is MISSING:
        del target[path[-1]]
    else:
        target[path[-1]] = value
    with pytest.raises(UserError) as caught:
        parsed(document)
    message = str(caught.value)
    assert message.startswith("test.json: ")
    assert "\n" not in message
    assert part in message, message
    assert "; " in message  # a fix follows


@pytest.mark.parametrize(
    ("content", "part"),
    [
        (b'{"data": [', "line 1 column 11"),
        (b"[" * 100_000, "not valid JSON"),
        (b'{"data": "\xff"}', "line 1: is not UTF-8"),
    ],
)
def test_a_file_that_is_not_a_data_set(tmp_path: Path, content: bytes, part: str) -> None:
    path = tmp_path / "train.json"
    path.write_bytes(content)
    with pytest.raises(UserError, match=r"train\.json") as caught:
        read_squad(path)
    assert part in str(caught.value)
    path.unlink()
    with pytest.raises(UserError, match=r"train\.json: cannot be read"):
        read_squad(path)


def test_everything_is_kept_in_order(tmp_path: Path) -> None:
    document = random_document(seed=5)
    path = tmp_path / "set.json"
    path.write_text(json.dumps(document), encoding="utf-8-sig")
    squad = read_squad(path)
    expected = [
        (article["title"], paragraph["context"], entry["id"], entry["question"])
        for article in document["data"]
        for paragraph in article["paragraphs"]
        for entry in paragraph["qas"]
    ]
    seen = [(squad.paragraphs[q.paragraph].title, squad.context(q), q.id, q.text) for q in squad.questions]
    assert seen == expected


def forms() -> dict[str, Any]:
    """Return the same three questions in the forms that people have."""
    context, other = "Oslo is a city of 1048 people.", "x y"
    answers = [{"text": "Oslo", "answer_start": 0}], [{"text": "1048", "answer_start": 18}]
    questions = [{"id": str(n + 7), "question": q, "answers": a} for n, (q, a) in enumerate(zip("ab", answers))]
    last = {"id": "9", "question": "c", "answers": []}
    paragraphs = [{"context": context, "qas": questions}, {"context": other, "qas": [last]}]
    tool = json.loads(json.dumps(paragraphs).replace('"7"', "7").replace('"1048"', "1048").replace("18}", '"18"}'))
    tool[0]["document_id"] = 12
    tool[0]["qas"][0].update(is_impossible=False)
    tool[0]["qas"][0]["answers"][0].update(answer_id=1, answer_category=None, answer_start=0.0)
    tool[1]["qas"][0].update(answers=None, is_impossible=None)
    lists = [{"text": [a[0]["text"]], "answer_start": [a[0]["answer_start"]]} for a in answers]
    rows = [{**q, "title": None, "context": context, "answers": a} for q, a in zip(questions, lists)]
    rows.append({**last, "context": other, "answers": {"text": [], "answer_start": []}})
    return {
        "official": {"data": [{"title": "untitled", "paragraphs": paragraphs}]},
        "annotation tool": {"data": [{"title": None, "paragraphs": tool}]},
        "paragraphs": paragraphs,
        "rows": {"version": "0.1", "data": rows},
        "list of rows": rows,
        "JSON Lines": "".join(json.dumps(row) + "\n" for row in rows),
    }


@pytest.mark.parametrize("form", forms())
def test_every_form_is_the_same_data_set(form: str, tmp_path: Path) -> None:
    content, path = forms()[form], tmp_path / "dev.json"
    path.write_text(content if isinstance(content, str) else json.dumps(content), encoding="utf-8")
    squad, official = read_squad(path), parsed(forms()["official"])
    is_of_rows = form in ("rows", "list of rows", "JSON Lines")  # Hugging Face marks impossible questions by no answers
    assert [question.is_impossible for question in squad.questions] == [False, False, is_of_rows]
    questions = [question._replace(is_impossible=False) for question in squad.questions]
    assert (squad.paragraphs, questions) == (official.paragraphs, official.questions)
    assert len(squad.questions) == 3 and squad.questions[1].answers == (Answer("1048", 18),)


@pytest.mark.parametrize("form", ["paragraphs", "list of rows"])
def test_one_line_is_json_lines_too(form: str, tmp_path: Path) -> None:
    path, first = tmp_path / "dev.jsonl", forms()[form][0]
    path.write_text(json.dumps(first) + "\n", encoding="utf-8")
    assert read_squad(path)[:2] == parsed([first])[:2]


def test_a_document_of_several_lines_is_not_taken_for_json_lines(tmp_path: Path) -> None:
    path = tmp_path / "dev.json"
    document = json.dumps(forms()["official"], indent=1)
    path.write_text(f"{document}\n\n", encoding="utf-8")
    assert len(read_squad(path).questions) == 3
    path.write_text(f"{document}\n}}\n", encoding="utf-8")
    with pytest.raises(UserError, match=r"dev\.json: is not valid JSON"):
        read_squad(path)
    path.write_text('{"id": 1, "id": 2}\n{}\n', encoding="utf-8")
    with pytest.raises(UserError, match=r"dev\.json: line 1: "):
        read_squad(path)


def test_places_of_other_forms_and_impossible_questions() -> None:
    rows = forms()["list of rows"]
    for row, place in ((0, "data[0].id"), (1, "data[1].answers[0].text")):
        broken = copy.deepcopy(rows)
        broken[row].update({"id": None} if row == 0 else {"answers": {"text": [""], "answer_start": [0]}})
        with pytest.raises(UserError, match=f"{re.escape(place)} is "):
            parsed(broken)
    rows[2].update(is_impossible=True, answers=[{"text": "", "answer_start": 0}])
    squad = parsed(rows)
    assert squad.impossible == 1 and squad.questions[2].answers == () and squad.questions[2].is_impossible


def test_rows_without_any_answers_are_questions_to_predict() -> None:
    rows = forms()["list of rows"]
    for number, impossible in ((2, [False, False, True]), (3, [False] * 3)):
        for row in rows[:number] if number == 3 else ():
            row["answers"] = {"text": [], "answer_start": []}
        squad = parsed(rows)
        assert [question.is_impossible for question in squad.questions] == impossible


def test_answers_may_lack_their_place_or_be_empty() -> None:
    """Some programs write -1 as the place of an answer that was not located, or of no answer."""
    rows = forms()["list of rows"]
    rows[0]["answers"] = {"text": ["a city", "people."], "answer_start": [-1, -1]}
    rows[2]["answers"] = {"text": [""], "answer_start": [-1]}
    squad = parsed(rows)
    context = squad.context(squad.questions[0])
    places = [answer_position(context, answer) for answer in squad.questions[0].answers]
    assert places == [context.index("a city"), context.index("people.")] and squad.questions[2].is_impossible
    assert answer_position("Oslo", Answer("o", -1)) == 3 and answer_position("Oslo", Answer("x", -1)) is None


@pytest.mark.parametrize("mark", [True, "true", 1])
def test_an_impossible_question_has_no_answers_however_it_is_marked(mark: Any) -> None:
    answers = [{"text": "Oslo", "answer_start": "-1"}]
    question = {"id": "1", "question": "a", "answers": answers}
    squad = parsed([{"context": "Oslo", "qas": [question, {**question, "id": "2", "is_impossible": mark}]}])
    assert [each.answers for each in squad.questions] == [(Answer("Oslo", -1),), ()]
    assert squad.impossible == 1


@pytest.mark.parametrize(("start", "position"), [(0, 0), (4, 0), (9, 14), (14, 14), (500, 14)])
def test_an_answer_has_the_nearest_position_of_its_text(start: int, position: int) -> None:
    assert answer_position("Oslo is what? Oslo", Answer("Oslo", start)) == position


def test_misaligned_answers_are_counted_and_named() -> None:
    squad = single("Oslo is a city", ("city", 3), ("Oslo", 0), ("Bergen", 0))
    alignment = check_alignment(squad)
    assert alignment == (3, ["q"], ["q"])
    assert len(alignment.notes()) == 2 and all("1 of 3" in note for note in alignment.notes())
    assert check_alignment(single("Oslo", ("Oslo", 0))).notes() == []


@pytest.mark.parametrize(
    ("name", "questions"), [("dev-v1.1.json", 10570), ("train-v1.1-prefix.json", 4370), ("xquad.zh.json", 1190)]
)
def test_real_files(name: str, questions: int) -> None:
    squad = read_squad(real_data("squad", name))
    assert len(squad.questions) == questions
    alignment = check_alignment(squad)
    marked = [(squad.context(q), a) for q in squad.questions for a in q.answers]
    disagree = sum(context[a.start : a.start + len(a.text)] != a.text for context, a in marked)
    assert len(alignment.moved) + len(alignment.absent) == disagree


RANDOM = random_document(6)


def rows() -> list[dict[str, Any]]:
    found = []
    for article in RANDOM["data"]:
        for paragraph in article["paragraphs"]:
            for entry in paragraph["qas"]:
                answers = {key: [answer[key] for answer in entry["answers"]] for key in ("text", "answer_start")}
                found.append({**entry, "title": article["title"], "context": paragraph["context"], "answers": answers})
    return found


def test_a_file_by_its_name_or_its_path(tmp_path: Path) -> None:
    path = tmp_path / "train-v1.1.json"
    path.write_text(json.dumps(RANDOM), encoding="utf-8")
    in_folder = open_squad(str(tmp_path), path.name, "squad", TRAIN)
    assert in_folder[:2] == parsed(RANDOM)[:2]
    assert open_squad("elsewhere", str(path), "squad", TRAIN) == in_folder


def test_without_network_or_library_the_fix_is_named(monkeypatch: pytest.MonkeyPatch) -> None:
    def load_dataset(*_: Any, **__: Any) -> None:
        raise ConnectionError("no route\nto host")

    monkeypatch.setitem(sys.modules, "datasets", SimpleNamespace(load_dataset=load_dataset))
    with pytest.raises(UserError, match=r"cannot get rajpurkar/squad \(ConnectionError: no route to host\)") as caught:
        open_squad(None, "dev-v1.1.json", "rajpurkar/squad", VALIDATION)
    assert "set dataset_dir to a folder with dev-v1.1.json" in str(caught.value)
    monkeypatch.setitem(sys.modules, "datasets", None)
    with pytest.raises(UserError, match=r"not installed.*dataset_dir.*dev-v1\.1\.json.*pip install -r requirements"):
        open_squad(None, "dev-v1.1.json", "rajpurkar/squad", VALIDATION)


def test_without_a_folder_the_library_is_used(tmp_path: Path) -> None:
    pytest.importorskip("datasets")
    path = tmp_path / "validation.jsonl"
    path.write_text("".join(json.dumps(row) + "\n" for row in rows()), encoding="utf-8")
    squad = open_squad(None, "dev-v1.1.json", str(tmp_path), VALIDATION)
    assert squad[:2] == parsed(RANDOM)[:2] and squad.origin == f"{tmp_path} (validation)"
    assert squad.sha256 == open_squad(None, "dev-v1.1.json", str(tmp_path), VALIDATION).sha256
