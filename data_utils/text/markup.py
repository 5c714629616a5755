"""From wiki markup to prose: the running text of an article and nothing else.

BERT (Devlin et al. 2019, section 3.1) is trained on "only the text passages" of Wikipedia: lists, tables and
headers are left out. So are references, captions, galleries, formulas and code.
"""

from __future__ import annotations

import html
import re
from collections.abc import Iterable

from data_utils.text.templates import resolve_templates

# Namespaces whose links show a picture or nothing; every wiki knows the English names beside its own.
HIDDEN_NAMESPACES = frozenset({"file", "image", "media", "category"})
# Sections without running text, by their English title; elsewhere the line rules below leave little of them.
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
_LEFT_OPEN = re.compile(r"<ref\b[^<>\n]*>.*$", re.MULTILINE | re.IGNORECASE)
_BLOCK_TAG = re.compile(r"</?(?:p|div|blockquote|center|li|tr|td|h\d|hr)\b[^<>]*>", re.IGNORECASE)
_LINE_BREAK = re.compile(r"<br\b[^<>]*>", re.IGNORECASE)
_TAG = re.compile(r"</?[a-zA-Z][^<>]*>")

_EXTERNAL = re.compile(r"\[(?:(?:https?:|ftp:|news:|irc:)?//|mailto:)[^\s\[\]]*[ \t]*([^\[\]\n]*)\]")
_BARE_URL = re.compile(r"https?://[^\s<>|\]]+")
_LINK = re.compile(r"\[\[([^\[\]]*)\]\]")
_FOREIGN = re.compile(r"[a-z]{2,3}(?:-[a-z]+)*:")
_PREFIXES = re.compile(r"^(?:wikt|wiktionary|w|wikipedia|s|wikisource|commons|d|q|b|n|m|meta|species):+", re.IGNORECASE)
_LEFT_BRACKETS = re.compile(r"\[\[(?:[^\[\]|\n]*\|)*|\]\]|\{\{|\}\}|\{\||\|\}|\[[ \t]*\]")
_VARIANT = re.compile(r"-\{(?:([^{}|]*)\|)?([^{}]*)\}-")

_HEADING = re.compile(r"^(={1,6})\s*(.+?)\s*\1\s*$")
_LIST_OR_TABLE = tuple("*#:;|!")
_QUOTES = re.compile(r"'{2,}")
_MAGIC = re.compile(r"__[A-Z]{3,}__")

_BAD_BRACKETS = re.compile(r"[(（\[][\s,;:.–\-，；：、\])）]|(?<=[\s,;，；、])[)）]")
_EMPTY_BRACKETS = re.compile(r" ?(?:\([,;:.–\-\s]*\)|\[\s*\]|（[，；：、\s]*）)")
_OPENED_BADLY = re.compile(r"([(（])[\s,;:，；、]+")
_CLOSED_BADLY = re.compile(r"(?<![\s,;，；、])[\s,;，；、]+([)）])")
_INVISIBLE = ("\u00ad", "\u200b", "\ufeff")  # soft hyphen, zero-width space, byte order mark
_SPACE_BEFORE = re.compile(r"(?<=[^\s.]) ([,.](?:\s|$))")
_DOUBLED = re.compile(r"([,;])(?: ?[,;])+(?= )")

_SENTENCE_END = re.compile(r"[.!?…。！？।؟][\"'”’»)\]）」』]*$")
_SHORTEST_WITHOUT_END = 120  # characters; a shorter line without a full stop is a label, not prose
_LETTERS = re.compile(r"[^\W\d_]{2}|[\u3040-\u9fff\uac00-\ud7af]")
_LITERAL = str.maketrans({mark: chr(0xE000 + ord(mark)) for mark in "[]{}|'=<>&*#:;!_-"})
_TRANSLATED = re.compile("[\ue000-\ue07f]")


def clean_wikitext(wikitext: str, hidden_namespaces: Iterable[str] = ()) -> list[str]:
    """Paragraphs of prose of an article.

    Args:
        wikitext: the page in wiki markup, XML entities already decoded.
        hidden_namespaces: this wiki's own names of the File, Media and Category namespaces, lower case.

    Returns:
        Paragraphs, one line each, white space and entities resolved; empty where the page holds no prose.

    Example:
        >>> clean_wikitext("'''Rain''' is [[water|a liquid]] that falls.<ref>x</ref>")
        ['Rain is a liquid that falls.']
    """
    hidden = HIDDEN_NAMESPACES.union(hidden_namespaces)
    text = _COMMENT.sub("", wikitext)
    text = _NOWIKI.sub(lambda found: (found.group(1) or "").translate(_LITERAL), text)
    text = _without_elements(text)
    text = resolve_templates(text)
    text = _resolve_links(text, hidden)
    text = _LINE_BREAK.sub(" ", _BLOCK_TAG.sub("\n", text))
    text = _MAGIC.sub("", _TAG.sub("", text))
    text = _without_leftovers(text)
    return [paragraph for paragraph in map(_tidy, _prose_lines(text)) if _is_prose(paragraph)]


def _without_elements(text: str) -> str:
    """Without the elements whose content is no prose; the innermost of nested ones first."""
    if "<" not in text:
        return text
    text = _SELF_CLOSED.sub("", text)
    text = _SIMPLE_MATH.sub(r"\1", text)
    for _ in range(3):  # references within references
        text, count = _DROPPED.subn("", text)
        if not count:
            break
    return _LEFT_OPEN.sub("", text)


def _resolve_links(text: str, hidden: frozenset[str]) -> str:
    """Links as the text they show; pictures, categories and links to other languages vanish."""

    def shown(found: re.Match[str]) -> str:
        target, bar, label = found.group(1).partition("|")
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
    for _ in range(8):  # captions hold links, which may hold links
        text = _EXTERNAL.sub(lambda found: found.group(1) or "", text)
        text, count = _LINK.subn(shown, text)
        if not count:
            break
    return _BARE_URL.sub("", text)


def _without_leftovers(text: str) -> str:
    """Without quote marks, and without the brackets of links, templates and tables that were never closed."""
    count = 1
    while count:  # what is taken away may bring two more together
        text = _QUOTES.sub(lambda found: "'" if len(found.group()) == 4 else "", text)
        text, count = _LEFT_BRACKETS.subn("", text)
    return text


def _variant(found: re.Match[str]) -> str:
    """Chinese script variants ``-{zh-hans:甲;zh-hant:乙}-``: the first; ``-{H|…}-`` shows nothing."""
    flags, body = found.groups()
    if flags is not None and flags.strip().upper() in ("H", "T", "-"):
        return ""
    return body.partition(";")[0].rpartition(":")[2].strip()


def _prose_lines(text: str) -> Iterable[str]:
    """Lines outside appendix sections that are neither headings nor list items nor table rows nor code."""
    skipped_level = 0
    for line in text.split("\n"):
        heading = _HEADING.match(line)
        if heading:
            level = len(heading.group(1))
            if not skipped_level or level <= skipped_level:
                title = heading.group(2).strip("= ").lower()
                skipped_level = level if title in _APPENDICES else 0
        elif not skipped_level and line and not line.startswith(_LIST_OR_TABLE):
            if line[0] in " \t":  # preformatted text in the markup's rules, by mistake often a paragraph
                line = line.strip()
                if len(line) < _SHORTEST_WITHOUT_END or not _SENTENCE_END.search(line):
                    continue
            yield line


def _tidy(line: str) -> str:
    """Decodes entities and mends the holes that removed markup leaves around punctuation."""
    if "&" in line:
        line = html.unescape(html.unescape(line))
    line = _TRANSLATED.sub(lambda found: chr(ord(found.group()) - 0xE000), line)
    for character in _INVISIBLE:
        line = line.replace(character, "")
    line = " ".join(line.split())
    if _BAD_BRACKETS.search(line):
        for _ in range(2):  # what is emptied may have been inside brackets itself
            line = _EMPTY_BRACKETS.sub("", line)
            line = _OPENED_BADLY.sub(r"\1", line)
            line = _CLOSED_BADLY.sub(r"\1", line)
    if " ," in line or " ." in line:
        line = _SPACE_BEFORE.sub(r"\1", line)
    return " ".join(_DOUBLED.sub(r"\1", line).split())


def _is_prose(paragraph: str) -> bool:
    """Whether a line is a sentence or more, not a label or what is left of something."""
    if not _LETTERS.search(paragraph):
        return False
    return len(paragraph) >= _SHORTEST_WITHOUT_END or _SENTENCE_END.search(paragraph) is not None
