"""Hugging Face's TensorFlow BERT, made from an architecture or read from a folder."""

from __future__ import annotations

from transformers import (
    BertConfig,
    TFBertForPreTraining,
    TFBertForQuestionAnswering,
    TFBertForSequenceClassification,
)

from keras_extensions.backend import set_random_seed
from model.architecture import Architecture


def hugging_face_config(architecture: Architecture) -> BertConfig:
    """The Hugging Face config of the same sizes."""
    a = architecture
    return BertConfig(
        vocab_size=a.vocab_size,
        hidden_size=a.hidden_size,
        num_hidden_layers=a.num_hidden_layers,
        num_attention_heads=a.num_attention_heads,
        intermediate_size=a.intermediate_size,
        hidden_act=a.hidden_act,
        hidden_dropout_prob=a.hidden_dropout_prob,
        attention_probs_dropout_prob=a.attention_probs_dropout_prob,
        max_position_embeddings=a.max_position_embeddings,
        type_vocab_size=a.type_vocab_size,
        initializer_range=a.initializer_range,
        layer_norm_eps=a.layer_norm_eps,
    )


def untrained_bert(architecture: Architecture, seed: int) -> TFBertForPreTraining:
    """A BERT with pre-training heads and random weights that depend on ``seed`` alone."""
    set_random_seed(seed)
    model = TFBertForPreTraining(hugging_face_config(architecture))
    model.build()
    return model


def untrained_squad(architecture: Architecture, seed: int) -> TFBertForQuestionAnswering:
    """A BERT with a span head and random weights that depend on ``seed`` alone."""
    set_random_seed(seed)
    model = TFBertForQuestionAnswering(hugging_face_config(architecture))
    model.build()
    return model


def untrained_classifier(architecture: Architecture, classes: int, seed: int) -> TFBertForSequenceClassification:
    """A BERT with a classifier of so many classes and random weights that depend on ``seed`` alone."""
    set_random_seed(seed)
    config = hugging_face_config(architecture)
    config.num_labels = classes
    model = TFBertForSequenceClassification(config)
    model.build()
    return model
