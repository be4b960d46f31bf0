"""D4RL's normalised score: 0 is its random policy, 100 its expert."""

from typing import NamedTuple

import numpy as np

from puorl.core.errors import ConfigError


class Reference(NamedTuple):
    """Undiscounted returns that mark 0 and 100."""

    random: float
    expert: float


# The same for all versions and qualities of D4RL's gym tasks.
REFERENCES = {
    "halfcheetah": Reference(random=-280.178953, expert=12135.0),
    "hopper": Reference(random=-20.272305, expert=3234.3),
    "walker2d": Reference(random=1.629008, expert=4592.3),
}


def normalised_score(body: str, returns: float | np.ndarray) -> np.ndarray:
    """Scores of undiscounted ``returns``, in the same shape, float64.

    >>> float(normalised_score("hopper", 3234.3))
    100.0

    Raises:
        ConfigError: No reference values for ``body``; the message lists those there are.
    """
    if body not in REFERENCES:
        raise ConfigError(
            f"normalised score: expected one of {', '.join(REFERENCES)}, got {body!r}"
        )
    low, high = REFERENCES[body]
    return 100.0 * (np.asarray(returns, np.float64) - low) / (high - low)
