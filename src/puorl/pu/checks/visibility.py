"""Is a second domain visible in the scores at all?

``area(P, U) = 1/2 + (1 - alpha) (area(target, others) - 1/2)`` whatever the shape of the scores,
but alpha is not known where the domains overlap: its estimate goes to 1 and explains any area. So a
second domain counts as visible if one of two things holds, neither of which needs alpha:

- the area is large: at `VISIBLE_AREA` the target and the others part with 0.67 for alpha = 0.3, and
  0.7 for alpha = 0.4;
- some unlabelled rows are certainly others: below a score that only few of the target's rows stay
  under, the unlabelled rows are `CERTAIN_LIFT` times as frequent, so that at most one in
  `CERTAIN_LIFT` of them can be the target's. This sees a few others that part well (alpha near 1),
  where the area is small. Others that look like the target may hide beside them: the precision is
  an upper estimate then.

Gaussian, wider and partly overlapping scores, alpha 0.3, 100 to 8,000 labelled rows: visible in
0.3 % of draws whose domains part with 0.6 or less, in all of those with 0.9 or more. Where one
fifth of the others parts perfectly and the rest not at all (also 0.6) it is called visible.

Either must be beyond chance. A large area whose interval reaches one half, as few labelled episodes
make it, is not visible for sure; but rows that part so far do not look alike either.
"""

import numpy as np

from puorl.pu.checks.clusters import Z95, mean_error
from puorl.pu.judgement import Judgement
from puorl.pu.report import VISIBLE_AREA, Measured

CERTAIN_LIFT = 4.0
_SHARES = (0.02, 0.05, 0.1)
"""Shares of the labelled rows below the scores that are looked at."""
_LEAST_ROWS = 10


def others_visible(judged: Judgement, separation: Measured) -> bool:
    """Do the scores show rows of another domain among the unlabelled?

    Args:
        judged: Labelled and unlabelled rows.
        separation: Of its scores.
    """
    if separation.low <= 0.5:
        return False
    return separation.value >= VISIBLE_AREA or certain_lift(judged) >= CERTAIN_LIFT


def certain_lift(judged: Judgement) -> float:
    """Lower end of how much more frequent unlabelled rows are among the lowest scores; the best."""
    ends = [0.0]
    for score in np.quantile(judged.score_p, _SHARES):
        below_p, below_u = judged.score_p <= score, judged.score_u <= score
        if np.count_nonzero(below_p) < _LEAST_ROWS or not below_u.any():
            continue
        share_p, share_u = float(below_p.mean()), float(below_u.mean())
        error = np.hypot(
            mean_error(below_p.astype(np.float64), judged.group_p) / share_p,
            mean_error(below_u.astype(np.float64), judged.group_u) / share_u,
        )
        ends.append(float(share_u / share_p * np.exp(-Z95 * error)))
    return max(ends)
