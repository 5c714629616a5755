"""Prints PyTorch's losses of a classifier, with the gradient of its logits, for the arguments, a JSON object.

It has ``logits`` and ``labels``. ``kind`` is ``classes``, with ``weights`` and ``smoothing`` of the cross-entropy,
``labels`` (any number for a sample) or ``numbers``. With ``teacher``, the logits of a teacher, the loss is that of
distillation with ``share`` and ``temperature``, and only the first samples have labels.
"""

import json
import sys

import torch
from torch.distributions import Bernoulli, Categorical, kl_divergence
from torch.nn import functional

given = json.loads(sys.argv[1])
logits, labels = torch.tensor(given["logits"], requires_grad=True), torch.tensor(given["labels"])
known = logits[: len(labels)]
if given["kind"] == "classes":
    weights = torch.tensor(given["weights"]) if given["weights"] else None
    loss = functional.cross_entropy(known, labels, weight=weights, label_smoothing=given["smoothing"])
elif given["kind"] == "labels":
    loss = functional.binary_cross_entropy_with_logits(known, labels.float())
else:
    loss = functional.mse_loss(known[:, 0], labels)
if "teacher" in given:
    teacher, softened = torch.tensor(given["teacher"]), given["temperature"]
    if given["kind"] == "numbers":
        apart = functional.mse_loss(logits, teacher)
    else:
        distribution = Categorical if given["kind"] == "classes" else Bernoulli
        theirs, ours = (distribution(logits=each / softened) for each in (teacher, logits))
        apart = softened**2 * kl_divergence(theirs, ours).mean()
    loss = (1 - given["share"]) * loss + given["share"] * apart
loss.backward()
print(json.dumps({"loss": loss.item(), "gradient": logits.grad.tolist()}))
