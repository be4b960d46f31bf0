"""OTDF: optimal-transport data filtering with a dataset constraint.

Lyu, Yan, Qiao, Liu, Ma, Ye, Yang, Lu and Li 2025, "Cross-Domain Offline Policy Adaptation with
Optimal Transport and Dataset Constraint".

Rows (s, a, s') of the source are transported to rows of the target at the least total cost, the
cosine distance. A row's share of the cost says how far it is from the target: the fraction xi with
the lowest is kept, with the weight exp(d) in the critic's loss, where d in [-1, 0] is minus the
cost, scaled. The policy is kept near the target's behaviour in all states of a batch.

The last part is rows here, so that every learner can be used: for each kept row of the source there
is a second one with the same state and the target's action, which the critic does not learn from
(critic weight 0). Behaviour cloning in it is the constraint.

Deviations from the authors' code:
1. The target is represented by at most 1,000 of its rows, drawn; theirs has 5,000 in all.
2. Rows are kept, and costs scaled, over all rows of the source once; theirs does it in every batch.
3. The constraint is the squared distance to the action of the nearest of up to 5,000 states of the
   target (standardised), in the place of the likelihood of a conditional VAE. Its weight is that of
   a Gaussian with the VAE's variance 0.1: regularisation / (2 * 0.1), relative to cloning.
4. Sinkhorn's iterations are those of float32 kernels with rows' minima taken off; epsilon is 0.05
   of the mean cost.
5. With learners that have no cloning of actions, such as IQL, the constraint is as strong as the
   advantage of the target's action.
6. Rows whose next state is unknown get the mean cost.
"""

from dataclasses import dataclass
from functools import partial
from typing import Any, ClassVar

import jax
import jax.numpy as jnp
import numpy as np

from puorl.core.errors import ConfigError
from puorl.core.formatting import check_positive
from puorl.core.hashing import generator
from puorl.data.split import PUSplit
from puorl.data.training_set import Groups, TrainingSet
from puorl.methods import two_domains
from puorl.methods.domain_labels import DomainMethod, FilterLabels, TrueLabels

_VARIANCE = 0.1
"""Of the decoder in the authors' VAE."""
_NUM_NEAR = 5_000
_RELATIVE_EPSILON = 0.05
_TINY = 1e-30


@dataclass(frozen=True)
class OTDF(DomainMethod):
    """Rows of the target, and those of the source that are cheap to transport to them."""

    name: ClassVar[str] = "otdf"

    xi: float = 0.8
    """Fraction of the source's rows that is kept."""
    regularisation: float = 0.5
    """Weight of the policy's constraint."""
    num_anchors: int = 1_000
    """Rows of the target that rows are transported to."""
    num_iterations: int = 100
    """Iterations of Sinkhorn's algorithm."""
    block: int = 10_000
    """Rows of the source that are transported together."""

    def __post_init__(self) -> None:
        """Check the settings."""
        for name in ("num_anchors", "num_iterations", "block"):
            check_positive(name, getattr(self, name))
        if not (0.0 < self.xi <= 1.0 and self.regularisation >= 0.0):
            raise ConfigError(
                "expected xi above 0 and up to 1 and regularisation 0 or above, got "
                f"{self.xi} and {self.regularisation}"
            )

    def from_domains(self, split: PUSplit, probability: np.ndarray, *, seed: int) -> TrainingSet:
        """Make the training set; the seed is that of the rows that stand for the target.

        Raises:
            DataError: No next states.
        """
        seen = two_domains.as_domains(split, standardise=False, probability=probability, seed=seed)
        rng, first = generator(seed, "methods", self.name), seen.num_target
        anchors = seen.x[rng.permutation(seen.target)[: self.num_anchors]]
        cost = np.zeros(len(seen.rows))
        others = first + np.flatnonzero(seen.known[first:])
        cost[others] = transport_costs(
            np.asarray(seen.x)[others], anchors, self.block, self.num_iterations
        )
        cost[first:][~seen.known[first:]] = cost[others].mean() if len(others) else 0.0
        of_source = cost[first:]
        kept = first + np.flatnonzero(of_source <= np.quantile(of_source, self.xi))
        spread = max(float(np.ptp(of_source)), _TINY)
        p = seen.probability[kept].astype(np.float64)
        weight = p + (1.0 - p) * np.exp((of_source.min() - cost[kept]) / spread)
        rows = np.concatenate([seen.rows[:first], seen.rows[kept]])
        columns: dict[str, Any] = {"critic_weight": np.concatenate([np.ones(first), weight])}
        if self.regularisation > 0.0:
            action = self._near_actions(split, seen.rows[:first], seen.rows[kept], rng)
            constraint = self.regularisation / (2 * _VARIANCE)
            columns["critic_weight"] = np.append(columns["critic_weight"], np.zeros(len(kept)))
            columns["weight"] = np.append(np.ones(len(rows)), np.full(len(kept), constraint))
            columns["action"] = np.concatenate([split.pool.action[rows], action])
            rows = np.concatenate([rows, seen.rows[kept]])
        floats = ("critic_weight", "weight")
        return TrainingSet(
            split.pool,
            rows,
            returns=split.returns,
            **{k: v.astype(np.float32) if k in floats else v for k, v in columns.items()},
            groups=Groups(num_first=first),
            metadata={
                "method": self.name,
                "seed": int(seed),
                "num_rows": len(rows),
                "num_target": first,
                "num_source": len(kept),
                "cost_mean": float(of_source.mean()),
                "cost_range": [float(of_source.min()), float(of_source.max())],
                "mean_critic_weight": float(weight.mean()),
            },
        )

    def _near_actions(
        self, split: PUSplit, target: np.ndarray, rows: np.ndarray, rng: np.random.Generator
    ) -> np.ndarray:
        """(n, m). For each of these rows the action of the target's row with the nearest state."""
        obs = split.pool.obs
        near = rng.permutation(target)[:_NUM_NEAR]
        mean, scale = obs[target].mean(axis=0), obs[target].std(axis=0) + 1e-3
        held = jnp.asarray((obs[near] - mean) / scale, jnp.float32)
        asked = jnp.asarray((obs[rows] - mean) / scale, jnp.float32)
        return split.pool.action[near[np.asarray(_nearest(asked, held))]]


def transport_costs(
    source: np.ndarray, target: np.ndarray | jax.Array, block: int, num_iterations: int
) -> np.ndarray:
    """(n,) float64. Cost of a unit of each source row when a block is transported to the target.

    Args:
        source: (n, i) float32.
        target: (p, i) float32.
        block: Rows that are transported together; the last block is filled with earlier rows.
        num_iterations: Of Sinkhorn's algorithm.
    """
    size = min(block, len(source))
    costs = np.zeros(len(source))
    for start in range(0, len(source), max(1, size)):
        start = min(start, len(source) - size)
        part = jnp.asarray(source[start : start + size])
        costs[start : start + size] = _block_costs(part, jnp.asarray(target), num_iterations)
    return costs


@partial(jax.jit, static_argnames="num_iterations")
def _block_costs(source: jax.Array, target: jax.Array, num_iterations: int) -> jax.Array:
    def unit(x: jax.Array) -> jax.Array:
        return x / jnp.maximum(jnp.linalg.norm(x, axis=1, keepdims=True), _TINY)

    cost = jnp.clip(1.0 - unit(source) @ unit(target).T, 0.0, 2.0)
    epsilon = _RELATIVE_EPSILON * jnp.maximum(cost.mean(), _TINY)
    # Rows' minima cancel in the row's scale, and keep the largest entry of each row at 1.
    kernel = jnp.exp((cost.min(axis=1, keepdims=True) - cost) / epsilon)
    num_source, num_target = cost.shape

    def iterate(_: Any, columns: jax.Array) -> jax.Array:
        rows = (1.0 / num_source) / jnp.maximum(kernel @ columns, _TINY)
        return (1.0 / num_target) / jnp.maximum(rows @ kernel, _TINY)

    columns = jax.lax.fori_loop(0, num_iterations, iterate, jnp.ones(num_target))
    # The last scaling is of rows: each source row gives away exactly its mass.
    plan = kernel * jnp.broadcast_to(columns, kernel.shape)
    return (plan * cost).sum(axis=1) / jnp.maximum(plan.sum(axis=1), _TINY)


@jax.jit
def _nearest(asked: jax.Array, held: jax.Array) -> jax.Array:
    square = jnp.square(held).sum(axis=1)
    return jax.lax.map(lambda row: jnp.argmin(square - 2.0 * (held @ row)), asked, batch_size=4_096)


@dataclass(frozen=True)
class PUOTDF(FilterLabels, OTDF):
    """OTDF with domain labels from a filter."""

    name: ClassVar[str] = "pu_otdf"


@dataclass(frozen=True)
class OracleOTDF(TrueLabels, OTDF):
    """OTDF with true domain labels: an upper bound for labels."""

    name: ClassVar[str] = "oracle_otdf"
