"""Predictions of a model over a whole data set, with their progress in the log."""

from __future__ import annotations

import dataclasses
import logging
import threading
import time
from contextlib import contextmanager, nullcontext
from multiprocessing.pool import ThreadPool
from typing import Any, Callable, Dict, Iterator, List, Optional, Union

import numpy as np
from tqdm import tqdm

from data_utils.records.features import PER_TOKEN, TOKEN_POSITIONS, FeatureSpec
from data_utils.records.packs import sequences_per_pack
from data_utils.records.pipeline import SampleReader, evaluation_dataset, raise_data_errors
from execution.interface import Platform, Tensors
from keras_extensions.backend import keras, tf
from keras_extensions.listeners.progress import format_duration
from utilities.environment import usable_cores
from utilities.progress import progress_bar

logger = logging.getLogger(__name__)

EVALUATION_BATCH_SIZE = 32
CUT = (*PER_TOKEN, TOKEN_POSITIONS)  # kinds of features that have at most a number for each token
CALLS_BEFORE_TRACING = 20  # of one batch each: tracing takes as long as 20 to 50 of them without a graph
BATCH_TOKENS = 1024  # of a batch of one length; on CPUs, larger batches are not faster
SECONDS_BETWEEN_LINES = 10.0
SHOWN_AFTER = 1.0  # seconds, of a bar


class InterruptedEvaluation(Exception):  # noqa: N818 (not an error)
    """The run was asked to stop during an evaluation."""


@dataclasses.dataclass
class Predictor:
    """Runs a model over all samples of a reader, in order; ``interrupted`` is called after every execution."""

    model: keras.Model
    batch_size: int
    platform: Platform
    interrupted: Callable[[], bool]

    def __call__(self, reader: SampleReader) -> Dict[str, np.ndarray]:
        """Return the model's outputs by name, one row per sample."""
        # The last batch is padded; its additional rows are cut off.
        data = evaluation_dataset(reader, batch_size=self.batch_size, pad_last=True)
        with raise_data_errors(reader):
            outputs = self.platform.predict(self.model, data, [self._progress(reader)])
        return {name: values[: reader.count] for name, values in outputs.items()}

    def means(self, reader: SampleReader) -> Dict[str, float]:
        """Return the means of the objective's terms over all samples."""
        data = evaluation_dataset(reader, batch_size=self.batch_size)
        with raise_data_errors(reader):
            return self.platform.evaluate(self.model, data, [self._progress(reader)])

    def _progress(self, reader: SampleReader) -> EvaluationProgress:
        batches = -(-reader.count // self.batch_size)
        return EvaluationProgress(round(reader.count * sequences_per_pack(reader)), batches, self.interrupted)


class PredictorByLength:
    """Computes outputs for all samples of a reader, the longest first, each batch as wide as its longest one.

    One graph serves batches of any shape, and several threads; another one serves samples that come one by one. From
    the features of a batch and the options of a call, ``compute`` returns outputs by name, ``(N, …)``.
    """

    def __init__(self, compute: Callable[..., Tensors], **options: tf.TensorSpec) -> None:
        self._compute = tf.autograph.experimental.do_not_convert(compute)
        self._options = options
        self._graphs: Dict[Optional[int], Callable[..., Tensors]] = {}  # by the rows of a batch; None: any number
        self._tracing = threading.Lock()
        self._calls = 0

    @contextmanager
    def call(self, total: Optional[int], label: str, unit: str) -> Iterator[PredictorCall]:
        """Within the block, show how many of ``total`` samples have been computed, if it takes longer than a second."""
        with progress_bar(total, label, unit, SHOWN_AFTER) as progress:
            yield PredictorCall(self, progress)

    def __call__(
        self, reader: SampleReader, lengths: np.ndarray, progress: Optional[tqdm] = None, **options: Any
    ) -> Dict[str, np.ndarray]:
        """Return the outputs by name, in the order of the reader.

        Args:
            reader: one padded sequence in each row.
            lengths: ``(N,)`` tokens of each.

        Returns:
            ``(N, …)``; outputs for each token are ``(N, S, …)`` for the S tokens of the longest sequence, 0 where its
            batch was shorter.
        """
        order = np.argsort(-lengths, kind="stable")
        batches = batches_by_length(lengths[order])
        self._calls += 1
        function = self._function(reader.spec, len(order), trace=len(batches) > 1 or self._calls > CALLS_BEFORE_TRACING)
        given = [tf.constant(options[name], spec.dtype) for name, spec in self._options.items()]
        outputs: Dict[str, np.ndarray] = {}
        chosen = [order[batch] for batch in batches]

        def compute(rows: np.ndarray) -> Dict[str, np.ndarray]:
            outputs = function(inputs_of(reader, rows, int(lengths[rows[0]])), *given)
            return {name: (tf.cast(x, tf.float32) if x.dtype.is_floating else x).numpy() for name, x in outputs.items()}

        threads = min(usable_cores(), len(chosen))  # one batch alone does not keep two cores busy
        with ThreadPool(threads) if threads > 1 else nullcontext() as pool:
            for rows, results in zip(chosen, pool.imap(compute, chosen) if pool else map(compute, chosen)):
                for name, values in results.items():
                    if name not in outputs:  # the first batch is the widest
                        outputs[name] = np.zeros((len(order), *values.shape[1:]), values.dtype)
                    outputs[name][rows, : values.shape[1]] = values
                if progress is not None:
                    progress.update(len(rows))
        return outputs

    def _function(self, spec: FeatureSpec, samples: int, trace: bool) -> Callable[..., Tensors]:
        """Return what computes a batch of a call: a graph, if there is one or it shall be traced."""
        rows = 1 if samples == 1 else None
        with self._tracing:
            if trace and rows not in self._graphs:
                features = {feature.name: tf.TensorSpec((rows, None), feature.dtype) for feature in spec.features}
                graph = tf.function(self._compute, input_signature=[features, *self._options.values()])
                self._graphs[rows] = graph.get_concrete_function()  # is called without a look at its inputs' types
            return self._graphs.get(rows) or self._graphs.get(None) or self._compute


class PredictorCall:
    """One call of a model, by one thread; ``cut`` of its samples were too long and lost ``lost_words``, if known."""

    def __init__(self, predictor: PredictorByLength, progress: tqdm) -> None:
        self._predictor, self._progress = predictor, progress
        self.samples = self.cut = self.lost_words = 0

    def __call__(self, reader: SampleReader, lengths: np.ndarray, **options: Any) -> Dict[str, np.ndarray]:
        """Return the outputs by name; see :class:`PredictorByLength`."""
        return self._predictor(reader, lengths, self._progress, **options)

    def count(self, samples: int, cut: int, lost_words: int = 0) -> None:
        self.samples, self.cut, self.lost_words = self.samples + samples, self.cut + cut, self.lost_words + lost_words


def inputs_of(reader: SampleReader, rows: np.ndarray, width: int) -> Tensors:
    """Return the features of some rows, those of tokens cut to ``width`` tokens."""
    arrays = reader.read(rows)
    return {
        feature.name: tf.constant(arrays[feature.name][:, : width if feature.kind in CUT else None])
        for feature in reader.spec.features
    }


def batches_by_length(lengths: np.ndarray) -> List[slice]:
    """Return the batches of samples of descending ``lengths``, each of at most ``BATCH_TOKENS`` with their padding."""
    batches, begin = [], 0
    while begin < len(lengths):
        end = begin + max(1, BATCH_TOKENS // int(lengths[begin]))
        batches.append(slice(begin, end))
        begin = end
    return batches


Predict = Union[Predictor, PredictorCall]


class EvaluationProgress(keras.callbacks.Callback):
    """Occasionally logs progress and time left; raises ``InterruptedEvaluation`` when ``interrupted`` returns true."""

    def __init__(self, samples: int, batches: int, interrupted: Callable[[], bool]) -> None:
        super().__init__()
        self._samples = samples
        self._batches = batches
        self._interrupted = interrupted
        self._started = self._logged = time.perf_counter()

    def on_predict_batch_end(self, batch: int, logs: Optional[Dict[str, Any]] = None) -> None:
        if self._interrupted():
            raise InterruptedEvaluation
        now = time.perf_counter()
        if now - self._logged < SECONDS_BETWEEN_LINES:
            return
        self._logged = now
        done = min((batch + 1) / self._batches, 1.0) * self._samples
        left = (now - self._started) * (self._samples - done) / done
        logger.info("evaluated %s/%s samples | ETA %s", f"{round(done):,}", f"{self._samples:,}", format_duration(left))

    on_test_batch_end = on_predict_batch_end


def evaluation_batch_size(configured: Optional[int], micro_batch_size: int, platform: Platform) -> int:
    """Return the number of samples to predict at once: the configured one, unless the machine requires another."""
    if platform.batch_size is None:
        return configured or max(EVALUATION_BATCH_SIZE, micro_batch_size)
    if configured not in (None, platform.batch_size):
        logger.warning(
            "evaluation_batch_size %d has no effect: IPUs predict micro batches of %d", configured, platform.batch_size
        )
    return platform.batch_size
