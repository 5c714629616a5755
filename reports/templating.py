"""Fills the templates of pages and cards, without secrets and with all text of HTML escaped; formats their values."""

from __future__ import annotations

import functools
from pathlib import Path
from typing import Any, Dict, List, Mapping, Sequence, Tuple

from markupsafe import Markup, escape

from utilities.metric_names import readable
from utilities.secrets import mask

TEMPLATES = Path(__file__).with_name("templates")


@functools.lru_cache(maxsize=None)
def _environment() -> Any:
    import jinja2  # here, because most programs that import this module write no page

    environment = jinja2.Environment(
        loader=jinja2.FileSystemLoader(str(TEMPLATES)),
        autoescape=jinja2.select_autoescape(["html"]),
        keep_trailing_newline=True,
        finalize=_masked,
        trim_blocks=True,
        lstrip_blocks=True,
        undefined=jinja2.StrictUndefined,
    )
    environment.filters.update(columns=columns, number=number, numbers=numbers, text=text, verbatim=escape)
    environment.filters.update(readable=readable, readable_keys=readable_keys)
    return environment


def _masked(value: Any) -> Any:
    """Return markup unchanged, and anything else as text without secrets, which Jinja then escapes."""
    return value if isinstance(value, Markup) else mask(str(value))


def fill(template: str, **values: Any) -> str:
    """Return a whole document: HTML that needs no other file, or Markdown, in which nothing is escaped.

    Args:
        template: its name in ``reports/templates``. ``base.html`` says which values all pages have.
        values: what the template shows. Texts of a data set, which must not change, are shown with ``verbatim``.
    """
    return str(_environment().get_template(template).render(**values))


def columns(records: Sequence[Mapping[str, Any]]) -> List[str]:
    """Return all keys of records, in the order of appearance."""
    return list(dict.fromkeys(key for record in records for key in record))


def numbers(mapping: Mapping[str, Any]) -> Dict[str, str]:
    return {key: number(value) for key, value in mapping.items()}


def readable_keys(mapping: Mapping[str, Any]) -> List[Tuple[str, Any]]:
    """Return the values of a mapping with names for people."""
    return [(readable(key), value) for key, value in mapping.items()]


def number(value: Any) -> str:
    """Format a number with separated thousands and four decimals, or a small one with an exponent."""
    if isinstance(value, bool) or not isinstance(value, (int, float)):
        return text(value)
    if isinstance(value, int) or (float(value).is_integer() and abs(value) < 1e15):
        return f"{int(value):,}"
    return f"{value:,.4f}" if abs(value) >= 1e-2 else f"{value:.3g}"


def text(value: Any) -> str:
    if value is None:
        return "none"
    if isinstance(value, bool):
        return "true" if value else "false"
    if isinstance(value, (list, tuple)):
        items = (f"[{text(item)}]" if isinstance(item, (list, tuple)) else text(item) for item in value)
        return ", ".join(items) or "none"
    return str(value)
