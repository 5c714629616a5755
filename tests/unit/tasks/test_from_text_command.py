"""The command line of ``run_from_text.py`` before anything is trained: what it finds, plans and refuses."""

from __future__ import annotations

import dataclasses
import gzip
import json
import logging
import random
import re
import shlex
import subprocess
import sys
import time
from pathlib import Path

import pytest
from transformers import BertTokenizerFast

from data_utils.records.manifest import VALIDATION_FOLDER, load_manifest
from data_utils.text.sources import source_from_options
from tasks.demo import main as demo
from tasks.from_text.blanks import Blank, held_out_blanks, whole_words
from tasks.from_text.command import Decision, decide, in_own_words, main, source_words, split
from tasks.from_text.folder import Folder
from tasks.from_text.inputs import Text, look_at_text
from tasks.from_text.judgement import commands, judge, read_result
from tasks.from_text.pace import Pace
from tasks.from_text.phases import Phase, phases
from tasks.from_text.steps import prepare
from tests import ROOT
from utilities.errors import UserError
from utilities.files import append_json_line

WORDS = "the cat of a farmer sat on the mat and looked at some of the birds in the old garden"


def prose(documents: int, sentences: int = 30) -> str:
    words = WORDS.split()
    lines = [
        f"{' '.join(words[(seed * 7 + place * 3) % len(words)] for place in range(12))}.".capitalize()
        for seed in range(documents * sentences)
    ]
    groups = [lines[start : start + sentences] for start in range(0, len(lines), sentences)]
    return "\n\n".join(f"Number {number} of all. {' '.join(group)}" for number, group in enumerate(groups)) + "\n"


@pytest.fixture
def text(tmp_path: Path) -> Path:
    path = tmp_path / "mine.txt"
    path.write_text(prose(40), encoding="utf-8")
    return path


def start(text: Path, *flags: str, hours: str = "0.5") -> int:
    arguments = ["--text", str(text), "--hours", hours, "--output-dir", str(text.parent / "runs"), *flags]
    return main(arguments, time.monotonic())


def refusal(capsys: pytest.CaptureFixture[str], text: Path, *flags: str, hours: str = "0.5") -> str:
    """Return the one line in which a command is refused, before it has written anything."""
    before = sorted(path for path in text.parent.rglob("*"))
    assert start(text, *flags, hours=hours) == 2
    lines = capsys.readouterr().err.splitlines()
    assert len(lines) == 1 and lines[0].startswith("error: ")
    assert sorted(path for path in text.parent.rglob("*")) == before
    return lines[0]


def test_a_plan_says_what_and_why_and_writes_nothing(text: Path, capsys: pytest.CaptureFixture[str]) -> None:
    assert start(text, "--plan") == 0
    printed = capsys.readouterr().out
    for word in ("text:", "machine:", "model", "vocabulary", "lengths", "held out", "passes", "--start-from"):
        assert word in printed
    assert re.search(r"text: +(.*) kB", printed)[1] == f"{text.stat().st_size / 1000:.1f}"
    assert list(text.parent.iterdir()) == [text]


def test_lines_of_other_trainings_in_the_process_are_shown_afterwards(text: Path) -> None:
    before = list(logging.getLogger("training.trainer").filters)
    assert start(text, "--plan") == 0 and logging.getLogger("training.trainer").filters == before


def test_a_plan_loads_no_tensorflow(text: Path) -> None:
    code = "import sys, tasks.from_text.command as c; c.main(sys.argv[1:], 0.0); print('tensorflow' in sys.modules)"
    command = [sys.executable, "-c", code, "--text", str(text), "--hours", "1", "--plan"]
    done = subprocess.run(command, cwd=ROOT, capture_output=True, text=True, check=True)
    assert done.stdout.splitlines()[-1] == "False"


@pytest.mark.parametrize(
    ("flags", "part"),
    [
        (["--total-num-train-samples", "100"], "--hours decides"),
        (["--max-seq-length", "64"], "--lengths"),
        (["--dataset-dir", "data"], "makes the data"),
        (["--pretrained-ckpt-path", "runs/a"], "--start-from"),
        (["--config", "a.json"], "--config"),
        (["--hidden-size-of-all", "3"], "unknown flag"),
        (["--lenghts", "32"], "--lenghts: unknown flag; did you mean --lengths?"),
        (["--lengths", "128", "32"], "the smaller one first"),
        (["--lengths", "32", "64", "128"], "one or two"),
        (["--start-from", "nowhere"], "no folder"),
        (["--name", "../mine"], r"--name ../mine: the run's folder has this name; use a name without / \ :"),
        (["--cased", "--keep-accents"], "--keep-accents"),
        (["--bert-config.vocab-size", "abc"], 'vocab_size = "abc" (command line): expected a whole number'),
        (["--bert-config", "none"], "this command chooses sizes"),
        (["--bert-config.vocab-size", "50"], "--bert-config.vocab-size 50: too small"),
    ],
)
def test_what_cannot_be_followed_is_refused(
    text: Path, capsys: pytest.CaptureFixture[str], flags: list[str], part: str
) -> None:
    assert part in refusal(capsys, text, *flags)


@pytest.mark.parametrize("hours", ["0", "-1", "nan", "1e9"])
def test_no_time_is_refused(text: Path, capsys: pytest.CaptureFixture[str], hours: str) -> None:
    assert "above 0" in refusal(capsys, text, hours=hours)


def test_no_text_and_empty_text_are_refused(text: Path, capsys: pytest.CaptureFixture[str]) -> None:
    empty = text.with_name("empty.txt")
    empty.write_text("\n \n", encoding="utf-8")
    assert "is empty" in refusal(capsys, empty)
    short = text.with_name("short.txt")
    short.write_text("Too short.\n\nAlso.\n", encoding="utf-8")
    assert "--min-characters 1" in refusal(capsys, short)
    assert "standard input" in refusal(capsys, Path("-"), "--output-dir", str(text.parent / "runs"))


def test_one_document_is_planned_unless_it_is_too_short(text: Path, capsys: pytest.CaptureFixture[str]) -> None:
    text.write_text(prose(1, sentences=100), encoding="utf-8")
    assert start(text, "--plan") == 0
    assert "of the text, for the loss at the end" in capsys.readouterr().out
    text.write_text(prose(1, sentences=10), encoding="utf-8")
    assert "the text is too short: " in refusal(capsys, text)
    text.write_text("\n\n".join([prose(1, sentences=10)] * 50), encoding="utf-8")  # copies are on one side
    assert "the text is too short: " in refusal(capsys, text)


def test_a_name_that_is_taken_is_refused(text: Path, capsys: pytest.CaptureFixture[str]) -> None:
    taken = text.parent / "runs" / "mine"
    taken.mkdir(parents=True)
    (taken / "notes.txt").write_text("keep", encoding="utf-8")
    assert "another --name" in refusal(capsys, text)


def begin(text: Path, *flags: str) -> Decision:
    """Decide as the command does, which writes the plan."""
    words = ["--text", str(text), "--hours", "0.5", "--output-dir", str(text.parent / "runs"), *flags]
    options, others, _ = split(words)
    return decide(options, others, time.monotonic())


def pace_of(decision: Decision) -> Pace:
    known = {"updates": {"32": 10, "128": 20}, "planned": 30, "hours": 0.5, "changes": []}
    (decision.folder.path / "updates.json").write_text(json.dumps(known), encoding="utf-8")
    trainings = phases(decision.folder, decision.recipe, {}, 1024)
    return Pace(decision.folder, decision.recipe, trainings, 5.0, 0.5)


def test_the_same_command_has_the_same_plan_and_another_one_is_refused(
    text: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    first = begin(text, "--seed", "3")
    assert begin(text, "--seed", "3").recipe == first.recipe
    assert "hours changed" in refusal(capsys, text, "--seed", "3", hours="0.4")
    assert "flags changed" in refusal(capsys, text, "--seed", "4")
    assert "lengths changed" in refusal(capsys, text, "--seed", "3", "--lengths", "128")
    text.write_text(prose(41), encoding="utf-8")
    assert "the text has changed" in refusal(capsys, text, "--seed", "3")
    assert "the text has changed" in refusal(capsys, text, "--seed", "3", "--plan")


def test_a_plan_of_a_command_that_has_begun_is_its_own(text: Path, capsys: pytest.CaptureFixture[str]) -> None:
    path = begin(text).folder.path / "plan.json"
    plan = json.loads(path.read_text(encoding="utf-8"))
    plan["recipe"]["choices"] = [{"name": "model", "value": "2 × 320", "reason": "of the timing"}]
    path.write_text(json.dumps(plan), encoding="utf-8")
    assert start(text, "--plan") == 0
    assert "2 × 320" in capsys.readouterr().out


def test_what_the_command_writes_into_the_folder_of_the_text_is_no_text(text: Path) -> None:
    words = "--output-dir", str(text.parent / "runs"), "--name", "mine"
    first = begin(text.parent, *words)
    for name in ("model", "32/checkpoints/10"):
        (first.folder.path / name).mkdir(parents=True)
        (first.folder.path / name / "vocab.txt").write_text("[PAD]\n", encoding="utf-8")
    assert begin(text.parent, *words).identity == first.identity


def test_the_demo_says_that_its_text_is_there(
    tmp_path: Path, capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    folder = tmp_path / "two words"
    folder.mkdir()
    (folder / "demo.txt").write_text(prose(40), encoding="utf-8")
    monkeypatch.setattr("tasks.demo.run_from_text", lambda *_: 0)
    assert demo(["--output-dir", str(folder), "--words", "500"]) == 0
    said, command = capsys.readouterr().out.strip().splitlines()
    assert "demo.txt: is there already, so that --words has no effect" in said
    assert str(folder / "demo.txt") in shlex.split(command)
    assert demo(["--output-dir", str(folder)]) == 0
    assert "--words" not in capsys.readouterr().out


@pytest.mark.parametrize(
    "flags", [["--min-characters", "0"], ["--min-characters", "7", "--join-lines"], ["--document-per-line", "--cased"]]
)
def test_the_preparation_has_the_options_of_the_text(text: Path, flags: list[str]) -> None:
    options, _, _ = split(["--text", str(text), "--hours", "1", "--workers", "3", *flags])
    words = source_words(options)
    assert words[:2] == ["--text", str(text)]
    assert sorted(words[2:]) == sorted([*flags, "--workers", "3"])


def test_advice_names_options_of_this_command() -> None:
    message = "7 documents cannot be used, more than --max-bad-articles 5 allows; the first: a"
    assert in_own_words(message) == "7 documents cannot be used, more than 5; the first: a"


def test_another_machine_keeps_the_plan_and_says_so(text: Path, capsys: pytest.CaptureFixture[str]) -> None:
    first = begin(text)
    path = first.folder.path / "plan.json"
    plan = json.loads(path.read_text(encoding="utf-8"))
    plan["inputs"]["machine"] = "64 cores"
    plan["recipe"]["precision"], plan["recipe"]["hidden"] = "float32", 320
    path.write_text(json.dumps(plan), encoding="utf-8")
    second = begin(text)
    assert "64 cores" in capsys.readouterr().out
    assert (second.recipe.precision, second.recipe.hidden) == ("float32", 320)


def test_a_damaged_plan_is_refused(text: Path, capsys: pytest.CaptureFixture[str]) -> None:
    path = begin(text).folder.path / "plan.json"
    whole = json.loads(path.read_text(encoding="utf-8"))
    del whole["recipe"]["hidden"]
    path.write_text(json.dumps(whole), encoding="utf-8")
    assert "another --name" in refusal(capsys, text)
    path.write_text("{", encoding="utf-8")
    assert "another --name" in refusal(capsys, text)


def test_a_result_is_shown_although_its_page_cannot_be_written(
    text: Path, capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    decision = begin(text)
    folder, recipe = decision.folder, decision.recipe
    nothing: dict[str, object] = dict.fromkeys(("loss", "right", "bits_per_byte", "unknown", "expected"))
    lists: dict[str, object] = {
        name: [] for name in ("baselines", "forecasts", "blanks", "advice", "choices", "commands")
    }
    maps: dict[str, object] = {name: {} for name in ("samples_per_second", "curves", "reports")}
    inputs = {"inputs": {"text": "", "machine": ""}, "seconds": {"a": 9.0}, "hours": 1.0, "name": "mine"}
    folder.write("result.json", {**nothing, **lists, **maps, **inputs})
    (folder.path / "index.html").mkdir()  # nothing can be written there
    judge(folder, recipe, pace_of(decision), 1.0, {}, read_result, commands)
    printed = capsys.readouterr()
    assert "what came out" in printed.out and printed.err.startswith("no page: ")


def test_several_files_have_the_name_of_their_folder(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    folder = tmp_path / "letters"
    folder.mkdir()
    for number in range(3):
        (folder / f"doc_{number}.txt").write_text(prose(10), encoding="utf-8")
    files = [str(path) for path in folder.iterdir()]
    assert main(["--text", *files, "--hours", "1", "--plan"], time.monotonic()) == 0
    printed = capsys.readouterr().out
    assert printed.splitlines()[-1] == "folder:  runs/letters" and "30 documents in 3 files" in printed


@pytest.mark.parametrize(
    ("flags", "part"),
    [
        (["--optimizer-opts.name", "Adam"], "optimizer_opts.name"),
        (["--bert-config.hidden-size", "100", "--bert-config.num-attention-heads", "3"], "divide"),
        (["--bert-config.max-position-embeddings", "64"], "--lengths"),
        (["--start-from", str(ROOT / "configs")], "no weights"),
    ],
)
@pytest.mark.parametrize("plan", [[], ["--plan"]])
def test_what_the_trainings_would_refuse_is_refused_before_any_work(
    text: Path, capsys: pytest.CaptureFixture[str], flags: list[str], part: str, plan: list[str]
) -> None:
    line = refusal(capsys, text, *flags, *plan)
    assert part in line and "max-seq-length" not in line
    assert "(config)" not in line and "--vocab-size" not in line  # there is no config, and no such option


@pytest.mark.parametrize(("width", "heads"), [(256, 4), (96, 1), (100, 1), (130, 2), (192, 3)])
def test_other_widths_follow_from_the_one_that_is_given(text: Path, width: int, heads: int) -> None:
    given = {"bert_config.hidden_size": width}
    decision = begin(text, "--bert-config.hidden-size", str(width))
    for phase in phases(decision.folder, decision.recipe, given, 1_000):
        sizes = phase.config["bert_config"]
        assert (sizes["hidden_size"], sizes["num_attention_heads"]) == (width, heads)
        assert sizes["intermediate_size"] == 4 * width


def test_blanks_are_whole_words_of_running_text_that_fits(text: Path) -> None:
    decision = begin(text, "--workers", "1", "--lengths", "16")
    lines = ["Hassium", "the cat of a five sat on the mat", "word " * 9, "x" * 50]
    recipe = dataclasses.replace(decision.recipe, held_out=0.3)
    prepare(decision.folder, recipe, ["--text", str(text), "--workers", "1"])
    data = decision.folder.path / "data" / "16"
    (data / "validation" / "corpus" / "sentences_000.txt").write_text("\n".join(lines) + "\n", encoding="utf-8")
    vocabulary = (data / "vocab.txt").read_text(encoding="utf-8").split("\n")
    vocabulary[-4:-1] = ["fi", "##ve", "word"]
    (data / "vocab.txt").write_text("\n".join(vocabulary), encoding="utf-8")
    tokens = BertTokenizerFast(str(data / "vocab.txt"))
    fitting = [line for line in lines if len(tokens(line)["input_ids"]) <= 16]
    found = held_out_blanks(data)
    assert [blank.text.replace("[MASK]", blank.word) for blank in found] == [
        line.strip() for line in fitting if len(line.split()) > 5
    ]
    assert all(f" {blank.word} " in f" {blank.text.replace('[MASK]', blank.word)} " for blank in found)
    assert [(blank.word, blank.pieces) for blank in found] == [("five", 2), ("word", 1)]


def test_a_word_of_several_pieces_is_filled_in_from_left_to_right() -> None:
    asked: list[str] = []
    known = {  # what fills the first blank of each sentence, and the next one, which is not read
        "a [MASK] [MASK] day": [(1, "##s", 0.4), (1, ",", 0.3), (1, "sun", 0.2), (1, "fog", 0.1), (2, "of", 0.9)],
        "a sun [MASK] day": [(1, "day", 0.5), (1, "##ny", 0.3), (1, "##s", 0.1)],
        "a fog [MASK] day": [(1, "##gy", 0.9)],
    }

    def ask(texts: list[str]) -> list[list[tuple[int, str, float]]]:
        asked.extend(texts)
        return [known[text] for text in texts]

    words = whole_words(Blank("a [MASK] day", "sunny", 2), ask)
    assert [word for word, _ in words] == ["foggy", "sunny", "suns"] and asked == list(known)
    assert [share for _, share in words] == pytest.approx([0.1 * 0.9, 0.2 * 0.3, 0.2 * 0.1])


def test_damaged_files_of_the_folder_are_refused(text: Path) -> None:
    decision = begin(text)
    folder, recipe, pace = decision.folder, decision.recipe, pace_of(decision)
    for content in ("{", '{"updates": {"32": "x", "128": 1}}', '{"updates": {"32": 1, "128": 1}}'):
        (folder.path / "updates.json").write_text(content, encoding="utf-8")
        with pytest.raises(UserError, match=r"updates\.json.*; delete it and repeat the command"):
            Pace(folder, recipe, [Phase(str(length), {}) for length in recipe.lengths], 5.0, 1.0)
    for content in ('{"seconds": {"a": "x"}}', '{"seconds": {}, "hours": 0}'):
        (folder.path / "result.json").write_text(content, encoding="utf-8")
        with pytest.raises(UserError, match=r"result\.json.*; delete it and repeat the command"):
            judge(folder, recipe, pace, 1.0, decision.inputs, read_result, commands)


def test_what_was_worked_is_added_up(tmp_path: Path) -> None:
    folder = Folder(tmp_path, time.monotonic())
    for step, seconds in (("a", 2.0), ("b", 3.0), ("a", 1.5)):
        append_json_line(folder.path / "times.jsonl", {"step": step, "seconds": seconds})
    with open(folder.path / "times.jsonl", "a", encoding="utf-8") as file:
        file.write('{"step": "a"}\n{"step": 1, "seconds": 2}\n[]\n{"step": "b", "seconds": "x"}\n{"st')
    assert folder.seconds() == {"a": 3.5, "b": 3.0}


def test_of_a_part_of_the_text_rows_of_both_lengths_are_made(text: Path) -> None:
    decision = begin(text, "--workers", "1")
    recipe = dataclasses.replace(decision.recipe, documents_share=0.5, held_out=0.2)
    prepare(decision.folder, recipe, ["--text", str(text), "--workers", "1"])
    for length in (32, 128):
        data = decision.folder.path / "data" / str(length)
        manifests = [load_manifest(folder) for folder in (data, data / VALIDATION_FOLDER)]
        corpus = json.loads((decision.folder.path / "data" / "128" / "corpus" / "corpus.json").read_text())
        assert corpus["documents"] == 20
        sentences = [manifest.totals["sentences"] for manifest in manifests if manifest is not None]
        assert sum(sentences) == corpus["sentences"] and sentences[1] == pytest.approx(0.2 * sum(sentences), rel=0.2)


def text_of(text: Path) -> Text:
    options = split(["--text", str(text), "--hours", "1"])[0]
    options.output = text.parent / "runs"
    return look_at_text(source_from_options(options, options.output), min_characters=1)


def test_facts_of_a_text(text: Path) -> None:
    content = prose(40)
    found = text_of(text)
    assert found.megabytes == pytest.approx(len(content.encode()) / 1e6, rel=0.01)
    assert (found.words, found.documents, found.script) == (len(content.split()), 40, "LATIN")
    assert found.is_whole and not found.is_code and found.repeated == 0


def test_repeated_documents_are_counted(text: Path) -> None:
    text.write_text(prose(30) + "\n" + prose(10), encoding="utf-8")
    assert text_of(text).repeated == pytest.approx(10 / 40)


def test_a_long_or_compressed_text_is_estimated_from_its_beginning(text: Path) -> None:
    chance = random.Random(1)
    words = ["".join(chance.choices("abcdefghijklmnop", k=6)) for _ in range(500_000)]
    text.write_text("\n\n".join(" ".join(words[at : at + 100]) for at in range(0, len(words), 100)), encoding="utf-8")
    found, size = text_of(text), text.stat().st_size
    assert not found.is_whole and found.megabytes == pytest.approx(size / 1e6, rel=0.05)
    packed = text.with_suffix(".txt.gz")
    packed.write_bytes(gzip.compress(text.read_bytes()))
    assert text_of(packed).megabytes == pytest.approx(size / 1e6, rel=0.3)


def test_scripts_and_code_are_told_apart(text: Path) -> None:
    text.write_text("猫坐在垫子上。\n\n狗在花园里。\n", encoding="utf-8")
    found = text_of(text)
    assert (found.script, found.words) == ("CJK", 13)
    text.write_text("\n\n".join(path.read_text(encoding="utf-8") for path in (ROOT / "tasks").glob("*.py")), "utf-8")
    assert text_of(text).is_code
