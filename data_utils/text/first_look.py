"""What the beginning of a text shows before it is prepared: that it is something else than prose, or cannot be read."""

from __future__ import annotations

import itertools
import re
import unicodedata
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

import numpy as np

from data_utils.recipe import clear_work
from data_utils.text.corpus import Corpus, read_documents
from data_utils.text.instances import use_one_tokenizer_thread
from data_utils.text.readers import Document
from data_utils.text.sources import Source
from data_utils.text.tokens import tokenize_text
from data_utils.text.vocabulary import LONG_WORD
from data_utils.tokenizer import Vocabulary, make_tokenizer
from data_utils.tokenizer_files import UNKNOWN
from utilities.errors import UserError

LONGEST_LOOK, MOST_DOCUMENTS = 200_000, 1_000  # characters and documents that are looked at
MANY_TAGS = 1 / 300  # tags for each character; a page of HTML has one for some fifty
WRAPPED_SHARE, WRAPPED_LENGTHS = 0.8, range(50, 100)  # of the lines that another one of the paragraph follows
WRAPPED_FILL = 0.75  # of the length of the longest but one in twenty, which a wrapped line has at least
FEWEST_LINES = 20
SHORT_DOCUMENTS = 1_000  # characters of a document, on average, below which many in a file may be its paragraphs
MOST_UNREADABLE = 0.2  # share of the text
MOST_UNKNOWN = 0.2  # share of the tokens
CHECKED_BYTES = 200_000  # of text, before records are made
SENTENCEPIECE = "\u2581"  # before its pieces that begin a word
MANY_SIGNS = 0.005  # of the characters
LETTERS_OWN = (0, 7, 8, 9)  # classes of vowel signs, nuktas, voicing marks of kana and viramas
MANY_IDEOGRAPHS = 0.3  # of the characters

_TAG = re.compile(r"</?[a-zA-Z][^<>]{0,200}>")
_IDEOGRAPH = re.compile("[\u3400-\u4dbf\u4e00-\u9fff]")
_WIKIEXTRACTOR = re.compile(r"^<doc id=\"[^\"]*\" ", re.MULTILINE)
_SENTENCE_END = re.compile(r"[.!?:;\"')\]”’]$")


def look_at_beginning(source: Source, strips_marks: bool = False, whole_words: bool = False) -> list[str]:
    """Return what :func:`look` says of the first documents of a source."""
    texts, length = [], 0
    for document in source.documents():
        texts.append(document.text if isinstance(document, Document) else "")
        length += len(texts[-1])
        if length >= LONGEST_LOOK:
            break
    return look(texts, source.kind, len(source.files), strips_marks, whole_words)


def look_at_sentences(corpus: Corpus, strips_marks: bool, whole_words: bool) -> list[str]:
    """Return what :func:`look` says of the first documents of a corpus that was made from a dump."""
    documents = itertools.islice(read_documents(corpus.files), MOST_DOCUMENTS)
    return look([document.decode() for document in documents], {"kind": "dump"}, 1, strips_marks, whole_words)


def look(
    texts: Sequence[str], kind: Mapping[str, Any], files: int, strips_marks: bool = False, whole_words: bool = False
) -> list[str]:
    """Return what the user may not have meant, a sentence each.

    Args:
        kind: Format and options of the texts, as in ``Source.kind``.
        files: Number of their files.
        strips_marks: Whether accents will be stripped, and with them all marks that Unicode does not count as letters.
        whole_words: Whether whole words will be masked.
    """
    beginning = "\n\n".join(text[:LONGEST_LOOK] for text in texts[:MOST_DOCUMENTS])[:LONGEST_LOOK]
    is_text = kind["kind"] == "text"
    if is_text and _WIKIEXTRACTOR.search(beginning):
        raise UserError("--text: the files are WikiExtractor's output (<doc id=…>); give them to --wikiextractor")
    check_words(beginning)
    notes = []
    if len(_TAG.findall(beginning)) > MANY_TAGS * len(beginning):
        notes.append("the text has many tags like those of HTML, which become words; extract its prose first")
    if is_text and not kind["join_lines"] and "per_line" not in kind and _is_wrapped(texts):
        short = not kind["whole_file"] and len(beginning) < SHORT_DOCUMENTS * len(texts)
        books = ", and with --document-per-file blank lines end these, not documents" if short else ""
        notes.append(f"lines seem to be wrapped, which cuts sentences; --join-lines joins them to paragraphs{books}")
    if strips_marks and _lost_marks(beginning) > MANY_SIGNS * len(beginning):
        notes.append(
            "with accents, marks that belong to the letters of this script are stripped (が becomes か, й becomes и),"
            " which changes words; --keep-accents keeps them"
        )
    if whole_words and len(_IDEOGRAPH.findall(beginning)) > MANY_IDEOGRAPHS * len(beginning):
        notes.append("each ideograph is a word of BERT's, so --whole-word-masking has no effect on this text")
    one_each = kind.get("whole_file") or "per_line" in kind
    if is_text and not one_each and 1 < files < len(texts) / 10 and len(beginning) < SHORT_DOCUMENTS * len(texts):
        notes.append("blank lines end a document, of which each file has many; --document-per-file makes a file one")
    return notes


def check_words(text: str) -> None:
    """Refuse a text in which too many words are longer than WordPiece reads."""
    letters = sum(map(len, text.split()))
    unreadable = sum(len(match.group()) for match in LONG_WORD.finditer(text)) / max(letters, 1)
    if unreadable > MOST_UNREADABLE:
        raise UserError(
            f"{unreadable:.0%} of the text is in words of more than 100 letters, each of which BERT reads as [UNK]; in"
            " a language that is written without blanks, such as Thai, put blanks between the words first"
        )


def _lost_marks(text: str) -> int:
    """Return how many marks make another letter or word in their script, as in Thai or kana, unlike accents."""
    last, marks = " ", 0
    for character in unicodedata.normalize("NFD", text):
        if unicodedata.category(character) != "Mn":
            last = character
        elif unicodedata.combining(character) in LETTERS_OWN or (last in "ИиЕеІі" and character in "\u0306\u0308"):
            marks += 1
    return marks


def check_vocabulary(vocabulary: Vocabulary, corpus: Corpus, lower_case: bool, output: Path) -> None:
    """Refuse a vocabulary by which the beginning of the text would be [UNK]."""
    beginning = b""
    for document in read_documents(corpus.files):
        beginning += document[:CHECKED_BYTES]
        if len(beginning) > CHECKED_BYTES:
            break
    text = beginning.decode(errors="ignore")  # the last character may be cut
    use_one_tokenizer_thread()
    share = _unknown_share(text, vocabulary, lower_case)
    if share <= MOST_UNKNOWN:
        return
    check_words(text)
    cause, trained = "lacks its words and characters", vocabulary.path.parent == output
    if any(piece.startswith(SENTENCEPIECE) for piece in vocabulary.pieces):
        cause = "is one of SentencePiece, while BERT's has ## before pieces that continue a word"
    if trained:
        cause = f"was trained on it, but has only {len(vocabulary.pieces):,} pieces"
    fix = "give " + ("a larger --vocab-size" if trained else "a --vocab-file of its language, or none, to train one")
    if vocabulary.lower_case is None and _unknown_share(text, vocabulary, not lower_case) <= MOST_UNKNOWN:
        case = ("is of text with capitals", "give --cased"), ("is of lower-cased text", "leave --cased out")
        cause, fix = case[not lower_case]
    usual = vocabulary._replace(rules=vocabulary.rules._replace(strip_accents=None))
    if vocabulary.lower_case is None and usual != vocabulary and _unknown_share(text, usual, True) <= MOST_UNKNOWN:
        cause, fix = "is of text without accents", "leave --keep-accents out"
    clear_work(output)  # the folder can be used with another vocabulary
    raise UserError(f"{share:.0%} of this text is {UNKNOWN} by {vocabulary.path}, which {cause}; {fix}")


def _unknown_share(text: str, vocabulary: Vocabulary, lower_case: bool) -> float:
    tokens = tokenize_text(text.encode(), make_tokenizer(vocabulary, lower_case)).tokens
    return float(np.mean(tokens == vocabulary.piece_id(UNKNOWN))) if len(tokens) else 0.0


def _is_wrapped(texts: Sequence[str]) -> bool:
    """Return whether most lines that do not end a paragraph fill the width of a page and end within a sentence."""
    inner = [line.rstrip() for text in texts[:MOST_DOCUMENTS] for line in text.split("\n")[:-1]]
    if len(inner) < FEWEST_LINES:
        return False
    shortest = WRAPPED_FILL * sorted(map(len, inner))[int(0.95 * len(inner))]
    wrapped = sum(
        len(line) in WRAPPED_LENGTHS and len(line) >= shortest and not _SENTENCE_END.search(line) for line in inner
    )
    return wrapped > WRAPPED_SHARE * len(inner)
