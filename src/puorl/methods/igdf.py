"""IGDF: info-gap data filtering.

Wen et al. 2024, "Contrastive Representation for Data Filtering in Cross-Domain Offline
Reinforcement Learning".

Two encoders learn which next states belong to the target's (s, a): phi(s, a) and psi(s') have a
large product for rows of the target and a small one where s' is the source's. Learners then draw
half of every batch from the target and half from the source, keep the fraction xi of the latter
with the highest scores, and weight these rows by exp(importance * score) in the critic's loss.

Deviations from the authors' code; `AS_RELEASED` undoes the first two:
1. Batches have 256 rows, as the PUORL paper says, not 128.
2. Every row has its own weight. In the authors' code a wrong shape makes all of them equal.
3. Encoders are seeded.
4. Rows whose next state is unknown are not trained on and get the mean score.
5. Where labels are probabilities p of being the target's, encoders train on labels drawn from them,
   the half of rows is by p of 1/2 or more, and the weight is p + (1 - p) exp(importance * score).
"""

from dataclasses import dataclass
from typing import Any, ClassVar, Literal, NamedTuple, get_args

import jax
import jax.numpy as jnp
import numpy as np

from puorl.core.errors import ConfigError
from puorl.core.formatting import check_choice, check_positive
from puorl.data.split import PUSplit
from puorl.data.training_set import Groups, TrainingSet
from puorl.methods import two_domains
from puorl.methods.domain_labels import DomainMethod, FilterLabels, TrueLabels
from puorl.nn import mlp

Weighting = Literal["row", "batch"]

AS_RELEASED: dict[str, Any] = {"batch_size": 128, "weighting": "batch"}
"""Settings of the authors' code where they differ from ours."""

_FIRST_FRACTION = 0.5
_NORM_EPSILON = 1e-8


@dataclass(frozen=True)
class IGDF(DomainMethod):
    """All rows in two groups; of the second only the best are used."""

    name: ClassVar[str] = "igdf"

    xi: float = 0.75
    """Fraction of the drawn unlabelled rows that is kept; the authors advise 0.25 for HalfCheetah
    and Hopper, 0.75 for Walker2d."""
    importance: float = 1.0
    """Factor of the score in the weight (the authors' alpha)."""
    weighting: Weighting = "row"
    """``row``: a weight for every row; ``batch``: their mean for all, as released."""
    hidden: tuple[int, ...] = (256, 256)
    num_dims: int = 64
    """Dimensions of the representation."""
    num_steps: int = 7_000
    batch_size: int = 256
    """Anchors in a step; each has one positive and batch_size - 1 negatives."""
    learning_rate: float = 3e-4

    def __post_init__(self) -> None:
        """Check the settings."""
        check_positive("num_steps", self.num_steps)
        check_positive("num_dims", self.num_dims)
        if self.batch_size < 2:
            raise ConfigError(
                f"batch_size: expected 2 or more, so that there is a negative, got "
                f"{self.batch_size}"
            )
        check_choice("weighting", self.weighting, get_args(Weighting))
        if not 0.0 < self.xi <= 1.0:
            raise ConfigError(f"xi: expected above 0 and up to 1, got {self.xi}")

    def from_domains(self, split: PUSplit, probability: np.ndarray, *, seed: int) -> TrainingSet:
        """Make the training set; the seed is that of the encoders' weights and batches.

        Raises:
            DataError: No next states.
        """
        seen = two_domains.as_domains(split, standardise=True, probability=probability, seed=seed)
        obs_dim = split.pool.obs.shape[1]

        def init(phi_key: jax.Array, psi_key: jax.Array) -> tuple[Encoders, mlp.Moments]:
            inner = (*self.hidden, self.num_dims)
            encoders = Encoders(
                mlp.init_mlp(phi_key, (seen.x.shape[1] - obs_dim, *inner)),
                mlp.init_mlp(psi_key, (obs_dim, *inner)),
            )
            return encoders, mlp.init_adam(encoders)

        score, loss = two_domains.train(
            self, seen, seed, init=init, step=_step, score=_score, num_source=self.batch_size - 1
        )
        first = seen.num_target
        score[~seen.known] = score[seen.source].mean(dtype=np.float64)
        weight = self._critic_weight(score, seen.probability, first)
        return TrainingSet(
            split.pool,
            seen.rows,
            returns=split.returns,
            critic_weight=weight,
            score=score,
            groups=Groups(num_first=first, first_share=_FIRST_FRACTION, top=self.xi),
            metadata={
                "method": self.name,
                "seed": int(seed),
                "num_rows": len(seen.rows),
                "xi": self.xi,
                "weighting": self.weighting,
                "labelled_score": _summary(score[: len(split.labelled)]),
                "unlabelled_score": _summary(score[len(split.labelled) :]),
                "mean_critic_weight": float(weight[first:].mean(dtype=np.float64)),
                "loss": float(loss),
            },
        )

    def _critic_weight(self, score: np.ndarray, probability: np.ndarray, first: int) -> np.ndarray:
        p = probability.astype(np.float64)
        weight = p + (1.0 - p) * np.exp(self.importance * score.astype(np.float64))
        if self.weighting == "row":
            return weight.astype(np.float32)
        # The mean weight of a batch, expected: the first group, and the best xi of the second.
        others, cut = weight[first:], np.quantile(score[first:], 1.0 - self.xi)
        kept, second = others[score[first:] >= cut].mean(), (1.0 - _FIRST_FRACTION) * self.xi
        mean = (_FIRST_FRACTION * weight[:first].mean() + second * kept) / (
            _FIRST_FRACTION + second
        )
        return np.full(len(score), mean, np.float32)


@dataclass(frozen=True)
class PUIGDF(FilterLabels, IGDF):
    """IGDF with domain labels from a filter."""

    name: ClassVar[str] = "pu_igdf"


@dataclass(frozen=True)
class OracleIGDF(TrueLabels, IGDF):
    """IGDF with true domain labels: an upper bound for labels."""

    name: ClassVar[str] = "oracle_igdf"


class Encoders(NamedTuple):
    """Networks of (s, a) and of s'."""

    phi: mlp.Params
    psi: mlp.Params


def contrastive_loss(anchor: jax.Array, own: jax.Array, others: jax.Array) -> jax.Array:
    """Binary cross-entropy over all pairs of (s, a) and s', whose logits are products.

    Args:
        anchor: (b, dims) float32. phi of the target's (s, a).
        own: (b, dims) float32. psi of their own next states: positive pairs.
        others: (b - 1, dims) float32. psi of the source's next states: negative for all anchors.
    """
    yes = jax.nn.softplus(-(anchor * own).sum(axis=1))
    no = jax.nn.softplus(anchor @ others.T)
    return (yes.sum() + no.sum()) / (yes.size + no.size)


def cosine(a: jax.Array, b: jax.Array) -> jax.Array:
    """(n,) float32 in [-1, 1]. Cosine of the angles between two (n, dims)."""
    sizes = jnp.linalg.norm(a, axis=1) * jnp.linalg.norm(b, axis=1)
    return jnp.clip((a * b).sum(axis=1) / jnp.maximum(sizes, _NORM_EPSILON), -1.0, 1.0)


def _step(learning_rate: jax.Array, state: Any, batch: Any) -> tuple[Any, jax.Array]:
    encoders, moments = state
    rows, others = batch
    num_sa = encoders.phi[0].w.shape[0]

    def loss(encoders: Encoders) -> jax.Array:
        anchor = mlp.apply_mlp(encoders.phi, rows[:, :num_sa])
        after = jnp.concatenate([rows[:, num_sa:], others[:, num_sa:]])
        own, negative = jnp.split(mlp.apply_mlp(encoders.psi, after), [len(rows)])
        return contrastive_loss(anchor, own, negative)

    now, grad = jax.value_and_grad(loss)(encoders)
    return mlp.apply_adam(encoders, grad, moments, learning_rate=learning_rate), now


def _score(encoders: Encoders, x: jax.Array) -> jax.Array:
    num_sa = encoders.phi[0].w.shape[0]
    phi = mlp.apply_mlp(encoders.phi, x[:, :num_sa])
    return cosine(phi, mlp.apply_mlp(encoders.psi, x[:, num_sa:]))


def _summary(score: np.ndarray) -> dict[str, float]:
    mean = float(score.mean(dtype=np.float64))
    return {"min": float(score.min()), "mean": mean, "max": float(score.max())}
