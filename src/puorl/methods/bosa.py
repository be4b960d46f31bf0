"""BOSA: supported policy and value optimisation across domains.

Liu, Zhang, Wei, Zhuang, Kang, Gai and Wang 2024, "Beyond OOD State Actions: Supported Cross-Domain
Offline Reinforcement Learning".

All rows are used. The policy stays in the support of the behaviour in both domains. Values are
learnt only from rows whose next state the target's dynamics support, and values of the source's
actions are pushed down:

    min_Q  E_both [ 1(log T_target(s'|s,a) > level) (Q - y)^2 ] + c E_source [ Q ]

Both are rows, weights and rewards here, so that every learner can be used. Where a row is
supported, (Q - y)^2 + c Q = (Q - (y - c/2))^2 + const: its reward is lowered by c/2. Where it is
not, the gradient c is kept while the squared error has the small weight w: its reward is lowered by
c/(2w).

Deviations from the paper and from the benchmark ODRL, which has an implementation:
1. The policy's support is what the learner has: TD3+BC's distance to the actions of all rows, in
   the place of a bound on a conditional VAE's likelihood.
2. The target's dynamics are Gaussian: an ensemble's mean, with its held-out error and the members'
   disagreement as variance; not VAEs of which the least likely counts.
3. The level is a quantile of held-out rows of the target, not the log of a constant, which depends
   on the units of the state.
4. The target's own rows are never left out.
5. The values of rows without support are pushed down with bounds, by weight w = 0.01, not without.
6. Rows whose next state is unknown are terminal, and count as supported.
"""

from dataclasses import dataclass
from typing import ClassVar

import numpy as np

from puorl.core.errors import ConfigError, DataError
from puorl.core.formatting import check_positive
from puorl.data.split import PUSplit
from puorl.data.training_set import Groups, TrainingSet
from puorl.methods import dynamics, two_domains
from puorl.methods.domain_labels import DomainMethod, FilterLabels, TrueLabels

_WEAK = 0.01


@dataclass(frozen=True)
class BOSA(DomainMethod):
    """All rows in two groups, half a batch of each; unsupported ones of the source hardly count."""

    name: ClassVar[str] = "bosa"

    support: float = 0.05
    """Fraction of the target's own held-out rows that is below the level of support."""
    conservatism: float = 0.4
    """Weight c of the source's values in the critic's loss; ODRL's 0.1, for means over the half of
    a batch and half of a squared error."""
    num_members: int = 5
    hidden: tuple[int, ...] = (256, 256)
    num_steps: int = 10_000
    batch_size: int = 256
    learning_rate: float = 1e-3

    def __post_init__(self) -> None:
        """Check the settings."""
        check_positive("num_steps", self.num_steps)
        check_positive("batch_size", self.batch_size)
        check_positive("num_members", self.num_members)
        if not (0.0 < self.support < 1.0 and self.conservatism >= 0.0):
            raise ConfigError(
                "expected support between 0 and 1 and conservatism 0 or above, got "
                f"{self.support} and {self.conservatism}"
            )

    def from_domains(self, split: PUSplit, probability: np.ndarray, *, seed: int) -> TrainingSet:
        """Make the training set; the seed is that of the dynamics model.

        Raises:
            DataError: No rewards, or no next states.
        """
        if split.pool.reward is None:
            raise DataError(f"{self.name}: expected rows with a reward, got none; name its column")
        seen = two_domains.as_domains(split, standardise=True, probability=probability, seed=seed)
        x, obs_dim = np.asarray(seen.x), split.pool.obs.shape[1]
        inputs, change = x[:, :-obs_dim], x[:, -obs_dim:] - x[:, :obs_dim]
        episode = split.pool.episode
        own = None if episode is None else episode[seen.rows[seen.target]]
        held_out = dynamics.hold_out(own, len(seen.target), seed, self.name)
        model = dynamics.fit(
            inputs[seen.target],
            change[seen.target],
            held_out,
            seed=seed,
            purpose=self.name,
            num_members=self.num_members,
            hidden=self.hidden,
            num_steps=self.num_steps,
            batch_size=self.batch_size,
            learning_rate=self.learning_rate,
        )
        density = log_density(model, inputs, change)
        level = float(np.quantile(density[seen.target[held_out]], self.support))
        is_source = 1.0 - seen.probability
        supported = (density >= level) | ~seen.known | (np.arange(len(x)) < seen.num_target)
        critic_weight = np.where(supported, 1.0, _WEAK).astype(np.float32)
        reward = split.pool.reward[seen.rows]
        lowered = self.conservatism / 2 * is_source / critic_weight
        of_source = supported[seen.num_target :]
        return TrainingSet(
            split.pool,
            seen.rows,
            returns=split.returns,
            reward=(reward - lowered).astype(reward.dtype),
            critic_weight=critic_weight,
            groups=Groups(num_first=seen.num_target),
            metadata={
                "method": self.name,
                "seed": int(seed),
                "num_rows": len(seen.rows),
                "num_target": seen.num_target,
                "supported_fraction": float(of_source.mean()),
                "level": level,
                "held_out_error": float(model.error.mean()),
            },
        )


def log_density(model: dynamics.Ensemble, x: np.ndarray, y: np.ndarray) -> np.ndarray:
    """(n,) float64. Mean over outputs of the Gaussian log-density, without its constant."""
    mean, deviation = model.predict(x)
    variance = model.error + np.square(deviation, dtype=np.float64)
    return -0.5 * (np.square(y - mean) / variance + np.log(variance)).mean(axis=1)


@dataclass(frozen=True)
class PUBOSA(FilterLabels, BOSA):
    """BOSA with domain labels from a filter."""

    name: ClassVar[str] = "pu_bosa"


@dataclass(frozen=True)
class OracleBOSA(TrueLabels, BOSA):
    """BOSA with true domain labels: an upper bound for labels."""

    name: ClassVar[str] = "oracle_bosa"
