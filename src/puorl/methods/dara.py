"""DARA: dynamics-aware reward augmentation.

Liu, Zhang and Wang 2022, "DARA: Dynamics-Aware Reward Augmentation in Offline Reinforcement
Learning".

Rewards of source rows are lowered where they are unlikely under the target's dynamics. By Bayes the
ratio of the dynamics is a difference of two classifiers' log-ratios:

    delta = log q(source|s,a,s') / q(target|s,a,s') - log q(source|s,a) / q(target|s,a)
    r <- r - eta * delta

Deviations:
1. The sign between the two log-ratios is minus, by Bayes and as in the authors' scripts; the PUORL
   paper prints a plus.
2. A step uses 256 source and 256 target rows at once; the scripts step on one, then the other.
3. Rows whose next state is unknown are not trained on and keep their reward.
4. Where labels are probabilities p of being the target's, networks train on labels drawn from them
   and the expected change of the reward is applied, (1 - p) eta delta.
"""

from dataclasses import dataclass
from typing import Any, ClassVar, Literal, NamedTuple, get_args

import jax
import jax.numpy as jnp
import numpy as np

from puorl.core.errors import ConfigError, DataError
from puorl.core.formatting import check_choice, check_positive
from puorl.data.split import PUSplit
from puorl.data.training_set import Groups, TrainingSet
from puorl.methods import two_domains
from puorl.methods.domain_labels import DomainMethod, FilterLabels, TrueLabels
from puorl.nn import mlp

Sampling = Literal["union", "half"]

_LOGIT_BOUND = 2.0
_MEMORY, _EPSILON = 0.99, 1e-8  # PyTorch's defaults of RMSprop


@dataclass(frozen=True)
class DARA(DomainMethod):
    """All rows; the unlabelled ones with augmented rewards."""

    name: ClassVar[str] = "dara"

    eta: float = 0.1
    """Factor of the log-ratio that is subtracted from the reward."""
    clip: float = 10.0
    """Bound of the log-ratio; bounded logits keep it below 4 anyway."""
    sampling: Sampling = "union"
    """Sampling of batches: ``union`` of all rows, or ``half`` of each from the labelled rows."""
    standardise: bool = False
    """Standardise the classifiers' states; the authors use raw ones."""
    hidden: tuple[int, ...] = (256, 256, 256)
    num_steps: int = 5_000
    batch_size: int = 256
    """Rows of each domain in a step."""
    learning_rate: float = 3e-4

    def __post_init__(self) -> None:
        """Check the settings."""
        check_positive("num_steps", self.num_steps)
        check_positive("batch_size", self.batch_size)
        check_choice("sampling", self.sampling, get_args(Sampling))
        if not (self.eta >= 0.0 and self.clip > 0.0):
            raise ConfigError(
                f"expected eta 0 or above and clip above 0, got eta {self.eta}, clip {self.clip}"
            )

    def from_domains(self, split: PUSplit, probability: np.ndarray, *, seed: int) -> TrainingSet:
        """Make the training set; the seed is that of the classifiers' weights and batches.

        Raises:
            DataError: No rewards, or no next states.
        """
        if split.pool.reward is None:
            raise DataError(f"{self.name}: expected rows with a reward, got none; name its column")
        seen = two_domains.as_domains(
            split, standardise=self.standardise, probability=probability, seed=seed
        )
        num_sa = seen.x.shape[1] - split.pool.obs.shape[1]

        def init(sas_key: jax.Array, sa_key: jax.Array) -> tuple[Classifiers, Classifiers]:
            nets = Classifiers(
                mlp.init_mlp(sas_key, (seen.x.shape[1], *self.hidden, 2), init=xavier_uniform),
                mlp.init_mlp(sa_key, (num_sa, *self.hidden, 2), init=xavier_uniform),
            )
            return nets, jax.tree.map(jnp.zeros_like, nets)

        score, losses = two_domains.train(
            self, seen, seed, init=init, step=_step, score=_delta, num_source=self.batch_size
        )
        num_labelled = len(split.labelled)
        delta = np.clip(np.where(seen.known, score, 0.0), -self.clip, self.clip)[num_labelled:]
        reward = split.pool.reward[seen.rows]
        is_source = 1.0 - seen.probability[num_labelled:]
        reward[num_labelled:] -= (self.eta * delta * is_source).astype(reward.dtype)
        return TrainingSet(
            split.pool,
            seen.rows,
            returns=split.returns,
            reward=reward,
            groups=Groups(num_first=seen.num_target) if self.sampling == "half" else None,
            metadata={
                "method": self.name,
                "seed": int(seed),
                "num_rows": len(seen.rows),
                "eta": self.eta,
                "sampling": self.sampling,
                "standardise": self.standardise,
                "delta_mean": float(delta.mean(dtype=np.float64)),
                "delta_mean_size": float(np.abs(delta).mean(dtype=np.float64)),
                "delta_range": [float(delta.min()), float(delta.max())],
                "loss_sas": float(losses[0]),
                "loss_sa": float(losses[1]),
            },
        )


@dataclass(frozen=True)
class PUDARA(FilterLabels, DARA):
    """DARA with domain labels from a filter."""

    name: ClassVar[str] = "pu_dara"


@dataclass(frozen=True)
class OracleDARA(TrueLabels, DARA):
    """DARA with true domain labels: an upper bound for labels."""

    name: ClassVar[str] = "oracle_dara"


class Classifiers(NamedTuple):
    """Two networks with two outputs each: source, then target."""

    sas: mlp.Params
    sa: mlp.Params


def xavier_uniform(key: jax.Array, fan_in: int, fan_out: int) -> tuple[jax.Array, jax.Array]:
    """Glorot and Bengio 2010: weights uniform with variance 2/(fan_in + fan_out), bias zero."""
    bound = (6.0 / (fan_in + fan_out)) ** 0.5
    w = jax.random.uniform(key, (fan_in, fan_out), jnp.float32, -bound, bound)
    return w, jnp.zeros(fan_out, jnp.float32)


def logits(nets: Classifiers, x: jax.Array) -> tuple[jax.Array, jax.Array]:
    """(n, 2) logits (source, target) of (s, a, s') and of (s, a); the first add to the second."""
    num_sa = nets.sa[0].w.shape[0]
    sa = _LOGIT_BOUND * jnp.tanh(mlp.apply_mlp(nets.sa, x[:, :num_sa]))
    own = _LOGIT_BOUND * jnp.tanh(mlp.apply_mlp(nets.sas, x))
    return own + jax.lax.stop_gradient(sa), sa


def delta_reward(logits_sas: jax.Array, logits_sa: jax.Array) -> jax.Array:
    """(n,) float32: the log-ratio of the source's dynamics to the target's, from (n, 2) logits."""
    return (logits_sas[:, 0] - logits_sas[:, 1]) - (logits_sa[:, 0] - logits_sa[:, 1])


def cross_entropy(logits: jax.Array) -> jax.Array:
    """Mean over a batch (2 b, 2) whose first half is the source's."""
    source, target = jnp.split(logits, 2)
    # Two classes: minus the log of the softmax is the softplus of the other's lead.
    lead = jnp.concatenate([source[:, 1] - source[:, 0], target[:, 0] - target[:, 1]])
    return jax.nn.softplus(lead).mean()


def _step(learning_rate: jax.Array, state: Any, batch: Any) -> tuple[Any, jax.Array]:
    nets, square = state
    target, source = batch
    rows = jnp.concatenate([source, target])

    def loss(nets: Classifiers) -> tuple[jax.Array, jax.Array]:
        each = jnp.stack([cross_entropy(one) for one in logits(nets, rows)])
        return each.sum(), each

    grad, each = jax.grad(loss, has_aux=True)(nets)
    return rmsprop(nets, grad, square, learning_rate), each


def rmsprop(
    params: Any, grad: Any, square: Any, learning_rate: float | jax.Array
) -> tuple[Any, Any]:
    """Take one step of PyTorch's RMSprop; return the parameters and the running mean square."""
    square = jax.tree.map(lambda v, g: _MEMORY * v + (1.0 - _MEMORY) * g * g, square, grad)

    def move(p: jax.Array, g: jax.Array, v: jax.Array) -> jax.Array:
        return p - learning_rate * g / (jnp.sqrt(v) + _EPSILON)

    return jax.tree.map(move, params, grad, square), square


def _delta(nets: Classifiers, x: jax.Array) -> jax.Array:
    return delta_reward(*logits(nets, x))
