"""A pytest plugin for Graphcore's tests: small made-up data where they would fetch some from the network."""

from __future__ import annotations

import json
import os
import string
from pathlib import Path

import numpy as np
import pytest
import tensorflow as tf
from keras.datasets import imdb, mnist

COLUMNS = {"glue/cola": ["sentence"], "glue/rte": ["sentence1", "sentence2"]}


def images(path=None):
    """Stands for ``mnist.load_data``: random images and labels."""
    random = np.random.default_rng(0)
    return tuple(
        (random.integers(0, 256, (n, 28, 28), "uint8"), random.integers(0, 10, n, "uint8")) for n in (2048, 512)
    )


def reviews(num_words=None):
    """Stands for ``imdb.load_data``: random ids of words and labels."""
    random = np.random.default_rng(0)
    return tuple((random.integers(1, num_words, (64, 100)).tolist(), random.integers(0, 2, 64)) for _ in range(2))


def sentences(name, data_dir=None):
    """Stands for ``tensorflow_datasets.load``: eight rows of a task of GLUE."""
    rows = {
        "idx": list(range(8)),
        "label": [0, 1] * 4,
        **{column: ["a made up sentence"] * 8 for column in COLUMNS[name]},
    }
    return {split: tf.data.Dataset.from_tensor_slices(rows) for split in ("train", "validation", "test")}


def write_model(folder: Path) -> None:
    """Write a tiny BERT with random weights in Hugging Face's format; its tokenizer knows letters."""
    from transformers import BertConfig, TFBertForPreTraining

    sizes = {"hidden_size": 128, "num_hidden_layers": 2, "num_attention_heads": 2, "intermediate_size": 512}
    model = TFBertForPreTraining(BertConfig(**sizes))
    model(model.dummy_inputs)
    model.save_pretrained(folder)
    letters = string.ascii_lowercase + string.digits + string.punctuation
    pieces = ["[PAD]", "[UNK]", "[CLS]", "[SEP]", "[MASK]", *letters, *("##" + letter for letter in letters)]
    (folder / "vocab.txt").write_text("\n".join(pieces))
    (folder / "tokenizer_config.json").write_text(json.dumps({"model_max_length": 512}))


@pytest.hookimpl(tryfirst=True)
def pytest_configure(config):
    mnist.load_data, imdb.load_data = images, reviews
    if os.environ.get("IPU_EMULATION_INSTANCE", "0") != "0":
        config.option.xmlpath = None  # the first instance writes the results
    if not Path("run_pretraining.py").exists():
        return
    import tensorflow_datasets

    tensorflow_datasets.load = sentences
    folder = Path("bert-base-uncased")  # Transformers looks for a folder of that name before it asks the hub
    if not folder.exists():
        folder.mkdir()
        write_model(folder)
