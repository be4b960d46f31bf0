"""Evidence: all that a verdict rests on, and what counts as little or rough."""

from dataclasses import dataclass

from puorl.pu.mpe.estimate import AlphaEstimate
from puorl.pu.report import ColumnShortcut, Quality, Selection, Shortcut

FEW_LABELLED = 100
FEW_GROUPS = 10
_NO_TARGET = 0.02
_WIDE = 0.2


@dataclass(frozen=True)
class Evidence:
    """What was found out about a filter and its rows."""

    others_visible: bool
    alphas: tuple[AlphaEstimate, ...]
    alphas_agree: bool
    quality: Quality
    num_judged: int
    """Labelled rows that could be judged."""
    num_groups: int | None
    """Groups (episodes, windows) of labelled rows; None where rows are independent."""
    shortcut: Shortcut
    columns: tuple[ColumnShortcut, ...]
    selection: Selection
    unit: str
    """What was decided about."""
    has_episodes: bool
    num_scattered: int
    """Unlabelled rows that are known because their unit has a labelled row."""

    @property
    def alpha_ends(self) -> tuple[float, float]:
        """Of the filter's own estimate."""
        alpha = self.alphas[0]
        return alpha.interval or (alpha.value, alpha.value)

    @property
    def alpha_is_rough(self) -> bool:
        """Whether its interval is too wide to rely on."""
        low, high = self.alpha_ends
        return high - low > _WIDE

    @property
    def precision_is_rough(self) -> bool:
        """The same of the precision; also where it is not known at all."""
        precision = self.quality.precision
        return not precision.high - precision.low <= _WIDE

    @property
    def has_no_target(self) -> bool:
        """Whether hardly any unlabelled row can be the target's."""
        return self.alpha_ends[1] < _NO_TARGET

    @property
    def has_few_labels(self) -> bool:
        """Whether labelled rows, or their groups, are too few for close numbers."""
        has_few_groups = self.num_groups is not None and self.num_groups < FEW_GROUPS
        return self.num_judged < FEW_LABELLED or has_few_groups

    @property
    def may_use_episodes(self) -> bool:
        """Whether deciding by whole episodes would be something new, and possible."""
        return self.unit == "transition" and self.has_episodes
