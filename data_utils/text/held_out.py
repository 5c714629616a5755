"""Documents that are held out of training, for evaluation: which ones is decided by their text alone.

So the same document is on the same side in every data set made of a corpus, whatever the sequence length and the seed,
and a text that occurs twice is never on both.
"""

from __future__ import annotations

import hashlib
from pathlib import Path

from data_utils.text.sentences import Corpus, read_corpus
from data_utils.text.units import DOCUMENT_END, plan_units
from utilities.errors import UserError
from utilities.files import replacing

SENTENCES_NAME = "sentences_000.txt"


def is_held_out(document: bytes, fraction: float) -> bool:
    """Return whether a document belongs to the ``fraction`` of all documents that is held out."""
    digest = hashlib.blake2b(document, digest_size=8).digest()
    return int.from_bytes(digest, "big") < fraction * 2**64


def documents_of(text: bytes, fraction: float, held_out: bool) -> bytes:
    """Return the documents of a text that are held out, or those that are not.

    Args:
        text: one sentence a line, an empty line between documents.
        fraction: share of the documents that is held out.
        held_out: which ones to return.
    """
    documents = (document.strip(b"\r\n") for document in DOCUMENT_END.split(text))
    kept = [document for document in documents if document and is_held_out(document, fraction) == held_out]
    return b"".join(document + b"\n\n" for document in kept)


def write_held_out(corpus: Corpus, folder: Path, fraction: float) -> Corpus:
    """Copy the documents of a corpus that are held out into a corpus of their own.

    Raises:
        UserError: there are none.
    """
    folder.mkdir(parents=True, exist_ok=True)
    size = 0
    with replacing(folder / SENTENCES_NAME) as stream:
        for unit in plan_units(corpus.files):
            size += stream.write(documents_of(unit.read(), fraction, held_out=True))
    if not size:
        raise UserError(f"--validation-fraction {fraction}: holds out none of the documents; give a larger share")
    return read_corpus(folder)
