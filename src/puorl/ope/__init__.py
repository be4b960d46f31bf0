"""Off-policy evaluation: what a policy is worth, judged from logged episodes alone.

Names are loaded when first used: importing this package does not import JAX.
"""

from typing import TYPE_CHECKING

from puorl.core import lazy_exports

if TYPE_CHECKING:
    from puorl.ope.config import ESTIMATORS, OPEConfig
    from puorl.ope.logged import LoggedEpisodes
    from puorl.ope.offline import evaluate
    from puorl.ope.values import OfflineEvaluation, Ranking, Value, rank

__all__ = [
    "ESTIMATORS",
    "LoggedEpisodes",
    "OPEConfig",
    "OfflineEvaluation",
    "Ranking",
    "Value",
    "evaluate",
    "rank",
]

__getattr__, __dir__ = lazy_exports(
    __name__,
    {
        "config": "ESTIMATORS OPEConfig",
        "logged": "LoggedEpisodes",
        "offline": "evaluate",
        "values": "OfflineEvaluation Ranking Value rank",
    },
)
