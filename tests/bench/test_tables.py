"""The same numbers in every format, holes as holes, and no text that breaks a format."""

import io
import re
import sys
from html.parser import HTMLParser
from pathlib import Path

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st
from rich.console import Console

from puorl.bench.report import report_rows
from puorl.bench.results import Named, Reference
from puorl.bench.tables import (
    HOLE,
    Entry,
    Table,
    as_html,
    as_latex,
    as_markdown,
    as_rich,
    latex_document,
)

sys.path.insert(0, str(Path(__file__).parent))
import synthetic_store
from synthetic_store import BROKEN, failed, row

PAPER = Reference.load("paper")
HOSTILE = 'a|b & 50% $x_1$ {#} ~^ \\end <script>alert("1")</script> `q` *b* ξ 漢 \x00\u202e …'


@pytest.fixture(scope="module")
def report():
    latest = {}
    for each in synthetic_store.rows():
        if each["run"] not in latest or each["error"] is None:
            latest[each["run"]] = each
    return report_rows(latest.values(), reference=PAPER)


def table(report, name):
    [found] = [each for each in report.tables if each.name == name]
    return found


def entry(found, row_name, column):
    [line] = [line for line in found.rows if line[0].text == row_name]
    return line[found.header.index(column)]


def printed(found, width=400):
    out = io.StringIO()
    Console(file=out, width=width).print(as_rich(found, width))
    return out.getvalue()


class Cells(HTMLParser):
    """Text of each cell, row by row."""

    def __init__(self, html):
        super().__init__()
        self.rows = []
        self.feed(html)

    def handle_starttag(self, tag, attrs):
        if tag == "tr":
            self.rows.append([])
        elif tag in ("th", "td"):
            self.rows[-1].append("")

    def handle_data(self, data):
        if self.rows and self.rows[-1]:
            self.rows[-1][-1] += data


def test_there_is_a_table_for_everything(report):
    assert [each.name for each in report.tables] == [
        "scores-1", "scores-2", "scores-3", "reference", "iqm", "improvement", "profile",
        "spread-1",
    ]  # fmt: skip


def test_score_is_mean_and_student_interval_with_the_papers_beside(report):
    seen = entry(table(report, "scores-1"), "Hopper ME/ME", "OLP")
    values = [
        np.mean(row("body_mass", "hopper", "ME/ME", "olp", seed)["scores"]) for seed in range(5)
    ]
    half = 2.7764451 * np.std(values, ddof=1) / np.sqrt(5)
    assert seen.text == f"{np.mean(values):.1f} ± {half:.1f}"
    assert seen.beside == "28.6 ± 7.1"


def test_filter_stands_beside_pu(report):
    found = table(report, "scores-1")
    at = found.header.index("PU")
    assert found.header[at : at + 4] == ("PU", "alpha", "accuracy", "Oracle")
    assert entry(found, "Walker2d ME/ME", "alpha") == Entry("0.290", "0.293")
    assert entry(found, "Walker2d ME/ME", "accuracy") == Entry("98.50 %", "99.00 %")


def test_the_best_without_truth_is_strong(report):
    found = table(report, "scores-1")
    assert entry(found, "Hopper ME/ME", "PU").strong
    assert sum(each.strong for line in found.rows for each in line) == len(found.rows)
    assert not any(entry(found, line[0].text, "Oracle").strong for line in found.rows)


def test_holes_are_dashes_with_their_reason(report):
    found = table(report, "scores-1")
    whole = entry(found, "Walker2d ME/R", "IGDF")
    assert (whole.text, found.footnotes[whole.marks]) == (HOLE, BROKEN)
    part = entry(found, "Hopper ME/R", "DARA")
    assert part.text != HOLE
    assert [found.footnotes[mark] for mark in part.marks.split(",")] == [
        "without seed 3: not run",
        f"without seed 4: {BROKEN}",
    ]
    assert entry(found, "Hopper ME/ME", "PU").marks == ""  # repaired later: no hole


def test_a_method_that_was_not_run_is_a_hole():
    rows = [row("body_mass", "hopper", q, "olp", 0) for q in ("ME/ME", "ME/R")]
    found = table(report_rows([*rows, row("body_mass", "hopper", "ME/R", "pu", 0)]), "scores-1")
    seen = entry(found, "Hopper ME/ME", "PU")
    assert (seen.text, found.footnotes[seen.marks]) == (HOLE, "not run")
    assert "±" not in entry(found, "Hopper ME/R", "PU").text  # one seed


def test_the_paper_can_be_left_out():
    rows = [row("body_mass", "hopper", "ME/ME", m, s) for m in ("olp", "pu") for s in (0, 1)]
    report = report_rows(rows)
    assert "reference" not in [each.name for each in report.tables]
    found = table(report, "scores-1")
    assert {each.beside for each in found.rows[0]} == {"", "0.293"}
    assert "paper" not in found.legend


def test_a_smaller_run_is_not_taken_for_a_reproduction():
    rows = [row("body_mass", "hopper", "ME/ME", "olp", s, steps=2000) for s in (0, 1)]
    report = report_rows(rows, reference=PAPER)
    found = table(report, "scores-1")
    assert "2,000 updates" in found.title
    assert "no reproduction" in found.legend
    assert "reference" not in [each.name for each in report.tables]


def test_aggregates_say_which_settings_they_are_over(report):
    found = table(report, "iqm")
    line = found.rows[0]
    assert line[0].text.endswith("body mass")
    assert "5 of 6 settings" in found.footnotes[line[0].marks]
    [overview] = [o for o in report.overviews if o.scope == "all shifts"]
    seen = overview.iqm[Named("pu")]
    assert entry(found, found.rows[2][0].text, "PU") == Entry(
        f"{seen.estimate.value:.1f}", f"{seen.estimate.low:.1f} to {seen.estimate.high:.1f}"
    )
    assert (seen.num_settings, seen.num_runs) == (7, 35)
    assert overview.improvement[Named("olp")].estimate.value == 1
    assert overview.improvement[Named("oracle")].num_settings == 8


def test_both_variances_are_shown_where_there_are_splits(report):
    found = table(report, "spread-1")
    assert [line[0].text for line in found.rows] == ["Hopper ME/ME"]
    assert entry(found, "Hopper ME/ME", "PU").beside == "3, 11"
    assert entry(found, "Hopper ME/ME", "OLP").text.endswith("/ ?")


def test_ours_against_the_papers_by_hand():
    rows = [row("body_mass", "hopper", "ME/ME", "olp", s, scores=[48.6 + s]) for s in (-1, 0, 1)]
    found = table(report_rows(rows, reference=PAPER), "reference")
    assert [each.text for each in found.rows[0]] == [
        "OLP", "1", "+20.0", "1 of 1", "1 of 1", "0 of 1",
    ]  # fmt: skip


def test_all_formats_hold_the_same_numbers(report):
    for found in report.tables:
        texts = {
            "text": printed(found),
            "markdown": as_markdown(found),
            "latex": as_latex(found).replace(r"$\pm$", "±").replace(r"\%", "%").replace("--", "–"),
            "html": " ".join(cell for line in Cells(as_html(found)).rows for cell in line),
        }
        for line in found.rows:
            for each in line[1:]:
                for name, text in texts.items():
                    assert each.text in text, name
                    assert each.beside in text, name


@pytest.mark.parametrize("width", [60, 80, 120])
def test_a_narrow_terminal_breaks_no_word_and_no_number(report, width):
    for found in report.tables:
        text = printed(found, width)
        assert max(map(len, text.splitlines())) <= width
        words = [set(each.replace("─", " ").split()) for each in (text, printed(found))]
        assert words[0] == words[1]
        for line in found.rows:
            assert all(each.text in text and each.beside in text for each in line[1:])


def test_a_table_too_wide_becomes_several_with_the_names_of_the_rows(report):
    text = printed(table(report, "scores-1"), 80)
    heads = [line.split() for line in text.splitlines() if line.startswith(" Setting")]
    assert heads == [
        ["Setting", "OLP", "Sharing-All", "DARA", "IGDF"],
        ["Setting", "PU", "alpha", "accuracy", "Oracle"],
    ]
    assert text.count("Hopper ME/ME") == 2


def test_heads_and_names_are_broken_before_the_table_is():
    row = (Entry("near ten\u00a0%"), Entry("1"))
    lines = printed(Table("t", "", ("Method", "mean difference"), (row,)), 23).splitlines()
    assert [line.split() for line in lines[2:4]] == [["mean"], ["Method", "difference"]]
    # A number stays with its sign.
    assert [line.strip() for line in lines[5:7]] == ["near                1", "ten\u00a0%"]


def test_markdown_rows_have_a_cell_for_each_column(report):
    for found in report.tables:
        lines = [x for x in as_markdown(found).splitlines() if x.startswith("|")]
        assert len(lines) == len(found.rows) + 2
        for line in lines:
            assert len(re.findall(r"(?<!\\)\|", line)) == len(found.header) + 1


def unescaped(latex):
    return re.sub(r"\\[\\{}$&#_%]", "", latex)


def check_latex(text, columns):
    plain = unescaped(text)
    assert text.isascii()
    assert plain.count("{") == plain.count("}")
    assert plain.count("$") % 2 == 0
    assert "#" not in plain
    body = text[text.index("\\midrule") : text.index("\\bottomrule")]
    # Line ends inside a stack are no ends of rows.
    rows = [r for r in re.split(r" \\\\\n", body.replace("\\midrule\n", "")) if r.strip()]
    for each in rows:
        assert each.lstrip()[0] not in "[*"
        assert len(re.findall(r"(?<!\\)&", each)) == columns - 1
    outside_maths = re.sub(r"\$[^$]*\$", "", plain)
    assert "_" not in outside_maths
    assert "^" not in outside_maths
    begun, ended = (re.findall(rf"\\{word}{{(\w+)}}", text) for word in ("begin", "end"))
    assert sorted(begun) == sorted(ended)


def test_latex_is_well_formed(report):
    for found in report.tables:
        check_latex(as_latex(found), len(found.header))
    whole = latex_document(report.tables)
    assert whole.startswith("\\documentclass")
    assert whole.rstrip().endswith("\\end{document}")


@given(st.text(max_size=30) | st.just(HOSTILE))
def test_no_text_breaks_a_format(text):
    found = Table(
        "t", f"title {text}", ("Setting", f"m {text}"),
        ((Entry(f"x {text}", text), Entry(f"1.0 {text}", text, "a", strong=True)),),
        text, {"a": text},
    )  # fmt: skip
    check_latex(as_latex(found), 2)
    bare = Table("t", "", ("Setting", "m"), ((Entry(f"[{text}"), Entry("1")),))
    check_latex(as_latex(bare), 2)
    lines = [line for line in as_markdown(found).split("\n") if line.startswith("| ")]
    assert len(lines) == 3
    assert all(len(re.findall(r"(?<!\\)(?:\\\\)*\|", line)) == 3 for line in lines)
    html = as_html(found)
    assert "<script" not in html
    assert [len(line) for line in Cells(html).rows] == [2, 2]
    printed(found)
    printed(found, 10)


def test_footnotes_go_on_after_z():
    rows = [row("body_mass", "hopper", "ME/ME", "olp", seed) for seed in range(30)]
    rows += [
        failed("body_mass", "hopper", "ME/ME", "pu", seed, error=f"broken {seed}")
        for seed in range(30)
    ]
    found = table(report_rows(rows), "scores-1")
    marks = entry(found, "Hopper ME/ME", "PU").marks.split(",")
    assert (len(set(marks)), marks[0], marks[25:28]) == (30, "a", ["z", "aa", "ab"])
    assert found.footnotes["ab"] == "without seed 27: broken 27"
