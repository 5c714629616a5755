"""Chooses the documents that are held out of training, for evaluation, by their text alone.

A document is therefore on the same side in every data set made from a corpus, for any sequence length and seed,
and a text that occurs twice is never on both.
"""

from __future__ import annotations

import hashlib
import itertools
from pathlib import Path

from data_utils.recipe import clear_work
from data_utils.text.corpus_text import DOCUMENT_END, read_documents
from data_utils.text.sentences import Corpus, read_corpus
from utilities.errors import UserError
from utilities.files import replacing

SENTENCES_NAME = "sentences_000.txt"


def is_held_out(document: bytes, fraction: float) -> bool:
    """Return whether a document belongs to the ``fraction`` of all documents that is held out."""
    digest = hashlib.blake2b(document, digest_size=8).digest()
    return int.from_bytes(digest, "big") < fraction * 2**64


def select_documents(text: bytes, fraction: float, held_out: bool) -> bytes:
    """Return the documents of a text that are held out, or the others.

    Args:
        text: one sentence per line, with an empty line between documents.
        fraction: share of the documents that is held out.
        held_out: whether to return the held-out documents or the others.
    """
    documents = (document.strip(b"\r\n") for document in DOCUMENT_END.split(text))
    kept = [document for document in documents if document and is_held_out(document, fraction) == held_out]
    return b"".join(document + b"\n\n" for document in kept)


def write_held_out(corpus: Corpus, folder: Path, fraction: float) -> Corpus:
    """Copy the held-out documents of a corpus into a separate corpus.

    Raises:
        UserError: no document is held out.
    """
    texts = (select_documents(document, fraction, held_out=True) for document in read_documents(corpus.files))
    first = next(filter(None, texts), None)
    if first is None:
        raise UserError(f"--validation-fraction {fraction}: holds out none of the documents; give a larger share")
    folder.mkdir(parents=True, exist_ok=True)
    clear_work(folder)  # an unfinished file of a killed command
    with replacing(folder / SENTENCES_NAME) as stream:
        stream.writelines(itertools.chain([first], texts))
    return read_corpus(folder)
