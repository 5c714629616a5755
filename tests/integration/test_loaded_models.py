"""A loaded model answers several threads at once, and takes texts of its own length; a trained head is continued."""

from __future__ import annotations

import itertools
import random
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from scipy.special import expit, softmax

from checkpoints.export.hf_folder import export
from keras_extensions.backend import tf
from model.huggingface import transformers
from tasks import load
from tasks.classify import main as classify
from tests.support.checkpoint_writers import safetensors
from tests.support.fine_tuning_runs import BAD, FILLING, GOOD, PIECES, write_config, write_pieces
from tests.support.hf_models import hugging_face
from tests.support.runs import STILL, read_json, run_command, write_csv, write_json
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


def test_a_piece_within_a_word_is_named_as_it_is_shown(tmp_path: Path) -> None:
    theirs = written(tmp_path, "pretraining")
    logits = theirs(tf.constant([ids_of("the [MASK] was")])).prediction_logits.numpy()[0, 2]
    number, other = PIECES.index(BAD[0]), GOOD[0]
    write_pieces(tmp_path / "vocab.txt", [*PIECES[:number], "##ing", *PIECES[number + 1 :]])
    found = load(str(tmp_path))("the [MASK] was", among=["##ing", other])
    shares = softmax([logits[number], logits[PIECES.index(other)]])
    assert {piece: share for _, piece, share in found} == pytest.approx(dict(zip(("##ing", other), shares)), abs=1e-5)
    with pytest.raises(UserError, match="'##ed' is not one piece of the vocabulary"):
        load(str(tmp_path))("the [MASK] was", among=["##ed"])


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


def cross_encoder(folder: Path, outputs: int, **settings: Any) -> Any:
    """Write the folder of a model with some outputs, and return Hugging Face's model."""
    model = hugging_face("classification", vocab_size=len(PIECES), max_position_embeddings=POSITIONS)
    config = model.config
    config.num_labels = outputs
    scoring = transformers.TFBertForSequenceClassification(config)
    scoring.build()
    safetensors(scoring, folder)
    write_pieces(folder / "vocab.txt", PIECES)
    write_json(folder / "config.json", {**read_json(folder / "config.json"), **settings})
    return scoring


SIGMOID, IDENTITY = "torch.nn.modules.activation.Sigmoid", "torch.nn.modules.linear.Identity"


@pytest.mark.parametrize(
    ("files", "settings", "is_squashed"),
    [
        ({"model_type": "CrossEncoder", "activation_fn": SIGMOID}, {}, True),
        ({"model_type": "CrossEncoder", "activation_fn": IDENTITY}, {}, False),
        ({"model_type": "CrossEncoder"}, {}, True),  # the default of sentence-transformers
        (None, {"sentence_transformers": {"activation_fn": SIGMOID}}, True),
        (None, {"sbert_ce_default_activation_function": IDENTITY}, False),
        (None, {}, False),  # of Hugging Face
    ],
)
def test_cross_encoders_give_the_scores_of_sentence_transformers(
    files: dict[str, Any] | None, settings: dict[str, Any], is_squashed: bool, tmp_path: Path
) -> None:
    theirs = cross_encoder(tmp_path / "model", 1, **settings)
    if files is not None:
        write_json(tmp_path / "model" / "modules.json", [{"idx": 0, "path": "", "type": "a.Transformer"}])
        write_json(tmp_path / "model" / "sentence_bert_config.json", {"transformer_task": "sequence-classification"})
        write_json(tmp_path / "model" / "config_sentence_transformers.json", {**files, "prompts": {}})
    first, second = ids_of("the film"), ids_of("was good")[1:]
    ids, segments = [first + second], [[0] * len(first) + [1] * len(second)]
    logit = theirs(tf.constant(ids), token_type_ids=tf.constant(segments)).logits.numpy()[0, 0]
    export(str(tmp_path / "model"), tmp_path / "exported")
    for folder in ("model", "exported"):
        found = load(str(tmp_path / folder))(("the film", "was good"))
        assert found == pytest.approx(expit(logit) if is_squashed else logit, abs=1e-5)


def test_a_function_of_outputs_that_is_not_computed_is_refused(tmp_path: Path) -> None:
    cross_encoder(tmp_path, 1, sbert_ce_default_activation_function="torch.nn.modules.activation.Tanh")
    with pytest.raises(UserError, match="its files ask for Tanh of its outputs"):
        load(str(tmp_path))
    cross_encoder(tmp_path, 1)
    prompts = {"model_type": "CrossEncoder", "prompts": {"q": "ask: "}, "default_prompt_name": "q"}
    write_json(tmp_path / "config_sentence_transformers.json", prompts)
    with pytest.raises(UserError, match="its files put a prompt before texts"):
        load(str(tmp_path))


@pytest.mark.parametrize("pooling", ["mean", "cls"])
def test_a_prompt_is_left_out_of_the_pooling(pooling: str, tmp_path: Path) -> None:
    """sentence-transformers masks [CLS] and the prompt; the first token that is left stands for [CLS]."""
    theirs = written(tmp_path, "pretraining")
    kinds = [{"path": "", "type": "a.Transformer"}, {"path": "1_Pooling", "type": "a.Pooling"}]
    write_json(tmp_path / "modules.json", kinds)
    (tmp_path / "1_Pooling").mkdir()
    write_json(tmp_path / "1_Pooling" / "config.json", {"pooling_mode": pooling, "include_prompt": False})
    prompts = {"prompts": {"query": "the story was very "}, "default_prompt_name": "query"}
    write_json(tmp_path / "config_sentence_transformers.json", prompts)
    texts = ["good film", "it was a very fine film", "bad"]
    for found, text in zip(load(str(tmp_path))(texts), texts):
        hidden = theirs.bert(tf.constant([ids_of(f"the story was very {text}")])).last_hidden_state.numpy()[0, 5:]
        expected = hidden[0] if pooling == "cls" else hidden.mean(axis=0)
        np.testing.assert_allclose(found, expected, atol=1e-5)
    with pytest.raises(UserError, match="max_seq_length is 5, but the prompt has 5 tokens"):
        load(str(tmp_path), max_seq_length=5)


def test_options_and_values_that_are_none_are_refused(tmp_path: Path) -> None:
    written(tmp_path, "pretraining")
    model, text, task = load(str(tmp_path)), "the [MASK]", "sentence_embedding"
    for call, message in (
        (lambda: model(text, top=0), "top is 0; set it to a whole number, 1 or more"),
        (lambda: model(text, top="3"), "top is '3'"),
        (lambda: model(text, among=[5]), "give a list of words"),
        (lambda: model(["the [MASK]", "caf\udce9 [MASK]"]), r"has half a character \(a lone surrogate\)"),
        (lambda: model(np.array([text])), r"^array\(\['the \[MASK\]'\].* is not a text; give a text, a pair"),
        (lambda: model((text, 3)), "has a int, not a text"),
        (lambda: model(""), "^'' has no text; write one"),
        (lambda: load(str(tmp_path), "fill-mask"), "^load: 'fill-mask' is not the name of a task; name one of"),
        (lambda: load(str(tmp_path), task, max_seq_length=0), "^max_seq_length is "),
        (lambda: load(str(tmp_path), task, pooling="max"), r"^embedding\.pooling is "),
    ):
        with pytest.raises(UserError, match=message) as refused:
            call()
        assert "\n" not in str(refused.value)


def test_pairs_are_refused_where_the_tokenizer_does_not_tell_them_apart(tmp_path: Path) -> None:
    """By the class of DistilBERT, Hugging Face gives no ``token_type_ids``: its model reads both as the first text."""
    theirs = written(tmp_path, "classification", tokenizer_class="DistilBertTokenizer")
    model = load(str(tmp_path))
    expected = probabilities(theirs, ids_of("a film"))
    assert sorted(share for _, share in model("a film")) == pytest.approx(sorted(expected), abs=1e-5)
    with pytest.raises(UserError, match=r"does not tell apart \(its model_input_names are input_ids, attention_mask\)"):
        model(("a film", "was good"))


def test_an_argument_that_is_not_utf8_is_one_line(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    assert classify(["--checkpoint", str(tmp_path), "caf\udce9"]) == 2
    assert (
        capsys.readouterr().err
        == "error: the argument 'caf\\udce9' is not UTF-8; write it in UTF-8, or rename the file\n"
    )


THEIRS = ["neutral", "positive", "negative"]


def test_a_head_is_continued_by_the_names_of_its_classes(tmp_path: Path) -> None:
    """A training that learns nothing changes no probability of a released classifier, also in another order."""
    theirs, released = written(tmp_path / "released", "classification"), tmp_path / "released"
    for variable in theirs.classifier.weights:  # probabilities that differ from class to class
        variable.assign(3 * np.random.default_rng(0).normal(size=variable.shape))
    safetensors(theirs, released)
    names = {"id2label": dict(enumerate(THEIRS)), "label2id": {name: number for number, name in enumerate(THEIRS)}}
    write_json(released / "config.json", {**read_json(released / "config.json"), **names})
    texts = [long_text(count) for count in range(3, 11)]
    write_csv(tmp_path / "rows.csv", ["text", "label"], zip(texts * 6, itertools.cycle(sorted(THEIRS))))
    classes = ["positive", "negative", "neutral"]
    data = {"train_file": "rows.csv", "validation_file": "rows.csv", "classes": classes}
    still = {"optimizer_opts": STILL, "num_epochs": 1, "vocab_file": None, "bert_config": None}
    given = {**still, "classification_data": data, "pretrained_ckpt_path": str(released)}
    run_command("classification", write_config(tmp_path, "continued", **given), status=0)
    for text, answer in zip(texts, load(str(tmp_path / "runs" / "continued"))(texts)):
        expected = dict(zip(THEIRS, probabilities(theirs, ids_of(text))))
        assert dict(answer) == pytest.approx(expected, abs=1e-5)
