"""A Hugging Face BERT and its conversion, and batches for both."""

from __future__ import annotations

from typing import Dict, NamedTuple, Tuple

import numpy as np
from transformers import TFBertForPreTraining

from data_utils.records.features import fine_tuning_features, pretraining_features
from execution.software.platform import SoftwarePlatform
from keras_extensions.backend import keras, tf
from keras_extensions.conversion import Conversion
from model.architecture import PRETRAINING, Architecture
from model.bert import assemble
from model.conversion import convert
from model.huggingface import untrained

ALL_BIASES = {
    "use_qkv_bias": True,
    "use_qkv_split": True,
    "use_projection_bias": True,
    "use_cls_layer": True,
    "use_prediction_bias": True,
}
TINY = {"hidden_size": 32, "num_attention_heads": 4, "num_hidden_layers": 2, "intermediate_size": 96, "vocab_size": 120}


def token_shapes(sequence_length: int) -> Dict[str, Tuple[int, ...]]:
    """Shapes of the inputs of a fine-tuning model, for one padded row."""
    return fine_tuning_features("squad", sequence_length, 1).shapes


def pretraining_shapes(sequence_length: int, masked_positions: int) -> Dict[str, Tuple[int, ...]]:
    """Shapes of the inputs of a pre-training model, for one padded row."""
    return pretraining_features(sequence_length, masked_positions, 1).shapes


class Pair(NamedTuple):
    """The source, what it became, and how."""

    source: TFBertForPreTraining
    model: keras.Model
    conversion: Conversion


def architecture(**changes: object) -> Architecture:
    """A small BERT with all biases and without dropout, changed as said."""
    sizes = {"hidden_dropout_prob": 0.0, "attention_probs_dropout_prob": 0.0, "max_position_embeddings": 48}
    return Architecture(**{**TINY, **ALL_BIASES, **sizes, **changes})


def source_with_random_weights(a: Architecture) -> TFBertForPreTraining:
    """A Hugging Face model with random weights, biases and norms too."""
    source = untrained(PRETRAINING, a, seed=11)
    random = np.random.default_rng(5)
    for variable in source.weights:
        variable.assign(variable + random.normal(0, 0.05, variable.shape).astype("float32"))
    return source


def converted(a: Architecture, sequence_length: int = 24, masked_positions: int = 6, **platform: bool) -> Pair:
    """A Hugging Face model with random weights and its conversion."""
    source = source_with_random_weights(a)
    options = {"xla": False, "recompute": False, **platform}
    on = SoftwarePlatform(seed=1, **options)
    blocks, conversion = convert(PRETRAINING, source, a, on)
    shapes = pretraining_shapes(sequence_length, masked_positions)
    stages = [[block.name for block in blocks]]
    model = assemble(blocks, shapes, ("masked_lm", "next_sentence"), stages, on)
    conversion.carry_weights(source)
    return Pair(source, model, conversion)


def batch(
    a: Architecture, size: int = 4, sequence_length: int = 24, masked: int = 6, seed: int = 0
) -> Dict[str, np.ndarray]:
    """A pre-training batch with padding, and with fewer masked tokens in some rows than in others."""
    random = np.random.default_rng(seed)
    lengths = random.integers(sequence_length // 2, sequence_length + 1, size)
    mask = (np.arange(sequence_length) < lengths[:, None]).astype("int32")
    positions = np.stack([np.sort(random.permutation(sequence_length // 2)[:masked]) for _ in range(size)])
    weights = (np.arange(masked) < random.integers(1, masked + 1, size)[:, None]).astype("float32")
    return {
        "input_ids": random.integers(0, a.vocab_size, (size, sequence_length)).astype("int32"),
        "input_mask": mask,
        "segment_ids": random.integers(0, 2, (size, sequence_length)).astype("int32"),
        "masked_lm_positions": positions.astype("int32"),
        "masked_lm_ids": random.integers(0, a.vocab_size, (size, masked)).astype("int32"),
        "masked_lm_weights": weights,
        "next_sentence_labels": random.integers(0, 2, (size, 1)).astype("int32"),
    }


def source_outputs(source: TFBertForPreTraining, data: Dict[str, np.ndarray]) -> Dict[str, tf.Tensor]:
    """Hugging Face's logits, those of words taken at the masked positions."""
    outputs = source(input_ids=data["input_ids"], attention_mask=data["input_mask"], token_type_ids=data["segment_ids"])
    words = tf.gather(outputs.prediction_logits, data["masked_lm_positions"], batch_dims=1)
    return {"masked_lm": words, "next_sentence": outputs.seq_relationship_logits}
