"""Figures that follow from a config, shared by plan, rules and trainer: the model's shape, steps, IPUs."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any, Dict, List, Optional

from model.architecture import PRETRAINING, Architecture, expected_blocks
from utilities.config.schema import TrainingConfig
from utilities.config.sections import BertConfig

# Devlin et al. 2019, section 3, and the sizes Google released beside them; published names begin so.
_BASE = {"hidden_size": 768, "num_attention_heads": 12, "num_hidden_layers": 12, "intermediate_size": 3072}
_LARGE = {"hidden_size": 1024, "num_attention_heads": 16, "num_hidden_layers": 24, "intermediate_size": 4096}
_NAMED_SIZES = {"bert-base-": _BASE, "bert-large-": _LARGE}
_NAMED_VOCABULARIES = {"-uncased": 30522, "-cased": 28996, "-chinese": 21128}

# Classes of each benchmark task; 1 for a regression, 2 for all that are not named.
_LABELS = {"mnli": 3, "cmnli": 3, "stsb": 1, "tnews": 15, "iflytek": 119}

LAYER_OPTIONS = ("use_qkv_bias", "use_qkv_split", "use_projection_bias", "use_cls_layer", "use_prediction_bias")
_FROM_SCRATCH = dict(zip(LAYER_OPTIONS, (False, False, False, False, True)))


def bert_sizes(config: TrainingConfig) -> Optional[BertConfig]:
    """The model's sizes: ``bert_config``, else what a local folder or a well-known name says.

    None where only loading the model would tell.
    """
    if config.bert_config is not None:
        return config.bert_config
    if config.bert_model_name is None:
        return None
    return _folder_sizes(Path(config.bert_model_name) / "config.json") or _named_sizes(config.bert_model_name)


def _folder_sizes(path: Path) -> Optional[BertConfig]:
    try:
        values = json.loads(path.read_text(encoding="utf-8"))
        return BertConfig(**{key: values[key] for key in BertConfig.model_fields if key in values})
    except (
        OSError,
        ValueError,
        TypeError,
    ):  # whether the folder is sound is for the loader of checkpoints to say
        return None


def _named_sizes(model_name: str) -> Optional[BertConfig]:
    short = model_name.rsplit("/", 1)[-1]
    for beginning, sizes in _NAMED_SIZES.items():
        if short.startswith(beginning):
            vocabulary = next((n for part, n in _NAMED_VOCABULARIES.items() if part in short), None)
            return BertConfig(**sizes, **({"vocab_size": vocabulary} if vocabulary else {}))
    return None


def number_of_labels(config: TrainingConfig) -> int:
    """Outputs of the classifier for the config's benchmark task."""
    return _LABELS.get(config.glue_task or "", 2)


def options_come_from_checkpoint(config: TrainingConfig) -> bool:
    """Whether an option of the layers is left to a checkpoint that is not read before the run."""
    unset = any(getattr(config, name) is None for name in LAYER_OPTIONS)
    return unset and config.pretrained_ckpt_path is not None


def starts_from_checkpoint(config: TrainingConfig) -> bool:
    """Whether weights come from somewhere else than chance."""
    return config.bert_model_name is not None or config.pretrained_ckpt_path is not None


def architecture_of(config: TrainingConfig) -> Optional[Architecture]:
    """The architecture with the published defaults for options that are unset.

    A Hugging Face model has every bias and the transform layer, so that is what unset options mean beside
    ``bert_model_name`` or where its own layers are kept. For ``pretrained_ckpt_path`` the checkpoint itself
    decides when it is loaded; until then the defaults of training from scratch stand in.
    """
    sizes = bert_sizes(config)
    if sizes is None:
        return None
    like_hugging_face = config.bert_model_name is not None or not config.replace_layers
    unset: Dict[str, bool] = dict.fromkeys(LAYER_OPTIONS, True) if like_hugging_face else _FROM_SCRATCH
    given = {name: getattr(config, name) for name in LAYER_OPTIONS}
    options = {name: unset[name] if value is None else value for name, value in given.items()}
    shape: Dict[str, Any] = sizes.model_dump(exclude={"position_embedding_type"})
    return Architecture(embedding_serialization_factor=config.embedding_serialization_factor, **shape, **options)


def blocks_of(config: TrainingConfig, task: str) -> Optional[List[str]]:
    """The model's blocks in order: those of ``pipeline_stages``, else the task's; None if unknown."""
    stages = config.ipu_config.pipeline_stages
    if stages is not None:
        return [block for stage in stages for block in stage]
    sizes = bert_sizes(config)
    return expected_blocks(task, sizes.num_hidden_layers) if sizes else None


def number_of_ipus(config: TrainingConfig) -> int:
    """IPUs of one replica."""
    return max(config.ipu_config.pipeline_device_mapping or [0]) + 1


def manifest_records(config: TrainingConfig) -> Optional[int]:
    """Records in the data set as its ``manifest.json`` says; None without a readable manifest."""
    if config.dataset_dir is None or config.generated_dataset:
        return None
    try:
        manifest = json.loads((Path(config.dataset_dir) / "manifest.json").read_text(encoding="utf-8"))
        records = manifest["totals"]["records"]
    except (OSError, ValueError, KeyError, TypeError):
        return None
    return records if isinstance(records, int) else None


def training_samples(config: TrainingConfig, records: Optional[int]) -> Optional[int]:
    """Samples to train on: ``total_num_train_samples``, or ``num_epochs`` × ``records``; None if unknown."""
    if config.total_num_train_samples is not None:
        return config.total_num_train_samples
    if config.num_epochs is not None and records is not None:
        return config.num_epochs * records
    return None


def training_steps(config: TrainingConfig, records: Optional[int] = None) -> Optional[int]:
    """Weight updates: samples / global batch, rounded down; None where the number of samples is unknown."""
    samples = training_samples(config, records)
    return None if samples is None else samples // config.samples_per_update


def warmup_steps(config: TrainingConfig, steps: int) -> int:
    """Weight updates of the warm-up: warmup_frac × steps, rounded, as the schedule does."""
    return round(steps * config.optimizer_opts.learning_rate.warmup_frac)


def max_learning_rate(config: TrainingConfig) -> float:
    """The peak learning rate, after the linear scaling rule (Goyal et al. 2017, section 2.1) where it is asked for."""
    rate = config.optimizer_opts.learning_rate
    if rate.reference_global_batch is None:
        return rate.max_learning_rate
    return rate.max_learning_rate * config.samples_per_update / rate.reference_global_batch


def masked_positions(config: TrainingConfig, task: str) -> int:
    """Positions per sample on which the masked-LM head works; 0 outside pre-training."""
    return config.max_predictions_per_seq if task == PRETRAINING else 0
