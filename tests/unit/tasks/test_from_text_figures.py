"""The figures of a result and of the guide, computed again by other means."""

from __future__ import annotations

import hashlib
import math
import re
from pathlib import Path

import numpy as np
import pytest
from transformers import BertTokenizerFast

from data_utils.text.__main__ import main as prepare
from tasks.from_text.judgement import _bits_per_byte, _unknown_share
from tests import ROOT
from tests.support.real_data import real_data
from tests.unit.tasks.test_from_text_choice import TRAININGS

GUIDE = (ROOT / "guides" / "from_text.md").read_text(encoding="utf-8")
# Of the guide's texts: files of Wikipedia, pieces, and held-out share.
TEXTS = {
    "1 MB": (["AA/wiki_00"], 3_072, 0.164),
    "10 MB, 5,632 pieces": ([f"AA/wiki_0{number}" for number in range(10)], 5_632, 0.045),
    "10 MB, 8,192 pieces": ([f"AA/wiki_0{number}" for number in range(10)], 8_192, 0.045),
}


def data_of(files: list[Path], option: str, folder: Path, pieces: int, share: float) -> Path:
    arguments = [option, *map(str, files), "--output", str(folder), "--vocab-size", str(pieces), "--no-next-sentence"]
    assert prepare([*arguments, "--validation-fraction", str(share), "--duplicate-factor", "1"]) == 0
    return folder


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


def test_bits_a_byte_are_those_of_the_held_out_text(tmp_path: Path) -> None:
    draw = np.random.default_rng(1)
    words = ["".join(draw.choice(list("abcdefghij"), size)) for size in draw.integers(2, 9, 300)]
    for number, scale in enumerate([1, 1, 9, 1, 1, 1, 4, 1, 1, 1]):  # of different lengths
        text = "\n\n".join(" ".join(draw.choice(words, 40 * scale)) + f" {'x' * 101}." for _ in range(8))
        (tmp_path / f"{number}.txt").write_text(text, encoding="utf-8")
    data = data_of([tmp_path], "--text", tmp_path / "data", 200, 0.3)
    assert _bits_per_byte(data / "validation", 2.5) == pytest.approx(2.5 * bits_of_a_nat(data), abs=1e-4)
    held_out = (data / "validation" / "corpus" / "sentences_000.txt").read_text("utf-8")
    ids = BertTokenizerFast(str(data / "vocab.txt"))(held_out, add_special_tokens=False)["input_ids"]
    assert _unknown_share(data / "validation") == pytest.approx(ids.count(1) / len(ids)) and ids.count(1) > 10
    assert _bits_per_byte(tmp_path, 2.5) is None and _unknown_share(tmp_path) is None


@pytest.mark.parametrize("text", TEXTS)
def test_the_guide_has_the_bits_of_its_nats(tmp_path: Path, text: str) -> None:
    files, pieces, share = TEXTS[text]
    data = data_of(
        [real_data("wikipedia_en", name) for name in files], "--wikiextractor", tmp_path / "d", pieces, share
    )
    scale = bits_of_a_nat(data, share)
    assert any(abs(row[-1] - scale) < 1e-5 for row in TRAININGS)
    figures = re.search(rf"^\| {re.escape(text)} \|.* ([\d.]+) \|$", GUIDE, re.MULTILINE)
    assert figures is not None and float(figures[1]) == pytest.approx(scale, abs=1e-5)


def test_the_losses_of_the_guide_are_multiples_of_these() -> None:
    """Each row with nats and bits of a byte has them in the proportion of one of the texts."""
    scales = [float(scale) for scale in re.findall(r"^\| [^|]+ \|(?: [^|]+ \|)* (0\.\d{5}) \|$", GUIDE, re.MULTILINE)]
    assert len(scales) >= 6
    tables = GUIDE.partition("## Which model for a few minutes")[2]
    losses = r"((?:\d\.\d{3}(?:, )?)+)"
    rows = re.findall(rf"^\|.*\| {losses} \| (?:\*\*)?{losses}(?:\*\*)? \|", tables, re.MULTILINE)
    assert len(rows) > 20
    for nats, bits in rows:
        for loss, byte in zip(nats.split(", "), bits.split(", ")):
            error = min(abs(float(loss) * scale - float(byte)) for scale in scales)
            assert error < 0.0011, (loss, byte)
