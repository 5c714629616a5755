# PYTHON_ARGCOMPLETE_OK
"""Step ``vocabulary``: trains a WordPiece vocabulary on the corpus.

WordPiece as in BERT: pieces that continue a word begin with ``##``; special tokens come first.
"""

from __future__ import annotations

import argparse
import re
import sys
from collections import Counter
from collections.abc import Iterable, Iterator
from pathlib import Path
from typing import BinaryIO

from tokenizers import Tokenizer
from tokenizers.models import WordPiece
from tokenizers.normalizers import BertNormalizer
from tokenizers.pre_tokenizers import BertPreTokenizer
from tokenizers.trainers import WordPieceTrainer

from data_utils.command_line import make_parent, positive
from data_utils.text.corpus import read_corpus
from data_utils.tokenizer import Vocabulary, bert_normalizer, read_vocabulary
from data_utils.tokenizer_files import (
    CONTINUATION,
    LONGEST_WORD,
    SETTINGS_NAME,
    SPECIAL_TOKENS,
    UNKNOWN,
    USUAL_RULES,
    VOCABULARY_NAME,
    TokenizerRules,
)
from utilities.commands import make_parser, run_main
from utilities.errors import UserError
from utilities.files import write_atomically

DEFAULT_SIZE = 30522
MAX_SIZE = 10**7
MIN_FREQUENCY = 2  # of a pair of pieces that is merged
SAMPLE_MEGABYTES = 300
MIN_ALPHABET = 1000
MISSING_IDEOGRAPHS = 1e-4  # share of the text's characters
CHUNK_BYTES = 1 << 20
# What may be a word of more letters than WordPiece reads: no blank, no punctuation of ASCII, and no ideograph, each of
# which is a word of its own.
LONG_WORD = re.compile(rf"[^\s!-/:-@\[-`{{-~\u3400-\u9fff\uf900-\ufaff]{{{LONGEST_WORD + 1},}}")


def _lines(files: Iterable[Path], limit: int) -> Iterator[str]:
    """Yield all lines, or those of evenly chosen megabytes if there are more than ``limit`` bytes in all files."""
    sizes = [(path, path.stat().st_size) for path in files]
    total = sum(size for _, size in sizes)
    period = CHUNK_BYTES * max(1, -(-total // max(limit, 1)))  # one chunk of each period is used
    begin = 0  # offset of the file in the concatenation of all files
    for path, size in sizes:
        with open(path, "rb") as stream:
            for chunk in range(begin // period * period, begin + size, period):
                yield from _lines_between(stream, chunk - begin, chunk + CHUNK_BYTES - begin)
        begin += size


def _lines_between(stream: BinaryIO, start: int, end: int) -> Iterator[str]:
    position = max(start - 1, 0)
    stream.seek(position)
    if start > 0:
        position += len(stream.readline())  # the rest of a line that began earlier
    while position < end and (line := stream.readline()):
        position += len(line)
        if line.strip():
            try:
                yield line.decode()
            except UnicodeDecodeError as error:
                raise UserError(f"{stream.name}: not UTF-8 ({error.reason}); convert the file") from error


def _without_long_words(normalizer: BertNormalizer, line: str) -> str:
    """Return a line without words that are too long for WordPiece, which would be [UNK] and take long to train on."""
    if not LONG_WORD.search(line):
        return line
    words = BertPreTokenizer().pre_tokenize_str(normalizer.normalize_str(line))
    return " ".join(word for word, _ in words if len(word) <= LONGEST_WORD)


def _alphabet(tokenizer: Tokenizer, lines: Iterable[str], size: int) -> list[str]:
    """Return the characters of a vocabulary of ``size`` pieces, as pieces that begin or continue a word, sorted."""
    words: Counter[str] = Counter()
    for line in lines:
        words.update(line.split())  # normalizing each distinct word once is a hundred times faster than each line
    characters: Counter[str] = Counter()
    continuing: set[str] = set()
    for word, count in words.items():
        for part, _ in tokenizer.pre_tokenizer.pre_tokenize_str(tokenizer.normalizer.normalize_str(word)):
            continuing.update(part[1:])
            for character in part:
                characters[character] += count
    ranked = sorted(characters, key=lambda character: (-characters[character], character))
    limit, remaining = max(MIN_ALPHABET, size // 5), size - len(SPECIAL_TOKENS)
    kept = []
    for character in ranked[:limit]:
        remaining -= 2 if character in continuing else 1
        if remaining < 0:
            break
        kept.append(character)
    # A rare character of other scripts costs a few words, but ideographs are words of their own in BERT: each missing
    # one is [UNK].
    ideographs = [c for c in ranked[limit:] if tokenizer.normalizer.normalize_str(c) == f" {c} "]
    missing = sum(characters[c] for c in ideographs)
    for character in ideographs[: max(0, remaining - size // 5)]:
        if characters[character] == 1 or missing <= MISSING_IDEOGRAPHS * characters.total():
            break
        kept.append(character)
        missing -= characters[character]
    return sorted(kept) + [CONTINUATION + character for character in sorted(continuing.intersection(kept))]


def check_size(size: int) -> None:
    if size < len(SPECIAL_TOKENS) + 100:
        raise UserError(f"--vocab-size {size}: too small; an alphabet alone takes more than 100 pieces")
    if size > MAX_SIZE:
        raise UserError(f"--vocab-size {size}: too large, at most {MAX_SIZE:,}")


def train_vocabulary(
    files: Iterable[Path],
    output: Path,
    size: int = DEFAULT_SIZE,
    lower_case: bool = True,
    keep_accents: bool = False,
) -> Vocabulary:
    """Train a WordPiece vocabulary on sentence files and write it; the same files give the same bytes.

    If accents are kept, a ``tokenizer_config.json`` beside it says so. If a small corpus gives fewer than ``size``
    pieces, unused entries fill it up.
    """
    check_size(size)
    rules = TokenizerRules(strip_accents=False) if keep_accents else USUAL_RULES
    _check_neighbours(output, rules, lower_case)
    files, limit = list(files), SAMPLE_MEGABYTES * 10**6
    tokenizer = Tokenizer(WordPiece(unk_token=UNKNOWN))
    normalizer = tokenizer.normalizer = bert_normalizer(lower_case, rules)
    tokenizer.pre_tokenizer = BertPreTokenizer()

    def trainable() -> Iterator[str]:
        return (_without_long_words(normalizer, line) for line in _lines(files, limit))

    # The trainer numbers the alphabet in the order of a hash table, which differs from run to run, and breaks ties by
    # number. An alphabet given as "special" tokens has fixed numbers; `limit_alphabet=0` keeps the trainer from adding
    # to it.
    alphabet = _alphabet(tokenizer, trainable(), size)
    if not alphabet:
        raise UserError("the corpus is empty: no word, so no vocabulary")
    trainer = WordPieceTrainer(
        vocab_size=size,
        min_frequency=MIN_FREQUENCY,
        limit_alphabet=0,
        special_tokens=[*SPECIAL_TOKENS, *alphabet],
        continuing_subword_prefix=CONTINUATION,
        show_progress=False,
    )
    tokenizer.train_from_iterator(trainable(), trainer)
    by_id = sorted(tokenizer.get_vocab(), key=tokenizer.get_vocab().__getitem__)
    pieces = by_id + [f"[unused{number}]" for number in range(size - len(by_id))]
    content = "".join(piece + "\n" for piece in pieces).encode()
    for name, data in Vocabulary(pieces, output, content, lower_case, rules).files(lower_case).items():
        write_atomically(output if name == VOCABULARY_NAME else output.with_name(name), data)
    return read_vocabulary(output)


def _check_neighbours(output: Path, rules: TokenizerRules, lower_case: bool) -> None:
    settings = output.with_name(SETTINGS_NAME)
    if rules != USUAL_RULES and output.name != VOCABULARY_NAME:
        raise UserError(
            f"--keep-accents: {settings} will say so, which is read for a {VOCABULARY_NAME} only; name the file"
            f" {output.with_name(VOCABULARY_NAME)}"
        )
    own = Vocabulary([], output, b"", lower_case, rules).files(lower_case).get(SETTINGS_NAME)
    if output.name == VOCABULARY_NAME and settings.exists() and settings.read_bytes() != own:
        raise UserError(f"{settings}: belongs to another vocabulary; name a file in another folder")


def add_vocabulary_options(parser: argparse.ArgumentParser) -> None:
    parser.add_argument(
        "--vocab-size", type=positive, default=DEFAULT_SIZE, metavar="N", help="pieces to train (default %(default)s)"
    )
    add_case_option(parser)


def add_case_option(parser: argparse.ArgumentParser) -> None:
    parser.add_argument("--cased", action="store_true", help="keep capitals and accents (BERT cased)")
    parser.add_argument("--keep-accents", action="store_true", help="keep accents, but no capitals")


def check_case(options: argparse.Namespace) -> None:
    """Refuse options of ``add_case_option`` that exclude each other."""
    if options.cased and options.keep_accents:
        raise UserError("--keep-accents: text with capitals (--cased) keeps its accents anyway; leave one of them out")


def _run(options: argparse.Namespace) -> None:
    check_case(options)
    files = read_corpus(options.sentences).files
    make_parent(options.output, files)
    vocabulary = train_vocabulary(files, options.output, options.vocab_size, not options.cased, options.keep_accents)
    print(f"{options.output}: {len(vocabulary.pieces):,} pieces")


def main(arguments: list[str] | None = None) -> int:
    parser = make_parser("data_utils.text.vocabulary", "Trains a WordPiece vocabulary on sentence files.")
    parser.add_argument("--sentences", type=Path, required=True, metavar="DIR", help="output of the sentences step")
    parser.add_argument("--output", type=Path, required=True, metavar="FILE", help="vocab.txt to write")
    add_vocabulary_options(parser)
    return run_main(parser, _run, arguments)


if __name__ == "__main__":
    sys.exit(main())
