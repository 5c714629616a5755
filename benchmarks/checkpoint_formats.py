"""Seconds from a file to a model, by format, and to export one: ``python -m benchmarks.checkpoint_formats``.

A pre-training model with random weights is written in every format that a run can start from. Reading includes
everything: detecting the format and the architecture, making the Hugging Face model, and setting its weights. It is
compared with ``TFBertForPreTraining.from_pretrained``, which does the same, if Hugging Face reads the format without
PyTorch. ``pytorch_model.bin`` is left out if PyTorch, which writes it, is not installed.
"""

from __future__ import annotations

import argparse
import dataclasses
import importlib.util
import shutil
import sys
import tempfile
import time
from collections.abc import Callable
from functools import partial
from pathlib import Path
from typing import Any

from transformers import TFBertForPreTraining

from benchmarks import measuring
from benchmarks.measuring import Report
from benchmarks.ours import build, cpu_platform
from benchmarks.samples import pretraining_spec
from benchmarks.settings import SIZES, architecture_of
from checkpoints.export.hf_folder import export
from checkpoints.pretrained.opening import open_pretrained
from checkpoints.state import TrainingState
from checkpoints.writer import write_checkpoint
from keras_extensions.backend import keras, tf
from model.architecture import Architecture
from model.huggingface import build_hf_model
from model.tasks import PRETRAINING

OWN, SAFETENSORS, BIN, GOOGLE = "this project's", "safetensors", "pytorch_model.bin", "bert_model.ckpt"
TF_SAFETENSORS, H5 = "safetensors of TensorFlow", "tf_model.h5 of a called model"
THEIRS = (TF_SAFETENSORS, H5)  # which Hugging Face reads without PyTorch


def write_formats(source: Any, architecture: Architecture, work: Path) -> dict[str, Path]:
    """Write a model in every format, and return the folders."""
    folders = {OWN: work / "own", SAFETENSORS: work / "safetensors", TF_SAFETENSORS: work / "tensorflow"}
    folders.update({H5: work / "h5", GOOGLE: work / "google"})
    _, blocks = build(PRETRAINING, architecture, pretraining_spec().shapes, cpu_platform(), source=source)
    facts = {"task": PRETRAINING, "architecture": dataclasses.asdict(architecture), "lower_case": True}
    write_checkpoint(TrainingState(blocks, keras.optimizers.SGD(0.1)).copy(), folders[OWN], 1, facts)
    export(str(folders[OWN]), folders[SAFETENSORS], None, True)
    source.save_pretrained(folders[TF_SAFETENSORS], safe_serialization=True)
    called = TFBertForPreTraining(source.config)  # called before it is named, like files on the hub
    called(tf.ones((1, 4), tf.int32))
    by_ending = {variable.name.split("/", 1)[1]: variable for variable in called.weights}
    for variable in source.weights:
        by_ending[variable.name].assign(variable)
    called.save_pretrained(folders[H5])
    _write_google(folders[SAFETENSORS], folders[GOOGLE])
    if importlib.util.find_spec("torch") is not None:
        import torch
        from safetensors.torch import load_file

        folders[BIN] = work / "bin"
        folders[BIN].mkdir()
        shutil.copy(folders[SAFETENSORS] / "config.json", folders[BIN])
        torch.save(load_file(folders[SAFETENSORS] / "model.safetensors"), folders[BIN] / "pytorch_model.bin")
    return folders


def _write_google(exported: Path, folder: Path) -> None:
    """Write an exported model as google-research/bert does: TF1 names, and the optimizer's slots."""
    from safetensors.numpy import load_file

    folder.mkdir()
    shutil.copy(exported / "config.json", folder / "bert_config.json")
    variables = {}
    for name, array in load_file(exported / "model.safetensors").items():
        google, transposed = _google_name(name)
        value = array.T if transposed else array
        variables.update({google: value, f"{google}/adam_m": value, f"{google}/adam_v": value})
    with tf.Graph().as_default(), tf.compat.v1.Session() as session:
        made = {name: tf.compat.v1.get_variable(name, initializer=value) for name, value in variables.items()}
        session.run(tf.compat.v1.global_variables_initializer())
        tf.compat.v1.train.Saver(made).save(session, str(folder / "bert_model.ckpt"))


def _google_name(name: str) -> tuple[str, bool]:
    """Return google-research/bert's name of a weight, and whether its axes have to be exchanged."""
    heads = {"cls.predictions.bias": "output_bias", "cls.seq_relationship.weight": "output_weights"}
    heads["cls.seq_relationship.bias"] = "output_bias"
    if name in heads:
        return f"{name.rsplit('.', 1)[0].replace('.', '/')}/{heads[name]}", False
    path = name.replace("layer.", "layer_").replace(".", "/")
    if "LayerNorm" in path:
        return path.replace("LayerNorm/weight", "LayerNorm/gamma").replace("LayerNorm/bias", "LayerNorm/beta"), False
    if "_embeddings/" in path:
        return path.removesuffix("/weight"), False
    is_kernel = path.endswith("/weight")
    return (path.removesuffix("weight") + "kernel" if is_kernel else path), is_kernel


def read(folder: Path) -> None:
    """Make a Hugging Face model and set its weights from files, as a run does before it converts the model."""
    start = open_pretrained(str(folder), "pretrained_ckpt_path")
    start.initialize_source(build_hf_model(PRETRAINING, Architecture(**start.architecture), seed=1))


def seconds(action: Callable[..., object], *arguments: object) -> float:
    begin = time.perf_counter()
    action(*arguments)
    return time.perf_counter() - begin


def measure(folder: Path, output: Path, theirs: bool) -> measuring.Values:
    """Return the seconds of each way to read the folder as a model, and of its export.

    Args:
        theirs: whether Hugging Face reads it without PyTorch.
    """
    values = {"read": seconds(read, folder), "export": seconds(export, str(folder), output, None, True)}
    shutil.rmtree(output)
    if theirs:
        values["theirs"] = seconds(TFBertForPreTraining.from_pretrained, folder)
    return values


@measuring.benchmark({"--size": {"choices": SIZES, "default": "base", "help": "of the model"}}, rounds=5)
def main(options: argparse.Namespace) -> Report:
    architecture = architecture_of(options.size, use_prediction_bias=True)
    with tempfile.TemporaryDirectory() as name:
        work = Path(name)
        folders = write_formats(build_hf_model(PRETRAINING, architecture, seed=11), architecture, work)
        variants = {form: partial(measure, f, work / "exported", form in THEIRS) for form, f in folders.items()}
        measured = measuring.alternate(variants, options.rounds, options.json)
    columns = [
        measured.column("file to model", "read"),
        measured.column("HF `from_pretrained`, file to model", "theirs"),
        measured.column("file to Hugging Face folder", "export"),
    ]
    about = f"BERT-{options.size}, median (min–max) of {options.rounds} rounds. Both sides start without a model."
    return Report([about, measuring.table("seconds", {form: form for form in folders}, columns)])


if __name__ == "__main__":
    sys.exit(main())
