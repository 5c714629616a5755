"""Computes pseudo-log-likelihoods in a plain PyTorch loop, in a separate process.

    python -m tests.support.pytorch_masked_words CLASS FOLDER TEXTS [OTHER]

loads FOLDER as CLASS of Transformers and prints the scores of TEXTS, a JSON list. OTHER gets the same model as a
``BertForMaskedLM``, with its tokenizer.
"""

from __future__ import annotations

import json
import sys
from pathlib import Path

from tests.support.pytorch_process import run_pytorch


def pytorch_scores(model: str, folder: Path, texts: list[str], other: Path | None = None) -> list[float]:
    """Return the score of each text by a model of PyTorch; for the arguments see this module."""
    output = run_pytorch(__name__, model, folder, json.dumps(texts), *([other] if other else []))
    scores: list[float] = json.loads(output.splitlines()[-1])
    return scores


def main(name: str, folder: str, texts: str, other: str = "") -> None:
    """Mask one word piece at a time, without batches and padding."""
    import torch
    import transformers

    model, loading = getattr(transformers, name).from_pretrained(folder, output_loading_info=True)
    assert not any(loading.values()), loading
    model, tokenizer = model.eval(), transformers.AutoTokenizer.from_pretrained(folder)
    scores = []
    for text in json.loads(texts):
        ids, total = tokenizer(text, return_tensors="pt")["input_ids"], 0.0  # (1, S)
        for position in range(1, ids.shape[1] - 1):
            masked = ids.clone()
            masked[0, position] = tokenizer.mask_token_id
            with torch.no_grad():
                logits = model(masked)[0][0, position].double()  # without labels, the word logits come first
            total += torch.log_softmax(logits, -1)[ids[0, position]].item()
        scores.append(total)
    if other:
        transformers.BertForMaskedLM.from_pretrained(folder).save_pretrained(other)
        tokenizer.save_pretrained(other)
    print(json.dumps(scores))


if __name__ == "__main__":
    main(*sys.argv[1:])
