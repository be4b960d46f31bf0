import re
import sys
import xml.etree.ElementTree as ET
from pathlib import Path

import pytest

from puorl.bench.comparisons import OLP, PU
from puorl.bench.report import make_report
from puorl.bench.report_page import (
    curve_pictures,
    difference_picture,
    improvement_picture,
    iqm_picture,
    score_picture,
)

sys.path.insert(0, str(Path(__file__).parent))
from synthetic_store import METHODS, row

PLACE = ("body_mass", "hopper", "ME/ME")


def report(methods=METHODS, seeds=(0, 1, 2), **changes):
    return make_report([row(*PLACE, m, s, **changes) for m in methods for s in seeds])


@pytest.fixture(scope="module")
def full():
    return report()


def texts(svg):
    return ["".join(each.itertext()) for each in ET.fromstring(svg).iter("text")]


def test_scores_are_drawn_with_their_words(full):
    [task] = full.results.tasks
    words = texts(score_picture(full.results, task))
    for method in full.results.methods:
        summary = full.results.summary(task, method)
        assert method.title in words
        assert f"{summary.mean:.1f} ± {summary.half:.1f}" in words


def test_differences_are_pu_minus_the_other(full):
    [task] = full.results.tasks
    words = texts(difference_picture(full.results, task))
    assert [w for w in words if w.startswith("PU minus")] == [
        f"PU minus {name}" for name in ("OLP", "Sharing-All", "DARA", "IGDF", "Oracle")
    ]
    gain = full.results.summary(task, PU).mean - full.results.summary(task, OLP).mean
    assert [w for w in words if w.startswith(f"{gain:+.1f} (+")]
    assert "no difference" in words


def ticks(svg):
    return [word for word in texts(svg) if re.fullmatch(r"-?[\d,]+", word)]


def test_curves_have_at_most_four_methods_and_one_axis(full):
    [task] = full.results.tasks
    one, other = curve_pictures(full.results, task)
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


def test_other_methods_get_a_picture_of_their_own():
    made = report(methods=("pu", "oracle", "olp", "own"))
    [task] = made.results.tasks
    first, own = curve_pictures(made.results, task)
    assert "OLP" in texts(first)
    assert "own" in texts(own)
    assert "PU" not in texts(own)


def test_only_points_that_every_run_has_are_drawn():
    rows = [row(*PLACE, "pu", seed) for seed in (0, 1)]
    rows[1]["curve"] = rows[1]["curve"][:3]
    made = make_report(rows)
    [svg] = curve_pictures(made.results, made.results.tasks[0])
    assert "200" in ticks(svg)
    assert "600" in ticks(svg)
    assert "1,000" not in ticks(svg)


def test_nothing_is_drawn_of_nothing():
    made = report(methods=("olp",), seeds=(0,), curve=[], scores=None, returns=None, error="x")
    [task] = made.results.tasks
    assert score_picture(made.results, task) == ""
    assert difference_picture(made.results, task) == ""
    assert curve_pictures(made.results, task) == ()
    [overview] = made.overview
    assert (iqm_picture(overview), improvement_picture(overview)) == ("", "")


def test_a_single_seed_is_a_dot_without_interval():
    made = report(methods=("olp", "pu"), seeds=(0,))
    [task] = made.results.tasks
    assert not [word for word in texts(score_picture(made.results, task)) if "±" in word]
    assert difference_picture(made.results, task) == ""


def test_overview_pictures_name_every_method(full):
    [overview] = full.overview
    assert {m.title for m in full.results.methods} <= set(texts(iqm_picture(overview)))
    words = texts(improvement_picture(overview))
    assert "over OLP" in words
    assert "over PU" not in words
    assert "neither is better" in words
