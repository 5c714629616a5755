"""A vocabulary and a tokenizer for the tests of SQuAD."""

from __future__ import annotations

import pytest
from tokenizers import Tokenizer

from data_utils.tokenizer import Vocabulary, load_tokenizer
from tests.support.squad_files import write_vocabulary


@pytest.fixture(scope="package")
def vocabulary(tmp_path_factory: pytest.TempPathFactory) -> Vocabulary:
    return write_vocabulary(tmp_path_factory.mktemp("vocabulary"))


@pytest.fixture(scope="package")
def tokenizer(vocabulary: Vocabulary) -> Tokenizer:
    return load_tokenizer(str(vocabulary.path), True)
