"""Parses HTML pages, and checks that they load nothing from elsewhere."""

from __future__ import annotations

import re
from html.parser import HTMLParser
from pathlib import Path

from reports.page import write_report

HOSTILE = "<script>alert('&\"')</script></td></style>$x_{$"
WITHOUT_END_TAG = {"meta", "br", "hr", "img", "link", "input"}


class Page(HTMLParser):
    """The elements, texts and attributes of a page; parsing fails if tags do not match."""

    def __init__(self, source):
        super().__init__(convert_charrefs=True)
        self.open, self.tags, self.texts, self.attributes = [], [], [], []
        self._elements, self._texts_of_open = [], []
        self.feed(source)
        self.close()
        assert not self.open, f"never closed: {self.open}"

    def handle_starttag(self, tag, attributes):
        self.tags.append(tag)
        self.attributes += [(tag, *pair) for pair in attributes]
        text = []
        self._elements.append((tag, (dict(attributes).get("class") or "").split(), text))
        if tag not in WITHOUT_END_TAG:
            self.open.append(tag)
            self._texts_of_open.append(text)

    def handle_startendtag(self, tag, attributes):
        self.tags.append(tag)
        self.attributes += [(tag, *pair) for pair in attributes]

    def handle_endtag(self, tag):
        assert self.open and self.open[-1] == tag, f"</{tag}> closes {self.open[-1:]}"
        self.open.pop()
        self._texts_of_open.pop()

    def handle_data(self, data):
        if "style" not in self.open:
            self.texts.append(data.strip())
        for text in self._texts_of_open:
            text.append(data)

    def elements(self, tag, css_class=""):
        """Return the texts of all elements with a tag, or only of those with a class."""
        return ["".join(text) for name, classes, text in self._elements if name == tag and css_class in [*classes, ""]]


def read_page(folder: Path) -> Page:
    return Page(write_report(folder).read_text(encoding="utf-8"))


def assert_self_contained(source: str) -> None:
    """Check that a page loads nothing from elsewhere, and that the identifiers of its charts do not collide."""
    page = Page(source)
    assert not {"script", "link", "img", "iframe", "object"} & set(page.tags)
    for tag, name, value in page.attributes:
        if name in ("href", "src", "xlink:href", "action"):
            assert value.startswith("#"), (tag, name, value)
    assert "@import" not in source
    assert all(target.startswith("#") for target in re.findall(r"url\(([^)]*)\)", source))
    identifiers = [value for _, name, value in page.attributes if name == "id"]
    assert len(identifiers) == len(set(identifiers))
