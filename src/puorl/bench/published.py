"""The paper's numbers, one CSV a table, as printed: what our own tables stand beside.

"Offline Reinforcement Learning with Domain-Unlabeled Data" (arXiv 2404.07465). The column names
are the tables' own; the typed readers call things by our names.
"""

import csv
from dataclasses import dataclass
from functools import cache
from importlib.resources import files

from puorl.bench.results import Group, Named, Task
from puorl.bench.stats import Summary
from puorl.core.errors import ConfigError

TABLES = ("classifier_accuracy", "policy_scores")


@dataclass(frozen=True)
class PublishedAccuracy:
    """One cell of the classifier tables: percent of held-out unlabelled rows right."""

    shift: str
    """``body_mass``, ``mixture`` or ``entire_body``."""
    body: str
    """The target's body; ``entire_body`` hides HalfCheetah among Walker2d."""
    labelled_fraction: float
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
            labelled_fraction=float(row["labeled_ratio"]),
            quality=row["quality"],
            mean=float(row["mean"]),
            std=float(row["std"]),
        )
        for row in rows("classifier_accuracy")
    )


NUM_SEEDS = 10
"""Training seeds behind each of the paper's means."""
NUM_ROWS, NUM_STEPS, TARGET_SHARE = 1_000_000, 1_000_000, 0.3


def at_paper_scale(group: Group) -> bool:
    """Whether rows, updates and the target's share are the paper's."""
    scale = (group.num_rows, group.num_steps, group.target_fraction)
    return scale == (NUM_ROWS, NUM_STEPS, TARGET_SHARE)


def paper_summary(task: Task, method: Named) -> Summary | None:
    """The published mean and its spread, if this setting was published.

    The paper calls its ± a 95 % interval over 10 seeds; we read it as Student's.
    """
    return _scores().get((*_place(task), task.group.learner.name, method.name))


def paper_accuracy(task: Task) -> float | None:
    """The published share of held-out rows that the classifier got right."""
    return _accuracies().get(_place(task))


def _place(task: Task) -> tuple[str, str, str, float]:
    return task.group.shift, task.body, task.quality, task.group.labelled_fraction


@cache
def _scores() -> dict[tuple[str, str, str, float, str, str], Summary]:
    return {
        (
            row["shift"],
            row["env"],
            row["quality"],
            float(row["labeled_ratio"]),
            row["learner"],
            row["method"],
        ): Summary.published(float(row["mean"]), float(row["ci95"]), NUM_SEEDS)
        for row in rows("policy_scores")
    }


@cache
def _accuracies() -> dict[tuple[str, str, str, float], float]:
    return {
        (each.shift, each.body, each.quality, each.labelled_fraction): each.mean / 100
        for each in classifier_accuracy()
    }
