import controls
import draws
import numpy as np
import pytest
from baseline import Recorded
from method import METHODS, Decision, Method
from simulate import FLEETS, simulate


@pytest.fixture(scope="module")
def pools():
    return {kind: controls.control(kind, "vehicle", 2) for kind in controls.VERDICTS}


def test_a_draw_is_known_by_its_number():
    one, two = draws.draw_fleet(7), draws.draw_fleet(7)
    assert one == two
    assert one != draws.draw_fleet(12)
    first, second = simulate(one), simulate(two)
    for name, column in first.items():
        np.testing.assert_array_equal(column, second[name])
    with pytest.raises(ValueError, match="expected 0 to 1,999"):
        draws.draw_fleet(2_000)


@pytest.mark.parametrize("seeds", [range(120), range(1_000, 1_120)])
def test_drawn_fleets_have_the_sizes_that_were_promised(seeds):
    fleets = [draws.draw_fleet(seed) for seed in seeds]
    for seed, fleet in zip(seeds, fleets, strict=True):
        assert 12 <= fleet.num_units <= 60
        assert 2 <= len(fleet.kinds) <= 4
        assert fleet.kinds[0].count >= draws.NUM_KNOWN + 2
        assert not fleet.kinds[0].factors
        assert all(kind.count >= draws.LEAST_UNITS for kind in fleet.kinds)
        assert fleet.held_out == (seed >= 1_000)
        assert len({kind.name for kind in fleet.kinds}) == len(fleet.kinds)
    assert {len(fleet.kinds) for fleet in fleets} == {2, 3, 4}
    assert {fleet.assignment for fleet in fleets} == {"random", "correlated"}
    assert {fleet.machine.name for fleet in fleets} == set(draws.shifts(seeds[0]))


def test_what_is_judged_is_not_what_methods_are_developed_on():
    for family, shifts in draws.DEVELOPMENT.items():
        known = {name for _, ranges in shifts for name in ranges}
        asked = {name for _, ranges in draws.HELD_OUT[family] for name in ranges}
        assert not known & asked
    assert "conveyor" not in draws.DEVELOPMENT
    held_out = [(f.machine.name, k.factors) for f in FLEETS.values() if f.held_out for k in f.kinds]
    for family, factors in held_out:
        shifts = draws.DEVELOPMENT.get(family, ())
        assert not set(factors) & {name for _, ranges in shifts for name in ranges}


@pytest.mark.parametrize("table", [draws.DEVELOPMENT, draws.HELD_OUT])
def test_the_parameters_of_two_types_do_not_overlap(table):
    # Units vary by at most a tenth around their type.
    for shifts in table.values():
        for _, ranges in shifts:
            for low, high in ranges.values():
                assert high * 1.1 < 0.9 or low * 0.9 > 1.1


@pytest.mark.parametrize("kind", controls.VERDICTS)
def test_a_control_is_what_its_kind_says(pools, kind):
    pool = pools[kind]
    assert pool.verdict == controls.VERDICTS[kind]
    table = pool.table
    ours, by_a = table["type"] == "ours", table["operator"] == "OP-1"
    is_known = np.isin(table["unit"], pool.known)
    assert len(pool.known) == controls.NUM_KNOWN
    assert ours[is_known].all()
    assert ours.all() == (kind in ("same", "behaviour"))
    if kind in ("same", "dynamics"):
        assert len(np.unique(table["operator"])) == 6
        return
    assert by_a[is_known].all(), "the known are all driven by A"
    assert (ours & ~by_a).any() == (kind in ("behaviour", "both"))
    assert (~ours & by_a).any() == (kind == "both")
    if kind in ("behaviour", "both"):
        assert (ours & by_a & ~is_known).any()


def test_states_and_commands_overlap_unless_drivers_are_apart(pools):
    assert controls.overlap_of(pools["own-driver"]) >= controls.LEAST_SHARED
    apart = pools["own-driver-apart"]
    assert controls.overlap_of(apart) <= controls.MOST_SHARED
    speed, ours = apart.table["speed_kmh"], apart.table["type"] == "ours"
    ends = np.sort([np.quantile(speed[part], [0.05, 0.95]) for part in (ours, ~ours)], axis=0)
    assert ends[0, 1] < ends[1, 0]


def test_overlap_is_one_for_a_shuffle_and_zero_for_a_shift(pools):
    pool = pools["same"]
    units = np.unique(pool.table["unit"])
    half = np.isin(pool.table["unit"], np.random.default_rng(0).permutation(units)[:12])
    assert controls.overlap(pool.table, pool.fleet, half) > 0.8
    moved = pool.table | {n: pool.table[n] + 1_000.0 * half for n in pool.fleet.sensors}
    assert controls.overlap(moved, pool.fleet, half) < 0.01


def test_verdicts_are_recorded_and_counted(tmp_path, monkeypatch):
    def say(_, data, tasks):
        units = np.unique(data.columns["unit"])
        kept = np.isin(units, tasks[0].known)
        return [Decision(units, kept.astype(float), kept, 0.0, verdict="confounded")]

    monkeypatch.setitem(METHODS, "linear", say)
    recorded, chosen = Recorded(tmp_path / "rows.jsonl"), Method("linear")
    for kind in ("same", "own-driver-apart"):
        controls.measure(chosen, kind, 2, recorded)
        controls.measure(chosen, kind, 2, recorded)
    assert len(recorded.rows) == 2
    text = controls.text_table(chosen, recorded, list(controls.VERDICTS), range(2, 3))
    assert "| same | neither | 1 | 0 | confounded 1 |" in text
    assert "| own-driver-apart | confounded | 1 | 100 | confounded 1 |" in text
    assert "Confounded where it is not: 100.0 % of 1" in text
