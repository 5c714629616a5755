"""Small hand-made files in the layout of every benchmark task."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

GLUE_FOLDERS = {
    "cola": "CoLA", "mnli": "MNLI", "mrpc": "MRPC", "qnli": "QNLI", "qqp": "QQP", "rte": "RTE", "sst2": "SST-2",
    "stsb": "STS-B", "wnli": "WNLI",
}  # fmt: skip
MNLI_PARSES = ["(p1)", "(p2)", "(p3)", "(p4)"]
MNLI_START = [
    "index", "promptID", "pairID", "genre", "sentence1_binary_parse", "sentence2_binary_parse", "sentence1_parse",
    "sentence2_parse", "sentence1", "sentence2",
]  # fmt: skip
STSB_START = ["index", "genre", "filename", "year", "old_index", "source1", "source2", "sentence1", "sentence2"]
MRPC_START = ["#1 ID", "#2 ID", "#1 String", "#2 String"]


def write_tsv(path: Path, rows: list[list[Any]], bom: bool = False) -> None:
    path.parent.mkdir(parents=True, exist_ok=True)
    text = "".join("\t".join(map(str, row)) + "\n" for row in rows)
    path.write_text(text, encoding="utf-8-sig" if bom else "utf-8")


def write_json_lines(path: Path, rows: list[dict[str, Any]]) -> None:
    path.parent.mkdir(parents=True, exist_ok=True)
    path.write_text("".join(json.dumps(row, ensure_ascii=False) + "\n" for row in rows), encoding="utf-8")


def write_glue(root: Path, task: str) -> Path:
    """Write the files of a GLUE task: 2 training, 2 validation and 2 test samples, some with quotation marks."""
    folder = root / GLUE_FOLDERS[task]
    GLUE_WRITERS.get(task, _simple_pairs(task))(folder)
    return folder


def _cola(folder: Path) -> None:
    rows = [["gj04", "1", "", 'She said "yes.'], ["cj99", "0", "*", "The more would you want."]]
    write_tsv(folder / "train.tsv", rows)
    write_tsv(folder / "dev.tsv", rows[::-1])
    write_tsv(folder / "test.tsv", [["index", "sentence"], ["0", "Bill whistled."], ["1", '"Odd quote']])


def _sst2(folder: Path) -> None:
    rows = [["sentence", "label"], ['a "charming journey ', "1"], ["bleak and desperate ", "0"]]
    write_tsv(folder / "train.tsv", rows)
    write_tsv(folder / "dev.tsv", [rows[0], rows[2], rows[1]])
    write_tsv(folder / "test.tsv", [["index", "sentence"], ["0", "uneasy mishmash"], ["1", "great ."]])


def _mrpc(folder: Path) -> None:
    header = ["Quality", *MRPC_START]
    rows = [["1", "11", "12", 'He said "so.', "So he said."], ["0", "21", "22", "Cats sleep.", "Dogs bark."]]
    write_tsv(folder / "train.tsv", [header, *rows], bom=True)
    write_tsv(folder / "dev.tsv", [header, *rows[::-1]], bom=True)
    test = [["index", *MRPC_START], ["0", "31", "32", "A b.", "C d."], ["1", "41", "42", "E f.", "G h."]]
    write_tsv(folder / "test.tsv", test)


def _qqp(folder: Path) -> None:
    header = ["id", "qid1", "qid2", "question1", "question2", "is_duplicate"]
    rows = [["7", "1", "2", "How old is he?", "What is his age?", "1"], ["8", "3", "4", "Why?", "When?", "0"]]
    broken = [["9", "5", "6", 'What is "this'], ['line?"', "And this?", "0"]]
    write_tsv(folder / "train.tsv", [header, rows[0], *broken, rows[1]])
    write_tsv(folder / "dev.tsv", [header, *rows[::-1]])
    test = [["id", "question1", "question2"], ["0", "Who?", "Which one?"], ["1", "Where?", "At what place?"]]
    write_tsv(folder / "test.tsv", test)


def _stsb(folder: Path) -> None:
    def row(number: int, first: str, second: str, *score: str) -> list[str]:
        return [str(number), "news", "file", "2015", "0001", "none", "none", first, second, *score]

    header = [*STSB_START, "score"]
    rows = [row(0, "A plane.", "An air plane.", "5.000"), row(1, "A man.", "A cat.", "0.250")]
    write_tsv(folder / "train.tsv", [header, *rows])
    write_tsv(folder / "dev.tsv", [header, *rows[::-1]])
    write_tsv(folder / "test.tsv", [STSB_START, row(0, "A girl.", "A woman."), row(1, "Rain.", "Sun.")])


def _mnli(folder: Path) -> None:
    def row(number: int, first: str, second: str, *labels: str) -> list[str]:
        return [str(number), "1", f"{number}e", "fiction", *MNLI_PARSES, first, second, *labels]

    train = [row(0, "It rains.", "It is wet.", "neutral", "neutral"), row(1, "He ran.", "He moved.", "x", "entailment")]
    write_tsv(folder / "train.tsv", [[*MNLI_START, "label1", "gold_label"], *train])
    header = [*MNLI_START, *(f"label{n}" for n in range(1, 6)), "gold_label"]
    five = ["neutral"] * 5
    matched = [row(0, "Up.", "Down.", *five, "contradiction"), row(1, "Yes.", "Yes.", *five, "entailment")]
    undecided = row(2, "Maybe.", "Perhaps.", *five, "-")
    write_tsv(folder / "dev_matched.tsv", [header, *matched, undecided])
    write_tsv(folder / "dev_mismatched.tsv", [header, *matched[::-1]])
    test = [row(0, "One.", "Two."), row(1, "Three.", "Four.")]
    write_tsv(folder / "test_matched.tsv", [MNLI_START, *test])
    write_tsv(folder / "test_mismatched.tsv", [MNLI_START, *test[::-1]])


def _simple_pairs(task: str):
    names = ["question", "sentence"] if task == "qnli" else ["sentence1", "sentence2"]
    right, wrong = ("1", "0") if task == "wnli" else ("entailment", "not_entailment")

    def write(folder: Path) -> None:
        header = ["index", *names, "label"]
        rows = [["0", "It rained.", "It was wet.", right], ["1", "It rained.", "It was dry.", wrong]]
        write_tsv(folder / "train.tsv", [header, *rows])
        write_tsv(folder / "dev.tsv", [header, *rows[::-1]])
        write_tsv(folder / "test.tsv", [header[:-1], ["0", "He sang.", "He slept."], ["1", "He slept.", "He sang."]])

    return write


GLUE_WRITERS = {"cola": _cola, "sst2": _sst2, "mrpc": _mrpc, "qqp": _qqp, "stsb": _stsb, "mnli": _mnli}

CLUE_ROWS: dict[str, list[dict[str, Any]]] = {
    "afqmc": [
        {"sentence1": "双十一花呗提额在哪", "sentence2": "里可以提花呗额度", "label": "0"},
        {"sentence1": "花呗支持高铁票吗", "sentence2": "为什么不支持花呗付款", "label": "1"},
    ],
    "tnews": [
        {"label": "102", "label_desc": "news_entertainment", "sentence": "江疏影甜甜圈自拍", "keywords": "江疏影"},
        {"label": 110, "label_desc": "news_military", "sentence": "以色列大规模空袭", "keywords": ""},
    ],
    "iflytek": [
        {"label": "110", "label_des": "社区超市", "sentence": "朴朴快送超市创立于2016年"},
        {"label": 0, "label_des": "打车", "sentence": "滴滴出行"},
    ],
    "cmnli": [
        {"sentence1": "新的权利已经足够好了", "sentence2": "每个人都喜欢", "label": "neutral"},
        {"sentence1": "他们不知道", "sentence2": "他们不确定", "label": "entailment"},
        {"sentence1": "不清楚", "sentence2": "不明白", "label": "-"},
    ],
    "wsc": [
        {
            "target": {"span2_index": 37, "span1_index": 5, "span1_text": "床", "span2_text": "它"},
            "idx": 261, "label": "false",
            "text": "这时候放在床上枕头旁边的手机响了，我感到奇怪，因为欠费已被停机两个月，现在它突然响了。",
        },
        {
            "target": {"span2_index": 0, "span1_index": 3, "span1_text": "手机", "span2_text": "它"},
            "idx": 262, "label": "true", "text": "它是我手机。",
        },
    ],
    "csl": [
        {"id": 1, "abst": "为解决传统均匀FFT波束形成算法", "keyword": ["水声学", "FFT", "波束形成"], "label": "1"},
        {"id": 2, "abst": "提出一种协议", "keyword": ["协议"], "label": "0"},
    ],
}  # fmt: skip


def write_clue(root: Path, task: str) -> Path:
    """Write the files of a CLUE task in its archive's folder."""
    folder = root / f"{'cluewsc2020' if task == 'wsc' else task}_public"
    rows = CLUE_ROWS[task]
    write_json_lines(folder / "train.json", rows)
    write_json_lines(folder / "dev.json", rows[::-1])
    hidden = ("label", "label_desc", "label_des", "id", "idx")
    bare = [{key: value for key, value in row.items() if key not in hidden} for row in rows]
    write_json_lines(folder / "test.json", [{"id": number, **row} for number, row in enumerate(bare)])
    return folder
