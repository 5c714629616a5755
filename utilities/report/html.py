"""HTML that is escaped by construction: text becomes markup only through ``element``."""

from __future__ import annotations

import html
from typing import Any, Iterable, Mapping, Optional, Sequence

from utilities.secrets import mask

_VOID = ("br", "hr", "img", "input")  # elements that hold nothing and have no closing tag


class Markup(str):
    """A string that is HTML already."""

    @classmethod
    def escape(cls, value: Any) -> Markup:
        """Markup as it is, anything else as escaped text without secrets."""
        return value if isinstance(value, Markup) else cls(html.escape(mask(str(value))))


def verbatim(text: str) -> Markup:
    """Escaped text in which nothing is masked: a data set's own words must stand as they are."""
    return Markup(html.escape(text))


def element(name: str, *children: Any, **attributes: str) -> Markup:
    """An element. Children that are not ``Markup`` are escaped, as attributes are.

    A trailing underscore of an attribute's name is dropped, so that ``class_`` can be written.

    Example:
        >>> element("p", "1 < 2", class_="note")
        '<p class="note">1 &lt; 2</p>'
    """
    written = "".join(f' {key.rstrip("_")}="{html.escape(mask(value))}"' for key, value in attributes.items())
    return Markup(f"<{name}{written}>" if name in _VOID else f"<{name}{written}>{join(children)}</{name}>")


def join(parts: Iterable[Any]) -> Markup:
    """Parts one after the other."""
    return Markup("".join(Markup.escape(part) for part in parts))


def page(title: str, style: str, *sections: Any, reload_seconds: Optional[int] = None) -> str:
    """A whole HTML document that needs no other file, as wide as the screen it is read on.

    Args:
        style: CSS.
        sections: what the body holds.
        reload_seconds: after so many seconds a browser loads the page again; None: never.
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
    """A figure in a box, with its name above and a note below."""
    parts = [element("h3", name), element("div", value, class_="value")]
    return element("div", *parts, element("div", note, class_="soft"), class_="card")


def table(headings: Sequence[str], rows: Iterable[Sequence[Any]]) -> Markup:
    """A table, in a box of its own that scrolls where the page is narrow."""
    head = element("thead", element("tr", *(element("th", heading, scope="col") for heading in headings)))
    body = element("tbody", *(element("tr", *(_cell(value) for value in row)) for row in rows))
    return element("div", element("table", head, body), class_="scroll")


def mapping_table(name: str, mapping: Mapping[str, Any]) -> Markup:
    """Keys and values of a mapping."""
    return table([name, "value"], mapping.items())


def records_table(records: Sequence[Mapping[str, Any]]) -> Markup:
    """Records that share most of their keys; the columns are all keys, in the order of their appearance."""
    columns = list(dict.fromkeys(key for record in records for key in record))
    headings = [column.replace("_", " ") for column in columns]
    return table(headings, ([record.get(column, "") for column in columns] for record in records))


def number(value: Any) -> str:
    """A number as people write it: thousands apart, four decimals, small ones with an exponent."""
    if isinstance(value, bool) or not isinstance(value, (int, float)):
        return text(value)
    if isinstance(value, int) or (float(value).is_integer() and abs(value) < 1e15):
        return f"{int(value):,}"
    return f"{value:,.4f}" if abs(value) >= 1e-2 else f"{value:.3g}"


def text(value: Any) -> str:
    """A JSON value as text."""
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
