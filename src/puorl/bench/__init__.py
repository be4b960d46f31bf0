"""The benchmark: settings, plans, runs, the store of their rows, and reports.

Names are loaded when first used.
"""

from importlib import import_module
from typing import TYPE_CHECKING, Any

__all__ = ["Store", "find_suite", "make_plan", "make_report", "run", "suite_names", "survey"]

if TYPE_CHECKING:
    from puorl.bench.plan import make_plan
    from puorl.bench.report import make_report
    from puorl.bench.runner import run, survey
    from puorl.bench.store import Store
    from puorl.bench.suites import find_suite, suite_names

_HOME = {
    "Store": "puorl.bench.store",
    "find_suite": "puorl.bench.suites",
    "make_plan": "puorl.bench.plan",
    "make_report": "puorl.bench.report",
    "run": "puorl.bench.runner",
    "suite_names": "puorl.bench.suites",
    "survey": "puorl.bench.runner",
}


def __getattr__(name: str) -> Any:
    if name not in _HOME:
        raise AttributeError(
            f"module 'puorl.bench' has no attribute {name!r}; it has {', '.join(_HOME)}"
        )
    return getattr(import_module(_HOME[name]), name)


def __dir__() -> list[str]:
    return sorted(__all__)
