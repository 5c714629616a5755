"""Builds HTML in which all text is escaped, because only the functions here turn text into markup."""

from __future__ import annotations

import html
from typing import Any, Iterable, Mapping, Optional, Sequence

from utilities.secrets import mask

_VOID = ("br", "hr", "img", "input")  # elements without content and closing tag


class Markup(str):
    """A string that is HTML."""

    @classmethod
    def escape(cls, value: Any) -> Markup:
        """Return markup unchanged, and anything else as escaped text with its secrets masked."""
        return value if isinstance(value, Markup) else cls(html.escape(mask(str(value))))


def verbatim(text: str) -> Markup:
    """Escape text without masking secrets, for texts of a data set, which must not change."""
    return Markup(html.escape(text))


def element(name: str, *children: Any, **attributes: str) -> Markup:
    """Return an element. Attributes, and children that are not ``Markup``, are escaped.

    A trailing underscore of an attribute's name is dropped: ``class_`` becomes ``class``.

    Example:
        >>> element("p", "1 < 2", class_="note")
        '<p class="note">1 &lt; 2</p>'
    """
    written = "".join(f' {key.rstrip("_")}="{html.escape(mask(value))}"' for key, value in attributes.items())
    return Markup(f"<{name}{written}>" if name in _VOID else f"<{name}{written}>{join(children)}</{name}>")


def join(parts: Iterable[Any]) -> Markup:
    """Concatenate parts; those that are not ``Markup`` are escaped."""
    return Markup("".join(Markup.escape(part) for part in parts))


def page(title: str, style: str, *sections: Any, reload_seconds: Optional[int] = None) -> str:
    """Return a whole HTML document that needs no other file.

    A browser reloads it every ``reload_seconds``, if that is not None.
    """
    head = element(
        "head",
        Markup('<meta charset="utf-8"><meta name="viewport" content="width=device-width, initial-scale=1">'),
        Markup("" if reload_seconds is None else f'<meta http-equiv="refresh" content="{int(reload_seconds)}">'),
        element("title", title),
        element("style", Markup(style)),
    )
    return "<!doctype html>\n" + element("html", head, element("body", *sections), lang="en")


def card(name: str, value: str, note: str = "") -> Markup:
    """Return a box with a value, its name above and a note below."""
    parts = [element("h3", name), element("div", value, class_="value")]
    return element("div", *parts, element("div", note, class_="soft"), class_="card")


def table(headings: Sequence[str], rows: Iterable[Sequence[Any]]) -> Markup:
    """Return a table in a box that scrolls if the page is narrow."""
    head = element("thead", element("tr", *(element("th", heading, scope="col") for heading in headings)))
    body = element("tbody", *(element("tr", *(_cell(value) for value in row)) for row in rows))
    return element("div", element("table", head, body), class_="scroll")


def mapping_table(name: str, mapping: Mapping[str, Any]) -> Markup:
    """Return a table with the keys and values of a mapping."""
    return table([name, "value"], mapping.items())


def records_table(records: Sequence[Mapping[str, Any]]) -> Markup:
    """Return a table of records; its columns are all their keys, in the order of appearance."""
    columns = list(dict.fromkeys(key for record in records for key in record))
    headings = [column.replace("_", " ") for column in columns]
    return table(headings, ([record.get(column, "") for column in columns] for record in records))


def number(value: Any) -> str:
    """Format a number with separated thousands and four decimals, or a small one with an exponent."""
    if isinstance(value, bool) or not isinstance(value, (int, float)):
        return text(value)
    if isinstance(value, int) or (float(value).is_integer() and abs(value) < 1e15):
        return f"{int(value):,}"
    return f"{value:,.4f}" if abs(value) >= 1e-2 else f"{value:.3g}"


def text(value: Any) -> str:
    """Format a JSON value as text."""
    if value is None:
        return "none"
    if isinstance(value, bool):
        return "true" if value else "false"
    if isinstance(value, (list, tuple)):
        items = (f"[{text(item)}]" if isinstance(item, (list, tuple)) else text(item) for item in value)
        return ", ".join(items) or "none"
    return str(value)


def _cell(value: Any) -> Markup:
    numeric = isinstance(value, (int, float)) and not isinstance(value, bool)
    if isinstance(value, Markup):
        return element("td", value)
    return element("td", str(value), class_="number") if numeric else element("td", text(value))
