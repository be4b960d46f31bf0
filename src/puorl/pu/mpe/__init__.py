"""How many of the unlabelled rows are the target's? One estimator a file, loaded when asked for.

Every estimator answers with an `AlphaEstimate`, and alpha is always the share of target rows among
the unlabelled rows that it was handed. Score-based ones take ``(score_p, score_u)``: held-out
classifier scores, higher meaning more like the target. Feature-based ones take ``(x_p, x_u, rng=)``
and need no classifier.
"""

from collections.abc import Callable
from importlib import import_module
from typing import Any

from puorl.core.errors import ConfigError

SCORE_BASED = {
    "bbe": "puorl.pu.mpe.bbe",
    "en": "puorl.pu.mpe.elkan_noto",
    "scott": "puorl.pu.mpe.scott",
    "dedpul": "puorl.pu.mpe.dedpul",
}
FEATURE_BASED = {
    "km2": "puorl.pu.mpe.kernel_mean",
    "tice": "puorl.pu.mpe.tice",
    "pen_l1": "puorl.pu.mpe.penalised_l1",
}


def names() -> tuple[str, ...]:
    """All estimators, the score-based ones first."""
    return (*SCORE_BASED, *FEATURE_BASED)


def estimator(name: str) -> Callable[..., Any]:
    """The estimator of that name.

    >>> estimator("bbe").__name__
    'bbe'

    Raises:
        ConfigError: No such estimator.
    """
    home = {**SCORE_BASED, **FEATURE_BASED}
    if name not in home:
        raise ConfigError(f"estimator: expected one of {', '.join(home)}, got {name!r}")
    return getattr(import_module(home[name]), name)
