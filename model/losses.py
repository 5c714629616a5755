"""Losses and accuracies of the tasks, as sums over real tokens and sequences.

B micro batch · S sequence · P masked positions · V vocabulary · C classes
"""

from __future__ import annotations

from typing import Tuple

from execution.interface import Tensors
from keras_extensions.backend import tf

MLM_LOSS, NSP_LOSS = "mlm_loss", "nsp_loss"
MLM_ACCURACY, NSP_ACCURACY = "mlm_accuracy", "nsp_accuracy"
SEQUENCES_PER_PACK, TOKENS_PER_PACK = "sequences_per_pack", "tokens_per_pack"
LOSS, ACCURACY = "loss", "accuracy"
START_ACCURACY, END_ACCURACY = "start_accuracy", "end_accuracy"


class PretrainingObjective:
    """Masked-LM loss averaged over the real masked tokens, plus next-sentence loss averaged over sequences.

    Devlin et al. 2019, section A.2: the training loss is the sum of the two means, each a mean negative log-likelihood
    in nats.
    """

    losses = (MLM_LOSS, NSP_LOSS)

    def __init__(self, accuracies: bool = True):
        self._accuracies = accuracies

    def counts(self, batch: Tensors) -> Tensors:
        tokens = tf.reduce_sum(batch["masked_lm_weights"])
        sequences = tf.reduce_sum(self.sequences(batch)[1])
        counts = {MLM_LOSS: tokens, NSP_LOSS: sequences}
        if self._accuracies:
            counts.update({MLM_ACCURACY: tokens, NSP_ACCURACY: sequences})
        return counts

    def sums(self, outputs: Tensors, batch: Tensors) -> Tensors:
        words, weights = batch["masked_lm_ids"], batch["masked_lm_weights"]  # (B, P)
        labels, real = self.sequences(batch)  # (B,)
        word_scores, next_scores = outputs["masked_lm"], outputs["next_sentence"]  # (B, P, V), (B, 2)
        sums = {
            MLM_LOSS: tf.reduce_sum(weights * cross_entropy(word_scores, words)),
            NSP_LOSS: tf.reduce_sum(real * cross_entropy(next_scores, labels)),
        }
        if self._accuracies:
            sums[MLM_ACCURACY] = tf.reduce_sum(weights * correct(word_scores, words))
            sums[NSP_ACCURACY] = tf.reduce_sum(real * correct(next_scores, labels))
        return sums

    def sequences(self, batch: Tensors) -> Tuple[tf.Tensor, tf.Tensor]:
        """Next-sentence labels (B,), and 1.0 for each that counts."""
        labels = batch["next_sentence_labels"][..., 0]
        return labels, tf.ones_like(labels, tf.float32)


class PackedPretrainingObjective(PretrainingObjective):
    """The same losses of packs, averaged over real tokens and sequences; and how full the packs are.

    In packs, labels are (B, N) and next-sentence scores (B, N, 2), N being the sequences of a pack at most.
    """

    def counts(self, batch: Tensors) -> Tensors:
        packs = number_of(batch["next_sentence_labels"][..., 0])
        return {**super().counts(batch), SEQUENCES_PER_PACK: packs, TOKENS_PER_PACK: packs}

    def sums(self, outputs: Tensors, batch: Tensors) -> Tensors:
        tokens = tf.cast(tf.greater(batch["input_mask"], 0), tf.float32)
        return {
            **super().sums(outputs, batch),
            SEQUENCES_PER_PACK: tf.reduce_sum(batch["next_sentence_weights"]),
            TOKENS_PER_PACK: tf.reduce_sum(tokens),
        }

    def sequences(self, batch: Tensors) -> Tuple[tf.Tensor, tf.Tensor]:
        """Next-sentence labels and weights (B, N)."""
        return batch["next_sentence_labels"], batch["next_sentence_weights"]


class SpanObjective:
    """Mean of the losses of the answer's start and of its end, each softmax over the sequence.

    Devlin et al. 2019, section 4.2, divided by 2 as Hugging Face does, so that learning rates carry over.
    """

    losses = (LOSS,)

    def __init__(self, accuracies: bool = True):
        self._terms = (LOSS, START_ACCURACY, END_ACCURACY) if accuracies else (LOSS,)

    def counts(self, batch: Tensors) -> Tensors:
        return dict.fromkeys(self._terms, number_of(batch["start_positions"]))

    def sums(self, outputs: Tensors, batch: Tensors) -> Tensors:
        start, end = batch["start_positions"][:, 0], batch["end_positions"][:, 0]  # (B,)
        start_scores, end_scores = outputs["start_logits"], outputs["end_logits"]  # (B, S)
        loss = tf.reduce_sum(cross_entropy(start_scores, start) + cross_entropy(end_scores, end)) / 2
        sums = {
            LOSS: loss,
            START_ACCURACY: tf.reduce_sum(correct(start_scores, start)),
            END_ACCURACY: tf.reduce_sum(correct(end_scores, end)),
        }
        return {name: sums[name] for name in self._terms}


class ClassificationObjective:
    """Mean cross-entropy over the samples (Devlin et al. 2019, section 4.1)."""

    losses = (LOSS,)

    def __init__(self, accuracies: bool = True):
        self._terms = (LOSS, ACCURACY) if accuracies else (LOSS,)

    def counts(self, batch: Tensors) -> Tensors:
        return dict.fromkeys(self._terms, number_of(batch["labels"]))

    def sums(self, outputs: Tensors, batch: Tensors) -> Tensors:
        labels, scores = batch["labels"][:, 0], outputs["logits"]  # (B,), (B, C)
        sums = {LOSS: tf.reduce_sum(cross_entropy(scores, labels)), ACCURACY: tf.reduce_sum(correct(scores, labels))}
        return {name: sums[name] for name in self._terms}


class RegressionObjective:
    """Mean squared error over the samples, for a model with one output."""

    losses = (LOSS,)

    def counts(self, batch: Tensors) -> Tensors:
        return {LOSS: number_of(batch["labels"])}

    def sums(self, outputs: Tensors, batch: Tensors) -> Tensors:
        difference = tf.cast(outputs["logits"], tf.float32) - batch["labels"]  # (B, 1)
        return {LOSS: tf.reduce_sum(tf.square(difference))}


def number_of(values: tf.Tensor) -> tf.Tensor:
    """How many values a tensor holds, as float32."""
    return tf.cast(tf.size(values), tf.float32)


def cross_entropy(scores: tf.Tensor, labels: tf.Tensor) -> tf.Tensor:
    """Negative log-likelihood of ``labels`` (…) under softmax of ``scores`` (…, classes), in float32."""
    return tf.nn.sparse_softmax_cross_entropy_with_logits(labels, tf.cast(scores, tf.float32))


def correct(scores: tf.Tensor, labels: tf.Tensor) -> tf.Tensor:
    """1.0 where the highest score is the label's, else 0.0."""
    return tf.cast(tf.equal(tf.argmax(scores, -1, output_type=labels.dtype), labels), tf.float32)
