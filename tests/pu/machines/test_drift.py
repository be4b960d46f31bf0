"""Distances from a unit's beginning, alarms, and the page of time lines."""

import re

import numpy as np
import pytest

from puorl.pu.drift_page import as_page, describe, to_dict, write_courses
from puorl.pu.machines.drift import FALSE_ALARMS, UnitCourse, distances, first_alarm


@pytest.mark.parametrize("size", [1, 4])
def test_quiet_windows_leave_the_band_no_more_often_than_is_said(size):
    """Where the usual spread is known; the band allows for one that is a little too small."""
    rng = np.random.default_rng(0)
    rate = {}
    for factor in (1.0, 4.0):
        found = [
            distances(np.sqrt(factor) * rng.normal(size=(40, size)), np.ones(40))
            for _ in range(500)
        ]
        rate[factor] = np.mean([(d[8:] > band).mean() for d, band in found])
    assert rate[1.0] < FALSE_ALARMS
    assert rate[4.0] > FALSE_ALARMS  # windows vary twice as much as is usual: not an empty claim


def test_a_change_is_seen_and_its_windows_are_beyond_the_band():
    rng = np.random.default_rng(1)
    z = rng.normal(size=(40, 2))
    z[20:] += 12.0
    distance, band = distances(z, np.ones(40))
    assert np.isnan(distance[:8]).all()
    assert (distance[20:] > band).all()
    assert first_alarm(distance, band) == 21


def test_one_window_alone_raises_no_alarm():
    distance = np.array([np.nan, 1.0, 9.0, 1.0, 9.0, 9.0])
    assert first_alarm(distance, 3.0) == 5
    assert first_alarm(distance[:5], 3.0) is None


def course(name, alarm):
    time = np.arange(12.0) * 3600
    distance = np.where(np.arange(12) < 3, np.nan, 1.0)
    if alarm is not None:
        distance[alarm - 1 :] = 9.0
    return UnitCourse(name, time, np.full(12, 0.9), distance, 4.0, alarm)


def test_times_are_dates_where_the_clock_is(tmp_path):
    dated = course("P-01", 6)._replace(is_dated=True)
    dated = dated._replace(time=1_709_251_200.0 + dated.time)
    alarm = "beyond its band from 2024-03-01T05:00Z on, alarm at 2024-03-01T06:00Z (window 7 of 12)"
    assert alarm in describe(dated)
    html = as_page([dated])
    assert alarm in html
    assert re.findall(r">([0-9:]{5})</text>", html) == [
        "00:00",
        "02:00",
        "04:00",
        "06:00",
        "08:00",
        "10:00",
    ]
    assert ">UTC, 2024-03-01</text>" in html
    assert "e+09" not in html
    write_courses(tmp_path / "drift.csv", [dated])
    lines = (tmp_path / "drift.csv").read_text().splitlines()
    assert lines[0].endswith("alarm,date")
    assert lines[2].startswith("P-01,1,1709254800.0,")
    assert lines[2].endswith(",0,2024-03-01T01:00Z")
    assert to_dict(dated)["first_beyond"] == 5
    assert to_dict(dated)["date"][1] == "2024-03-01T01:00Z"


def test_the_page_draws_units_with_an_alarm_first_and_states_the_rate():
    html = as_page([course("P-01", None), course("P-<2>", 6)])
    titles = re.findall(r"<title>(Time line[^<]*)</title>", html)
    assert titles == ["Time line of P-&lt;2&gt;", "Time line of P-01"]
    assert "P-&lt;2&gt;: not as they were" in html
    assert "in 1 of 1,000 windows" in html
    assert "beyond its band from 18000 on, alarm at 21600 (window 7 of 12)" in html
    figures = re.sub(r"<svg.*?</svg>\n", "", html, flags=re.DOTALL)
    assert '<p class="heading">P-01</p>\n<figcaption>No alarm in 12 windows.' in figures
    assert not re.search(r"\bnan\b", re.sub(r"<[^>]*>", " ", html).lower())
    assert "No unit has changed" in as_page([course("P-01", None)])
    several = as_page([course(f"P-{k}", None) for k in (1, 15, 2)])
    assert re.findall(r"<title>Time line of ([^<]*)</title>", several) == ["P-1", "P-2", "P-15"]
