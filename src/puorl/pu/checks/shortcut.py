"""Is it the dynamics that tells the domains apart, or only who was acting and where?

The same learner, given (s, a) alone, is judged beside the one with all inputs. Target rows among
the unlabelled lower both areas by the same factor ``1 - alpha``, so the share of the separation
above one half that behaviour gives does not depend on alpha.
"""

import numpy as np

from puorl.pu.checks.separation import separation
from puorl.pu.judgement import Judgement
from puorl.pu.report import Measured, Shortcut

LARGE_SHARE = 0.8
"""From here on it is a shortcut: where all inputs part the domains perfectly, (s, a) alone would
then order nine of ten pairs of a target row and another rightly."""
_LEAST_LOW_END = 0.5
"""The share's lower end must say that behaviour gives more than all else does."""


def check_shortcut(full: Judgement, behaviour: Judgement) -> Shortcut:
    """Compare the separation by all inputs with that by (s, a) alone.

    Args:
        full: Judged with all inputs.
        behaviour: Judged with (s, a), by the same learner.
    """
    separated, by_behaviour = _separation(full), _separation(behaviour)
    whole = separated.value - 0.5
    share = float(np.clip((by_behaviour.value - 0.5) / whole, 0, 1)) if whole > 0 else 0.0
    visible = separated.low > 0.5 and by_behaviour.low > 0.5
    error = _error(share, separated, by_behaviour) if whole > 0 else np.inf
    is_shortcut = visible and share >= LARGE_SHARE and share - error > _LEAST_LOW_END
    # As much doubt as a shortcut may have is allowed here too.
    is_close = share + error < LARGE_SHARE or error < LARGE_SHARE - _LEAST_LOW_END
    is_none = separated.low > 0.5 and share < LARGE_SHARE and is_close
    return Shortcut(
        separation=separated,
        separation_behaviour=by_behaviour,
        share=share,
        is_shortcut=is_shortcut,
        is_sure=bool(is_shortcut or is_none),
    )


def _separation(judged: Judgement) -> Measured:
    return separation(
        judged.score_p, judged.score_u, group_p=judged.group_p, group_u=judged.group_u
    )


def _error(share: float, separated: Measured, by_behaviour: Measured) -> float:
    """How far the share's interval reaches, by propagation of both errors.

    Both areas come from the same rows and rise together; taking them as independent is cautious.
    """
    error = np.hypot(_half_width(by_behaviour), share * _half_width(separated))
    return float(error) / (separated.value - 0.5)


def _half_width(measured: Measured) -> float:
    return (measured.high - measured.low) / 2
