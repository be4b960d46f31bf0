"""Reports about machines, in a terminal and as a page: map, tables, and the one script."""

import base64
import csv
import dataclasses
import hashlib
import io
import json
import re
import subprocess
import sys
from pathlib import Path

import numpy as np
import pytest
from rich.console import Console

from puorl.core.run_folder import decode
from puorl.core.stats import Estimate
from puorl.pu.machines.findings import Finding
from puorl.pu.machines.report import MachineReport, UnitRow
from puorl.pu.report_page import as_page, machine_picture
from puorl.pu.report_text import as_text
from puorl.pu.unit_table import COLUMNS, chance_of_type, decision, doubtful, write_units

sys.path.insert(0, str(Path(__file__).parents[1]))
from real_browser import CHROMIUM, WIDTHS, fits, needs_browser

HOSTILE = '=<script>alert("x")</script>' + "pump" * 30


def report(num_units=12, *, names=None, gain=9.0):
    """Three types, one known unit, one unit of no type, one in doubt."""
    rng = np.random.default_rng(0)
    units = []
    for k in range(num_units):
        cluster = -1 if k == num_units - 1 else k % 3
        ours = cluster == 0
        units.append(
            UnitRow(
                name=f"P-{k:02d}" if names is None else names[k],
                num_rows=1_000 + 37 * k,
                labelled=k == 0,
                probability=1.0 if k == 0 else 0.6 if k == 3 else 0.98 if ours else 0.02,
                evidence=float(5 - k),
                misfit=0.1 * k,
                keep=ours,
                cluster=cluster,
                agreement=1.0,
                x=4.0 * cluster + rng.normal(),
                y=rng.normal(),
                spread=0.3,
            )
        )
    finding = Finding(gain=gain, behaviour_gain=0.0, overlap=0.8, num_labelled=1)
    return MachineReport(
        verdict=finding.verdict,
        advice=finding.advice,
        finding=finding,
        alpha=Estimate(0.3, 0.2, 0.4, "mixture"),
        recall=Estimate(0.9, 0.8, 1.0, "mixture"),
        precision=Estimate(float("nan"), float("nan"), float("nan"), "mixture"),
        agreement=0.97,
        units=tuple(units),
        view="dynamics",
        unit="column:pump",
        settings={"preset": "default"},
    )


def printed(made):
    file = io.StringIO()
    Console(file=file, width=80, highlight=False).print(as_text(made))
    return file.getvalue()


def test_text_says_verdict_numbers_types_and_units():
    text = printed(report())
    assert "machines differ" in text
    assert "Only one unit is known" in " ".join(text.replace("│", " ").split())
    assert "12 units of 3 types and 1 of no type: 1 known, 3 of the other 11 kept" in text
    assert "1 decision in doubt" in " ".join(text.split())
    assert re.search(r"alpha +30\.0 +20\.0 to 40\.0", text)
    assert re.search(r"precision +– +–", text)
    known, kept, unsure = re.split(r"\nknown: 1|\nkept: 3|\nin doubt: 1", text)[1:]
    assert "P-00" in known
    assert all(name in kept for name in ("P-03", "P-06", "P-09"))
    assert re.findall(r"P-\d\d", unsure) == ["P-03"]


def test_texts_of_the_mode_soft_are_of_weights():
    made = report()
    units = tuple(dataclasses.replace(u, is_weighed=not u.labelled) for u in made.units)
    odd = dataclasses.replace(made.finding, gain=0.5, num_odd=2).advise(2, is_soft=True)
    made = dataclasses.replace(made, units=units, advice=odd, settings={"mode": "soft"})
    text = " ".join(printed(made).replace("│", " ").split())
    assert "2 units that are unlike all others are weighed below 0.5" in text
    assert "3 of the other 11 weigh 0.5 or more (all are kept, with weights)" in text
    assert "of weight 0.5 or more: 3" in text
    assert "Fraction of the target's rows that weighs 0.5 or more" in text
    page = re.sub(r"<[^>]*>", " ", as_page(made))
    for shown in (text, page):
        assert "weighed" in shown
        assert not re.search(r"\bdropped\b|rows that is kept|kept rows|\bUnits kept\b", shown)
    assert decision(made.units[0]) == "known"
    back = decode(MachineReport, json.loads(json.dumps(made.to_dict())), Path("report.json"))
    assert back.is_soft
    assert {decision(row) for row in back.units[1:]} == {"weighed"}


def test_doubtful_units_are_nearest_to_even_odds_first():
    units = list(report().units)
    units[4] = dataclasses.replace(units[4], probability=0.45)
    units[5] = dataclasses.replace(units[5], agreement=0.5)
    units[0] = dataclasses.replace(units[0], agreement=0.5)  # known: there is nothing to doubt
    assert [row.name for row in doubtful(units)] == ["P-04", "P-03", "P-05"]


def with_names():
    """Two names, of which every unit has a probability; P-04 is in doubt between them."""
    made, classes = report(), ("ours", "worn", "new", "none of these")
    units = []
    for row in made.units:
        told = [row.cluster == k for k in (0, 1, 2, -1)]
        odds = [0.0, 0.6, 0.4, 0.0] if row.name == "P-04" else [float(each) for each in told]
        name = ("worn", "new")[row.cluster - 1] if row.cluster > 0 else ""
        chances = dict(zip(classes, odds, strict=True))
        units.append(dataclasses.replace(row, chances=chances, name_of_type=name))
    return dataclasses.replace(made, units=tuple(units))


def test_units_csv_has_the_probability_of_every_name(tmp_path):
    made = with_names()
    write_units(tmp_path / "units.csv", made.units)
    with open(tmp_path / "units.csv", newline="") as file:
        lines = {line["unit"]: line for line in csv.DictReader(file)}
    names = ["p_ours", "p_worn", "p_new", "p_none of these"]
    assert list(lines["P-04"]) == [*COLUMNS, *names]
    assert [float(lines["P-04"][name]) for name in names] == [0.0, 0.6, 0.4, 0.0]
    write_units(tmp_path / "plain.csv", report().units)
    assert (tmp_path / "plain.csv").read_text().splitlines()[0] == ",".join(COLUMNS)


def test_the_chance_of_the_type_is_shown_and_a_low_one_is_in_doubt():
    made = with_names()
    assert [row.name for row in doubtful(made.units)] == ["P-03", "P-04"]
    assert chance_of_type(made.units[4]) == 0.6
    assert chance_of_type(dataclasses.replace(made.units[4], cluster=3, name_of_type="")) == 0.0
    html = as_page(made)
    assert "Chance of type" in html
    assert "0.600" in html
    assert "Chance of type" not in as_page(report())
    content = json.loads(json.dumps(made.to_dict()))
    assert decode(MachineReport, content, Path("report.json")).units == made.units


def test_the_page_holds_all_units_and_one_alpha():
    made = report()
    html = as_page(made)
    table = html[html.index('<table class="sortable">') :]
    assert re.findall(r'<th scope="row">(P-\d\d)</th>', table) == [u.name for u in made.units]
    assert made.advice in html
    assert html.count("<dt>Alpha</dt>") == 2  # its tile, and its meaning
    assert html.count('class="place') == len(made.units) + 4  # and the legend
    assert html.count('class="ring') == len(made.units)


@pytest.mark.parametrize("gain", [9.0, 0.0])
def test_a_green_banner_needs_decisions_that_are_sure(gain):
    made = report(gain=gain)
    assert ('class="banner good"' in as_page(made)) is (gain > 3)
    units = tuple(dataclasses.replace(row, probability=0.5) for row in made.units)
    assert 'class="banner good"' not in as_page(dataclasses.replace(made, units=units))


def test_dropped_units_and_the_sentences_about_them_agree():
    weak = report(gain=1.2)
    assert weak.verdict == "neither"
    weak = dataclasses.replace(weak, advice=weak.finding.advise(8))
    for text in (as_page(weak), " ".join(printed(weak).split())):
        assert "No second type" not in text
        assert "12 units of perhaps 3 types" in text
    assert "A second type of machine is hardly visible" in as_page(weak)
    none = dataclasses.replace(weak, units=tuple(u for u in weak.units if u.keep))
    none = dataclasses.replace(none, advice=none.finding.advise(0))
    assert "No second type of machine is visible" in as_page(none)
    assert "4 units of one type: 1 known, 3 of the other 3 kept" in printed(none)
    known = dataclasses.replace(weak, units=tuple(
        u if u.keep else dataclasses.replace(u, probability=0.0) for u in weak.units
    ))  # fmt: skip
    assert weak.is_weak
    assert not known.is_weak  # units that the user named as others are no weak decisions


def nothing_seen():
    """All units of one type and in doubt, as where no second type is visible."""
    made = report(gain=-0.3)
    every = Estimate(0.5, 0.0, 1.0, "mixture")
    units = tuple(
        dataclasses.replace(row, keep=True, cluster=0, probability=1.0 if row.labelled else 0.5)
        for row in made.units
    )
    return dataclasses.replace(
        made, units=units, alpha=every, recall=every, precision=every, agreement=0.37
    )


def test_where_nothing_is_seen_no_number_looks_like_an_estimate():
    text = printed(nothing_seen())
    for name in ("alpha", "recall", "precision"):
        assert re.search(rf"{name} +unknown +0\.0 to 100\.0", text)
    assert "kept, all in doubt: 11" in text
    assert "\nin doubt" not in text
    assert "decisions: they depend on which model is asked." in " ".join(text.split())
    html = as_page(nothing_seen())
    assert html.count('<dd class="value">not known</dd>') == 3
    assert "Every decision is in doubt: see the table" in html
    assert html.count('<th scope="row">P-05</th>') == 1
    assert "of kept and of other units overlap" not in html
    assert "of kept and of other units overlap by 80" in as_page(report())
    assert "in doubt: 1" in printed(report())
    assert "they depend" not in printed(report())


def test_the_map_names_another_type_only_where_there_is_one():
    assert "from ours to the nearest other type" in as_page(report())
    weak = report(gain=1.2)
    for made in (nothing_seen(), dataclasses.replace(weak, advice=weak.finding.advise(8))):
        html = as_page(made)
        assert "nearest other type" not in html
        assert "along the likeliest cut in two" in html
        assert "units may lie apart in it by chance" in html


def test_negative_evidence_is_explained():
    made = report()
    found = dataclasses.replace(made.finding, behaviour_gain=-5.5)
    html = as_page(dataclasses.replace(made, finding=found))
    assert "one type of machine: 9.0 nats (4 are needed). The clearest view: dynamics." in html
    assert "none (one way explains the units better, by 5.5 nats)" in html


def test_units_are_in_natural_order_where_nothing_else_decides():
    names = [f"run {k}" for k in (1, 10, 11, 12, 2, 3, 4, 5, 6, 7, 8, 9)]
    made = report(names=names)
    units = tuple(dataclasses.replace(u, evidence=1.0, labelled=False) for u in made.units)
    html = as_page(dataclasses.replace(made, units=units))
    table = html[html.index('<table class="sortable">') :]
    found = re.findall(r'<th scope="row">(run \d+)</th>', table)
    assert found == [f"run {k}" for k in range(1, 13)]


def test_names_become_no_code_and_only_our_script_runs():
    made = report(names=[f"{HOSTILE}{k}" for k in range(12)])
    html = as_page(made)
    [script] = re.findall(r"<script>(.*?)</script>", html, re.DOTALL)
    digest = base64.b64encode(hashlib.sha256(script.encode()).digest()).decode()
    policy = re.search(r'Content-Security-Policy" content="([^"]+)"', html)
    assert policy
    assert f"script-src 'sha256-{digest}'" in policy[1]
    assert "unsafe-inline'; script" not in policy[1].replace("style-src 'unsafe-inline'", "")
    assert html.lower().count("<script") == 1


def test_places_that_are_not_known_are_left_out_and_one_direction_is_enough():
    made = report()
    flat = tuple(dataclasses.replace(row, y=0.0) for row in made.units)
    lost = dataclasses.replace(made.units[2], x=float("nan"))
    drawn = machine_picture(dataclasses.replace(made, units=(*flat[:2], lost, *flat[3:])))
    assert drawn.count('class="ring') == len(made.units) - 1
    assert "nan" not in drawn


def test_stored_reports_read_again():
    made = report()
    content = json.loads(json.dumps(made.to_dict()))
    assert as_page(decode(MachineReport, content, Path("report.json"))) == as_page(made)


@needs_browser
@pytest.mark.parametrize("width", WIDTHS)
def test_in_a_browser_nothing_sticks_out(width, tmp_path):
    html = as_page(report(names=[f"{HOSTILE}{k}" for k in range(12)]))
    seen = fits(html, width, tmp_path, may_move=True)  # its tables are wider than a phone
    assert seen.num_figures == 1


@needs_browser
def test_a_click_on_a_head_sorts(tmp_path):
    html = as_page(report())
    # The policy forbids the test's own script, so that it is taken out of this copy.
    html = re.sub(r"<meta http-equiv[^>]+>", "", html)
    click = """<script>
const head = [...document.querySelectorAll("table.sortable thead th")].find(
  (each) => each.textContent === "Evidence");
head.querySelector("button").click();
const order = () => [...document.querySelectorAll("table.sortable tbody th")].map(
  (each) => each.textContent).join(" ");
const up = order();
head.querySelector("button").click();
document.title = up + "|" + order() + "|" + head.getAttribute("aria-sort");
</script></body>"""
    (tmp_path / "page.html").write_text(html.replace("</body>", click), encoding="utf-8")
    run = subprocess.run(
        f"{CHROMIUM} --headless=new --no-sandbox --disable-gpu --dump-dom "
        f"--user-data-dir={tmp_path / 'profile'} {(tmp_path / 'page.html').as_uri()}".split(),
        capture_output=True,
        text=True,
        check=True,
        timeout=120,
    )
    title = re.search(r"<title>([^<]+)</title>", run.stdout)
    assert title
    up, down, sort = title[1].split("|")
    names = [f"P-{k:02d}" for k in range(12)]
    assert (up.split(), down.split(), sort) == (names[::-1], names, "descending")
