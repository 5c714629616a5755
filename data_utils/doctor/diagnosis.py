"""The findings of all files as one judgement: what is wrong, what is worth knowing, and the figures."""

from __future__ import annotations

from collections import Counter
from collections.abc import Mapping
from typing import Any, NamedTuple

from data_utils.doctor.examination import Counts, FileFindings, Problem, no_counts
from data_utils.doctor.lines import LineFindings
from data_utils.doctor.measures import (
    Masking,
    Packing,
    Share,
    duplicates_of,
    mask_rate_of,
    masking_of,
    next_sentence_of,
    packing_of,
    share,
)
from data_utils.doctor.opening import DataSet
from data_utils.records.manifest import check_files
from utilities.errors import UserError

PROBLEMS_SHOWN = 10
MOST_COPIES = 0.01  # share of records that are copies, mask and all: a file that is there twice, or a broken script
MOST_UNKNOWN = 0.05  # share of [UNK]: the vocabulary is of another language or script
MUCH_REPEATED = 0.1  # share of lines: worth a look
WORTH_PACKING = 1.1


class Diagnosis(NamedTuple):
    """Of a data set.

    Attributes:
        wrong: to be mended before training.
        notes: worth knowing.
        problems: the first bad records.
        records, bad: all of them; those that cannot be used.
        counts: of the good ones.
        mask_rate, masking, next_sentence: shares; ``masking`` None where the vocabulary is not known.
        unknown: share of [UNK]; None where the vocabulary is not known.
        copies, same_text: shares of records that another one equals, and whose text does.
        lines: of the corpus; None where it is not there.
        packing: None for packed sets.
    """

    wrong: list[str]
    notes: list[str]
    problems: list[Problem]
    records: int
    bad: int
    counts: Counts
    mask_rate: Share
    masking: Masking | None
    next_sentence: Share
    unknown: float | None
    copies: float
    same_text: float
    lines: LineFindings | None
    packing: Packing | None

    @property
    def is_well(self) -> bool:
        return not self.wrong

    def as_json(self) -> dict[str, Any]:
        """All of it, for ``--json``."""

        def plain(value: Any) -> Any:
            if hasattr(value, "_asdict"):
                return {name: plain(item) for name, item in value._asdict().items()}
            if isinstance(value, (list, tuple)):
                return [plain(item) for item in value]
            return value.tolist() if hasattr(value, "tolist") else value

        return plain(self)


def diagnose(data: DataSet, files: list[FileFindings], lines: LineFindings | None, sampled: int) -> Diagnosis:
    """Judges.

    Args:
        data: what was examined.
        files: the findings of its files, in order.
        lines: of its corpus.
        sampled: of every so many records, one was looked for among the others.
    """
    counts = sum((file.counts for file in files), start=no_counts(data.form))
    knows_vocabulary = data.special.mask is not None
    settings = {**data.settings, "max_predictions_per_seq": data.form.max_predictions}
    found = Diagnosis(
        wrong=[note.text for note in data.notes if note.is_wrong],
        notes=[note.text for note in data.notes if not note.is_wrong],
        problems=[problem for file in files for problem in file.problems][:PROBLEMS_SHOWN],
        records=sum(file.records for file in files),
        bad=sum(sum(file.reasons.values()) for file in files),
        counts=counts,
        mask_rate=mask_rate_of(counts, {} if data.form.is_packed else settings),
        masking=masking_of(counts) if knows_vocabulary else None,
        next_sentence=next_sentence_of(counts),
        unknown=share(counts.unknown, counts.tokens) if knows_vocabulary else None,
        copies=duplicates_of((file.payloads for file in files), sampled),
        same_text=duplicates_of((file.texts for file in files), sampled),
        lines=lines,
        packing=None if data.form.is_packed else packing_of(counts, data.form.max_seq_length),
    )
    _judge_files(data, files, found)
    _judge_records(files, found)
    _judge_shares(found)
    return found


def _judge_files(data: DataSet, files: list[FileFindings], found: Diagnosis) -> None:
    """Files against manifest and index."""
    unindexed = 0
    for file in files:
        found.wrong.extend(note.text for note in file.notes if note.is_wrong)
        unindexed += sum(not note.is_wrong for note in file.notes)
    if unindexed:
        found.notes.append(f"{unindexed:,} files have no index; the first run that reads them will make it")
    if data.manifest is None:
        return
    try:
        check_files(data.manifest, data.folder)
    except UserError as error:
        found.wrong.append(str(error))
    entries = {entry.name: entry for entry in data.manifest.files}
    for file in files:
        entry = entries.get(file.name)
        if entry is None:
            continue
        if file.records != entry.records:
            found.wrong.append(f"{file.name}: has {file.records:,} records, the manifest says {entry.records:,}")
        elif entry.sha256 is not None and file.sha256 is not None and entry.sha256 != file.sha256:
            found.wrong.append(f"{file.name}: is not the file that the manifest describes (SHA-256)")


def _judge_records(files: list[FileFindings], found: Diagnosis) -> None:
    reasons: Counter[str] = Counter()
    for file in files:
        reasons.update(file.reasons)
    for reason, number in reasons.most_common():
        found.wrong.append(f"{number:,} record{'s' if number > 1 else ''}: {_of_several(reason)}")
    if not found.counts.records:
        found.wrong.append("no record can be used")


def _of_several(reason: str) -> str:
    return reason.removeprefix("has ").removeprefix("is ")


def _judge_shares(found: Diagnosis) -> None:
    if found.masking is not None:
        for name, value in found.masking._asdict().items():
            if value.is_off:
                what = {"masked": "show [MASK]", "replaced": "show another piece", "kept": "show themselves"}[name]
                found.wrong.append(f"{value.found:.1%} of the tokens to predict {what}, {value.expected:.0%} should")
    rate = found.mask_rate
    if rate.is_off:
        found.wrong.append(f"{rate.found:.1%} of the tokens are to be predicted; by the settings {rate.expected:.1%}")
    if found.next_sentence.is_off:
        found.wrong.append(f"{found.next_sentence.found:.1%} of the second sentences are random ones, half should be")
    if found.copies > MOST_COPIES:
        found.wrong.append(f"{found.copies:.1%} of the records are copies of others; is a file there twice?")
    elif found.copies:
        found.notes.append(f"about {max(1, round(found.copies * found.records)):,} records are copies of others")
    if found.unknown is not None and found.unknown > MOST_UNKNOWN:
        found.wrong.append(f"{found.unknown:.1%} of the pieces are [UNK]: the vocabulary does not fit the text")
    if found.lines is not None and found.lines.repeated > MUCH_REPEATED:
        found.notes.append(f"{found.lines.repeated:.1%} of the corpus' lines repeat an earlier one")
    if found.packing is not None and found.packing.factor > WORTH_PACKING:
        found.notes.append(
            f"packing would give × {found.packing.factor:.2f}: python -m data_utils.packing"
            f" ({found.packing.efficiency_before:.0%} of the tokens are real, packed {found.packing.efficiency:.0%})"
        )


def settings_line(settings: Mapping[str, Any]) -> str:
    """The manifest's settings in one line."""
    return ", ".join(f"{name} {value}" for name, value in settings.items())
