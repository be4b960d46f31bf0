"""SRPO: state-regularised policy optimisation.

Xue, Cai, Liu, Zheng, Jiang, Gai and An 2023, "State Regularized Policy Optimization on Data with
Dynamics Shift".

Good policies visit similar states under different dynamics, though their actions differ. A
discriminator D learns to tell states of high value from states of low value, and a reward says how
much a state looks like the first:

    r <- r + weight * log(D(s) / (1 - D(s)))

Deviations from the paper and the authors' code, which adds the term to MAPLE:
1. The term changes the rewards of stored rows once, so that every learner can be used; theirs is
   learnt along with a policy.
2. States are ranked by V as IQL fits it (`puorl.methods.values`), over all rows; theirs by the
   policy's Q in each batch.
3. The log-ratio is the discriminator's logit, clipped at +-log 10. The authors' code takes the
   logarithm of the logit itself, clipped to 0.1 and 10.
4. Where domains are labelled, the target's rewards stay: there the task's own rewards are enough.
   Where labels are probabilities p of being the target's, the change is (1 - p) times that.
"""

import math
from dataclasses import dataclass
from typing import Any, ClassVar

import jax
import numpy as np

from puorl.core.errors import ConfigError, DataError
from puorl.core.formatting import check_positive
from puorl.data.split import PUSplit
from puorl.data.training_set import TrainingSet
from puorl.methods import two_domains
from puorl.methods.domain_labels import DomainMethod, FilterLabels, TrueLabels
from puorl.methods.values import values_of_rows
from puorl.nn import mlp

_LARGEST_LOG_RATIO = math.log(10.0)


@dataclass(frozen=True)
class SRPO(DomainMethod):
    """All rows; those of the source are rewarded for states like those of high value."""

    name: ClassVar[str] = "srpo"

    weight: float = 0.1
    """Factor of the log-ratio that is added to the reward (the paper's lambda)."""
    low_fraction: float = 0.5
    """Fraction of the states, those of the lowest values, that the discriminator calls low."""
    hidden: tuple[int, ...] = (256, 256)
    num_steps: int = 5_000
    """Updates of the values, and of the discriminator."""
    batch_size: int = 256
    learning_rate: float = 1e-3

    def __post_init__(self) -> None:
        """Check the settings."""
        check_positive("num_steps", self.num_steps)
        check_positive("batch_size", self.batch_size)
        if not (0.0 < self.low_fraction < 1.0 and self.weight >= 0.0):
            raise ConfigError(
                "expected low_fraction between 0 and 1 and weight 0 or above, got "
                f"{self.low_fraction} and {self.weight}"
            )

    def from_domains(self, split: PUSplit, probability: np.ndarray, *, seed: int) -> TrainingSet:
        """Make the training set; the seed is that of values, discriminator and batches.

        Raises:
            DataError: No rewards, or no next states.
        """
        if split.pool.reward is None:
            raise DataError(f"{self.name}: expected rows with a reward, got none; name its column")
        seen = two_domains.as_domains(split, standardise=True, probability=probability, seed=seed)
        rows, reward = split.pool.rows[seen.rows], split.pool.reward[seen.rows]
        _, v = values_of_rows(
            rows,
            reward,
            rows.next_obs,
            num_first=seen.num_target,
            seed=seed,
            hidden=self.hidden,
            num_steps=self.num_steps,
            batch_size=self.batch_size,
        )
        low, high = ranked(v, self.low_fraction)
        num_obs = rows.obs.shape[1]
        states = seen._replace(x=seen.x[:, :num_obs], target=high, source=low)

        def init(key: jax.Array, _: jax.Array) -> tuple[mlp.Params, mlp.Moments]:
            params = mlp.init_mlp(key, (num_obs, *self.hidden, 1))
            return params, mlp.init_adam(params)

        logit, losses = two_domains.train(
            self, states, seed, init=init, step=_step, score=_logit, num_source=self.batch_size
        )
        ratio = np.clip(logit, -_LARGEST_LOG_RATIO, _LARGEST_LOG_RATIO)
        added = self.weight * ratio * (1.0 - seen.probability)
        of_source = ratio[seen.num_target :]
        return TrainingSet(
            split.pool,
            seen.rows,
            returns=split.returns,
            reward=(reward + added).astype(reward.dtype),
            metadata={
                "method": self.name,
                "seed": int(seed),
                "num_rows": len(seen.rows),
                "num_target": seen.num_target,
                "weight": self.weight,
                "log_ratio_mean": float(of_source.mean(dtype=np.float64)),
                "log_ratio_mean_size": float(np.abs(of_source).mean(dtype=np.float64)),
                "loss": float(losses),
            },
        )


def ranked(value: np.ndarray, low_fraction: float) -> tuple[np.ndarray, np.ndarray]:
    """Return the positions (int32) of low values and of high values; each has at least one."""
    order = np.argsort(value, kind="stable").astype(np.int32)
    num_low = min(max(1, round(low_fraction * len(order))), len(order) - 1)
    return order[:num_low], order[num_low:]


def _logit(params: mlp.Params, states: jax.Array) -> jax.Array:
    return mlp.apply_mlp(params, states)[:, 0]


def _step(learning_rate: jax.Array, state: Any, batch: Any) -> tuple[Any, jax.Array]:
    params, moments = state
    high, low = batch

    def loss(params: mlp.Params) -> jax.Array:
        as_low, as_high = (
            jax.nn.softplus(-_logit(params, high)),
            jax.nn.softplus(_logit(params, low)),
        )
        return as_low.mean() + as_high.mean()

    found, grad = jax.value_and_grad(loss)(params)
    return mlp.apply_adam(params, grad, moments, learning_rate=learning_rate), found


@dataclass(frozen=True)
class PUSRPO(FilterLabels, SRPO):
    """SRPO with domain labels from a filter."""

    name: ClassVar[str] = "pu_srpo"


@dataclass(frozen=True)
class OracleSRPO(TrueLabels, SRPO):
    """SRPO with true domain labels: an upper bound for labels."""

    name: ClassVar[str] = "oracle_srpo"
