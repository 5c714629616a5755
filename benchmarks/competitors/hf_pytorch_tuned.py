"""Hugging Face PyTorch tuned by hand: the masked-LM head on the masked positions only, and fused AdamW.

B micro batch · S sequence · P masked positions · H hidden · V vocabulary
"""

from __future__ import annotations

import torch
from torch.nn import functional
from transformers import BertForPreTraining

from benchmarks.competitors import pytorch
from benchmarks.jobs import LEARNING_RATE, WEIGHT_DECAY, Job, Trainer
from benchmarks.samples import samples


def prepare(job: Job) -> Trainer:
    """See :data:`benchmarks.jobs.Trainer`."""
    model = pytorch.model_of(job)
    optimizer = torch.optim.AdamW(model.parameters(), lr=LEARNING_RATE, weight_decay=WEIGHT_DECAY, fused=True)
    integers = {name: values for name, values in samples().items() if name != "masked_lm_weights"}
    data = pytorch.tensors({name: values.astype("int64") for name, values in integers.items()})
    return pytorch.loop(data, lambda batch: masked_positions_loss(model, batch), optimizer)


def masked_positions_loss(model: BertForPreTraining, batch: pytorch.Batch) -> torch.Tensor:
    """Masked-LM plus next-sentence loss, every masked position real."""
    output = model.bert(batch["input_ids"], batch["input_mask"], batch["segment_ids"])
    hidden = output.last_hidden_state  # (B, S, H)
    rows = torch.arange(hidden.shape[0])[:, None]
    masked = hidden[rows, batch["masked_lm_positions"]]  # (B, P, H)
    words, next_sentence = model.cls(masked, output.pooler_output)  # (B, P, V), (B, 2)
    words_loss = functional.cross_entropy(words.flatten(0, 1), batch["masked_lm_ids"].flatten())
    return words_loss + functional.cross_entropy(next_sentence, batch["next_sentence_labels"][:, 0])
