"""The report's page: what it says is what the report holds, whatever the names are."""

import dataclasses
import json
import math
import re
import sys
from html.parser import HTMLParser
from pathlib import Path

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from puorl.html.page import as_count, as_percent
from puorl.pu.alpha import alpha_estimate
from puorl.pu.report import Estimate, Selection, Shortcut
from puorl.pu.report_page import as_page

sys.path.insert(0, str(Path(__file__).parent))
sys.path.insert(0, str(Path(__file__).parents[1]))
from report_examples import (
    LONG,
    REPORTS,
    bare,
    behaviour,
    cannot_tell,
    clear,
    hostile,
    many_warnings,
)

from real_browser import WIDTHS, fits, needs_browser


class Content(HTMLParser):
    """Tags in order, attributes that lead elsewhere, and text outside the stylesheet."""

    def __init__(self, html):
        super().__init__()
        self.tags, self.addresses, self.text, self.headings = [], [], "", []
        self.ids, self._open = [], []
        self.feed(html)
        self.close()

    def handle_starttag(self, tag, attrs):
        self.tags.append(tag)
        self._open.append(tag)
        self.addresses += [v for k, v in attrs if k in ("src", "href", "srcset", "xlink:href")]
        self.ids += [v for k, v in attrs if k == "id"]
        assert not [k for k, _ in attrs if k.startswith("on")], attrs

    def handle_endtag(self, tag):
        while self._open and self._open.pop() != tag:
            pass

    def handle_data(self, data):
        if "style" not in self._open:
            self.text += data
            if self._open and self._open[-1] in ("h1", "h2", "h3"):
                self.headings.append((int(self._open[-1][1]), data))


def tile(html, name):
    """The text of the tile of that name."""
    start = html.index(f"<dt>{name}</dt>")
    return Content(html[start : html.index("</div>", start)]).text


@pytest.mark.parametrize("make", REPORTS)
def test_page_stands_alone_and_runs_nothing(make):
    html = as_page(make())
    content = Content(html)
    assert "<script" not in html.lower()
    assert "url(" not in html
    assert "@import" not in html
    assert not set(content.tags) & {"script", "iframe", "img", "object", "embed", "form", "base"}
    own = {f"#{name}" for name in content.ids} | {"data:,"}
    assert set(content.addresses) <= own
    html.encode("utf-8")  # a lone surrogate from a file name would fail here


@pytest.mark.parametrize("make", REPORTS)
def test_headings_are_in_order_and_pictures_have_words(make):
    html = as_page(make())
    levels = [level for level, _ in Content(html).headings]
    assert levels == [1] + [2] * (len(levels) - 1)
    assert len(levels) == 10
    pictures = re.findall(r"<svg.*?</svg>", html, re.DOTALL)
    assert pictures
    for picture in pictures:
        named = 'role="img"' in picture and "<title>" in picture and "<desc>" in picture
        assert named or 'aria-hidden="true"' in picture
        assert "nan" not in "".join(re.findall(r'(?: d|cx|x|y|points)="([^"]*)"', picture))


@pytest.mark.parametrize("make", [clear, behaviour, cannot_tell, many_warnings])
def test_numbers_are_the_reports(make):
    report = make()
    html = as_page(report)
    text = Content(html).text
    quality = report.quality
    assert as_count(quality.num_kept) in tile(html, "Rows kept")
    assert as_count(quality.num_unlabelled) in tile(html, "Rows kept")
    for name in ("recall", "precision", "purity"):
        measured = getattr(quality, name)
        shown = tile(html, name.capitalize())
        assert f"{as_percent(measured.value)}\n" in shown
        low = as_percent(measured.low).removesuffix("\u00a0%")
        assert f"95 % interval: {low}–{as_percent(measured.high)}" in shown
    for estimate in report.alphas:
        assert f"{estimate.method} {as_percent(estimate.value)}" in text
    for measured in (
        report.shortcut.auroc,
        report.shortcut.auroc_behaviour,
        report.selection.auroc,
    ):
        assert f"{measured.value:.3f} ({measured.low:.3f}–{measured.high:.3f})" in text
    for each in report.doubtful:
        row = re.search(rf"<tr><th[^>]*>{each.episode}</th>.*?</tr>", html)
        assert row is not None
        cells = re.findall(r"<td[^>]*>(.*?)</td>", row[0])
        assert cells == [
            as_count(each.num_rows),
            f"{each.mean_score:.3f}",
            as_percent(each.kept_fraction),
        ]
    for each in report.columns:
        assert f"{each.kind.capitalize()}: {each.sentence}" in text
    for sentence in (report.advice, report.selection.sentence, *report.warnings):
        assert sentence in text


def test_upper_estimates_are_called_so_only_where_they_are():
    upper, plain = as_page(cannot_tell()), as_page(clear())
    assert "at most 95.0\u00a0%" in tile(upper, "Precision")
    assert "at most" in tile(upper, "Purity")
    assert "at most" not in tile(upper, "Recall")
    assert "upper estimates" in upper
    assert "at most" not in Content(plain).text
    assert "upper estimates" not in plain


def test_a_precision_of_which_nothing_is_known_has_no_estimate():
    report = cannot_tell()
    quality = dataclasses.replace(report.quality, precision=Estimate(0.95, 0, 1))
    html = as_page(dataclasses.replace(report, quality=quality))
    for name in ("Precision", "Purity"):
        assert "not known" in tile(html, name)
        assert "at most" not in tile(html, name)
    assert "95 % interval: 0–100\u00a0%" in tile(html, "Precision")
    assert "upper estimates" not in html


def test_each_verdict_has_its_own_words():
    pages = {make: as_page(make()) for make in (clear, behaviour, cannot_tell, many_warnings)}
    headlines = {re.search(r'class="headline">(.*?)<', html)[1] for html in pages.values()}
    assert len(headlines) == 4
    assert "Verdict: cannot tell" in pages[cannot_tell]
    assert "A shortcut: state and action alone explain 98\u00a0%" in pages[behaviour]
    assert "No shortcut: state and action alone explain 18\u00a0%" in pages[clear]
    assert "close to chance" in pages[cannot_tell]
    assert "No, they do not look like one." in pages[many_warnings]
    assert "Yes, as far as is known." in pages[clear]


def test_agreement_is_said_as_the_report_has_it():
    report = clear()
    assert "estimates of alpha agree:" in as_page(report)
    apart = dataclasses.replace(report, alphas_agree=False)
    assert "estimates of alpha disagree:" in as_page(apart)
    alone = dataclasses.replace(report, alphas=report.alphas[:1])
    assert "no second one to compare" in as_page(alone)
    assert "Alpha was not estimated." in as_page(dataclasses.replace(report, alphas=()))


def test_intervals_that_span_nearly_everything_do_not_agree():
    report = clear()
    alphas = (report.alphas[0], alpha_estimate(0.5, (0.02, 0.98), method="dedpul"))
    html = as_page(dataclasses.replace(report, alphas=alphas))
    assert "the interval of dedpul is 2.0–98.0" in html
    assert "alpha agree" not in html


def test_what_is_not_known_is_called_unsure():
    report = clear()
    shortcut = Shortcut(Estimate(0.98, 0.5, 1.0), Estimate(0.97, 0.4, 1.0), 0.97, False, False)
    selection = Selection(Estimate(0.5, 0.0, 1.0), True, "Cannot be said.", False)
    unsure = dataclasses.replace(report, shortcut=shortcut, selection=selection)
    text = Content(as_page(unsure)).text
    assert "Unclear, since the intervals are too wide" in text
    assert "No shortcut" not in text
    assert "Unsure." in text
    assert "Yes, as far as is known." not in text


def test_unknown_precision_is_no_upper_estimate():
    report = cannot_tell()
    nothing = Estimate(math.nan, math.nan, math.nan)
    quality = dataclasses.replace(report.quality, num_kept=0, precision=nothing)
    html = as_page(dataclasses.replace(report, quality=quality))
    assert "upper estimates" not in html
    assert "at most" not in tile(html, "Purity")


def test_values_of_a_column_are_listed_under_its_name():
    report = dataclasses.replace(clear(), unit="column:robot_id")
    assert "Values of robot_id worth a look" in as_page(report)
    assert "no value is in doubt" in as_page(dataclasses.replace(report, doubtful=()))
    assert "Episodes worth a look" in as_page(clear())


def test_warnings_are_all_there_and_announced_at_the_top():
    html = as_page(many_warnings())
    assert html.count('<li class="caution">') == 14
    assert '<a href="#warnings">14 warnings below</a>' in html
    assert '<a href="#warnings">1 warning below</a>' in as_page(cannot_tell())
    assert "No warnings." in as_page(clear())
    assert "#warnings" not in as_page(clear())


def test_unknown_is_said_not_drawn():
    html = as_page(bare())
    text = Content(html).text
    assert "not known" in tile(html, "Recall")
    assert "no interval" in tile(html, "Recall")
    assert text.count("This could not be checked.") == 2
    assert "None is listed" in text
    assert "No scores were recorded." in text
    assert re.search(r"\bnan\b", text, re.IGNORECASE) is None


def test_settings_are_listed_and_the_whole_report_is_inside():
    report = clear()
    html = as_page(report)
    rows = dict(re.findall(r'<tr><th scope="row">([\w.]+)</th><td>(.*?)</td></tr>', html))
    assert rows["network.hidden"] == "[256, 256]"
    assert rows["seed"] == "0"
    assert rows["split"] == report.settings["split"]
    whole = Content(html).text.split("The whole report as JSON")[1]
    assert json.loads(whole) == json.loads(json.dumps(report.to_dict()))


def test_page_is_repeatable_and_small():
    assert as_page(clear()) == as_page(clear())
    assert len(as_page(many_warnings()).encode()) < 60_000


def test_long_names_are_cut_but_kept_whole_in_the_json():
    html = as_page(hostile())
    before, whole = html.split("The whole report as JSON")
    assert max(len(word) for word in Content(before).text.split()) < 1100
    assert LONG in whole


@settings(max_examples=40)
@given(st.text(max_size=60), st.text(max_size=60))
def test_no_name_becomes_code(name, sentence):
    plain = Content(as_page(behaviour())).tags
    report = dataclasses.replace(
        behaviour(),
        advice=sentence or "a",
        warnings=(name, sentence),
        alphas=tuple(alpha_estimate(a.value, a.interval, method=name) for a in behaviour().alphas),
        columns=tuple(
            dataclasses.replace(c, column=name, kind=name, sentence=sentence)
            for c in behaviour().columns
        ),
        selection=dataclasses.replace(behaviour().selection, sentence=sentence or "a"),
        doubtful=tuple(dataclasses.replace(d, episode=name) for d in behaviour().doubtful),
        unit=name,
    )
    assert Content(as_page(report)).tags == plain


@needs_browser
@pytest.mark.parametrize("width", WIDTHS)
@pytest.mark.parametrize("make", REPORTS)
def test_nothing_sticks_out_in_a_real_browser(make, width, tmp_path):
    html = as_page(make())
    assert fits(html, width, tmp_path).num_figures == html.count('role="img"')


def test_soft_weights():
    plain = clear()
    soft = dataclasses.replace(
        plain, quality=dataclasses.replace(plain.quality, mean_weight=0.3127)
    )
    html = as_page(soft)
    text = Content(html).text
    assert f"All {as_count(plain.quality.num_unlabelled)} unlabelled rows go on to training" in text
    assert "the mean weight is 0.313" in text
    assert as_count(plain.quality.num_kept) in tile(html, "Weight 0.5 or more")
    assert "weighs 0.5 or more" in tile(html, "Recall")
    assert "Rows kept" not in text
    assert "mean weight" not in Content(as_page(plain)).text
