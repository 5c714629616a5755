"""Runs a script of Graphcore's published BERT unchanged, and keeps what the comparison reads.

    python tests/emulation/run.py --env ENV driver.py FOLDER PROGRAM/run_pretraining.py --config …

FOLDER gets files of NumPy: ``records`` as the program's own reader gave them, the weights ``before`` and
``after`` training with their names, ``predictions``; and ``updates.json``, what its callbacks logged for each update.
Python 3.8. What is replaced, so that two programs can be compared at all:

- the order of samples: they are read in order, without shuffling, by each instance its part;
- the first weights: each is moved a little, so that no bias is 0 and no gain is 1;
- what needs a network: data sets and tokenizer come from data.json and vocab.txt beside FOLDER; no metric is computed;
- SQuAD's questions come first and contexts second, as everywhere but in this program.
"""

from __future__ import annotations

import functools
import json
import os
import runpy
import sys
from pathlib import Path
from typing import Any, Dict, List

import datasets
import keras  # Graphcore's
import numpy as np
import popdist
import tensorflow as tf
import tensorflow_datasets
import transformers

MOVED = 0.02  # standard deviation of what is added to each first weight


class Kept:
    """The folder of what is kept; of several instances the first keeps something."""

    def __init__(self, folder: Path):
        self.folder = folder
        self._writes = not popdist.isPopdistEnvSet() or popdist.getInstanceIndex() == 0

    def arrays(self, name: str, arrays: Dict[str, np.ndarray]) -> None:
        if self._writes:
            np.savez(self.folder / f"{name}.npz", **arrays)

    def weights(self, name: str, model: keras.Model) -> None:
        names = [f"{number:03d} {weight.name}" for number, weight in enumerate(model.weights)]
        self.arrays(name, dict(zip(names, (weight.numpy() for weight in model.weights))))

    def updates(self, updates: List[Dict[str, float]]) -> None:
        if self._writes:
            (self.folder / "updates.json").write_text(json.dumps(updates))


class NoMetric:
    """Stands for a metric of the package datasets."""

    def __init__(self, name: str):
        pass

    def compute(self, **_: Any) -> Dict[str, float]:
        return {}


class Updates(keras.callbacks.Callback):
    """Collects what the program's callbacks, which come before this one, have put into the logs of an update."""

    def __init__(self) -> None:
        super().__init__()
        self.logs: List[Dict[str, float]] = []

    def on_train_batch_end(self, batch: int, logs: Any = None) -> None:
        self.logs.append({name: float(np.mean(value)) for name, value in logs.items()})


def move(model: keras.Model) -> None:
    """Move each weight by a random number that depends on nothing but the weight's place in the model."""
    random = np.random.default_rng(7)
    for weight in model.weights:
        value = weight.numpy()
        weight.assign((value + MOVED * random.standard_normal(value.shape)).astype(value.dtype))


def keep_training(kept: Kept) -> None:
    fit, predict = keras.Model.fit, keras.Model.predict

    def fit_and_keep(model: keras.Model, data: Any, callbacks: Any = (), **options: Any) -> Any:
        move(model)
        kept.weights("before", model)
        updates = Updates()
        history = fit(model, data, callbacks=[*callbacks, updates], **options)
        kept.weights("after", model)
        kept.updates(updates.logs)
        return history

    def predict_and_keep(model: keras.Model, *arguments: Any, **options: Any) -> Any:
        predictions = predict(model, *arguments, **options)
        named = predictions if isinstance(predictions, dict) else dict(zip(model.output_names, predictions))
        kept.arrays("predictions", {name: np.asarray(values) for name, values in named.items()})
        return predictions

    keras.Model.fit, keras.Model.predict = fit_and_keep, predict_and_keep


def keep_records(kept: Kept) -> None:
    """Let the program read records in order, and keep them."""
    from data_utils.wikipedia import load_wikipedia_data as reading

    read = reading.get_real_dataset

    @functools.wraps(read)
    def read_in_order(*arguments: Any, **options: Any) -> Any:
        data, count = read(*arguments, **{**options, "is_training": False})
        inputs, labels = zip(*data.unbatch().take(count).as_numpy_iterator())
        rows = {name: np.stack([row[name] for row in inputs]) for name in inputs[0]}
        rows.update((name, np.stack(part)) for name, part in zip(("ids", "next_sentence"), zip(*labels)))
        kept.arrays("records", rows)
        if popdist.isPopdistEnvSet():
            data = data.shard(popdist.getNumInstances(), popdist.getInstanceIndex())
        return data, count

    reading.get_real_dataset = read_in_order


def without_network(kept: Kept) -> None:
    """Give the program's loaders of SQuAD and GLUE the rows and the vocabulary of the folder."""
    file = kept.folder.parent / "data" / "data.json"
    if not file.exists():
        return
    columns = json.loads(file.read_text())
    tensorflow_datasets.load = lambda *_, **__: {
        part: tf.data.Dataset.from_tensor_slices(rows) for part, rows in columns.items()
    }
    tf.data.Dataset.shuffle = lambda data, *_, **__: data
    tokenizer = transformers.BertTokenizerFast(str(file.with_name("vocab.txt")))
    if "context" in columns["train"]:
        encode = tokenizer.encode_plus

        def question_first(context: str, question: str, **options: Any) -> Any:
            encoded = encode(question, context, **options)
            encoded.char_to_token = functools.partial(encoded.char_to_token, sequence_index=1)
            return encoded

        tokenizer.encode_plus = question_first
    transformers.AutoTokenizer.from_pretrained = lambda *_, **__: tokenizer


def main() -> None:
    kept, script = Kept(Path(sys.argv[1]).resolve()), Path(sys.argv[2]).resolve()
    sys.argv[:] = [str(script), *(os.path.abspath(word) if os.path.exists(word) else word for word in sys.argv[3:])]
    os.chdir(script.parent)
    sys.path[0] = str(script.parent)
    datasets.load_metric = NoMetric
    keep_training(kept)
    keep_records(kept)
    without_network(kept)
    runpy.run_path(str(script), run_name="__main__")


if __name__ == "__main__":
    main()
