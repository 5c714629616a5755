"""Prints PyTorch's weighted and smoothed cross-entropy, with its gradient, for the arguments, a JSON object."""

import json
import sys

import torch

given = json.loads(sys.argv[1])
logits = torch.tensor(given["logits"], requires_grad=True)
weights = torch.tensor(given["weights"]) if given["weights"] else None
loss = torch.nn.functional.cross_entropy(
    logits, torch.tensor(given["labels"]), weight=weights, label_smoothing=given["smoothing"]
)
loss.backward()
print(json.dumps({"loss": loss.item(), "gradient": logits.grad.tolist()}))
