"""Try all methods on a user's own rows, and judge them; names are loaded when first used."""

from typing import TYPE_CHECKING

from puorl.core import lazy_exports

if TYPE_CHECKING:
    from puorl.comparison.imitation import ImitationChoice, judge_imitation
    from puorl.comparison.result import Comparison, Outcome
    from puorl.comparison.run import compare
    from puorl.comparison.share_choice import ShareChoice, choose_share

__all__ = [
    "Comparison",
    "ImitationChoice",
    "Outcome",
    "ShareChoice",
    "choose_share",
    "compare",
    "judge_imitation",
]

__getattr__, __dir__ = lazy_exports(
    __name__,
    {
        "imitation": "ImitationChoice judge_imitation",
        "result": "Comparison Outcome",
        "run": "compare",
        "share_choice": "ShareChoice choose_share",
    },
)
