"""BERT from Hugging Face's own layers, unconverted, in the same blocks (``replace_layers`` false).

Slower, and the yardstick: whatever the conversion does must give what these give.
"""

from __future__ import annotations

from typing import List, Optional, Sequence

from transformers.models.bert import modeling_tf_bert as hf

from execution.interface import Platform
from keras_extensions.backend import keras, tf
from model.architecture import EMB, ENC_OUT, GLUE_HEAD, HEADS, HID, POOL, QA_HEAD
from model.blocks import (
    Block,
    ClassifierBlock,
    EmbeddingsBlock,
    EncoderBlock,
    GatherBlock,
    PassBlock,
    PoolerBlock,
    PretrainingHeads,
    SpanHeadBlock,
)


class UnconvertedEmbeddings(keras.layers.Layer):
    """Hugging Face's embeddings with the call of :class:`model.embeddings.Embeddings`."""

    def __init__(self, source: hf.TFBertEmbeddings, name: str = "embeddings"):
        super().__init__(name=name)
        self.source = source

    def call(
        self,
        input_ids: tf.Tensor,  # (B, S) int32
        segment_ids: tf.Tensor,  # (B, S) int32
        position_ids: Optional[tf.Tensor] = None,  # (B, S) int32; None counts from 0
        training: Optional[bool] = None,
    ) -> tf.Tensor:
        return self.source(
            input_ids=input_ids, position_ids=position_ids, token_type_ids=segment_ids, training=training
        )  # (B, S, H)


class UnconvertedLayer(keras.layers.Layer):
    """Hugging Face's encoder layer with the call of :class:`model.encoder.EncoderLayer`."""

    def __init__(self, source: hf.TFBertLayer, name: str = "encoder_layer"):
        super().__init__(name=name)
        self.source = source

    def call(self, hidden: tf.Tensor, bias: tf.Tensor, training: Optional[bool] = None) -> tf.Tensor:
        outputs = self.source(
            hidden_states=hidden,
            attention_mask=bias,
            head_mask=None,
            encoder_hidden_states=None,
            encoder_attention_mask=None,
            past_key_value=None,
            output_attentions=False,
            training=training,
        )
        return outputs[0]


class UnconvertedClassifier(keras.layers.Layer):
    """Hugging Face's dropout and classifier with the call of :class:`model.heads.Classifier`."""

    def __init__(self, source: hf.TFBertForSequenceClassification, name: str = "classifier"):
        super().__init__(name=name)
        self.dropout, self.dense = source.dropout, source.classifier

    def call(self, pooled: tf.Tensor, training: Optional[bool] = None) -> tf.Tensor:
        return self.dense(self.dropout(pooled, training=training))


def unconverted_encoder(bert: hf.TFBertMainLayer, platform: Platform) -> List[Block]:
    """The blocks that every task shares, ``emb`` and the ``hid``."""
    layers = [
        EncoderBlock(UnconvertedLayer(layer), platform, name=f"{HID}_{number}")
        for number, layer in enumerate(bert.encoder.layer)
    ]
    return [EmbeddingsBlock(UnconvertedEmbeddings(bert.embeddings), name=EMB), *layers]


def unconverted_pretraining(source: hf.TFBertForPreTraining, platform: Platform) -> List[Block]:
    """Blocks for pre-training that share the weights of ``source``."""
    return [
        *unconverted_encoder(source.bert, platform),
        GatherBlock(name=ENC_OUT),
        PoolerBlock(source.bert.pooler, name=POOL),
        PretrainingHeads(source.mlm.predictions, source.nsp, name=HEADS),
    ]


def unconverted_squad(source: hf.TFBertForQuestionAnswering, platform: Platform, tail: Sequence[str]) -> List[Block]:
    """Blocks for span prediction that share the weights of ``source``; ``tail`` as in the conversion."""
    head = SpanHeadBlock(source.qa_outputs, name=QA_HEAD)
    return unconverted_encoder(source.bert, platform) + [
        head if name == QA_HEAD else PassBlock(name=name) for name in tail
    ]


def unconverted_classification(
    source: hf.TFBertForSequenceClassification, platform: Platform, tail: Sequence[str]
) -> List[Block]:
    """Blocks for classification that share the weights of ``source``; ``tail`` as in the conversion."""
    named = {
        POOL: PoolerBlock(source.bert.pooler, name=POOL),
        GLUE_HEAD: ClassifierBlock(UnconvertedClassifier(source), name=GLUE_HEAD),
    }
    return unconverted_encoder(source.bert, platform) + [
        named[name] if name in named else PassBlock(name=name) for name in tail
    ]
