"""Wiki markup becomes prose, in hand-written cases and, without remnants of markup, in real dumps."""

from __future__ import annotations

import random
import re

import pytest
from data_utils.text.markup import clean_wikitext

from data_utils.text.sources import dump_source
from tests.support.real_data import real_data

CASES = [
    ("bold and italic", "'''Rain''' is ''liquid'' '''''water'''''.", ["Rain is liquid water."]),
    ("apostrophe before bold", "The ship''''s''' crew.", ["The ship's crew."]),
    ("plain link", "A [[cat]] sat.", ["A cat sat."]),
    ("labelled link", "Two [[cat|cats]] sat.", ["Two cats sat."]),
    ("link with tail", "Two [[cat]]s sat.", ["Two cats sat."]),
    ("pipe trick", "The [[Mercury (planet)|]] is hot.", ["The Mercury is hot."]),
    ("section link", "See the [[Moon#Orbit|orbit]] of it.", ["See the orbit of it."]),
    ("colon link to a category", "All [[:Category:Cats|cats]] sleep.", ["All cats sleep."]),
    ("wiktionary link", "The word [[wikt:cat]] is short.", ["The word cat is short."]),
    ("category and interwiki", "A cat sat.\n[[Category:Cats]]\n[[de:Katze]]", ["A cat sat."]),
    ("template", "A {{small thing}}cat sat.", ["A cat sat."]),
    ("nested templates", "A {{a|{{b|{{c}}|x=[[y|z]]}}\n|d}}cat sat.", ["A cat sat."]),
    ("template over lines", "{{Infobox cat\n| name = Tom\n| legs = {{nowrap|4}}\n}}\nTom is a cat.", ["Tom is a cat."]),
    ("template parameter", "A {{{1|dog}}}cat sat.", ["A cat sat."]),
    ("convert", "It is {{convert|5|km|mi}} long.", ["It is 5 km long."]),
    ("convert a range", "It is {{convert|5|-|10|km|mi}} long.", ["It is 5–10 km long."]),
    ("language template", "He said {{lang|fr|bonjour}} to us.", ["He said bonjour to us."]),
    ("dash template", "From 1914{{ndash}}1918 it lasted.", ["From 1914–1918 it lasted."]),
    (
        "quotation template",
        "He wrote:\n{{quote|We are all here now.|Tom}}\nIt was so.",
        ["We are all here now.", "It was so."],
    ),
    ("nested kept template", "It is {{nowrap|{{convert|2|m}}}} high.", ["It is 2 m high."]),
    ("unclosed template", "{{broken\nA cat sat.", ["A cat sat."]),
    ("stray closing braces", "A cat}} sat.", ["A cat sat."]),
    ("table", '{| class="wikitable"\n|-\n! a !! b\n|-\n| 1 || 2\n|}\nA cat sat.', ["A cat sat."]),
    ("nested tables", "{|\n|-\n|\n{|\n| inner\n|}\n| more\n|}\nA cat sat.", ["A cat sat."]),
    ("table with templates", "{|\n| {{a|b|}} || {{c\n|d}}\n|}\nA cat sat.", ["A cat sat."]),
    ("reference", "A cat sat.<ref>Tom, ''Cats'', [http://x.org p.&nbsp;3].</ref>", ["A cat sat."]),
    ("named reference", 'A cat<ref name="a/b">x</ref> sat.<ref name="a" /> It slept.', ["A cat sat. It slept."]),
    ("self-closed before full reference", "A<ref name=x/> cat sat.<ref>y</ref>", ["A cat sat."]),
    ("unclosed reference", "A cat sat.<ref>never closed\nA dog ran.", ["A cat sat.", "A dog ran."]),
    ("file with nested links", "[[File:Cat.jpg|thumb|A [[cat|fine cat]] in [[Rome]]]]A cat sat.", ["A cat sat."]),
    ("image with external link", "[[Image:a.png|right|by [http://x.org Tom]]]A cat sat.", ["A cat sat."]),
    ("external link", "See [http://example.org/a the site] for it.", ["See the site for it."]),
    ("external link without text", "A cat [http://example.org] sat.", ["A cat sat."]),
    ("bare address", "A cat https://example.org/a?b=c sat.", ["A cat sat."]),
    ("lists", "A cat sat.\n* one.\n# two.\n; term : meaning.\n: indented.\n** deeper.", ["A cat sat."]),
    ("headings", "== History ==\nA cat sat.\n=== Later ===\nIt slept.", ["A cat sat.", "It slept."]),
    (
        "appendix sections",
        "A cat sat.\n== References ==\nTom wrote it.\n=== Sub ===\nMore.\n== Later ==\nIt slept.",
        ["A cat sat.", "It slept."],
    ),
    ("html comment", "A cat <!-- not a dog\n or two -->sat.", ["A cat sat."]),
    ("html tags", "H<sub>2</sub>O is <b>wet</b>.<br />It flows.", ["H2O is wet. It flows."]),
    ("blockquote", "<blockquote>A cat sat.</blockquote>", ["A cat sat."]),
    (
        "private use",
        "The letter \ue041 of a font of Tengwar is here.",
        ["The letter \ue041 of a font of Tengwar is here."],
    ),
    ("nowiki", "Write <nowiki>[[x]] and {{y}}</nowiki> for it.", ["Write [[x]] and {{y}} for it."]),
    ("magic words", "__NOTOC__\nA cat sat.__TOC__", ["A cat sat."]),
    ("formula", "The sum <math>\\sum_{i} x_{i}</math> grows.", ["The sum grows."]),
    ("simple formula", "The number <math>n</math> grows.", ["The number n grows."]),
    ("gallery", "<gallery>\nFile:A.jpg|A [[cat]].\n</gallery>\nA cat sat.", ["A cat sat."]),
    ("source code", '<syntaxhighlight lang="c">\nint a[2] = {{1}};\n</syntaxhighlight>A cat sat.', ["A cat sat."]),
    ("entities", "Tom&nbsp;&amp; Jerry &ndash; 5&thinsp;km &amp;ndash; x&sup2;.", ["Tom & Jerry – 5 km – x²."]),
    ("emptied brackets", "Rome ({{IPA|x}}; {{lang-la}}) is old.", ["Rome is old."]),
    ("half emptied brackets", "Rome ({{IPA|x}}, Latin ''Roma'') is old.", ["Rome (Latin Roma) is old."]),
    ("space before punctuation", "Rome {{citation}}, the city, is old {{citation}}.", ["Rome, the city, is old."]),
    ("label without sentence", "Cat sounds\nA cat sat.", ["A cat sat."]),
    ("Chinese", "'''数学'''是研究[[數量]]的学科。<ref>甲</ref>", ["数学是研究數量的学科。"]),
    ("Chinese variants", "这是-{zh-hans:计算机;zh-hant:電腦}-。", ["这是计算机。"]),
    ("Arabic", "'''القط''' حيوان [[أليف]].", ["القط حيوان أليف."]),
    ("redirect page", "#REDIRECT [[Cat]]", []),
    ("nothing", "", []),
]


@pytest.mark.parametrize(("wikitext", "expected"), [case[1:] for case in CASES], ids=[case[0] for case in CASES])
def test_clean_wikitext(wikitext: str, expected: list[str]) -> None:
    assert clean_wikitext(wikitext) == expected


def test_namespaces_of_the_wiki_are_hidden() -> None:
    text = "[[Файл:Котка.jpg|мини|Една котка.]]Котката спи."
    assert clean_wikitext(text, {"файл"}) == ["Котката спи."]


def test_random_markup_leaves_no_brackets() -> None:
    marks = ["{{", "}}", "[[", "]]", "{|", "|}", "|", "<ref>", "</ref>", "<ref/>", "''", "'''", "==", "*"]
    marks += ["[", "]", "{", "}", "<math>", "</math>", "File:", "<!--", "-->", "lang|fr|", "-{", "\n"]
    marks += ["a cat sat. ", "http://x.org "]
    chance = random.Random(0)
    for _ in range(3000):
        soup = "".join(chance.choices(marks, k=chance.randint(1, 60)))
        text = "\n".join(clean_wikitext(soup))
        assert not re.search(r"\{\{|\}\}|\[\[|\]\]|\{\||\|\}|''|<ref", text), soup


def test_deep_nesting() -> None:
    text = "{{a|" * 3000 + "}}" * 3000 + "A cat sat."
    assert clean_wikitext(text) == ["A cat sat."]


DEBRIS = re.compile(
    r"\{\{|\}\}|\[\[|\]\]|<ref|\|-|\{\||\|\}|''|&[a-z]+;|==|</?[a-z]+[ >]|\(\)|\( | ,|__|  "
    r"|\bthumb\||\d+px|https?://"
)


@pytest.mark.parametrize(
    ("name", "words"),
    [
        ("enwiki-latest-pages-articles1.xml-p000000010p000030302-shortened.bz2", 380_000),
        ("enwiki-table-markup.xml.bz2", 15_000),
        ("bgwiki-latest-pages-articles-shortened.xml.bz2", 900),
    ],
)
def test_no_debris_in_real_dumps(name: str, words: int) -> None:
    path = real_data("wikipedia_dump", name)
    source = dump_source(path)
    result: list[str] = []
    count = 0
    for document in source.read():
        for paragraph in source.paragraphs(document):
            count += len(paragraph.split())
            result += [paragraph[max(0, hit.start() - 30) : hit.end() + 30] for hit in DEBRIS.finditer(paragraph)]
    assert result == []
    assert count >= words  # dropping everything would also give clean text
