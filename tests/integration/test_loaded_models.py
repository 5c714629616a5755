"""A loaded model answers several threads at once, and takes texts of its own length."""

from __future__ import annotations

import random
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from typing import Any

import pytest
from scipy.special import softmax

from keras_extensions.backend import tf
from model.huggingface import transformers
from tasks import load
from tasks.classify import main as classify
from tests.support.checkpoint_writers import safetensors
from tests.support.fine_tuning_runs import BAD, FILLING, GOOD, PIECES, write_pieces
from tests.support.hf_models import hugging_face
from tests.support.runs import read_json, write_json
from utilities.errors import UserError

POSITIONS = 200


def written(folder: Path, task: str, **settings: Any) -> Any:
    """Write the folder of a released model, and return Hugging Face's model."""
    model = hugging_face(task, vocab_size=len(PIECES), max_position_embeddings=POSITIONS)
    safetensors(model, folder)
    write_pieces(folder / "vocab.txt", PIECES)
    write_json(folder / "tokenizer_config.json", {"do_lower_case": True, **settings})
    return model


def ids_of(text: str) -> list[int]:
    return [PIECES.index(token) for token in ("[CLS]", *text.split(), "[SEP]")]


def probabilities(model: Any, ids: list[int]) -> list[float]:
    """Return Hugging Face's probabilities of the classes."""
    return softmax(model(tf.constant([ids])).logits.numpy()[0]).tolist()


def long_text(words: int) -> str:
    return " ".join(random.Random(words).choices([*GOOD, *BAD, *FILLING], k=words))


@pytest.mark.parametrize(("settings", "longest"), [({}, POSITIONS), ({"model_max_length": 150}, 150)])
def test_a_released_model_takes_texts_of_its_own_length(
    settings: dict[str, Any], longest: int, tmp_path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    theirs, text = written(tmp_path, "classification", **settings), long_text(longest - 2)
    model = load(str(tmp_path))
    expected = probabilities(theirs, ids_of(text))
    assert sorted(share for _, share in model(text)) == pytest.approx(sorted(expected), abs=1e-5)
    assert not any("cut" in line for line in caplog.messages)
    longer = f"{text} film"
    found = model([longer, "a film"])
    assert sorted(share for _, share in found[0]) == pytest.approx(sorted(expected), abs=1e-5)
    assert [line for line in caplog.messages if line.endswith("cut")] == [
        f"the texts: 1 of 2 samples (50.0%) is longer than max_seq_length {longest} and cut"
    ]


def test_what_a_command_cuts_is_counted_in_one_line(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    monkeypatch.setattr("tasks.file_predictions.ROWS", 2)
    written(tmp_path, "classification")
    texts = ["a film", long_text(250), "a story", long_text(300), long_text(198)]
    source = tmp_path / "texts.csv"
    source.write_text("text\n" + "\n".join(texts) + "\n", encoding="utf-8")
    arguments = ["--checkpoint", str(tmp_path), "--file", str(source), "--output", str(tmp_path / "out.csv")]
    assert classify(arguments) == 0
    assert [line for line in caplog.messages if line.endswith("cut")] == [
        f"{source}: 2 of 5 samples (40.0%) are longer than max_seq_length 200 and cut"
    ]


def test_threads_get_their_own_answers(tmp_path: Path) -> None:
    theirs = written(tmp_path, "pretraining")
    text, words = "the [MASK] was", [*GOOD, *BAD, *FILLING]
    logits = theirs(tf.constant([ids_of(text)])).prediction_logits.numpy()[0, 2]
    model = load(str(tmp_path))
    chance = random.Random(0)
    asked = [chance.sample(words, k=chance.randrange(1, 5)) for _ in range(100)]

    def ask(among: list[str]) -> list[tuple[str, float]]:
        texts = [text] * chance.randrange(1, 400)  # one batch or several
        return [(piece, share) for _, piece, share in model(texts, among=among, top=len(among))[-1]]

    with ThreadPoolExecutor(8) as pool:
        answers = list(pool.map(ask, asked))
    for among, answer in zip(asked, answers):
        shares = softmax([logits[PIECES.index(word)] for word in among])
        expected = sorted(zip(among, shares.tolist()), key=lambda pair: -pair[1])
        assert [piece for piece, _ in answer] == [word for word, _ in expected]
        assert [share for _, share in answer] == pytest.approx([share for _, share in expected], abs=1e-5)


def test_threads_classify_their_own_texts(tmp_path: Path) -> None:
    theirs, model = written(tmp_path, "classification"), load(str(tmp_path))
    texts = [long_text(number) for number in range(1, 41)]
    with ThreadPoolExecutor(8) as pool:
        answers = list(pool.map(model, [texts[: number + 1] for number in range(40)]))
    for number, answer in enumerate(answers):
        expected = probabilities(theirs, ids_of(texts[number]))
        assert sorted(share for _, share in answer[number]) == pytest.approx(sorted(expected), abs=1e-5)


HEADS = {  # the tasks of Hugging Face's classes; any has an encoder, whose embeddings may be asked for
    "BertForSequenceClassification": "classification",
    "BertForTokenClassification": "token_classification",
    "BertForQuestionAnswering": "squad",
    "BertForMaskedLM": "pretraining",
    "BertForPreTraining": "pretraining",
    "BertForNextSentencePrediction": None,
    "BertForMultipleChoice": None,
    "BertModel": None,
}


@pytest.mark.parametrize("name", HEADS)
def test_each_head_answers_its_own_task_alone(name: str, tmp_path: Path) -> None:
    """``classifier`` is the name of the weights of several heads."""
    sizes = {"hidden_size": 32, "num_hidden_layers": 1, "num_attention_heads": 2, "intermediate_size": 32}
    names = {"id2label": {0: "O", 1: "B-PER"}, "label2id": {"O": 0, "B-PER": 1}}
    config = transformers.BertConfig(vocab_size=len(PIECES), max_position_embeddings=POSITIONS, **sizes, **names)
    model = getattr(transformers, f"TF{name}")(config)
    model.build()
    safetensors(model, tmp_path)
    write_pieces(tmp_path / "vocab.txt", PIECES)
    assert read_json(tmp_path / "config.json")["architectures"] == [name]
    refused = f"is a {name}, (not of|which answers nothing)|has no masked-LM head"
    if name == "BertModel":
        refused = "does not say what it was trained for|has no|lacks (classifier|qa_outputs)|does not name"
    for task in (None, "classification", "token_classification", "squad", "pretraining", "sentence_embedding"):
        expected = HEADS[name] if task is None else task
        if task == "sentence_embedding" or (expected is not None and expected == HEADS[name]):
            assert load(str(tmp_path), task).task == expected
        else:
            with pytest.raises(UserError, match=refused):
                load(str(tmp_path), task)


def test_options_that_are_no_options_are_refused(tmp_path: Path) -> None:
    written(tmp_path, "pretraining")
    model = load(str(tmp_path))
    for options, message in (
        ({"top": 0}, "top is 0; set it to 1 or more"),
        ({"top": -1}, "top is -1"),
        ({"among": []}, "give a list of words"),
        ({"among": "good"}, "give a list of words"),
    ):
        with pytest.raises(ValueError, match=message):
            model("the [MASK]", **options)
