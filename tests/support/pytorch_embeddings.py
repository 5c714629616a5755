"""Embeds texts, and differentiates the losses of embeddings, as a user of PyTorch does, in a separate process.

    python -m tests.support.pytorch_embeddings FOLDER [MODEL]

FOLDER has ``vocab.txt`` and ``samples.json``: ``texts``, three for each sample, and ``scores`` of the first two. It
gets two models with random weights, ``mean`` and ``cls``, the latter with the files of sentence-transformers, and
``expected.npz``: by model, the embeddings of all texts; by loss, its value and its gradients by the weights' names.
With another MODEL, a folder, it only gets the embeddings of that model in ``real.npy``, of mean tokens and of length 1.

The losses are those of the papers, written out: cross-entropy of 20 × cosine over all answers of the batch (van den
Oord et al. 2018; Reimers and Gurevych 2019), and the squared difference of cosine and score.
"""

from __future__ import annotations

import json
import sys
from pathlib import Path
from typing import Any

import numpy as np
import torch
from transformers import AutoModel, AutoTokenizer, BertConfig, BertModel, BertTokenizerFast

SCALE = 20.0
LENGTH = 32
MODULES = [
    {"idx": 0, "name": "0", "path": "", "type": "sentence_transformers.models.Transformer"},
    {"idx": 1, "name": "1", "path": "pooling", "type": "sentence_transformers.models.Pooling"},
    {"idx": 2, "name": "2", "path": "2_Normalize", "type": "sentence_transformers.models.Normalize"},
]


def embeddings(model: Any, tokenizer: Any, texts: list[str], pooling: str = "mean", length: int = LENGTH) -> Any:
    inputs = tokenizer(texts, padding=True, truncation=True, max_length=length, return_tensors="pt")
    hidden = model(**inputs).last_hidden_state
    if pooling == "cls":
        return hidden[:, 0]
    mask = inputs["attention_mask"][..., None]
    return (hidden * mask).sum(1) / mask.sum(1)


def unit(vectors: Any) -> Any:
    return vectors / vectors.norm(dim=-1, keepdim=True)


def ranking_loss(columns: list[Any]) -> Any:
    answers = torch.cat(columns[1:])
    right = torch.arange(len(columns[0]))
    return torch.nn.functional.cross_entropy(SCALE * unit(columns[0]) @ unit(answers).T, right)


def main(folder: Path) -> None:
    tokenizer = BertTokenizerFast(str(folder / "vocab.txt"), model_max_length=LENGTH)
    samples = json.loads((folder / "samples.json").read_text(encoding="utf-8"))
    texts, scores = [text for sample in samples["texts"] for text in sample], torch.tensor(samples["scores"])
    columns = [list(column) for column in zip(*samples["texts"])]
    expected: dict[str, Any] = {}
    for seed, pooling in enumerate(("mean", "cls")):
        torch.manual_seed(seed)
        config = BertConfig(
            vocab_size=len(tokenizer), hidden_size=32, num_attention_heads=4, num_hidden_layers=2,
            intermediate_size=64, max_position_embeddings=LENGTH, hidden_dropout_prob=0.0,
            attention_probs_dropout_prob=0.0,
        )  # fmt: skip
        model = BertModel(config)
        with torch.no_grad():
            for parameter in model.parameters():
                parameter.add_(0.2 * torch.randn(parameter.shape))  # so that the texts differ
        model.save_pretrained(folder / pooling)
        tokenizer.save_pretrained(folder / pooling)
        vectors = embeddings(model, tokenizer, texts, pooling)
        expected[f"{pooling}/embeddings"] = vectors.detach().numpy()
        if pooling == "cls":
            (folder / "cls" / "pooling").mkdir()
            modes = {"pooling_mode_cls_token": True, "pooling_mode_mean_tokens": False, "word_embedding_dimension": 32}
            (folder / "cls" / "pooling" / "config.json").write_text(json.dumps(modes))
            (folder / "cls" / "modules.json").write_text(json.dumps(MODULES))
            (folder / "cls" / "sentence_bert_config.json").write_text(json.dumps({"max_seq_length": LENGTH}))
            continue
        for name, count in (("pairs", 2), ("triples", 3), ("scores", 2)):
            result = [embeddings(model, tokenizer, column) for column in columns[:count]]
            if name == "scores":
                loss = ((unit(result[0]) * unit(result[1])).sum(-1) - scores).square().mean()
            else:
                loss = ranking_loss(result)
            model.zero_grad()
            loss.backward()
            expected[f"{name}/loss"] = loss.detach().numpy()
            for weight, parameter in model.named_parameters():
                if parameter.grad is not None:  # the pooler has none
                    expected[f"{name}/bert.{weight}"] = parameter.grad.numpy().copy()
    np.savez(folder / "expected.npz", **expected)


def real(folder: Path, path: str) -> None:
    samples = json.loads((folder / "samples.json").read_text(encoding="utf-8"))
    with torch.no_grad():
        model, tokenizer = AutoModel.from_pretrained(path).eval(), AutoTokenizer.from_pretrained(path)
        result = embeddings(model, tokenizer, [text for sample in samples["texts"] for text in sample], length=256)
    np.save(folder / "real.npy", unit(result).numpy())


if __name__ == "__main__":
    if len(sys.argv) > 2:
        real(Path(sys.argv[1]), sys.argv[2])
    else:
        main(Path(sys.argv[1]))
