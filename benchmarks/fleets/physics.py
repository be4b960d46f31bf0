"""Machines as differential equations: pumps, thermal plants, vehicles, cranes, belts, fans.

All functions work on lanes: one lane is one run of one unit, a state or parameter is an array over
lanes. A machine says how its state moves under commands, what its sensors show, and between which
set-points people drive it. Parameters are nominal values; a fleet scales them for each unit.
"""

from collections.abc import Callable, Mapping
from dataclasses import dataclass

import numpy as np

Lanes = dict[str, np.ndarray]
Values = Mapping[str, np.ndarray]
GRAVITY = 9.81


@dataclass(frozen=True)
class Sensor:
    """One column of the log that is measured."""

    name: str
    noise: float
    """Standard deviation of what is added to the true value."""
    resolution: float = 0.0
    """Readings are multiples of this; 0 for no rounding."""


@dataclass(frozen=True)
class Command:
    """One column of the log that a person or controller sets, and how it is usually set."""

    name: str
    low: float
    high: float
    sensor: str | None
    """Sensor that is steered; None for a command that follows a schedule of its own. Commands that
    steer the same sensor share their schedule."""
    setpoints: tuple[float, float]
    """Range of set-points: of the sensor, or of the command itself."""
    gain: float = 0.0
    """Command per unit of (set-point - sensor)."""
    integral: float = 0.0
    """Further command per unit of error and step."""
    base: float = 0.0
    """Command without error."""
    resolution: float = 0.1


@dataclass(frozen=True)
class Machine:
    """A family of machines."""

    name: str
    prefix: str
    """First letters of the ids of its units."""
    step: float
    """Seconds between two rows of the log."""
    substeps: int
    """Steps of the integrator between two rows."""
    parameters: Mapping[str, float]
    sensors: tuple[Sensor, ...]
    commands: tuple[Command, ...]
    start: Callable[[Values, np.random.Generator], Lanes]
    """State at the start of a run."""
    move: Callable[[Values, Values, Values], Lanes]
    """Rates of change a second from state, commands and parameters."""
    show: Callable[[Values, Values], Lanes]
    """True values of the sensors from state and parameters."""
    process_noise: Mapping[str, float]
    """Deviation of the random walk of a state over one second."""
    floor: Mapping[str, float]
    """Smallest value of a state."""


def advance(
    machine: Machine,
    state: Values,
    command: Values,
    parameters: Values,
    rng: np.random.Generator | None,
) -> Lanes:
    """The state one row of the log later, by Euler's rule; without a generator, without noise."""
    state = dict(state)
    dt = machine.step / machine.substeps
    for _ in range(machine.substeps):
        rate = machine.move(state, command, parameters)
        for name, change in rate.items():
            state[name] = state[name] + dt * change
            if rng is not None and name in machine.process_noise:
                kick = rng.normal(size=state[name].shape)
                state[name] = state[name] + machine.process_noise[name] * np.sqrt(dt) * kick
        for name, least in machine.floor.items():
            state[name] = np.maximum(state[name], least)
    return state


def _count(parameters: Values) -> int:
    return len(next(iter(parameters.values())))


def _start_pump(p: Values, rng: np.random.Generator) -> Lanes:
    n = _count(p)
    ambient = rng.uniform(12.0, 28.0, n)
    return {
        "speed": rng.uniform(1.6, 2.6, n),
        "flow": rng.uniform(15.0, 35.0, n),
        "current": rng.uniform(4.0, 10.0, n),
        "bearing": ambient + rng.uniform(5.0, 25.0, n),
        "ambient": ambient,
    }


def _head(s: Values, p: Values) -> np.ndarray:
    return p["head"] * (p["impeller"] * s["speed"]) ** 2 - p["slope"] * s["flow"] ** 2


def _move_pump(s: Values, c: Values, p: Values) -> Lanes:
    opening = np.maximum(c["cmd_valve_pct"], 5.0) / 100.0
    friction = p["friction"] * (0.5 + 0.3 * s["speed"])
    wanted = 3.0 * c["cmd_speed_pct"] / 100.0
    drive = np.clip(p["drive_gain"] * (wanted - s["speed"]), 0.0, 25.0)
    load = friction + p["hydraulic"] * p["impeller"] * s["flow"] * s["speed"]
    heat = friction * s["speed"] + p["copper"] * s["current"] ** 2
    system = 0.5 + p["pipe"] * s["flow"] ** 2 / opening**2
    return {
        "current": (drive - s["current"]) / p["current_lag"],
        "speed": (p["torque"] * s["current"] - load) / p["inertia"],
        "flow": (_head(s, p) - system) / p["inertance"],
        "bearing": (heat - p["cooling"] * (s["bearing"] - s["ambient"])) / p["heat_capacity"],
        "ambient": (20.0 - s["ambient"]) / 3_600.0,
    }


def _show_pump(s: Values, p: Values) -> Lanes:
    return {
        "pressure_bar": _head(s, p),
        "flow_m3h": s["flow"],
        "bearing_temp_c": s["bearing"],
        "motor_current_a": s["current"],
        "speed_rpm": 1_000.0 * s["speed"],
        "ambient_temp_c": s["ambient"],
    }


PUMP = Machine(
    name="pump",
    prefix="PMP",
    step=1.0,
    substeps=20,
    parameters={
        "head": 0.667,
        "impeller": 1.0,
        "slope": 0.00125,
        "pipe": 0.0006,
        "inertance": 0.2,
        "friction": 1.0,
        "hydraulic": 0.033,
        "torque": 0.5,
        "inertia": 3.0,
        "drive_gain": 40.0,
        "current_lag": 0.3,
        "copper": 0.01,
        "cooling": 0.2,
        "heat_capacity": 20.0,
    },
    sensors=(
        Sensor("pressure_bar", 0.02, 0.01),
        Sensor("flow_m3h", 0.2, 0.1),
        Sensor("bearing_temp_c", 0.05, 0.1),
        Sensor("motor_current_a", 0.08, 0.01),
        Sensor("speed_rpm", 5.0, 1.0),
        Sensor("ambient_temp_c", 0.1, 0.1),
    ),
    commands=(
        Command("cmd_valve_pct", 10, 100, None, (25.0, 95.0), resolution=1.0),
        Command("cmd_speed_pct", 20, 100, "pressure_bar", (1.2, 4.2), 6.0, 1.2, 72.0),
    ),
    start=_start_pump,
    move=_move_pump,
    show=_show_pump,
    process_noise={"flow": 0.3, "speed": 0.004, "current": 0.05, "bearing": 0.02, "ambient": 0.01},
    floor={"flow": 0.0, "speed": 0.0, "current": 0.0},
)


def _start_plant(p: Values, rng: np.random.Generator) -> Lanes:
    n = _count(p)
    room = rng.uniform(30.0, 50.0, n)
    return {
        "room": room,
        "wall": room - rng.uniform(2.0, 12.0, n),
        "element": room + rng.uniform(0.0, 40.0, n),
        "outside": rng.uniform(0.0, 20.0, n),
        "clock": rng.uniform(0.0, 86_400.0, n),
        "power": rng.uniform(0.0, 8.0, n),
    }


def _move_plant(s: Values, c: Values, p: Values) -> Lanes:
    given = p["transfer"] * (s["element"] - s["room"])
    through = p["contact"] * (s["room"] - s["wall"])
    cooled = p["cooler"] * c["cmd_cooler_pct"] / 100.0 * (s["room"] - 6.0)
    leak = p["leak"] * (s["room"] - s["outside"])
    lost = p["insulation"] * (s["wall"] - s["outside"])
    mean = 10.0 + 6.0 * np.sin(2.0 * np.pi * s["clock"] / 86_400.0)
    return {
        "power": (p["heater"] * c["cmd_heater_pct"] / 100.0 - s["power"]) / 20.0,
        "element": (s["power"] - given) / (60.0 * p["element_capacity"]),
        "room": (given - through - cooled - leak) / (60.0 * p["room_capacity"]),
        "wall": (through - lost) / (60.0 * p["wall_capacity"]),
        "outside": (mean - s["outside"]) / 7_200.0,
        "clock": np.ones_like(s["clock"]),
    }


def _show_plant(s: Values, p: Values) -> Lanes:
    return {
        "process_temp_c": s["room"],
        "wall_temp_c": s["wall"],
        "element_temp_c": s["element"],
        "ambient_temp_c": s["outside"],
        "heater_power_kw": s["power"],
    }


PLANT = Machine(
    name="thermal plant",
    prefix="TNK",
    step=60.0,
    substeps=12,
    parameters={
        "heater": 12.0,
        "transfer": 0.2,
        "contact": 0.3,
        "insulation": 0.15,
        "leak": 0.06,
        "cooler": 0.25,
        "element_capacity": 1.0,
        "room_capacity": 12.0,
        "wall_capacity": 30.0,
    },
    sensors=(
        Sensor("process_temp_c", 0.05, 0.1),
        Sensor("wall_temp_c", 0.05, 0.1),
        Sensor("element_temp_c", 0.2, 0.5),
        Sensor("ambient_temp_c", 0.1, 0.1),
        Sensor("heater_power_kw", 0.05, 0.01),
    ),
    commands=(
        Command("cmd_heater_pct", 0, 100, "process_temp_c", (32.0, 52.0), 9.0, 0.4, 45.0, 1.0),
        Command("cmd_cooler_pct", 0, 100, None, (0.0, 60.0), resolution=5.0),
    ),
    start=_start_plant,
    move=_move_plant,
    show=_show_plant,
    process_noise={"room": 0.006, "wall": 0.003, "element": 0.03, "outside": 0.01},
    floor={"power": 0.0},
)


def _start_vehicle(p: Values, rng: np.random.Generator) -> Lanes:
    n = _count(p)
    return {
        "speed": rng.uniform(4.0, 14.0, n),
        "grade": rng.normal(0.0, 0.02, n),
        "current": rng.uniform(0.0, 150.0, n),
        "charge": rng.uniform(0.35, 0.95, n),
        "motor": rng.uniform(35.0, 70.0, n),
    }


def _move_vehicle(s: Values, c: Values, p: Values) -> Lanes:
    throttle, brake = c["cmd_throttle_pct"] / 100.0, c["cmd_brake_pct"] / 100.0
    mass = p["empty_mass"] + p["payload"]
    moving = np.tanh(s["speed"] / 0.5)
    resistance = p["rolling"] * mass * GRAVITY * moving + p["drag"] * s["speed"] ** 2
    force = p["motor"] * s["current"] - p["brakes"] * brake * moving - resistance
    loss = p["copper"] * s["current"] ** 2 - p["cooling"] * (s["motor"] - 25.0)
    return {
        "speed": force / mass - GRAVITY * s["grade"],
        "grade": -s["grade"] / 12.0,
        "current": (400.0 * throttle - s["current"]) / p["current_lag"],
        "charge": -s["current"] / (3_600.0 * p["battery"]),
        "motor": loss / p["heat_capacity"],
    }


def _show_vehicle(s: Values, p: Values) -> Lanes:
    sag = p["resistance"] * s["current"]
    return {
        "speed_kmh": 3.6 * s["speed"],
        "grade_pct": 100.0 * s["grade"],
        "motor_current_a": s["current"],
        "battery_v": 350.0 + 50.0 * s["charge"] - sag,
        "battery_pct": 100.0 * s["charge"],
        "motor_temp_c": s["motor"],
    }


VEHICLE = Machine(
    name="vehicle",
    prefix="TRK",
    step=0.5,
    substeps=10,
    parameters={
        "empty_mass": 1_800.0,
        "payload": 600.0,
        "motor": 15.0,
        "brakes": 9_000.0,
        "rolling": 0.012,
        "drag": 1.4,
        "current_lag": 0.3,
        "battery": 120.0,
        "resistance": 0.1,
        "copper": 0.0005,
        "cooling": 0.4,
        "heat_capacity": 40.0,
    },
    sensors=(
        Sensor("speed_kmh", 0.15, 0.1),
        Sensor("grade_pct", 0.15, 0.1),
        Sensor("motor_current_a", 2.0, 1.0),
        Sensor("battery_v", 0.3, 0.1),
        Sensor("battery_pct", 0.05, 0.1),
        Sensor("motor_temp_c", 0.1, 0.1),
    ),
    commands=(
        Command("cmd_throttle_pct", 0, 100, "speed_kmh", (10.0, 60.0), 5.0, 0.05, 15.0, 1.0),
        Command("cmd_brake_pct", 0, 100, "speed_kmh", (15.0, 65.0), -3.0, 0.0, -5.0, 1.0),
    ),
    start=_start_vehicle,
    move=_move_vehicle,
    show=_show_vehicle,
    process_noise={"speed": 0.04, "grade": 0.006, "current": 2.0, "motor": 0.03},
    floor={"speed": 0.0, "current": 0.0, "charge": 0.0},
)


def _start_crane(p: Values, rng: np.random.Generator) -> Lanes:
    n = _count(p)
    return {
        "place": rng.uniform(3.0, 17.0, n),
        "speed": rng.normal(0.0, 0.2, n),
        "swing": rng.normal(0.0, 0.05, n),
        "swing_rate": rng.normal(0.0, 0.05, n),
        "rope": rng.uniform(4.0, 8.0, n),
        "hoist_speed": np.zeros(n),
        "current": np.zeros(n),
    }


def _move_crane(s: Values, c: Values, p: Values) -> Lanes:
    sin, cos = np.sin(s["swing"]), np.cos(s["swing"])
    pull = p["load"] * sin * (s["rope"] * s["swing_rate"] ** 2 + GRAVITY * cos)
    force = p["motor"] * s["current"] - p["wheels"] * s["speed"]
    push = (force + pull) / (p["trolley"] + p["load"] * sin**2)
    turn = -(push * cos + GRAVITY * sin + 2.0 * s["hoist_speed"] * s["swing_rate"]) / s["rope"]
    wanted = 0.6 * c["cmd_hoist_pct"] / 100.0
    end = (s["rope"] < 3.0) & (wanted < 0) | (s["rope"] > 9.0) & (wanted > 0)
    return {
        "current": (60.0 * c["cmd_trolley_pct"] / 100.0 - s["current"]) / p["current_lag"],
        "place": s["speed"],
        "speed": push,
        "swing": s["swing_rate"],
        "swing_rate": turn - p["air"] * s["swing_rate"],
        "rope": s["hoist_speed"],
        "hoist_speed": (np.where(end, 0.0, wanted) - s["hoist_speed"]) / p["hoist_lag"],
    }


def _show_crane(s: Values, p: Values) -> Lanes:
    return {
        "trolley_pos_m": s["place"],
        "trolley_speed_ms": s["speed"],
        "swing_deg": np.degrees(s["swing"]),
        "swing_rate_dps": np.degrees(s["swing_rate"]),
        "rope_m": s["rope"],
        "hoist_speed_ms": s["hoist_speed"],
        "motor_current_a": s["current"],
    }


CRANE = Machine(
    name="crane",
    prefix="CRN",
    step=0.25,
    substeps=10,
    parameters={
        "trolley": 1_000.0,
        "load": 500.0,
        "motor": 60.0,
        "wheels": 800.0,
        "air": 0.08,
        "current_lag": 0.1,
        "hoist_lag": 0.4,
    },
    sensors=(
        Sensor("trolley_pos_m", 0.01, 0.01),
        Sensor("trolley_speed_ms", 0.01, 0.01),
        Sensor("swing_deg", 0.1, 0.1),
        Sensor("swing_rate_dps", 0.3, 0.1),
        Sensor("rope_m", 0.01, 0.01),
        Sensor("hoist_speed_ms", 0.01, 0.01),
        Sensor("motor_current_a", 0.5, 0.1),
    ),
    commands=(
        Command("cmd_trolley_pct", -100, 100, "trolley_pos_m", (2.0, 18.0), 8.0, resolution=1.0),
        Command("cmd_hoist_pct", -100, 100, "rope_m", (3.5, 8.5), 40.0, resolution=5.0),
    ),
    start=_start_crane,
    move=_move_crane,
    show=_show_crane,
    process_noise={"speed": 0.01, "swing_rate": 0.006, "current": 0.3, "hoist_speed": 0.005},
    floor={"rope": 2.5},
)


def _start_belt(p: Values, rng: np.random.Generator) -> Lanes:
    n = _count(p)
    speed = rng.uniform(0.8, 1.8, n)
    return {
        "motor": speed * 1.02,
        "belt": speed,
        "current": rng.uniform(10.0, 30.0, n),
        "load": rng.uniform(50.0, 250.0, n),
        "gearbox": rng.uniform(30.0, 55.0, n),
        "mains": rng.normal(400.0, 5.0, n),
    }


def _move_belt(s: Values, c: Values, p: Values) -> Lanes:
    passed = p["coupling"] * (s["motor"] - s["belt"])
    rollers = (
        p["rollers"] * (300.0 + s["load"]) * (0.6 + 0.4 * s["belt"]) * np.tanh(s["belt"] / 0.1)
    )
    wanted = 2.5 * c["cmd_drive_pct"] / 100.0
    drive = np.clip(p["drive_gain"] * (wanted - s["motor"]), 0.0, 60.0) * s["mains"] / 400.0
    gearbox = p["gearbox"] * s["motor"]
    heat = gearbox * s["motor"] - p["cooling"] * (s["gearbox"] - 20.0)
    return {
        "current": (drive - s["current"]) / p["current_lag"],
        "motor": (p["torque"] * s["current"] - gearbox - passed) / p["rotor"],
        "belt": (passed - rollers) / (p["belt"] + s["load"]),
        "load": p["feeder"] * c["cmd_feeder_pct"] / 100.0 - s["load"] * s["belt"] / p["length"],
        "gearbox": heat / p["heat_capacity"],
        "mains": (400.0 - s["mains"]) / 10.0,
    }


def _show_belt(s: Values, p: Values) -> Lanes:
    return {
        "motor_speed_rpm": 600.0 * s["motor"],
        "belt_speed_ms": s["belt"],
        "motor_current_a": s["current"],
        "belt_load_kg": s["load"],
        "gearbox_temp_c": s["gearbox"],
        "supply_v": s["mains"],
    }


BELT = Machine(
    name="conveyor",
    prefix="BLT",
    step=0.5,
    substeps=25,
    parameters={
        "torque": 20.0,
        "rotor": 150.0,
        "belt": 250.0,
        "coupling": 1_500.0,
        "rollers": 0.45,
        "gearbox": 60.0,
        "drive_gain": 120.0,
        "current_lag": 0.15,
        "feeder": 40.0,
        "length": 12.0,
        "cooling": 4.0,
        "heat_capacity": 300.0,
    },
    sensors=(
        Sensor("motor_speed_rpm", 2.0, 1.0),
        Sensor("belt_speed_ms", 0.004, 0.001),
        Sensor("motor_current_a", 0.3, 0.1),
        Sensor("belt_load_kg", 3.0, 1.0),
        Sensor("gearbox_temp_c", 0.05, 0.1),
        Sensor("supply_v", 0.5, 1.0),
    ),
    commands=(
        Command("cmd_drive_pct", 0, 100, "belt_speed_ms", (0.6, 2.0), 20.0, 3.0, 62.0),
        Command("cmd_feeder_pct", 0, 100, None, (15.0, 90.0), resolution=1.0),
    ),
    start=_start_belt,
    move=_move_belt,
    show=_show_belt,
    process_noise={"belt": 0.004, "motor": 0.003, "load": 2.0, "mains": 2.0, "gearbox": 0.01},
    floor={"belt": 0.0, "motor": 0.0, "load": 0.0, "current": 0.0},
)


def _start_fan(p: Values, rng: np.random.Generator) -> Lanes:
    n = _count(p)
    outside = rng.uniform(-5.0, 15.0, n)
    return {
        "fan": rng.uniform(0.4, 0.9, n),
        "air": rng.uniform(1.0, 3.0, n),
        "coil": rng.uniform(25.0, 45.0, n),
        "supply": rng.uniform(12.0, 24.0, n),
        "zone": rng.uniform(17.0, 23.0, n),
        "outside": outside,
        "water": rng.uniform(55.0, 65.0, n),
    }


def _lift(s: Values, p: Values) -> np.ndarray:
    return p["wheel"] * s["fan"] ** 2 - p["stall"] * s["air"] ** 2


def _move_fan(s: Values, c: Values, p: Values) -> Lanes:
    opening = np.maximum(c["cmd_damper_pct"], 10.0) / 100.0
    valve = c["cmd_coil_pct"] / 100.0
    against = (p["filter"] + p["duct"] / opening**2) * s["air"] ** 2
    given = p["coil"] * np.sqrt(np.maximum(s["air"], 0.05)) * (s["coil"] - s["supply"])
    # Half of the air comes from outside, half from the zone.
    inlet = 0.5 * (s["outside"] + s["zone"])
    carried = 1.2 * s["air"]
    zone = carried * (s["supply"] - s["zone"]) - p["walls"] * (s["zone"] - s["outside"]) + 6.0
    return {
        "fan": (p["pulley"] * c["cmd_fan_pct"] / 100.0 - s["fan"]) / p["fan_lag"],
        "air": (_lift(s, p) - against) / p["inertance"],
        "coil": (p["water"] * valve * (s["water"] - s["coil"]) - given) / p["coil_capacity"],
        "supply": (given - carried * (s["supply"] - inlet)) / p["air_capacity"],
        "zone": zone / p["zone_capacity"],
        "outside": np.zeros_like(s["outside"]),
        "water": (60.0 - s["water"]) / 600.0,
    }


def _show_fan(s: Values, p: Values) -> Lanes:
    return {
        "airflow_m3s": s["air"],
        "duct_pressure_pa": _lift(s, p) - p["filter"] * s["air"] ** 2,
        "coil_temp_c": s["coil"],
        "supply_temp_c": s["supply"],
        "zone_temp_c": s["zone"],
        "outdoor_temp_c": s["outside"],
        "water_temp_c": s["water"],
        "fan_current_a": 1.0 + p["power"] * _lift(s, p) * s["air"] / 200.0 + 2.0 * s["fan"] ** 3,
    }


FAN = Machine(
    name="air handler",
    prefix="AHU",
    step=10.0,
    substeps=20,
    parameters={
        "wheel": 600.0,
        "stall": 20.0,
        "filter": 10.0,
        "duct": 12.0,
        "inertance": 400.0,
        "pulley": 1.0,
        "fan_lag": 6.0,
        "coil": 1.4,
        "water": 3.0,
        "coil_capacity": 50.0,
        "air_capacity": 40.0,
        "zone_capacity": 900.0,
        "walls": 0.8,
        "power": 1.0,
    },
    sensors=(
        Sensor("airflow_m3s", 0.02, 0.01),
        Sensor("duct_pressure_pa", 2.0, 1.0),
        Sensor("coil_temp_c", 0.15, 0.1),
        Sensor("supply_temp_c", 0.1, 0.1),
        Sensor("zone_temp_c", 0.05, 0.1),
        Sensor("outdoor_temp_c", 0.1, 0.5),
        Sensor("water_temp_c", 0.2, 0.5),
        Sensor("fan_current_a", 0.05, 0.01),
    ),
    commands=(
        Command("cmd_fan_pct", 10, 100, "duct_pressure_pa", (80.0, 320.0), 0.08, 0.02, 62.0, 1.0),
        Command("cmd_damper_pct", 15, 100, None, (30.0, 100.0), resolution=5.0),
        Command("cmd_coil_pct", 0, 100, "supply_temp_c", (16.0, 30.0), 4.0, 0.15, 35.0, 1.0),
    ),
    start=_start_fan,
    move=_move_fan,
    show=_show_fan,
    process_noise={"air": 0.008, "coil": 0.04, "supply": 0.04, "zone": 0.004, "outside": 0.01},
    floor={"air": 0.05, "fan": 0.0},
)

MACHINES = {machine.name: machine for machine in (PUMP, PLANT, VEHICLE, CRANE, BELT, FAN)}
