"""Simulated domains: collect data in them and evaluate policies in them.

Names are loaded when first used.
"""

from typing import TYPE_CHECKING

from puorl.core import lazy_exports

if TYPE_CHECKING:
    from puorl.envs.collect import Cache, ReturnStatistics, return_statistics
    from puorl.envs.domains import DomainSpec, negatives, parse_domain
    from puorl.envs.evaluate import Evaluation, Evaluator, normalised_score
    from puorl.envs.gymnasium_envs import make_env
    from puorl.envs.simulator import Simulator

__all__ = [
    "Cache",
    "DomainSpec",
    "Evaluation",
    "Evaluator",
    "ReturnStatistics",
    "Simulator",
    "make_env",
    "negatives",
    "normalised_score",
    "parse_domain",
    "return_statistics",
]

__getattr__, __dir__ = lazy_exports(
    __name__,
    {
        "collect": "Cache ReturnStatistics return_statistics",
        "domains": "DomainSpec negatives parse_domain",
        "evaluate": "Evaluation Evaluator normalised_score",
        "gymnasium_envs": "make_env",
        "simulator": "Simulator",
    },
)
