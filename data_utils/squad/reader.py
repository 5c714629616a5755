"""Windows as rows of ids, made when they are read: a data set takes the memory of its texts, not of its padding.

Shapes: N windows asked for, S max_seq_length.
"""

from __future__ import annotations

from collections import deque
from typing import Deque, Dict, Tuple

import numpy as np

from data_utils.records.features import FeatureSpec
from data_utils.squad.windows import Windows
from data_utils.tokenizer import CLASSIFIER, PADDING, SEPARATOR, Vocabulary
from utilities.errors import UserError


class WindowReader:
    """Samples of windows, used like ``RecordReader``.

    Args:
        spec: of :func:`data_utils.records.features.squad_features`, with or without labels.
        windows: what to read.
        vocabulary: has the ids of [PAD], [CLS] and [SEP].
    """

    def __init__(self, spec: FeatureSpec, windows: Windows, vocabulary: Vocabulary) -> None:
        self.spec = spec
        self.count = windows.count
        self.failures: Deque[UserError] = deque()
        self._windows = windows
        self._special = tuple(vocabulary.id_of(token) for token in (PADDING, CLASSIFIER, SEPARATOR))
        self._first_column, self._first_token = windows.first_column(), windows.first_token()
        self._length = spec.features[0].length

    def read(self, positions: np.ndarray) -> Dict[str, np.ndarray]:
        """The windows at these positions.

        Returns:
            int32: ``input_ids input_mask segment_ids`` ``(N, S)``, and where the specification has them
            ``start_positions end_positions`` ``(N, 1)``.
        """
        ids, mask, segments = self._tokens(positions)
        batch = {
            "input_ids": ids,
            "input_mask": mask,
            "segment_ids": segments,
            "start_positions": self._windows.start[positions][:, None],
            "end_positions": self._windows.end[positions][:, None],
        }
        return {feature.name: batch[feature.name] for feature in self.spec.features}

    def _tokens(self, positions: np.ndarray) -> Tuple[np.ndarray, np.ndarray, np.ndarray]:
        windows, texts = self._windows, self._windows.texts
        padding, classifier, separator = self._special
        column = np.arange(self._length, dtype=np.int32)[None]  # (1, S)
        context = self._first_column[positions][:, None]  # (N, 1)
        end = context + windows.length[positions][:, None]  # (N, 1), of the last [SEP]
        ids = np.full((len(positions), self._length), padding, np.int32)

        rows, columns = np.nonzero((column >= 1) & (column < context - 1))
        begin = texts.question_starts[windows.question[positions]] - 1
        ids[rows, columns] = texts.question_ids[begin[rows] + columns]

        rows, columns = np.nonzero((column >= context) & (column < end))
        begin = self._first_token[positions] - context[:, 0]
        ids[rows, columns] = texts.context_ids[begin[rows] + columns]

        ids[:, 0] = classifier
        np.put_along_axis(ids, context - 1, separator, axis=1)
        np.put_along_axis(ids, end, separator, axis=1)
        mask = (column <= end).astype(np.int32)
        return ids, mask, mask * (column >= context)
