"""Hugging Face's PyTorch BERT, trained as its users do it: pre-training, SQuAD, learning curves and fine-tuning.

B micro batch · S sequence · P masked positions · H hidden · V vocabulary · N samples · K classes
"""

from __future__ import annotations

import tempfile
import time
from collections.abc import Iterator
from dataclasses import asdict
from pathlib import Path
from typing import Any

import numpy as np
import torch
import transformers
from torch.nn import functional
from transformers import (
    AutoModelForQuestionAnswering,
    AutoModelForSequenceClassification,
    AutoTokenizer,
    BertConfig,
    BertForPreTraining,
    BertForQuestionAnswering,
    BertForSequenceClassification,
    DataCollatorWithPadding,
    TrainingArguments,
    set_seed,
)

from benchmarks.fine_tuning import ADAMW, Recipe, make_task
from benchmarks.race_pytorch import make_optimizers, rate_factor
from benchmarks.real_tasks import Scores
from benchmarks.samples import IGNORED, INPUTS, LABELS, Arrays, hugging_face_samples, select_rows
from benchmarks.settings import LEARNING_RATE, MICRO_BATCH, SEED, WEIGHT_DECAY, Trainer
from model.architecture import Architecture
from model.tasks import CLASSIFICATION, PRETRAINING, SQUAD
from utilities.environment import keep_freed_memory, usable_cores

keep_freed_memory()  # as this project does, so that both allocate in the same way

Batch = dict[str, torch.Tensor]
MODELS: dict[str, Any] = {
    PRETRAINING: BertForPreTraining,
    SQUAD: BertForQuestionAnswering,
    CLASSIFICATION: BertForSequenceClassification,
}
EVALUATION_BATCH = 64
PADDED_LOGIT = -100.0  # as Trainer pads


# --- Speed ---


def trainer(
    task: str,
    architecture: Architecture,
    batches: Iterator[Arrays],
    bfloat16: bool = False,
    compiled: bool = False,
    device: str = "cpu",
) -> Trainer:
    """Train a model of random weights, with fused AdamW, dropout and attention as shipped (scaled dot-product).

    In pre-training, the masked-LM head is on the masked positions only.

    Args:
        batches: by Hugging Face's names; for pre-training by this project's.
        bfloat16: whether to compute in ``torch.autocast``; weights stay float32.
        compiled: whether to compile the loss with ``torch.compile``.
        device: of PyTorch, ``cpu`` or ``cuda``.
    """
    torch.set_num_threads(usable_cores())
    torch.manual_seed(SEED)
    model = MODELS[task](config_of(architecture)).to(device)
    assert model.config._attn_implementation == "sdpa"
    model.train()
    optimizer = torch.optim.AdamW(model.parameters(), lr=LEARNING_RATE, weight_decay=WEIGHT_DECAY, fused=True)

    def loss_of(batch: Batch) -> torch.Tensor:
        with torch.autocast(device, torch.bfloat16, enabled=bfloat16):
            return _masked_positions_loss(model, batch) if task == PRETRAINING else model(**batch).loss

    loss_of_batch = torch.compile(loss_of) if compiled else loss_of

    def train(steps: int) -> float:
        begin = time.perf_counter()
        for _ in range(steps):
            loss = loss_of_batch(_on(device, _tensors(next(batches))))
            loss.backward()
            optimizer.step()
            optimizer.zero_grad(set_to_none=True)
        loss.item()
        return time.perf_counter() - begin

    return train


def gpu_memory() -> float:
    """Return the most GPU memory that tensors have had in this process, MiB."""
    return torch.cuda.max_memory_allocated() / 2**20


def _on(device: str, batch: Batch) -> Batch:
    return {name: tensor.to(device, non_blocking=True) for name, tensor in batch.items()}


def _tensors(batch: Arrays) -> Batch:
    return {name: torch.from_numpy(values.astype(np.int64)) for name, values in batch.items()}


def _masked_positions_loss(model: BertForPreTraining, batch: Batch) -> torch.Tensor:
    """Return masked-LM plus next-sentence loss."""
    output = model.bert(batch["input_ids"], batch["input_mask"], batch["segment_ids"])
    hidden = output.last_hidden_state  # (B, S, H)
    rows = torch.arange(hidden.shape[0], device=hidden.device)[:, None]
    masked = hidden[rows, batch["masked_lm_positions"]]  # (B, P, H)
    words, next_sentence = model.cls(masked, output.pooler_output)  # (B, P, V), (B, 2)
    labels = batch["masked_lm_ids"].masked_fill(batch["masked_lm_weights"] == 0, IGNORED)
    words_loss = functional.cross_entropy(words.flatten(0, 1), labels.flatten())
    return words_loss + functional.cross_entropy(next_sentence, batch["next_sentence_labels"][:, 0])


def config_of(architecture: Architecture) -> BertConfig:
    """Return the config of the same model; the fields have the same names, and models ignore the others."""
    return BertConfig(**asdict(architecture))


# --- Learning ---


def pretraining_losses(
    architecture: Architecture, weights: Arrays, data: Arrays, steps: int, settings: dict[str, float]
) -> list[float]:
    """Return the loss of each step of a plain loop: the model's own loss, AdamW, linear warm-up and decay.

    Args:
        weights: weights of the model, by name.
        data: samples by this project's names, used in order, ``MICRO_BATCH`` in a step.
        settings: ``learning_rate``, ``weight_decay``, ``epsilon``, and ``warmup``, a share of the steps.
    """
    model = BertForPreTraining(config_of(architecture))
    parameters = dict(model.named_parameters())
    assert parameters.keys() == weights.keys(), parameters.keys() ^ weights.keys()
    with torch.no_grad():
        for name, parameter in parameters.items():
            assert parameter.shape == weights[name].shape, name
            parameter.copy_(torch.tensor(weights[name]))
    way = {"warm_up": settings["warmup"], "total": steps, "decays": True, "betas": (0.9, 0.999), "muon_scale": None}
    (optimizer,) = make_optimizers(model, {**settings, **way})
    samples = hugging_face_samples(data)
    losses = []
    model.train()
    for step in range(steps):
        rows = np.arange(step * MICRO_BATCH, (step + 1) * MICRO_BATCH) % len(samples["labels"])
        for group in optimizer.param_groups:
            group["lr"] = settings["learning_rate"] * rate_factor(step, way)
        loss = model(**_tensors(select_rows(samples, rows))).loss
        losses.append(loss.item())
        optimizer.zero_grad()
        loss.backward()
        optimizer.step()
    return losses


# --- Fine-tuning ---


def fine_tune(name: str, recipe: dict[str, Any], model: str, data: str, seed: int, bfloat16: bool) -> Scores:
    """Fine-tune with Hugging Face's ``Trainer`` as its users do it, and return the scores of the best epoch.

    Args:
        name: name of the task.
        recipe: fields of ``benchmarks.fine_tuning.Recipe``.
        model: Hugging Face folder.
        data: folder with the samples; see ``benchmarks.real_tasks.write_samples``.
        bfloat16: whether to compute in ``torch.autocast``; weights stay float32.
    """
    torch.set_num_threads(usable_cores())
    set_seed(seed)
    made = Recipe(**recipe)
    task = make_task(name, made, Path(data), Path(model))
    options: dict[str, Any] = {"hidden_dropout_prob": 0.1, "attention_probs_dropout_prob": 0.1}
    if task.classes is None:
        bert = AutoModelForQuestionAnswering.from_pretrained(model, **options)
    else:
        bert = AutoModelForSequenceClassification.from_pretrained(model, **options, num_labels=task.classes)
    training, evaluation = task.training(), task.evaluation()
    by_length = np.argsort(evaluation["input_mask"].sum(axis=1), kind="stable")
    # Trainer computes metrics only if there are labels; the scores come from the task.
    unused = {label: np.zeros(len(by_length), int) for label in LABELS if label in training}
    with tempfile.TemporaryDirectory() as folder:
        trainer = _Trainer(
            bert,
            TrainingArguments(
                folder,
                seed=seed,
                use_cpu=True,
                bf16=bfloat16,
                num_train_epochs=made.epochs,
                per_device_train_batch_size=made.batch,
                per_device_eval_batch_size=EVALUATION_BATCH,
                learning_rate=made.learning_rate,
                warmup_ratio=ADAMW["warmup"],
                weight_decay=ADAMW["weight_decay"],
                adam_epsilon=ADAMW["epsilon"],
                max_grad_norm=0,  # as this project, which does not clip
                eval_strategy="epoch",
                save_strategy="epoch",
                save_total_limit=1,
                load_best_model_at_end=True,
                metric_for_best_model=made.metrics[-1],
                group_by_length=True,
                report_to="none",
                disable_tqdm=True,
            ),
            DataCollatorWithPadding(AutoTokenizer.from_pretrained(model)),
            _features(training),
            _features({name: values[by_length] for name, values in {**evaluation, **unused}.items()}),
            compute_metrics=lambda result: task.scores(
                _outputs(result.predictions, made.length, np.argsort(by_length))
            ),
        )
        trainer.train()
        metrics = trainer.evaluate()
    return {metric: float(metrics[f"eval_{metric}"]) for metric in made.metrics}


def _features(samples: Arrays) -> list[dict[str, Any]]:
    """Return samples without padding, by the names of Hugging Face's models."""
    lengths = samples["input_mask"].sum(axis=1).tolist()
    inputs = [
        {theirs: samples[name][row, :length].tolist() for name, theirs in INPUTS.items()}
        for row, length in enumerate(lengths)
    ]
    labels = {name: samples[name].reshape(-1).tolist() for name in LABELS if name in samples}
    return [{**sample, **{name: labels[name][row] for name in labels}} for row, sample in enumerate(inputs)]


class _Trainer(transformers.Trainer):
    """Evaluates samples in the order given; ``group_by_length`` would shuffle these too, and so their predictions."""

    def get_eval_dataloader(self, eval_dataset: Any = None) -> Any:
        samples: Any = self.eval_dataset if eval_dataset is None else eval_dataset
        batches = torch.utils.data.DataLoader(samples, EVALUATION_BATCH, collate_fn=self.data_collator)
        return self.accelerator.prepare(batches)


def _outputs(predictions: Any, length: int, order: np.ndarray) -> Arrays:
    """Return ``logits`` (N, K), or ``start_logits`` and ``end_logits`` (N, S), very small beyond the longest sample."""
    if not isinstance(predictions, tuple):
        return {"logits": predictions[order]}
    pads = [((0, 0), (0, length - values.shape[1])) for values in predictions]
    padded = [np.pad(values, pad, constant_values=PADDED_LOGIT)[order] for values, pad in zip(predictions, pads)]
    return dict(zip(("start_logits", "end_logits"), padded))
