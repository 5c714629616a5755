"""Step ``sentences``: writes any input as plain text, with one sentence per line and a blank line after each document.

Each work unit of the input becomes a file, ``sentences_000.txt``, ``sentences_001.txt``, …. The folder also has the
Punkt parameters if they were trained here, ``set_aside.jsonl`` if articles could not be used, and, written last,
``corpus.json`` with counts; a folder with that file is complete. A killed run can be resumed.
"""

from __future__ import annotations

import argparse
import functools
import json
import sys
from collections.abc import Iterator
from pathlib import Path
from typing import Any, NamedTuple

from data_utils.command_line import Progress, positive
from data_utils.completion_log import (
    RECIPE_NAME,
    CompletionLog,
    Status,
    begin_recipe,
    clear_work,
    folder_status,
    has_recipe,
    identify_files,
    mismatch_error,
)
from data_utils.parallel import Pool, make_pool, with_absolute_paths
from data_utils.text.documents import (
    DEFAULT_MAX_REJECTED,
    REJECTED_NAME,
    RejectedDocument,
    RejectedDocuments,
    describe_error,
)
from data_utils.text.extract import (
    DEFAULT_MIN_CHARACTERS,
    Prose,
    UnitText,
    add_extract_options,
    clean_documents,
    convert_source,
    no_prose,
)
from data_utils.text.sentence_splitter import Splitter, has_trained_model, load_splitter, save_parameters, train
from data_utils.text.sources import Source, source_from_options, standard_input_copied
from data_utils.text.units import StreamedUnit, Unit
from utilities.commands import make_parser, run_main
from utilities.errors import UserError
from utilities.files import write_atomically

CORPUS_NAME = "corpus.json"
PUNKT_NAME = "punkt.json"
SENTENCE_FILES = "sentences_*.txt"
DEFAULT_TRAINING_MEGABYTES = 4
WORKER_MODULES = (__name__, "data_utils.text.examples")  # imported by workers: this step and the next one


class Corpus(NamedTuple):
    """A folder of sentence files, in order, with their counts."""

    files: list[Path]
    documents: int
    sentences: int
    words: int
    rejected: int  # articles that could not be used
    identity: Any  # identifies this corpus in the recipe of a data set that is made from it


class TextSettings(NamedTuple):
    """The settings for making sentences from prose."""

    language: str = "english"  # language of NLTK's trained Punkt model, if that is installed
    min_characters: int = DEFAULT_MIN_CHARACTERS  # minimum length of a document that is kept
    training_megabytes: int = DEFAULT_TRAINING_MEGABYTES  # of text to train Punkt on, if no model is installed


def _to_sentences(model: str, min_characters: int, source: Source, unit: Unit | StreamedUnit) -> UnitText:
    splitter = load_splitter(model)
    lines: list[str] = []
    documents, rejected = 0, []
    for prose in clean_documents(source, unit, min_characters):
        sentences = prose if isinstance(prose, RejectedDocument) else _split(splitter, prose)
        if isinstance(sentences, RejectedDocument):
            rejected.append(sentences)
        elif sentences:
            lines += [*sentences, ""]
            documents += 1
    text = "".join(line + "\n" for line in lines)
    counts = {"documents": documents, "sentences": len(lines) - documents, "words": len(text.split())}
    return UnitText(text, rejected, counts)


def _split(splitter: Splitter, prose: Prose) -> list[str] | RejectedDocument:
    try:
        return [sentence for paragraph in prose.paragraphs for sentence in splitter.split(paragraph)]
    except Exception as error:  # no bad article may end the run
        return RejectedDocument(prose.title, f"cannot be split into sentences: {describe_error(error)}")


def _choose_model(source: Source, folder: Path, settings: TextSettings) -> str:
    """Return the model for ``load_splitter``: NLTK's trained one, or one trained on the beginning of the input."""
    if has_trained_model(settings.language):
        return settings.language
    path = folder / PUNKT_NAME
    if not path.exists():
        limit = settings.training_megabytes * 10**6
        with Progress(limit, "train Punkt") as progress:
            save_parameters(train(_sample(source, limit, progress)), path)
    return str(path)


def _sample(source: Source, limit: int, progress: Progress) -> Iterator[str]:
    """Yield the prose of the first documents, up to ``limit`` characters."""
    taken = 0
    for unit in source.units():
        for prose in clean_documents(source, unit, 1):
            if isinstance(prose, RejectedDocument):
                continue
            text = "\n".join(prose.paragraphs)[: limit - taken]
            yield text
            taken += len(text)
            progress.advance(len(text))
            if taken >= limit:
                return


def write_sentences(
    source: Source,
    folder: Path,
    settings: TextSettings = TextSettings(),  # noqa: B008 (a constant)
    pool: Pool | None = None,
    max_bad_articles: int = DEFAULT_MAX_REJECTED,
    overwrite: bool = False,
) -> Corpus:
    """Write the sentences of a source into a folder; work units that an earlier run completed are skipped.

    Args:
        source: The input.
        folder: Output folder; created if absent.
        settings: The settings of the sentences.
        pool: Workers; None: this process. The output does not depend on them.
        max_bad_articles: Maximum number of articles that cannot be used; one more ends the run.
        overwrite: Whether a corpus of other input or settings in the folder may be replaced.

    Raises:
        UserError: The input is broken or contains no prose, or the folder contains something else.
    """
    model = settings.language if has_trained_model(settings.language) else "trained on the input"
    # What determines the output: a folder with the same recipe is resumed.
    recipe = {"input": source.identity(), "text": {**settings._asdict(), "punkt": model}}
    status = folder_status(folder, recipe, CORPUS_NAME, SENTENCE_FILES)
    if status is Status.COMPLETE:
        print(f"sentences: {folder} is complete already", file=sys.stderr)
        return read_corpus(folder)
    if status is Status.OTHER and not overwrite:
        raise mismatch_error(folder, recipe, "a corpus")
    folder.mkdir(parents=True, exist_ok=True)
    if not has_recipe(folder, recipe):
        for stale in [
            *(folder / name for name in (CORPUS_NAME, PUNKT_NAME, REJECTED_NAME)),
            *folder.glob(SENTENCE_FILES),
        ]:
            stale.unlink(missing_ok=True)
        begin_recipe(folder, recipe)
    pool = pool or Pool()
    pool.begin(WORKER_MODULES, source.total_bytes)
    completion_log = CompletionLog.begin(folder, "sentences", recipe)
    convert = functools.partial(_to_sentences, _choose_model(source, folder, settings), settings.min_characters)
    rejected = RejectedDocuments(max_bad_articles, folder)
    result = convert_source(source, convert, completion_log, "sentences_{:03d}.txt", "sentences", rejected, pool)
    if not result.files:
        clear_work(folder)
        raise no_prose(rejected)
    counts = {name: result.counts[name] for name in ("documents", "sentences", "words")}
    summary = {"files": result.files, **counts, "set_aside": result.rejected}
    write_atomically(folder / CORPUS_NAME, (json.dumps(summary, indent=2) + "\n").encode())
    clear_work(folder)
    return read_corpus(folder)


def read_corpus(folder: Path) -> Corpus:
    """Return a corpus that ``write_sentences`` wrote, or the user's own sentence files, which have no counts.

    Raises:
        UserError: There are no sentence files, or not all of them.
    """
    summary = folder / CORPUS_NAME
    counts = (0, 0, 0, 0)
    if summary.exists():
        try:
            data = json.loads(summary.read_text(encoding="utf-8"))
            files = [folder / name for name in data["files"]]
            counts = (data["documents"], data["sentences"], data["words"], data.get("set_aside", 0))
        except (ValueError, KeyError, TypeError) as error:
            raise UserError(f"{summary}: broken ({error}); run the sentences step again") from error
    elif folder.is_file():
        files = [folder]
    elif (folder / RECIPE_NAME).exists():  # its text files are a part of a corpus, or the vocabulary of a data set
        raise UserError(
            f"--sentences {folder}: has no {CORPUS_NAME}, so the sentences step did not end there; run it again, or"
            " name the folder corpus of a data set"
        )
    else:
        files = sorted(folder.glob("*.txt"))
    missing = [path for path in files if not path.is_file()]
    if missing or not files:
        what = f"{missing[0].name} is missing" if missing else "no .txt files"
        raise UserError(f"--sentences {folder}: {what}; make them with python -m data_utils.text.sentences")
    return Corpus(files, *counts, identify_files(files))


def add_sentence_options(parser: argparse.ArgumentParser) -> None:
    parser.add_argument(
        "--language",
        default="english",
        help="language of NLTK's trained Punkt model (punkt_tab), used if it is installed (default %(default)s)",
    )
    parser.add_argument(
        "--punkt-training-megabytes", type=positive, default=DEFAULT_TRAINING_MEGABYTES, metavar="N",
        help="text to train Punkt on if no trained model is installed (default %(default)s)",
    )  # fmt: skip


def text_settings_from_options(options: argparse.Namespace) -> TextSettings:
    return TextSettings(options.language, options.min_characters, options.punkt_training_megabytes)


def _run(options: argparse.Namespace) -> None:
    settings = text_settings_from_options(options)
    with standard_input_copied(options, options.output):
        source = source_from_options(with_absolute_paths(options))
        with make_pool(options, options.output, source.files) as pool:
            corpus = write_sentences(
                source, options.output, settings, pool, options.max_bad_articles, options.overwrite
            )
    bad = f", {corpus.rejected:,} articles rejected ({options.output / REJECTED_NAME})" if corpus.rejected else ""
    print(
        f"{options.output}: {corpus.documents:,} documents, {corpus.sentences:,} sentences, {corpus.words:,} words{bad}"
    )


def main(arguments: list[str] | None = None) -> int:
    """Run the step's command."""
    parser = make_parser("data_utils.text.sentences", "Writes one sentence per line, a blank line after documents.")
    add_extract_options(parser)
    add_sentence_options(parser)
    parser.add_argument("--output", type=Path, required=True, metavar="DIR", help="folder for the sentence files")
    parser.add_argument("--overwrite", action="store_true", help="replace a corpus of other input or settings")
    return run_main(parser, _run, arguments)


if __name__ == "__main__":
    sys.exit(main())
