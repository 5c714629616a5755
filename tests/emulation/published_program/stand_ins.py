"""A pytest plugin for Graphcore's tests: small made-up data in the place of what they would fetch from the network.

The first use of a name makes it; nothing is made for tests that do not ask.
"""

from __future__ import annotations

import json
import string
from pathlib import Path

import numpy as np
import tensorflow as tf
from keras.datasets import mnist

SENTENCES = {"cola": ("sentence",), "rte": ("sentence1", "sentence2")}


def images(path=None):
    """Stands for ``mnist.load_data``: random images of the same shape and type, and their labels."""
    random = np.random.default_rng(0)

    def part(number):
        return random.integers(0, 256, (number, 28, 28), "uint8"), random.integers(0, 10, number, "uint8")

    return part(2048), part(512)


def glue(name, data_dir=None):
    """Stands for ``tensorflow_datasets.load`` of GLUE's tasks."""
    names = SENTENCES[name.partition("/")[2]]
    rows = {"idx": list(range(8)), "label": [0, 1] * 4, **{name: ["a made up sentence"] * 8 for name in names}}
    return {split: tf.data.Dataset.from_tensor_slices(rows) for split in ("train", "validation", "test")}


def write_model(folder: Path) -> None:
    """Write a tiny BERT with random weights, which knows letters, in Hugging Face's format."""
    from transformers import BertConfig, TFBertForPreTraining

    config = BertConfig(
        vocab_size=30522, hidden_size=128, num_hidden_layers=2, num_attention_heads=2, intermediate_size=512
    )
    model = TFBertForPreTraining(config)
    model(model.dummy_inputs)
    model.save_pretrained(folder)
    letters = [*string.ascii_lowercase, *string.punctuation, *string.digits]
    words = ["[PAD]", "[UNK]", "[CLS]", "[SEP]", "[MASK]", *letters, *("##" + letter for letter in letters)]
    unused = [f"[unused{number}]" for number in range(config.vocab_size - len(words))]
    (folder / "vocab.txt").write_text("\n".join(words + unused))
    (folder / "tokenizer_config.json").write_text(json.dumps({"model_max_length": 512, "do_lower_case": True}))


def pytest_configure(config):
    mnist.load_data = images
    try:
        import tensorflow_datasets
    except ImportError:
        return
    tensorflow_datasets.load = glue
    folder = Path("bert-base-uncased")  # Transformers looks here before it asks the hub
    if not folder.exists():
        folder.mkdir()
        write_model(folder)
