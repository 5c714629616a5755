"""Writes the model card, ``README.md``: the model's kind, loading, training and scores."""

from __future__ import annotations

import os
from pathlib import Path
from typing import Any, Dict, List, Optional, Tuple

from checkpoints.export.arrays import EMBEDDING, Head
from checkpoints.folder import best_step
from checkpoints.pretrained.pretrained import Pretrained
from checkpoints.pretrained.weights import NEXT_SENTENCE
from data_utils.tokenizer_files import VOCABULARY_NAME
from model.huggingface import BertConfig
from model.tasks import MASKED_WORDS_TITLE, PRETRAINING, TASKS
from reports.run_files import RunData, read_run_folder
from reports.templating import fill
from teacher.identity import card_rows  # room: teacher
from utilities.metric_names import MLM_LOSS
from utilities.run_names import RESOLVED

_PATHS = ("dataset_dir", "bert_model_name", "pretrained_ckpt_path")
_SETTINGS: Tuple[Tuple[str, str], ...] = (
    ("glue_task", "benchmark task"),
    ("max_seq_length", "tokens per sequence"),
    ("optimizer_opts.name", "optimizer"),
    ("optimizer_opts.learning_rate.max_learning_rate", "highest learning rate"),
    ("optimizer_opts.learning_rate.warmup_frac", "warm-up, share of the updates"),
    ("optimizer_opts.weight_decay_rate", "weight decay"),
    ("num_epochs", "epochs"),
)


def write_card(folder: Path, name: str, start: Pretrained, head: Head, config: BertConfig, notes: List[str]) -> None:
    """Write the card into an exported folder; ``notes`` are notes on the weights for users."""
    run = _read_run(start)
    card = fill(
        "card.md",
        name=name,
        head=head,
        embeds=head is EMBEDDING,
        task=_title(start) if start.native else "",
        with_tokenizer=(folder / VOCABULARY_NAME).is_file(),
        tables={
            "Model": _sizes(config),
            "Training": _training(start, run) if start.native else {},
            "Figures": _figures(start, run) if run else {},
        },
        notes=notes,
    )
    (folder / "README.md").write_text(card, encoding="utf-8")


def _title(start: Pretrained) -> str:
    """Return the title of the task that was trained; empty if it is unknown."""
    task = start.settings.get("task", "")
    if task == PRETRAINING and NEXT_SENTENCE not in start.weights:
        return MASKED_WORDS_TITLE
    return TASKS[task].title if task in TASKS else ""


def _read_run(start: Pretrained) -> Optional[RunData]:
    if not start.native or start.folder is None:
        return None
    run = start.folder.resolve().parent.parent
    return read_run_folder(run) if (run / RESOLVED).is_file() else None


def _sizes(config: BertConfig) -> Dict[str, Any]:
    return {
        "encoder layers": config.num_hidden_layers,
        "hidden size": config.hidden_size,
        "attention heads": config.num_attention_heads,
        "feed-forward size": config.intermediate_size,
        "positions": config.max_position_embeddings,
        "word pieces": config.vocab_size,
        "activation": config.hidden_act,
    }


def _training(start: Pretrained, run: Optional[RunData]) -> Dict[str, Any]:
    settings = start.settings
    config = run.config if run else {}
    rows: Dict[str, Any] = {"task": _title(start) or "unknown"}
    for key in _PATHS:
        if isinstance(config.get(key), str):  # without the folders of the training machine
            rows[key] = Path(config[key]).name if os.path.isabs(config[key]) else config[key]
    rows.update(card_rows(config))  # room: teacher
    rows["updates"] = settings.get("step")
    samples = (settings.get("data") or {}).get("samples_per_update")
    rows["samples per update"] = samples
    rows["samples"] = settings["step"] * samples if samples and "step" in settings else None
    rows.update({text: config.get(key) for key, text in _SETTINGS})
    if settings.get("task") == PRETRAINING:
        rows["masked tokens per sequence at most"] = config.get("max_predictions_per_seq")
    rows["seed"] = None if config.get("seed") is None else str(config["seed"])
    environment = (settings.get("provenance") or {}).get("environment") or {}
    rows["trained with version"] = environment.get("version")
    rows["of commit"] = environment.get("git_commit")
    if run:
        rows["records of the data set"] = run.dataset.get("records")
        rows["text lower-cased"] = start.lower_case
    return {name: value for name, value in rows.items() if value is not None}


def _figures(start: Pretrained, run: RunData) -> Dict[str, Any]:
    """Return the last metrics before a checkpoint, and the run's scores if they are the checkpoint's."""
    step = start.settings.get("step", 0)
    periods = [period for period in run.periods if period["step"] <= step]
    figures: Dict[str, Any] = {}
    if periods:
        last = periods[-1]
        figures = {f"{name}, training, update {last['step']:,}": value for name, value in last["metrics"].items()}
        if MLM_LOSS in last["metrics"]:
            figures["mlm_loss, context-free baseline"] = run.context_free(held_out=False)
            figures["mlm_loss, unigram baseline"] = run.unigram_entropy()
    assert start.folder is not None
    best = best_step(start.folder.parent)
    if step == best if best is not None else not run.periods or run.periods[-1]["step"] <= step:
        figures.update({f"{name}, validation": value for name, value in run.scores.items()})
    known = {name: value for name, value in figures.items() if value is not None}
    return {name: f"{value:.4f}" if isinstance(value, float) else value for name, value in known.items()}
