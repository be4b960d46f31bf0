"""Overlap of states and actions, verdicts, and what the advice says."""

import numpy as np
import pytest

from puorl.pu.machines.findings import (
    LITTLE_OVERLAP,
    SEEN,
    Finding,
    balanced_rows,
    cost_across,
    overlap_of_rows,
)

UNIT = np.repeat(np.arange(20), 40)
KEEP = np.arange(20) < 8


def rows(shift, seed=0):
    """States and actions of 20 units; those of the rejected lie ``shift`` deviations away."""
    x = np.random.default_rng(seed).normal(size=(len(UNIT), 3))
    return x + shift * ~KEEP[UNIT][:, None]


def test_shuffled_groups_overlap_wholly_and_separate_ones_not_at_all():
    assert overlap_of_rows(rows(0.0), UNIT, KEEP) > 0.9
    assert overlap_of_rows(rows(20.0), UNIT, KEEP) == 0.0
    some = [overlap_of_rows(rows(shift), UNIT, KEEP) for shift in (0.0, 0.5, 1.0, 2.0, 4.0)]
    assert some == sorted(some, reverse=True)
    assert 0.1 < some[2] < 0.8


def test_rows_of_the_same_unit_are_no_neighbours():
    # Every unit lives in a place of its own, far from all others, and places are dealt at random.
    x = np.random.default_rng(0).normal(size=(len(UNIT), 2))
    place = np.random.default_rng(1).permutation(20)[:, None] * np.array([[100.0, 0.0]])
    assert overlap_of_rows(0.01 * x + place[UNIT], UNIT, KEEP) > 0.3


def test_overlap_is_the_same_for_the_same_seed_and_whole_without_another_side():
    x = rows(0.7)
    assert overlap_of_rows(x, UNIT, KEEP, seed=3) == overlap_of_rows(x, UNIT, KEEP, seed=3)
    assert overlap_of_rows(x, UNIT, np.ones(20, bool)) == 1.0


def test_balanced_rows_are_alike_in_means_and_products():
    x, side = rows(1.0), KEEP[UNIT]
    x[side] *= 1.5
    weight = balanced_rows(x, side)

    def apart(weight):
        seen = np.hstack([x, x[:, :1] * x])
        means = [np.average(seen[own], axis=0, weights=weight[own]) for own in (side, ~side)]
        return np.abs(means[0] - means[1]).max()

    assert apart(np.ones(len(x))) > 0.8
    assert apart(weight) < 0.1


def test_linear_models_of_two_sides_differ_if_units_do_and_not_by_where_they_are_used():
    x, rng = rows(1.0), np.random.default_rng(1)
    curved = np.square(x[:, :1]) + 0.3 * rng.normal(size=(len(x), 1))
    weight = balanced_rows(x, KEEP[UNIT])

    def score(change, weight):
        made = cost_across(x, change, UNIT, KEEP, weight)
        return made.mean() / made.std() * np.sqrt(len(made))

    assert score(curved, np.ones(len(x))) > 5.0
    assert score(curved, weight) < 2.0
    assert score(curved + 2.0 * x[:, 1:2] * KEEP[UNIT][:, None], weight) > 5.0


@pytest.mark.parametrize(
    ("gain", "behaviour_gain", "overlap", "verdict"),
    [
        (SEEN, SEEN - 0.1, LITTLE_OVERLAP, "dynamics"),
        (SEEN, SEEN - 0.1, 0.0, "confounded"),
        (SEEN, SEEN, LITTLE_OVERLAP, "both"),
        (SEEN, SEEN, LITTLE_OVERLAP - 0.01, "confounded"),
        (SEEN - 0.1, SEEN, LITTLE_OVERLAP, "behaviour"),
        (SEEN - 0.1, SEEN, 0.0, "confounded"),
        (SEEN - 0.1, SEEN - 0.1, LITTLE_OVERLAP, "neither"),
        (SEEN - 0.1, SEEN - 0.1, 0.0, "confounded"),
    ],
)
def test_verdicts(gain, behaviour_gain, overlap, verdict):
    assert Finding(gain, behaviour_gain, overlap, 5).verdict == verdict


def test_types_that_are_seen_within_a_driver_are_not_confounded():
    found = Finding(SEEN, SEEN, 0.0, 5, is_crossed=True)
    assert found.verdict == "both"
    assert "driven alike" in found.advice


ALL = {
    "dynamics": Finding(9.0, 0.0, 1.0, 1),
    "both": Finding(9.0, 9.0, 0.4, 1),
    "confounded": Finding(9.0, 9.0, 0.04, 1),
    "behaviour": Finding(0.0, 9.0, 1.0, 1),
    "neither": Finding(1.2, 0.0, 1.0, 1),
}


@pytest.mark.parametrize("verdict", ALL)
def test_advice_says_when_few_units_are_known(verdict):
    one = ALL[verdict]
    assert one.verdict == verdict
    assert "Only one unit is known" in one.advice

    def known(number):
        return Finding(one.gain, one.behaviour_gain, one.overlap, number).advice

    assert "Only 2 units are known: one more" in known(2)
    assert "known" not in known(3)
    assert one.advice.startswith(known(3))


def test_alike_driving_is_what_was_seen_and_little_overlap_is_told():
    assert "no difference in how they are driven is visible." in ALL["dynamics"].advice
    assert "overlap" not in Finding(9.0, -3.2, 0.5, 5).advice
    low = Finding(9.0, -3.2, 0.19, 5)
    assert low.verdict == "dynamics"
    assert "of the others overlap by only 19%: drivers may differ" in low.advice


def test_advice_tells_its_numbers():
    assert "40% of their states and actions overlap" in ALL["both"].advice
    assert "overlap 4%" in ALL["confounded"].advice
    assert "evidence 1.2 nats, 4 are needed. Some 5 more labelled units" in ALL["neither"].advice
    assert len({finding.advice for finding in ALL.values()}) == len(ALL)


@pytest.mark.parametrize("verdict", ["behaviour", "neither"])
def test_units_that_are_dropped_on_weak_evidence_are_not_said_to_be_alike(verdict):
    text = ALL[verdict].advise(5)
    assert "no second type" not in text.lower()
    assert "Units dropped on it all the same: 5. Do not rely on the choice" in text
    assert ("driven in different ways" in text) == (verdict == "behaviour")
    assert ALL["dynamics"].advise(5) == ALL["dynamics"].advice


def test_how_many_rows_would_do_is_said_where_evidence_adds_up():
    some = Finding(1.2, 0.0, 1.0, 3, num_rows=580.0)
    assert some.rows_wanted == 2_000  # 4 nats in place of 1.2: 1,933
    assert "roughly 2,000 a unit would do, where there are 580" in some.advice
    assert "roughly 2,000 a unit" in some.advise(3)
    for gain in (-1.0, 0.0, 0.2, SEEN):  # none, next to none, or enough
        told = Finding(gain, 0.0, 1.0, 3, num_rows=580.0)
        assert told.rows_wanted == 0
        assert "roughly" not in told.advice
    assert "roughly" not in Finding(1.2, 0.0, 1.0, 3).advice  # stored before rows were


def test_names_that_are_not_told_apart_are_said_with_the_reason():
    alike = (("old", "worn"), -2.5), (("ours", "new", "spare"), 1.25)
    text = Finding(9.0, 0.0, 1.0, 3, alike=alike).advice
    assert "old and worn are not told apart: that they are one type explains" in text
    assert "by 2.5 nats" in text
    assert "ours, new and spare are not told apart: evidence that they differ is 1.2 nats" in text
    assert "told apart" not in Finding(9.0, 0.0, 1.0, 3).advice
