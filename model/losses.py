"""Losses and accuracies of the tasks, as sums over real tokens and sequences.

Rows are packs of up to N sequences. In packs, labels and scores of sequences are (B, N), and a feature gives each slot
the weight 1.0 if it contains a sequence. Padded rows contain one sequence each, without this feature and the axis N.

The sums are weighted so that each loss is a mean over the real tokens or sequences of a whole update: see
``UpdateRule.loss_weights`` in ``execution/software/training_step.py``.

B micro batch · S tokens of a row · N sequences of a row · P masked positions · V vocabulary · C classes
"""

from __future__ import annotations

from typing import Callable, Optional, Sequence, Tuple, Union

from execution.interface import Tensors, cross_entropy
from keras_extensions.backend import tf
from model.layers import MASKED_SCORE
from utilities.metric_names import LOSS, MLM_LOSS, NSP_LOSS, SEQUENCES_PER_PACK, TOKENS_PER_PACK

MLM_ACCURACY, NSP_ACCURACY = "mlm_accuracy", "nsp_accuracy"
ACCURACY = "accuracy"
START_ACCURACY, END_ACCURACY = "start_accuracy", "end_accuracy"
SEQUENCE_WEIGHTS = ("sequence_weights", "next_sentence_weights")  # the latter in the records of pre-training
LABELLED = "labelled"  # 0 for samples without a label; without this feature all have one

CrossEntropy = Callable[[tf.Tensor, tf.Tensor], tf.Tensor]


class PackObjective:
    """What all objectives share: terms, of which subclasses compute counts and sums, and how full packs are."""

    losses: Tuple[str, ...] = (LOSS,)
    terms: Tuple[str, ...] = (LOSS,)
    label_feature = "labels"  # the feature of the sequences' labels

    def counts(self, batch: Tensors) -> Tensors:
        counts = self.term_counts(batch)
        return {**{name: counts[name] for name in self.terms}, **pack_counts(self.samples_in_packs(batch))}

    def sums(self, outputs: Tensors, batch: Tensors) -> Tensors:
        sums = self.term_sums(outputs, batch)
        return {**{name: sums[name] for name in self.terms}, **pack_sums(self.samples_in_packs(batch))}

    def term_counts(self, batch: Tensors) -> Tensors:
        """Return the number of samples for each term."""
        weights, _ = sequence_weights_and_labels(batch, self.label_feature)
        return dict.fromkeys(self.terms, tf.reduce_sum(weights))

    def term_sums(self, outputs: Tensors, batch: Tensors) -> Tensors:
        raise NotImplementedError

    def samples_in_packs(self, batch: Tensors) -> Tensors:
        """Return a batch in which each sequence of a pack is a sample."""
        return batch


class PretrainingObjective(PackObjective):
    """Masked-LM loss averaged over the real masked tokens, plus next-sentence loss averaged over sequences.

    Devlin et al. 2019, section A.2: the training loss is the sum of the two means, each a mean negative log-likelihood
    in nats.
    """

    def __init__(
        self, accuracies: bool = True, word_cross_entropy: CrossEntropy = cross_entropy, next_sentence: bool = True
    ):
        """The platform's ``word_cross_entropy`` (B, P) is of scores (B, P, V) and labels (B, P)."""
        self.losses = (MLM_LOSS, NSP_LOSS) if next_sentence else (MLM_LOSS,)
        measured = (MLM_ACCURACY, NSP_ACCURACY) if next_sentence else (MLM_ACCURACY,)
        self.terms = (*self.losses, *measured) if accuracies else self.losses
        self._word_cross_entropy = word_cross_entropy

    def term_counts(self, batch: Tensors) -> Tensors:
        tokens = tf.reduce_sum(batch["masked_lm_weights"])
        counts = {MLM_LOSS: tokens, MLM_ACCURACY: tokens}
        if NSP_LOSS in self.losses:
            weights, _ = sequence_weights_and_labels(batch, "next_sentence_labels")
            counts.update(dict.fromkeys((NSP_LOSS, NSP_ACCURACY), tf.reduce_sum(weights)))
        return counts

    def term_sums(self, outputs: Tensors, batch: Tensors) -> Tensors:
        words, weights = batch["masked_lm_ids"], batch["masked_lm_weights"]  # (B, P)
        word_scores = outputs["masked_lm"]  # (B, P, V)
        sums = {
            MLM_LOSS: tf.reduce_sum(weights * self._word_cross_entropy(word_scores, words)),
            MLM_ACCURACY: tf.reduce_sum(weights * correct(word_scores, words)),
        }
        if NSP_LOSS in self.losses:
            real, labels = sequence_weights_and_labels(batch, "next_sentence_labels")  # (B,) or (B, N)
            next_scores = outputs["next_sentence"]  # (B, 2) or (B, N, 2)
            sums[NSP_LOSS] = tf.reduce_sum(real * cross_entropy(next_scores, labels))
            sums[NSP_ACCURACY] = tf.reduce_sum(real * correct(next_scores, labels))
        return sums


class SpanObjective(PackObjective):
    """Mean of the losses of the answer's start and of its end.

    Devlin et al. 2019, section 4.2, divided by 2 as Hugging Face does, so that learning rates carry over. The softmax
    of a padded window includes its padding; that of a window in a pack is over its own tokens only.
    """

    label_feature = "start_positions"

    def __init__(self, accuracies: bool = True):
        self.terms = (LOSS, START_ACCURACY, END_ACCURACY) if accuracies else (LOSS,)

    def term_sums(self, outputs: Tensors, batch: Tensors) -> Tensors:
        real, start = sequence_weights_and_labels(batch, "start_positions")  # (B,) or (B, N), indices in the row
        _, end = sequence_weights_and_labels(batch, "end_positions")
        start_scores, end_scores = (within_windows(outputs[name], batch) for name in ("start_logits", "end_logits"))
        return {
            LOSS: tf.reduce_sum(real * (cross_entropy(start_scores, start) + cross_entropy(end_scores, end))) / 2,
            START_ACCURACY: tf.reduce_sum(real * correct(start_scores, start)),
            END_ACCURACY: tf.reduce_sum(real * correct(end_scores, end)),
        }


class ClassificationObjective(PackObjective):
    """Mean cross-entropy over the samples (Devlin et al. 2019, section 4.1).

    With class weights w and a smoothing ε, the mean of (1 - ε) · w(y) · -log p(y) + ε / C · Σ w(c) · -log p(c) is over
    the weights of the samples' classes y, as in PyTorch. Smoothing: Szegedy et al. 2016, section 7.
    """

    def __init__(self, accuracies: bool = True, class_weights: Sequence[float] = (), label_smoothing: float = 0.0):
        self.terms = (LOSS, ACCURACY) if accuracies else (LOSS,)
        self._class_weights, self._smoothing = tuple(class_weights), label_smoothing

    def term_counts(self, batch: Tensors) -> Tensors:
        real, labels = sequence_weights_and_labels(batch, "labels")
        samples = tf.reduce_sum(real)
        weight = tf.reduce_sum(real * self._weights_of(labels)) if self._class_weights else samples
        return {LOSS: weight, ACCURACY: samples}

    def term_sums(self, outputs: Tensors, batch: Tensors) -> Tensors:
        real, labels = sequence_weights_and_labels(batch, "labels")  # (B,) or (B, N)
        scores = outputs["logits"]  # (B, C) or (B, N, C)
        loss = cross_entropy(scores, labels)
        if self._class_weights:
            loss *= self._weights_of(labels)
        if self._smoothing:
            surprise = -tf.nn.log_softmax(tf.cast(scores, tf.float32), axis=-1)
            surprise *= tf.constant(self._class_weights or 1.0, tf.float32)
            loss = (1 - self._smoothing) * loss + self._smoothing * tf.reduce_mean(surprise, axis=-1)
        return {LOSS: tf.reduce_sum(real * loss), ACCURACY: tf.reduce_sum(real * correct(scores, labels))}

    def _weights_of(self, labels: tf.Tensor) -> tf.Tensor:
        return tf.gather(tf.constant(self._class_weights, tf.float32), labels)


class MultiLabelObjective(PackObjective):
    """Mean over samples and labels of the binary cross-entropy, for samples with any number of labels."""

    def term_sums(self, outputs: Tensors, batch: Tensors) -> Tensors:
        real, _ = sequence_weights_and_labels(batch, "labels")  # (B,) or (B, N)
        scores = tf.cast(outputs["logits"], tf.float32)  # (B, C) or (B, N, C)
        labels = tf.cast(tf.reshape(batch["labels"], tf.shape(scores)), tf.float32)
        loss = tf.nn.sigmoid_cross_entropy_with_logits(labels, scores)
        return {LOSS: tf.reduce_sum(real * tf.reduce_mean(loss, axis=-1))}


class RegressionObjective(PackObjective):
    """Mean squared error over the samples, for a model with one output."""

    def term_sums(self, outputs: Tensors, batch: Tensors) -> Tensors:
        real, scores = sequence_weights_and_labels(batch, "labels")  # (B,) or (B, N)
        difference = tf.cast(outputs["logits"][..., 0], tf.float32) - scores
        return {LOSS: tf.reduce_sum(real * tf.square(difference))}


LabelObjective = Union[ClassificationObjective, MultiLabelObjective, RegressionObjective]


def pack_weights(batch: Tensors) -> Optional[tf.Tensor]:
    """Return 1.0 for each slot of a pack that contains a sequence, (B, N); None if rows are not packs."""
    return next((batch[name] for name in SEQUENCE_WEIGHTS if name in batch), None)


def sequence_weights_and_labels(batch: Tensors, labels: str) -> Tuple[tf.Tensor, tf.Tensor]:
    """Return weights and labels of sequences, (B, N) each in packs, else (B,); without a label the weight is 0."""
    weights, values = pack_weights(batch), batch[labels]
    if weights is None:
        values = values[..., 0]
        weights = tf.ones_like(values, tf.float32)
    if LABELLED in batch:
        weights *= tf.cast(tf.reshape(batch[LABELLED], tf.shape(weights)), tf.float32)
    return weights, values


def pack_counts(batch: Tensors) -> Tensors:
    """Return the divisors of the sums of :func:`pack_sums`, which are the number of packs."""
    if pack_weights(batch) is None:
        return {}
    packs = tf.cast(tf.size(batch["input_mask"][..., 0]), tf.float32)
    return {SEQUENCES_PER_PACK: packs, TOKENS_PER_PACK: packs}


def pack_sums(batch: Tensors) -> Tensors:
    """Return the numbers of sequences and tokens in a batch of packs; an empty dict for padded rows."""
    weights = pack_weights(batch)
    if weights is None:
        return {}
    tokens = tf.cast(tf.greater(batch["input_mask"], 0), tf.float32)
    return {SEQUENCES_PER_PACK: tf.reduce_sum(weights), TOKENS_PER_PACK: tf.reduce_sum(tokens)}


def within_windows(logits: tf.Tensor, batch: Tensors) -> tf.Tensor:
    """Return the scores (B, S) of tokens or, in packs, (B, N, S), in which tokens of other windows are masked."""
    weights = pack_weights(batch)
    if weights is None:
        return logits
    numbers = tf.range(1, tf.shape(weights)[1] + 1)[None, :, None]
    other = tf.not_equal(batch["input_mask"][:, None, :], numbers)  # (B, N, S)
    return tf.cast(logits, tf.float32)[:, None, :] + tf.cast(other, tf.float32) * MASKED_SCORE


def correct(scores: tf.Tensor, labels: tf.Tensor) -> tf.Tensor:
    """Return 1.0 where the highest score is the label's, else 0.0."""
    return tf.cast(tf.equal(tf.argmax(scores, -1, output_type=labels.dtype), labels), tf.float32)
