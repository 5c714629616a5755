"""Writes the exported folder atomically: weights, ``config.json`` and tokenizer."""

from __future__ import annotations

import contextlib
import dataclasses
import os
import shutil
from pathlib import Path
from typing import Any, Callable, Iterator, List, Mapping, NamedTuple, Optional, Sequence

from safetensors import SafetensorError
from safetensors.numpy import save_file
from tokenizers import AddedToken

from checkpoints.export.arrays import Exported, Head, exported_arrays
from checkpoints.export.card import write_card  # room: model_card
from checkpoints.pretrained.formats import VOCABULARY_DIGEST
from checkpoints.pretrained.model_folder import CONFIG, PUT_CONFIG, SAFETENSORS
from checkpoints.pretrained.opening import open_pretrained
from checkpoints.pretrained.pretrained import Pretrained, longest_text
from checkpoints.pretrained.sentence_transformers import (
    copy_cross_encoder,
    embedding_settings,
    is_cross_encoder,
    write_modules,
)
from checkpoints.pretrained.weights import CLASSIFIER
from data_utils.classification.benchmarks import TASKS as BENCHMARK_TASKS
from data_utils.tokenizer import bert_normalizer, read_vocabulary, vocabulary_file
from data_utils.tokenizer_files import PADDING, SETTINGS_NAME, TOKENIZER_FILES, VOCABULARY_NAME
from model.architecture import Architecture
from model.huggingface import BertConfig, hugging_face_config, transformers
from model.tasks import CLASSIFICATION, MULTI_LABEL, PRETRAINING, REGRESSION, SINGLE_LABEL, TASKS
from utilities.errors import UserError
from utilities.files import check_new_folder, only_command_in, sha256

CHECKPOINT, OUTPUT = "--checkpoint", "--output"

# Writes another form of an exported model into its folder, and returns notes on it. It takes the folder, the kind of
# model, and the fields of :class:`model.architecture.Architecture` that the checkpoint decides.
WriteMore = Callable[[Path, Head, Mapping[str, Any]], List[str]]


class Outcome(NamedTuple):
    """The result of an export."""

    head: Head
    origin: str
    notes: List[str]


def export(
    checkpoint: str,
    output: Path,
    vocabulary: Optional[Path] = None,
    lower_case: Optional[bool] = None,
    encoder_only: bool = False,
    more: Sequence[WriteMore] = (),
) -> Outcome:
    """Write a checkpoint of any origin as a Hugging Face folder for PyTorch; what is None is as in the checkpoint."""
    check_new_folder(output, OUTPUT)
    start = open_pretrained(checkpoint, CHECKPOINT)
    vocabulary = start.vocabulary if vocabulary is None else vocabulary_file(vocabulary)
    exported = exported_arrays(start, vocabulary, encoder_only)
    config = _config(start, exported, vocabulary)
    notes = list(exported.notes)
    if vocabulary is None:
        notes.append("The vocabulary is not known, so there are no tokenizer files.")
    temporary = output.parent / f".writing-{output.name}"
    with _writing_alone(temporary, output):
        config.save_pretrained(str(temporary))
        metadata = {"format": "pt"}
        if vocabulary is not None:
            _write_tokenizer(start, temporary, vocabulary, lower_case)
            metadata[VOCABULARY_DIGEST] = sha256(temporary / VOCABULARY_NAME)
        save_file(exported.arrays, str(temporary / SAFETENSORS), metadata=metadata)
        shutil.copymode(temporary / CONFIG, temporary / SAFETENSORS)  # safetensors ignores the user's umask
        settings = embedding_settings(start)
        if settings is not None:
            write_modules(temporary, start, settings, config.hidden_size)
        elif is_cross_encoder(start) and not encoder_only:
            copy_cross_encoder(start, temporary)
        for write in more:
            notes += write(temporary, exported.head, start.architecture)
        write_card(temporary, output.name, start, exported.head, config, notes)  # room: model_card
        if output.is_dir():
            output.rmdir()
        os.replace(temporary, output)
    return Outcome(exported.head, start.origin, notes)


@contextlib.contextmanager
def _writing_alone(temporary: Path, output: Path) -> Iterator[None]:
    """Within the block, the new folder ``temporary`` is this process's alone; what is left of it is removed."""
    with only_command_in(temporary):
        try:
            check_new_folder(output, OUTPUT)  # which another command may have written meanwhile
            for left in temporary.glob("*"):  # by an export that was killed
                shutil.rmtree(left) if left.is_dir() else left.unlink()
            temporary.mkdir(parents=True, exist_ok=True)
            yield
        except (OSError, SafetensorError) as error:
            reason = getattr(error, "strerror", None) or error
            raise UserError(f"{OUTPUT}: cannot write {output} ({reason}); name another folder") from error
        finally:
            shutil.rmtree(temporary, ignore_errors=True)


def _config(start: Pretrained, exported: Exported, vocabulary: Optional[Path]) -> BertConfig:
    if start.native:
        config = _native_config(start, exported)
    else:
        config = BertConfig.from_dict({name: value for name, value in start.settings.items() if name != "_path"})
    if vocabulary is not None and "pad_token_id" not in start.settings:  # the row that PyTorch never trains
        config.pad_token_id = read_vocabulary(vocabulary).piece_id(PADDING)
    config.architectures = [exported.head.model]
    config.dtype = "float32"
    return config


def _native_config(start: Pretrained, exported: Exported) -> BertConfig:
    missing = [name for name in ("num_attention_heads", "hidden_act") if name not in start.architecture]
    if missing:
        raise UserError(f"{start.key}: {start.origin} does not specify its {missing[0]}; {PUT_CONFIG}")
    architecture = dataclasses.replace(Architecture(**start.architecture), vocab_size=exported.rows)
    config = hugging_face_config(architecture)
    if f"{CLASSIFIER}.weight" in exported.arrays:
        names = _class_names(start, exported.arrays[f"{CLASSIFIER}.weight"].shape[0])
        config.id2label = dict(enumerate(names))
        config.label2id = {name: number for number, name in enumerate(names)}
        if exported.head.pipeline == TASKS[CLASSIFICATION].pipeline:
            config.problem_type = REGRESSION if len(names) == 1 else SINGLE_LABEL
            own = (start.settings.get("config") or {}).get("classification_data") or {}
            if own.get("label_separator") is not None:
                config.problem_type = MULTI_LABEL
    return config


def _class_names(start: Pretrained, classes: int) -> List[str]:
    """Return the names of a classifier's outputs: those from its training, or else numbers."""
    task = BENCHMARK_TASKS.get((start.settings.get("config") or {}).get("glue_task") or "")
    names = start.settings.get("labels") or ([label.name for label in task.labels] if task else [])
    return names if len(names) == classes else [f"LABEL_{number}" for number in range(classes)]


def _write_tokenizer(start: Pretrained, folder: Path, vocabulary: Path, lower_case: Optional[bool]) -> None:
    """Write the tokenizer's files to ``folder``; another project's files are copied unless the arguments differ."""
    words = read_vocabulary(vocabulary)
    (folder / VOCABULARY_NAME).write_bytes(words.content)
    if not start.native and start.folder is not None and vocabulary == start.vocabulary and lower_case is None:
        present = [start.folder / name for name in TOKENIZER_FILES if (start.folder / name).is_file()]
        if any(path.name == SETTINGS_NAME for path in present):
            for path in present:
                shutil.copyfile(path, folder / path.name)
            return
    given = None if vocabulary == start.vocabulary else words.lower_case
    lower_case = words.lowers_case(lower_case, given, start.lower_case)
    options = {name: value for name, value in words.rules.described().items() if name != "clean_text"}
    longest = longest_text(start, start.settings.get("task") or PRETRAINING)
    tokenizer = transformers.BertTokenizerFast(
        vocab_file=str(folder / VOCABULARY_NAME), do_lower_case=lower_case, model_max_length=longest, **options
    )
    tokenizer.backend_tokenizer.normalizer = bert_normalizer(lower_case, words.rules)
    tokenizer.add_tokens([AddedToken(**token._asdict()) for token in words.rules.added])
    tokenizer.save_pretrained(str(folder))
