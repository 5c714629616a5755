"""Computes PyTorch's losses of classifiers, with the gradients of their logits, in a separate process.

A case has ``logits`` and ``labels``. ``kind`` is ``classes``, with ``weights`` and ``smoothing`` of the cross-entropy,
``labels`` (any number for a sample) or ``numbers``. With ``teacher``, the logits of a teacher, the loss is that of
distillation with ``share`` and ``temperature``, and only the first samples have labels.
"""

from __future__ import annotations

import json
import sys
from typing import Any

from tests.support.pytorch_process import run_pytorch


def pytorch_losses(cases: list[dict[str, Any]]) -> list[dict[str, Any]]:
    """Return the ``loss`` and the ``gradient`` of each case."""
    result: list[dict[str, Any]] = json.loads(run_pytorch(__name__, json.dumps(cases)))
    return result


def loss_and_gradient(given: dict[str, Any]) -> dict[str, Any]:
    import torch
    from torch.distributions import Bernoulli, Categorical, kl_divergence
    from torch.nn import functional

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
    return {"loss": loss.item(), "gradient": logits.grad.tolist()}


if __name__ == "__main__":
    print(json.dumps([loss_and_gradient(case) for case in json.loads(sys.argv[1])]))
