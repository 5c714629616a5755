"""Cleans wiki markup, leaving only the running text of an article.

BERT (Devlin et al. 2019, section 3.1) is trained on "only the text passages" of Wikipedia: lists, tables and headers
are left out. References, captions, galleries, formulas and code are left out too, and all templates except the few that
stand for words of a sentence (https://www.mediawiki.org/wiki/Help:Templates and English Wikipedia's documentation of
them).
"""

from __future__ import annotations

import html
import re
from collections.abc import Callable, Iterable

# Namespaces whose links show a picture or nothing; every wiki accepts the English names in addition to its own.
HIDDEN_NAMESPACES = frozenset({"file", "image", "media", "category"})
# English titles of sections without running text; in other languages, the line rules below remove most of them.
_APPENDICES = frozenset(
    ["references", "notes", "footnotes", "citations", "sources", "bibliography", "see also", "external links",
     "further reading", "notes and references", "works cited", "discography", "filmography", "gallery"]
)  # fmt: skip

_COMMENT = re.compile(r"<!--.*?(?:-->|\Z)", re.DOTALL)
_NOWIKI = re.compile(r"<nowiki>(.*?)</nowiki>|<nowiki\s*/>", re.DOTALL | re.IGNORECASE)
_SIMPLE_MATH = re.compile(r"<math\b[^<>]*>\s*([A-Za-z0-9]{1,3})\s*</math\s*>", re.IGNORECASE)
_DROPPED_TAGS = (
    "ref|math|chem|ce|gallery|table|timeline|syntaxhighlight|source|code|pre|imagemap|score|hiero|graph|mapframe"
    "|maplink|templatedata|templatestyles|poem|references|inputbox|categorytree|noinclude|tt|style|script|ul|ol|dl"
    "|indicator|mapdata"
)
_SELF_CLOSED = re.compile(rf"<(?:{_DROPPED_TAGS})\b[^<>]*/\s*>", re.IGNORECASE)
_DROPPED = re.compile(rf"<({_DROPPED_TAGS})\b[^<>]*>.*?</\1\s*>", re.DOTALL | re.IGNORECASE)
_UNCLOSED_REF = re.compile(r"<ref\b[^<>\n]*>.*$", re.MULTILINE | re.IGNORECASE)
_BLOCK_TAG = re.compile(r"</?(?:p|div|blockquote|center|li|tr|td|h\d|hr)\b[^<>]*>", re.IGNORECASE)
_LINE_BREAK = re.compile(r"<br\b[^<>]*>", re.IGNORECASE)
_TAG = re.compile(r"</?[a-zA-Z][^<>]*>")

_EXTERNAL = re.compile(r"\[(?:(?:https?:|ftp:|news:|irc:)?//|mailto:)[^\s\[\]]*[ \t]*([^\[\]\n]*)\]")
_BARE_URL = re.compile(r"https?://[^\s<>|\]]+")
_LINK = re.compile(r"\[\[([^\[\]]*)\]\]")
_FOREIGN = re.compile(r"[a-z]{2,3}(?:-[a-z]+)*:")
_PREFIXES = re.compile(r"^(?:wikt|wiktionary|w|wikipedia|s|wikisource|commons|d|q|b|n|m|meta|species):+", re.IGNORECASE)
_UNCLOSED_BRACKETS = re.compile(r"\[\[(?:[^\[\]|\n]*\|)*|\]\]|\{\{|\}\}|\{\||\|\}|\[[ \t]*\]")
_VARIANT = re.compile(r"-\{(?:([^{}|]*)\|)?([^{}]*)\}-")

_HEADING = re.compile(r"^(={1,6})\s*(.+?)\s*\1\s*$")
_LIST_OR_TABLE = tuple("*#:;|!")
_QUOTES = re.compile(r"'{2,}")
_MAGIC = re.compile(r"__[A-Z]{3,}__")

_SUSPECT_BRACKETS = re.compile(r"[(（\[][\s,;:.–\-，；：、\])）]|(?<=[\s,;，；、])[)）]")
_EMPTY_BRACKETS = re.compile(r" ?(?:\([,;:.–\-\s]*\)|\[\s*\]|（[，；：、\s]*）)")
_PUNCTUATION_AFTER_OPENING = re.compile(r"([(（])[\s,;:，；、]+")
_PUNCTUATION_BEFORE_CLOSING = re.compile(r"(?<![\s,;，；、])[\s,;，；、]+([)）])")
_INVISIBLE = ("\u00ad", "\u200b", "\ufeff")  # soft hyphen, zero-width space, byte order mark
_SPACE_BEFORE = re.compile(r"(?<=[^\s.]) ([,.](?:\s|$))")
_REPEATED_PUNCTUATION = re.compile(r"([,;])(?: ?[,;])+(?= )")

_SENTENCE_END = re.compile(r"[.!?…。！？।؟][\"'”’»)\]）」』]*$")
_SHORTEST_WITHOUT_END = 120  # characters; a shorter line without a full stop is a label, not prose
_LETTERS = re.compile(r"[^\W\d_]{2}|[\u3040-\u9fff\uac00-\ud7af]")
# The markup's characters in <nowiki> become private-use characters, which no rule matches, and are restored at the end.
_LITERAL = str.maketrans({mark: chr(0xE000 + ord(mark)) for mark in "[]{}|'=<>&*#:;!_-"})
_ESCAPED = re.compile("[" + "".join(_LITERAL.values()) + "]")


def clean_wikitext(wikitext: str, hidden_namespaces: Iterable[str] = ()) -> list[str]:
    """Return the paragraphs of prose of an article.

    Args:
        wikitext: The page in wiki markup, XML entities already decoded.
        hidden_namespaces: This wiki's own names of the File, Media and Category namespaces, in lower case.

    Returns:
        Paragraphs, one line each, with white space and entities resolved; empty if the page has no prose.

    Example:
        >>> clean_wikitext("'''Rain''' is [[water|a liquid]] that falls.<ref>x</ref>")
        ['Rain is a liquid that falls.']
    """
    hidden = HIDDEN_NAMESPACES.union(hidden_namespaces)
    text = _COMMENT.sub("", wikitext)
    text = _NOWIKI.sub(lambda match: (match.group(1) or "").translate(_LITERAL), text)
    text = _without_elements(text)
    text = _resolve_templates(text)
    text = _resolve_links(text, hidden)
    text = _LINE_BREAK.sub(" ", _BLOCK_TAG.sub("\n", text))
    text = _MAGIC.sub("", _TAG.sub("", text))
    text = _without_leftovers(text)
    return [paragraph for paragraph in map(_tidy, _prose_lines(text)) if _is_prose(paragraph)]


def _without_elements(text: str) -> str:
    """Remove elements whose content is not prose, innermost ones first."""
    if "<" not in text:
        return text
    text = _SELF_CLOSED.sub("", text)
    text = _SIMPLE_MATH.sub(r"\1", text)
    for _ in range(3):  # references within references
        text, count = _DROPPED.subn("", text)
        if not count:
            break
    return _UNCLOSED_REF.sub("", text)


def _resolve_links(text: str, hidden: frozenset[str]) -> str:
    """Replace links by the text they show; remove pictures, categories and links to other languages."""

    def shown(match: re.Match[str]) -> str:
        target, bar, label = match.group(1).partition("|")
        target = target.strip()
        prefix = target.partition(":")[0].strip().lower() if ":" in target else ""
        if prefix in hidden:  # a leading colon makes the prefix empty: such a link is shown
            return ""
        if bar:
            return label.rpartition("|")[2] or re.sub(r"\s*\(.*\)$", "", target)
        if _FOREIGN.match(target) and not _PREFIXES.match(target):
            return ""
        return _PREFIXES.sub("", target.lstrip(":")).partition("#")[0]

    text = _VARIANT.sub(_variant, text)
    for _ in range(8):  # captions contain links, which may contain links
        text = _EXTERNAL.sub(lambda match: match.group(1) or "", text)
        text, count = _LINK.subn(shown, text)
        if not count:
            break
    return _BARE_URL.sub("", text)


def _without_leftovers(text: str) -> str:
    """Remove quote marks and the unclosed brackets of links, templates and tables."""
    count = 1
    while count:  # a removal may bring two other brackets together
        text = _QUOTES.sub(lambda match: "'" if len(match.group()) == 4 else "", text)
        text, count = _UNCLOSED_BRACKETS.subn("", text)
    return text


def _variant(match: re.Match[str]) -> str:
    """Return the first of Chinese script variants ``-{zh-hans:甲;zh-hant:乙}-``; ``-{H|…}-`` shows nothing."""
    flags, body = match.groups()
    if flags is not None and flags.strip().upper() in ("H", "T", "-"):
        return ""
    return body.partition(";")[0].rpartition(":")[2].strip()


def _prose_lines(text: str) -> Iterable[str]:
    """Yield the lines outside appendix sections that are not headings, list items, table rows or code."""
    skipped_level = 0
    for line in text.split("\n"):
        heading = _HEADING.match(line)
        if heading:
            level = len(heading.group(1))
            if not skipped_level or level <= skipped_level:
                title = heading.group(2).strip("= ").lower()
                skipped_level = level if title in _APPENDICES else 0
        elif not skipped_level and line and not line.startswith(_LIST_OR_TABLE):
            if line[0] in " \t":  # preformatted text by the markup's rules, but often a paragraph indented by mistake
                line = line.strip()
                if len(line) < _SHORTEST_WITHOUT_END or not _SENTENCE_END.search(line):
                    continue
            yield line


def _tidy(line: str) -> str:
    """Decode entities and repair the punctuation around removed markup."""
    if "&" in line:
        line = html.unescape(html.unescape(line))
    line = _ESCAPED.sub(lambda match: chr(ord(match.group()) - 0xE000), line)
    for character in _INVISIBLE:
        line = line.replace(character, "")
    line = " ".join(line.split())
    if _SUSPECT_BRACKETS.search(line):
        for _ in range(2):  # twice, for brackets around emptied brackets
            line = _EMPTY_BRACKETS.sub("", line)
            line = _PUNCTUATION_AFTER_OPENING.sub(r"\1", line)
            line = _PUNCTUATION_BEFORE_CLOSING.sub(r"\1", line)
    if " ," in line or " ." in line:
        line = _SPACE_BEFORE.sub(r"\1", line)
    return " ".join(_REPEATED_PUNCTUATION.sub(r"\1", line).split())


def _is_prose(paragraph: str) -> bool:
    """Return whether a line is at least a sentence, not a label or a remnant of markup."""
    if not _LETTERS.search(paragraph):
        return False
    return len(paragraph) >= _SHORTEST_WITHOUT_END or _SENTENCE_END.search(paragraph) is not None


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


def _prefixed(prefix: str) -> Callable[[Fields], str]:
    return lambda fields: " ".join([prefix, *fields[:1]]).strip()


def _measure(fields: Fields) -> str:
    """Write ``{{convert|5|-|10|km|mi}}`` as 5–10 km."""
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


# Template names, with underscores for spaces, and functions from their unnamed, non-empty fields to words.
_WRITERS: list[tuple[str, Callable[[Fields], str]]] = [
    ("nowrap nobr small big smaller larger em strong abbr sic linktext visible_anchor nihongo ill illm", _first),
    ("angbr interlanguage_link mvar var sup sub smallcaps sc val formatnum keypress tooltip w lc uc", _first),
    ("lcfirst ucfirst not_a_typo proper_name gaps", _first),
    ("lang langx rtl-lang", _second),
    ("transl transliteration", _last),
    ("convert cvt", _measure),
    ("frac sfrac fraction", _fraction),
    ("chem chem2 su", "".join),
    ("ndash en_dash endash –", lambda fields: "–"),
    ("mdash em_dash emdash —", lambda fields: "—"),
    ("snd spnd spaced_ndash spaced_en_dash nbspndash", lambda fields: " – "),
    ("spaced_mdash spaced_em_dash", lambda fields: " — "),
    ("nbsp space spaces sp thinsp hair_space break br", lambda fields: " "),
    ("' apostrophe", lambda fields: "'"),
    ("'s", lambda fields: "'s"),
    ("circa c. ca.", _years("c.")),
    ("reign r.", _years("r.")),
    ("floruit fl.", _years("fl.")),
    ("as_of", _prefixed("As of")),
    ("quote cquote blockquote quotation bquote quote_box centered_pull_quote", _paragraph),
    ("ship", lambda fields: " ".join(fields[:2])),
    *((name.lower(), _prefixed(name)) for name in ("HMS", "USS", "SS", "RMS", "HMAS", "HMCS", "MS", "MV")),
]
_TEMPLATE_WRITERS = {name: write for names, write in _WRITERS for name in names.split()}


def _template_words(body: str) -> str:
    """Return the words that a template stands for, or an empty text.

    Args:
        body: The text between the braces, with inner templates already replaced.
    """
    name, bar, rest = body.partition("|")
    key = name.strip().lower().replace(" ", "_")
    if not bar:
        key, colon, _ = key.partition(":")
        rest = name.partition(":")[2] if colon else ""
        bar = colon
    write = _first if key.startswith("lang-") else _TEMPLATE_WRITERS.get(key)
    if write is None:
        return ""
    fields = [field.strip() for field in _FIELD.split(rest)] if bar else []
    named = dict(field.split("=", 1) for field in fields if _NAMED.match(field))
    plain = [field for field in fields if not _NAMED.match(field)]
    for position in ("1", "text", "quote"):
        if not plain and position in named:
            plain = [named[position].strip()]
    return write([field for field in plain if field])


def _starts_line(text: str, position: int) -> bool:
    """Return whether a mark starts a line; elsewhere, a bar and a brace belong to templates, not to a table."""
    return not text[text.rfind("\n", 0, position) + 1 : position].strip(" \t:*#")


def _resolve_templates(text: str) -> str:
    """Remove templates, template parameters and tables at any depth of nesting.

    If a closing brace is missing, only the line of the opening one is removed, not the rest of the article.
    """
    if "{{{" in text:
        text = _PARAMETER.sub("", text)
    pieces: list[str] = []
    open_at: list[tuple[str, int]] = []  # the opening mark, and the length of `pieces` at that time
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
                pieces.append(_template_words(inside) if mark == "}}" else "")
                break
    pieces.append(text[position:])
    while open_at:
        _, start = open_at.pop()
        pieces[start:] = ["".join(pieces[start:]).partition("\n")[2]]
    return "".join(pieces)
