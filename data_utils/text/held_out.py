"""The text that is held out of training, for evaluation: whole documents, or parts of them where there are few.

What is held out is decided by text alone: a document is on the same side in every data set made from a corpus, for any
sequence length and seed, and a text that occurs twice is never on both. Where whole documents would give too little or
too much, because there are few or some are large, documents are cut into blocks of whole sentences first, and those of
the smallest digests are held out. A cut ends a document, so no row crosses it.
"""

from __future__ import annotations

import hashlib
import itertools
import math
from collections.abc import Iterator, Sequence
from pathlib import Path
from typing import NamedTuple

from data_utils.recipe import clear_work
from data_utils.records.manifest import VALIDATION_FOLDER, load_manifest
from data_utils.text.corpus import DOCUMENT_END, HELD_OUT_NAME, Corpus, read_corpus, read_documents
from utilities.errors import UserError
from utilities.files import replacing

DIGESTS = 2**64
MOST_TIMES, MOST_APART = 3, 0.05  # of the text: how far whole documents may be from the share that is wanted
PARTS, SMALLEST_BLOCK, LARGEST_BLOCK = 16, 1 << 10, 64 << 10  # blocks that are held out; bytes of a block
PARTS_OF = "held_out_parts_of"  # in the manifest's totals: of how many documents only parts are held out


class HeldOut(NamedTuple):
    limit: int  # documents, or blocks, whose digests are below it
    block_bytes: int | None = None  # approximate size of a block; None: whole documents are held out
    parts_of: int = 0  # documents of which something is held out; 0 if none of them is cut


def choose_held_out(files: Sequence[Path], fraction: float) -> HeldOut:
    """Return what to hold out of sentence files so that it is about a ``fraction`` of their text.

    It is a ``UserError`` if the text has no two different parts, one to train on and one to hold out.
    """
    whole = HeldOut(math.ceil(fraction * DIGESTS))
    total = held_out = 0
    for document in split_documents(read_documents(files)):
        total += len(document)
        held_out += len(document) if _digest(document) < whole.limit else 0
    share = held_out / max(total, 1)
    is_near = fraction / MOST_TIMES <= share <= fraction * MOST_TIMES and abs(share - fraction) <= MOST_APART
    if is_near and share < 1:
        return whole
    block_bytes = min(max(int(fraction * total) // PARTS, SMALLEST_BLOCK), LARGEST_BLOCK)
    sizes: dict[int, int] = {}
    for block in _blocks(split_documents(read_documents(files)), block_bytes):
        digest = _digest(block)
        sizes[digest] = sizes.get(digest, 0) + len(block)
    digests = sorted(sizes)
    if len(digests) < 2:
        raise UserError(
            f"--validation-fraction {fraction}: the text of {total:,} bytes is too short, or one sentence, to hold out"
            " a part of it; give more text"
        )
    total = sum(sizes.values())
    sums = list(itertools.accumulate(sizes[digest] for digest in digests[:-1]))  # one block is left to train on
    count = 1 + min(range(len(sums)), key=lambda index: abs(sums[index] - fraction * total))
    chosen = HeldOut(digests[count - 1] + 1, block_bytes)
    sides = [
        (bool(select(document, chosen, True)), bool(select(document, chosen, False)))
        for document in split_documents(read_documents(files))
    ]
    return chosen._replace(parts_of=sum(is_out for is_out, _ in sides) if (True, True) in sides else 0)


def split_documents(texts: Iterator[bytes] | Sequence[bytes]) -> Iterator[bytes]:
    """Yield the documents of texts without the line ends around them."""
    for text in texts:
        yield from filter(None, (document.strip(b"\r\n") for document in DOCUMENT_END.split(text)))


def select(text: bytes, chosen: HeldOut, is_held_out: bool) -> bytes:
    """Return the documents of a text that are held out, or the others; of a document that is cut, each run of blocks.

    The text has one sentence per line, and an empty line between documents.
    """
    kept = []
    for document in split_documents([text]):
        blocks = _blocks([document], chosen.block_bytes)
        for is_below, run in itertools.groupby(blocks, lambda block: _digest(block) < chosen.limit):
            if is_below == is_held_out:
                kept.append(b"\n".join(run) + b"\n\n")
    return b"".join(kept)


def write_held_out(corpus: Corpus, folder: Path, chosen: HeldOut) -> Corpus:
    """Copy what is held out of a corpus into a separate corpus."""
    folder.mkdir(parents=True, exist_ok=True)
    clear_work(folder)  # an unfinished file of a killed command
    with replacing(folder / HELD_OUT_NAME) as stream:
        stream.writelines(select(document, chosen, is_held_out=True) for document in read_documents(corpus.files))
    return read_corpus(folder)


def describe_held_out(folder: Path) -> str | None:
    """Return what is held out of a data set, and its share of all word pieces; None if nothing is."""
    manifest, held_out = load_manifest(folder), load_manifest(folder / VALIDATION_FOLDER)
    if manifest is None or held_out is None or not held_out.totals.get("tokens"):
        return None
    tokens, parts_of = held_out.totals["tokens"], manifest.totals.get(PARTS_OF)
    count = parts_of or held_out.totals["documents"]
    documents = f"{'parts of ' if parts_of else ''}{count:,} document{'' if count == 1 else 's'}"
    return f"{documents}, {tokens / (tokens + manifest.totals['tokens']):.1%} of the text"


def _digest(text: bytes) -> int:
    return int.from_bytes(hashlib.blake2b(text, digest_size=8).digest(), "big")


def _blocks(documents: Iterator[bytes] | Sequence[bytes], block_bytes: int | None) -> Iterator[bytes]:
    """Yield documents in runs of whole sentences of about ``block_bytes``, or whole."""
    for document in documents:
        if block_bytes is None:
            yield document
            continue
        sentences: list[bytes] = []
        size, left = 0, len(document)
        for sentence in document.split(b"\n"):
            sentences.append(sentence)
            size, left = size + len(sentence) + 1, left - len(sentence) - 1
            if size >= block_bytes <= 2 * left:  # a rest of less than half a block belongs to the last one
                yield b"\n".join(sentences)
                sentences, size = [], 0
        if sentences:
            yield b"\n".join(sentences)
