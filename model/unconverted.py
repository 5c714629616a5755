"""BERT from Hugging Face's own layers, unconverted, in the same blocks (``replace_layers`` false).

Slower, and the yardstick: whatever the conversion does must give what these give.
"""

from __future__ import annotations

from typing import List, Optional

from transformers.models.bert import modeling_tf_bert as hf

from execution.interface import Platform
from keras_extensions.backend import keras, tf
from model.architecture import EMB, ENC_OUT, HEADS, HID, POOL
from model.blocks import Block, EmbeddingsBlock, EncoderBlock, GatherBlock, PoolerBlock, PretrainingHeads


class UnconvertedEmbeddings(keras.layers.Layer):
    """Hugging Face's embeddings with the call of :class:`model.embeddings.Embeddings`."""

    def __init__(self, source: hf.TFBertEmbeddings, name: str = "embeddings"):
        super().__init__(name=name)
        self.source = source

    def call(self, input_ids: tf.Tensor, segment_ids: tf.Tensor, training: Optional[bool] = None) -> tf.Tensor:
        return self.source(input_ids=input_ids, token_type_ids=segment_ids, training=training)


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


def unconverted_pretraining(source: hf.TFBertForPreTraining, platform: Platform) -> List[Block]:
    """Blocks for pre-training that share the weights of ``source``."""
    layers = [
        EncoderBlock(UnconvertedLayer(layer), platform, name=f"{HID}_{number}")
        for number, layer in enumerate(source.bert.encoder.layer)
    ]
    return [
        EmbeddingsBlock(UnconvertedEmbeddings(source.bert.embeddings), name=EMB),
        *layers,
        GatherBlock(name=ENC_OUT),
        PoolerBlock(source.bert.pooler, name=POOL),
        PretrainingHeads(source.mlm.predictions, source.nsp, name=HEADS),
    ]
