"""Pieces of a page: escaped, well formed, and readable by machines that read aloud."""

import re
import string
import xml.etree.ElementTree as ET
from html import unescape
from html.parser import HTMLParser

import pytest
from hypothesis import given
from hypothesis import strategies as st

from puorl.html import page
from puorl.html.page import DARK, LIGHT, stylesheet

VOID = ("meta", "link", "br", "img")
ANY_TEXT = st.text(st.characters(), max_size=40)  # control characters and surrogates too


class Balanced(HTMLParser):
    """Fails where a tag is closed that was not the last one opened."""

    def __init__(self, html):
        super().__init__()
        self.stack, self.tags, self.text = [], [], ""
        self.feed(html)
        self.close()
        assert self.stack == []

    def handle_starttag(self, tag, attrs):
        self.tags.append((tag, dict(attrs)))
        if tag not in VOID:
            self.stack.append(tag)

    def handle_endtag(self, tag):
        assert self.stack.pop() == tag

    def handle_data(self, data):
        self.text += data


def pieces(text):
    """Every piece, with the same text in every place that takes one."""
    tile = page.Tile(text, text, text, interval=text, qualifier=text)
    return [
        page.paragraph(text),
        page.link(text, text),
        page.banner("good", text, text, text, page.link(text, text)),
        page.tiles([tile, tile]),
        page.table(text, [text, text], [[text, text], [text, text]], numeric=[1]),
        page.figure(page.Markup("<svg></svg>"), text),
        page.warning_list([text, text]),
        page.terms({text: text}),
        page.folded(text, text),
    ]


@given(ANY_TEXT)
def test_escaped_text_is_one_piece_of_text_in_html_and_xml(text):
    safe = page.escape(text)
    assert not set("<>\"'") & set(safe)
    element = ET.fromstring(f'<a b="{safe}">{safe}</a>')
    assert list(element) == []
    safe.encode("utf-8")


@given(st.text(string.printable.replace("\r", "").replace("\x0b", "").replace("\x0c", "")))
def test_printable_text_survives(text):
    assert unescape(page.escape(text)) == text


def test_text_that_turns_its_surroundings_around_is_replaced():
    assert page.escape("a\u202eb\x00c\ud800") == "a\ufffdb\ufffdc\ufffd"


@given(ANY_TEXT.filter(bool))
def test_text_never_adds_a_tag(text):
    whole = page.document(text, page.section(text, *pieces(text), anchor=text), lead=text)
    plain = page.document("a", page.section("a", *pieces("a"), anchor="a"), lead="a")
    tags = [tag for tag, _ in Balanced(whole).tags]
    assert tags == [tag for tag, _ in Balanced(plain).tags]


def test_document_has_what_a_reader_and_a_phone_need():
    html = page.document("Name & title", page.section("First", page.paragraph("words")), lead="so")
    tags = Balanced(html).tags
    assert ("html", {"lang": "en"}) in tags
    metas = {
        attrs.get("name", attrs.get("http-equiv")): attrs for tag, attrs in tags if tag == "meta"
    }
    assert metas["viewport"]["content"] == "width=device-width, initial-scale=1"
    assert metas["Content-Security-Policy"]["content"].startswith("default-src 'none'")
    assert html.startswith("<!DOCTYPE html>")
    assert "<title>Name &amp; title</title>" in html
    assert html.index("<h1>") < html.index("<h2>")
    assert "://" not in html
    assert "script" not in html


@pytest.mark.parametrize("tone", ["good", "caution", "bad", "neutral"])
def test_banner_says_in_words_and_by_a_mark_what_colour_says(tone):
    marks = {page.banner(each, "", "", "").split('true">')[1][0] for each in page._MARKS}
    assert len(marks) == 4
    html = page.banner(tone, "Verdict: so", "Headline", "Sentence.")
    assert {"Verdict: so", "Headline", "Sentence."} <= set(Balanced(html).text.split("\n"))


def test_table_names_rows_and_columns():
    html = page.table("Caption", ["Name", "Size"], [["a", "1"], ["b", "2"]], numeric=[1])
    root = ET.fromstring(html)
    assert root.findtext("caption") == "Caption"
    assert [(th.text, th.get("scope")) for th in root.iter("th")] == [
        ("Name", "col"),
        ("Size", "col"),
        ("a", "row"),
        ("b", "row"),
    ]
    assert [(td.text, td.get("class")) for td in root.iter("td")] == [
        ("1", "number"),
        ("2", "number"),
    ]


def test_tile_shows_only_what_it_is_given():
    bare = page.tiles([page.Tile("Name", "5", "Meaning")])
    assert "interval" not in bare
    assert "qualifier" not in bare
    full = page.tiles([page.Tile("Name", "5", "Meaning", interval="4-6", qualifier="at most")])
    assert "at most 5" in Balanced(full).text
    assert "4-6" in full


def test_no_warnings_are_said_and_empty_paragraphs_left_out():
    assert page.warning_list([]) == "<p>No warnings.</p>"
    assert page.paragraph("") == ""
    assert page.join([page.Markup(""), page.Markup("<p>a</p>")]) == "<p>a</p>"


@given(st.text(max_size=50), st.integers(1, 60))
def test_shortened_text_fits_and_keeps_its_beginning(text, limit):
    short = page.shorten(text, limit)
    assert len(short) <= limit
    assert short == text or (short.endswith("…") and text.startswith(short[:-1]))
    assert (short == text) == (len(text) <= limit)


def test_folded_text_is_kept_as_it_is():
    text = '\n{\n  "a": "<b>"\n}'
    shown = re.search(r"<pre>\n(.*)</pre>", page.folded("Raw", text), re.DOTALL)
    assert shown is not None
    assert unescape(shown[1]) == text


@given(st.floats(0, 1), st.integers(0, 3))
def test_percent_is_near_and_never_pretends_to_be_all_or_nothing(share, digits):
    text = page.as_percent(share, digits=digits).removesuffix("\u00a0%")
    number = float(text.lstrip("<>"))
    assert abs(number - 100 * share) <= 0.5 * 10**-digits + 1e-9 or text[0] in "<>"
    assert (number in (0, 100) and text[0] not in "<>") == (share in (0, 1))
    if text[0] == "<":
        assert 100 * share < number
    if text[0] == ">":
        assert 100 * share > number


def test_intervals_and_counts():
    assert page.as_percent_range(0.0, 0.9999) == "0–>99.9\u00a0%"
    assert page.as_percent_range(float("nan"), 0.5) == ""
    assert page.as_percent(1.25) == "125.0\u00a0%"
    assert page.as_count(1234567) == "1,234,567"


def luminance(colour):
    """Relative luminance as the Web Content Accessibility Guidelines define it."""
    channels = [int(colour[i : i + 2], 16) / 255 for i in (1, 3, 5)]
    linear = [c / 12.92 if c <= 0.04045 else ((c + 0.055) / 1.055) ** 2.4 for c in channels]
    return sum(w * c for w, c in zip((0.2126, 0.7152, 0.0722), linear, strict=True))


def contrast(one, other):
    light, dark = sorted((luminance(one), luminance(other)), reverse=True)
    return (light + 0.05) / (dark + 0.05)


def test_contrast_is_computed_rightly():
    assert contrast("#000000", "#ffffff") == pytest.approx(21)
    assert contrast("#777777", "#ffffff") == pytest.approx(4.48, abs=0.005)  # a known pair


@pytest.mark.parametrize("theme", [LIGHT, DARK], ids=["light", "dark"])
def test_text_and_lines_stand_out(theme):
    for name in ("ink", "muted", "link", "series-1", "series-2", "series-3", "series-4"):
        for ground in ("paper", "card"):
            assert contrast(theme[name], theme[ground]) >= 4.5, (name, ground)
    for tone in ("good", "caution", "bad", "neutral"):
        assert contrast(theme[f"{tone}-ink"], theme[f"{tone}-paper"]) >= 4.5, tone


def test_every_colour_is_a_variable_of_both_themes():
    assert LIGHT.keys() == DARK.keys()
    rules = stylesheet()
    assert set(re.findall(r"var\(--([\w-]+)\)", rules)) == LIGHT.keys()
    assert "url(" not in rules
    assert "@import" not in rules


def test_braces_balance():
    rules = stylesheet()
    assert rules.count("{") == rules.count("}")
    assert "</" not in rules
