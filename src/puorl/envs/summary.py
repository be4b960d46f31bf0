"""How good is collected data? Returns and lengths of its whole episodes."""

from dataclasses import dataclass

import numpy as np

from puorl.core.errors import DataError
from puorl.data.dataset import Dataset
from puorl.envs import bodies
from puorl.envs.domains import DomainSpec
from puorl.envs.evaluate import normalised_score


@dataclass(frozen=True, eq=False)
class Summary:
    """What a table says about one collected dataset."""

    num_rows: int
    num_episodes: int
    """All of them, cut ones included."""
    returns: np.ndarray
    """(e,) float64. Undiscounted returns of the whole episodes, in order."""
    lengths: np.ndarray
    """(e,) int64. Their rows."""
    score: float | None
    """D4RL's normalised score of the mean return; None without whole episodes, and where it would
    mislead: the domain has a reward of its own, or a horizon made the runs shorter."""

    @property
    def mean_return(self) -> float:
        """Mean over whole episodes; NaN if there are none."""
        return float(self.returns.mean()) if len(self.returns) else float("nan")

    def __str__(self) -> str:
        text = f"{self.num_rows:,} rows, {self.num_episodes:,} episodes"
        if not len(self.returns):
            return f"{text}, none of them whole"
        text += f", mean return {self.mean_return:,.1f}"
        return text if self.score is None else f"{text}, normalised score {self.score:.1f}"


def summarise(dataset: Dataset) -> Summary:
    """Sum up data that ``collect`` made, without the episodes that it cut.

    Raises:
        DataError: The data was not collected here.
    """
    recipe = dataset.provenance.recipe
    if recipe is None or dataset.episode is None or dataset.reward is None:
        raise DataError("summary: expected data made by collect, got data without a recipe")
    spec = DomainSpec.from_dict(recipe["domain"])
    last = np.flatnonzero(np.diff(dataset.episode, append=-1))
    lengths = np.diff(last, prepend=-1)
    returns = np.bincount(dataset.episode, weights=dataset.reward)
    horizon = recipe.get("horizon")
    # A timeout before the limit is the mark of a cut.
    whole = dataset.terminal[last] | (lengths == (horizon or bodies.body(spec.body).max_steps))
    own_reward = any(shift.kind == "reward" for shift in spec.shifts)
    scored = whole.any() and not own_reward and horizon is None
    score = float(normalised_score(spec.body, returns[whole].mean())) if scored else None
    return Summary(len(dataset), len(last), returns[whole], lengths[whole], score)
