"""Saves and loads models like a user of PyTorch, in a separate process.

    python -m tests.support.pytorch_side OUTPUT DATA.npz FOLDER …

OUTPUT gets models with random weights, saved in each of PyTorch's formats, and their logits. Each FOLDER is loaded; its
logits go to FOLDER.npz, warnings and class to FOLDER.json.
"""

from __future__ import annotations

import io
import json
import logging
import sys
import warnings
from pathlib import Path

import numpy as np
import torch
import transformers
from transformers import BertConfig
from transformers.models.bert.modeling_bert import load_tf_weights_in_bert

CLASSES = {
    "pretraining": ("BertForPreTraining", "AutoModelForPreTraining"),
    "squad": ("BertForQuestionAnswering", "AutoModelForQuestionAnswering"),
    "classification": ("BertForSequenceClassification", "AutoModelForSequenceClassification"),
}
SIZES = {
    "hidden_size": 32, "num_attention_heads": 4, "num_hidden_layers": 2, "intermediate_size": 96, "vocab_size": 120,
    "max_position_embeddings": 48,
}  # fmt: skip


def logits_of(model, data) -> dict[str, np.ndarray]:
    inputs = {name: torch.from_numpy(data[name]).long() for name in ("input_ids", "input_mask", "segment_ids")}
    with torch.no_grad():
        outputs = model.eval()(
            input_ids=inputs["input_ids"], attention_mask=inputs["input_mask"], token_type_ids=inputs["segment_ids"]
        )
    result = {name: value.numpy() for name, value in outputs.items()}
    if "prediction_logits" in result:
        words = np.take_along_axis(result["prediction_logits"], data["masked_lm_positions"][..., None], axis=1)
        return {"masked_lm": words, "next_sentence": result["seq_relationship_logits"]}
    return result


def write(folder: Path, data) -> None:
    for task, (name, _) in CLASSES.items():
        torch.manual_seed(7)
        config = BertConfig(**SIZES, num_labels=3 if task == "classification" else 2)
        model = getattr(transformers, name)(config)
        with torch.no_grad():
            for parameter in model.parameters():
                parameter.add_(0.05 * torch.randn(parameter.shape))
        np.savez(folder / f"{task}.npz", **logits_of(model, data))
        np.savez(folder / f"{task}.weights.npz", **{n: v.numpy() for n, v in model.state_dict().items()})
        model.save_pretrained(folder / task / "safetensors")
        model.save_pretrained(folder / task / "safetensors in parts", max_shard_size="40KB")
        model.save_pretrained(folder / task / "bin", safe_serialization=False)
        model.save_pretrained(folder / task / "bin in parts", safe_serialization=False, max_shard_size="40KB")
        state = model.state_dict()
        old = {n.replace("LayerNorm.weight", "LayerNorm.gamma").replace("LayerNorm.bias", "LayerNorm.beta"): v
               for n, v in state.items()}  # fmt: skip
        parallel = {f"module.{n}": v for n, v in state.items()}
        for kind, content in (("state dict", state), ("gamma and beta", old), ("data parallel", parallel)):
            bare(model, folder / task / kind)
            torch.save(content, folder / task / kind / "pytorch_model.bin")
        bare(model, folder / task / "before 1.6")
        torch.save(state, folder / task / "before 1.6" / "pytorch_model.bin", _use_new_zipfile_serialization=False)
        bare(model, folder / task / "bfloat16")
        model.to(torch.bfloat16).save_pretrained(folder / task / "bfloat16")
    (folder / "whole model").mkdir()
    torch.save(torch.nn.Linear(3, 2), folder / "whole model" / "pytorch_model.bin")


def bare(model, folder: Path) -> None:
    folder.mkdir(parents=True)
    model.config.architectures = [type(model).__name__]
    model.config.save_pretrained(folder)


def read(data, folders: list[Path]) -> None:
    for folder in folders:
        if (folder / "bert_config.json").exists():
            config = BertConfig.from_json_file(folder / "bert_config.json")
            model = transformers.BertForPreTraining(config)
            load_tf_weights_in_bert(model, config, str(folder / "bert_model.ckpt"))
            np.savez(folder.with_name(f"{folder.name}.npz"), **logits_of(model, data))
            continue
        text = io.StringIO()
        handler = logging.StreamHandler(text)
        logging.getLogger("transformers").addHandler(handler)
        task = folder.name.split(".")[0]
        with warnings.catch_warnings(record=True) as caught:
            warnings.simplefilter("always")
            model, info = getattr(transformers, CLASSES[task][1]).from_pretrained(folder, output_loading_info=True)
            tokens = []
            if (folder / "vocab.txt").exists():
                tokens = transformers.AutoTokenizer.from_pretrained(folder)("W5 w6", "w7")["input_ids"]
        logging.getLogger("transformers").removeHandler(handler)
        seen = {"class": type(model).__name__, "tokens": tokens, "labels": model.config.id2label}
        seen["log"], seen["warnings"] = text.getvalue(), [str(warning.message) for warning in caught]
        seen["loading"] = {
            name: sorted(map(str, result)) for name, result in info.items() if isinstance(result, (list, set))
        }
        folder.with_name(f"{folder.name}.json").write_text(json.dumps(seen), encoding="utf-8")
        np.savez(folder.with_name(f"{folder.name}.npz"), **logits_of(model, data))
        model.save_pretrained(folder.with_name(f"{folder.name}.again"))


if __name__ == "__main__":
    output, samples, *folders = map(Path, sys.argv[1:])
    write(output, np.load(samples))
    read(np.load(samples), folders)
