"""The paper's numbers, one CSV a table, as printed: what our own tables stand beside.

"Offline Reinforcement Learning with Domain-Unlabeled Data" (arXiv 2404.07465). The column names
are the tables' own; the typed readers call things by our names.
"""

import csv
from dataclasses import dataclass
from functools import cache
from importlib.resources import files

from puorl.core.errors import ConfigError

TABLES = ("classifier_accuracy", "policy_scores")


@dataclass(frozen=True)
class PublishedAccuracy:
    """One cell of the classifier tables: percent of held-out unlabelled rows right."""

    shift: str
    """``body_mass``, ``mixture`` or ``entire_body``."""
    body: str
    """The target's body; ``entire_body`` hides HalfCheetah among Walker2d."""
    labelled_share: float
    """Share of all rows that is labelled: 0.01 or 0.03."""
    quality: str
    """Behaviour in the target and in the other domain: ME/ME, ME/R, M/M or M/R."""
    mean: float
    std: float
    """Over five repetitions."""


def rows(table: str) -> tuple[dict[str, str], ...]:
    """The rows of a table as they are written, keyed by its header.

    >>> rows("policy_scores")[0]["method"]
    'olp'

    Raises:
        ConfigError: No such table.
    """
    if table not in TABLES:
        raise ConfigError(f"table: expected one of {', '.join(TABLES)}, got {table!r}")
    file = files("puorl.bench") / "published_numbers" / f"{table}.csv"
    return tuple(csv.DictReader(file.read_text(encoding="utf-8").splitlines()))


@cache
def classifier_accuracy() -> tuple[PublishedAccuracy, ...]:
    """All 56 cells: 12 of body mass, 12 of mixture, 4 of entire body, at each of two ratios.

    >>> classifier_accuracy()[0].mean
    99.54
    """
    return tuple(
        PublishedAccuracy(
            shift=row["shift"],
            body=row["env"],
            labelled_share=float(row["labeled_ratio"]),
            quality=row["quality"],
            mean=float(row["mean"]),
            std=float(row["std"]),
        )
        for row in rows("classifier_accuracy")
    )
