"""Evidence: all that a verdict rests on, and what counts as little or rough."""

from dataclasses import dataclass

from puorl.pu.mpe.estimate import AlphaEstimate
from puorl.pu.report import VISIBLE_AREA, ColumnShortcut, Quality, Selection, Shortcut
from puorl.pu.units import Unit, parse_unit

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
    """Groups (episodes, values of a column) of labelled rows; None where rows are independent."""
    num_groups_u: int | None
    """The same of the unlabelled rows."""
    shortcut: Shortcut
    columns: tuple[ColumnShortcut, ...]
    selection: Selection
    unit: str
    """What was decided about."""
    has_episodes: bool
    num_scattered: int
    """Unlabelled rows that are known because their unit has a labelled row."""
    may_use_reward: bool
    """Whether rows have rewards that the filter did not look at."""

    @property
    def looks_separated(self) -> bool:
        """Whether the scores part the rows, be it by chance."""
        return self.shortcut.separation.value >= VISIBLE_AREA

    @property
    def groups_called(self) -> str:
        """What rows come in: episodes, the values of a column, or nothing but rows."""
        if not self.has_episodes and parse_unit(self.unit).kind != "column":
            return "rows"
        return group_words(parse_unit(self.unit))

    @property
    def alpha_ends(self) -> tuple[float, float]:
        """Of the first estimate."""
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
        return self.has_few_rows or self._has_few_groups

    @property
    def has_few_rows(self) -> bool:
        """Whether it is rows that are few, and not what they come in."""
        return self.num_judged < FEW_LABELLED and not self._has_few_groups

    @property
    def _has_few_groups(self) -> bool:
        return self.num_groups is not None and self.num_groups < FEW_GROUPS

    @property
    def may_use_episodes(self) -> bool:
        """Whether deciding by whole episodes would be something new, and possible."""
        return self.unit == "transition" and self.has_episodes


def group_words(unit: Unit) -> str:
    """What the groups of rows that depend on each other are called."""
    return f"values of {unit.column}" if unit.kind == "column" else "episodes"
