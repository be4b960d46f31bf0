"""Were labelled and unlabelled rows recorded at different rates?"""

import numpy as np

from puorl.data.split import PUSplit
from puorl.pu.checks.separation import separation
from puorl.pu.checks.two_sets import LEAST_DIFFERENCE, NUM_ERRORS
from puorl.pu.report import ColumnShortcut

_MAX_ROWS = 100_000


def find_sample_rate(split: PUSplit, *, rng: np.random.Generator) -> ColumnShortcut | None:
    """Compare the time from each row to the next of its episode; None if it tells nothing."""
    rows = split.pool.rows
    if rows.time is None or rows.episode is None:
        return None
    step = time_steps(rows.time, rows.episode)
    # Differences of large time stamps are noisy in their last digits.
    step = np.round(step / max(float(np.nanmedian(step)), 1e-300), 2) if _any(step) else step
    known = [at[~np.isnan(step[at])] for at in (split.labelled, split.unlabelled)]
    p, u = (rng.choice(at, min(len(at), _MAX_ROWS), replace=False) for at in known)
    if min(len(p), len(u)) == 0:
        return None
    found = separation(step[p], step[u], group_p=rows.episode[p], group_u=rows.episode[u])
    distance = abs(found.value - 0.5)
    # An interval reaches about two standard errors to each side.
    if distance < LEAST_DIFFERENCE / 2 or distance < NUM_ERRORS * (found.high - found.low) / 4:
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


def _any(step: np.ndarray) -> bool:
    return bool(np.any(~np.isnan(step)))
