"""Rows linked to their neighbours in time, against plain loops over the same rows."""

import dataclasses

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from puorl.core.errors import DataError
from puorl.data.transitions import Transitions
from puorl.pu.config import MachineConfig
from puorl.pu.machines.sequences import Scaling, Scalings, build, link

CONFIG = MachineConfig(num_lags=2, horizons=(1, 3, 6))


def plain(size):
    """A scaling that changes nothing."""
    return Scaling(np.zeros(size, np.float32), np.ones(size, np.float32))


def scalings(d=2, m=1, config=CONFIG):
    size, num_later = (d + m) * (1 + config.num_lags), m * (len(config.horizons) - 1)
    widths = size, num_later, d * len(config.horizons), d, m
    return Scalings(*(plain(width) for width in widths))


@st.composite
def logs(draw):
    """Runs of a few units with gaps and unknown ends, rows in any order, and each row's unit."""
    seed = draw(st.integers(0, 2**16))
    lengths = draw(st.lists(st.integers(1, 9), min_size=1, max_size=5))
    with_episodes = draw(st.booleans())
    ordered_by_time = draw(st.booleans())
    rng = np.random.default_rng(seed)
    n = sum(lengths)
    run = np.repeat(np.arange(len(lengths)), lengths)
    # Small whole numbers, so that rows of different runs may join by chance and nothing is rounded.
    obs = rng.integers(-2, 3, (n, 2)).astype(np.float64)
    next_obs = rng.integers(-2, 3, (n, 2)).astype(np.float64)
    joined = (run[:-1] == run[1:]) & (rng.random(n - 1) < 0.8)
    next_obs[:-1][joined] = obs[1:][joined]
    next_obs[rng.random(n) < 0.1] = np.nan
    rows = Transitions(
        obs=obs,
        action=rng.integers(-3, 4, (n, 1)).astype(np.float64),
        next_obs=next_obs,
        terminal=np.zeros(n, bool),
        timeout=np.zeros(n, bool),
        episode=rng.permutation(len(lengths))[run] if with_episodes else None,
        time=np.arange(n, dtype=np.float64) if ordered_by_time else None,
    )
    unit = rng.integers(0, 2, len(lengths))[run]
    order = rng.permutation(n) if ordered_by_time else np.arange(n)
    return rows[order], unit[order]


def following_by_loop(rows, unit):
    """For each row, search the next one of its unit and episode, and ask whether it joins."""
    found = np.full(len(rows), -1)
    key = np.arange(len(rows)) if rows.time is None else rows.time
    for i in range(len(rows)):
        later = [
            j
            for j in range(len(rows))
            if unit[j] == unit[i]
            and (rows.episode is None or rows.episode[j] == rows.episode[i])
            and key[j] > key[i]
        ]
        if later:
            nearest = min(later, key=lambda j: key[j])
            if np.array_equal(rows.next_obs[i], rows.obs[nearest]):
                found[i] = nearest
    return found


@given(logs())
def test_a_row_links_only_to_the_row_that_begins_where_it_ended(log):
    rows, unit = log
    following, order = link(rows, unit)
    np.testing.assert_array_equal(following, following_by_loop(rows, unit))
    np.testing.assert_array_equal(np.sort(order), np.arange(len(rows)))
    assert (np.diff(unit[order]) >= 0).all()
    linked = following[following >= 0]
    assert len(np.unique(linked)) == len(linked)


def outcome_by_loop(rows, following, i, horizon):
    """Step by step from row i; None where the rows end before."""
    at = i
    for _ in range(horizon - 1):
        at = following[at]
        if at < 0:
            return None
    reached = rows.next_obs[at] - rows.obs[i]
    return reached if np.isfinite(reached).all() else None


@settings(max_examples=60)
@given(logs())
def test_outcomes_equal_a_walk_step_by_step(log):
    rows, unit = log
    made, _ = build(rows, unit, CONFIG, scalings())
    following, order = link(rows, unit)
    known = [i for i in order if np.isfinite(rows.next_obs[i]).all()]
    np.testing.assert_array_equal(made.position, known)
    for k, i in enumerate(made.position):
        for h, horizon in enumerate(CONFIG.horizons):
            columns = slice(2 * h, 2 * h + 2)
            wanted = outcome_by_loop(rows, following, i, horizon)
            if wanted is None:
                assert (made.outcome[k, columns] == 0).all()
                assert (made.weight[k, columns] == 0).all()
            else:
                np.testing.assert_array_equal(made.outcome[k, columns], wanted)
                assert (made.weight[k, columns] == 1).all()
    np.testing.assert_array_equal(made.state, rows.next_obs[made.position])
    np.testing.assert_array_equal(made.action, rows.action[made.position])


@settings(max_examples=60)
@given(logs())
def test_what_is_given_equals_a_walk_back_and_ahead(log):
    rows, unit = log
    made, _ = build(rows, unit, CONFIG, scalings())
    following, _ = link(rows, unit)
    previous = {int(j): i for i, j in enumerate(following) if j >= 0}
    for k, i in enumerate(made.position):
        wanted, at = [*rows.obs[i], *rows.action[i]], int(i)
        for _ in range(CONFIG.num_lags):
            at = previous.get(at, at)  # the earliest there is, near a beginning
            wanted += [*(rows.obs[at] - rows.obs[i]), *(rows.action[at] - rows.action[i])]
        path, at = [], int(i)
        while at >= 0:
            path.append(at)
            at = int(following[at])
        np.testing.assert_allclose(made.given[k], wanted, atol=1e-6)
        ahead = []
        for low, high in zip(CONFIG.horizons, CONFIG.horizons[1:], strict=False):
            acted = rows.action[path[low:high]]
            ahead.append(acted.mean(axis=0) - rows.action[i] if len(acted) else [0.0])
        np.testing.assert_allclose(made.ahead[k], ahead, atol=1e-6)
        np.testing.assert_array_equal(made.before[k], rows.action[previous.get(int(i), int(i))])


@given(logs(), st.integers(0, 2**16))
def test_the_order_of_rows_in_a_file_plays_no_part_where_time_is_known(log, seed):
    rows, unit = log
    if rows.time is None:
        return
    order = np.random.default_rng(seed).permutation(len(rows))
    one, _ = build(rows, unit, CONFIG, scalings())
    two, _ = build(rows[order], unit[order], CONFIG, scalings())
    for name in ("given", "outcome", "weight", "state", "action"):
        np.testing.assert_array_equal(getattr(one, name), getattr(two, name))
    np.testing.assert_array_equal(one.position, order[two.position])


def walk(n=400, length=100, d=2):
    """One unit that moves in runs of equal length."""
    rng = np.random.default_rng(0)
    state = np.cumsum(rng.normal(size=(n + n // length, d)), axis=0)
    start = np.arange(n) + np.arange(n) // length
    return Transitions(
        obs=state[start],
        action=rng.normal(size=(n, 1)),
        next_obs=state[start + 1],
        terminal=np.zeros(n, bool),
        timeout=(np.arange(n) + 1) % length == 0,
        episode=np.arange(n) // length,
    )


def test_scalings_are_those_of_the_rows_and_are_kept_for_others():
    rows, unit = walk(), np.zeros(400, int)
    made, scaling = build(rows, unit, CONFIG)
    for part, weight in ((made.given, None), (made.outcome, made.weight), (made.state, None)):
        seen = part if weight is None else np.where(weight > 0, part, np.nan)
        np.testing.assert_allclose(np.nanmean(seen, axis=0), 0, atol=1e-4)
        np.testing.assert_allclose(np.nanstd(seen, axis=0), 1, atol=1e-3)
    # A part of the rows, with the scalings of all: the same numbers, and no lower bound.
    few, same = build(rows[:100], unit[:100], CONFIG, scaling)
    assert same is scaling
    np.testing.assert_array_equal(few.given, made.given[:100])
    np.testing.assert_array_equal(few.outcome, made.outcome[:100])


def test_a_constant_column_keeps_its_scale_and_wild_values_are_clipped():
    value = np.stack([np.full(300, 7.0), np.r_[1e9, np.zeros(299)]], axis=1)
    scaling = Scaling.of(value)
    np.testing.assert_array_equal(scaling.scale[0], 1.0)
    np.testing.assert_array_equal(scaling(value)[:, 0], 0.0)
    assert scaling(value)[0, 1] == pytest.approx(np.sqrt(299), rel=1e-3)
    assert scaling(1e3 * value)[0, 1] == 20.0


def test_episodes_shorter_than_a_horizon_leave_that_horizon_unknown():
    rows = walk(length=5)
    config = dataclasses.replace(CONFIG, horizons=(1, 4, 12))
    made, scaling = build(rows, np.zeros(400, int), config)
    assert (made.weight[:, 4:] == 0).all()
    assert (made.outcome[:, 4:] == 0).all()
    assert (made.weight[:, :2] == 1).all()
    assert (scaling.outcome.scale > 0).all()
    assert np.isfinite(scaling.outcome.mean).all()


def test_too_few_rows_are_refused_in_one_line():
    rows = walk()[:150]
    with pytest.raises(DataError, match=r"at least 200 rows with a next state.*got 150; add rows"):
        build(rows, np.zeros(150, int), CONFIG)
