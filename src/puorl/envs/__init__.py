"""Simulated domains: collect data in them and evaluate policies in them.

Names are loaded when first used.
"""

from importlib import import_module
from typing import TYPE_CHECKING, Any

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

_NAMES = {
    "collect": ("Cache", "ReturnStatistics", "return_statistics"),
    "domains": ("DomainSpec", "negatives", "parse_domain"),
    "evaluate": ("Evaluation", "Evaluator", "normalised_score"),
    "gymnasium_envs": ("make_env",),
    "simulator": ("Simulator",),
}
_HOME = {name: module for module, names in _NAMES.items() for name in names}


def __getattr__(name: str) -> Any:
    if name not in _HOME:
        raise AttributeError(f"module 'puorl.envs' has no attribute {name!r}")
    return getattr(import_module(f"puorl.envs.{_HOME[name]}"), name)


def __dir__() -> list[str]:
    return sorted(__all__)
