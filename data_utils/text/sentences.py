"""Step ``sentences``: any input as plain text, one sentence a line, a blank line after each document.

Each work unit of the input becomes a file, ``sentences_000.txt``, ``sentences_001.txt``, …; besides there are the Punkt
parameters where they were trained here, ``set_aside.jsonl`` where articles could not be used, and last ``corpus.json``
with counts: where it is, the folder is complete. A killed run goes on where it stopped.
"""

from __future__ import annotations

import argparse
import functools
import json
import sys
from collections.abc import Iterator
from pathlib import Path
from typing import Any, NamedTuple

from data_utils.parallel import Pool
from data_utils.records.writer import write_atomically
from data_utils.text.command_line import Progress, make_parser, positive, run_main
from data_utils.text.extract import DEFAULT_MIN_CHARACTERS, add_extract_options, clean_documents, no_prose
from data_utils.text.ledger import Ledger, forget
from data_utils.text.recipe import Standing, identity_of, is_recipe_of, refuse, standing, write_recipe
from data_utils.text.running import Done, on_every_machine, pool_of, run_units
from data_utils.text.segmentation import Splitter, load_splitter, save_parameters, train, trained_model_exists
from data_utils.text.set_aside import DEFAULT_LIMIT, FILE_NAME, SetAside, SetAsides, reason_of
from data_utils.text.sources import Loaded, Source, source_of
from data_utils.text.units import Unit
from utilities.errors import UserError

CORPUS_NAME = "corpus.json"
PUNKT_NAME = "punkt.json"
FILES = "sentences_*.txt"
DEFAULT_TRAINING_MEGABYTES = 4
RUN_BY_WORKERS = (__name__, "data_utils.text.passes")  # here, and in the step behind this one


class Corpus(NamedTuple):
    """A folder of sentence files.

    Attributes:
        files: in order.
        documents, sentences, words: in all files together.
        set_aside: articles that could not be used.
        identity: what tells this corpus from others; for the recipe of what is made from it.
    """

    files: list[Path]
    documents: int
    sentences: int
    words: int
    set_aside: int
    identity: Any


class TextSettings(NamedTuple):
    """How sentences are made from prose.

    Attributes:
        language: of NLTK's trained Punkt model, where that is installed.
        min_characters: documents with less prose are left out.
        training_megabytes: how much text Punkt is trained on where no trained model is installed.
    """

    language: str = "english"
    min_characters: int = DEFAULT_MIN_CHARACTERS
    training_megabytes: int = DEFAULT_TRAINING_MEGABYTES


class _Task(NamedTuple):
    """What a worker must know."""

    source: Source
    model: str
    min_characters: int
    ledger: Ledger


def _split_unit(task: _Task, unit: Unit | Loaded) -> Done:
    splitter = load_splitter(task.model)
    lines: list[str] = []
    documents, bad = 0, []
    for cleaned in clean_documents(task.source, unit, task.min_characters):
        sentences = cleaned if isinstance(cleaned, SetAside) else _sentences(splitter, *cleaned)
        if isinstance(sentences, SetAside):
            bad.append(sentences)
        elif sentences:
            lines += sentences
            lines.append("")
            documents += 1
    text = "".join(line + "\n" for line in lines)
    names = [f"sentences_{unit.number:03d}.txt"] if text else []
    for name in names:
        write_atomically(task.ledger.files / name, text.encode())
    facts = {
        "files": names,
        "documents": documents,
        "sentences": len(lines) - documents,
        "words": len(text.split()),
        "set_aside": bad,
    }
    return Done(unit.number, unit.size, task.ledger.finish(unit.number, names, facts))


def _sentences(splitter: Splitter, title: str, paragraphs: list[str]) -> list[str] | SetAside:
    try:
        return [sentence for paragraph in paragraphs for sentence in splitter.split(paragraph)]
    except Exception as error:  # no article may end the run, whatever is wrong with it
        return SetAside(title, f"cannot be split into sentences: {reason_of(error)}")


def choose_model(source: Source, folder: Path, settings: TextSettings) -> str:
    """The Punkt model to split with: NLTK's trained one if installed, else one trained on the input's head.

    Returns:
        What ``load_splitter`` takes.
    """
    if trained_model_exists(settings.language):
        return settings.language
    path = folder / PUNKT_NAME
    if not path.exists():
        limit = settings.training_megabytes * 10**6
        with Progress(limit, "train Punkt") as progress:
            save_parameters(train(_sample(source, limit, progress)), path)
    return str(path)


def _sample(source: Source, limit: int, progress: Progress) -> Iterator[str]:
    """Prose of the first documents, up to ``limit`` characters."""
    taken = 0
    for unit in source.units():
        for cleaned in clean_documents(source, unit, 1):
            if isinstance(cleaned, SetAside):
                continue
            text = "\n".join(cleaned.paragraphs)[: limit - taken]
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
    max_bad_articles: int = DEFAULT_LIMIT,
    overwrite: bool = False,
) -> Corpus:
    """Writes the sentences of a source into a folder; what is there already of the same source is not done again.

    Args:
        source: what to read.
        folder: made if absent.
        settings: how.
        pool: where; the output does not depend on it. None: in this process.
        max_bad_articles: more that cannot be used end the run.
        overwrite: whether a corpus of other input or settings in the folder may be replaced.

    Raises:
        UserError: the input is broken or holds no prose, or the folder is taken.
    """
    model = settings.language if trained_model_exists(settings.language) else "trained on the input"
    recipe = {"input": source.identity(), "text": {**settings._asdict(), "punkt": model}}
    found = standing(folder, recipe, CORPUS_NAME, FILES)
    if found is Standing.COMPLETE:
        print(f"sentences: {folder} is complete already", file=sys.stderr)
        return read_corpus(folder)
    if found is Standing.OTHER and not overwrite:
        raise refuse(folder, recipe, "a corpus")
    folder.mkdir(parents=True, exist_ok=True)
    if not is_recipe_of(folder, recipe):
        for stale in [folder / CORPUS_NAME, folder / PUNKT_NAME, folder / FILE_NAME, *folder.glob(FILES)]:
            stale.unlink(missing_ok=True)
        forget(folder)
        write_recipe(folder, recipe)
    return _write(source, folder, settings, pool or Pool(), max_bad_articles, recipe)


def _write(
    source: Source,
    folder: Path,
    settings: TextSettings,
    pool: Pool,
    max_bad_articles: int,
    recipe: dict[str, Any],
) -> Corpus:
    ledger = Ledger.begin(folder, "sentences", recipe)
    pool.begin(RUN_BY_WORKERS, source.total_bytes)
    model = choose_model(source, folder, settings)
    totals = {"documents": 0, "sentences": 0, "words": 0}
    files: dict[int, list[str]] = {}
    set_asides = SetAsides(max_bad_articles, folder)

    def on_done(unit: int, facts: dict[str, Any]) -> str:
        files[unit] = facts["files"]
        set_asides.add(unit, facts["set_aside"])
        for name in totals:
            totals[name] += facts[name]
        return f"{totals['documents']:,} articles, {totals['words']:,} words{set_asides.note()}"

    function = functools.partial(_split_unit, _Task(source.for_workers(), model, settings.min_characters, ledger))
    with Progress(source.total_bytes, "sentences") as progress:
        run_units(pool, ledger, function, source.units(), source.total_bytes, progress, on_done)
    set_asides.write()
    if not totals["documents"]:
        forget(folder)
        raise no_prose(set_asides)
    names = [name for unit in sorted(files) for name in files[unit]]
    summary = {"files": names, **totals, "set_aside": set_asides.count}
    write_atomically(folder / CORPUS_NAME, (json.dumps(summary, indent=2) + "\n").encode())
    forget(folder)
    return read_corpus(folder)


def read_corpus(folder: Path) -> Corpus:
    """A folder that ``write_sentences`` wrote; or sentence files of the user's own, which carry no counts.

    Raises:
        UserError: there is nothing in it.
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
    else:
        files = sorted(folder.glob("*.txt"))
    missing = [path for path in files if not path.is_file()]
    if missing or not files:
        what = f"{missing[0].name} is missing" if missing else "no .txt files"
        raise UserError(f"--sentences {folder}: {what}; make them with python -m data_utils.text.sentences")
    return Corpus(files, *counts, identity_of(files))


def add_sentence_options(parser: argparse.ArgumentParser) -> None:
    """Options of splitting."""
    parser.add_argument(
        "--language",
        default="english",
        help="of NLTK's trained Punkt model (punkt_tab), used where it is installed (default %(default)s)",
    )
    parser.add_argument(
        "--punkt-training-megabytes",
        type=positive,
        default=DEFAULT_TRAINING_MEGABYTES,
        metavar="N",
        help="text to train Punkt on where no trained model is installed (default %(default)s)",
    )


def text_settings_of(options: argparse.Namespace) -> TextSettings:
    """The settings that the options describe."""
    return TextSettings(options.language, options.min_characters, options.punkt_training_megabytes)


def describe_corpus(corpus: Corpus, folder: Path) -> str:
    """A line for the end of a run."""
    bad = f", {corpus.set_aside:,} articles set aside ({folder / FILE_NAME})" if corpus.set_aside else ""
    return f"{folder}: {corpus.documents:,} documents, {corpus.sentences:,} sentences, {corpus.words:,} words{bad}"


def _action(options: argparse.Namespace) -> None:
    source = source_of(on_every_machine(options))
    with pool_of(options, options.output, source.files) as pool:
        corpus = write_sentences(
            source,
            options.output,
            text_settings_of(options),
            pool,
            options.max_bad_articles,
            options.overwrite,
        )
    print(describe_corpus(corpus, options.output))


def main(arguments: list[str] | None = None) -> int:
    """Command line of the step."""
    parser = make_parser("data_utils.text.sentences", "One sentence a line, a blank line after each document.")
    add_extract_options(parser)
    add_sentence_options(parser)
    parser.add_argument("--output", type=Path, required=True, metavar="DIR", help="folder for the sentence files")
    parser.add_argument("--overwrite", action="store_true", help="replace a corpus of other input or settings")
    return run_main(parser, _action, arguments)


if __name__ == "__main__":
    sys.exit(main())
