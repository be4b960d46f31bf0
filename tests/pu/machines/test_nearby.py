"""A second look at units in doubt: rows are compared with those of sure units at the same place."""

from dataclasses import replace

import numpy as np
import pytest

from puorl.data.dataset import Dataset
from puorl.pu.machines.findings import UnitTable
from puorl.pu.machines.model import LaneChances
from puorl.pu.machines.nearby import Rows, log_odds, look_again, row_nats
from puorl.pu.units import number_units, parse_unit

NUM_UNITS, NUM_ROWS = 40, 60
OURS = np.arange(NUM_UNITS) % 2 == 0


def make_rows(*, gap, seed=0):
    """Every unit is somewhere else on a curve that no linear model follows; types lie apart."""
    rng = np.random.default_rng(seed)
    unit = np.repeat(np.arange(NUM_UNITS), NUM_ROWS)
    x = np.sort(rng.uniform(-3, 3, NUM_UNITS))[unit, None] + rng.normal(size=(len(unit), 2))
    curve = np.stack([np.sin(3 * x[:, 0]), np.cos(2 * x[:, 1])], axis=1)
    change = curve + 0.05 * rng.normal(size=curve.shape)
    change[:, 0] += gap * OURS[unit]
    return Rows(x, change, unit)


def sides(asked):
    return np.where(asked, 0, np.where(OURS, 1, -1))


ASKED = np.isin(np.arange(NUM_UNITS), [3, 8, 20, 31])


def rng():
    return np.random.default_rng(0)


def test_units_are_told_by_what_others_do_at_the_same_place():
    odds = log_odds(make_rows(gap=0.1), sides(ASKED), ASKED, rng())
    np.testing.assert_array_equal(np.isfinite(odds), ASKED)
    np.testing.assert_array_equal(odds[ASKED] > 0, OURS[ASKED])


@pytest.mark.parametrize("seed", range(3))
def test_nothing_is_said_where_types_do_not_differ(seed):
    odds = log_odds(make_rows(gap=0.0, seed=seed), sides(ASKED), ASKED, rng())
    assert np.isnan(odds).all()


def test_nothing_is_said_with_one_sure_unit():
    side = np.where(np.arange(NUM_UNITS) == 0, 1, sides(ASKED).clip(max=0))
    assert np.isnan(log_odds(make_rows(gap=0.1), side, ASKED, rng())).all()


def test_nothing_is_said_of_rows_that_lie_where_one_type_alone_was():
    rows, side = make_rows(gap=0.1), sides(ASKED)
    far = rows.take(ASKED[rows.unit])
    mine = rows.unit == int(np.flatnonzero(OURS)[0])
    rows.x[mine] += 100.0
    away = far._replace(x=far.x * 0.01 + 100.0)
    reference = rows.take(~ASKED[rows.unit])
    assert np.isnan(row_nats(reference, side, away)).all()


def test_a_row_is_not_compared_with_rows_of_its_own_unit():
    rows, side = make_rows(gap=0.1), sides(ASKED)
    one = rows.take(rows.unit == 5)
    without = row_nats(rows.take(rows.unit != 5), side, one)
    twisted = rows._replace(change=np.where(rows.unit[:, None] == 5, 50.0, rows.change))
    within = row_nats(twisted, side, one)
    known = np.isfinite(within) & np.isfinite(without)
    assert known.mean() > 0.9
    # Neighbours that do not count leave room for none: models differ a little.
    assert np.corrcoef(within[known], without[known])[0, 1] > 0.7


def test_a_row_is_compared_by_a_weighted_linear_model():
    rng = np.random.default_rng(1)
    unit = np.arange(10)  # as many neighbours as there are rows
    side = np.where(unit % 2 == 0, 1, -1)
    near = Rows(rng.normal(size=(10, 2)), rng.normal(size=(10, 2)), unit)
    row = Rows(np.zeros((1, 2)), rng.normal(size=(1, 2)), np.array([10]))
    far = np.linalg.norm(near.x, axis=1)
    weight = np.exp(-0.5 * (far / np.median(far)) ** 2)
    given = np.column_stack([np.ones(10), near.x, side])
    prior = np.sqrt([1e-9, 1e-2, 1e-2, 1.0])
    model = np.linalg.lstsq(
        np.vstack([given * np.sqrt(weight)[:, None], np.diag(prior)]),
        np.vstack([near.change * np.sqrt(weight)[:, None], np.zeros((4, 2))]),
        rcond=None,
    )[0]
    variance = (weight[:, None] * (near.change - given @ model) ** 2).sum(axis=0) / weight.sum()
    expected = 0.0
    for sign in (1, -1):
        missed = row.change[0] - model[0] - sign * model[-1]
        expected += -sign * 2.5 * np.log1p(missed**2 / (4.0 * variance)).sum()
    found = row_nats(near, np.append(side, 0), row)
    np.testing.assert_allclose(found, expected, rtol=1e-6)


def in_doubt(model, units, said):
    """The model with some units in doubt, for the opinions of one view."""
    chance = np.where(units, said, model.units.keep.astype(float))
    table = UnitTable(
        **model.units._asdict()
        | {"probability": chance, "keep": chance >= 0.5, "agreement": np.where(units, 0.6, 1.0)}
    )
    lanes = [LaneChances("dynamics", chance[None], np.ones(1), 0.5)]
    return replace(model, units=table), lanes


def look(split, model, lanes):
    found = number_units(split.pool, parse_unit("column:robot"))
    return look_again(model, lanes, split.pool, found)


@pytest.mark.parametrize("said", [0.3, 0.7])
def test_decisions_and_numbers_follow_the_second_look(split, fitted, said):
    truth = fitted.units_
    units = np.isin(truth.name, ["m03", "m06", "m07"])
    before, lanes = in_doubt(fitted.model_, units, said)
    after = look(split, before, lanes)
    np.testing.assert_array_equal(after.units.keep, truth.keep)
    np.testing.assert_array_equal(after.units.cluster, truth.cluster)
    np.testing.assert_array_equal(after.units.agreement, 1.0)
    assert np.abs(after.units.probability[units] - 0.5).min() > 0.4
    np.testing.assert_array_equal(after.units.evidence[units] > 0, truth.keep[units])
    asked = ~truth.labelled
    assert after.alpha.value == pytest.approx(after.units.probability[asked].mean())
    assert after.alpha.low <= truth.keep[asked].mean() <= after.alpha.high
    for name in ("probability", "evidence", "keep"):
        rest = getattr(after.units, name)[~units]
        np.testing.assert_array_equal(rest, getattr(before.units, name)[~units])


def test_known_units_and_sure_ones_stay(split, fitted):
    before, lanes = in_doubt(fitted.model_, fitted.units_.labelled, 0.5)
    assert look(split, before, lanes) is before


def test_rows_without_a_known_end_do_not_count():
    rng = np.random.default_rng(0)
    obs, ends = rng.normal(size=(8, 2)), rng.normal(size=(8, 2))
    ends[3] = np.nan
    last = np.arange(8) == 3
    data = Dataset.from_arrays(obs=obs, action=obs[:, :1], next_obs=ends, terminal=last)
    rows = Rows.of(data, np.arange(8))
    np.testing.assert_array_equal(rows.unit, [0, 1, 2, 4, 5, 6, 7])
    assert np.isfinite(rows.change).all()
