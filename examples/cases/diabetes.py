"""Patients with diabetes of type 1: children, adolescents and adults, all with pump and sensor.

The simulator is `simglucose`, the UVA/Padova model with its 30 patients. Every patient wears a
glucose sensor and a pump that is set every 15 minutes; meals are announced. The pump follows the
usual rule (basal rate, and a bolus for meals and high values), with settings that are too high or
too low from day to day.
"""

from collections.abc import Mapping
from functools import cache
from types import SimpleNamespace
from typing import Any

import numpy as np
from simulator import Act, Log, main, numbered

SIZES = {"small": 3, "full": 6}
"""Days of each patient."""
GROUPS = ("adolescent", "adult", "child")
STEP = 15
"""Minutes."""
_STEPS = 24 * 60 // STEP


class Patient:
    """One patient over a day."""

    def __init__(self, name: str, rng: np.random.Generator) -> None:
        from simglucose.actuator.pump import InsulinPump
        from simglucose.patient.t1dpatient import T1DPatient
        from simglucose.sensor.cgm import CGMSensor

        row, self.quest = _parameters(name)
        self.basal = row.u2ss * row.BW / 6000.0
        """Units of insulin a minute that hold the patient's glucose."""
        self._rng = rng
        first = np.array([row[f"x0_{k:2d}"] for k in range(1, 14)], float)
        first[[3, 4, 12]] *= rng.uniform(0.7, 1.3)
        # Reading a pandas row by name takes most of the simulator's time.
        self._body = T1DPatient(SimpleNamespace(**row.to_dict()), init_state=first)
        self._sensor = CGMSensor.withName("Dexcom", seed=int(rng.integers(2**31)))
        self._pump = InsulinPump.withName("Insulet")
        self.meals = self._draw_meals(float(row.BW))
        reading = float(self._sensor.measure(self._body))
        self.glucose, self._insulin, self._eaten, self.minute = [reading] * 3, 0.0, 0.0, 0
        self.true: list[float] = []

    def _draw_meals(self, weight: float) -> dict[int, float]:
        """Draw grams of carbohydrates by quarter of an hour."""
        made: dict[int, float] = {}
        for hour, grams, chance in ((7, 0.6, 1), (10, 0.2, 0.4), (12.5, 0.8, 1), (16, 0.2, 0.4),
                                    (19, 0.9, 1)):  # fmt: skip
            if self._rng.uniform() < chance:
                at = int((hour + self._rng.normal(0, 0.7)) * 60 / STEP)
                made[at] = weight * grams * self._rng.uniform(0.6, 1.4)
        return made

    @property
    def next_meal(self) -> float:
        """Grams that are announced for the coming quarter of an hour."""
        return self.meals.get(self.minute // STEP, 0.0)

    @property
    def state(self) -> np.ndarray:
        """Three readings, insulin and food that still act, the meal that comes, the hour."""
        angle = 2 * np.pi * self.minute / (24 * 60)
        return np.array([*self.glucose, self._insulin, self._eaten, self.next_meal,
                         np.sin(angle), np.cos(angle)])  # fmt: skip

    def step(self, units: float) -> tuple[float, bool]:
        """Give so many units over a quarter of an hour; return the reward, and whether it ended."""
        from simglucose.analysis.risk import risk_index
        from simglucose.patient.t1dpatient import Action

        rate = float(self._pump.basal(max(0.0, units) / STEP))
        meal = self.next_meal
        for k in range(STEP):
            self._body.step(Action(CHO=meal if k == 0 else 0.0, insulin=rate))
        self._insulin = 0.9 * self._insulin + rate * STEP
        self._eaten = 0.85 * self._eaten + meal
        self.minute += STEP
        true = float(self._body.observation.Gsub)
        self.true.append(true)
        self.glucose = [float(self._sensor.measure(self._body)), *self.glucose[:2]]
        ended = not 20.0 < true < 600.0
        return (-15.0 if ended else -float(risk_index([max(true, 1.0)], 1)[2]) / 10.0), ended


@cache
def _parameters(name: str) -> tuple[Any, Any]:
    import pandas as pd
    from simglucose.controller.basal_bolus_ctrller import CONTROL_QUEST
    from simglucose.patient.t1dpatient import PATIENT_PARA_FILE

    return tuple(
        (table := pd.read_csv(file))[table.Name == name].squeeze()
        for file in (PATIENT_PARA_FILE, CONTROL_QUEST)
    )


def record(size: str, seed: int) -> Log:
    """Log all days of all patients."""
    rng = np.random.default_rng([seed, 1])
    names = [f"{group}#{k:03d}" for group in GROUPS for k in range(1, 11)]
    log = Log("patient")
    for number, place in enumerate(rng.permutation(len(names))):
        name, true = f"P{number + 1:02d}", names[place]
        group = true.partition("#")[0]
        log.add_unit(name, group, is_ours=group == "adolescent", simulated=true)
        for day in range(SIZES[size]):
            patient = Patient(true, rng)
            factor = np.exp(rng.normal(0, 0.3, 2))
            state, ended = patient.state, False
            for step in range(_STEPS):
                if ended:
                    break
                high = max(0.0, patient.glucose[0] - 150.0) / patient.quest.CF
                bolus = patient.next_meal / patient.quest.CR + high * (patient.next_meal > 0)
                units = factor[0] * patient.basal * STEP + factor[1] * bolus
                units = round(units * rng.uniform(0.7, 1.3), 3)
                reward, ended = patient.step(units)
                log.add(name, f"{name}-{day}", step * STEP, {
                    **numbered("obs", state, 3), "insulin": units, "reward": round(reward, 4),
                    "ended": int(ended),
                })  # fmt: skip
                state = patient.state
    return log


def play(act: Act, start: int) -> Mapping[str, float]:
    """Treat an adolescent for a day."""
    patient = Patient(f"adolescent#{start % 10 + 1:03d}", np.random.default_rng([start, 9]))
    total, ended = 0.0, False
    while patient.minute < 24 * 60 and not ended:
        reward, ended = patient.step(float(act(patient.state)[0]))
        total += reward
    true, missed = np.array(patient.true), _STEPS - len(patient.true)
    return {
        "return": round(total - 15.0 * missed, 3),
        "in_range": round(float(np.sum((true >= 70) & (true <= 180))) / _STEPS, 4),
        "below": round(float(np.sum(true < 70) + missed) / _STEPS, 4),
    }


if __name__ == "__main__":
    main(record, play)
