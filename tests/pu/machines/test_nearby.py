"""A second look at units in doubt: rows are compared with those of sure units at the same place."""

from dataclasses import replace

import numpy as np
import pytest

from puorl.data.dataset import Dataset
from puorl.data.split import PUSplit
from puorl.pu.filter import DomainFilter
from puorl.pu.machines import fitting, nearby, sampling
from puorl.pu.machines.decisions import LaneChances
from puorl.pu.machines.findings import UnitTable
from puorl.pu.machines.fitting import settle
from puorl.pu.machines.nearby import Compared, Rows, log_ratio, look_again
from puorl.pu.units import number_units, parse_unit

NUM_UNITS, NUM_ROWS = 40, 60


def is_ours(num_units):
    return np.arange(num_units) % 2 == 0


def make_rows(*, gap, num_units=NUM_UNITS, num_rows=NUM_ROWS, noise=0.05, place=None, seed=0):
    """Every unit is somewhere else on a curve that no linear model follows; types lie apart.

    ``gap`` is a number, or a function of the first state; ``num_rows`` a number or one a unit.
    """
    rng = np.random.default_rng(seed)
    unit = np.repeat(np.arange(num_units), num_rows)
    centre = np.sort(rng.uniform(-3, 3, num_units))
    centre = centre if place is None else np.where(np.isfinite(place), place, centre)
    x = centre[unit, None] + rng.normal(size=(len(unit), 2))
    curve = np.stack([np.sin(3 * x[:, 0]), np.cos(2 * x[:, 1])], axis=1)
    change = curve + noise * rng.normal(size=curve.shape)
    change[:, 0] += (gap(x[:, 0]) if callable(gap) else gap) * is_ours(num_units)[unit]
    return Rows(x, change, unit)


def sides(asked):
    return np.where(asked, 0, np.where(is_ours(len(asked)), 1, -1))


def every_fifth(num_units=NUM_UNITS):
    return np.arange(num_units) % 5 == 0


ASKED = every_fifth()


def rng():
    return np.random.default_rng(0)


def ask(rows, asked=ASKED, side=None):
    return log_ratio(rows, sides(asked) if side is None else side, asked, rng())


def test_units_are_told_by_what_others_do_at_the_same_place():
    nats = ask(make_rows(gap=0.1))
    np.testing.assert_array_equal(np.isfinite(nats), ASKED)
    np.testing.assert_array_equal(nats[ASKED] > 0, is_ours(NUM_UNITS)[ASKED])
    assert np.abs(nats[ASKED]).max() == nearby._MOST_NATS  # surer than is said


@pytest.mark.parametrize("seed", range(3))
def test_nothing_is_said_where_types_do_not_differ(seed):
    assert np.isnan(ask(make_rows(gap=0.0, seed=seed))).all()


@pytest.mark.parametrize(("num_sure", "is_said"), [(4, False), (5, True)])
def test_a_few_sure_units_say_nothing(num_sure, is_said):
    side = sides(ASKED)
    side[np.flatnonzero(side > 0)[num_sure:]] = 0
    nats = ask(make_rows(gap=0.5, place=np.zeros(NUM_UNITS)), side=side)
    assert np.isfinite(nats).any() == is_said


def test_units_with_few_rows_are_told_less_surely():
    # Half of those in doubt have a tenth of the rows; noise hides the gap in so few.
    num_units = 400
    asked, short = every_fifth(num_units), np.isin(np.arange(num_units) % 20, [0, 5])
    rows = make_rows(
        gap=0.12, num_units=num_units, num_rows=np.where(short, 8, 80), noise=0.1, seed=1
    )
    nats, ours = ask(rows, asked), is_ours(num_units)
    told = np.isfinite(nats)
    assert min((told & short).sum(), (told & ~short).sum()) > 30
    sure = told & (np.abs(nats) > 3.0)
    assert ((nats > 0) == ours)[sure].mean() > 0.95
    assert (sure & short).sum() < 0.5 * (told & short).sum()
    assert (sure & ~short).sum() > 0.9 * (told & ~short).sum()


@pytest.mark.parametrize("edge", [-1.0, 9.0])
def test_sure_units_are_judged_where_those_in_doubt_were(edge):
    # Sure ones have ten times the rows, most of them where types differ; those in doubt were
    # where types differ as well, or hardly do.
    place = np.where(ASKED, 0.5, -1.0)
    num_rows = np.where(ASKED, 40, 400)
    rows = make_rows(gap=lambda x: 0.1 * (x < edge), place=place, num_rows=num_rows)
    assert np.isfinite(ask(rows)).any() == (edge > 0.0)


def test_nothing_is_said_of_units_that_went_where_no_sure_one_did():
    far = np.where(ASKED, 9.0, np.nan)
    assert np.isnan(ask(make_rows(gap=0.1, place=far))).all()


def test_nothing_is_said_of_rows_where_one_type_alone_was():
    rows, side = make_rows(gap=0.1), sides(ASKED)
    rows.x[rows.unit < 20] += 50.0
    side[(np.arange(NUM_UNITS) < 20) & (side < 0)] = 0
    compared = Compared(rows.take(side[rows.unit] != 0), side)
    for lone in (True, False):
        asked = rows.take(ASKED[rows.unit] & ((rows.unit < 20) == lone))
        assert np.isnan(compared.row_nats(asked)).mean() == pytest.approx(float(lone), abs=0.1)


def test_a_row_is_not_compared_with_rows_of_its_own_unit():
    rows, side = make_rows(gap=0.1), sides(ASKED)
    one = rows.take(rows.unit == 7)
    without = Compared(rows.take(rows.unit != 7), side).row_nats(one)
    twisted = rows._replace(change=np.where(rows.unit[:, None] == 7, 50.0, rows.change))
    within = Compared(twisted, side).row_nats(one)
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
    found = Compared(near, np.append(side, 0)).row_nats(row)
    np.testing.assert_allclose(found, expected, rtol=1e-6)


def test_rows_without_a_known_end_do_not_count():
    rng = np.random.default_rng(0)
    obs, ends = rng.normal(size=(8, 2)), rng.normal(size=(8, 2))
    ends[3] = np.nan
    last = np.arange(8) == 3
    data = Dataset.from_arrays(obs=obs, action=obs[:, :1], next_obs=ends, terminal=last)
    rows = Rows.of(data, np.arange(8))
    np.testing.assert_array_equal(rows.unit, [0, 1, 2, 4, 5, 6, 7])
    assert np.isfinite(rows.change).all()


# Decisions of a model, made after it.

LARGE = 20
"""Units of the fleet; those of the fixture ``fitted`` are learnt from fewer."""


@pytest.fixture(scope="module")
def large(fleet, fitted):
    """A split of single runs, one known, and the filter of it."""
    data = fleet(num_units=LARGE, num_runs=1, length=120)
    split = PUSplit.from_mask(data, data.columns["robot"] == "m00", unit="episode")
    return split, DomainFilter(unit="column:robot", config=fitted.config).fit(split, seed=0)


def in_doubt(model, units, said, cluster=None, agreement=0.6):
    """The model with some units in doubt, for the opinions of one view."""
    chance = np.where(units, said, model.units.keep.astype(float))
    keep = chance >= 0.5
    changed = {
        "probability": np.clip(chance, 0.01, 0.99),
        "keep": keep,
        "cluster": np.where(keep, 0, 1) if cluster is None else cluster,
        "agreement": np.where(units, agreement, 1.0),
    }
    lanes = [LaneChances("dynamics", changed["probability"][None], np.ones(1), 0.5)]
    return replace(model, units=UnitTable(**model.units._asdict() | changed)), lanes


def look(split, model, lanes, **arguments):
    found = number_units(split.pool, parse_unit("column:robot"))
    return look_again(model, lanes, split.pool, found, **arguments)


def doubtful(table):
    return np.isin(table.name, ["m03", "m06", "m07"])


@pytest.mark.parametrize("said", [0.3, 0.7])
def test_decisions_and_numbers_follow_the_second_look(large, said):
    split, flt = large
    truth, units = flt.units_, doubtful(flt.units_)
    before, lanes = in_doubt(flt.model_, units, said)
    after = look(split, before, lanes)
    np.testing.assert_array_equal(after.units.keep, truth.keep)
    np.testing.assert_array_equal(after.units.cluster, np.where(truth.keep, 0, 1))
    np.testing.assert_array_equal(after.units.agreement, 1.0)
    assert np.abs(after.units.probability[units] - 0.5).min() > 0.4
    # Of the sure unlabelled ones eight are ours, and eight are not.
    odds = np.log(after.units.probability / (1.0 - after.units.probability))[units]
    np.testing.assert_allclose(odds, after.units.evidence[units], atol=0.1)
    asked = ~truth.labelled
    assert after.alpha.value == pytest.approx(after.units.probability[asked].mean())
    assert after.alpha.low <= truth.keep[asked].mean() <= after.alpha.high
    for name in ("probability", "evidence", "keep", "cluster"):
        rest = getattr(after.units, name)[~units]
        np.testing.assert_array_equal(rest, getattr(before.units, name)[~units])


def test_what_is_common_is_likelier(large):
    split, flt = large
    units = doubtful(flt.units_)
    before, lanes = in_doubt(flt.model_, units, 0.5)
    few = np.flatnonzero(before.units.keep & ~units & ~before.units.labelled)[:4]
    cluster = before.units.cluster.copy()
    cluster[few] = -1  # decided not to be of any type
    rarer = replace(before, units=UnitTable(**before.units._asdict() | {"cluster": cluster}))
    same, less = (look(split, model, lanes).units for model in (before, rarer))

    def prior(table):
        return np.log(table.probability / (1.0 - table.probability)) - table.evidence

    np.testing.assert_allclose(prior(same)[units], np.log(9 / 9), atol=0.15)
    np.testing.assert_allclose(prior(less)[units] - prior(same)[units], np.log(5 / 9), atol=0.05)


def test_models_that_do_not_agree_are_a_doubt_too(large):
    split, flt = large
    units = flt.units_.name == "m07"
    before, lanes = in_doubt(flt.model_, units, 0.96)
    assert not look(split, before, lanes).units.keep[units].any()
    before, lanes = in_doubt(flt.model_, units, 0.96, agreement=0.95)
    assert look(split, before, lanes) is before


def test_known_units_and_those_of_no_type_stay(large):
    split, flt = large
    before, lanes = in_doubt(flt.model_, flt.units_.labelled, 0.5)
    assert look(split, before, lanes) is before
    units = doubtful(flt.units_)
    cluster = np.where(units, -1, np.where(flt.units_.keep, 0, 1))
    before, lanes = in_doubt(flt.model_, units, 0.4, cluster)
    assert look(split, before, lanes) is before


def test_how_far_units_are_trusted_still_counts(large):
    split, flt = large
    units = doubtful(flt.units_)
    before, lanes = in_doubt(flt.model_, units, 0.5)
    trusted = np.where(units, 0.01, 1.0)
    full, less = look(split, before, lanes), look(split, before, lanes, trusted=trusted)
    np.testing.assert_allclose(
        less.units.probability[units], 0.01 * full.units.probability[units], rtol=1e-12
    )
    assert less.alpha.value < full.alpha.value
    assert less.alpha.high < full.alpha.high  # of draws


def test_the_second_look_compares_with_what_the_first_told(large, monkeypatch):
    split, flt = large
    units = doubtful(flt.units_)
    before, lanes = in_doubt(flt.model_, units, 0.5)
    seen = []

    def told(rows, side, asked, rng):
        del rows, rng
        seen.append((side.copy(), asked))
        surely = flt.units_.name == "m03"
        return np.where(asked & (len(seen) == 1), np.where(surely, -4.0, 1.0), np.nan)

    monkeypatch.setattr(nearby, "log_ratio", told)
    after = look(split, before, lanes)
    assert [asked.sum() for _, asked in seen] == [3, 2]
    assert [side[flt.units_.name == "m03"].item() for side, _ in seen] == [0, -1]
    np.testing.assert_allclose(after.units.evidence[units], [-4.0, 1.0, 1.0])


def test_a_unit_that_is_not_ours_after_all_is_of_the_type_next_on_the_map(large):
    split, flt = large
    units = flt.units_.name == "m07"
    before, lanes = in_doubt(flt.model_, units, 0.7)
    third = before.units.name == "m05"
    columns = before.units._asdict() | {
        "position": np.where(
            third[:, None] | units[:, None],
            (40.0, 40.0),
            np.stack([10.0 * ~before.units.keep, np.zeros(LARGE)], axis=1),
        ),
        "cluster": np.where(third, 2, before.units.cluster),
    }
    after = look(split, replace(before, units=UnitTable(**columns)), lanes)
    assert after.units.cluster[units] == 2


@pytest.fixture
def looks(monkeypatch):
    """Calls of the second look: the model, opinions, units and trust."""
    seen = []

    def look(model, lanes, data, found, *, trusted=None):
        assert len(data) == len(found.number)
        seen.append((model, lanes, found, trusted))
        return model

    monkeypatch.setattr(fitting, "look_again", look)
    return seen


@pytest.mark.parametrize("is_large", [False, True])
def test_every_fit_of_single_episodes_has_one(large, looks, monkeypatch, is_large):
    split, flt = large
    if is_large:
        monkeypatch.setattr(sampling, "_NUM_UNITS", LARGE - 4)
        monkeypatch.setattr(sampling, "_NUM_ROWS", 1)
    DomainFilter(unit="column:robot", config=flt.model_.config).fit(split, seed=0)
    [(model, lanes, found, trusted)] = looks
    assert len(found.name) == len(model.units) == LARGE
    assert [each.chance.shape[1] for each in lanes] == [LARGE] * len(lanes)
    assert (None if trusted is None else trusted.shape) == ((LARGE,) if is_large else None)


def test_units_of_several_runs_windows_and_no_types_have_none(large, fitted, split, looks):
    model = fitted.model_
    settle(model, [], split.pool, number_units(split.pool, parse_unit("column:robot")))
    single, flt = large
    windows = number_units(single.pool, parse_unit("window:20"))
    settle(flt.model_, [], single.pool, windows)
    found = number_units(single.pool, parse_unit("episode"))
    nobody = replace(flt.model_, finding=replace(flt.model_.finding, gain=1.0))
    assert settle(nobody, [], single.pool, found) is nobody
    assert not looks
    settle(flt.model_, [], single.pool, found)
    assert len(looks) == 1
