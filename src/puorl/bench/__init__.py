"""The benchmark: settings, plans, runs, the store of their rows, and reports.

Names are loaded when first used.
"""

from typing import TYPE_CHECKING

from puorl.core import lazy_exports

__all__ = ["Store", "find_suite", "make_plan", "make_report", "run", "suite_names", "survey"]

if TYPE_CHECKING:
    from puorl.bench.plan import make_plan
    from puorl.bench.report import make_report
    from puorl.bench.runner import run, survey
    from puorl.bench.store import Store
    from puorl.bench.suites import find_suite, suite_names

__getattr__, __dir__ = lazy_exports(
    __name__,
    {
        "plan": "make_plan",
        "report": "make_report",
        "runner": "run survey",
        "store": "Store",
        "suites": "find_suite suite_names",
    },
)
