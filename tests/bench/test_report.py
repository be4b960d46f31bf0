"""The report as a page and as a command."""

import csv
import io
import json
import re
import subprocess
import sys
import xml.etree.ElementTree as ET
from html.parser import HTMLParser
from pathlib import Path

import pytest

from puorl.bench.report import (
    IMPROVEMENT,
    IQM,
    make_report,
    report_rows,
    to_csv,
    to_json,
    to_markdown,
)
from puorl.bench.report_page import (
    aggregate_figure,
    as_page,
    curve_figures,
    difference_figure,
    score_figure,
)
from puorl.bench.results import Named
from puorl.bench.stats import difference
from puorl.bench.store import Store
from puorl.cli.bench import BenchReport
from puorl.core.errors import ConfigError, DataError

sys.path.insert(0, str(Path(__file__).parent))
sys.path.insert(0, str(Path(__file__).parents[1]))
import synthetic_store
from synthetic_store import METHODS, failed, row

from real_browser import WIDTHS, fits, needs_browser


@pytest.fixture(scope="module")
def folder(tmp_path_factory):
    path = tmp_path_factory.mktemp("results")
    lines = [json.dumps(each) for each in synthetic_store.rows()]
    (path / "runs.jsonl").write_text("\n".join(lines) + '\n{"run": "torn')
    return path


@pytest.fixture(scope="module")
def report(folder):
    return make_report(folder, reference="paper")


class Content(HTMLParser):
    def __init__(self, html):
        super().__init__()
        self.tags, self.addresses, self.text, self.ids = [], [], "", []
        self.feed(html)
        self.close()

    def handle_starttag(self, tag, attrs):
        self.tags.append(tag)
        self.ids += [v for k, v in attrs if k == "id"]
        self.addresses += [v for k, v in attrs if k in ("src", "href", "srcset", "xlink:href")]
        assert not [k for k, _ in attrs if k.startswith("on")]

    def handle_data(self, data):
        self.text += data


def test_page_stands_alone(report):
    html = as_page(report)
    content = Content(html)
    assert not set(content.tags) & {"script", "iframe", "img", "object", "embed", "form", "base"}
    assert "url(" not in html
    assert set(content.addresses) == {"data:,"}
    assert len(content.ids) == len(set(content.ids))
    assert not re.search(r"\bnan\b", content.text.lower())
    assert as_page(report) == html


def test_page_says_what_the_tables_say(report):
    text = Content(as_page(report)).text
    for table in report.tables:
        for line in table.rows:
            for entry in line:
                assert entry.text in text
    assert "the last line is not whole" in text
    assert "versions: jax" in text
    assert "0.11.2" in text
    assert "split seed 2" in text  # of the data's fingerprints


def test_names_from_the_store_cannot_become_code():
    bad = "<script>alert(1)</script>"
    rows = [
        failed("body_mass", "hopper", "ME/ME", "olp", 0, error=bad),
        row(bad, bad, bad, bad, 0, learner=bad, versions={bad: bad}, config={bad: bad}),
        row(bad, bad, bad, bad, 1, learner=bad, config={bad: bad}),
    ]
    report = report_rows(rows, [bad])
    assert "<script" not in as_page(report)
    assert not re.search(r"(?<!\\)<script", to_markdown(report))
    json.loads(to_json(report))


@pytest.mark.parametrize("num", [0, 1])
def test_little_is_enough_for_every_format(num):
    rows = [failed("mixture", "hopper", "M/R", "dara", 0)]
    rows += [row("mixture", "hopper", "M/R", "pu", seed) for seed in range(num)]
    report = report_rows(rows)
    shown = "PU" in to_markdown(report)
    assert ("PU" in as_page(report).partition("How to read")[0]) == shown == bool(num)
    assert len(json.loads(to_json(report))["cells"]) == 1 + num


def test_json_holds_every_cell_and_no_nan(report):
    content = json.loads(to_json(report))
    assert len(content["cells"]) == 14 * 6
    [cell] = [
        c
        for c in content["cells"]
        if (c["body"], c["quality"], c["shift"], c["method"], c["labelled_fraction"])
        == ("hopper", "ME/ME", "body_mass", "olp", 0.01)
    ]
    assert list(cell["seeds"]) == ["0", "1", "2", "3", "4"]
    assert cell["reference"]["half_width"] == pytest.approx(7.1)
    assert cell["spread"]["split"] is None
    assert content["overviews"][0]["iqm"]["PU"]["value"] > 80
    assert content["overviews"][0]["improvement"]["OLP"]["num_settings"] == 6


def test_csv_has_a_line_for_every_cell_with_the_numbers_of_the_tables(report):
    lines = list(csv.DictReader(io.StringIO(to_csv(report))))
    cells = json.loads(to_json(report))["cells"]
    assert len(lines) == len(cells) > 10
    for line, cell in zip(lines, cells, strict=True):
        assert (line["method"], line["quality"]) == (cell["method"], cell["quality"])
        mean = cell["summary"] and cell["summary"]["mean"]
        assert line["mean"] == ("" if mean is None else str(mean))
    task = next(t for t in report.results.tasks if report.results.summary(t, Named("olp")))
    pu, olp = (report.results.summary(task, Named(name)) for name in ("pu", "olp"))
    low = next(line["pu_minus_this_low"] for line in lines if line["method"] == "olp")
    assert float(low) == difference(pu, olp).low


def test_command_prints_text_markdown_latex_and_json(folder, capsys):
    BenchReport(folder, reference=Path("paper")).run()
    text = capsys.readouterr().out
    assert "Hopper ME/ME" in text
    assert "28.6 ± 7.1" in text
    assert "note: runs.jsonl: the last line is not whole" in text
    BenchReport(folder, format="markdown").run()
    assert capsys.readouterr().out.startswith("# Benchmark report")
    BenchReport(folder, format="latex").run()
    latex = capsys.readouterr().out
    assert latex.startswith("\\documentclass")
    assert "28.6" not in latex
    BenchReport(folder / "runs.jsonl", json=True).run()
    assert json.loads(capsys.readouterr().out)["split_seed"] == 0


def test_a_pipe_is_as_wide_as_columns_says(folder, capsys, monkeypatch):
    widths = {}
    for columns in ("", "80", "100"):
        monkeypatch.setenv("COLUMNS", columns)
        BenchReport(folder).run()
        widths[columns] = max(map(len, capsys.readouterr().out.splitlines()))
    assert 70 < widths["80"] <= 80 < widths["100"] <= 100 < widths[""]


def test_command_writes_and_never_overwrites_unasked(folder, tmp_path, capsys):
    out = tmp_path / "tables"
    BenchReport(folder, format="all", out=out).run()
    assert sorted(p.name for p in out.iterdir()) == [
        "report.csv", "report.html", "report.md", "report.tex",
    ]  # fmt: skip
    assert f"wrote {out / 'report.html'}" in capsys.readouterr().out
    with pytest.raises(DataError, match="already exists"):
        BenchReport(folder, format="all", out=out).run()
    BenchReport(folder, format="all", out=out, force=True).run()
    BenchReport(folder, out=tmp_path / "report.txt").run()
    assert "Hopper ME/ME" in (tmp_path / "report.txt").read_text()
    assert sorted(p.name for p in folder.iterdir()) == ["runs.jsonl"]


def test_html_goes_beside_the_rows(tmp_path):
    Store(tmp_path).append(row("body_mass", "hopper", "ME/ME", "pu", 0))
    BenchReport(tmp_path, format="html").run()
    assert "<!DOCTYPE html>" in (tmp_path / "report.html").read_text()


def test_command_says_what_is_wrong(tmp_path):
    with pytest.raises(DataError, match=r"runs.jsonl: expected rows .* found none"):
        BenchReport(tmp_path).run()
    with pytest.raises(ConfigError, match="--json"):
        BenchReport(tmp_path, json=True, format="html").run()
    assert list(tmp_path.iterdir()) == []


def test_report_needs_no_jax():
    code = "import sys, puorl.cli.bench; assert 'jax' not in sys.modules"
    run = subprocess.run([sys.executable, "-c", code], capture_output=True, check=False)
    assert (run.returncode, run.stderr) == (0, b"")


@needs_browser
@pytest.mark.parametrize("width", WIDTHS)
def test_nothing_sticks_out_in_a_real_browser(report, width, tmp_path):
    html = as_page(report)
    seen = fits(html, width, tmp_path, may_move=True)  # its tables are wider than a phone
    assert seen.num_figures == html.count('role="img"') > 0


# ------------------------------------------------------------------------------ figures


PLACE = ("body_mass", "hopper", "ME/ME")


def report_of(methods=METHODS, seeds=(0, 1, 2), **changes):
    return report_rows([row(*PLACE, m, s, **changes) for m in methods for s in seeds])


@pytest.fixture(scope="module")
def full():
    return report_of()


def texts(svg):
    return ["".join(each.itertext()) for each in ET.fromstring(svg).iter("text")]


def test_scores_are_drawn_with_their_words(full):
    [task] = full.results.tasks
    words = texts(score_figure(full.results, task))
    for method in full.results.methods:
        summary = full.results.summary(task, method)
        assert method.title in words
        assert f"{summary.mean:.1f} ± {summary.half_width:.1f}" in words


def test_differences_are_pu_minus_the_other(full):
    [task] = full.results.tasks
    words = texts(difference_figure(full.results, task))
    assert [w for w in words if w.startswith("PU minus")] == [
        f"PU minus {name}" for name in ("OLP", "Sharing-All", "DARA", "IGDF", "Oracle")
    ]
    gain = full.results.summary(task, Named("pu")).mean
    gain -= full.results.summary(task, Named("olp")).mean
    assert [w for w in words if w.startswith(f"{gain:+.1f} (+")]
    assert "no difference" in words


def ticks(svg):
    return [word for word in texts(svg) if re.fullmatch(r"-?[\d,]+", word)]


def test_curves_have_at_most_four_methods_and_one_axis(full):
    [task] = full.results.tasks
    one, other = curve_figures(full.results, task)
    assert [w for w in texts(one) if w in ("PU", "Oracle", "OLP", "Sharing-All")] == [
        "PU", "Oracle", "OLP", "Sharing-All",
    ]  # fmt: skip
    assert {"PU", "Oracle", "DARA", "IGDF"} <= set(texts(other))
    heights = [
        [e.get("d") for e in ET.fromstring(svg).iter("path") if "grid" in e.get("class")]
        for svg in (one, other)
    ]
    # Both on the same axis, although OLP's low curve is in the first alone.
    assert len(heights[0]) == len(heights[1])
    assert "nan" not in one + other


def test_every_figure_has_pu_and_oracle():
    made = report_of(methods=("pu", "oracle", "olp", "dara", "own"))
    [task] = made.results.tasks
    first, second = curve_figures(made.results, task)
    assert {"PU", "Oracle", "OLP", "DARA"} <= set(texts(first))
    assert {"PU", "Oracle", "own"} <= set(texts(second))
    assert "own" not in texts(first)


def test_only_points_that_every_run_has_are_drawn():
    rows = [row(*PLACE, "pu", seed) for seed in (0, 1)]
    rows[1]["curve"] = rows[1]["curve"][:3]
    made = report_rows(rows)
    [svg] = curve_figures(made.results, made.results.tasks[0])
    assert "200" in ticks(svg)
    assert "600" in ticks(svg)
    assert "1,000" not in ticks(svg)


def test_nothing_is_drawn_of_nothing():
    made = report_of(methods=("olp",), seeds=(0,), curve=[], scores=None, returns=None, error="x")
    [task] = made.results.tasks
    assert score_figure(made.results, task) == ""
    assert difference_figure(made.results, task) == ""
    assert curve_figures(made.results, task) == ()
    [overview] = made.overviews
    assert [aggregate_figure(kind, overview) for kind in (IQM, IMPROVEMENT)] == ["", ""]


def test_a_single_seed_is_a_dot_without_interval():
    made = report_of(methods=("olp", "pu"), seeds=(0,))
    [task] = made.results.tasks
    assert not [word for word in texts(score_figure(made.results, task)) if "±" in word]
    assert difference_figure(made.results, task) == ""


def test_overview_pictures_name_every_method(full):
    [overview] = full.overviews
    assert {m.title for m in full.results.methods} <= set(texts(aggregate_figure(IQM, overview)))
    words = texts(aggregate_figure(IMPROVEMENT, overview))
    assert "over OLP" in words
    assert "over PU" not in words
    assert "neither is better" in words
