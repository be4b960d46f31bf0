import csv
from dataclasses import replace

import numpy as np
import pytest
import simulate
from physics import BELT, CRANE, FAN, MACHINES, PLANT, PUMP, VEHICLE, advance
from simulate import FLEETS, KEYS, Fleet, Kind

SMALL = replace(
    FLEETS["pumps-bearing"],
    kinds=(Kind("ours", 3), Kind("other", 4, {"friction": 1.5})),
    runs=2,
    rows=40,
)


@pytest.fixture(scope="module")
def tables():
    return {name: simulate.simulate(fleet) for name, fleet in FLEETS.items()}


def test_the_same_name_gives_the_same_numbers_and_another_seed_others():
    one, two = simulate.simulate(SMALL), simulate.simulate(SMALL)
    other = simulate.simulate(replace(SMALL, seed=5))
    assert list(one) == list(two)
    for name in one:
        np.testing.assert_array_equal(one[name], two[name])
    length = min(len(one["time"]), len(other["time"]))
    assert not np.array_equal(one["flow_m3h"][:length], other["flow_m3h"][:length])


def test_there_are_enough_fleets_and_half_are_held_out():
    fleets = list(FLEETS.values())
    assert len(fleets) >= 8
    assert len({fleet.seed for fleet in fleets}) == len(fleets)
    assert sum(fleet.held_out for fleet in fleets) == len(fleets) // 2
    for fleet in fleets:
        assert 10 <= fleet.num_units <= 60
        assert 2 <= len(fleet.kinds) <= 4
        assert 4 <= len(fleet.sensors) <= 12
        assert 1 <= len(fleet.commands) <= 3
        for kind in fleet.kinds:
            assert set(kind.factors) <= set(fleet.machine.parameters)


@pytest.mark.parametrize("name", FLEETS)
def test_a_table_holds_what_its_fleet_says(tables, name):
    fleet, table = FLEETS[name], tables[name]
    assert tuple(table) == (*KEYS, *fleet.sensors, *fleet.commands)
    assert len({len(column) for column in table.values()}) == 1
    units, first = np.unique(table["unit"], return_index=True)
    assert len(units) == fleet.num_units
    types = table["type"][first]
    assert {k.name: (types == k.name).sum() for k in fleet.kinds} == {
        k.name: k.count for k in fleet.kinds
    }
    assert len(np.unique(table["run"])) == fleet.num_units * fleet.runs
    # The order of the ids says nothing of the type.
    assert (np.diff((types == fleet.kinds[0].name).astype(int)) != 0).sum() > len(fleet.kinds)


@pytest.mark.parametrize("name", FLEETS)
def test_values_are_finite_rounded_within_range_and_not_stuck(tables, name):
    fleet, table = FLEETS[name], tables[name]
    for column in (*fleet.machine.sensors, *fleet.machine.commands):
        value = table[column.name]
        assert np.isfinite(value).all()
        assert value.std() > 0
        steps = value / column.resolution
        np.testing.assert_allclose(steps, np.round(steps), atol=1e-4)
    for command in fleet.machine.commands:
        value = table[command.name]
        assert value.min() >= command.low
        assert value.max() <= command.high
        assert (
            np.mean((value > command.low) & (value < command.high)) > 0.1
        )  # brakes are seldom used


@pytest.mark.parametrize("name", FLEETS)
def test_time_goes_forward_with_gaps(tables, name):
    fleet, table = FLEETS[name], tables[name]
    same_unit = table["unit"][1:] == table["unit"][:-1]
    same_run = table["run"][1:] == table["run"][:-1]
    dt = np.diff(table["time"])
    assert (dt[same_unit] > 0).all()
    assert np.median(dt[same_run]) == fleet.machine.step
    assert (dt[same_run] > 1.5 * fleet.machine.step).sum() > 5
    followed = simulate.followed(table, fleet.machine.step)
    assert not followed[-1]
    assert 0.9 < followed.mean() < 1


@pytest.mark.parametrize("name", FLEETS)
def test_operators_move_between_machines(tables, name):
    fleet, table = FLEETS[name], tables[name]
    operators = np.unique(table["operator"])
    assert len(operators) == fleet.operators
    for operator in operators:
        driven = table["operator"] == operator
        assert len(np.unique(table["unit"][driven])) > 2
        assert len(np.unique(table["type"][driven])) > 1


def test_correlated_operators_prefer_a_type():
    fleet = replace(SMALL, kinds=(Kind("a", 200), Kind("b", 200)), runs=5)
    kind = np.repeat([0, 1], 200)
    share = {}
    for assignment in ("random", "correlated"):
        changed = replace(fleet, assignment=assignment)
        operator = simulate.assign_operators(changed, kind, np.random.default_rng(0))
        share[assignment] = np.mean(operator[kind == 0] % 2 == 0)
    assert share["random"] == pytest.approx(0.5, abs=0.05)
    assert share["correlated"] == pytest.approx(0.8, abs=0.05)


@pytest.mark.parametrize("fleet", FLEETS.values(), ids=list(FLEETS))
def test_parameters_lie_around_those_of_their_type(fleet):
    kind = np.repeat(np.arange(len(fleet.kinds)), [k.count for k in fleet.kinds])
    drawn = simulate.draw_parameters(fleet, kind, np.random.default_rng(3))
    assert 0.03 <= fleet.spread[0] <= fleet.spread[1] <= 0.10
    for name, nominal in fleet.machine.parameters.items():
        expected = nominal * np.array([k.factors.get(name, 1.0) for k in fleet.kinds])[kind]
        off = np.abs(drawn[name] / expected - 1.0)
        assert off.max() <= 0.10
        assert off.max() > 0.01


def pairs(machine, **changes):
    """Parameters of two lanes: nominal, and changed."""
    return {
        name: value * np.array([1.0, changes.get(name, 1.0)])
        for name, value in machine.parameters.items()
    }


def after(machine, parameters, rows, **commands):
    """The sensors of both lanes after some rows of a constant command, without noise."""
    state = machine.start(parameters, np.random.default_rng(0))
    state = {name: np.full(2, value[0]) for name, value in state.items()}
    command = {name: np.full(2, float(value)) for name, value in commands.items()}
    for _ in range(rows):
        state = advance(machine, state, command, parameters, None)
    return machine.show(state, parameters)


def test_a_heavier_vehicle_accelerates_less_and_a_weaker_motor_too():
    go = {"cmd_throttle_pct": 80, "cmd_brake_pct": 0}
    for change in ({"payload": 3.0}, {"motor": 0.7}):
        light, heavy = after(VEHICLE, pairs(VEHICLE, **change), 6, **go)["speed_kmh"]
        assert heavy < light - 1


def test_a_braked_vehicle_comes_to_rest_and_stays():
    stop = {"cmd_throttle_pct": 0, "cmd_brake_pct": 100}
    assert after(VEHICLE, pairs(VEHICLE), 60, **stop)["speed_kmh"].max() < 4


def test_a_worn_bearing_costs_current_and_heat_a_trimmed_impeller_pressure():
    run = {"cmd_valve_pct": 60, "cmd_speed_pct": 80}
    shown = after(PUMP, pairs(PUMP, friction=2.0), 300, **run)
    assert shown["motor_current_a"][1] > shown["motor_current_a"][0]
    assert shown["bearing_temp_c"][1] > shown["bearing_temp_c"][0] + 1
    shown = after(PUMP, pairs(PUMP, impeller=0.8), 60, **run)
    assert shown["pressure_bar"][1] < shown["pressure_bar"][0]
    assert shown["flow_m3h"][1] < shown["flow_m3h"][0]


def test_a_bare_tank_is_colder_and_without_heat_all_is_as_outside():
    heat = {"cmd_heater_pct": 60, "cmd_cooler_pct": 0}
    shown = after(PLANT, pairs(PLANT, insulation=2.0, leak=2.0), 400, **heat)
    assert shown["process_temp_c"][1] < shown["process_temp_c"][0] - 3
    still = after(PLANT, pairs(PLANT), 900, cmd_heater_pct=0, cmd_cooler_pct=0)
    np.testing.assert_allclose(still["process_temp_c"], still["ambient_temp_c"], atol=4)


def test_a_crane_at_rest_hangs_straight_and_a_push_swings_the_load_back():
    push = {"cmd_trolley_pct": 100, "cmd_hoist_pct": 0}
    parameters = pairs(CRANE, load=2.0)
    begin = {n: np.zeros(2) for n in CRANE.start(parameters, np.random.default_rng(0))}
    begin["rope"] = np.full(2, 6.0)
    rest = advance(CRANE, begin, {n: np.zeros(2) for n in push}, parameters, None)
    np.testing.assert_array_equal(rest["swing"], 0.0)
    state = begin
    for _ in range(6):
        state = advance(CRANE, state, {n: np.full(2, v) for n, v in push.items()}, parameters, None)
    assert (state["swing"] < 0).all()
    assert state["speed"][1] < state["speed"][0]  # the load holds the trolley back


def test_stiff_rollers_slow_the_belt_and_a_fouled_coil_cools_the_air():
    belt = after(BELT, pairs(BELT, rollers=1.5), 60, cmd_drive_pct=60, cmd_feeder_pct=50)
    assert belt["belt_speed_ms"][1] < belt["belt_speed_ms"][0]
    assert belt["motor_current_a"][1] > belt["motor_current_a"][0]
    run = {"cmd_fan_pct": 80, "cmd_damper_pct": 80, "cmd_coil_pct": 60}
    air = after(FAN, pairs(FAN, coil=0.6), 100, **run)
    assert air["supply_temp_c"][1] < air["supply_temp_c"][0] - 1


@pytest.mark.parametrize("machine", MACHINES.values(), ids=list(MACHINES))
def test_the_integrator_has_converged(machine):
    middle = {c.name: 0.5 * (c.low + c.high) for c in machine.commands}
    parameters = pairs(machine)
    coarse = after(machine, parameters, 10, **middle)
    fine = after(replace(machine, substeps=8 * machine.substeps), parameters, 10, **middle)
    for sensor in machine.sensors:
        scale = 0.03 * np.abs(fine[sensor.name]) + 2 * sensor.noise
        assert (np.abs(coarse[sensor.name] - fine[sensor.name]) < scale).all(), sensor.name


def test_written_files_look_like_a_log_and_keep_the_truth_apart(tmp_path):
    simulate.write(SMALL, tmp_path)
    table = simulate.simulate(SMALL)
    with open(tmp_path / "log.csv", newline="", encoding="utf-8") as file:
        log = list(csv.DictReader(file))
    assert list(log[0]) == ["timestamp", "unit_id", "run_id", *SMALL.sensors, *SMALL.commands]
    assert len(log) == len(table["time"])
    assert log[0]["timestamp"].startswith("2025-03-")
    assert log[0]["unit_id"] == "PMP-001"
    assert float(log[7]["flow_m3h"]) == table["flow_m3h"][7]
    with open(tmp_path / "truth.csv", newline="", encoding="utf-8") as file:
        truth = list(csv.DictReader(file))
    assert len(truth) == SMALL.num_units * SMALL.runs
    assert sum(row["ours"] == "1" for row in truth) == 3 * SMALL.runs
    assert {row["type"] for row in truth} == {"ours", "other"}


def test_fleets_of_one_type_alone_can_be_made():
    fleet = Fleet("one", PUMP, (Kind("ours", 2),), seed=1, held_out=False, runs=1, rows=20)
    assert set(simulate.simulate(fleet)["type"]) == {"ours"}
