"""Templates and tables of wiki markup: dropped, save the few templates that stand for words of a sentence.

Source: https://www.mediawiki.org/wiki/Help:Templates and English Wikipedia's template documentation.
"""

from __future__ import annotations

import re
from collections.abc import Callable

_TOKEN = re.compile(r"\{\{|\}\}|\{\|(?!\})|\|\}(?!\})")
_PARAMETER = re.compile(r"\{\{\{[^{}]*\}\}\}")
_FIELD = re.compile(r"\|(?![^\[\]]*\]\])")  # a bar, but not the one inside a link
_NAMED = re.compile(r"^\s*[\w -]+=")
_RANGE_WORDS = {
    "-": "–", "–": "–", "to": " to ", "to(-)": " to ", "and": " and ", "by": " by ", "x": " × ", "or": " or ",
    "+/-": " ± ", "±": " ± ",
}  # fmt: skip

Fields = list[str]


def _first(fields: Fields) -> str:
    return fields[0] if fields else ""


def _second(fields: Fields) -> str:
    return fields[1] if len(fields) > 1 else _first(fields)


def _last(fields: Fields) -> str:
    return fields[-1] if fields else ""


def _constant(text: str) -> Callable[[Fields], str]:
    return lambda fields: text


def _prefixed(prefix: str, limit: int = 1) -> Callable[[Fields], str]:
    return lambda fields: " ".join([prefix, *fields[:limit]]).strip()


def _measure(fields: Fields) -> str:
    """{{convert|5|-|10|km|mi}} → 5–10 km."""
    text, at = _first(fields), 1
    while at + 1 < len(fields) and fields[at] in _RANGE_WORDS:
        text += _RANGE_WORDS[fields[at]] + fields[at + 1]
        at += 2
    return f"{text} {fields[at]}" if at < len(fields) else text


def _fraction(fields: Fields) -> str:
    whole = fields[:-2] if len(fields) > 2 else []
    return " ".join([*whole, "/".join(fields[-2:])])


def _years(prefix: str) -> Callable[[Fields], str]:
    return lambda fields: f"{prefix} {'–'.join(fields[:2])}" if fields else ""


def _paragraph(fields: Fields) -> str:
    return f"\n\n{_first(fields)}\n\n"


# Names with underscores for spaces, and how their (unnamed, non-empty) fields are written.
_WRITERS: list[tuple[str, Callable[[Fields], str]]] = [
    (
        "nowrap nobr small big smaller larger em strong abbr sic linktext visible_anchor nihongo ill illm",
        _first,
    ),
    ("angbr interlanguage_link mvar var sup sub smallcaps sc val formatnum keypress tooltip w lc uc", _first),
    ("lcfirst ucfirst not_a_typo proper_name gaps", _first),
    ("lang langx rtl-lang", _second),
    ("transl transliteration", _last),
    ("convert cvt", _measure),
    ("frac sfrac fraction", _fraction),
    ("chem chem2 su", "".join),
    ("ndash en_dash endash –", _constant("–")),
    ("mdash em_dash emdash —", _constant("—")),
    ("snd spnd spaced_ndash spaced_en_dash nbspndash", _constant(" – ")),
    ("spaced_mdash spaced_em_dash", _constant(" — ")),
    ("nbsp space spaces sp thinsp hair_space break br", _constant(" ")),
    ("' apostrophe", _constant("'")),
    ("'s", _constant("'s")),
    ("circa c. ca.", _years("c.")),
    ("reign r.", _years("r.")),
    ("floruit fl.", _years("fl.")),
    ("as_of", _prefixed("As of")),
    ("quote cquote blockquote quotation bquote quote_box centered_pull_quote", _paragraph),
    ("ship", lambda fields: " ".join(fields[:2])),
    *((name.lower(), _prefixed(name)) for name in ("HMS", "USS", "SS", "RMS", "HMAS", "HMCS", "MS", "MV")),
]
_AS_WORDS = {name: write for names, write in _WRITERS for name in names.split()}


def words_of_template(body: str) -> str:
    """The words that an inline template stands for, or nothing where it stands for none.

    Args:
        body: what is between the braces, inner templates already replaced.
    """
    name, bar, rest = body.partition("|")
    key = name.strip().lower().replace(" ", "_")
    if not bar:
        key, colon, _ = key.partition(":")
        rest = name.partition(":")[2] if colon else ""
        bar = colon
    if key.startswith("lang-"):
        write = _first
    elif key in _AS_WORDS:
        write = _AS_WORDS[key]
    else:
        return ""
    fields = [field.strip() for field in _FIELD.split(rest)] if bar else []
    named = dict(field.split("=", 1) for field in fields if _NAMED.match(field))
    plain = [field for field in fields if not _NAMED.match(field)]
    for position in ("1", "text", "quote"):
        if not plain and position in named:
            plain = [named[position].strip()]
    return write([field for field in plain if field])


def _starts_line(text: str, position: int) -> bool:
    """Table marks count only at the start of a line; elsewhere a bar and a brace belong to templates."""
    return not text[text.rfind("\n", 0, position) + 1 : position].strip(" \t:*#")


def resolve_templates(text: str) -> str:
    """Text without templates, template parameters and tables, however deep they are nested.

    One left open loses its own line only, so that a forgotten brace costs a line and not the article.
    """
    if "{{{" in text:
        text = _PARAMETER.sub("", text)
    pieces: list[str] = []
    open_at: list[tuple[str, int]] = []  # (what was opened, length of `pieces` at that time)
    position = 0
    for token in _TOKEN.finditer(text):
        mark = token.group()
        if "|" in mark and not _starts_line(text, token.start()):
            continue
        pieces.append(text[position : token.start()])
        position = token.end()
        if mark in ("{{", "{|"):
            open_at.append((mark, len(pieces)))
            continue
        opener = "{{" if mark == "}}" else "{|"
        while open_at and opener in (entry[0] for entry in open_at):
            kind, start = open_at.pop()
            inside = "".join(pieces[start:])
            del pieces[start:]
            if kind == opener:
                pieces.append(words_of_template(inside) if mark == "}}" else "")
                break
    pieces.append(text[position:])
    while open_at:
        _, start = open_at.pop()
        pieces[start:] = ["".join(pieces[start:]).partition("\n")[2]]
    return "".join(pieces)
