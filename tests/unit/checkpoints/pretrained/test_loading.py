"""Missing, extra, padded or damaged weights of a checkpoint are reported or refused."""

from __future__ import annotations

import dataclasses
import functools
import json
import logging

import numpy as np
import pytest

from checkpoints.pretrained.opening import open_pretrained
from checkpoints.pretrained.pretrained import Pretrained, with_added_pieces, with_repeated_positions
from checkpoints.pretrained.sentence_transformers import embedding_prompt, embedding_settings
from model.architecture import RUN_OPTIONS
from model.tasks import CLASSIFICATION, PRETRAINING, SQUAD
from tests.support.bert_pairs import architecture
from tests.support.checkpoint_writers import google, safetensors, sharded_safetensors, write_config
from tests.support.hf_models import SPECIAL, build_hf_model, hugging_face, write_vocabulary
from tests.support.pytorch_names import pytorch_arrays
from tests.support.run_folders import write_step
from tests.support.runs import write_json
from utilities.errors import UserError

POSITIONS = "bert.embeddings.position_embeddings.weight"
TABLE, BIAS = "bert.embeddings.word_embeddings.weight", "cls.predictions.bias"
DENSE = "bert.encoder.layer.1.output.dense.weight"


@pytest.fixture(scope="module")
def source():
    return hugging_face(PRETRAINING)


@pytest.fixture(scope="module")
def google_folder(source, tmp_path_factory):
    return google(source, tmp_path_factory.mktemp("google") / "uncased_L-2_H-32_A-4")


def dropped(*names):
    """Return a function that returns weights without those whose names begin like this."""
    return lambda arrays: {name: array for name, array in arrays.items() if not name.startswith(names)}


def load(folder, task=PRETRAINING, allow=False, classes=3, **changes) -> tuple[dict[str, np.ndarray], Pretrained]:
    start = open_pretrained(str(folder), "bert_model_name", allow)
    model = build_hf_model(task, architecture(**changes), seed=99, classes=classes)
    start.set_initial_weights(model)
    return pytorch_arrays(model), start


@functools.cache
def unloaded(**sizes):
    """Return a model for weights that are refused."""
    return build_hf_model(PRETRAINING, architecture(**sizes), seed=99)


def test_missing_heads_start_from_random_numbers_and_are_listed_with_a_warning_of_other_layers(
    source, tmp_path, caplog
):
    """The other layer is that of a tagger with a CRF, say, whose tags are others without it."""
    arrays = {**pytorch_arrays(source), "crf.transitions": np.zeros((3, 3), np.float32)}
    with caplog.at_level(logging.INFO):
        _, start = load(safetensors(source, tmp_path / "m", arrays), CLASSIFICATION)
    assert start.report.missing == ["classifier.bias", "classifier.weight"]
    assert start.report.extra == sorted(name for name in arrays if name.startswith(("cls.", "crf.")))
    assert "classifier.weight: not in the checkpoint" in caplog.text
    assert "cls.seq_relationship.bias: in the checkpoint, but not in the model" in caplog.text
    (warning,) = [record for record in caplog.records if "in no BERT" in record.message]
    assert warning.levelname == "WARNING" and "crf.transitions" in warning.message
    assert "in no BERT; all is computed without it" in warning.message


@pytest.mark.parametrize(
    "change, sizes, message",
    [
        (
            dropped("bert.encoder.layer.1.output"),
            {},
            r"lacks bert\.encoder\.layer\.1\.output\..* and 3 more .*allow_missing",
        ),
        (lambda _: {"h.0.attn.weight": np.zeros((2, 2), np.float32)}, {}, r"lacks .* and 36 more .* it has h\.0\.attn"),
        (lambda arrays: {**arrays, DENSE: np.full_like(arrays[DENSE], np.nan)}, {}, rf"{DENSE}: .*not finite"),
        (dict, {"intermediate_size": 64}, r"model\.safetensors: bert\..* has the shape \[.*\], the model's is \["),
        (dict, {"vocab_size": 112}, r"has 120 word pieces, more than the model's 112; .*vocab_size to 120"),
    ],
    ids=["missing encoder weights", "another model", "not finite", "another size", "more word pieces"],
)
def test_a_checkpoint_that_does_not_fit_is_refused(change, sizes, message, source, tmp_path):
    folder = safetensors(source, tmp_path / "m", change(pytorch_arrays(source)))
    with pytest.raises(UserError, match=message):
        open_pretrained(str(folder), "bert_model_name").set_initial_weights(unloaded(**sizes))


def test_missing_encoder_weights_start_from_random_numbers_if_allowed(source, tmp_path):
    arrays = dropped("bert.encoder.layer.1.output")(pytorch_arrays(source))
    loaded, start = load(safetensors(source, tmp_path / "m", arrays), allow=True)
    assert DENSE in start.report.missing and loaded[DENSE].std() > 0


def test_a_head_of_another_size_starts_from_random_numbers(tmp_path):
    folder = safetensors(hugging_face(CLASSIFICATION), tmp_path / "m")
    _, start = load(folder, CLASSIFICATION, classes=2)
    assert start.report.missing == ["classifier.bias", "classifier.weight"]
    assert "classifier.weight of shape [3, 32], not [2, 32]" in start.report.extra


class TestVocabulary:
    """The table has 120 rows."""

    def test_rows_are_added_as_zeros(self, source, tmp_path):
        arrays, start = load(safetensors(source, tmp_path / "m"), vocab_size=128)
        expected = pytorch_arrays(source)
        for name in (TABLE, BIAS):
            np.testing.assert_array_equal(arrays[name][:120], expected[name])
            assert arrays[name].shape[0] == 128 and not arrays[name][120:].any()
        assert sorted(start.report.padded) == [f"{n}: 120 → 128 word pieces, zeros added" for n in (TABLE, BIAS)]

    def test_unused_rows_are_cut(self, source, tmp_path):
        folder = safetensors(source, tmp_path / "m")
        write_vocabulary(folder, 112)
        arrays, start = load(folder, vocab_size=112)
        np.testing.assert_array_equal(arrays[TABLE], pytorch_arrays(source)[TABLE][:112])
        assert len(start.report.padded) == 2 and "120 → 112" in start.report.padded[0]
        write_vocabulary(folder, 113)
        with pytest.raises(UserError, match="has 113 word pieces"):
            open_pretrained(str(folder), "k").set_initial_weights(unloaded(vocab_size=112))

    def test_zero_rows_are_cut_without_a_vocabulary(self, source, tmp_path):
        arrays = pytorch_arrays(source)
        arrays[TABLE][112:], arrays[BIAS][112:] = 0, 0
        loaded, _ = load(safetensors(source, tmp_path / "m", arrays), vocab_size=112)
        assert loaded[TABLE].shape == (112, 32)


@pytest.mark.parametrize("rows", [40, 48])
def test_rows_of_new_pieces_are_the_mean_of_their_old_pieces(rows, tmp_path, caplog):
    """The table has 40 rows, or 48, of which the last 8 are unused."""
    pieces = [*SPECIAL, *"abcdefghijk", *(f"##{letter}" for letter in "abcdefghijk"), *(f"w{n}" for n in range(13))]
    added = ["bad", "##fig", "jazz"]  # jazz was [UNK]
    folder = safetensors(hugging_face(PRETRAINING, vocab_size=rows), tmp_path / "m")
    (folder / "vocab.txt").write_text("\n".join(pieces))
    (tmp_path / "vocab.txt").write_text("\n".join([*pieces, *added]))
    source = open_pretrained(str(folder), "k")
    start = with_added_pieces(source, tmp_path / "vocab.txt")
    assert start.architecture["vocab_size"] == 43
    model = build_hf_model(PRETRAINING, architecture(vocab_size=44), seed=99)
    with caplog.at_level(logging.INFO):
        start.set_initial_weights(model)
    assert "3 word pieces added" in caplog.text
    parts = [[pieces.index(part) for part in word] for word in (["b", "##a", "##d"], ["f", "##i", "##g"], ["[UNK]"])]
    arrays = pytorch_arrays(model)
    for name in (TABLE, BIAS):
        old = source.weights[name].value()
        expected = np.concatenate([old[:40], [old[ids].mean(axis=0) for ids in parts], np.zeros_like(old[:1])])
        np.testing.assert_allclose(arrays[name], expected, rtol=1e-6, atol=1e-8)
    assert with_added_pieces(start, tmp_path / "vocab.txt") is start
    caplog.clear()
    (tmp_path / "vocab.txt").write_text("\n".join(pieces[:30]))  # its rows are right
    assert with_added_pieces(source, tmp_path / "vocab.txt") is source and not caplog.messages
    (tmp_path / "vocab.txt").write_text("\n".join([*pieces[:6], "mine", *pieces[7:20], "other", *pieces[21:], "new"]))
    assert with_added_pieces(source, tmp_path / "vocab.txt") is source
    assert f"2 of 40 word pieces are not those of {folder}" in caplog.text
    assert f"first id 6 ('mine', there {pieces[6]!r})" in caplog.text


def test_positions_beyond_the_trained_ones_are_copies(source, tmp_path, caplog):
    """Of 48 positions, 10 were trained: [CLS]'s, eight of words, and [SEP]'s."""
    folder = safetensors(source, tmp_path / "m")
    trained = dataclasses.replace(open_pretrained(str(folder), "k"), trained_positions=10)
    model = build_hf_model(PRETRAINING, architecture(), seed=99)
    with caplog.at_level(logging.INFO):
        with_repeated_positions(trained, length=32).set_initial_weights(model)
    assert "the vectors from position 9 on start as copies" in caplog.text
    old, new = pytorch_arrays(source)[POSITIONS], pytorch_arrays(model)[POSITIONS]
    words = old[1:9]
    np.testing.assert_array_equal(new, np.concatenate([old[:1], *[words] * 8])[: len(old)])


@pytest.mark.parametrize("positions, length", [(None, 32), (32, 32), (32, 16), (2, 32)])
def test_positions_are_not_copied_where_it_would_not_help(positions, length, source, tmp_path):
    """The number of trained positions is unknown, is large enough, or is too small to include a word."""
    folder = safetensors(source, tmp_path / "m")
    start = dataclasses.replace(open_pretrained(str(folder), "k"), trained_positions=positions)
    assert with_repeated_positions(start, length) is start


def test_a_part_that_is_missing_is_named(source, tmp_path):
    folder = sharded_safetensors(source, tmp_path / "m")
    (folder / "model-00002-of-00003.safetensors").unlink()
    with pytest.raises(UserError, match=r"model-00002-of-00003\.safetensors is missing"):
        load(folder)
    write_json(folder / "model.safetensors.index.json", {"weight_map": {DENSE: 2}})
    with pytest.raises(UserError, match=r"index\.json: cannot be read"):
        load(folder)


CONFIGS = {
    "another model": ({"model_type": "roberta"}, "model_type"),
    "another activation": ({"hidden_act": "quick_gelu"}, "hidden_act is 'quick_gelu'"),
    "weights of 8 bits": ({"quantization_config": {"load_in_8bit": True}}, "quantization_config"),
    "no size": ({"hidden_size": None}, "hidden_size"),
}


@pytest.mark.parametrize("case", CONFIGS)
def test_a_config_of_something_else_is_refused(case, source, tmp_path):
    changes, name = CONFIGS[case]
    folder = safetensors(source, tmp_path / "m")
    write_config(source, folder, **changes)
    with pytest.raises(UserError, match=rf"bert_model_name: .*config\.json: {name}"):
        open_pretrained(str(folder), "bert_model_name")


def test_quantized_weights_are_refused(source, tmp_path):
    arrays = pytorch_arrays(source)
    arrays[DENSE] = (arrays[DENSE] * 50).astype(np.int8)
    start = open_pretrained(str(safetensors(source, tmp_path / "m", arrays)), "bert_model_name")
    with pytest.raises(UserError, match=rf"{DENSE}: is quantized \(int8\)"):
        start.weights[DENSE].value()


def test_a_folder_with_an_adapter_is_refused(source, tmp_path):
    adapter = "bert.encoder.layer.0.attention.self.query.lora_A.default.weight"
    folder = safetensors(source, tmp_path / "lora", {**pytorch_arrays(source), adapter: np.ones((2, 32), np.float32)})
    with pytest.raises(UserError, match=r"has an adapter \(bert.*lora_A.*; merge it"):
        open_pretrained(str(folder), "bert_model_name")
    folder = safetensors(source, tmp_path / "m")
    (folder / "adapter_config.json").write_text("{}")
    with pytest.raises(UserError, match=r"has an adapter \(adapter_config\.json\); merge it"):
        open_pretrained(str(folder), "bert_model_name")


def test_a_run_names_the_folder_of_its_checkpoints(tmp_path):
    run, kept = tmp_path / "run", tmp_path / "kept"
    run.mkdir()
    write_json(run / "checkpoints.json", [{"step": 3, "folder": str(write_step(kept, 3, {})), "megabytes": 0.1}])
    with pytest.raises(UserError, match=rf"{run} are in {kept} \(save_ckpt_path\); name that folder"):
        open_pretrained(str(run), "pretrained_ckpt_path")
    for content in ([], {}, [{"step": 3}], 7):  # of a damaged run
        write_json(run / "checkpoints.json", content)
        with pytest.raises(UserError, match="contains no weights"):
            open_pretrained(str(run), "pretrained_ckpt_path")


def test_a_folder_without_a_config_or_without_weights(source, tmp_path):
    folder = safetensors(source, tmp_path / "m")
    (folder / "config.json").unlink()
    with pytest.raises(UserError, match=r"no config\.json \(bert_config\.json\)"):
        open_pretrained(str(folder), "bert_model_name")
    (folder / "model.safetensors").unlink()
    with pytest.raises(UserError, match=r"contains no weights \(looked for .*pytorch_model\.bin.*tf_model\.h5"):
        open_pretrained(str(folder), "bert_model_name")
    (tmp_path / "notes.txt").write_text("")
    with pytest.raises(UserError, match="does not have the suffix of a weights file"):
        open_pretrained(str(tmp_path / "notes.txt"), "pretrained_ckpt_path")


def test_tokenizer_settings(google_folder, tmp_path):
    vocabulary = write_vocabulary(google_folder, 120)
    start = open_pretrained(str(google_folder), "bert_model_name")
    assert (start.vocabulary, start.lower_case) == (vocabulary, True)
    folder = safetensors(hugging_face(SQUAD), tmp_path / "hf")
    assert (open_pretrained(str(folder), "k").vocabulary, open_pretrained(str(folder), "k").lower_case) == (None, None)
    (folder / "tokenizer_config.json").write_text(json.dumps({"do_lower_case": False}))
    assert open_pretrained(str(folder), "k").lower_case is False


def test_the_architecture_that_a_config_describes(source, google_folder, tmp_path):
    expected = {name: value for name, value in vars(architecture()).items() if name not in RUN_OPTIONS}
    assert open_pretrained(str(google_folder), "bert_model_name").architecture == expected
    folder = safetensors(source, tmp_path / "tanh")
    for theirs, ours in (("gelu_pytorch_tanh", "gelu_new"), ("gelu_python", "gelu"), ("swish", "silu")):
        write_config(source, folder, hidden_act=theirs)
        assert open_pretrained(str(folder), "bert_model_name").architecture["hidden_act"] == ours


def test_the_files_that_sentence_transformers_writes_since_version_6(source, tmp_path):
    folder = safetensors(source, tmp_path / "m")
    kinds = {"": "base.modules.transformer.Transformer", "1_Pooling": "sentence_transformer.modules.pooling.Pooling"}
    modules = [{"path": path, "type": f"sentence_transformers.{kind}"} for path, kind in kinds.items()]
    write_json(folder / "modules.json", modules)
    write_vocabulary(folder, 40)
    write_json(folder / "sentence_bert_config.json", {"transformer_task": "feature-extraction"})
    (folder / "1_Pooling").mkdir()
    for mode, length, expected in (("mean", 24, ("mean", False, 24)), (["cls"], 10**30, ("cls", False, 48))):
        write_json(folder / "1_Pooling" / "config.json", {"embedding_dimension": 32, "pooling_mode": mode})
        write_json(folder / "tokenizer_config.json", {"model_max_length": length})
        assert embedding_settings(open_pretrained(str(folder), "k")) == expected
    # Until version 5, each mode has a field, of which whatever Python takes for true counts.
    for modes in ({"pooling_mode": ["cls", "mean"]}, {"pooling_mode_cls_token": True, "pooling_mode_mean_tokens": 1}):
        write_json(folder / "1_Pooling" / "config.json", {"embedding_dimension": 64, **modes})
        with pytest.raises(UserError, match=r"config\.json: pools by .*cls.*', '.*mean.*, known are mean and cls"):
            embedding_settings(open_pretrained(str(folder), "k"))


@pytest.mark.parametrize(
    "name, content, named",
    [
        ("modules.json", [], "no module Transformer"),
        ("modules.json", [{"path": "", "type": kind} for kind in ("Normalize", "Transformer")], "another order"),
        ("modules.json", [{"path": "2_Dense", "type": "a.Dense"}], "has a module Dense"),
        ("1_Pooling/config.json", {"pooling_mode_max_tokens": True}, "pools by"),
        ("1_Pooling/config.json", {"include_prompt": "no"}, "include_prompt"),
        ("sentence_bert_config.json", {"max_seq_length": 2}, "at most 2 tokens"),
        ("sentence_bert_config.json", {"do_lower_case": True}, "do_lower_case"),
        ("sentence_bert_config.json", {"transformer_task": "fill-mask"}, "transformer_task"),
        ("sentence_bert_config.json", {"tokenizer_args": {"do_lower_case": False}}, "tokenizer_args"),
        ("sentence_bert_config.json", {"config_args": {"hidden_act": "relu"}}, "config_args"),
        ("config_sentence_transformers.json", {"default_prompt_name": "unknown"}, "default_prompt_name is unknown"),
        ("config_sentence_transformers.json", {"model_type": "SparseEncoder"}, "model_type"),
        ("config_sentence_transformers.json", {"truncate_dim": 16}, "truncate_dim is 16"),
        ("config_sentence_transformers.json", {"prompts": {"q": "ask: "}, "default_prompt_name": "q"}, None),
        ("config_sentence_transformers.json", {"prompts": {"q": 1}}, "prompts.q is 1"),
        ("sentence_bert_config.json", {"max_seq_length": "64"}, "max_seq_length is '64'"),
        ("config_sentence_transformers.json", {"prompts": {"q": "ask: "}, "default_prompt_name": None}, None),
        ("config_sentence_transformers.json", {"prompts": {"q": ""}, "default_prompt_name": "q"}, None),
    ],
)
def test_settings_of_sentence_transformers_are_followed_or_refused(name, content, named, source, tmp_path):
    folder = safetensors(source, tmp_path / "m")
    modules = [{"path": "", "type": "a.Transformer"}, {"path": "1_Pooling", "type": "a.Pooling"}]
    write_json(folder / "modules.json", modules)
    (folder / "1_Pooling").mkdir()
    write_json(folder / "1_Pooling" / "config.json", {"pooling_mode_mean_tokens": True})
    write_json(folder / name, content)
    write_vocabulary(folder, 40)
    if named is None:
        assert embedding_settings(open_pretrained(str(folder), "k")) == ("mean", False, None)
        return
    with pytest.raises(UserError, match=named) as caught:
        start = open_pretrained(str(folder), "k")
        embedding_settings(start)
        embedding_prompt(start)
    assert name in str(caught.value) and "\n" not in str(caught.value)


def test_the_prompt_is_that_of_a_name_or_the_default_one(source, tmp_path):
    folder = safetensors(source, tmp_path / "m")
    start = open_pretrained(str(folder), "k")
    assert embedding_prompt(start) == ("", True)
    write_json(folder / "config_sentence_transformers.json", {"prompts": {"q": "ask: ", "p": "text: "}})
    found = [embedding_prompt(start, name).text for name in (None, "q", "p", "none")]
    assert found == ["", "ask: ", "text: ", ""]
    with pytest.raises(UserError, match=r"--prompt: the model has no prompt x; it has none, q, p"):
        embedding_prompt(start, "x")
    modules = [{"path": "", "type": "Transformer"}, {"path": "1_Pooling", "type": "a.Pooling"}]
    write_json(folder / "modules.json", modules)
    (folder / "1_Pooling").mkdir()
    write_json(folder / "1_Pooling" / "config.json", {"pooling_mode": "mean", "include_prompt": False})
    assert embedding_prompt(start, "q") == ("ask: ", False)
    assert embedding_prompt(start, "none") == ("", True)


def test_an_encoder_in_a_folder_of_its_own_is_read(source, tmp_path):
    folder = tmp_path / "m"
    encoder = safetensors(source, folder / "0_Transformer")
    modules = {"0_Transformer": "Transformer", "1_Pooling": "Pooling"}
    types = [{"path": path, "type": f"sentence_transformers.models.{kind}"} for path, kind in modules.items()]
    write_json(folder / "modules.json", types)
    (folder / "1_Pooling").mkdir()
    write_json(folder / "1_Pooling" / "config.json", {"pooling_mode_cls_token": True})
    write_json(encoder / "sentence_bert_config.json", {"max_seq_length": 24})
    start = open_pretrained(str(folder), "k")
    assert start.weights.keys() == open_pretrained(str(encoder), "k").weights.keys()
    assert embedding_settings(start) == ("cls", False, 24)
