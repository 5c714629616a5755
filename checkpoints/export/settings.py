"""What stands beside exported weights: ``config.json`` and the tokenizer's files."""

from __future__ import annotations

import dataclasses
import shutil
from pathlib import Path
from typing import Any, Dict, List, Optional

from transformers import BertConfig, BertTokenizerFast

from checkpoints.export.arrays import Exported
from checkpoints.pretrained.names import CLASSIFIER
from checkpoints.pretrained.pretrained import Pretrained
from checkpoints.pretrained.settings import TOKENIZER_CONFIG
from data_utils.classification.benchmarks import TASKS as BENCHMARK_TASKS
from data_utils.tokenizer import read_vocabulary
from model.architecture import CLASSIFICATION, TASKS, Architecture
from model.huggingface import hugging_face_config
from utilities.errors import UserError

_TOKENIZER_FILES = (TOKENIZER_CONFIG, "tokenizer.json", "special_tokens_map.json", "added_tokens.json", "vocab.txt")


def exported_config(start: Pretrained, exported: Exported, key: str) -> BertConfig:
    """The config of an exported model.

    Args:
        start: the checkpoint.
        exported: its weights as they are written.
        key: flag that named the checkpoint.

    Raises:
        UserError: the checkpoint does not tell what the config has to.
    """
    if start.own:
        config = _own_config(start, exported, key)
    else:
        config = BertConfig.from_dict({name: value for name, value in start.settings.items() if name != "_path"})
    config.architectures = [exported.head.model]
    config.dtype = "float32"
    return config


def _own_config(start: Pretrained, exported: Exported, key: str) -> BertConfig:
    missing = [name for name in ("num_attention_heads", "hidden_act") if name not in start.architecture]
    if missing:
        raise UserError(
            f"{key}: {start.origin} does not tell its {missing[0]}; name the checkpoint's folder (step-…), in which"
            " checkpoint.json does"
        )
    architecture = dataclasses.replace(Architecture(**start.architecture), vocab_size=exported.rows)
    config = hugging_face_config(architecture)
    if f"{CLASSIFIER}.weight" in exported.arrays:
        names = class_names(start, exported.arrays[f"{CLASSIFIER}.weight"].shape[0])
        config.id2label = dict(enumerate(names))
        config.label2id = {name: number for number, name in enumerate(names)}
        if exported.head.pipeline == TASKS[CLASSIFICATION].pipeline:
            config.problem_type = "regression" if len(names) == 1 else "single_label_classification"
    return config


def class_names(start: Pretrained, classes: int) -> List[str]:
    """Return the names of a classifier's outputs: those that it was trained with, else numbers."""
    task = BENCHMARK_TASKS.get((start.settings.get("config") or {}).get("glue_task") or "")
    names = start.settings.get("labels") or ([label.name for label in task.labels] if task else [])
    return names if len(names) == classes else [f"LABEL_{number}" for number in range(classes)]


def write_tokenizer(
    start: Pretrained, folder: Path, vocabulary: Optional[Path], lower_case: Optional[bool], positions: int
) -> bool:
    """Write the tokenizer's files.

    Args:
        start: the checkpoint. Another project's tokenizer is copied, unless something else is asked for.
        folder: to write to.
        vocabulary: ``vocab.txt``.
        lower_case: whether text is lower-cased; None: as the checkpoint says, else as the vocabulary looks.
        positions: tokens of the longest sequence.

    Returns:
        Whether there is a vocabulary.
    """
    if vocabulary is None:
        return False
    if not start.own and start.folder is not None and vocabulary == start.vocabulary and lower_case is None:
        present = [start.folder / name for name in _TOKENIZER_FILES if (start.folder / name).is_file()]
        if any(path.name == TOKENIZER_CONFIG for path in present):
            for path in present:
                shutil.copyfile(path, folder / path.name)
            return True
    known = read_vocabulary(vocabulary)
    said = (lower_case, start.lower_case)
    lower = next((case for case in said if case is not None), known.looks_lower_cased())
    tokenizer = BertTokenizerFast(vocab_file=str(vocabulary), do_lower_case=lower, model_max_length=positions)
    tokenizer.save_pretrained(str(folder))
    return True


def facts_of(config: BertConfig) -> Dict[str, Any]:
    """Sizes for the model card."""
    return {
        "encoder layers": config.num_hidden_layers,
        "hidden size": config.hidden_size,
        "attention heads": config.num_attention_heads,
        "feed-forward size": config.intermediate_size,
        "positions": config.max_position_embeddings,
        "word pieces": config.vocab_size,
        "activation": config.hidden_act,
    }
