"""Try all methods on a user's own rows, and judge them; names are loaded when first used."""

from typing import TYPE_CHECKING

from puorl.core import lazy_exports

if TYPE_CHECKING:
    from puorl.trial.comparison import Comparison, Outcome
    from puorl.trial.run import compare
    from puorl.trial.share import ShareChoice, choose_share

__all__ = ["Comparison", "Outcome", "ShareChoice", "choose_share", "compare"]

__getattr__, __dir__ = lazy_exports(
    __name__,
    {
        "comparison": "Comparison Outcome",
        "run": "compare",
        "share": "ShareChoice choose_share",
    },
)
