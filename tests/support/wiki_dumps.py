"""The parts of small MediaWiki dumps."""

from __future__ import annotations

HEAD = '<mediawiki xmlns="http://www.mediawiki.org/xml/export-0.11/"><siteinfo><dbname>x</dbname></siteinfo>'


def page(title: str, text: str, namespace: int = 0, extra: str = "", model: str = "wikitext") -> str:
    return (
        f"<page><title>{title}</title><ns>{namespace}</ns>{extra}<revision><model>{model}</model>"
        f"<text>{text}</text></revision></page>"
    )
