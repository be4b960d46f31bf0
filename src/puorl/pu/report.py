"""FilterReport: how good a choice of rows is, said without labels, and when it cannot be made.

Every number here follows from the labelled rows, the unlabelled rows and their scores. What makes
the parts is in `puorl.pu.checks`; what draws them is in `report_text` and `report_page`.
"""

from dataclasses import asdict, dataclass
from typing import Any, Literal

import numpy as np

from puorl.pu.alpha import AlphaEstimate

Verdict = Literal["clear", "behaviour", "doubtful", "cannot_tell"]
VISIBLE_AREA = 0.62
"""Separation from which on scores look separated; why this number: `checks.visibility`."""
_CHANCE = 0.5
_NEARLY_EVERYTHING = 0.8
"""Intervals of alpha wider than this meet any other."""
_EVERYTHING = 0.95
"""An interval of a share wider than this says nothing."""


@dataclass(frozen=True)
class Measured:
    """A number with its 95 % interval."""

    value: float
    low: float
    high: float


@dataclass(frozen=True)
class Quality:
    """What is kept, and how good it is likely to be."""

    num_labelled: int
    num_unlabelled: int
    num_kept: int
    """Unlabelled rows that the filter keeps; in the mode soft, those of weight 0.5 or more."""
    recall: Measured
    """Share of the target's rows that is kept; from labelled rows that were held out."""
    precision: Measured
    """Share of the kept unlabelled rows that is the target's: alpha x recall / kept share."""
    purity: Measured
    """Share of the target's rows in the whole training set, labelled rows included."""
    precision_is_upper: bool
    """alpha is only bounded from above, and so is the precision that follows from it."""
    mean_weight: float | None = None
    """Of the unlabelled rows in the mode soft, which keeps them all; None in other modes."""
    disputed: float = 0.0
    """Share of the unlabelled rows about which networks that did not learn from them decide
    otherwise than the filter; recall is the less certain the more they are."""

    @property
    def is_soft(self) -> bool:
        """Whether all rows are kept with weights; recall and precision are of `num_kept` then."""
        return self.mean_weight is not None

    @property
    def precision_is_open(self) -> bool:
        """Whether any precision fits the data; then its estimate and the purity's mean nothing."""
        return self.precision.high - self.precision.low > _EVERYTHING

    @property
    def precision_is_known(self) -> bool:
        """Whether there is a precision, and an interval that says something."""
        return bool(np.isfinite(self.precision.value)) and not self.precision_is_open


@dataclass(frozen=True)
class Shortcut:
    """Does behaviour, (s, a) alone, tell the domains apart?"""

    separation: Measured
    """Chance that a held-out labelled row scores above an unlabelled one, with all inputs."""
    separation_behaviour: Measured
    """The same, with (s, a) alone."""
    share: float
    """How much of the separation above one half behaviour alone gives; 0 to 1."""
    is_shortcut: bool
    is_sure: bool = True
    """False where the intervals are too wide to say whether it is a shortcut."""

    @property
    def hardly_separated(self) -> bool:
        """Whether all inputs give so little that there is nothing for a shortcut to explain."""
        return self.separation.low <= _CHANCE and self.separation.value < VISIBLE_AREA


@dataclass(frozen=True)
class ColumnShortcut:
    """One column that tells labelled from unlabelled rows by how it was recorded."""

    column: str
    kind: str
    """``rounding``, ``offset``, ``sample rate``, ``constant`` or ``missing``."""
    separation: float
    """Chance (0.5 to 1) that this alone orders a labelled and an unlabelled row rightly."""
    sentence: str


@dataclass(frozen=True)
class Selection:
    """Are the labelled rows a random draw of the target's rows?"""

    separation: Measured
    """Chance that labelled rows can be told from kept unlabelled ones; 0.5 is a random draw."""
    is_random: bool
    """Nothing speaks against it."""
    sentence: str
    is_known: bool = True
    """False where too little is kept for anything to speak against it."""


@dataclass(frozen=True)
class Histogram:
    """Scores of labelled (held out) and unlabelled rows, as shares in equal bins of [0, 1]."""

    edge: tuple[float, ...]
    labelled: tuple[float, ...]
    unlabelled: tuple[float, ...]


@dataclass(frozen=True)
class DoubtfulEpisode:
    """An episode about which the filter is least sure, worth a look by a person."""

    episode: str
    """Its id, a text id where a column has one; the value of the column that is decided by."""
    num_rows: int
    mean_score: float
    share_kept: float


@dataclass(frozen=True)
class FilterReport:
    """All that can be said without labels."""

    verdict: Verdict
    advice: str
    """One or two plain sentences: what to do."""
    warnings: tuple[str, ...]
    alphas: tuple[AlphaEstimate, ...]
    """Two estimators, that of the filter's method first; it may differ from the filter's value."""
    alphas_agree: bool
    quality: Quality
    shortcut: Shortcut
    columns: tuple[ColumnShortcut, ...]
    selection: Selection
    histogram: Histogram
    alpha_history: tuple[float, ...]
    """The estimate after each epoch."""
    doubtful: tuple[DoubtfulEpisode, ...]
    """Empty where rows carry no episode; values of a column where that is decided by."""
    unit: str
    settings: dict[str, Any]
    """Preset, learner, inputs, seed, fingerprint of the split: JSON-ready."""

    @property
    def unit_column(self) -> str:
        """The column whose values were decided about; empty for other units."""
        return self.unit.removeprefix("column:") if self.unit.startswith("column:") else ""

    @property
    def alphas_comparable(self) -> bool:
        """False where an interval spans nearly everything, so that agreement says nothing."""
        ends = [alpha.interval for alpha in self.alphas if alpha.interval is not None]
        return all(high - low <= _NEARLY_EVERYTHING for low, high in ends)

    def to_dict(self) -> dict[str, Any]:
        """JSON-ready; not-a-number becomes None."""
        return _plain(asdict(self))


def _plain(value: Any) -> Any:
    if isinstance(value, dict):
        return {str(key): _plain(each) for key, each in value.items()}
    if isinstance(value, (list, tuple)):
        return [_plain(each) for each in value]
    if isinstance(value, (float, np.floating)):
        return float(value) if np.isfinite(value) else None
    return value.item() if isinstance(value, np.generic) else value
