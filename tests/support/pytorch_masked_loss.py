"""Prints the loss and the accuracy of a Hugging Face folder's masked LM on records: ``folder arrays.npz``.

The arrays are those of records: ``input_ids``, ``input_mask``, ``segment_ids`` (N, S), ``masked_lm_positions``,
``masked_lm_ids``, ``masked_lm_weights`` (N, P).
"""

import json
import sys

import numpy as np
import torch
from transformers import BertForMaskedLM

folder, path = sys.argv[1:]
model = BertForMaskedLM.from_pretrained(folder).eval()
arrays = {name: torch.tensor(values) for name, values in np.load(path).items()}
total = right = count = 0.0
with torch.no_grad():
    for rows in torch.arange(len(arrays["input_ids"])).split(16):
        part = {name: values[rows] for name, values in arrays.items()}
        logits = model(part["input_ids"], part["input_mask"], part["segment_ids"]).logits  # (N, S, V)
        positions, weights = part["masked_lm_positions"], part["masked_lm_weights"]
        chosen = logits.gather(1, positions[..., None].expand(-1, -1, logits.shape[-1])).log_softmax(-1)  # (N, P, V)
        total -= (chosen.gather(2, part["masked_lm_ids"][..., None])[..., 0] * weights).sum().item()
        right += ((chosen.argmax(-1) == part["masked_lm_ids"]) * weights).sum().item()
        count += weights.sum().item()
print(json.dumps({"loss": total / count, "right": right / count}))
