"""Writers for every checkpoint format, without PyTorch."""

from __future__ import annotations

import json
import zipfile
from collections.abc import Callable, Mapping
from pathlib import Path
from typing import Any

import numpy as np
from safetensors.numpy import save_file

from keras_extensions.backend import tf
from tests.support.pytorch_names import pytorch_arrays

Arrays = Mapping[str, np.ndarray]


def write_config(model: Any, folder: Path, **changes: Any) -> None:
    folder.mkdir(parents=True, exist_ok=True)
    values = {**model.config.to_dict(), "architectures": [type(model).__name__[2:]], **changes}
    (folder / "config.json").write_text(json.dumps(values), encoding="utf-8")


def safetensors(model: Any, folder: Path, arrays: Arrays | None = None) -> Path:
    write_config(model, folder)
    contiguous = {name: np.ascontiguousarray(a) for name, a in (arrays or pytorch_arrays(model)).items()}
    save_file(contiguous, folder / "model.safetensors", metadata={"format": "pt"})
    return folder


def sharded_safetensors(model: Any, folder: Path) -> Path:
    write_config(model, folder)
    arrays = pytorch_arrays(model)
    names = sorted(arrays)
    weight_map: dict[str, str] = {}
    for part in range(3):
        file = f"model-0000{part + 1}-of-00003.safetensors"
        some = {name: np.ascontiguousarray(arrays[name]) for name in names[part::3]}
        save_file(some, folder / file, metadata={"format": "pt"})
        weight_map.update(dict.fromkeys(some, file))
    (folder / "model.safetensors.index.json").write_text(json.dumps({"metadata": {}, "weight_map": weight_map}))
    return folder


def tensorflow_safetensors(model: Any, folder: Path) -> Path:
    model.save_pretrained(folder, safe_serialization=True)
    return folder


def hdf5(model: Any, folder: Path) -> Path:
    model.save_pretrained(folder)
    return folder


def sharded_hdf5(model: Any, folder: Path) -> Path:
    model.save_pretrained(folder, max_shard_size="20KB")
    assert (folder / "tf_model.h5.index.json").exists()
    return folder


def hdf5_of_called_model(model: Any, folder: Path) -> Path:
    """Write a file like those of the hub: the model was called first, so all names begin with the model's name."""
    other = type(model)(model.config)
    other(tf.ones((1, 4), tf.int32))
    by_ending = {variable.name.split("/", 1)[1]: variable for variable in other.weights}
    for variable in model.weights:
        by_ending[variable.name].assign(variable)
    assert other.weights[0].name.startswith("tf_bert_for_")
    other.save_pretrained(folder)
    return folder


def pytorch_bin(model: Any, folder: Path) -> Path:
    write_config(model, folder)
    write_bin(folder / "pytorch_model.bin", pytorch_arrays(model))
    return folder


def google(model: Any, folder: Path) -> Path:
    """Write a file like ``bert_model.ckpt`` of google-research/bert, with TF1 names, Adam's slots, and the step."""
    folder.mkdir(parents=True)
    values = model.config.to_dict()
    known = ("hidden_size", "vocab_size", "num_attention_heads", "num_hidden_layers", "intermediate_size", "hidden_act",
             "hidden_dropout_prob", "attention_probs_dropout_prob", "max_position_embeddings", "type_vocab_size",
             "initializer_range")  # fmt: skip
    (folder / "bert_config.json").write_text(json.dumps({name: values[name] for name in known}), encoding="utf-8")
    variables: dict[str, np.ndarray] = {"global_step": np.array(7, np.int64)}
    for name, array in pytorch_arrays(model).items():
        variable, value = google_name(name, array)
        variables[variable] = value
        variables[f"{variable}/adam_m"] = variables[f"{variable}/adam_v"] = np.full_like(value, 7)
    with tf.Graph().as_default(), tf.compat.v1.Session() as session:
        made = {name: tf.compat.v1.get_variable(name, initializer=value) for name, value in variables.items()}
        session.run(tf.compat.v1.global_variables_initializer())
        tf.compat.v1.train.Saver(made).save(session, str(folder / "bert_model.ckpt"))
    return folder


def google_name(name: str, array: np.ndarray) -> tuple[str, np.ndarray]:
    """Return a weight's name and layout in google-research/bert (modeling.py, run_pretraining.py, run_squad.py, …)."""
    heads = {
        "cls.predictions.bias": "cls/predictions/output_bias",
        "cls.seq_relationship.weight": "cls/seq_relationship/output_weights",
        "cls.seq_relationship.bias": "cls/seq_relationship/output_bias",
        "qa_outputs.weight": "cls/squad/output_weights",
        "qa_outputs.bias": "cls/squad/output_bias",
        "classifier.weight": "output_weights",
        "classifier.bias": "output_bias",
    }
    if name in heads:
        return heads[name], array
    path = name.replace("layer.", "layer_").replace(".", "/")
    if "LayerNorm" in path:
        return path.replace("LayerNorm/weight", "LayerNorm/gamma").replace("LayerNorm/bias", "LayerNorm/beta"), array
    if "_embeddings/" in path:
        return path.removesuffix("/weight"), array
    return (path.removesuffix("weight") + "kernel", array.T) if path.endswith("/weight") else (path, array)


FORMATS: dict[str, Callable[[Any, Path], Path]] = {
    "safetensors": safetensors,
    "safetensors in parts": sharded_safetensors,
    "safetensors of TensorFlow": tensorflow_safetensors,
    "pytorch_model.bin": pytorch_bin,
    "tf_model.h5": hdf5,
    "tf_model.h5 in parts": sharded_hdf5,
    "tf_model.h5 of a called model": hdf5_of_called_model,
    "bert_model.ckpt": google,
}


def write_bin(path: Path, arrays: Arrays, preamble: bytes = b"", ordered: bool = False) -> None:
    """Write a file like ``torch.save``: a zip of a pickle, which is assembled here by hand, and of the numbers.

    Args:
        preamble: pickle code to run first.
        ordered: whether to write an OrderedDict with an attribute, like a module's ``state_dict()``, not a dict.
    """
    code = [b"\x80\x02", preamble, b"ccollections\nOrderedDict\n)R" if ordered else b"}", b"("]
    with zipfile.ZipFile(path, "w", zipfile.ZIP_STORED) as file:
        for number, (name, array) in enumerate(arrays.items()):
            file.writestr(f"archive/data/{number}", np.ascontiguousarray(array).tobytes())
            strides = [stride // array.itemsize for stride in np.ascontiguousarray(array).strides]
            code += [text(name), tensor(number, STORAGES[array.dtype.name], array.size, array.shape, strides)]
        code += [b"u", b"}" + text("_metadata") + b"}sb" if ordered else b"", b"."]
        file.writestr("archive/data.pkl", b"".join(code))
        file.writestr("archive/version", b"3\n")


STORAGES = {"float32": "FloatStorage", "float16": "HalfStorage", "bfloat16": "BFloat16Storage", "int64": "LongStorage"}


def tensor(key: int, storage: str, size: int, shape: Any, strides: Any, offset: int = 0) -> bytes:
    """Return the pickle code of one tensor."""
    reference = (
        b"(" + text("storage") + f"ctorch\n{storage}\n".encode() + text(str(key)) + text("cpu") + whole(size) + b"tQ"
    )
    view = whole(offset) + numbers(shape) + numbers(strides)
    return b"ctorch._utils\n_rebuild_tensor_v2\n(" + reference + view + b"\x89ccollections\nOrderedDict\n)RtR"


def text(value: str) -> bytes:
    data = value.encode()
    return b"X" + len(data).to_bytes(4, "little") + data


def whole(value: int) -> bytes:
    return b"J" + int(value).to_bytes(4, "little")


def numbers(values: Any) -> bytes:
    return b"(" + b"".join(whole(value) for value in values) + b"t"
