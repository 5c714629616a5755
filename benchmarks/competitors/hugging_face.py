"""What the Hugging Face competitors share."""

from __future__ import annotations

from transformers import BertConfig

from model.architecture import Architecture


def bert_config(a: Architecture) -> BertConfig:
    """Hugging Face's config of the same model, everything else as shipped."""
    return BertConfig(
        vocab_size=a.vocab_size,
        hidden_size=a.hidden_size,
        num_hidden_layers=a.num_hidden_layers,
        num_attention_heads=a.num_attention_heads,
        intermediate_size=a.intermediate_size,
        hidden_act=a.hidden_act,
        hidden_dropout_prob=a.hidden_dropout_prob,
        attention_probs_dropout_prob=a.attention_probs_dropout_prob,
    )
