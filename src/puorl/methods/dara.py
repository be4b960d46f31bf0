"""DARA: dynamics-aware reward augmentation.

Liu, Zhang and Wang 2022, "DARA: Dynamics-Aware Reward Augmentation in Offline Reinforcement
Learning".

Rewards of source rows are lowered where the target's dynamics would hardly have made them. By Bayes
the ratio of the dynamics is a difference of two classifiers' log-ratios:

    delta = log q(source|s,a,s') / q(target|s,a,s') - log q(source|s,a) / q(target|s,a)
    r <- r - eta * delta

Labelled rows play the target, unlabelled ones the source (PUORL paper, appendix on baselines).

Deviations:
1. The sign between the two log-ratios is minus, as Bayes has it and as the authors' scripts do; the
   PUORL paper prints a plus.
2. A step shows 256 source and 256 target rows at once; the scripts step on one, then the other.
3. Rows whose next state is unknown teach nothing and keep their reward.
"""

from dataclasses import dataclass
from functools import partial
from typing import Any, ClassVar, Literal, NamedTuple, get_args

import jax
import jax.numpy as jnp
import numpy as np

from puorl.core.errors import ConfigError, DataError
from puorl.core.hashing import generator
from puorl.data.split import PUSplit
from puorl.data.training_set import Groups, TrainingSet
from puorl.methods.base import Domains, as_domains, check_counts
from puorl.nn import mlp

Sampling = Literal["union", "half"]

_LOGIT_BOUND = 2.0
_MEMORY, _EPSILON = 0.99, 1e-8  # PyTorch's defaults of RMSprop
_CHUNK = 500  # steps whose rows are gathered in one go
_BLOCK = 16_384  # rows judged in one go
_STATE_EPSILON = 1e-3


@dataclass(frozen=True)
class DARA:
    """All rows; the unlabelled ones with augmented rewards."""

    name: ClassVar[str] = "dara"
    needs_truth: ClassVar[bool] = False

    eta: float = 0.1
    """How much of the log-ratio is taken off the reward."""
    clip: float = 10.0
    """Largest size of the log-ratio; with bounded logits it never gets past 4."""
    sampling: Sampling = "union"
    """How learners draw: from all rows alike, or ``half`` of every batch from the labelled."""
    standardise: bool = False
    """Whether classifiers see standardised states; the authors' see raw ones."""
    hidden: tuple[int, ...] = (256, 256, 256)
    num_steps: int = 5_000
    batch_size: int = 256
    """Rows of each domain in a step."""
    learning_rate: float = 3e-4

    def __post_init__(self) -> None:
        """Refuse settings that make no sense."""
        check_counts(num_steps=self.num_steps, batch_size=self.batch_size)
        if self.sampling not in get_args(Sampling):
            raise ConfigError(
                f"sampling: expected one of {', '.join(get_args(Sampling))}, got {self.sampling!r}"
            )
        if not (self.eta >= 0.0 and self.clip > 0.0):
            raise ConfigError(
                f"expected eta 0 or above and clip above 0, got eta {self.eta}, clip {self.clip}"
            )

    def prepare(self, split: PUSplit, *, seed: int) -> TrainingSet:
        """What a learner is to train on.

        Args:
            split: Labelled and unlabelled rows, with rewards.
            seed: Seed of the classifiers' weights and batches.

        Raises:
            DataError: No rewards, or no next states.
        """
        if split.pool.reward is None:
            raise DataError("dara: expected rows with a reward, got none; name it with reward=")
        seen = as_domains(split, epsilon=_STATE_EPSILON if self.standardise else None)
        x = jnp.asarray(seen.x)
        act_dim = split.pool.action.shape[1]
        nets, losses = _train(self, x, seen, act_dim, seed)
        num_labelled = len(split.labelled)
        delta = np.asarray(_judge(nets, x, jnp.float32(self.clip)))[num_labelled:]
        delta = np.where(seen.known[num_labelled:], delta, np.float32(0.0))
        reward = split.pool.reward[seen.rows]
        reward[num_labelled:] -= (self.eta * delta).astype(reward.dtype)
        half = Groups(num_first=num_labelled) if self.sampling == "half" else None
        return TrainingSet(
            split.pool,
            seen.rows,
            returns=split.returns,
            reward=reward,
            groups=half,
            about={
                "method": self.name,
                "seed": int(seed),
                "num_rows": len(seen.rows),
                "eta": self.eta,
                "sampling": self.sampling,
                "standardise": self.standardise,
                "delta_mean": float(delta.mean(dtype=np.float64)),
                "delta_mean_size": float(np.abs(delta).mean(dtype=np.float64)),
                "delta_range": [float(delta.min()), float(delta.max())],
                "loss_sas": losses[0],
                "loss_sa": losses[1],
            },
        )


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
    """Of (s, a, s') and of (s, a), each (n, 2): source, target. The first stands on the second."""
    num_sa = nets.sa[0].w.shape[0]
    sa = _LOGIT_BOUND * jnp.tanh(mlp.apply_mlp(nets.sa, x[:, :num_sa]))
    own = _LOGIT_BOUND * jnp.tanh(mlp.apply_mlp(nets.sas, x))
    return own + jax.lax.stop_gradient(sa), sa


def delta_reward(logits_sas: jax.Array, logits_sa: jax.Array, clip: jax.Array) -> jax.Array:
    """(n,) float32: the log-ratio of the source's dynamics to the target's, from (n, 2) logits."""
    ratio_sas = logits_sas[:, 0] - logits_sas[:, 1]
    ratio_sa = logits_sa[:, 0] - logits_sa[:, 1]
    return jnp.clip(ratio_sas - ratio_sa, -clip, clip)


def cross_entropy(logits: jax.Array) -> jax.Array:
    """Mean over a batch (2 b, 2) whose first half is the source's."""
    source, target = jnp.split(logits, 2)
    # Two classes: minus the log of the softmax is the softplus of the other's lead.
    lead = jnp.concatenate([source[:, 1] - source[:, 0], target[:, 0] - target[:, 1]])
    return jax.nn.softplus(lead).mean()


def _train(
    method: DARA, x: jax.Array, seen: Domains, act_dim: int, seed: int
) -> tuple[Classifiers, list[float]]:
    word = int(generator(seed, "methods", "dara").integers(2**31))
    sas_key, sa_key, batch_key = jax.random.split(jax.random.key(word), 3)
    num_sa = (x.shape[1] - act_dim) // 2 + act_dim
    nets = Classifiers(
        mlp.init_mlp(sas_key, (x.shape[1], *method.hidden, 2), init=xavier_uniform),
        mlp.init_mlp(sa_key, (num_sa, *method.hidden, 2), init=xavier_uniform),
    )
    state = (nets, jax.tree.map(jnp.zeros_like, nets))
    source, target = jnp.asarray(seen.source), jnp.asarray(seen.target)
    losses = jnp.zeros(2)
    for first in range(0, method.num_steps, _CHUNK):
        key = jax.random.fold_in(batch_key, first)
        length = min(_CHUNK, method.num_steps - first)
        rate = jnp.float32(method.learning_rate)
        state, losses = _run(state, key, x, source, target, rate, method.batch_size, length)
    return state[0], [float(loss) for loss in losses]


@partial(jax.jit, static_argnames=("size", "length"))
def _run(
    state: Any,
    key: jax.Array,
    x: jax.Array,
    source: jax.Array,
    target: jax.Array,
    learning_rate: jax.Array,
    size: int,
    length: int,
) -> tuple[Any, jax.Array]:
    """Some steps; returns the mean losses of both classifiers as well, (2,)."""
    shape, (source_key, target_key) = (length, size), jax.random.split(key)
    of_source = source[jax.random.randint(source_key, shape, 0, len(source))]
    of_target = target[jax.random.randint(target_key, shape, 0, len(target))]
    batches = x[jnp.concatenate([of_source, of_target], axis=1)]

    def loss(nets: Classifiers, batch: jax.Array) -> tuple[jax.Array, jax.Array]:
        each = jnp.stack([cross_entropy(one) for one in logits(nets, batch)])
        return each.sum(), each

    def step(state: Any, batch: jax.Array) -> tuple[Any, jax.Array]:
        nets, square = state
        grad, each = jax.grad(loss, has_aux=True)(nets, batch)
        return rmsprop(nets, grad, square, learning_rate), each

    state, losses = jax.lax.scan(step, state, batches)
    return state, losses.mean(axis=0)


def rmsprop(
    params: Any, grad: Any, square: Any, learning_rate: float | jax.Array
) -> tuple[Any, Any]:
    """One step of RMSprop as PyTorch has it: the parameters, and the running mean square."""
    square = jax.tree.map(lambda v, g: _MEMORY * v + (1.0 - _MEMORY) * g * g, square, grad)

    def move(p: jax.Array, g: jax.Array, v: jax.Array) -> jax.Array:
        return p - learning_rate * g / (jnp.sqrt(v) + _EPSILON)

    return jax.tree.map(move, params, grad, square), square


@jax.jit
def _judge(nets: Classifiers, x: jax.Array, clip: jax.Array) -> jax.Array:
    def one(row: jax.Array) -> jax.Array:
        return delta_reward(*logits(nets, row[None]), clip)[0]

    return jax.lax.map(one, x, batch_size=_BLOCK)
