"""Distances from a unit's beginning, alarms, and the page of time lines."""

import re

import numpy as np
import pytest

from puorl.pu.drift_page import as_page
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


def test_the_page_draws_units_with_an_alarm_first_and_states_the_rate():
    html = as_page([course("P-01", None), course("P-<2>", 6)])
    titles = re.findall(r"<title>(Time line[^<]*)</title>", html)
    assert titles == ["Time line of P-&lt;2&gt;", "Time line of P-01"]
    assert "P-&lt;2&gt;: not as they were" in html
    assert "in 1 of 1,000 windows" in html
    assert "changed at time 21600 (window 7 of 12)" in html
    assert "no alarm in 12 windows" in html
    assert not re.search(r"\bnan\b", re.sub(r"<[^>]*>", " ", html).lower())
    assert "No unit has changed" in as_page([course("P-01", None)])
