"""Reads all records of a data set, however damaged, and checks each as training does, and a little more strictly.

Shapes: R records, S max_seq_length, P masked positions.
"""

from __future__ import annotations

import itertools
import mmap
import struct
from collections import Counter
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import NamedTuple

import numpy as np

from data_utils.packing.merge import is_one_sequence
from data_utils.records.decoding import ExampleDecoder, ExampleError
from data_utils.records.features import (
    PACKS_FORMAT,
    WEIGHTS,
    Feature,
    FeatureSpec,
    packed_pretraining_features,
    pretraining_features,
)
from data_utils.records.files import list_record_files
from data_utils.records.framing import FRAMING_BYTES, RecordError, masked_crc32c, unframe
from data_utils.records.index import find_index, load_index
from data_utils.records.manifest import Manifest, load_manifest
from data_utils.records.validation import Batch, Problem, find_problem, good_records
from data_utils.tokenizer import VOCABULARY_NAME, Vocabulary, read_vocabulary
from utilities.errors import UserError

FILES_TRIED, RECORDS_TRIED = 16, 20  # to find out which form the records have
RECORDS_AT_ONCE = 512
ANY_VOCABULARY = 1 << 31  # upper limit of ids if the vocabulary is not known
_HEADER = struct.Struct("<QI")


class Form(NamedTuple):
    """The sizes of a data set's records."""

    max_seq_length: int
    max_predictions: int
    max_sequences: int = 0  # sequences in a pack; 0 for records of one sequence

    def features(self, vocab_size: int) -> FeatureSpec:
        if self.max_sequences:
            return packed_pretraining_features(*self, vocab_size)
        return pretraining_features(self.max_seq_length, self.max_predictions, vocab_size)


@dataclass(frozen=True)
class DataSet:
    """A data set to be examined, with the problems that its folder already shows."""

    folder: Path
    files: list[Path]
    manifest: Manifest | None
    vocabulary: Vocabulary | None
    form: Form
    wrong: list[str]
    notes: list[str]

    @property
    def vocab_size(self) -> int | None:
        if self.vocabulary is not None:
            return len(self.vocabulary.pieces)
        return self.manifest.settings.get("vocab_size") if self.manifest is not None else None


class Chunk(NamedTuple):
    """Records that were read together: the good ones, their arrays, and the problem of each bad one."""

    payloads: list[bytes]
    batch: Batch
    problems: dict[int, str]


class Checker:
    """Checks the records of a data set. Picklable."""

    def __init__(self, data: DataSet) -> None:
        self.spec = data.form.features(data.vocab_size or ANY_VOCABULARY)
        self.decoder = ExampleDecoder(self.spec.features)
        # A row without a word that is short enough masks nothing if whole words are masked.
        self.whole_words = data.manifest is not None and data.manifest.settings.get("whole_word_masking") is True
        self.special: list[int] | None = None  # ids of [PAD], [UNK], [CLS], [SEP] and [MASK]
        if data.vocabulary is not None:
            self.special = data.vocabulary.special_ids().tolist()

    def read(self, path: Path) -> Iterator[Chunk]:
        """Yield the records of a file, good and bad, a few hundred at a time."""
        records = enumerate(read_records(path))
        while chunk := dict(itertools.islice(records, RECORDS_AT_ONCE)):
            problems = {number: record for number, record in chunk.items() if isinstance(record, str)}
            payloads = {number: record for number, record in chunk.items() if isinstance(record, bytes)}
            batch, bad = good_records(list(payloads.values()), self.decoder.decode, self._find_problem)
            numbers = list(payloads)
            problems.update({numbers[row]: problem.reason for row, problem in bad.items()})
            yield Chunk([payload for number, payload in payloads.items() if number not in problems], batch, problems)

    def _find_problem(self, batch: Batch) -> Problem | None:
        """Return a problem of a batch, if it has one."""
        problem = find_problem(self.spec, batch)
        if problem is not None:
            return problem
        numbers, weights = batch["input_mask"], batch["masked_lm_weights"]
        checks = [((weights <= 0).all(1) & (not self.whole_words), "masks nothing")]
        if not self.spec.packed:
            masked = np.take_along_axis(numbers, batch["masked_lm_positions"], axis=1)
            gaps = ~is_one_sequence(numbers)
            checks.insert(0, (gaps, "has an input_mask with padding between its tokens, or no token"))
            checks.insert(1, (((weights > 0) & (masked == 0)).any(1), "has masked_lm_positions in the padding"))
        if self.special is not None:
            _, _, cls_id, sep_id, _ = self.special
            changes = numbers[:, 1:] != numbers[:, :-1]
            edge = np.ones((len(numbers), 1), bool)
            starts = (numbers > 0) & np.concatenate([edge, changes], axis=1)
            ends = (numbers > 0) & np.concatenate([changes, edge], axis=1)
            ids = batch["input_ids"]
            checks.append(((starts & (ids != cls_id)).any(1), "has a sequence that does not begin with [CLS]"))
            checks.append(((ends & (ids != sep_id)).any(1), "has a sequence that does not end with [SEP]"))
        return next((Problem(int(wrong.argmax()), reason, "") for wrong, reason in checks if wrong.any()), None)


def read_index(path: Path) -> tuple[np.ndarray | None, str | None]:
    """Return the records' boundaries from the file's index, if it fits the file, and otherwise the index's problem."""
    index = find_index(path)
    if index is None:
        return None, None
    try:
        return load_index(index, path, path.stat().st_size), None
    except UserError as error:
        return None, str(error)


def read_records(path: Path) -> Iterator[bytes | str]:
    """Yield all records of a TFRecord file, or what is wrong with them.

    Without a valid index it reads header after header, and skips from a damaged header to the next valid one.
    """
    if not path.stat().st_size:
        return
    boundaries, _ = read_index(path)
    with open(path, "rb") as stream:
        data = mmap.mmap(stream.fileno(), 0, access=mmap.ACCESS_READ)
    view = memoryview(data)
    bounds = _walk(data) if boundaries is None else boundaries.tolist()
    for number, (begin, end) in enumerate(itertools.pairwise(bounds)):
        if boundaries is None and not _end_of_record(data, begin):
            yield f"is damaged or cut off; {end - begin:,} bytes up to the next record are lost"
            continue
        try:
            yield unframe(view[begin:end], path, number)
        except RecordError as error:
            yield error.reason


def _walk(data: mmap.mmap) -> Iterator[int]:
    """Yield where each record begins and the last one ends; everything between two valid headers is one record."""
    begin = 0
    while begin < len(data):
        yield begin
        begin = _end_of_record(data, begin) or _next_header(data, begin + 1)
    yield len(data)


def _next_header(data: mmap.mmap, begin: int) -> int:
    while (zeros := data.find(bytes(4), begin + 4)) >= 0:  # lengths are small: the upper half of their bytes is zero
        begin = zeros - 4
        if _end_of_record(data, begin):
            return begin
        begin += 1
    return len(data)


def _end_of_record(data: mmap.mmap, begin: int) -> int | None:
    """Return the end of the record that begins at ``begin``; None if no whole record begins there."""
    if begin + FRAMING_BYTES > len(data):
        return None
    length, checksum = _HEADER.unpack_from(data, begin)
    end = begin + length + FRAMING_BYTES
    return end if end <= len(data) and masked_crc32c(data[begin : begin + 8]) == checksum else None


def open_dataset(folder: Path, vocabulary_file: Path | None) -> DataSet:
    """Examine a folder without reading all of its records.

    Args:
        folder: The folder of the record files.
        vocabulary_file: The vocabulary; None: the one in the folder.

    Raises:
        UserError: There are no record files, or none of them has pre-training records.
    """
    files = list_record_files(folder)
    wrong: list[str] = []
    notes: list[str] = []
    manifest = None
    try:
        manifest = load_manifest(folder)
        if manifest is None:
            notes.append("has no manifest.json: counts and checksums are not known")
    except UserError as error:
        wrong.append(str(error))
    vocabulary = None
    path = vocabulary_file or folder / VOCABULARY_NAME
    if vocabulary_file is None and not path.exists():
        notes.append(f"has no {VOCABULARY_NAME}: ids and masks are not checked; name one with --vocab-file")
    else:
        try:
            vocabulary = read_vocabulary(path)
            expected = manifest.vocabulary.get("sha256") if manifest is not None else None
            if expected not in (None, vocabulary.sha256):
                wrong.append(f"{path.name} is not the vocabulary that the records were made with (SHA-256)")
        except UserError as error:
            if vocabulary_file is not None:
                raise
            wrong.append(str(error))
    return DataSet(folder, files, manifest, vocabulary, _find_form(files, manifest), wrong, notes)


def _find_form(files: list[Path], manifest: Manifest | None) -> Form:
    """Return the form given by the manifest, or otherwise that of most of the first records."""
    if manifest is not None:
        names = ["max_seq_length", "max_predictions_per_seq"]
        if manifest.format == PACKS_FORMAT:
            names = ["max_seq_length", "max_predictions_per_pack", "max_sequences_per_pack"]
        sizes = [manifest.settings.get(name) for name in names]
        known = [size for size in sizes if isinstance(size, int) and size > 0]
        if len(known) == len(names):
            return Form(*known)
    forms: Counter[Form] = Counter()
    reason = "all files are empty"
    for path in files[:FILES_TRIED]:
        for record in itertools.islice(read_records(path), RECORDS_TRIED):
            try:
                forms[_record_form(record)] += 1
            except ExampleError as error:
                reason = f"the last one tried {error.reason}"
    if not forms:
        raise UserError(f"{files[0].parent}: has no pre-training record that can be read ({reason})")
    return forms.most_common(1)[0][0]


def _record_form(record: bytes | str) -> Form:
    if isinstance(record, str):
        raise ExampleError(0, record)
    batch = ExampleDecoder(pretraining_features(1, 1, ANY_VOCABULARY).features).decode([record], any_length=True)
    sizes = batch["input_ids"].shape[1], batch["masked_lm_ids"].shape[1]
    try:
        weights = Feature("next_sentence_weights", 1, WEIGHTS)
        return Form(*sizes, ExampleDecoder([weights]).decode([record], any_length=True)[weights.name].size)
    except ExampleError:
        return Form(*sizes)
