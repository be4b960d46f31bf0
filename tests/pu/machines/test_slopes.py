"""Linear models of units: what parts them, and what drivers leave."""

import jax.numpy as jnp
import numpy as np
import pytest

from puorl.pu.machines import dynamics, slopes
from puorl.pu.machines.slopes import Rows

NUM_UNITS, NUM_ROWS = 12, 400


def make_rows(seed, *, noise=0.1, odd=0):
    """Two columns, one output; every other unit has another slope; half are driven elsewhere."""
    rng = np.random.default_rng(seed)
    unit = np.repeat(np.arange(NUM_UNITS), NUM_ROWS)
    x = rng.normal(size=(len(unit), 2)) + 1.5 * (unit >= NUM_UNITS // 2)[:, None] - 0.75
    slope = np.where(unit % 2 == 0, 0.5, 0.8)
    change = slope * x[:, 0] - 0.3 * x[:, 1] + 0.2 * x[:, 1] ** 2
    change = change + noise * rng.normal(size=len(unit))
    change[:odd] += 50.0
    given, outcome = x.astype(np.float32), change.astype(np.float32)[:, None]
    return Rows(given, outcome, np.ones_like(outcome), unit)


def fitted(rows):
    params = slopes.fit(rows, NUM_UNITS, 2)
    return dynamics.lane(params, 0), params


def test_units_with_other_slopes_are_apart_wherever_they_are_driven():
    rows = make_rows(0, odd=40)
    params, _ = fitted(rows)
    z = slopes.estimate(params, rows, NUM_UNITS)
    first = z[:, 0] * np.sign(z[0, 0])
    assert first[::2].min() > 0.5
    assert first[1::2].max() < -0.5
    assert np.abs(z[:, 1:]).max() < 0.3 * np.abs(first).min()


def test_actions_have_products_however_many_states_there_are():
    """What an action's square does in all units is not taken for a slope of some."""
    rng = np.random.default_rng(3)
    unit = np.repeat(np.arange(NUM_UNITS), NUM_ROWS)
    given = rng.normal(size=(len(unit), 32)).astype(np.float32)  # 30 states, 2 actions
    outcome = np.zeros((len(unit), 30), np.float32)
    outcome[:, 0] = 0.5 * given[:, 30] ** 2 + 0.05 * rng.normal(size=len(unit))
    rows = Rows(given, outcome, np.ones_like(outcome), unit)
    params = slopes.fit(rows, NUM_UNITS, 32)
    assert params[3].b[0].tolist() == [*range(22), 30, 31]
    one = dynamics.lane(params, 0)
    z = slopes.estimate(one, rows, NUM_UNITS)
    location, _ = slopes.outputs(one, jnp.asarray(given), jnp.asarray(z[unit], jnp.float32))
    left = (outcome - np.asarray(location))[:, 0].std()
    assert left < 0.1 < 0.5 < outcome[:, 0].std()
    assert len(slopes.fit(make_rows(0), NUM_UNITS, 2)) == 3


def test_units_with_a_single_row_do_not_move_the_centre():
    rows = make_rows(0)
    half = NUM_UNITS // 2
    whole = rows.unit >= half
    few = whole | np.isin(np.arange(len(whole)), NUM_ROWS * np.arange(half))
    centre = [
        slopes.fit(Rows(*(part[used] for part in rows)), NUM_UNITS, 2)[2].b[0]
        for used in (whole, few)
    ]
    np.testing.assert_allclose(*centre, atol=5e-3)


def test_other_rows_of_a_unit_have_its_z_and_the_order_of_rows_plays_no_part():
    rows, other = make_rows(0), make_rows(1)
    params, _ = fitted(rows)
    z, again = (slopes.estimate(params, each, NUM_UNITS) for each in (rows, other))
    np.testing.assert_allclose(again[:, 0], z[:, 0], atol=0.35)
    order = np.random.default_rng(2).permutation(len(rows.unit))
    mixed = Rows(*(part[order] for part in rows))
    np.testing.assert_allclose(slopes.estimate(params, mixed, NUM_UNITS), z, atol=1e-6)


def test_a_units_own_z_predicts_its_rows_and_anothers_does_not():
    rows = make_rows(0)
    params, _ = fitted(rows)
    z = slopes.estimate(params, rows, NUM_UNITS)

    def miss(number):
        location, log_scale = slopes.outputs(
            params, jnp.asarray(rows.given), jnp.asarray(z[number], jnp.float32)
        )
        assert np.isfinite(log_scale).all()
        return float(np.sqrt(np.mean(np.square(rows.outcome - location))))

    assert miss(rows.unit) == pytest.approx(0.1, rel=0.1)
    assert miss((rows.unit + 1) % NUM_UNITS) > 0.25


def test_rows_without_an_outcome_and_units_without_rows_change_nothing():
    rows = make_rows(0)
    blind = rows._replace(weight=rows.weight.copy(), outcome=rows.outcome.copy())
    blind.weight[::7], blind.outcome[::7] = 0.0, 1e3
    used = Rows(*(np.delete(part, np.s_[::7], axis=0) for part in rows))
    params, lanes = fitted(blind)
    for layer, same in zip(params, fitted(used)[0], strict=True):
        np.testing.assert_allclose(layer.w, same.w, atol=1e-6)
        np.testing.assert_allclose(layer.b, same.b, atol=1e-6)
    z = slopes.estimate(params, blind, NUM_UNITS + 1)
    np.testing.assert_allclose(z[:-1], slopes.estimate(params, used, NUM_UNITS), atol=1e-6)
    assert np.isfinite(z).all()
    assert {len(leaf) for layer in lanes for leaf in layer[:2]} == {len(slopes.SIZES)}
