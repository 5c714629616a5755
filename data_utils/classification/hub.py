"""Rows of the ``datasets`` library in the form of the benchmarks' own files."""

from __future__ import annotations

from typing import Any, Dict, Iterator, Tuple

from data_utils.classification.files import Line
from data_utils.classification.tasks import BenchmarkTask, Split
from data_utils.hub import hub_split


def hub_lines(task: BenchmarkTask, split: Split) -> Iterator[Line]:
    """The rows of a split, with the field names and label values of the benchmark's own files.

    Raises:
        UserError: the library is missing, or cannot get the data.
    """
    assert split.hub is not None
    path, configuration = task.hub
    return as_file_rows(task, hub_split(path, configuration, split.hub, f"a folder that holds {task.folders[0]}"))


def as_file_rows(task: BenchmarkTask, data: Any) -> Iterator[Line]:
    """Rows of a ``datasets.Dataset`` as the benchmark's own files have them."""
    renamed = {theirs: ours for ours, theirs in {task.id_field: "idx", **task.hub_fields}.items()}
    names = label_names(data)
    by_name = {label.name: label.value for label in task.labels}
    for number, row in enumerate(data, start=1):
        ours: Dict[str, Any] = {renamed.get(name, name): value for name, value in row.items()}
        label = ours.get(task.label_field)
        if names and isinstance(label, int) and 0 <= label < len(names):  # test data has -1
            name = names[label]
            ours[task.label_field] = by_name.get(name, name)
        yield Line(number, ours)


def label_names(data: Any) -> Tuple[str, ...]:
    """Names of the classes in the order of the library's numbers; empty where labels are no classes."""
    feature = data.features.get("label")
    return tuple(getattr(feature, "names", None) or ())
