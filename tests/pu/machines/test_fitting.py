"""Which views count when types are found: latents are given, no network is trained."""

import numpy as np
import pytest

from puorl.nn.mlp import Layer
from puorl.pu.config import FilterConfig
from puorl.pu.machines import decisions
from puorl.pu.machines.dynamics import Batch, UnitLatents
from puorl.pu.machines.evidence import partition_evidence
from puorl.pu.machines.findings import visibility
from puorl.pu.machines.fitting import Embedding, find_types
from puorl.pu.machines.mixture import SEEN, SURE, weights
from puorl.pu.machines.model import Asked, MachineModel
from puorl.pu.machines.newcomers import FALSELY_NONE, Ordinary
from puorl.pu.machines.sequences import Scaling, Scalings
from puorl.pu.machines.views import ViewModel
from puorl.pu.units import Units, parse_unit

NUM_UNITS, SIZE, NUM_ROWS = 24, 2, 500
OURS, INVERTER, HOIST = (np.arange(NUM_UNITS) % 3 == k for k in range(3))


# One lane that sees three numbers, one action ahead, which of two horizons, and z, and predicts a
# tenth of the first number of z.
NETWORK = (Layer(0.1 * np.eye(8, 2, -6, np.float32)[None], np.zeros((1, 2), np.float32)),)


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
            params=NETWORK,
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


def two_lanes(first, second):
    """Return one view of two lanes, made of two views of one."""
    (model, (one,)), (_, (other,)) = first, second
    twice = {
        name: np.repeat(getattr(model, name), 2, axis=0)
        for name in ("centre", "root", "inflation", "held_out_nll")
    }
    params = tuple(Layer(*(np.repeat(part, 2, axis=0) for part in layer)) for layer in NETWORK)
    return model._replace(params=params, sizes=(SIZE, SIZE), **twice), (one, other)


def decide(views, *, drivers=0.0, known=(0,), outcome=None, apart=None, named=None):
    """Find types with some units of ours known; every other unit may be driven in another way.

    ``named`` has other known units by the name of their type.

    Those drive with larger numbers, also where ``apart`` is given. ``outcome`` is what came of
    them, given units: by default what z says at each horizon, and with several runs nothing.
    """
    rng = np.random.default_rng(9)
    number = np.arange(NUM_UNITS)
    unit = np.arange(4_800) % NUM_UNITS
    driven = rng.normal(size=(len(unit), 3)).astype(np.float32)
    if apart is None:
        apart = 2.0 if drivers else 0.0
    driven[:, 0] += apart * (unit % 2 == 0)
    came = 0.3 * np.repeat(rng.normal(size=(len(unit), 1)), 2, axis=1)
    if outcome is not None:
        came += outcome(driven[:, 0], unit)[:, None]
    elif all(model.view != "relations" for model, _ in views):
        for model, (lane, *_) in views:
            came[:, model.horizon] += 0.1 * lane.z[unit, 0]
    came = came.astype(np.float32)
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
        driving=models[0],
        behaviour=away(number % 2 == 0, drivers) + rng.normal(size=(NUM_UNITS, SIZE)),
        driven=driven,
        driven_unit=unit,
        driven_rows=Batch(driven, np.zeros((len(unit), 1, 1)), came, np.ones_like(came), unit),
    )
    label, names = np.where(np.isin(number, known), 0, -1), named or {}
    for k, units in enumerate(names.values(), start=1):
        label[list(units)] = k
    unit, config = parse_unit("column:robot"), FilterConfig()
    return find_types(made, label, "", config, unit=unit, seed=0, names=tuple(names)).model


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


@pytest.mark.parametrize(("gap", "keep"), [(3.5, ~INVERTER), (20.0, OURS)])
@pytest.mark.parametrize("clearer", [18.0, 40.0])
def test_another_model_counts_for_what_it_alone_shows(clearer, gap, keep):
    # It sees types clearly, more clearly even than one step does; what it shows beyond them may
    # be how units of a type vary.
    more = away(INVERTER, clearer) + away(HOIST, gap)[:, ::-1]
    model = decide([ONE_STEP, view("relations", 0, more, 2)])
    np.testing.assert_array_equal(model.units.keep, keep)


@pytest.mark.parametrize("drivers", [0.0, 20.0])
def test_where_drivers_differ_one_step_alone_decides(drivers):
    driven = view("dynamics", 1, away(np.arange(NUM_UNITS) % 2 == 0, 20.0), 3)
    model = decide([ONE_STEP, driven], drivers=drivers)
    assert [each.horizon for each in model.views] == ([0] if drivers else [0, 1])
    assert model.finding.is_crossed is (drivers > 0)  # as JSON has it


@pytest.mark.parametrize("verdict", ["both", "behaviour"])
def test_types_with_own_drivers_must_differ_where_both_drive(verdict):
    second = np.arange(NUM_UNITS) % 2 == 0
    latents = view("dynamics", 0, away(second, 8.0), 6)
    z = latents[1][0].z[:, 0]

    def outcome(x, unit):
        # Either units move as their z says; or all move alike, and z is what each meets at most.
        return 0.1 * z[unit] if verdict == "both" else 0.4 * x

    model = decide([latents], drivers=20.0, known=(1,), outcome=outcome)
    assert model.finding.verdict == verdict
    assert (model.finding.gain >= SEEN) == (verdict == "both")
    assert not model.finding.is_crossed


@pytest.mark.parametrize("verdict", ["dynamics", "neither"])
def test_types_of_single_episodes_must_differ_on_rows_that_either_side_could_have(verdict):
    second = np.arange(NUM_UNITS) % 2 == 0
    latents = view("dynamics", 0, away(second, 20.0), 6)
    z = latents[1][0].z[:, 0]

    def outcome(x, unit):
        # Either units move as their z says; or all move alike, and z is where each went.
        return 0.1 * z[unit] if verdict == "dynamics" else 0.4 * x

    model = decide([latents], apart=2.0, known=(1,), outcome=outcome)
    assert model.finding.verdict == verdict
    if verdict == "dynamics":
        np.testing.assert_array_equal(model.units.keep, ~second)
    else:
        assert model.alpha.interval == (0.0, 1.0)
        assert model.units.keep.all()


@pytest.mark.parametrize("verdict", ["both", "behaviour"])
def test_types_with_own_drivers_may_differ_in_what_latents_do_not_hold(verdict):
    second = np.arange(NUM_UNITS) % 2 == 0
    slope = 0.4 + 0.4 * second * (verdict == "both")
    views = [
        view("dynamics", 0, away(second, 8.0), 6),
        view("relations", 0, np.zeros((NUM_UNITS, SIZE)), 7),  # units have several runs
    ]
    model = decide(views, drivers=20.0, known=(1,), outcome=lambda x, unit: slope[unit] * x)
    assert model.finding.verdict == verdict
    assert not model.finding.is_crossed


@pytest.mark.parametrize("verdict", ["both", "behaviour"])
def test_types_with_own_drivers_that_one_lane_sees_must_surely_differ_in_linear_models(verdict):
    second = np.arange(NUM_UNITS) % 2 == 0
    slope = 0.4 + 0.4 * second * (verdict == "both")
    nothing = np.zeros((NUM_UNITS, SIZE))
    sees, blind = view("dynamics", 0, away(second, 8.0), 6), view("dynamics", 0, nothing, 11)
    views = [two_lanes(sees, blind), view("relations", 0, nothing, 7)]
    model = decide(views, drivers=20.0, known=(1,), outcome=lambda x, unit: slope[unit] * x)
    assert model.finding.verdict == verdict
    assert not model.finding.is_crossed
    if verdict == "both":
        assert model.finding.gain >= SURE
        np.testing.assert_array_equal(model.units.keep, ~second)


@pytest.mark.parametrize("gap", [20.0, 0.0])
def test_relations_show_types_where_a_driver_has_machines_of_two(gap):
    views = [
        view("dynamics", 0, np.zeros((NUM_UNITS, SIZE)), 8),
        view("relations", 0, away(INVERTER, gap) + away(np.arange(NUM_UNITS) % 2 == 0, 9.0), 9),
    ]
    model = decide(views, drivers=20.0, known=(0, 3))
    assert model.finding.is_crossed is (gap > 0)
    assert model.finding.verdict == ("both" if gap else "behaviour")
    if gap:
        np.testing.assert_array_equal(model.units.keep, ~INVERTER)


def test_an_odd_unit_alone_says_nothing_of_alpha():
    model = decide([view("dynamics", 0, away(np.arange(NUM_UNITS) == 5, 30.0), 4)])
    assert model.finding.verdict == "neither"
    assert model.alpha.interval == (0.0, 1.0)


def test_an_odd_unit_is_dropped_and_named_as_odd():
    model = decide([view("dynamics", 0, away(np.arange(NUM_UNITS) == 5, 30.0), 4)])
    assert model.units.probability[5] < 0.01
    assert model.units.cluster[5] == -1
    others = np.delete(model.units.probability, [0, 5])
    assert ((others > 0.4) & (others < 0.6)).all()
    assert model.finding.num_odd == 1
    assert "1 unit that is unlike all others is dropped" in model.finding.advise(1)


def test_a_unit_that_one_lane_alone_finds_odd_is_none():
    sees = view("dynamics", 0, away(np.arange(NUM_UNITS) == 5, 30.0), 4)
    blind = view("dynamics", 0, np.zeros((NUM_UNITS, SIZE)), 11)
    model = decide([two_lanes(sees, blind)])
    assert model.finding.num_odd == 0
    assert model.units.probability[5] > 0.4


def test_where_no_type_is_seen_nothing_is_claimed():
    model = decide([view("dynamics", 0, np.zeros((NUM_UNITS, SIZE)), 4)])
    assert model.finding.gain < SEEN
    for estimate in (model.alpha, model.recall, model.precision):
        assert (estimate.low, estimate.high) == (0.0, 1.0)
    unknown = ~model.units.labelled
    assert np.abs(model.units.probability[unknown] - 0.5).max() < 0.5 * visibility(SEEN)
    assert np.abs(model.units.evidence).max() < 2.0


def test_units_are_not_dropped_by_chance_where_one_type_is_likelier():
    model = decide([view("dynamics", 0, np.zeros((NUM_UNITS, SIZE)), 4)])
    assert model.finding.gain < 0.0
    assert model.units.keep.all()
    assert (model.units.cluster == 0).all()
    assert "one type explains the units better" in model.finding.advice


def test_of_what_cannot_be_told_from_drivers_little_is_claimed():
    second = np.arange(NUM_UNITS) % 2 == 0
    model = decide(
        [view("dynamics", 0, away(second, 20.0), 0)], drivers=20.0, known=(1,), apart=50.0
    )
    assert model.finding.verdict == "confounded"
    np.testing.assert_array_equal(model.units.keep, ~second)  # what is known to be alike is kept
    assert np.abs(model.units.probability[2:] - 0.5).max() < 0.051
    for estimate in (model.alpha, model.recall, model.precision):
        assert (estimate.low, estimate.high) == (0.0, 1.0)


def test_chances_move_to_even_odds_as_types_fade():
    gaps = (20.0, 6.0, 0.0)
    found = [decide([view("dynamics", 0, away(INVERTER, gap), 5)]) for gap in gaps]
    gains = [model.finding.gain for model in found]
    assert gains == sorted(gains, reverse=True)
    assert visibility(gains[0]) > 0.99 > 0.5 > visibility(gains[-1])
    doubt = [np.abs(model.units.probability[1:] - 0.5).mean() for model in found]
    assert doubt == sorted(doubt, reverse=True)
    assert found[0].alpha.high - found[0].alpha.low < 0.2


def test_horizons_of_one_model_count_once_and_other_models_on_their_own():
    def said(*views):
        model = decide(views)
        seen = visibility(model.finding.gain)
        return 0.5 + (model.units.probability[1:] - 0.5) / seen

    first, latents = view("dynamics", 0, away(INVERTER, 6.0), 6)
    alone = said((first, latents))
    assert ((alone > 0.01) & (alone < 0.99)).any()
    again = said((first, latents), (first._replace(horizon=1), latents))
    np.testing.assert_allclose(again, alone, atol=1e-6)
    other = said((first, latents), (first._replace(view="relations"), latents))
    np.testing.assert_allclose(other, alone**2, atol=1e-6)


SECOND = np.arange(NUM_UNITS) % 2 == 0
RELATIONS = view("relations", 0, np.zeros((NUM_UNITS, SIZE)), 9)  # units have several runs


def names(model):
    return [each.view for each in model.views]


@pytest.mark.parametrize("gap", [9.0, 0.0])
def test_slopes_show_types_within_drivers_that_networks_take_for_machines(gap):
    driven = view("dynamics", 0, away(SECOND, 8.0), 8)
    linear = view("slopes", 0, away(SECOND, 3.0) + away(INVERTER, gap), 10)
    model = decide([driven, RELATIONS, linear], drivers=20.0, known=(0, 6))
    assert model.finding.verdict == ("both" if gap else "behaviour")
    assert model.finding.is_crossed is (gap > 0)
    assert names(model) == (["slopes"] if gap else ["dynamics"])
    if gap:
        np.testing.assert_array_equal(model.units.keep, ~INVERTER)


@pytest.mark.parametrize("trained", ["within drivers", "as drivers"])
def test_slopes_decide_nothing_where_networks_see_types(trained):
    # Within drivers, or those of the drivers if these differ where both drive.
    kind = INVERTER if trained == "within drivers" else SECOND
    seen = view("dynamics", 0, away(kind, 9.0), 8)
    z = seen[1][0].z[:, 0]
    views = [seen, RELATIONS, view("slopes", 0, away(HOIST, 12.0), 10)]
    arguments = {"drivers": 20.0, "known": (1,) if trained == "as drivers" else (0, 6)}

    def outcome(_, unit):
        return 0.1 * z[unit]

    model, alone = (decide(part, outcome=outcome, **arguments) for part in (views, views[:2]))
    assert model.finding == alone.finding
    assert model.finding.verdict == "both"
    assert names(model) == names(alone)
    np.testing.assert_array_equal(model.units.probability, alone.units.probability)


def test_slopes_decide_nothing_where_ranges_of_drivers_lie_apart():
    driven = view("dynamics", 0, away(SECOND, 8.0), 8)
    linear = view("slopes", 0, away(INVERTER, 12.0), 10)
    model = decide([driven, RELATIONS, linear], drivers=20.0, known=(0, 6), apart=12.0)
    assert names(model) == ["dynamics"]
    assert model.finding.verdict == "confounded"


@pytest.mark.parametrize(("gap", "verdict"), [(5.0, "dynamics"), (4.0, "neither")])
def test_with_one_driver_slopes_count_where_a_network_prefers_their_types_to_one(gap, verdict):
    trained = view("dynamics", 0, away(INVERTER, gap), 8)
    linear = view("slopes", 0, away(INVERTER, 12.0), 10)
    alone = decide([trained, RELATIONS], known=(0, 6))
    assert alone.finding.verdict == "neither"
    model = decide([trained, RELATIONS, linear], known=(0, 6))
    assert model.finding.verdict == verdict
    assert not model.finding.is_crossed
    if verdict == "dynamics":
        np.testing.assert_array_equal(model.units.keep, ~INVERTER)
    else:
        np.testing.assert_array_equal(model.units.probability, alone.units.probability)


def test_with_one_driver_slopes_are_as_sure_as_the_networks_that_support_them():
    first, latents = trained = view("dynamics", 0, away(INVERTER, 5.0), 8)
    linear = view("slopes", 0, away(INVERTER, 30.0), 10)
    model = decide([trained, RELATIONS, linear], known=(0, 6))
    label = np.where(np.isin(np.arange(NUM_UNITS), (0, 6)), 0, -1)
    support = [
        partition_evidence(first.embed(k, own.z), INVERTER.astype(int), label, 0 * label)
        for k, own in enumerate(latents)
    ]
    assert max(support) > 0.0
    assert model.finding.gain == pytest.approx(SEEN + max(support), abs=0.5)
    assert model.alpha.high - model.alpha.low > 0.1


THREE = view("dynamics", 0, np.stack([20.0 * INVERTER, 20.0 * HOIST], axis=1), 3)


def chance(model, units):
    """Mean probability of every class, of some units that are not known."""
    table = model.units
    unknown = ~np.isin(table.classes, (0.0, 1.0)).all(axis=1)
    return table.classes[units & unknown].mean(axis=0)


def test_every_class_has_a_probability_and_the_likeliest_is_told():
    model, plain = (
        decide([THREE, RELATIONS], named={"inverter": [1], "hoist": [2]}),
        decide([THREE, RELATIONS]),
    )
    table = model.units
    np.testing.assert_allclose(table.classes.sum(axis=1), 1.0, rtol=0, atol=1e-12)
    np.testing.assert_array_equal(table.classes[:, 0], table.probability)
    np.testing.assert_array_equal(table.cluster, np.argmax(table.classes, axis=1))
    np.testing.assert_array_equal(table.cluster, np.arange(NUM_UNITS) % 3)
    np.testing.assert_array_equal(table.keep, plain.units.keep)
    assert (table.classes[np.arange(NUM_UNITS), table.cluster] > 0.9).all()
    assert (table.agreement > 0.9).all()
    assert model.finding.alike == ()
    assert plain.units.classes.shape == (NUM_UNITS, 0)


def test_units_of_a_type_without_a_name_are_none_of_these():
    table = decide([THREE, RELATIONS], named={"inverter": [1]}).units
    np.testing.assert_array_equal(table.cluster, np.arange(NUM_UNITS) % 3)  # 2 has a letter
    assert (table.classes[HOIST, 2] > 0.9).all()
    assert (table.classes[~HOIST, 2] < 0.1).all()


def test_two_names_on_one_type_are_said_to_be_alike_and_left_in_doubt():
    model = decide([THREE, RELATIONS], named={"old": [1], "worn": [4]})
    [(names, nats)] = model.finding.alike
    assert names == ("old", "worn")
    assert nats < SEEN
    assert "old and worn are not told apart: " in model.finding.advice
    ours, old, worn, none = chance(model, INVERTER)
    assert old == worn
    assert 0.45 < old <= 0.5
    assert ours + none < 0.1
    unknown = INVERTER & ~np.isin(np.arange(NUM_UNITS), (1, 4))
    assert (model.units.agreement[unknown] <= 0.5).all()
    np.testing.assert_array_equal(model.units.keep, OURS)  # what is told is told as before
    assert (model.units.probability[OURS] > 0.9).all()
    np.testing.assert_array_equal(model.units.classes[[1, 4]], np.eye(4)[[1, 2]])


def test_a_name_on_ours_leaves_ours_in_doubt_and_drops_nobody_for_that():
    model = decide([THREE, RELATIONS], named={"spare": [3]})
    [(names, _)] = model.finding.alike
    assert names == ("ours", "spare")
    table, unknown = model.units, OURS & ~np.isin(np.arange(NUM_UNITS), (0, 3))
    assert table.keep[unknown].all()
    assert (table.probability[unknown] == 0.5).all()
    np.testing.assert_allclose(table.classes[unknown, 1], 0.5, atol=0.05)
    assert (table.probability[~OURS] < 0.05).all()
    assert not table.keep[3]  # known to be a spare
    assert model.alpha.low < 0.05
    most = OURS[~model.units.labelled].sum() / (~model.units.labelled).sum()
    assert 0.25 < model.alpha.high < most + 0.02


@pytest.mark.parametrize("chance", [0.02, 1.0])
def test_new_units_are_kept_where_a_name_is_on_ours_unless_outside(chance, monkeypatch):
    ordinary = Ordinary(np.full(NUM_UNITS, chance), FALSELY_NONE)
    monkeypatch.setattr(MachineModel, "ordinary", lambda self, asked: ordinary)
    views = [THREE, RELATIONS]
    model = decide(views, named={"spare": [3]})
    by_name = {(each.view, each.horizon): list(own) for each, own in views}
    latents = [by_name[each.view, each.horizon] for each in model.views]
    judged = model.judge(Asked(latents, []))
    number = np.repeat(np.arange(NUM_UNITS), NUM_ROWS)
    table = decisions.decide(
        model.views,
        judged.latents,
        judged.lanes,
        Units(model.units.name, number, number),
        np.full(NUM_UNITS, -1),
        seen=model.finding.seen,
        ordinary=judged.ordinary,
    )
    assert table.keep[OURS].all()
    assert (table.probability[~OURS] < 0.05).all()


def test_a_second_view_that_parts_the_names_tells_them_apart():
    blind = view("dynamics", 0, away(INVERTER | HOIST, 20.0), 3)
    named = {"inverter": [1], "hoist": [2]}
    assert decide([blind, RELATIONS], named=named).finding.alike != ()
    sees = view("relations", 0, np.stack([20.0 * INVERTER, 20.0 * HOIST], axis=1), 7)
    model = decide([blind, sees], named=named)
    assert model.finding.alike == ()
    np.testing.assert_array_equal(model.units.cluster, np.arange(NUM_UNITS) % 3)


def test_without_other_names_decisions_are_what_the_lanes_say_to_the_last_digit():
    model = decide([ONE_STEP, view("relations", 0, away(HOIST, 20.0), 2)], known=(0, 3))
    _, latents = zip(ONE_STEP, view("relations", 0, away(HOIST, 20.0), 2), strict=True)
    said = np.ones(NUM_UNITS)
    for each, (own,) in zip(model.views, latents, strict=True):
        lanes = [mixture.ours_probability(own.z, None, fitted=True) for mixture in each.mixtures]
        said = said * (weights(each.mixtures) @ np.stack(lanes))
    expected = 0.5 + model.finding.seen * (said - 0.5)
    expected[[0, 3]] = 1.0
    np.testing.assert_array_equal(model.units.probability, expected)
    np.testing.assert_array_equal(model.units.keep, expected >= 0.5)
    assert all(mixture.classes.size == 0 for each in model.views for mixture in each.mixtures)
