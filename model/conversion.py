"""The recipe that turns Hugging Face's TF BERT into blocks of this project's layers."""

from __future__ import annotations

from typing import List, Sequence, Tuple

from transformers.models.bert import modeling_tf_bert as hf

from execution.interface import Platform
from keras_extensions.backend import keras
from keras_extensions.conversion import Carry, Conversion, Rule
from model.architecture import EMB, ENC_OUT, GLUE_HEAD, HEADS, HID, POOL, QA_HEAD, Architecture
from model.attention import SelfAttention
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
from model.embeddings import Embeddings
from model.encoder import EncoderLayer, Intermediate, ResidualOutput
from model.heads import Classifier, HeadTransform, MaskedLMHead, NextSentenceHead, Pooler, SpanHead

DENSE = (Carry("dense.kernel", ("dense.kernel",)), Carry("dense.bias", ("dense.bias",)))
NORM = (Carry("norm.gamma", ("LayerNorm.gamma",)), Carry("norm.beta", ("LayerNorm.beta",)))
EMBEDDINGS = (
    Carry("word", ("weight",)),
    Carry("position", ("position_embeddings",)),
    Carry("segment", ("token_type_embeddings",)),
)
OUTPUT = (Carry("dense.kernel", ("kernel",)), Carry("dense.bias", ("bias",)))
SPLIT_QKV = tuple(
    Carry(f"{part}.{kind}", (f"{part}.{kind}",)) for part in ("query", "key", "value") for kind in ("kernel", "bias")
)
MERGED_QKV = tuple(
    Carry(f"qkv.{kind}", tuple(f"{part}.{kind}" for part in ("query", "key", "value"))) for kind in ("kernel", "bias")
)


def bert_rules(a: Architecture, platform: Platform) -> List[Rule]:
    """Which Hugging Face class becomes which layer, and where its weights go."""
    return [
        Rule(hf.TFBertEmbeddings, lambda _: Embeddings(a, platform), EMBEDDINGS + NORM),
        Rule(
            hf.TFBertSelfAttention,
            lambda _: SelfAttention(a, platform),
            SPLIT_QKV if a.use_qkv_split else MERGED_QKV,
        ),
        Rule(
            hf.TFBertSelfOutput,
            lambda _: ResidualOutput(a, platform, a.use_projection_bias, "attention_output"),
            DENSE + NORM,
        ),
        Rule(hf.TFBertIntermediate, lambda _: Intermediate(a, platform), DENSE),
        Rule(hf.TFBertOutput, lambda _: ResidualOutput(a, platform, True, "output"), DENSE + NORM),
        Rule(hf.TFBertPooler, lambda _: Pooler(a), DENSE),
        Rule(hf.TFBertPredictionHeadTransform, lambda _: HeadTransform(a, platform), DENSE + NORM),
        Rule(
            hf.TFBertNSPHead,
            lambda _: NextSentenceHead(a),
            (
                Carry("dense.kernel", ("seq_relationship.kernel",)),
                Carry("dense.bias", ("seq_relationship.bias",)),
            ),
        ),
    ]


def convert_encoder(
    bert: hf.TFBertMainLayer, platform: Platform, conversion: Conversion
) -> Tuple[Embeddings, List[Block]]:
    """The blocks that every task shares, ``emb`` and the ``hid``, and the embeddings for a tied head."""
    embeddings = conversion.replace(bert.embeddings)
    blocks: List[Block] = [EmbeddingsBlock(embeddings, name=EMB)]
    for number, layer in enumerate(bert.encoder.layer):
        encoder_layer = EncoderLayer(
            platform,
            attention=conversion.replace(layer.attention.self_attention),
            attention_output=conversion.replace(layer.attention.dense_output),
            intermediate=conversion.replace(layer.intermediate),
            output=conversion.replace(layer.bert_output),
        )
        blocks.append(EncoderBlock(encoder_layer, platform, name=f"{HID}_{number}"))
    return embeddings, blocks


def convert_pretraining(
    source: hf.TFBertForPreTraining, architecture: Architecture, platform: Platform
) -> Tuple[List[Block], Conversion]:
    """Blocks for pre-training.

    Args:
        source: a built Hugging Face model.
        architecture: its sizes, and the options of the layers that take its place.
        platform: where the new layers will run.

    Returns:
        The ordered blocks, and the conversion, whose ``carry_weights(source)`` is due once a model was built from them.
    """
    conversion = Conversion(bert_rules(architecture, platform))
    embeddings, blocks = convert_encoder(source.bert, platform, conversion)
    head = source.mlm.predictions
    transform = conversion.replace(head.transform) if architecture.use_cls_layer else conversion.drop(head.transform)
    conversion.add(
        Rule(
            hf.TFBertLMPredictionHead,
            lambda _: MaskedLMHead(architecture, platform, embeddings.word_table, transform),
            (Carry("bias", ("bias",)),),
        )
    )
    blocks += [
        GatherBlock(name=ENC_OUT),
        PoolerBlock(conversion.replace(source.bert.pooler), name=POOL),
        PretrainingHeads(conversion.replace(head), conversion.replace(source.nsp), name=HEADS),
    ]
    return blocks, conversion


def convert_squad(
    source: hf.TFBertForQuestionAnswering, architecture: Architecture, platform: Platform, tail: Sequence[str]
) -> Tuple[List[Block], Conversion]:
    """Blocks for span prediction; as :func:`convert_pretraining`.

    Args:
        tail: names of the blocks after the encoder layers. Published configs of large models have ``enc_out`` and
            ``pool`` there, through which the hidden states go unchanged.
    """
    conversion = Conversion(bert_rules(architecture, platform))
    _, blocks = convert_encoder(source.bert, platform, conversion)
    conversion.add(Rule(keras.layers.Dense, lambda _: SpanHead(), OUTPUT))
    head = SpanHeadBlock(conversion.replace(source.qa_outputs), name=QA_HEAD)
    return blocks + [head if name == QA_HEAD else PassBlock(name=name) for name in tail], conversion


def convert_classification(
    source: hf.TFBertForSequenceClassification, architecture: Architecture, platform: Platform, tail: Sequence[str]
) -> Tuple[List[Block], Conversion]:
    """Blocks for classification or, with one class, regression; as :func:`convert_squad`."""
    conversion = Conversion(bert_rules(architecture, platform))
    _, blocks = convert_encoder(source.bert, platform, conversion)
    classes = source.config.num_labels
    conversion.add(Rule(keras.layers.Dense, lambda _: Classifier(architecture, platform, classes), OUTPUT))
    named = {
        POOL: PoolerBlock(conversion.replace(source.bert.pooler), name=POOL),
        GLUE_HEAD: ClassifierBlock(conversion.replace(source.classifier), name=GLUE_HEAD),
    }
    return blocks + [named[name] if name in named else PassBlock(name=name) for name in tail], conversion
