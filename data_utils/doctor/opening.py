"""What is to be examined: files, manifest, vocabulary and the form of the records."""

from __future__ import annotations

import itertools
from collections import Counter
from pathlib import Path
from typing import Any, NamedTuple

from data_utils.doctor.checks import Form, form_of
from data_utils.doctor.examination import Special
from data_utils.doctor.frames import FileNote, boundaries_of, read_frames
from data_utils.packing.decoding import ExampleError
from data_utils.records.features import PACKS_FORMAT
from data_utils.records.files import files_of_folder
from data_utils.records.manifest import Manifest, load_manifest
from data_utils.tokenizer import VOCABULARY_NAME, Vocabulary, read_vocabulary
from utilities.errors import UserError

FILES_TRIED, RECORDS_TRIED = 16, 20  # looked at for the form that records have


class DataSet(NamedTuple):
    """A data set to be examined.

    Attributes:
        folder: of the record files.
        files: in order.
        manifest: None where there is none that can be read.
        vocabulary: None where there is none.
        form: of the records.
        special: ids.
        corpus: sentence files that it was made from, where they lie beside it.
        notes: what is wrong with the folder already.
    """

    folder: Path
    files: list[Path]
    manifest: Manifest | None
    vocabulary: Vocabulary | None
    form: Form
    special: Special
    corpus: list[Path]
    notes: list[FileNote]

    @property
    def settings(self) -> dict[str, Any]:
        """How it was made, as the manifest says."""
        return dict(self.manifest.settings) if self.manifest is not None else {}


def open_dataset(folder: Path, vocabulary_file: Path | None, corpus: Path | None) -> DataSet:
    """Looks at a folder without reading its records through.

    Args:
        folder: with ``*.tfrecord`` files.
        vocabulary_file: None for the one in the folder, if any.
        corpus: folder of sentence files; None for ``corpus`` in the folder, if any.

    Raises:
        UserError: no record files, or none of pre-training records.
    """
    files = files_of_folder(folder)
    manifest, notes = _manifest(folder)
    vocabulary = _vocabulary(folder, vocabulary_file, manifest, notes)
    form = _form(files, manifest)
    size = len(vocabulary.pieces) if vocabulary else None
    if size is None and manifest is not None:
        size = manifest.settings.get("vocab_size")
    special = Special()
    if vocabulary is not None:
        special = Special(vocabulary.id_of("[MASK]"), vocabulary.id_of("[UNK]"))
        form = form._replace(cls_id=vocabulary.id_of("[CLS]"), sep_id=vocabulary.id_of("[SEP]"))
    lines = sorted((corpus or folder / "corpus").glob("*.txt"))
    if corpus is not None and not lines:
        raise UserError(f"--sentences {corpus}: no .txt files")
    return DataSet(folder, files, manifest, vocabulary, form._replace(vocabulary_size=size), special, lines, notes)


def _manifest(folder: Path) -> tuple[Manifest | None, list[FileNote]]:
    try:
        manifest = load_manifest(folder)
    except UserError as error:
        return None, [FileNote(str(error), is_wrong=True)]
    notes = [] if manifest else [FileNote("has no manifest.json: counts and checksums are not known", is_wrong=False)]
    return manifest, notes


def _vocabulary(
    folder: Path, given: Path | None, manifest: Manifest | None, notes: list[FileNote]
) -> Vocabulary | None:
    path = given or folder / VOCABULARY_NAME
    if given is None and not path.exists():
        notes.append(
            FileNote(f"has no {VOCABULARY_NAME}: ids and masks are not checked; name one with --vocab-file", False)
        )
        return None
    try:
        vocabulary = read_vocabulary(path)
    except UserError as error:
        if given is not None:
            raise
        notes.append(FileNote(str(error), is_wrong=True))
        return None
    expected = manifest.vocabulary.get("sha256") if manifest is not None else None
    if expected is not None and expected != vocabulary.sha256:
        notes.append(FileNote(f"{path.name} is not the vocabulary that the records were made with (SHA-256)", True))
    return vocabulary


def _form(files: list[Path], manifest: Manifest | None) -> Form:
    """The form that the manifest gives, or that most of the first records have."""
    settings = manifest.settings if manifest is not None else {}
    is_packed = manifest is not None and manifest.format == PACKS_FORMAT
    names = ["max_seq_length", "max_predictions_per_pack" if is_packed else "max_predictions_per_seq"]
    names += ["max_sequences_per_pack"] if is_packed else []
    sizes = [settings.get(name) for name in names]
    if manifest is not None and all(isinstance(size, int) and size > 0 for size in sizes):
        return Form(*sizes)
    found: Counter[Form] = Counter()
    reason = "all files are empty"
    for path in files[:FILES_TRIED]:
        for frame in itertools.islice(read_frames(path, boundaries_of(path)[0]), RECORDS_TRIED):
            if frame.payload is None:
                reason = frame.problem
                continue
            try:
                found[form_of(frame.payload)] += 1
            except ExampleError as error:
                reason = error.reason
    if not found:
        raise UserError(f"{files[0].parent}: holds no pre-training record that can be read (the first {reason})")
    return found.most_common(1)[0][0]
