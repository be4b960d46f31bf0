"""What can be known of a fleet: a classifier over units that is told the truth.

    python benchmarks/fleets/readout.py [--fleets pumps-impeller ...]

For each unit, s' - s is regressed on (s, a) (linear, or with squares and products); how its
coefficients differ from those of the whole fleet, in standard errors, is what a logistic regression
sees: one for each other type, ours against it; a unit is ours when all say so. Every unit is judged
by regressions that were not told its type (ten folds over units, drawn three times, log odds
averaged); the order of the features, how many coefficients are used (those
that differ most between the classes) and the penalty are chosen inside, by folds over the other
units. A fleet is decidable when at least 99 % of its units are right.
"""

import argparse
import json
from dataclasses import asdict, dataclass

import numpy as np
from simulate import FLEETS, Fleet, Table, followed, simulate, stack

DECIDABLE = 0.99
PENALTIES = (0.03, 1.0, 30.0)
"""Of the logistic regression, for units of mean square 1."""
ORDERS = (1, 2)
"""Of the one-step models: linear, or with squares and products."""
NUM_USED = (3, 12, 40, 10_000)
"""Coefficients that the logistic regression sees, at most."""
_RIDGE = 3.0
"""Of a unit's regression, in rows: how much the fleet's coefficients count."""
_NUM_OUTER, _NUM_INNER = 10, 5


@dataclass(frozen=True)
class ReadOut:
    """How well the types of a fleet's units can be told, by someone who knows the other units'."""

    accuracy: float
    auroc: float
    num_units: int

    @property
    def is_decidable(self) -> bool:
        """Whether methods are judged on this fleet."""
        return self.accuracy >= DECIDABLE


def read_out(table: Table, fleet: Fleet, *, num_draws: int = 3) -> ReadOut:
    """Tell our units from all others, each by regressions that do not know its type.

    Args:
        table: As `simulate` makes it.
        fleet: Names its sensors and commands, and its types.
        num_draws: How often folds are drawn.
    """
    units, ours = unit_types(table, fleet)
    first = np.unique(table["unit"], return_index=True)[1]
    names = [kind.name for kind in fleet.kinds]
    number = np.array([names.index(name) for name in table["type"][first]])
    inputs = [unit_coefficients(table, fleet, order) for order in ORDERS]
    logit = held_out_logits(inputs, number, num_draws=num_draws)
    return ReadOut(float(np.mean((logit > 0) == ours)), auroc(logit, ours), len(units))


def unit_types(table: Table, fleet: Fleet) -> tuple[np.ndarray, np.ndarray]:
    """(units,) names in their order, and (units,) bool: which are ours."""
    units, first = np.unique(table["unit"], return_index=True)
    return units, table["type"][first] == fleet.kinds[0].name


def unit_coefficients(table: Table, fleet: Fleet, order: int) -> np.ndarray:
    """(units, coefficients) float64. Each unit's one-step model less the fleet's, whitened.

    Args:
        table: As `simulate` makes it.
        fleet: Names its sensors and commands.
        order: 1 for a linear model, 2 with squares and products.
    """
    kept = followed(table, fleet.machine.step)
    state, action = stack(table, fleet.sensors), stack(table, fleet.commands)
    change = (np.roll(state, -1, axis=0) - state)[kept]
    x = np.hstack([state, action])[kept]
    return one_step_coefficients(x, change, table["unit"][kept], order)[0]


def one_step_coefficients(
    x: np.ndarray, change: np.ndarray, unit: np.ndarray, order: int
) -> tuple[np.ndarray, np.ndarray]:
    """As `unit_coefficients`, from rows; and (units, s), how far each unit's model misses.

    Args:
        x: (n, d). States and actions.
        change: (n, s). Next states less states.
        unit: (n,) str. Whose row it is.
        order: 1 for a linear model, 2 with squares and products.
    """
    basis = orthonormal(expand(x, order))
    shared = basis.T @ change / len(basis)
    residual = change - basis @ shared
    residual /= residual.std(axis=0)
    number = np.unique(unit, return_inverse=True)[1]
    found, error, missed = [], [], []
    for k in range(number.max() + 1):
        x, y = basis[number == k], residual[number == k]
        inverse = np.linalg.inv(x.T @ x + _RIDGE * np.eye(x.shape[1]))
        own = inverse @ (x.T @ y)
        left = np.sqrt(np.mean((y - x @ own) ** 2, axis=0))
        found.append(own)
        error.append(np.sqrt(np.diag(inverse))[:, None] * left)
        missed.append(left)
    scaled = np.stack(found) / np.median(error, axis=0)
    return scaled.reshape(len(found), -1), np.stack(missed)


def expand(value: np.ndarray, order: int) -> np.ndarray:
    """(n, features) float64. A constant, standardised values, and for order 2 their products."""
    spread = value.std(axis=0)
    z = (value - value.mean(axis=0)) / np.where(spread > 0, spread, 1.0)
    parts = [np.ones((len(z), 1)), z]
    if order == 2:
        one, two = np.triu_indices(z.shape[1])
        parts.append(z[:, one] * z[:, two])
    return np.hstack(parts)


def orthonormal(features: np.ndarray) -> np.ndarray:
    """The same span with columns of mean square 1 that are uncorrelated over all rows."""
    left, size, _ = np.linalg.svd(features, full_matrices=False)
    return left[:, size > 1e-6 * size[0]] * np.sqrt(len(features))


def held_out_logits(
    inputs: list[np.ndarray], kind: np.ndarray, *, num_draws: int = 3, seed: int = 0
) -> np.ndarray:
    """(units,) float64. Log odds that a unit is ours, by regressions on other units.

    Args:
        inputs: (units, features) each: the sets of features to choose from.
        kind: (units,) int. The types; 0 is ours.
        num_draws: How often folds are drawn.
        seed: Of the folds.
    """
    rng = np.random.default_rng(seed)
    logit = np.zeros(len(kind))
    for _ in range(num_draws):
        fold = _folds(kind, _NUM_OUTER, rng)
        for k in range(_NUM_OUTER):
            used, judged = np.flatnonzero(fold != k), np.flatnonzero(fold == k)
            against = []
            for other in range(1, kind.max() + 1):
                pair = used[(kind[used] == 0) | (kind[used] == other)]
                best = _best_choice(inputs, kind == 0, pair, rng)
                against.append(_logits(inputs, kind == 0, pair, judged)[best])
            logit[judged] += np.min(against, axis=0) / num_draws
    return logit


def auroc(score: np.ndarray, truth: np.ndarray) -> float:
    """Chance that one of ours scores above one of the others; ties count half."""
    ours, theirs = score[truth], score[~truth]
    above = (ours[:, None] > theirs).mean() + 0.5 * (ours[:, None] == theirs).mean()
    return float(above)


def _folds(kind: np.ndarray, count: int, rng: np.random.Generator) -> np.ndarray:
    """(units,) int. Folds that share out all types evenly."""
    fold = np.empty(len(kind), int)
    mixed = rng.permutation(len(kind))
    fold[mixed[np.argsort(kind[mixed], kind="stable")]] = np.arange(len(kind)) % count
    return fold


def _best_choice(
    inputs: list[np.ndarray], truth: np.ndarray, used: np.ndarray, rng: np.random.Generator
) -> int:
    """Number of the choice of `_logits` with the smallest log loss over folds of the used units."""
    fold = _folds(truth[used], _NUM_INNER, rng)
    losses = np.zeros(len(inputs) * len(NUM_USED) * len(PENALTIES))
    for k in range(_NUM_INNER):
        asked = used[fold == k]
        found = _logits(inputs, truth, used[fold != k], asked)
        # Both classes count the same.
        weight = 1.0 / np.where(truth[asked], truth[used].sum(), (~truth[used]).sum())
        losses += np.logaddexp(0.0, np.where(truth[asked], -found, found)) @ weight
    return int(np.argmin(losses))


def _logits(
    inputs: list[np.ndarray], truth: np.ndarray, used: np.ndarray, judged: np.ndarray
) -> np.ndarray:
    """(choices, judged) float64. Log odds by every choice of inputs, number used and penalty."""
    found = []
    for x in inputs:
        ours, others = x[used[truth[used]]], x[used[~truth[used]]]
        noise = np.sqrt(ours.var(axis=0) + others.var(axis=0)) + 1e-9
        order = np.argsort(-np.abs(ours.mean(axis=0) - others.mean(axis=0)) / noise)
        for count in NUM_USED:
            chosen = x[:, order[:count]] - x[np.ix_(used, order[:count])].mean(axis=0)
            kernel = chosen @ chosen[used].T
            kernel /= np.mean(np.diag(kernel[used]))
            for penalty in PENALTIES:
                found.append(_predict(kernel[used], kernel[judged], truth[used], penalty))
    return np.stack(found)


def _predict(
    kernel: np.ndarray, to_judged: np.ndarray, truth: np.ndarray, penalty: float
) -> np.ndarray:
    """(judged,) float64. Log odds by a ridge logistic regression.

    With as many unknowns as units: the weights of the features are a sum over units, and Newton's
    steps are taken in its terms. Both classes count the same, however many units they have.

    Args:
        kernel: (used, used). Products of the units' features.
        to_judged: (judged, used). The same for the judged units.
        truth: (used,) bool.
        penalty: On the squared weights.
    """
    y, n = truth.astype(np.float64), len(truth)
    share = np.where(truth, n / (2.0 * y.sum()), n / (2.0 * (n - y.sum())))
    dual, offset = np.zeros(n), 0.0
    system = np.ones((n + 1, n + 1))
    system[n, n] = 0.0
    for _ in range(20):
        logit = kernel @ dual + offset
        p = 1.0 / (1.0 + np.exp(-np.clip(logit, -30.0, 30.0)))
        weight = np.maximum(p * (1.0 - p), 1e-4)
        system[:n, :n] = kernel + np.diag(penalty / (share * weight))
        solved = np.linalg.solve(system, np.append(logit + (y - p) / weight, 0.0))
        moved = np.abs(solved[:n] - dual).max()
        dual, offset = solved[:n], solved[n]
        if moved < 1e-4 * (1.0 + np.abs(dual).max()):
            break
    return to_judged @ dual + offset


def main() -> None:
    """Print one line for each fleet, as JSON."""
    parser = argparse.ArgumentParser(description=(__doc__ or "").splitlines()[0])
    parser.add_argument("--fleets", nargs="+", choices=list(FLEETS), default=list(FLEETS))
    args = parser.parse_args()
    for name in args.fleets:
        fleet = FLEETS[name]
        found = read_out(simulate(fleet), fleet)
        print(json.dumps({"fleet": name, **asdict(found), "decidable": found.is_decidable}))


if __name__ == "__main__":
    main()
