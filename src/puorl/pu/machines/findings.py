"""What was found among machines: a decision about each unit, and what the choice rests on.

Free of jax, so that stored reports are read fast.
"""

import math
from dataclasses import dataclass
from typing import Literal, NamedTuple

import numpy as np

from puorl.pu.machines.mixture import SEEN

Verdict = Literal["dynamics", "both", "behaviour", "neither", "confounded"]
OURS, NONE = "ours", "none of these"
RESERVED = (OURS, NONE)
"""Names that types have, and that others must not have."""
LITTLE_OVERLAP = 0.05
_LOW_OVERLAP = 0.5
"""Below it, the advice warns that a difference in driving may have been missed."""
_CONFOUNDED = 0.1
"""Chance that types of machines are seen where drivers or ranges may be all that differs: so units
are decided as they look, and each decision is in doubt."""
FEW_UNITS = 3
_MOST_TIMES = 8.0
"""Times as many rows, up to which it is said how many would do."""
_NUM_NEIGHBOURS, _NUM_SEARCHED = 10, 60
_MOST_PRODUCTS = 32
"""Columns up to which their products are balanced, too; with more, their squares alone."""
_NUM_NEWTON, _FAR = 10, 4.0
_RIDGE = 3.0
"""Rows that the prior of a linear model is worth."""


class UnitTable(NamedTuple):
    """Decisions about units, one entry each."""

    name: np.ndarray
    """(n,) str."""
    num_rows: np.ndarray
    labelled: np.ndarray
    """(n,) bool. Known to be ours; kept in any case."""
    probability: np.ndarray
    """(n,) float64. Chance to be ours; 1 for labelled units."""
    evidence: np.ndarray
    """(n,) float64, nats. Log ratio of the likelihoods of ours and of the other types."""
    misfit: np.ndarray
    """(n,) float64, nats a row. How much worse our type explains a unit's rows than its own z."""
    keep: np.ndarray
    """(n,) bool."""
    cluster: np.ndarray
    """(n,) int64. 0 is ours, others follow by number of units; -1 is none of these."""
    agreement: np.ndarray
    """(n,) float64. Weight of the lanes that decide alike."""
    position: np.ndarray
    """(n, 2) float64. Place on the map: the two directions in which types differ most."""
    spread: np.ndarray
    """(n,) float64. Standard error of the place, in both directions."""
    classes: np.ndarray = np.zeros((0, 0))
    """(n, names + 2) float64. Probability of ours, of each other named type, and of none of these,
    in this order; they sum to 1. (n, 0) where no other type is named."""

    def __len__(self) -> int:
        return len(self.name)


@dataclass(frozen=True)
class Finding:
    """The evidence that a verdict rests on."""

    gain: float
    """Nats for more than one type of machine."""
    behaviour_gain: float
    """Nats for more than one way of driving."""
    overlap: float
    """Of states and actions of two groups of units, 1 as if shuffled, 0 apart: kept and other ones;
    where no types are seen, those of different drivers or in different ranges."""
    num_labelled: int
    """Units known to be ours."""
    is_crossed: bool = False
    """Whether one driver, at least, has machines of two types, so that types are compared within
    drivers."""
    num_odd: int = 0
    """Units that were dropped since they are unlike all others; a few, which make no type."""
    alike: tuple[tuple[tuple[str, ...], float], ...] = ()
    """Names that are not told apart, and the nats for a difference between them."""
    num_rows: float = 0.0
    """Of a unit, the median; 0 in filters from before it was stored."""

    @property
    def verdict(self) -> Verdict:
        """Dynamics differ, behaviour differs, both or neither; or they cannot be told apart."""
        machines, drivers = self.gain >= SEEN, self.behaviour_gain >= SEEN
        if self.overlap < LITTLE_OVERLAP and not self.is_crossed:
            return "confounded"
        if machines:
            return "both" if drivers else "dynamics"
        return "behaviour" if drivers else "neither"

    @property
    def seen(self) -> float:
        """Chance that types of machines are seen at all."""
        if self.verdict == "confounded" and self.gain >= 0.0:
            return _CONFOUNDED
        return visibility(self.gain)

    @property
    def num_wanted(self) -> int:
        """Known units more with which a second type would be seen, if there is one like ours.

        That a known unit is not on the other side of a cut in halves is worth log 2 nats.
        """
        return max(math.ceil((SEEN - self.gain) / math.log(2.0)), 0)

    @property
    def rows_wanted(self) -> int:
        """Rows of a unit with which a second type would be seen, roughly; 0 if it cannot be said.

        Nats add up over rows. Where there are hardly any, they are chance.
        """
        if not SEEN > self.gain >= SEEN / _MOST_TIMES:
            return 0
        wanted = self.num_rows * SEEN / self.gain
        digit = 10.0 ** max(math.floor(math.log10(max(wanted, 1.0))) - 1, 0)
        return int(math.ceil(wanted / digit) * digit)

    @property
    def advice(self) -> str:
        """One or two sentences: what was found, what to do."""
        return self.advise(0)

    def advise(self, num_dropped: int, *, is_soft: bool = False) -> str:
        """Say what was found and what to do, where so many units were dropped.

        Units may be dropped although no type is clearly seen: each by its own odds. With
        ``is_soft`` all are kept, and these weigh less than 0.5.
        """
        low = "weighed below 0.5" if is_soft else "dropped"
        if self.verdict == "dynamics":
            text = (
                "Machines of more than one type were found by how they move; no difference in how "
                "they are driven is visible."
            )
            if self.overlap < _LOW_OVERLAP:
                text += (
                    " But states and actions of your type and of the others overlap by only "
                    f"{self.overlap:.0%}: drivers may differ in a way that was not seen."
                )
        elif self.verdict == "both":
            text = (
                "Machines of more than one type were found by how they move. They are driven in "
                "different ways, too: "
                + (
                    "types were compared among units that are driven alike."
                    if self.is_crossed
                    else f"{self.overlap:.0%} of their states and actions overlap."
                )
            )
        elif self.verdict == "confounded":
            text = (
                "There are groups of units that hardly share states and actions (overlap "
                f"{self.overlap:.0%}): machine and driver, or surroundings, cannot be told apart. "
                "Log some runs in which another driver, or the same commands, act on both. "
                "`puorl explain` names the columns in which a unit differs."
            )
        elif num_dropped and self.num_odd >= num_dropped:
            units, are = ("unit", "is") if num_dropped == 1 else ("units", "are")
            text = (
                f"{num_dropped} {units} that {are} unlike all others {are} {low}. So few do not "
                "show that the others are of one type: among these no second type is visible "
                f"({self.gain:.1f} nats, {SEEN:.0f} are needed)."
            )
        elif num_dropped:
            driven = "Units are driven in different ways. " if self.verdict == "behaviour" else ""
            text = (
                f"{driven}Evidence for a second type of machine is weak: {self.gain:.1f} nats, "
                f"{SEEN:.0f} are needed. Units {low} on it all the same: {num_dropped}. Do not "
                f"rely on the choice: keep all rows, label some {self.num_wanted} more units, or "
                f"some of the other type, or {self._more_rows}."
            )
        elif self.verdict == "behaviour":
            text = (
                "Units are driven in different ways, but move alike: no second type of machine is "
                "visible. No unit is dropped; if there are other machines, log what should differ. "
                "Where every type has drivers of its own, `--evidence rows` tells units apart by "
                "how they are driven."
            )
        elif self.gain <= 0.0:
            text = (
                "No second type of machine is visible: one type explains the units better, by "
                f"{-self.gain:.1f} nats. All rows are kept. If you know that there are others, "
                "label some of them, or add rows to every unit."
            )
        else:
            text = (
                "No second type of machine is visible, so the choice cannot be made: "
                f"evidence {self.gain:.1f} nats, {SEEN:.0f} are needed. Some {self.num_wanted} "
                "more labelled units would do if half of all are yours; or label units of the "
                f"other type, or {self._more_rows}."
            )
        text = "".join([text, *map(_not_told, self.alike)])
        if self.num_labelled == 1:
            return f"{text} Only one unit is known: all numbers hold only if it is typical."
        if self.num_labelled < FEW_UNITS:
            return f"{text} Only {self.num_labelled} units are known: one more makes it surer."
        return text

    @property
    def _more_rows(self) -> str:
        if not self.rows_wanted:
            return "add rows to every unit"
        return (
            f"add rows: roughly {self.rows_wanted:,} a unit would do, where there are "
            f"{self.num_rows:,.0f}, if evidence goes on adding up"
        )


def _not_told(alike: tuple[tuple[str, ...], float]) -> str:
    """Say in a sentence which names are not told apart, and what follows."""
    names, nats = alike
    every = f"{', '.join(names[:-1])} and {names[-1]}"
    if nats < 0.0:
        why = f"that they are one type explains the units better, by {-nats:.1f} nats"
    else:
        why = f"evidence that they differ is {nats:.1f} nats, {SEEN:.0f} are needed"
    return (
        f" {every} are not told apart: {why}. Which of them a unit is of is in doubt; label more "
        "units of each, or give them one name."
    )


def visibility(gain: float) -> float:
    """Return the chance that types are seen, given the nats for more than one; 0 where one wins."""
    return float(1.0 / (1.0 + np.exp(min(SEEN - gain, 50.0)))) if gain > 0.0 else 0.0


def nearest_rows(x: np.ndarray, unit: np.ndarray) -> tuple[np.ndarray, np.ndarray]:
    """Nearest rows of each, (n, k) int, and which of them count, (n, k) bool: of other units.

    Args:
        x: (n, f) float. Standardised states and actions.
        unit: (n,) int. Unit of each row.
    """
    from scipy.spatial import KDTree

    near = np.asarray(KDTree(x).query(x, min(_NUM_SEARCHED, len(x)))[1])
    elsewhere = unit[near] != unit[:, None]
    return near, elsewhere & (np.cumsum(elsewhere, axis=1) <= _NUM_NEIGHBOURS)


def overlap_of_rows(x: np.ndarray, unit: np.ndarray, keep: np.ndarray, *, seed: int = 0) -> float:
    """Measure how much kept and other units share states and actions: 1 as if shuffled, 0 apart.

    The fraction of nearest neighbours, among rows of other units, that are on the other side; as
    many rows of each side are compared, so that one half means no difference.

    Args:
        x: (n, f) float. Standardised states and actions.
        unit: (n,) int. Unit of each row.
        keep: (units,) bool.
        seed: Of the rows that are compared.
    """
    side = keep[unit]
    size = min(int(side.sum()), int((~side).sum()))
    if size == 0:
        return 1.0
    rng = np.random.default_rng(seed)
    parts = np.flatnonzero(side), np.flatnonzero(~side)
    rows = np.concatenate([rng.choice(part, size, replace=False) for part in parts])
    x, unit, side = x[rows], unit[rows], side[rows]
    near, counted = nearest_rows(x, unit)
    if not counted.any():
        return 0.0
    return float(min(1.0, 2.0 * np.mean((side[near] != side[:, None])[counted])))


def shared_rows(
    nearest: tuple[np.ndarray, np.ndarray], unit: np.ndarray, side: np.ndarray
) -> np.ndarray:
    """(n,) float64. Of each row's nearest rows of other units, the part on the other side.

    As weights these leave the rows that either side could have: what both have is compared.

    Args:
        nearest: From `nearest_rows`, of all rows.
        unit: (n,) int. Unit of each row.
        side: (units,) bool.
    """
    near, counted = nearest
    across = (side[unit][near] != side[unit][:, None]) & counted
    return across.sum(axis=1) / np.maximum(counted.sum(axis=1), 1)


def balanced_rows(x: np.ndarray, side: np.ndarray) -> np.ndarray:
    """(n,) float64. Chance of each row to be of the other side, by a logistic regression.

    As weights these make both sides alike in the means of all that the regression sees: columns,
    their squares and products. What a linear model gets wrong is then nearly the same on both.

    Args:
        x: (n, f) float. Standardised.
        side: (n,) bool. Of each row.
    """
    x = np.clip(np.asarray(x, np.float64), -_FAR, _FAR)
    num = x.shape[1]
    one, two = np.triu_indices(num) if num <= _MOST_PRODUCTS else (np.arange(num),) * 2
    product = x[:, one] * x[:, two]
    product = (product - product.mean(axis=0)) / (product.std(axis=0) + 1e-9)
    given = np.hstack([np.ones((len(x), 1)), x, product])
    slope, prior = np.zeros(given.shape[1]), np.eye(given.shape[1])
    chance = np.full(len(x), 0.5)
    for _ in range(_NUM_NEWTON):
        curvature = (given * (chance * (1.0 - chance))[:, None]).T @ given + prior
        step = np.linalg.solve(curvature, given.T @ (side - chance) - slope)
        slope += step
        chance = 1.0 / (1.0 + np.exp(-np.clip(given @ slope, -15.0, 15.0)))
        if np.abs(step).max() < 1e-2:
            break
    return np.where(side, 1.0 - chance, chance)


def cost_across(
    x: np.ndarray, change: np.ndarray, unit: np.ndarray, side: np.ndarray, weight: np.ndarray
) -> np.ndarray:
    """(units,) float64, nats a row. Cost of a linear model of the other side, not of a unit's own.

    Each unit is predicted by as many units of its own side, itself not among them, as of the other.

    Args:
        x: (n, f) float. Standardised.
        change: (n, d) float. What is predicted.
        unit: (n,) int. Unit of each row.
        side: (units,) bool. At least two units on each.
        weight: (n,) float. Of each row, above 0 for some rows of every unit.
    """
    given = np.hstack([np.ones((len(x), 1)), np.asarray(x, np.float64)])
    parts = [np.flatnonzero(unit == k) for k in range(len(side))]
    weighed = given * weight[:, None]
    square = np.stack([weighed[own].T @ given[own] for own in parts])
    product = np.stack([weighed[own].T @ change[own] for own in parts])
    prior = _RIDGE * np.eye(given.shape[1])

    def model(units: np.ndarray) -> np.ndarray:
        return np.linalg.solve(square[units].sum(axis=0) + prior, product[units].sum(axis=0))

    missed = np.abs(change - given @ model(np.arange(len(side))))
    scale = np.median(missed, axis=0) / 0.6745 + 1e-9

    def cost(own: np.ndarray, slope: np.ndarray) -> float:
        away = (change[own] - given[own] @ slope) / scale
        return float(weight[own] @ np.log1p(np.square(away) / 4.0).sum(axis=1))

    made = np.zeros(len(side))
    for k, own in enumerate(parts):
        among = np.flatnonzero((side == side[k]) & (np.arange(len(side)) != k))
        across = np.flatnonzero(side != side[k])
        least = min(len(among), len(across))
        worse = cost(own, model(across[:least])) - cost(own, model(among[:least]))
        made[k] = 2.5 * worse / weight[own].sum()
    return made
