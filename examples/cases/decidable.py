"""What can be known of a case's units: a classifier that is told the truth of all other units.

It is the read-out of `benchmarks/fleets`, on the log of a case. Where it
succeeds, the log shows the types. Where it fails, little follows: it is one simple classifier over
few units, and another may see more.
"""

import sys
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

import numpy as np

from puorl.data.dataset import Dataset

sys.path.insert(0, str(Path(__file__).parents[2] / "benchmarks" / "fleets"))
from readout import DECIDABLE, ORDERS, auroc, held_out_logits, one_step_coefficients

_MOST_COLUMNS = 40
"""Beyond, products of columns are more coefficients than a unit has rows."""


def read_out(data: Dataset, unit: str, truth: Sequence[Mapping[str, str]]) -> dict[str, Any]:
    """Tell units apart by how they move, how they are driven, and by both; say how well.

    Args:
        data: The log.
        unit: Column of the units.
        truth: Of each unit: ``ours``, ``kind``.
    """
    assert data.next_obs is not None
    data = data[np.isfinite(data.next_obs).all(axis=1)]  # of an end, the log has no next state
    named = {row[unit]: row for row in truth}
    of_row = data.columns[unit].astype(str)
    rows = [named[name] for name in np.unique(of_row)]
    ours = np.array([row["ours"] == "1" for row in rows])
    others = sorted({row["kind"] for row in rows if row["ours"] != "1"})
    number = np.array([0 if row["ours"] == "1" else 1 + others.index(row["kind"]) for row in rows])
    found = {}
    for name, regressions in _regressions(data).items():
        num_columns = max(x.shape[1] for x, _ in regressions)
        inputs = [
            np.hstack([one_step_coefficients(x, y, of_row, order)[0] for x, y in regressions])
            for order in (ORDERS if num_columns <= _MOST_COLUMNS else ORDERS[:1])
        ]
        logit = held_out_logits(inputs, number)
        found[name] = {"num_right": int(np.sum((logit > 0) == ours)), "auroc": auroc(logit, ours)}
    most = max(each["num_right"] for each in found.values())
    return {"num_units": len(rows), "is_decidable": most >= DECIDABLE * len(rows), **found}


def _regressions(data: Dataset) -> dict[str, list[tuple[np.ndarray, np.ndarray]]]:
    """Return what is regressed on what, by what is seen of a unit."""
    state = np.asarray(data.obs, float)
    change = np.asarray(data.next_obs, float) - state
    state = state[:, state.std(axis=0) > 0]
    action = np.asarray(data.action, float)
    if data.action_codes is not None:
        action = np.eye(len(data.action_codes))[data.action_index][:, 1:]
    both = np.hstack([state, action])
    # A column that follows from the row, such as an earlier reading, says nothing of the unit.
    known = np.hstack([np.ones((len(both), 1)), both])
    left = change - known @ np.linalg.lstsq(known, change)[0]
    moves = both, change[:, left.std(axis=0) > 1e-4 * np.maximum(change.std(axis=0), 1e-9)]
    habits = state, action
    return {"dynamics": [moves], "habits": [habits], "both": [moves, habits]}
