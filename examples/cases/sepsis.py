"""Wards of two hospitals treat sepsis; in the second, patients answer to treatment otherwise.

The simulator is `icu-sepsis`: 713 states of patients and 25 doses (five of fluids by five of
vasopressors), estimated by its authors from hospital records; survival gives 1, death 0. The second
hospital has another table of transitions: in each state the effects of its admissible doses are
exchanged, the best with the worst, and patients sink to a nearby sicker state more often. Its
doctors also depart from the usual prescriptions more often.
"""

from collections.abc import Mapping
from functools import cache
from typing import Any, NamedTuple

import numpy as np
from simulator import Act, Log, main, numbered

SIZES = {"small": (12, 50), "full": (24, 150)}
"""Wards, admissions of each."""
SINKING = 0.25
"""Chance of a step in the second hospital to end in a sicker state."""
FREEDOM = {"first": 0.3, "second": 0.5}
"""Part of the doses that are drawn from all admissible ones, not from the usual prescriptions."""
_END = 713
"""States from here on are ends: death, survival, none."""
_MOST_STEPS = 60


class Tables(NamedTuple):
    """What is known of the patients."""

    features: np.ndarray
    """(716, 47) of each state."""
    admissible: np.ndarray
    """(716, 25) bool."""
    usual: np.ndarray
    """(716, 25) chances of the doctors' doses."""
    start: np.ndarray
    move: dict[str, np.ndarray]
    """Hospital to (716, 25, 716) chances."""


@cache
def tables() -> Tables:
    """Read the simulator's tables, and make those of the second hospital."""
    from icu_sepsis import ICUSepsisEnv

    env = ICUSepsisEnv()
    known: dict[str, Any] = env.dynamics
    move, start = known["tx_mat"].astype(float), known["d_0"]
    reward = (move * known["r_mat"]).sum(axis=2)
    admissible = np.zeros(reward.shape, bool)
    for state, doses in enumerate(known["admissible_actions"]):
        admissible[state, doses] = True
    value, gain = np.zeros(len(start)), reward
    for _ in range(200):
        gain = reward + 0.99 * move @ value
        value[:_END] = np.where(admissible, gain, -1.0).max(axis=1)[:_END]
    other = move.copy()
    for state in range(_END):
        doses = np.flatnonzero(admissible[state])
        order = doses[np.argsort(gain[state, doses])]
        other[state, order] = move[state, order[::-1]]
    other = other @ _sinking(env.state_cluster_centers, env.sofa_scores, value)
    features = env.state_cluster_centers
    both = {"first": move, "second": other}
    return Tables(features, admissible, env.expert_policy, start, both)


def _sinking(features: np.ndarray, sofa: np.ndarray, value: np.ndarray) -> np.ndarray:
    """(716, 716) chances to sink from a state to the most similar one that is clearly worse."""
    made = np.eye(len(features))
    scaled = features[:_END] / features[:_END].std(axis=0)
    for state in range(_END):
        worse = np.flatnonzero((sofa[:_END] > sofa[state] + 1.0) & (value[:_END] < value[state]))
        if len(worse):
            distance = np.linalg.norm(scaled[worse] - scaled[state], axis=1)
            made[state, state] = 1.0 - SINKING
            made[state, worse[np.argmin(distance)]] += SINKING
    return made


def record(size: str, seed: int) -> Log:
    """Treat all patients of all wards."""
    rng = np.random.default_rng([seed, 2])
    count, admissions = SIZES[size]
    second = rng.permutation(count) >= count // 2
    log, known = Log("ward"), tables()
    for number in range(count):
        ward, hospital = f"W{number + 1:02d}", "second" if second[number] else "first"
        log.add_unit(ward, f"{hospital} hospital", is_ours=not second[number])
        for admission in range(admissions):
            state = int(rng.choice(len(known.start), p=known.start))
            run, ratio = f"{ward}-{admission:03d}", 0.0
            for step in range(_MOST_STEPS):
                doses = {name: dose_chances(known, name, state) for name in FREEDOM}
                dose = int(rng.choice(25, p=doses[hospital]))
                chances = known.move[hospital][state, dose]
                after = int(rng.choice(len(chances), p=chances / chances.sum()))
                ratio += log_ratio(doses, dose) + log_ratio(
                    {name: known.move[name][state, dose] for name in FREEDOM}, after
                )
                over = after >= _END
                log.add(ward, run, step, {
                    **numbered("obs", known.features[state], 3), "dose": dose,
                    "survived": int(after == _END + 1), "over": int(over),
                })  # fmt: skip
                if over:
                    break
                state = after
            log.episodes.append(
                {"run": run, "ours": int(not second[number]), "log_ratio": round(ratio, 3)}
            )
    return log


def dose_chances(known: Tables, hospital: str, state: int) -> np.ndarray:
    """(25,) chances of the doses in a state."""
    free = known.admissible[state] / known.admissible[state].sum()
    return (1 - FREEDOM[hospital]) * known.usual[state] + FREEDOM[hospital] * free


def log_ratio(chances: Mapping[str, np.ndarray], outcome: int) -> float:
    """Evidence of an outcome for the first hospital; the tables have zeros, here 1e-9."""
    first, second = (chances[name][outcome] + 1e-9 for name in ("first", "second"))
    return float(np.log(first / second))


def play(act: Act, start: int) -> Mapping[str, float]:
    """Treat 50 patients of the first hospital; doses that are not admissible act as a mean one."""
    rng, known = np.random.default_rng([start, 3]), tables()
    survived, odd, steps = 0, 0, 0
    for _ in range(50):
        state = int(rng.choice(len(known.start), p=known.start))
        for _ in range(_MOST_STEPS):
            dose = int(act(known.features[state]))
            odd, steps = odd + int(not known.admissible[state, dose]), steps + 1
            chances = known.move["first"][state, dose]
            state = int(rng.choice(len(chances), p=chances / chances.sum()))
            if state >= _END:
                survived += int(state == _END + 1)
                break
    return {"return": 2.0 * survived, "inadmissible": round(odd / steps, 3)}


if __name__ == "__main__":
    main(record, play)
