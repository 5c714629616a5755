"""What a model answers, as lists that show themselves as small tables."""

from __future__ import annotations

import html
from typing import Any, List

from utilities.tables import aligned


class Answer(List[Any]):
    """The parts of an answer, named tuples, the likeliest or first one first; in a notebook, it is shown as a table."""

    def __str__(self) -> str:
        return "\n".join(aligned(self._cells(), "<>")) if self else "nothing"

    def _repr_html_(self) -> str:
        rows = ("".join(f"<td>{html.escape(cell)}</td>" for cell in row) for row in self._cells())
        return f"<table>{''.join(f'<tr>{row}</tr>' for row in rows)}</table>"

    def _cells(self) -> List[List[str]]:
        names = [list(self[0]._fields)] if self else []
        return names + [[f"{cell:.4f}" if isinstance(cell, float) else str(cell) for cell in part] for part in self]


class Answers(List[Any]):
    """The answers to several texts; in a notebook, they show themselves one below the other."""

    def _repr_html_(self) -> str:
        parts = (each._repr_html_() if isinstance(each, Answer) else html.escape(str(each)) for each in self)
        return "<br>".join(parts)
