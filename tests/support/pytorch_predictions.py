"""Saves small models with random weights and predicts texts with them, as a user of PyTorch does.

    python -m tests.support.pytorch_predictions FOLDER

FOLDER has ``vocab.txt`` and ``texts.json``, a list of pairs of texts. It gets the models, one folder each, and
``expected.json``: by model, the probabilities of each sample, or of each of its tokens, or its value; and
``labels_loss``: labels for the model ``labels``, its loss with them, and the gradient of its logits.
"""

from __future__ import annotations

import json
import sys
from pathlib import Path

import torch
from transformers import BertConfig, BertForSequenceClassification, BertForTokenClassification, BertTokenizerFast

TAGS = ["O", "B-PER", "I-PER", "B-LOC"]
LABELS = ["dark", "funny", "rare"]
MODELS = {
    "single": (BertForSequenceClassification, ["bad", "good", "so, so"]),
    "pair": (BertForSequenceClassification, ["no", "yes"]),
    "number": (BertForSequenceClassification, ["LABEL_0"]),
    "labels": (BertForSequenceClassification, LABELS),
    "entities": (BertForTokenClassification, TAGS),
}


def main(folder: Path) -> None:
    tokenizer = BertTokenizerFast(str(folder / "vocab.txt"))
    pairs = json.loads((folder / "texts.json").read_text(encoding="utf-8"))
    expected = {}
    for number, (name, (kind, labels)) in enumerate(MODELS.items()):
        torch.manual_seed(number)
        config = BertConfig(
            vocab_size=len(tokenizer), hidden_size=32, num_attention_heads=4, num_hidden_layers=2,
            intermediate_size=64, max_position_embeddings=32, id2label=dict(enumerate(labels)),
            label2id={label: index for index, label in enumerate(labels)},
            problem_type="multi_label_classification" if name == "labels" else None,
        )  # fmt: skip
        model = kind(config).eval()
        with torch.no_grad():
            for parameter in model.parameters():
                parameter.add_(0.2 * torch.randn(parameter.shape))  # so that the samples differ
        model.save_pretrained(folder / name)
        tokenizer.save_pretrained(folder / name)
        expected[name] = []
        for texts in pairs:
            inputs = tokenizer(*(texts if name == "pair" else texts[:1]), return_tensors="pt")
            with torch.no_grad():
                logits = model(**inputs).logits[0]
            share = {"number": logits, "labels": logits.sigmoid()}.get(name, logits.softmax(-1))
            expected[name].append(share.tolist())
        if name == "labels":
            first = [texts[0] for texts in pairs]
            sets = [[n >> label & 1 for label in range(len(LABELS))] for n in range(len(pairs))]  # all combinations
            inputs = tokenizer(first, return_tensors="pt", padding=True)
            outputs = model(**inputs, labels=torch.tensor(sets, dtype=torch.float32))
            (gradient,) = torch.autograd.grad(outputs.loss, outputs.logits)
            expected["labels_loss"] = {
                "labels": sets, "loss": outputs.loss.item(), "logits": outputs.logits.tolist(),
                "gradient": gradient.tolist(),
            }  # fmt: skip
    (folder / "expected.json").write_text(json.dumps(expected))


if __name__ == "__main__":
    main(Path(sys.argv[1]))
