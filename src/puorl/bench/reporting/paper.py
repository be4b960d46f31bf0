"""The paper's numbers for our settings, as summaries that take the same tests as ours."""

from functools import cache

from puorl.bench import published
from puorl.bench.reporting.results import Group, Named, Task
from puorl.bench.stats import Summary

NUM_SEEDS = 10
"""Training seeds behind each of the paper's means."""
NUM_ROWS, NUM_STEPS, TARGET_SHARE = 1_000_000, 1_000_000, 0.3


def at_paper_scale(group: Group) -> bool:
    """Whether rows, updates and the target's share are the paper's."""
    scale = (group.num_rows, group.num_steps, group.target_share)
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
    return task.group.shift, task.body, task.quality, task.group.labelled_share


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
        for row in published.rows("policy_scores")
    }


@cache
def _accuracies() -> dict[tuple[str, str, str, float], float]:
    return {
        (each.shift, each.body, each.quality, each.labelled_share): each.mean / 100
        for each in published.classifier_accuracy()
    }
