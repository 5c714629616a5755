"""Reads documents from a column of tables: Parquet files, and data sets of the hub."""

from __future__ import annotations

import contextlib
from collections.abc import Iterator, Sequence
from pathlib import Path
from typing import Any

from data_utils.hub_dataset import HubStream, reading_errors
from data_utils.text.documents import Document, RejectedDocument
from data_utils.text.units import Streamed
from utilities.errors import UserError

ROWS_PER_BATCH = 100


def read_document(document: Document | RejectedDocument) -> Iterator[Document | RejectedDocument]:
    """Yield the document itself: tables have been read when a unit is sent to a worker."""
    yield document


def check_parquet(files: Sequence[Path], column: str) -> None:
    """Check the footers of Parquet files, which are at their ends, before any work.

    Raises:
        UserError: A file is damaged, cut off or not a Parquet file, or has no such column of text; or the package
            pyarrow is not installed.
    """
    try:
        from pyarrow import types
    except ImportError as error:
        raise UserError("--parquet: needs the package pyarrow, which is not installed: pip install pyarrow") from error
    for path in files:
        with _opened(path) as file:
            schema = file.schema_arrow
        index = schema.get_field_index(column)
        if index < 0:
            columns = ", ".join(schema.names)
            raise UserError(f"--parquet-column {column}: {path} has no such column; it has {columns}")
        kind = schema.types[index]
        is_text = types.is_string(kind) or types.is_large_string(kind)
        if not (is_text or types.is_binary(kind) or types.is_large_binary(kind)):
            raise UserError(f"--parquet-column {column}: the column of {path} is {kind}, not text")


def read_parquet(files: Sequence[Path], column: str) -> Iterator[Streamed]:
    """Yield a document for each row of Parquet files, reading one row group at a time.

    Raises:
        UserError: A file is damaged.
    """
    import pyarrow

    for path in files:
        disk_bytes = path.stat().st_size
        rows = position = 0
        with _opened(path) as file:
            for group in range(file.num_row_groups):
                for batch in file.iter_batches(ROWS_PER_BATCH, [group], [column]):
                    for value in batch.column(0).cast(pyarrow.large_binary()).to_pylist():
                        rows += 1
                        before, position = position, disk_bytes * rows // file.metadata.num_rows
                        yield _streamed(value, f"{path}, row {rows}", column, position - before)


def read_hub(stream: HubStream, column: str) -> Iterator[Streamed]:
    """Yield a document for each row of a data set of the hub.

    Raises:
        UserError: The data cannot be read, or has no such column.
    """
    with reading_errors(stream.name):
        for number, row in enumerate(stream.rows, 1):
            if column not in row:
                raise UserError(f"--hub-column {column}: {stream.name} has no such column; it has {', '.join(row)}")
            yield _streamed(row[column], f"{stream.name}, row {number}", column, None)


def _streamed(value: Any, location: str, column: str, size: int | None) -> Streamed:
    """Return a row's document; without a size on disk, its own length serves."""
    document = _document(value, location, column)
    length = len(document.text) if isinstance(document, Document) else 0
    return Streamed(document, length, length if size is None else size)


def _document(value: Any, location: str, column: str) -> Document | RejectedDocument:
    if isinstance(value, bytes):
        try:
            value = value.decode("utf-8")
        except UnicodeDecodeError as error:
            return RejectedDocument("", f"{location}: not UTF-8 ({error.reason})")
    if isinstance(value, str):
        return Document("", value)
    return RejectedDocument("", f"{location}: no text in column {column!r}")


@contextlib.contextmanager
def _opened(path: Path) -> Iterator[Any]:
    from pyarrow import ArrowException, parquet

    try:
        with parquet.ParquetFile(path) as file:
            yield file
    except (ArrowException, OSError) as error:
        reason = " ".join(str(error).split())
        raise UserError(f"{path}: cannot be read as Parquet ({reason}); download it again") from error
