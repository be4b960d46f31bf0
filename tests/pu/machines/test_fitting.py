"""Which views count when types are found: latents are given, no network is trained."""

import numpy as np
import pytest

from puorl.pu.config import FilterConfig
from puorl.pu.machines.dynamics import UnitLatents
from puorl.pu.machines.fitting import Embedding, find_types
from puorl.pu.machines.model import ViewModel
from puorl.pu.machines.sequences import Scaling, Scalings
from puorl.pu.units import Units, parse_unit

NUM_UNITS, SIZE, NUM_ROWS = 24, 2, 500
OURS, INVERTER, HOIST = (np.arange(NUM_UNITS) % 3 == k for k in range(3))


def away(units, gap):
    """(units, size). Some units lie apart from the others, by so many deviations."""
    return np.outer(units, [gap, 0.0])


def view(name, horizon, centre, seed):
    z = centre + np.random.default_rng(seed).normal(size=(NUM_UNITS, SIZE))
    rows = np.full(NUM_UNITS, NUM_ROWS)
    latents = UnitLatents(z, np.tile(NUM_ROWS * np.eye(SIZE), (NUM_UNITS, 1, 1)), rows)
    return (
        ViewModel(
            view=name,
            params=(),
            sizes=(SIZE,),
            centre=np.zeros((1, SIZE)),
            root=np.eye(SIZE)[None],
            inflation=np.ones(1),
            mixtures=(),
            held_out_nll=np.zeros(1),
            horizon=horizon,
        ),
        (latents,),
    )


def decide(views, *, drivers=0.0):
    """Find types with one unit of ours known; every other unit may be driven in another way."""
    rng = np.random.default_rng(9)
    number = np.arange(NUM_UNITS)
    models, latents = zip(*views, strict=True)
    none = Scaling(np.zeros(1), np.ones(1))
    made = Embedding(
        found=Units(
            name=np.array([f"m{k:02d}" for k in number]),
            number=np.repeat(number, NUM_ROWS),
            cluster=np.repeat(number, NUM_ROWS),
        ),
        scalings=Scalings(*[none] * len(Scalings._fields)),
        views=models,
        latents=latents,
        median_rows=float(NUM_ROWS),
        behaviour=away(number % 2 == 0, drivers) + rng.normal(size=(NUM_UNITS, SIZE)),
        driven=rng.normal(size=(1_000, 3)).astype(np.float32),
        driven_unit=np.arange(1_000) % NUM_UNITS,
    )
    label = np.where(number == 0, 0, -1)
    return find_types(made, label, "", FilterConfig(), unit=parse_unit("column:robot"), seed=0)


ONE_STEP = view("dynamics", 0, away(INVERTER, 20.0), 0)


def test_a_slow_part_that_only_several_steps_show_is_seen():
    model = decide([ONE_STEP])
    np.testing.assert_array_equal(model.units.keep, ~INVERTER)
    model = decide([ONE_STEP, view("dynamics", 1, away(HOIST, 20.0), 1)])
    np.testing.assert_array_equal(model.units.keep, OURS)
    assert [each.horizon for each in model.views] == [0, 1]


def test_a_later_horizon_that_parts_ours_hardly_does_not_count():
    # Types are as clear as at one step, but so few nats part ours that they may be noise.
    later = away(INVERTER, 18.0) + away(HOIST, 3.5)[:, ::-1]
    model = decide([ONE_STEP, view("dynamics", 1, later, 2)])
    np.testing.assert_array_equal(model.units.keep, ~INVERTER)


@pytest.mark.parametrize("drivers", [0.0, 20.0])
def test_where_drivers_differ_one_step_alone_decides(drivers):
    driven = view("dynamics", 1, away(np.arange(NUM_UNITS) % 2 == 0, 20.0), 3)
    model = decide([ONE_STEP, driven], drivers=drivers)
    assert [each.horizon for each in model.views] == ([0] if drivers else [0, 1])
