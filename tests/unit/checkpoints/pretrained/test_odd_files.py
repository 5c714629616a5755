"""What lies in place of weights that can be read is named as what it is."""

from __future__ import annotations

import json
import struct
from pathlib import Path
from typing import Any

import pytest

from checkpoints.pretrained.opening import open_pretrained
from keras_extensions.backend import tf
from model.huggingface import BertConfig
from tests.support.runs import write_json
from utilities.errors import UserError

SIZES = {"hidden_size": 32, "num_hidden_layers": 1, "num_attention_heads": 2, "intermediate_size": 32}
PAGE = b"<!DOCTYPE html>\n<html><head><title>404</title></head></html>\n"
POINTER = b"version https://git-lfs.github.com/spec/v1\noid sha256:4d7a\nsize 437971872\n"


def written(folder: Path, name: str, content: bytes, **changes: Any) -> str:
    folder.mkdir(exist_ok=True)
    write_json(folder / "config.json", {**BertConfig(**SIZES).to_dict(), **changes})
    (folder / name).parent.mkdir(exist_ok=True)
    (folder / name).write_bytes(content)
    return str(folder)


@pytest.mark.parametrize(
    ("name", "content", "message"),
    [
        ("pytorch_model.bin", PAGE, "is a web page, not a file of weights; download the file itself"),
        ("pytorch_model.bin", POINTER, "is a pointer of Git LFS, not the file itself; get it with git lfs pull"),
        ("model.safetensors", POINTER, "is a pointer of Git LFS"),
        ("pytorch_model.bin", b"weights", "it is no file of PyTorch"),
        ("flax_model.msgpack", b"\x81", "has flax_model.msgpack, which is not read; save the model in one of"),
    ],
)
def test_no_weights(name: str, content: bytes, message: str, tmp_path: Path) -> None:
    with pytest.raises(UserError, match=message) as error:
        open_pretrained(written(tmp_path / "m", name, content), "k")
    assert "\n" not in str(error.value) and "damaged" not in message


def test_the_checkpoints_of_a_trainer_are_named(tmp_path: Path) -> None:
    for number in (500, 1000):
        written(tmp_path / "m", f"checkpoint-{number}/model.safetensors", b"")
    with pytest.raises(UserError, match=r"has no weights itself, but 2 checkpoints; name one: .*checkpoint-1000$"):
        open_pretrained(str(tmp_path / "m"), "k")


def test_numbers_of_8_bits_are_not_called_damaged(tmp_path: Path) -> None:
    header = json.dumps(
        {"embeddings.word_embeddings.weight": {"dtype": "F8_E4M3", "shape": [2], "data_offsets": [0, 2]}}
    )
    content = struct.pack("<Q", len(header)) + header.encode() + b"\x00\x00"
    start = open_pretrained(written(tmp_path / "m", "model.safetensors", content), "k")
    with pytest.raises(UserError, match=r"weight: is quantized \(F8_E4M3\); name the weights before that"):
        start.weights["bert.embeddings.word_embeddings.weight"].value()


def test_heads_that_do_not_divide_the_width_are_refused(tmp_path: Path) -> None:
    folder = written(tmp_path / "m", "model.safetensors", struct.pack("<Q", 2) + b"{}", num_attention_heads=3)
    with pytest.raises(UserError, match="num_attention_heads is 3, but the heads should divide hidden_size, which is"):
        open_pretrained(folder, "k")


def test_a_checkpoint_of_tensorflows_model_garden_is_named(tmp_path: Path) -> None:
    class Encoder(tf.Module):
        pass

    encoder, dense = Encoder(), Encoder()
    dense.kernel = tf.Variable(tf.zeros((2, 2)))
    setattr(encoder, "layer_with_weights-0", dense)
    folder = Path(written(tmp_path / "m", "vocab.txt", b""))
    tf.train.Checkpoint(model=encoder).write(str(folder / "bert_model.ckpt"))
    with pytest.raises(UserError, match=r"is a checkpoint of tensorflow/models .*convert it with"):
        open_pretrained(str(folder), "k")
