"""``run_squad.py`` from files to scores: training on packs of windows, evaluation alone, and refusals."""

from __future__ import annotations

import functools
import json
import re
from pathlib import Path

import pytest

from data_utils.squad.__main__ import main as score_command
from tasks.classify import main as classify
from tests.support.fine_tuning_runs import write_config, write_squad_with_names
from tests.support.runs import SMALL, read_json, read_lines, run_command, write_csv, write_json

pytestmark = pytest.mark.slow

run = functools.partial(run_command, "squad", status=0)

PACKED = ["--packing.max-sequences-per-pack", "4"]
OUTPUTS = {"predictions.json", "nbest_predictions.json", "predictions.html", "scores.json", "report.html"}


@pytest.fixture(scope="module")
def data(tmp_path_factory: pytest.TempPathFactory) -> Path:
    folder = tmp_path_factory.mktemp("squad")
    write_squad_with_names(folder)
    return folder


@pytest.fixture(scope="module")
def config(data: Path) -> Path:
    sizes = {**SMALL, "vocab_size": 200, "max_position_embeddings": 80, "initializer_range": 0.1}
    return write_config(
        data,
        "squad_tiny",
        bert_config={**sizes, "hidden_dropout_prob": 0.0, "attention_probs_dropout_prob": 0.0},
        max_seq_length=80,
        squad={"doc_stride": 24, "max_query_length": 12, "n_best_size": 5, "max_answer_length": 4},
        global_batch={"micro_batch_size": 16, "grad_acc_steps_per_replica": 1},
        num_epochs=8,
        optimizer_opts={"name": "AdamW", "learning_rate": {"max_learning_rate": 0.005, "warmup_frac": 0.1}},
        global_batches_per_log=50,
        evaluation_batch_size=7,
    )


@pytest.fixture(scope="module")
def trained(config: Path, data: Path) -> tuple[Path, str]:
    """The run's folder and its output. Windows are trained in packs; ``test_every_task.py`` trains single ones."""
    done = run(config, *PACKED, "--global-batch.micro-batch-size", "8")
    return data / "runs" / "squad_tiny", done.output + done.errors


@pytest.fixture(scope="module")
def questions(data: Path) -> list[dict[str, str]]:
    return [
        {"id": entry["id"], "question": entry["question"], "context": paragraph["context"]}
        for item in read_json(data / "dev-v1.1.json")["data"]
        for paragraph in item["paragraphs"]
        for entry in paragraph["qas"]
    ]


def test_version_2_learns_which_questions_have_no_answer(
    config: Path, data: Path, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    for name in ("train-v1.1.json", "dev-v1.1.json"):
        document = read_json(data / name)
        for article in document["data"]:
            for paragraph in article["paragraphs"]:
                for entry in paragraph["qas"][1::2]:
                    entry.update(question="nobody?", answers=[], is_impossible=True)
                paragraph["qas"] = [{**entry, "id": f"{entry['id']}!"} for entry in paragraph["qas"]]
        write_json(tmp_path / name, document)
    flags = ["--dataset-dir", str(tmp_path), "--output-dir", str(tmp_path / "runs"), "--name", "second"]
    assert "set squad.no_answer_threshold to 0" in run_command("squad", config, *flags, status=2).error
    run(config, *PACKED, *flags, "--squad.no-answer-threshold", "0")
    folder = tmp_path / "runs" / "second"
    scores, predictions = read_json(folder / "scores.json"), read_json(folder / "predictions.json")
    assert scores["NoAns_f1"] > 90 and scores["best_f1"] >= scores["f1"] > 50
    assert set(read_json(folder / "null_odds.json")) == set(predictions) and "" in predictions.values()
    capsys.readouterr()
    assert score_command([str(tmp_path / "dev-v1.1.json"), str(folder / "predictions.json")]) == 0
    assert json.loads(capsys.readouterr().out)["f1"] == pytest.approx(scores["f1"])
    document = read_json(tmp_path / "dev-v1.1.json")  # impossible questions alone are scored, too
    for paragraph in (each for article in document["data"] for each in article["paragraphs"]):
        paragraph["qas"] = [entry for entry in paragraph["qas"] if entry.get("is_impossible")]
    write_json(tmp_path / "dev-v1.1.json", document)
    again = ["--name", "impossible", "--do-training", "false", "--pretrained-ckpt-path", str(folder)]
    run(config, *flags[:4], *again, "--squad.no-answer-threshold", "0")
    alone = read_json(tmp_path / "runs" / "impossible" / "scores.json")
    answered = read_json(tmp_path / "runs" / "impossible" / "predictions.json").values()
    share = 100 * sum(text == "" for text in answered) / len(answered)
    assert {alone[name] for name in ("f1", "exact_match", "NoAns_f1", "NoAns_exact_match")} == {share} and share > 90
    capsys.readouterr()
    assert classify(["--checkpoint", str(folder), "nobody?", "anna lives in oslo"]) == 0
    assert "no answer" in capsys.readouterr().out


def test_questions_of_a_table_get_the_answers_of_the_evaluation(
    trained: tuple[Path, str], questions: list[dict[str, str]], tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    assert max(len(row["context"].split()) for row in questions) > 70  # several windows
    table = write_csv(tmp_path / "questions.csv", list(questions[0]), [list(row.values()) for row in questions])
    files = ["--file", str(table), "--output", str(tmp_path / "answers.jsonl")]
    assert classify(["--checkpoint", str(trained[0]), *files]) == 0
    result = read_lines(tmp_path / "answers.jsonl")
    assert [{name: row[name] for name in questions[0]} for row in result] == questions
    assert {row["id"]: row["answer"] for row in result} == read_json(trained[0] / "predictions.json")
    best = read_json(trained[0] / "nbest_predictions.json")
    for row in result:
        assert row["probability"] == pytest.approx(best[row["id"]][0]["probability"], abs=1e-5)
    capsys.readouterr()
    assert classify(["--checkpoint", str(trained[0]), questions[0]["question"], questions[0]["context"]]) == 0
    lines = capsys.readouterr().out.splitlines()
    assert [line.split("%  ")[1] for line in lines] == [each["text"] for each in best[questions[0]["id"]]]
    assert classify(["--checkpoint", str(trained[0]), "a question alone"]) == 2
    assert "SQuAD takes 2 texts" in capsys.readouterr().err


def printed(output: str, name: str) -> float:
    return float(re.findall(rf"{name}: *(\d*\.\d*)", output)[-1])


def test_it_learns_and_answers_every_question(trained: tuple[Path, str], questions: list[dict[str, str]]) -> None:
    folder, output = trained
    assert {path.name for path in folder.iterdir()} >= OUTPUTS
    predictions = read_json(folder / "predictions.json")
    contexts = {row["id"]: row["context"] for row in questions}
    assert predictions.keys() == contexts.keys()
    assert all(text and text in contexts[identity] for identity, text in predictions.items())
    assert printed(output, "exact_match") > 80  # one of about 55 words is right by chance
    assert printed(output, "f1") >= printed(output, "exact_match")


def test_the_scores_are_those_of_the_predictions(
    trained: tuple[Path, str], data: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    folder, output = trained
    scores = read_json(folder / "scores.json")
    assert score_command([str(data / "dev-v1.1.json"), str(folder / "predictions.json")]) == 0
    assert json.loads(capsys.readouterr().out) == scores
    for name, value in scores.items():
        assert printed(output, name) == pytest.approx(value, abs=1e-4)


def test_the_report_knows_the_data(trained: tuple[Path, str]) -> None:
    folder, output = trained
    description = read_json(folder / "dataset.json")
    assert description["questions"] == 240
    assert description["contexts"] == 120
    assert description["questions_left_out"] == 0
    assert description["windows"] > 240  # long contexts have several
    assert description["records"] < description["windows"] / 1.1  # packs
    assert description["lower_case"] is True
    assert "uniform baseline, ln(80 tokens)" in output


def test_an_evaluation_of_single_windows_gives_the_same_answers(
    trained: tuple[Path, str], config: Path, data: Path
) -> None:
    folder, _ = trained
    evaluation = ["--do-training", "false", "--pretrained-ckpt-path", str(folder), "--evaluation-batch-size", "5"]
    again = data / "runs" / "again"
    run(config, *evaluation, "--vocab-file", "none", "--name", again.name)  # the vocabulary is stored with the weights
    for output in ("predictions.json", "scores.json"):
        assert (again / output).read_text(encoding="utf-8") == (folder / output).read_text(encoding="utf-8")
    assert not (again / "checkpoints").exists()


def test_questions_without_answers_cannot_be_scored_while_training(config: Path, data: Path, tmp_path: Path) -> None:
    content = read_json(data / "dev-v1.1.json")
    for paragraph in (paragraph for article in content["data"] for paragraph in article["paragraphs"]):
        for question in paragraph["qas"]:
            question["answers"] = []
    flags = ("--squad.dev-file", str(write_json(tmp_path / "unanswered.json", content)), "--name", "unanswered")
    assert (
        "unanswered.json has answers to compare with" in run(config, *flags, "--evaluation.every", "1", status=2).error
    )
    assert not (data / "runs" / "unanswered").exists()


def test_a_missing_vocabulary_is_one_line(config: Path) -> None:
    assert "vocab_file is not set" in run(config, "--vocab-file", "none", status=2).error
