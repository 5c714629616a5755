"""Losses and accuracies of the tasks, as sums over real tokens and sequences.

B micro batch · S sequence · P masked positions · V vocabulary · C classes · N windows of a pack
"""

from __future__ import annotations

from typing import Callable, Tuple

from execution.interface import Tensors, cross_entropy
from keras_extensions.backend import tf
from model.embeddings import MASKED_SCORE

MLM_LOSS, NSP_LOSS = "mlm_loss", "nsp_loss"
MLM_ACCURACY, NSP_ACCURACY = "mlm_accuracy", "nsp_accuracy"
SEQUENCES_PER_PACK, TOKENS_PER_PACK = "sequences_per_pack", "tokens_per_pack"
LOSS, ACCURACY = "loss", "accuracy"
START_ACCURACY, END_ACCURACY = "start_accuracy", "end_accuracy"

CrossEntropy = Callable[[tf.Tensor, tf.Tensor], tf.Tensor]


class PretrainingObjective:
    """Masked-LM loss averaged over the real masked tokens, plus next-sentence loss averaged over sequences.

    Devlin et al. 2019, section A.2: the training loss is the sum of the two means, each a mean negative log-likelihood
    in nats.
    """

    losses = (MLM_LOSS, NSP_LOSS)

    def __init__(self, accuracies: bool = True, word_cross_entropy: CrossEntropy = cross_entropy):
        """
        Args:
            accuracies: measure them, too.
            word_cross_entropy: of scores (B, P, V) and labels (B, P), as the machine computes it.
        """
        self._accuracies = accuracies
        self._word_cross_entropy = word_cross_entropy

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
            MLM_LOSS: tf.reduce_sum(weights * self._word_cross_entropy(word_scores, words)),
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


class OfPacks:
    """Joined with an objective: how full the packs are, told beside its losses.

    Attributes:
        weights: the feature (B, N) that is 1.0 for each sequence of a pack, N being the sequences of a pack at most.
    """

    weights = "sequence_weights"

    def counts(self, batch: Tensors) -> Tensors:
        packs = number_of(batch["input_mask"][..., 0])
        return {**super().counts(batch), SEQUENCES_PER_PACK: packs, TOKENS_PER_PACK: packs}

    def sums(self, outputs: Tensors, batch: Tensors) -> Tensors:
        tokens = tf.cast(tf.greater(batch["input_mask"], 0), tf.float32)
        return {
            **super().sums(outputs, batch),
            SEQUENCES_PER_PACK: tf.reduce_sum(batch[self.weights]),
            TOKENS_PER_PACK: tf.reduce_sum(tokens),
        }


class PackedPretrainingObjective(OfPacks, PretrainingObjective):
    """The same losses of packs, averaged over real tokens and sequences.

    In packs, labels are (B, N) and next-sentence scores (B, N, 2).
    """

    weights = "next_sentence_weights"

    def sequences(self, batch: Tensors) -> Tuple[tf.Tensor, tf.Tensor]:
        """Next-sentence labels and weights (B, N)."""
        return batch["next_sentence_labels"], batch[self.weights]


class SpanObjective:
    """Mean of the losses of the answer's start and of its end, each softmax over the sequence.

    Devlin et al. 2019, section 4.2, divided by 2 as Hugging Face does, so that learning rates carry over.
    """

    losses = (LOSS,)

    def __init__(self, accuracies: bool = True):
        self._terms = (LOSS, START_ACCURACY, END_ACCURACY) if accuracies else (LOSS,)

    def counts(self, batch: Tensors) -> Tensors:
        return dict.fromkeys(self._terms, tf.reduce_sum(self.windows(batch)))

    def sums(self, outputs: Tensors, batch: Tensors) -> Tensors:
        real = self.windows(batch)  # (B,)
        start, end = self.answers(batch)  # (B,)
        start_scores, end_scores = (self.scores(outputs[name], batch) for name in ("start_logits", "end_logits"))
        sums = {
            LOSS: tf.reduce_sum(real * (cross_entropy(start_scores, start) + cross_entropy(end_scores, end))) / 2,
            START_ACCURACY: tf.reduce_sum(real * correct(start_scores, start)),
            END_ACCURACY: tf.reduce_sum(real * correct(end_scores, end)),
        }
        return {name: sums[name] for name in self._terms}

    def windows(self, batch: Tensors) -> tf.Tensor:
        """1.0 for each window that counts, (B,)."""
        return tf.ones_like(batch["start_positions"][..., 0], tf.float32)

    def answers(self, batch: Tensors) -> Tuple[tf.Tensor, tf.Tensor]:
        """First and last token of each window's answer, (B,)."""
        return batch["start_positions"][:, 0], batch["end_positions"][:, 0]

    def scores(self, logits: tf.Tensor, batch: Tensors) -> tf.Tensor:
        """Scores of the places of each window, (B, S)."""
        return logits


class PackedSpanObjective(OfPacks, SpanObjective):
    """The same losses of packs of windows, each softmax over the tokens of one window.

    Labels are (B, N). A window alone in its row competes with its padding as well, which here it has not.
    """

    def windows(self, batch: Tensors) -> tf.Tensor:
        """1.0 for each place of a pack that has a window, (B, N)."""
        return batch[self.weights]

    def answers(self, batch: Tensors) -> Tuple[tf.Tensor, tf.Tensor]:
        """First and last token of each window's answer, counted in the pack, (B, N)."""
        return batch["start_positions"], batch["end_positions"]

    def scores(self, logits: tf.Tensor, batch: Tensors) -> tf.Tensor:
        """Scores (B, N, S) of the pack's places for each of its windows; those of other windows are out of reach."""
        numbers = tf.range(1, tf.shape(batch[self.weights])[1] + 1)[None, :, None]
        other = tf.not_equal(batch["input_mask"][:, None, :], numbers)  # (B, N, S)
        return tf.cast(logits, tf.float32)[:, None, :] + tf.cast(other, tf.float32) * MASKED_SCORE


class ClassificationObjective:
    """Mean cross-entropy over the samples (Devlin et al. 2019, section 4.1)."""

    losses = (LOSS,)

    def __init__(self, accuracies: bool = True):
        self._terms = (LOSS, ACCURACY) if accuracies else (LOSS,)

    def counts(self, batch: Tensors) -> Tensors:
        return dict.fromkeys(self._terms, tf.reduce_sum(self.samples(batch)[1]))

    def sums(self, outputs: Tensors, batch: Tensors) -> Tensors:
        (labels, real), scores = self.samples(batch), outputs["logits"]  # (B,), (B, C)
        sums = {
            LOSS: tf.reduce_sum(real * cross_entropy(scores, labels)),
            ACCURACY: tf.reduce_sum(real * correct(scores, labels)),
        }
        return {name: sums[name] for name in self._terms}

    def samples(self, batch: Tensors) -> Tuple[tf.Tensor, tf.Tensor]:
        """Labels (B,), and 1.0 for each that counts."""
        labels = batch["labels"][..., 0]
        return labels, tf.ones_like(labels, tf.float32)


class PackedClassificationObjective(OfPacks, ClassificationObjective):
    """The same of packs: labels (B, N), scores (B, N, C)."""

    def samples(self, batch: Tensors) -> Tuple[tf.Tensor, tf.Tensor]:
        """Labels and weights (B, N)."""
        return batch["labels"], batch[self.weights]


class RegressionObjective:
    """Mean squared error over the samples, for a model with one output."""

    losses = (LOSS,)

    def counts(self, batch: Tensors) -> Tensors:
        return {LOSS: tf.reduce_sum(self.samples(batch)[1])}

    def sums(self, outputs: Tensors, batch: Tensors) -> Tensors:
        scores, real = self.samples(batch)  # (B,)
        difference = tf.cast(outputs["logits"][..., 0], tf.float32) - scores
        return {LOSS: tf.reduce_sum(real * tf.square(difference))}

    def samples(self, batch: Tensors) -> Tuple[tf.Tensor, tf.Tensor]:
        """Scores to be predicted (B,), and 1.0 for each that counts."""
        scores = batch["labels"][..., 0]
        return scores, tf.ones_like(scores)


class PackedRegressionObjective(OfPacks, RegressionObjective):
    """The same of packs: labels (B, N), scores (B, N, 1)."""

    def samples(self, batch: Tensors) -> Tuple[tf.Tensor, tf.Tensor]:
        """Scores to be predicted and weights (B, N)."""
        return batch["labels"], batch[self.weights]


def number_of(values: tf.Tensor) -> tf.Tensor:
    """How many values a tensor holds, as float32."""
    return tf.cast(tf.size(values), tf.float32)


def correct(scores: tf.Tensor, labels: tf.Tensor) -> tf.Tensor:
    """1.0 where the highest score is the label's, else 0.0."""
    return tf.cast(tf.equal(tf.argmax(scores, -1, output_type=labels.dtype), labels), tf.float32)
