# PYTHON_ARGCOMPLETE_OK
"""Step ``sentences``: writes any input as plain text, with one sentence per line and a blank line after each document.

Each shard of the input becomes a file, ``sentences_000.txt``, ``sentences_001.txt``, …. The folder also has the
Punkt parameters if they were trained here, ``set_aside.jsonl`` if documents were rejected, and, written last,
``corpus.json`` with counts; a folder with that file is complete. A killed run can be resumed.
"""

from __future__ import annotations

import argparse
import functools
import json
import sys
from collections import Counter
from collections.abc import Iterator
from pathlib import Path
from typing import Any

from tqdm import tqdm

from data_utils.command_line import fraction, natural
from data_utils.recipe import Products, clear_work, prepare_folder
from data_utils.shards import ALONE, Shard, Step, Workers, run_shards
from data_utils.text.corpus import CORPUS_NAME, REJECTED_NAME, Corpus, read_corpus
from data_utils.text.readers import Document, RejectedDocument
from data_utils.text.sentence_splitter import Splitter, has_trained_model, load_splitter, save_parameters, train
from data_utils.text.sources import (
    DEFAULT_MIN_CHARACTERS,
    Source,
    add_source_options,
    share_of,
    source_from_options,
    standard_input_copied,
)
from data_utils.workers import add_worker_options, with_absolute_paths, workers_from_options
from utilities.commands import make_parser, run_main
from utilities.errors import UserError
from utilities.files import write_atomically
from utilities.progress import progress_bar

PUNKT_NAME = "punkt.json"
SENTENCES = Products(CORPUS_NAME, "sentences_*.txt", (PUNKT_NAME, REJECTED_NAME))
COUNTS = ("documents", "sentences", "words")
TRAINING_MEGABYTES = 4  # of text to train Punkt on, if no trained model is installed
DEFAULT_MAX_REJECTED = 1_000
DEFAULT_LANGUAGE = "english"
# The options of this step besides those of the input, with their defaults.
SENTENCE_OPTIONS = {
    "documents_share": 1.0,
    "min_characters": DEFAULT_MIN_CHARACTERS,
    "max_bad_articles": DEFAULT_MAX_REJECTED,
    "language": DEFAULT_LANGUAGE,
}
MAX_REASON_CHARACTERS = 300


def paragraphs(document: Document) -> list[str]:
    return [line for line in map(str.strip, document.text.splitlines()) if line]


def is_too_short(document: Document, min_characters: int) -> bool:
    """Return whether a document is left out, because its paragraphs have fewer characters, or none."""
    return sum(map(len, paragraphs(document))) < max(min_characters, 1)


def _make_sentences(step: Step, model: str, min_characters: int, shard: Shard) -> tuple[list[str], dict[str, Any]]:
    """Write the sentences of a shard's documents, unless it has none."""
    splitter = load_splitter(model)
    lines: list[str] = []
    rejected: list[RejectedDocument] = []
    documents = short = 0
    for document in shard.content:
        sentences = document if isinstance(document, RejectedDocument) else _split(splitter, document, min_characters)
        if isinstance(sentences, RejectedDocument):
            rejected.append(sentences)
        elif sentences:
            lines += [*sentences, ""]
            documents += 1
        else:
            short += 1
    text = "".join(line + "\n" for line in lines)
    names = [f"sentences_{shard.number:03d}.txt"] if text else []
    for name in names:
        write_atomically(step.folder / name, text)
    counts = {"documents": documents, "sentences": len(lines) - documents, "words": len(text.split())}
    return names, {"files": names, "rejected": rejected, "short": short, **counts}


def _split(splitter: Splitter, document: Document, min_characters: int) -> list[str] | RejectedDocument:
    """Return a document's sentences; none if it is too short."""
    if is_too_short(document, min_characters):
        return []
    try:
        return [sentence for paragraph in paragraphs(document) for sentence in splitter.split(paragraph)]
    except Exception as error:  # no bad document may end the run
        reason = f"{type(error).__name__}: {' '.join(str(error).split()) or 'no message'}"[:MAX_REASON_CHARACTERS]
        return RejectedDocument(document.title, f"cannot be split into sentences: {reason}")


def _choose_model(source: Source, folder: Path, language: str) -> str:
    """Return the model for ``load_splitter``: NLTK's trained one, or one trained on the beginning of the input."""
    if has_trained_model(language):
        return language
    path = folder / PUNKT_NAME
    if not path.exists():
        limit = TRAINING_MEGABYTES * 10**6
        with progress_bar(limit, "train Punkt") as progress:
            save_parameters(train(_sample(source, limit, progress)), path)
    return str(path)


def _sample(source: Source, limit: int, progress: tqdm) -> Iterator[str]:
    """Yield the text of the first documents, up to ``limit`` characters."""
    taken = 0
    for document in source.documents():
        text = "" if isinstance(document, RejectedDocument) else "\n".join(paragraphs(document))[: limit - taken]
        if text:
            yield text
            taken += len(text)
            progress.update(len(text))
        if taken >= limit:
            return


def write_sentences(
    source: Source,
    folder: Path,
    language: str = DEFAULT_LANGUAGE,  # of NLTK's trained Punkt model, if that is installed
    min_characters: int = DEFAULT_MIN_CHARACTERS,  # of a document that is kept
    workers: Workers = ALONE,
    max_bad_articles: int = DEFAULT_MAX_REJECTED,
    overwrite: bool = False,
) -> Corpus:
    """Write the sentences of a source into a folder; shards that an earlier run made are skipped.

    More than ``max_bad_articles`` rejected documents end the run; the output does not depend on the workers.
    """
    model = language if has_trained_model(language) else "trained on the input"
    text = {"language": language, "min_characters": min_characters, "training_megabytes": TRAINING_MEGABYTES}
    recipe = {"input": source.identity(), "text": {**text, "punkt": model}}
    if prepare_folder(folder, recipe, overwrite, SENTENCES, keep_complete=True):
        print(f"sentences: {folder} is complete already", file=sys.stderr)
        return read_corpus(folder)
    step = Step(folder, "sentences")
    make = functools.partial(_make_sentences, step, _choose_model(source, folder, language), min_characters)
    made: dict[int, dict[str, Any]] = {}
    counts: Counter[str] = Counter()
    with progress_bar(source.total_bytes, "sentences") as progress:
        for number, result in run_shards(workers, step, make, source.shards(), progress):
            made[number] = result
            counts.update(
                {name: result[name] for name in COUNTS}, rejected=len(result["rejected"]), short=result["short"]
            )
            bad = f", {counts['rejected']:,} rejected" if counts["rejected"] else ""
            note = f"{counts['documents']:,} documents, {counts['words']:,} words{bad}"
            progress.set_postfix_str(note, refresh=False)
            if counts["rejected"] > max_bad_articles:
                break
    rejected = [RejectedDocument(*document) for number in sorted(made) for document in made[number]["rejected"]]
    if rejected:
        lines = [json.dumps(document._asdict(), ensure_ascii=False) + "\n" for document in rejected]
        write_atomically(folder / REJECTED_NAME, "".join(lines))
    if len(rejected) > max_bad_articles:
        raise UserError(
            f"{len(rejected):,} documents cannot be used, more than --max-bad-articles {max_bad_articles} allows; the"
            f" first: {_described(rejected[0])}; all of them: {folder / REJECTED_NAME}"
        )
    if not counts["documents"]:
        clear_work(folder)
        problem = "the input contains no prose: no document is long enough (see --min-characters)"
        if rejected:
            problem += f", and {len(rejected):,} could not be used, the first: {_described(rejected[0])}"
        raise UserError(problem)
    if counts["short"]:
        few = f"documents of fewer than {max(min_characters, 1)} characters are left out (--min-characters)"
        print(f"sentences: {counts['short']:,} {few}", file=sys.stderr)
    files = [name for number in sorted(made) for name in made[number]["files"]]
    summary = {"files": files, **{name: counts[name] for name in COUNTS}}
    write_atomically(folder / CORPUS_NAME, json.dumps({**summary, "set_aside": len(rejected)}, indent=2) + "\n")
    clear_work(folder)
    return read_corpus(folder)


def sentences_from_options(options: argparse.Namespace, source: Source, folder: Path, workers: Workers) -> Corpus:
    """Write the sentences of a source as the options of ``add_sentence_options`` say."""
    text = options.language, options.min_characters
    return write_sentences(source, folder, *text, workers, options.max_bad_articles, options.overwrite)


def _described(document: RejectedDocument) -> str:
    return f"{document.title!r}: {document.reason}" if document.title else document.reason


def add_sentence_options(parser: argparse.ArgumentParser, sentences_too: bool = False) -> None:
    """Add the options of reading and splitting; ``sentences_too`` also accepts this step's output as input."""
    add_source_options(parser, sentences_too)
    parser.add_argument(
        "--documents-share", type=fraction, metavar="X",
        help="read only this share of the documents, evenly spread over the input (default: all)",
    )  # fmt: skip
    parser.add_argument(
        "--max-bad-articles", type=natural, metavar="N",
        help="documents that cannot be used are listed in set_aside.jsonl; more than N end the run"
        " (default %(default)s)",
    )  # fmt: skip
    add_worker_options(parser)
    parser.add_argument(
        "--language",
        help="language of NLTK's trained Punkt model (punkt_tab), used if it is installed (default %(default)s)",
    )
    parser.set_defaults(**SENTENCE_OPTIONS)


def _run(options: argparse.Namespace) -> None:
    with_absolute_paths(options)
    with standard_input_copied(options, options.output):
        source = share_of(source_from_options(options, options.output), options.documents_share)
        with workers_from_options(options) as workers:
            corpus = sentences_from_options(options, source, options.output, workers)
    bad = f", {corpus.rejected:,} documents rejected ({options.output / REJECTED_NAME})" if corpus.rejected else ""
    print(
        f"{options.output}: {corpus.documents:,} documents, {corpus.sentences:,} sentences, {corpus.words:,} words{bad}"
    )


def main(arguments: list[str] | None = None) -> int:
    parser = make_parser("data_utils.text.sentences", "Writes one sentence per line, a blank line after documents.")
    add_sentence_options(parser)
    parser.add_argument("--output", type=Path, required=True, metavar="DIR", help="folder for the sentence files")
    parser.add_argument("--overwrite", action="store_true", help="replace a corpus of other input or settings")
    return run_main(parser, _run, arguments)


if __name__ == "__main__":
    sys.exit(main())
