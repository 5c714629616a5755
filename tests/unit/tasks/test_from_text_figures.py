"""The figures of a result and of the guide, computed again by other means."""

from __future__ import annotations

import dataclasses
import functools
import hashlib
import itertools
import math
import re
from collections.abc import Callable
from pathlib import Path

import numpy as np
import pytest
from transformers import BertTokenizerFast

from data_utils.text.__main__ import main as prepare
from data_utils.text.held_out import describe_held_out
from data_utils.text.sentences import main as make_sentences
from data_utils.text.vocabulary import train_vocabulary
from tasks.from_text.choice import choose
from tasks.from_text.judgement import _bits_of_a_nat, _expected, _unknown_share, forecasts
from tasks.from_text.recipe import Recipe
from tests import ROOT
from tests.support.real_data import real_data
from tests.unit.tasks.test_from_text_choice import SHORT, TRAININGS, ZEN4

FIGURES = (ROOT / "guides" / "from_text_figures.md").read_text(encoding="utf-8")
# Of the texts that were measured: the number of Wikipedia's files, pieces, and held-out share.
TEXTS = {
    "1 MB": (1, 3_072, 0.164),
    "10 MB, 5,632 pieces": (10, 5_632, 0.045),
    "10 MB, 8,192 pieces": (10, 8_192, 0.045),
}


def bits_of_a_nat(data: Path, whole_documents: float = 0.0) -> float:
    """Return the tokens of the held-out text, as Hugging Face counts them, for each of its bytes, divided by ln 2.

    If a share of ``whole_documents`` is given, they are those of the smallest digests, of which the guide's were made.
    """
    folder = data / "corpus" if whole_documents else data / "validation" / "corpus"
    text = "".join(path.read_text("utf-8") for path in sorted(folder.glob("*.txt")))
    if whole_documents:
        documents = text.strip().split("\n\n")
        digests = [hashlib.blake2b(document.encode(), digest_size=8).hexdigest() for document in documents]
        chosen = [each for each, digest in zip(documents, digests) if int(digest, 16) / 2**64 < whole_documents]
        text = "".join(document + "\n\n" for document in chosen)
    tokenizer = BertTokenizerFast(str(data / "vocab.txt"))
    lines = tokenizer([line for line in text.split("\n") if line], add_special_tokens=False)["input_ids"]
    return sum(map(len, lines)) / len(text.encode()) / math.log(2)


@pytest.fixture(scope="module")
def small(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """Data of random words, with held-out documents of other lengths than the rest."""
    folder = tmp_path_factory.mktemp("small")
    draw = np.random.default_rng(1)
    words = ["".join(draw.choice(list("abcdefghij"), size)) for size in draw.integers(2, 9, 300)]
    for number, scale in enumerate([1, 1, 9, 1, 1, 1, 4, 1, 1, 1]):
        text = "\n\n".join(" ".join(draw.choice(words, 40 * scale)) + f" {'x' * 101}." for _ in range(8))
        (folder / f"{number}.txt").write_text(text, encoding="utf-8")
    arguments = ["--text", str(folder), "--output", str(folder / "data"), "--vocab-size", "200", "--no-next-sentence"]
    assert prepare([*arguments, "--validation-fraction", "0.3", "--duplicate-factor", "1", "--workers", "1"]) == 0
    return folder / "data"


def test_bits_a_byte_are_those_of_the_held_out_text(small: Path, tmp_path: Path) -> None:
    assert _bits_of_a_nat(small / "validation") == pytest.approx(bits_of_a_nat(small))
    held_out = (small / "validation" / "corpus" / "sentences_000.txt").read_text("utf-8")
    ids = BertTokenizerFast(str(small / "vocab.txt"))(held_out, add_special_tokens=False)["input_ids"]
    assert _unknown_share(small / "validation") == pytest.approx(ids.count(1) / len(ids)) and ids.count(1) > 10
    assert _bits_of_a_nat(tmp_path) is None and _unknown_share(tmp_path) is None


def test_what_is_held_out_is_counted(small: Path) -> None:
    corpora = [(small / folder / "corpus").glob("*.txt") for folder in (".", "validation")]
    texts = ["".join(path.read_text("utf-8") for path in sorted(files)) for files in corpora]
    tokenizer = BertTokenizerFast(str(small / "vocab.txt"))
    tokens = [len(tokenizer(text, add_special_tokens=False)["input_ids"]) for text in texts]
    documents = len([each for each in texts[1].split("\n\n") if each.strip()])
    assert describe_held_out(small) == f"{documents} documents, {tokens[1] / tokens[0]:.1%} of the text"


def bits_by_hand(minutes: float, updates_of_a_pass: float) -> float:
    """Return the guide's formula: 0.668 + √(T² + S²), S = 4.9 × updates^-0.5; T from its table, geometrically."""
    table = [(1.1, 1.729), (1.44, 1.652), (2, 1.568), (6.4, 1.279), (32.7, 1.09), (113, 1.006), (1_700, 0.844)]
    for (before, more), (after, less) in itertools.pairwise(table):
        if before <= minutes <= after:
            place = math.log(minutes / before) / math.log(after / before)
            of_time = more ** (1 - place) * less**place - 0.668
            return 0.668 + (of_time**2 + 4.9**2 / updates_of_a_pass) ** 0.5
    raise AssertionError("outside of the table")


def trained(minutes: float, updates_of_a_pass: float) -> Recipe:
    return dataclasses.replace(choose(SHORT, ZEN4, 0.5), minutes=minutes, pass_updates=updates_of_a_pass)


@pytest.mark.parametrize(("minutes", "updates"), [(1.2, 75.0), (5.0, 700.0), (40.0, 11_000.0), (118.0, 3_000.0)])
def test_the_expected_loss_is_that_of_the_formula(small: Path, minutes: float, updates: float) -> None:
    scale, bits = _bits_of_a_nat(small / "validation"), bits_by_hand(minutes, updates)
    found = _expected(trained(minutes, updates), scale)
    assert found is not None and found["bits"] == pytest.approx(bits, abs=6e-4)
    assert found["nats"] == pytest.approx(bits / bits_of_a_nat(small), abs=3e-3)


@pytest.mark.parametrize(("minutes", "updates"), [(1.0, 700.0), (119.0, 700.0), (5.0, 50.0)])
def test_outside_of_what_was_measured_nothing_is_expected(small: Path, minutes: float, updates: float) -> None:
    recipe = trained(minutes, updates)
    assert _expected(recipe, _bits_of_a_nat(small / "validation")) is None and forecasts(recipe, 3.0) == []


def test_forecasts_are_those_of_the_formula() -> None:
    now = bits_by_hand(20.0, 900.0)
    expected = {
        "twice the time": 3.0 * bits_by_hand(40.0, 900.0) / now,
        "twice the text": 3.0 * bits_by_hand(20.0, 1_800.0) / now,
    }
    assert {what: loss for what, loss, _ in forecasts(trained(20.0, 900.0), 3.0)} == pytest.approx(expected, abs=4e-3)


@pytest.fixture(scope="module")
def sentences(tmp_path_factory: pytest.TempPathFactory) -> Callable[[int], Path]:
    """A function that returns the sentences of a number of Wikipedia's files; each folder is made once."""

    @functools.cache
    def made(count: int) -> Path:
        folder = tmp_path_factory.mktemp("wikipedia")
        files = [str(real_data("wikipedia_en", "AA", f"wiki_0{number}")) for number in range(count)]
        assert make_sentences(["--wikiextractor", *files, "--output", str(folder / "corpus")]) == 0
        return folder

    return made


@pytest.mark.parametrize(
    "text", [pytest.param(text, marks=[pytest.mark.slow] * (count > 1)) for text, (count, *_) in TEXTS.items()]
)
def test_the_guide_has_the_bits_of_its_nats(sentences: Callable[[int], Path], text: str) -> None:
    count, pieces, share = TEXTS[text]
    data = sentences(count)
    train_vocabulary(sorted((data / "corpus").glob("*.txt")), data / "vocab.txt", pieces)
    scale = bits_of_a_nat(data, share)
    assert any(abs(row[-1] - scale) < 1e-5 for row in TRAININGS)
    figures = re.search(rf"^\| {re.escape(text)} \|.* ([\d.]+) \|$", FIGURES, re.MULTILINE)
    assert figures is not None and float(figures[1]) == pytest.approx(scale, abs=1e-5)


def test_the_losses_of_the_guide_are_multiples_of_these() -> None:
    """Each row with nats and bits of a byte has them in the proportion of one of the texts."""
    scales = [float(scale) for scale in re.findall(r"^\| [^|]+ \|(?: [^|]+ \|)* (0\.\d{5}) \|$", FIGURES, re.MULTILINE)]
    assert len(scales) >= 6
    tables = FIGURES.partition("## Which model for a few minutes")[2]
    losses = r"((?:\d\.\d{3}(?:, )?)+)"
    rows = re.findall(rf"^\|.*\| {losses} \| (?:\*\*)?{losses}(?:\*\*)? \|", tables, re.MULTILINE)
    assert len(rows) > 20
    for nats, bits in rows:
        for loss, byte in zip(nats.split(", "), bits.split(", ")):
            error = min(abs(float(loss) * scale - float(byte)) for scale in scales)
            assert error < 0.0011, (loss, byte)
