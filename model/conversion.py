"""The recipe that turns Hugging Face's TF BERT into blocks of this project's layers."""

from __future__ import annotations

from typing import List, Tuple

from transformers.models.bert import modeling_tf_bert as hf

from execution.interface import Platform
from keras_extensions.conversion import Carry, Conversion, Rule
from model.architecture import EMB, ENC_OUT, HEADS, HID, POOL, Architecture
from model.attention import SelfAttention
from model.blocks import Block, EmbeddingsBlock, EncoderBlock, GatherBlock, PoolerBlock, PretrainingHeads
from model.embeddings import Embeddings
from model.encoder import EncoderLayer, Intermediate, ResidualOutput
from model.heads import HeadTransform, MaskedLMHead, NextSentenceHead, Pooler

DENSE = (Carry("dense.kernel", ("dense.kernel",)), Carry("dense.bias", ("dense.bias",)))
NORM = (Carry("norm.gamma", ("LayerNorm.gamma",)), Carry("norm.beta", ("LayerNorm.beta",)))
EMBEDDINGS = (
    Carry("word", ("weight",)),
    Carry("position", ("position_embeddings",)),
    Carry("segment", ("token_type_embeddings",)),
)
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
