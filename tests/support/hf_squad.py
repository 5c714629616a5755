"""Hugging Face's features of SQuAD."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest

from data_utils.squad.windows import Geometry


def hugging_face_features(squad_file: Path, vocabulary: Path, geometry: Geometry, training: bool) -> list[Any]:
    squad = pytest.importorskip("transformers.data.processors.squad")
    from transformers import BertTokenizer

    processor = squad.SquadV1Processor()
    read = processor.get_train_examples if training else processor.get_dev_examples
    examples = read(str(squad_file.parent), squad_file.name)
    words = BertTokenizer(str(vocabulary), do_lower_case=True)
    sizes = (geometry.max_seq_length, geometry.doc_stride, geometry.max_query_length)
    return squad.squad_convert_examples_to_features(examples, words, *sizes, training, tqdm_enabled=False)
