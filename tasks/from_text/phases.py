"""The trainings: a config for each length of rows, as the recipe and the user have it."""

from __future__ import annotations

import json
import math
from pathlib import Path
from typing import TYPE_CHECKING, Any, Dict, List, Mapping, NamedTuple, Optional, Sequence

from data_utils.tokenizer import read_vocabulary
from model.tasks import PRETRAINING
from settings.loading import resolve
from tasks.from_text.folder import Folder
from tasks.from_text.recipe import HEAD_SIZE, TOKENS_PER_UPDATE, Recipe
from utilities.files import PROJECT

if TYPE_CHECKING:
    from checkpoints.pretrained.pretrained import Pretrained

CONFIGS = PROJECT / "configs" / "pretraining"
CONTINUE = PROJECT / "configs" / "continue.json"


class Phase(NamedTuple):
    """One of the trainings, named by the length of its rows; its config has no length of training."""

    name: str
    config: Dict[str, Any]
    task: str = PRETRAINING

    @property
    def rows(self) -> int:
        batch = self.config["global_batch"]
        return math.prod(batch[key] for key in ("micro_batch_size", "replicas", "grad_acc_steps_per_replica"))


def predictions(recipe: Recipe, length: int) -> int:
    return max(1, math.ceil(recipe.masked * length))


def phases(folder: Folder, recipe: Recipe, given: Mapping[str, Any], pieces: int) -> List[Phase]:
    """Return the trainings in order, with what the user gave by dotted name, for a vocabulary of ``pieces``."""
    plain = [_phase(folder, recipe, length, pieces) for length in recipe.lengths]
    return [Phase(phase.name, merged(phase.config, given)) for phase in plain]


def released(weights: str) -> Pretrained:
    from checkpoints.pretrained.opening import open_pretrained

    return open_pretrained(weights, "--start-from")


def check_phases(trainings: Sequence[Phase], start_from: Optional[str], given: Mapping[str, Any]) -> None:
    """Refuse what the trainings would refuse, before their data is made."""
    if start_from is not None:
        read_vocabulary(Path(start_from))
    for phase in trainings:  # the weights of an earlier phase are not there yet; their sizes are the config's
        config = {**phase.config, "pretrained_ckpt_path": start_from, "total_num_train_samples": phase.rows}
        resolve(phase.task, [config], given)


def _phase(folder: Folder, recipe: Recipe, length: int, pieces: int) -> Phase:
    gpu, start_from = recipe.on_gpu, recipe.start_from
    data = folder.path / "data" / str(length)
    is_first, is_last = length == recipe.lengths[0], length == recipe.lengths[-1]
    rows = max(2, TOKENS_PER_UPDATE // length)
    micro, accumulated = (rows, 1) if gpu else (max(1, rows // 2), 2)
    base = CONFIGS / f"pretrain_tiny_{'128' if is_last else '32'}_speedrun.json"
    config: Dict[str, Any] = {
        "extends": [str(base), *([str(CONTINUE)] if start_from else [])],
        "dataset_dir": str(data),
        "output_dir": str(folder.path),
        "max_seq_length": length,
        "max_predictions_per_seq": predictions(recipe, length),
        "global_batch": {"micro_batch_size": micro, "replicas": 1, "grad_acc_steps_per_replica": accumulated},
        "execution": {
            "device": "gpu" if gpu else "cpu",
            "precision": recipe.precision,
            "parallel_micro_batches": not gpu,
        },
        "do_validation": is_last,
        "checkpoint_minutes": 2,
        "keep_last": 1,
        "word_vectors": is_first and not start_from,
    }
    if start_from:
        config["optimizer_opts"] = {"muon_scale": None, "learning_rate": {"max_learning_rate": recipe.rate}}
        for option in ("use_qkv_split", "use_qkv_bias", "use_projection_bias", "use_cls_layer", "use_prediction_bias"):
            config[option] = None  # as the weights have it
    else:
        config["bert_config"] = {
            "vocab_size": 2 * math.ceil(pieces / 2),
            "num_hidden_layers": recipe.layers,
            "hidden_size": recipe.hidden,
            "num_attention_heads": _heads(recipe.hidden),
            "intermediate_size": 4 * recipe.hidden,
            "initializer_range": recipe.initializer_range,
        }
        config["optimizer_opts"] = {"weight_decay_rate": recipe.weight_decay}
    if is_first and is_last and not start_from:  # random weights need a warm-up
        config["optimizer_opts"]["learning_rate"] = {"schedule_name": "linear", "warmup_frac": 0.05}
    if is_first and start_from:
        config["pretrained_ckpt_path"] = start_from
    if not is_first:
        config["pretrained_ckpt_path"] = str(folder.path / str(recipe.lengths[0]))
    return Phase(str(length), config)


def _heads(hidden: int) -> int:
    """Return the attention heads of a width: of 64 numbers each, or of the next larger number that divides it."""
    return next(heads for heads in range(max(1, hidden // HEAD_SIZE), 0, -1) if hidden % heads == 0)


def merged(config: Mapping[str, Any], given: Mapping[str, Any]) -> Dict[str, Any]:
    """Return a config with values that are given by dotted name, such as ``{"data.shuffle": False}``."""
    result: Dict[str, Any] = json.loads(json.dumps(config))
    for name, value in given.items():
        *sections, key = name.split(".")
        section = result
        for each in sections:
            section = section.setdefault(each, {})
        section[key] = value
    return result
