"""The parts of small MediaWiki dumps."""

from __future__ import annotations

HEAD = """<mediawiki xmlns="http://www.mediawiki.org/xml/export-0.11/" version="0.11" xml:lang="en">
  <siteinfo>
    <base>https://en.wikipedia.org/wiki/Main_Page</base>
    <namespaces>
      <namespace key="0" case="first-letter" />
      <namespace key="10" case="first-letter">Template</namespace>
    </namespaces>
  </siteinfo>
"""
TAIL = "</mediawiki>\n"


def page(title: str, text: str, namespace: int = 0) -> str:
    number = sum(map(ord, title))
    return (
        f"  <page>\n    <title>{title}</title>\n    <ns>{namespace}</ns>\n    <id>{number}</id>\n    <revision>\n"
        f"      <id>{number}</id>\n      <text>{text}</text>\n    </revision>\n  </page>\n"
    )
