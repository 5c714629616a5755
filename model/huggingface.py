"""Hugging Face's TensorFlow BERT, made from an architecture or read from a folder."""

from __future__ import annotations

from typing import Optional

from keras_extensions.backend import (
    keras,
    set_random_seed,
)  # before Transformers, which reads the variables that it sets

# isort: split
import transformers
from transformers import BertConfig, TFPreTrainedModel
from transformers.models.bert import modeling_tf_bert

from model.architecture import Architecture
from model.tasks import MASKED_LM, PRETRAINING, SENTENCE_EMBEDDING, TASKS

__all__ = ["BertConfig", "build_hf_model", "hugging_face_config", "modeling_tf_bert", "transformers"]


def hugging_face_config(architecture: Architecture) -> BertConfig:
    """Return the Hugging Face config of the same sizes."""
    known = BertConfig()
    return BertConfig(**{name: value for name, value in vars(architecture).items() if hasattr(known, name)})


def build_hf_model(task: str, architecture: Architecture, seed: Optional[int], labels: int = 2) -> TFPreTrainedModel:
    """Return a BERT for a task with random weights that depend on ``seed`` alone.

    Without a seed, all weights are to be loaded. Dense matrices then begin with zeros: random numbers for those of
    BERT-base take half of the time in which it is loaded.
    """
    if seed is not None:
        set_random_seed(seed)
    config = hugging_face_config(architecture)
    config.num_labels = labels
    without_next_sentence = task == PRETRAINING and not architecture.use_next_sentence
    name = MASKED_LM if without_next_sentence else TASKS[task].hugging_face
    options = {"add_pooling_layer": False} if task == SENTENCE_EMBEDDING else {}
    model = getattr(transformers, f"TF{name}")(config, **options)
    dense = [layer for layer in model.submodules if isinstance(layer, keras.layers.Dense)] if seed is None else []
    for layer in dense:
        layer.kernel_initializer = keras.initializers.Zeros()
    model.build()
    return model
