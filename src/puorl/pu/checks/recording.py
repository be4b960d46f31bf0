"""Columns that separate labelled from unlabelled rows by how they were recorded.

If labelled rows went through another export, a rounded digit is easier to learn than any dynamics,
and the filter finds the export instead of the domain. Checked are rounding, constant offsets, the
sample rate, columns that vary in one set only, and missing last states. States may differ because
the other domain behaves differently, so means and spreads are never compared.

Many columns are checked in many ways, so a difference counts only if it is large in practice and
far from chance: five standard errors, over groups where rows come in groups.

An offset is reported only if

- labelled values reach where hardly any unlabelled one is: were they a random draw of the target's,
  less than `_LARGEST_ALPHA` of the unlabelled rows could be the target's;
- moved by one constant, the labelled values have the shape of the unlabelled ones;
- the steps from row to row, which a constant does not change, are like those of the unlabelled.

Rounding may be to decimals, to half or single precision, or to an even grid of any step (an
encoder's). Values at the column's bounds and at 0 are left out: a saturated action is behaviour.
"""

from collections.abc import Iterator
from dataclasses import dataclass

import numpy as np

from puorl.core.stats import group_numbers
from puorl.data.split import PUSplit
from puorl.pu.checks.auroc import auroc, placements

LEAST_DIFFERENCE = 0.1
"""Smaller differences of two fractions hardly help a learner."""
NUM_ERRORS = 5.0
MANY_VALUES = 16
"""A column with no more different values than this is a choice, not a measurement."""


@dataclass(frozen=True)
class ColumnShortcut:
    """A column that separates labelled from unlabelled rows by how it was recorded."""

    column: str
    kind: str
    """``rounding``, ``offset``, ``sample rate``, ``constant`` or ``missing``."""
    auroc: float
    """AUROC (0.5 to 1) of this property alone."""
    sentence: str


@dataclass(frozen=True, eq=False)
class Side:
    """Values of one set, with the group of each row numbered from 0."""

    value: np.ndarray
    number: np.ndarray
    num_groups: int

    def where(self, rows: np.ndarray) -> "Side":
        """Return some of the rows."""
        return Side(self.value[rows], self.number[rows], self.num_groups)

    def fraction_and_error(self, holds: np.ndarray) -> tuple[float, float]:
        """Return the fraction of rows for which something holds, and its standard error."""
        fraction = float(holds.mean())
        present = int(np.count_nonzero(np.bincount(self.number, minlength=self.num_groups)))
        sums = np.bincount(self.number, holds - fraction, self.num_groups)
        spread = np.sqrt(np.sum(sums**2) * present / max(present - 1, 1)) / len(holds)
        # Groups that all agree have no spread, although they may be few.
        inner = (fraction * present + 0.5) / (present + 1)
        return fraction, float(max(spread, np.sqrt(inner * (1 - inner) / present)))


def clear_difference(p: Side, u: Side, holds_p: np.ndarray, holds_u: np.ndarray) -> float | None:
    """Return the fraction in P minus that in U, or None if it is small or may be chance."""
    if len(holds_p) == 0 or len(holds_u) == 0:
        return None
    if abs(float(holds_p.mean()) - float(holds_u.mean())) < LEAST_DIFFERENCE:
        return None
    (in_p, error_p), (in_u, error_u) = p.fraction_and_error(holds_p), u.fraction_and_error(holds_u)
    difference = in_p - in_u
    return difference if abs(difference) > NUM_ERRORS * np.hypot(error_p, error_u) else None


def is_measured(values: np.ndarray) -> bool:
    """Return whether a column has more different values than a choice would."""
    return len(np.unique(values[:: max(1, len(values) // 4096)])) > MANY_VALUES


_LARGEST_ALPHA = 0.05
_TAILS = (0.05, 0.1, 0.2, 0.3, 0.5)
"""Fractions of the labelled rows that may reach out."""
_LEAST_VALUES = 20
_LEAST_GROUPS = 5
_LIKE = 0.1
"""Distributions that differ by less are alike,"""
_MUCH_NEARER = 0.25
"""and so are those that differ by this factor less than before the shift."""


def find_offset(
    p: Side, u: Side, step_p: np.ndarray | None, step_u: np.ndarray | None
) -> tuple[float, str] | None:
    """Find a constant offset: its AUROC and a description; None if there is none.

    Args:
        p: Labelled values.
        u: Unlabelled values.
        step_p: Change of the column in each labelled row, where it is known.
        step_u: The same for unlabelled rows.
    """
    if not (is_measured(p.value) and is_measured(u.value) and _reaches_out(p, u)):
        return None
    shift = float(np.median(p.value) - np.median(u.value))
    before = largest_distance(p.value, u.value)
    noise = 1.36 * np.sqrt(1 / len(p.value) + 1 / len(u.value))
    allowed = min(_LIKE, max(_MUCH_NEARER * before, noise))
    if before < 2 * allowed or largest_distance(p.value - shift, u.value) > allowed:
        return None
    if step_p is not None and step_u is not None:
        if largest_distance(step_p, step_u) > max(_LIKE, _MUCH_NEARER * before):
            return None
    chance = float(placements(p.value, u.value).labelled.mean())
    words = f"labelled values are shifted by {shift:.3g} against unlabelled ones of the same shape"
    return max(chance, 1 - chance), words


def largest_distance(x: np.ndarray, y: np.ndarray) -> float:
    """Return the Kolmogorov-Smirnov distance."""
    x, y = np.sort(x), np.sort(y)
    at = np.concatenate([x, y])
    below_x = np.searchsorted(x, at, side="right") / len(x)
    below_y = np.searchsorted(y, at, side="right") / len(y)
    return float(np.abs(below_x - below_y).max())


def _reaches_out(p: Side, u: Side) -> bool:
    for tail in _TAILS:
        for sign in (1, -1):
            edge = np.quantile(sign * p.value, 1 - tail)
            out_p, out_u = sign * p.value > edge, sign * u.value > edge
            num_p, num_u = np.count_nonzero(out_p), np.count_nonzero(out_u)
            most_u = (num_u + 3 * np.sqrt(num_u + 1)) / len(u.value)
            if num_p < _LEAST_VALUES or len(np.unique(p.number[out_p])) < _LEAST_GROUPS:
                continue
            if most_u < _LARGEST_ALPHA * num_p / len(p.value):
                return True
    return False


_MAX_DECIMALS = 6
_GRID_SAMPLE = 4096
_GRID_TOLERANCE = 0.1
"""Values on no grid fall on one by chance with twice this probability."""


def find_rounding(p: Side, u: Side) -> tuple[float, str] | None:
    """Find a difference in rounding: its AUROC and a description; None if there is none."""
    low = min(p.value.min(), u.value.min())
    high = max(p.value.max(), u.value.max())
    p, u = (side.where(~np.isin(side.value, (low, high, 0))) for side in (p, u))
    if len(p.value) == 0 or len(u.value) == 0:
        return None
    best: tuple[float, str] | None = None
    for text, holds_p, holds_u in _roundings(p.value, u.value):
        difference = clear_difference(p, u, holds_p, holds_u)
        if difference is None or (best is not None and abs(difference) <= 2 * best[0] - 1):
            continue
        rounded = p.value[holds_p] if difference > 0 else u.value[holds_u]
        if not is_measured(rounded):
            continue
        words = (
            f"{holds_p.mean():.0%} of labelled values {text}, {holds_u.mean():.0%} of unlabelled"
        )
        best = (0.5 + abs(difference) / 2, words)
    return best


def _roundings(p: np.ndarray, u: np.ndarray) -> Iterator[tuple[str, np.ndarray, np.ndarray]]:
    """Yield every kind of rounding: a description, and the rows of both sets that have it."""
    eps = max(float(np.finfo(a.dtype).eps) for a in (p, u))
    p, u = p.astype(np.float64), u.astype(np.float64)
    largest = max(np.abs(p).max(), np.abs(u).max())
    for decimals in range(_MAX_DECIMALS + 1):
        scale = 10.0**decimals
        # Beyond this the spacing of floats itself looks like rounding.
        if eps * largest * scale > 0.01:
            break
        plural = "decimal" if decimals == 1 else "decimals"
        words = f"have at most {decimals} {plural}" if decimals else "are whole numbers"
        yield words, _multiples(p, scale, eps), _multiples(u, scale, eps)
    for name, kind in (("half", np.float16), ("single", np.float32)):
        info = np.finfo(kind)
        if eps < float(info.eps) and largest < float(info.max):
            yield f"are of {name} precision", p.astype(kind) == p, u.astype(kind) == u
    for values in (p, u):
        grid = _grid(values, eps)
        if grid is not None:
            words = f"lie on a grid of step {grid[1]:.3g}"
            yield words, _on_grid(p, *grid), _on_grid(u, *grid)


def _multiples(x: np.ndarray, scale: float, eps: float) -> np.ndarray:
    scaled = x * scale
    return np.abs(scaled - np.rint(scaled)) <= 2 * eps * np.abs(scaled)


def _grid(x: np.ndarray, eps: float) -> tuple[float, float] | None:
    """Return origin and step of an even grid that holds all values; None if there is none."""
    sample = x[:_GRID_SAMPLE]
    distinct = np.unique(sample)
    # Where hardly a value occurs twice, a grid cannot be recognised.
    if not MANY_VALUES < len(distinct) < len(sample) / 2:
        return None
    gap = np.diff(distinct)
    if eps * np.abs(distinct).max() > 0.02 * gap.min():
        return None
    times = np.rint(gap / gap.min())
    step = float((distinct[-1] - distinct[0]) / times.sum())
    if np.abs(gap / step - times).max() > _GRID_TOLERANCE:
        return None
    return float(distinct[0]), step


def _on_grid(x: np.ndarray, origin: float, step: float) -> np.ndarray:
    place = (x - origin) / step
    return np.abs(place - np.rint(place)) <= _GRID_TOLERANCE


_MAX_TIMES = 100_000


def find_sample_rate(split: PUSplit, *, rng: np.random.Generator) -> ColumnShortcut | None:
    """Compare the time from each row to the next of its episode; None if it does not differ."""
    rows = split.pool.rows
    if rows.time is None or rows.episode is None:
        return None
    step = time_steps(rows.time, rows.episode)
    if np.isnan(step).all():
        return None
    # Differences of large time stamps are noisy in their last digits.
    step = np.round(step / max(float(np.nanmedian(step)), 1e-300), 2)
    known = [at[~np.isnan(step[at])] for at in (split.labelled, split.unlabelled)]
    p, u = (rng.choice(at, min(len(at), _MAX_TIMES), replace=False) for at in known)
    if min(len(p), len(u)) == 0:
        return None
    found = auroc(step[p], step[u], group_p=rows.episode[p], group_u=rows.episode[u])
    distance = abs(found.value - 0.5)
    # The half width of an interval is about two standard errors.
    if distance < LEAST_DIFFERENCE / 2 or distance < NUM_ERRORS * found.half_width / 2:
        return None
    times = float(np.median(step[p]) / max(float(np.median(step[u])), 1e-300))
    return ColumnShortcut(
        "time",
        "sample rate",
        0.5 + distance,
        f"time: labelled rows are recorded at another rate (their median step is {times:.3g} "
        "times that of the unlabelled).",
    )


def time_steps(time: np.ndarray, episode: np.ndarray) -> np.ndarray:
    """(n,) float64. Time until the next row of the same episode; NaN for the last one."""
    order = np.lexsort((time, episode))
    step = np.full(len(time), np.nan)
    follows = episode[order[1:]] == episode[order[:-1]]
    step[order[:-1][follows]] = np.diff(time[order])[follows]
    return step


_MAX_ROWS = 50_000
"""Rows of each set that are compared."""
_LEAST_ROWS = 20


def check_columns(split: PUSplit, *, rng: np.random.Generator) -> tuple[ColumnShortcut, ...]:
    """Find all columns of obs, action, reward, next_obs and time that separate the sets.

    Args:
        split: Labelled and unlabelled rows.
        rng: Draws the rows that are compared.

    Returns:
        The clearest first; empty where nothing is found or fewer than 20 rows are labelled.
    """
    p, u = _sampled(split, split.labelled, rng), _sampled(split, split.unlabelled, rng)
    if min(len(p.value), len(u.value)) < _LEAST_ROWS:
        return ()
    found: list[ColumnShortcut] = []
    for name, value, step, repeats in _columns(split):
        step_p, step_u = (None if step is None else _values(step, at).value for at in (p, u))
        known = {(f.column, f.kind) for f in found}
        results = _find(_values(value, p), _values(value, u), step_p, step_u, repeats)
        for kind, result in results.items():
            if result is not None and (repeats, kind) not in known:
                found.append(ColumnShortcut(name, kind, result[0], f"{name}: {result[1]}."))
    whole = (find_sample_rate(split, rng=rng), _find_missing(split, p, u))
    found += [f for f in whole if f is not None]
    return tuple(sorted(found, key=lambda f: -f.auroc))


def _sampled(split: PUSplit, position: np.ndarray, rng: np.random.Generator) -> Side:
    """Draw positions of rows to compare, with their episodes as groups."""
    if len(position) > _MAX_ROWS:
        position = np.sort(rng.choice(position, _MAX_ROWS, replace=False))
    episode = split.pool.episode
    number, num_groups = group_numbers(
        None if episode is None else episode[position], len(position)
    )
    return Side(position, number, num_groups)


def _columns(
    split: PUSplit,
) -> Iterator[tuple[str, np.ndarray, np.ndarray | None, str | None]]:
    """Yield name, values and changes of each column, and the column whose next value it is."""
    rows, origin = split.pool.rows, split.pool.provenance
    obs_names = _names("obs", origin.obs_names, rows.obs.shape[1])
    for k, name in enumerate(obs_names):
        yield name, rows.obs[:, k], rows.next_obs[:, k] - rows.obs[:, k], None
    for k, name in enumerate(obs_names):
        yield f"next {name}", rows.next_obs[:, k], None, name
    for k, name in enumerate(_names("action", origin.action_names, rows.action.shape[1])):
        yield name, rows.action[:, k], None, None
    if rows.reward is not None:
        yield "reward", rows.reward, None, None


def _names(field: str, names: tuple[str, ...], count: int) -> list[str]:
    return list(names) if len(names) == count else [f"{field}[{k}]" for k in range(count)]


def _values(column: np.ndarray, at: Side) -> Side:
    values = column[at.value]
    return Side(values, at.number, at.num_groups).where(np.isfinite(values))


def _find(
    p: Side, u: Side, step_p: np.ndarray | None, step_u: np.ndarray | None, repeats: str | None
) -> dict[str, tuple[float, str] | None]:
    """Search one column; return AUROC and description by kind."""
    if min(len(p.value), len(u.value)) < _LEAST_ROWS:
        return {}
    if constant := _find_constant(p, u):
        return {"constant": constant}
    # The next value moves with its column, and would only repeat the finding.
    offset = find_offset(p, u, step_p, step_u) if repeats is None else None
    return {"rounding": find_rounding(p, u), "offset": offset}


def _find_constant(p: Side, u: Side) -> tuple[float, str] | None:
    for this, other, words in (
        (p, u, "labelled values are all {:.6g}, unlabelled ones vary"),
        (u, p, "unlabelled values are all {:.6g}, labelled ones vary"),
    ):
        value = float(this.value[0])
        if np.any(this.value != value) or not is_measured(other.value):
            continue
        difference = clear_difference(p, u, p.value == value, u.value == value)
        if difference is not None:
            return 0.5 + abs(difference) / 2, words.format(value)
    return None


def _find_missing(split: PUSplit, p: Side, u: Side) -> ColumnShortcut | None:
    """Compare how often next states are missing where the task ended; only there may they be."""
    rows = split.pool.rows
    ended_p, ended_u = p.where(rows.terminal[p.value]), u.where(rows.terminal[u.value])
    if min(len(ended_p.value), len(ended_u.value)) < _LEAST_ROWS:
        return None
    known = rows.next_known
    missing_p, missing_u = ~known[ended_p.value], ~known[ended_u.value]
    difference = clear_difference(ended_p, ended_u, missing_p, missing_u)
    if difference is None:
        return None
    of_all_p, of_all_u = missing_p.sum() / len(p.value), missing_u.sum() / len(u.value)
    return ColumnShortcut(
        "next_obs",
        "missing",
        float(0.5 + abs(of_all_p - of_all_u) / 2),
        f"next_obs: missing in {missing_p.mean():.0%} of the labelled rows at which the task ended "
        f"and in {missing_u.mean():.0%} of the unlabelled.",
    )
