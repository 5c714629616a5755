"""Losses and accuracies of the tasks, as sums over real tokens and sequences.

B micro batch · P masked positions · V vocabulary
"""

from __future__ import annotations

from execution.interface import Tensors
from keras_extensions.backend import tf

MLM_LOSS, NSP_LOSS = "mlm_loss", "nsp_loss"
MLM_ACCURACY, NSP_ACCURACY = "mlm_accuracy", "nsp_accuracy"


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
        sequences = tf.cast(tf.size(batch["next_sentence_labels"]), tf.float32)
        counts = {MLM_LOSS: tokens, NSP_LOSS: sequences}
        if self._accuracies:
            counts.update({MLM_ACCURACY: tokens, NSP_ACCURACY: sequences})
        return counts

    def sums(self, outputs: Tensors, batch: Tensors) -> Tensors:
        words, weights = batch["masked_lm_ids"], batch["masked_lm_weights"]  # (B, P)
        labels = batch["next_sentence_labels"][:, 0]  # (B,)
        word_scores, next_scores = outputs["masked_lm"], outputs["next_sentence"]  # (B, P, V), (B, 2)
        sums = {
            MLM_LOSS: tf.reduce_sum(weights * cross_entropy(word_scores, words)),
            NSP_LOSS: tf.reduce_sum(cross_entropy(next_scores, labels)),
        }
        if self._accuracies:
            sums[MLM_ACCURACY] = tf.reduce_sum(weights * correct(word_scores, words))
            sums[NSP_ACCURACY] = tf.reduce_sum(correct(next_scores, labels))
        return sums


def cross_entropy(scores: tf.Tensor, labels: tf.Tensor) -> tf.Tensor:
    """Negative log-likelihood of ``labels`` (…) under softmax of ``scores`` (…, classes), in float32."""
    return tf.nn.sparse_softmax_cross_entropy_with_logits(labels, tf.cast(scores, tf.float32))


def correct(scores: tf.Tensor, labels: tf.Tensor) -> tf.Tensor:
    """1.0 where the highest score is the label's, else 0.0."""
    return tf.cast(tf.equal(tf.argmax(scores, -1, output_type=labels.dtype), labels), tf.float32)
