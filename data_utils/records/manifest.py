"""The manifest of a data set: settings, counts, sizes and checksums, which make a scan of the data unnecessary."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any, Dict, Mapping, NamedTuple, Optional, Sequence, Tuple

from pydantic import AfterValidator, Field, ValidationError
from typing_extensions import Annotated, Literal

from data_utils.records.features import SEQUENCES_FORMAT, FeatureSpec
from data_utils.records.framing import file_size, renew_index, unreadable
from utilities.errors import UserError
from utilities.files import sha256, write_atomically
from utilities.tables import short
from utilities.validation import Strict, first_problem

MANIFEST_NAME = "manifest.json"
WORK_FOLDER = ".work"  # in the folder of a data set until that is complete
VALIDATION_FOLDER = "validation"  # in the folder of a data set: records of documents that are held out of it
MANIFEST_VERSION = 1
_MOST_NATS = 100  # of a vocabulary of e^100 pieces
_FIX = "delete it to read the data set without it, or make the data set again"


class ContextFree(NamedTuple):
    """The best masked-LM results of a model that sees only the piece at the masked position, not its context."""

    loss_nats: Annotated[float, Field(ge=0, lt=_MOST_NATS)]
    accuracy: Annotated[float, Field(ge=0, le=1)]


def write_manifest(
    folder: Path,
    settings: Mapping[str, Any],
    vocabulary: Mapping[str, Any],
    files: Sequence[Mapping[str, Any]],
    totals: Mapping[str, int],
    unigram_entropy_nats: Optional[float],
    manifest_format: str = SEQUENCES_FORMAT,
    context_free: Optional[ContextFree] = None,
) -> None:
    """Write ``manifest.json``, the last file of a data set; if it exists, the data set is complete."""
    manifest = {
        "format": manifest_format,
        "version": MANIFEST_VERSION,
        "settings": settings,
        "vocabulary": vocabulary,
        "files": files,
        "totals": totals,
        "unigram_entropy_nats": unigram_entropy_nats,
    }
    if context_free is not None:
        manifest["context_free"] = context_free._asdict()
    write_atomically(folder / MANIFEST_NAME, json.dumps(manifest, indent=2, ensure_ascii=False) + "\n")


_LARGEST_SIZE = 2**31 - 1  # of ids and positions, which are int32
RANDOM_NEXT = "random_next_sentences"  # in the totals: records whose second sentence does not follow the first
NEXT_SENTENCE = "next_sentence"  # setting: false if rows are single segments, without a next sentence

Count = Annotated[int, Field(ge=0, lt=2**63)]
Size = Annotated[int, Field(gt=0, le=_LARGEST_SIZE)]


def _is_file_name(name: str) -> bool:
    return Path(name).name == name and name not in ("", ".", "..") and name.isprintable() and len(name) < 256


def _record_file_name(name: str) -> str:
    if not _is_file_name(name) or not name.endswith(".tfrecord"):
        raise ValueError("not that of a *.tfrecord file next to it")
    return name


class ManifestFile(Strict):
    name: Annotated[str, AfterValidator(_record_file_name)]
    records: Count
    bytes: Count
    sha256: Optional[str] = None


class _Sizes(Strict):
    """Those settings that code computes with."""

    max_seq_length: Size = 1
    max_predictions_per_seq: Size = 1
    vocab_size: Size = 1
    max_sequences_per_pack: Size = 1
    max_predictions_per_pack: Size = 1


class _VocabularySize(Strict):
    size: Size = 1


class _Totals(Strict):
    records: Count = 0
    sequences: Count = 0
    random_next_sentences: Count = 0


class _Numbers(Strict):
    """The numbers within the sections of a manifest that are kept as they are."""

    settings: _Sizes
    vocabulary: _VocabularySize = _VocabularySize()
    totals: _Totals = _Totals()


class Manifest(Strict):
    """A data set as its maker described it.

    The ``unigram_entropy_nats``, if known, are the entropy of the distribution of the corpus' word pieces, which is the
    masked-LM loss of a unigram baseline.
    """

    version: Literal[1]  # MANIFEST_VERSION
    path: Path = Path()
    format: str  # the kind of records, such as ``bert-pretraining``
    settings: Dict[str, Any]  # how the records were made (``max_seq_length``, ``vocab_size``, …)
    vocabulary: Dict[str, Any] = Field(default_factory=dict)
    files: Tuple[ManifestFile, ...]
    totals: Dict[str, Any] = Field(default_factory=dict)
    unigram_entropy_nats: Optional[Annotated[float, Field(ge=0, lt=_MOST_NATS)]] = None
    context_free: Optional[ContextFree] = None  # what the frequencies of the pieces alone reach, if known

    @property
    def random_next_share(self) -> Optional[float]:
        """The share of random second sentences; None if it is not known."""
        random, sequences = self.totals.get(RANDOM_NEXT), self.totals.get("sequences", self.totals.get("records"))
        return random / sequences if isinstance(random, int) and sequences else None

    @property
    def records(self) -> int:
        return sum(file.records for file in self.files)

    @property
    def has_next_sentences(self) -> bool:
        """Whether the rows are pairs for next-sentence prediction."""
        return self.settings.get(NEXT_SENTENCE) is not False

    @property
    def vocabulary_path(self) -> Optional[Path]:
        """The vocabulary next to the records, if there is one."""
        name = self.vocabulary.get("file")
        path = self.path.with_name(name) if isinstance(name, str) and _is_file_name(name) else None
        return path if path is not None and path.is_file() else None


def load_manifest(folder: Path) -> Optional[Manifest]:
    """Return the manifest of a data set folder, or None if it has none; raise a ``UserError`` if it is invalid."""
    path = folder / MANIFEST_NAME
    if folder.is_file():
        raise UserError(f"{folder}: is a file; name the folder with the *.tfrecord files")
    if path.exists() and not path.is_file():
        raise UserError(f"{path}: is not a regular file; {_FIX}")
    try:
        text = path.read_bytes()
        manifest = Manifest.model_validate_json(text).model_copy(update={"path": path})
        _Numbers.model_validate_json(text)
    except FileNotFoundError:
        return None
    except OSError as error:
        raise unreadable(path, error) from error
    except ValidationError as error:
        is_other_version = error.errors()[0]["type"] == "literal_error"
        fix = f"known here is {MANIFEST_VERSION}: update this program" if is_other_version else _FIX
        raise UserError(f"{path}: {first_problem(error)}; {fix}") from error
    names = [file.name for file in manifest.files]
    if len(set(names)) < len(names):
        doubled = next(name for name in names if names.count(name) > 1)
        raise UserError(f"{path}: files names {doubled} twice; {_FIX}")
    records, sequences = (manifest.totals.get(name, manifest.records) for name in ("records", "sequences"))
    if records != manifest.records:
        raise UserError(f"{path}: totals.records is {records}, not the {manifest.records} of its files; {_FIX}")
    if sequences < records:
        raise UserError(f"{path}: totals.sequences is {sequences}, fewer than the {records} packs; {_FIX}")
    return manifest


def check_files(manifest: Manifest, folder: Path) -> None:
    """Compare names and sizes of a folder's files with its manifest."""
    for file in manifest.files:
        path = folder / file.name
        if not path.exists():
            raise UserError(f"{path}: is missing, {manifest.path.name} names it; copy the data set again")
        size = file_size(path)
        if size != file.bytes:
            fix = f"copy the file again, or delete {manifest.path.name} if the file was changed on purpose"
            raise UserError(f"{path}: has {size} bytes, {manifest.path.name} says {file.bytes}; {fix}")
    unknown = {path.name for path in folder.glob("*.tfrecord")} - {file.name for file in manifest.files}
    if unknown:
        fix = f"move it out of the folder, or delete {manifest.path.name} to use all files"
        raise UserError(f"{folder / min(unknown)}: is not in {manifest.path.name}; {fix}")


def check_vocabulary(manifest: Manifest) -> None:
    """Compare the vocabulary next to the records with the manifest; its ids are meaningless with any other one."""
    path, recorded = manifest.vocabulary_path, manifest.vocabulary.get("sha256")
    if path is not None and recorded is not None and file_sha256(path) != recorded:
        raise UserError(
            f"{path}: its SHA-256 is not the one in {manifest.path}, so it is not the vocabulary that the records were"
            " made with; copy it again from the original data set, or make the data set again"
        )


def check_counts(manifest: Manifest, counts: Mapping[str, int]) -> None:
    for file in manifest.files:
        if counts[file.name] != file.records:
            path = manifest.path.with_name(file.name)
            what = f"its index lists {counts[file.name]} records, {manifest.path.name} says {file.records}"
            raise UserError(f"{path}: {what}; {renew_index(path)}, or make the data set again")


def check_checksums(manifest: Manifest, folder: Path) -> None:
    """Read every record file that has a checksum in the manifest, and compare the checksums."""
    for file in manifest.files:
        path = folder / file.name
        if file.sha256 is not None and file_sha256(path) != file.sha256:
            raise UserError(f"{path}: its SHA-256 is not that of {manifest.path.name}; copy the file again")


def check_settings(manifest: Manifest, spec: FeatureSpec) -> None:
    """Compare a data set's settings, if the manifest has them, with those that the model expects; the data set's
    vocabulary may be smaller than the model's.
    """
    if manifest.format != spec.manifest_format:
        fix = spec.other_formats.get(manifest.format, "set dataset_dir to a data set made for it")
        what = f"format is {short(manifest.format)}, this task reads {spec.manifest_format!r}"
        raise UserError(f"{manifest.path}: {what}; {fix}")
    for name, value in spec.manifest_settings.items():
        given = manifest.settings.get(name.rsplit(".", 1)[-1], value)
        if given != value:
            fix = f"set {name} to {short(given)}, or dataset_dir to a data set made with {value}"
            raise UserError(f"{manifest.path}: made with {name} {short(given)}, the config says {value}; {fix}")
    for section, key in (("settings", "vocab_size"), ("vocabulary", "size")):
        given = getattr(manifest, section).get(key)
        if given is not None and given > spec.vocab_size:
            raise UserError(
                f"{manifest.path}: {section}.{key} is {short(given)}, the model has {spec.vocab_size} entries; "
                f"set bert_config.vocab_size to {short(given)} or more, or dataset_dir to another data set"
            )


def file_sha256(path: Path) -> str:
    try:
        return sha256(path)
    except OSError as error:
        raise unreadable(path, error) from error
