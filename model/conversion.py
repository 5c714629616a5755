"""Hugging Face's TF BERT as blocks: of this project's layers, or of Hugging Face's own (``replace_layers`` false)."""

from __future__ import annotations

from typing import List, Optional, Sequence, Tuple

from execution.interface import Platform
from keras_extensions.backend import keras, tf
from keras_extensions.layer_replacement import Conversion, Rule, WeightMapping
from model.architecture import (
    EMB,
    EMBEDDING_HEAD,
    ENC_OUT,
    GLUE_HEAD,
    HEADS,
    HID,
    POOL,
    QA_HEAD,
    TOKEN_HEAD,
    Architecture,
)
from model.blocks import (
    Block,
    ClassifierBlock,
    EmbeddingBlock,
    EmbeddingsBlock,
    EncoderBlock,
    GatherBlock,
    MaskedLMBlock,
    PassBlock,
    PoolerBlock,
    PretrainingHeads,
    SpanHeadBlock,
)
from model.heads import Classifier, HeadTransform, MaskedLMHead, NextSentenceHead, Pooler, SpanHead
from model.huggingface import modeling_tf_bert as hf
from model.layers import Embeddings, EncoderLayer, Intermediate, SelfAttention, dense, residual_output
from model.tasks import expected_blocks

DENSE = (WeightMapping("dense.kernel", ("dense.kernel",)), WeightMapping("dense.bias", ("dense.bias",)))
NORM = (WeightMapping("norm.gamma", ("LayerNorm.gamma",)), WeightMapping("norm.beta", ("LayerNorm.beta",)))
EMBEDDINGS = (
    WeightMapping("word", ("weight",)),
    WeightMapping("position", ("position_embeddings",)),
    WeightMapping("segment", ("token_type_embeddings",)),
)
OUTPUT = (WeightMapping("dense.kernel", ("kernel",)), WeightMapping("dense.bias", ("bias",)))
SPLIT_QKV = tuple(
    WeightMapping(f"{part}.{kind}", (f"{part}.{kind}",))
    for part in ("query", "key", "value")
    for kind in ("kernel", "bias")
)
MERGED_QKV = tuple(
    WeightMapping(f"qkv.{kind}", tuple(f"{part}.{kind}" for part in ("query", "key", "value")))
    for kind in ("kernel", "bias")
)


def bert_rules(a: Architecture, platform: Platform) -> List[Rule]:
    """Return the rules from Hugging Face's classes and weights to our layers, with the platform's GeLU."""
    return [
        Rule(hf.TFBertEmbeddings, lambda _: Embeddings(a, platform), EMBEDDINGS + NORM),
        Rule(
            hf.TFBertSelfAttention,
            lambda _: SelfAttention(a, platform),
            SPLIT_QKV if a.use_qkv_split else MERGED_QKV,
        ),
        Rule(
            hf.TFBertSelfOutput,
            lambda _: residual_output(a, platform, a.use_projection_bias, "attention_output"),
            DENSE + NORM,
        ),
        Rule(hf.TFBertIntermediate, lambda _: Intermediate(a, platform), DENSE),
        Rule(hf.TFBertOutput, lambda _: residual_output(a, platform, True, "output"), DENSE + NORM),
        Rule(hf.TFBertPooler, lambda _: Pooler(a), DENSE),
        Rule(hf.TFBertPredictionHeadTransform, lambda _: HeadTransform(a, platform), DENSE + NORM),
        Rule(
            hf.TFBertNSPHead,
            lambda _: NextSentenceHead(),
            (
                WeightMapping("dense.kernel", ("seq_relationship.kernel",)),
                WeightMapping("dense.bias", ("seq_relationship.bias",)),
            ),
        ),
    ]


class UnconvertedEmbeddings(keras.layers.Layer):
    """Hugging Face's embeddings with the call of :class:`model.layers.Embeddings`."""

    def __init__(self, source: hf.TFBertEmbeddings):
        super().__init__(name="embeddings")
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
    """Hugging Face's encoder layer with the call of :class:`model.layers.EncoderLayer`."""

    def __init__(self, source: hf.TFBertLayer):
        super().__init__(name="encoder_layer")
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


class SourceLayers:
    """Gives Hugging Face's own, slower layers for the blocks: the reference, which shares the source's weights."""

    conversion: Optional[Conversion] = None

    def embeddings(self, source: hf.TFBertEmbeddings) -> keras.layers.Layer:
        return UnconvertedEmbeddings(source)

    def encoder_layer(self, source: hf.TFBertLayer) -> keras.layers.Layer:
        return UnconvertedLayer(source)

    def pooler(self, source: keras.layers.Layer) -> keras.layers.Layer:
        return source

    masked_lm = next_sentence = pooler

    def span(self, source: hf.TFBertForQuestionAnswering) -> keras.layers.Layer:
        return source.qa_outputs

    def classifier(self, source: hf.TFBertForSequenceClassification) -> keras.layers.Layer:
        return Classifier(source.dropout, source.classifier)


class ConvertedLayers(SourceLayers):
    """Gives this project's layers instead, and maps the weights to them."""

    def __init__(self, architecture: Architecture, platform: Platform):
        self._rules = self.conversion = Conversion(bert_rules(architecture, platform))
        self._architecture = architecture
        self._platform = platform

    def embeddings(self, source: hf.TFBertEmbeddings) -> keras.layers.Layer:
        self._embeddings = self._rules.replace(source)
        return self._embeddings

    def encoder_layer(self, source: hf.TFBertLayer) -> keras.layers.Layer:
        return EncoderLayer(
            self._platform,
            attention=self._rules.replace(source.attention.self_attention),
            attention_output=self._rules.replace(source.attention.dense_output),
            intermediate=self._rules.replace(source.intermediate),
            output=self._rules.replace(source.bert_output),
        )

    def pooler(self, source: keras.layers.Layer) -> keras.layers.Layer:
        return self._rules.replace(source)

    next_sentence = pooler

    def masked_lm(self, source: hf.TFBertLMPredictionHead) -> keras.layers.Layer:
        a, platform, table = self._architecture, self._platform, self._embeddings.word_table
        transform = self._rules.replace(source.transform) if a.use_cls_layer else None
        if transform is None:
            self._rules.drop(source.transform)
        bias = (WeightMapping("bias", ("bias",)),)
        self._rules.add(Rule(type(source), lambda _: MaskedLMHead(a, platform, table, transform), bias))
        return self._rules.replace(source)

    def span(self, source: hf.TFBertForQuestionAnswering) -> keras.layers.Layer:
        self._rules.add(Rule(keras.layers.Dense, lambda _: SpanHead(), OUTPUT))
        return self._rules.replace(source.qa_outputs)

    def classifier(self, source: hf.TFBertForSequenceClassification) -> keras.layers.Layer:
        dropout = self._platform.dropout(self._architecture.hidden_dropout_prob, name="dropout")
        head = Classifier(dropout, dense(source.config.num_labels))
        self._rules.add(Rule(keras.layers.Dense, lambda _: head, OUTPUT))
        return self._rules.replace(source.classifier)


def convert(
    task: str,
    source: keras.Model,
    architecture: Architecture,
    platform: Platform,
    tail: Optional[Sequence[str]] = None,
    replace_layers: bool = True,
) -> Tuple[List[Block], Optional[Conversion]]:
    """Return a Hugging Face model as ordered blocks, and the conversion; None if layers are kept.

    Once a model has been built from the blocks, its ``transfer_weights(source)`` must be called. The ``tail`` names the
    blocks after the encoder layers; None: the task's default.
    """
    layers = ConvertedLayers(architecture, platform) if replace_layers else SourceLayers()
    names = expected_blocks(task, 0, architecture.use_next_sentence)[1:] if tail is None else list(tail)
    bert = source.bert
    blocks: List[Block] = [EmbeddingsBlock(layers.embeddings(bert.embeddings), name=EMB)]
    for number, layer in enumerate(bert.encoder.layer):
        blocks.append(EncoderBlock(layers.encoder_layer(layer), platform, name=f"{HID}_{number}"))
    return blocks + [_tail_block(name, names, source, architecture, layers) for name in names], layers.conversion


def _tail_block(
    name: str, tail: Sequence[str], source: keras.Model, architecture: Architecture, layers: SourceLayers
) -> Block:
    """Return a block after the encoder layers; one that the model does not need passes hidden states unchanged."""
    if name == ENC_OUT and HEADS in tail:
        return GatherBlock(name=name)
    if name == POOL and source.bert.pooler is not None:
        return PoolerBlock(layers.pooler(source.bert.pooler), name=name)
    if name == HEADS:
        masked_lm = layers.masked_lm(source.mlm.predictions)
        if POOL not in tail:
            return MaskedLMBlock(masked_lm, name=name)
        return PretrainingHeads(masked_lm, layers.next_sentence(source.nsp), name=name)
    if name == QA_HEAD:
        return SpanHeadBlock(layers.span(source), name=name)
    if name in (GLUE_HEAD, TOKEN_HEAD):
        return ClassifierBlock(layers.classifier(source), "pooled" if name == GLUE_HEAD else "hidden", name=name)
    if name == EMBEDDING_HEAD:
        return EmbeddingBlock(architecture.pooling, name=name)
    return PassBlock(name=name)
