"""The prose of the demo's text."""

from __future__ import annotations

import pytest

from data_utils.demo_corpus import plain_prose


@pytest.mark.parametrize("character", ["\x01", "\x1b", "\ud800", "\uffff"])
def test_what_is_no_text_stays_out_of_the_corpus(character: str) -> None:
    sentence = "The character {} is used to bracket control sequences in the prompt of a shell."
    assert plain_prose(sentence.format("X")) == [sentence.format("X")]
    assert plain_prose(sentence.format(character)) == []
