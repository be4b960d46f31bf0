"""Results of off-policy evaluation: values with intervals, when to trust them, and a ranking."""

import math
from collections import Counter
from collections.abc import Mapping, Sequence
from dataclasses import asdict, dataclass, field
from typing import Any

import numpy as np

from puorl.core.errors import ConfigError
from puorl.core.hashing import generator
from puorl.core.stats import Estimate, student_t

_NUM_DRAWS = 4_000


@dataclass(frozen=True)
class Value:
    """What one estimator says about one policy."""

    estimate: Estimate
    effective_size: float
    """Episodes that the estimate rests on. Importance sampling: Kish's size of the weights; fitted
    Q and the model: the episodes times the fraction of rows in which the policy stays inside the
    data."""
    is_doubtful: bool
    trust: str
    """A sentence: whether to trust the estimate, and why."""
    draws: tuple[float, ...] = field(default=(), repr=False)
    """Estimates of lanes or of bootstrap draws; the same draws of episodes for all policies."""
    is_vague: bool = False
    """Whether lanes disagree by more than logged episodes differ: nothing is told from it."""
    doubts: tuple[str, ...] = ()
    """Why it is doubtful, each in a few words."""


@dataclass(frozen=True)
class Ranking:
    """Policies from best to worst by one estimator, and what the choice of the first may cost."""

    estimator: str
    order: tuple[str, ...]
    regret: float
    """Expected value that is lost by choosing the first: NaN without draws."""
    rivals: tuple[str, ...]
    """Policies that cannot be told from the first: the interval of the difference contains 0, or
    one of the two values is vague."""
    sentence: str


@dataclass(frozen=True)
class OfflineEvaluation:
    """Values of policies by several estimators, all at one discount and from the same starts."""

    gamma: float
    num_episodes: int
    num_rows: int
    default: str
    """The estimator that ranks, unless another is named."""
    values: Mapping[str, Mapping[str, Value]]
    """Policy to estimator to value."""
    behaviour: Value
    """Return of the logged policy in the same episodes: what a new policy must beat."""
    outside: Mapping[str, float]
    """Fraction of states in which a policy does what the log hardly ever shows."""
    notes: tuple[str, ...] = ()
    settings: Mapping[str, Any] = field(default_factory=dict)

    @property
    def estimators(self) -> list[str]:
        """Estimators that were used, but for the behaviour's return."""
        return list(next(iter(self.values.values())))

    def ranking(self, estimator: str | None = None) -> Ranking:
        """Rank the policies.

        Raises:
            ConfigError: The estimator was not used.
        """
        name = estimator or self.default
        if name not in self.estimators:
            raise ConfigError(
                f"ranking: expected an estimator among {', '.join(self.estimators)}, got {name!r}"
            )
        return rank({policy: each[name] for policy, each in self.values.items()}, name)

    def to_dict(self) -> dict[str, Any]:
        """JSON-ready content, without the draws."""
        return {
            "kind": "offline",
            "gamma": self.gamma,
            "num_episodes": self.num_episodes,
            "num_rows": self.num_rows,
            "default": self.default,
            "behaviour": _value_dict(self.behaviour),
            "policies": [
                {
                    "policy": policy,
                    "outside": self.outside[policy],
                    "values": {name: _value_dict(value) for name, value in each.items()},
                }
                for policy, each in self.values.items()
            ],
            "ranking": {name: _ranking_dict(self.ranking(name)) for name in self.estimators},
            "notes": list(self.notes),
            "settings": dict(self.settings),
        }

    def __str__(self) -> str:
        lines = [
            f"value from {self.num_episodes} starts at discount {self.gamma}; logged policy "
            f"{text_of(self.behaviour.estimate)}"
        ]
        for policy, each in self.values.items():
            for name, value in each.items():
                lines.append(f"{policy}: {name} {text_of(value.estimate)}. {value.trust}")
        return "\n".join([*lines, self.ranking().sentence])


def rank(values: Mapping[str, Value], estimator: str) -> Ranking:
    """Rank policies by one estimator's values.

    The regret is that of the first under a t distribution whose covariance is that of the draws,
    which are the same episodes for all policies.

    Args:
        values: Policy to value.
        estimator: Its name, for the sentence.
    """
    names = list(values)
    mean = np.array([values[name].estimate.value for name in names])
    order = np.argsort(-mean, kind="stable")
    best = names[order[0]]
    draws = np.array([values[name].draws for name in names], np.float64)
    if len(names) == 1:
        return Ranking(estimator, (best,), 0.0, (), f"Only one policy: {best}.")
    if draws.shape[1] < 2:
        sentence = f"{best} comes first, but without draws nothing says how surely."
        return Ranking(estimator, tuple(names[i] for i in order), math.nan, (), sentence)
    freedom = draws.shape[1] - 1
    centred = draws - draws.mean(axis=1, keepdims=True)
    rng = generator(0, "ope", "regret")
    noise = rng.standard_normal((draws.shape[1], _NUM_DRAWS)) / math.sqrt(freedom)
    noise *= np.sqrt(freedom / rng.chisquare(freedom, _NUM_DRAWS))
    drawn = mean[:, None] + centred @ noise
    regret = float((drawn.max(axis=0) - drawn[order[0]]).mean())
    apart = np.std(draws[order[0]] - draws, axis=1, ddof=1) * student_t(freedom)
    gap = mean[order[0]] - mean
    # Lanes that err together differ little between policies, so their spread must be small itself.
    vague = np.array([values[name].is_vague for name in names])
    vague |= vague[order[0]]
    rivals = tuple(names[i] for i in order[1:] if gap[i] <= apart[i] or vague[i])
    return Ranking(
        estimator,
        tuple(names[i] for i in order),
        regret,
        rivals,
        _sentence(
            best,
            rivals,
            None if values[best].is_vague else regret,
            {name: values[name].doubts for name in names if values[name].is_doubtful},
        ),
    )


def _sentence(
    best: str,
    rivals: Sequence[str],
    regret: float | None,
    doubtful: Mapping[str, Sequence[str]],
) -> str:
    text = f"{best} is best" if best not in doubtful else f"{best} comes first"
    if rivals:
        shown = ", ".join(rivals[:3]) + (f" and {len(rivals) - 3} more" if len(rivals) > 3 else "")
        text = f"{best} comes first, but cannot be told from {shown}"
    if regret is None:
        text += "; what choosing it may cost is not known."
    else:
        text += f"; choosing it is expected to cost about {regret:,.3g} against the true best."
    if best in doubtful:
        text += f" Do not trust its value{_reasons([doubtful[best]])}."
    others = [doubts for name, doubts in doubtful.items() if name != best]
    if others:
        values = f"{len(others)} value{'s' * (len(others) > 1)} of the others"
        text += f" Do not trust {values}{_reasons(others)}."
    return text


def _reasons(doubts: Sequence[Sequence[str]]) -> str:
    """Name the reasons that applied; to how many values, where that is not to all."""
    count = Counter(reason for each in doubts for reason in each)
    named = (
        reason if number == len(doubts) else f"{reason} ({number})"
        for reason, number in count.items()
    )
    return f": {'; '.join(named)}" if count else ""


def text_of(estimate: Estimate) -> str:
    """Write a value with its interval."""
    if estimate.interval is None:
        return f"{estimate.value:,.4g} (no interval)"
    return f"{estimate.value:,.4g} [{estimate.low:,.4g}, {estimate.high:,.4g}]"


def _value_dict(value: Value) -> dict[str, Any]:
    return {
        "value": value.estimate.to_dict(),
        "effective_size": value.effective_size,
        "is_doubtful": value.is_doubtful,
        "trust": value.trust,
    }


def _ranking_dict(ranking: Ranking) -> dict[str, Any]:
    made = asdict(ranking)
    return made | {"regret": None if math.isnan(ranking.regret) else ranking.regret}
