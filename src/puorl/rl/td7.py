"""TD7. Fujimoto et al. 2023, "For SALE: State-Action Representation Learning for Deep RL".

TD3 (Fujimoto et al. 2018) whose networks also see embeddings z = f(s) and g(z, a) that are learnt
by predicting f(s') (eq. 2), with prioritised rows and a Huber loss to match (LAP, Fujimoto et al.
2020), targets clipped to the values seen, hard copies in place of moving averages, and behaviour
cloning in the actor's loss because the data is fixed. Actor and critics learn with embeddings of a
fixed encoder: every ``copy_every`` updates the learnt encoder becomes the fixed one, and the fixed
one the target's.

Deviations from the paper, and choices that it leaves; 1 to 3 are as in the authors' code:
1. The range that clips the targets is that of all targets so far, not of Q on the data; until
   the first copy it is [0, 0], so the critics first learn the reward alone.
2. Behaviour cloning is scaled by the mean of |Q| over both critics, not by the mean of Q.
3. Nothing of what the online agent needs is kept: no checkpoints, no exploration, and no maximum
   priority, which only rows that join later would be given.
4. A row that a batch holds twice gets the larger of its new priorities; the authors' code keeps
   whichever is written last.
5. Rows are drawn in two steps, a block and then a row in it: a running sum in float32 over a
   million rows would distort the chances, and cost more.
"""

import math
from dataclasses import dataclass
from functools import partial
from typing import NamedTuple

import jax
import jax.numpy as jnp

from puorl.core.errors import ConfigError
from puorl.nn import mlp
from puorl.rl.learner import Batch, Learner, Metrics, Sizes, critic_mean, policy_mean

_NUM_CRITICS = 2
_SMALLEST_SIZE = 1e-8
# A draw sums num_rows / block blocks and, for each of the batch's rows, one block: the two are
# about as long as each other for a million rows and a batch of 256.
_BLOCK = 64


@dataclass(frozen=True)
class Config:
    """Settings."""

    bc_weight: float = 0.1
    """Weight of behaviour cloning, in units of the mean size of Q (the paper's lambda)."""
    hidden: tuple[int, ...] = (256, 256)
    """Of every network; the first width is also that of the layer whose output is normalised."""
    embedding_dim: int = 256
    batch_size: int = 256
    actor_learning_rate: float = 3e-4
    critic_learning_rate: float = 3e-4
    """Of the critics and of the encoder."""
    gamma: float = 0.99
    copy_every: int = 250
    """Updates between two hard copies to the targets, a multiple of ``policy_delay``."""
    policy_noise: float = 0.2
    """Standard deviation of the noise on the target policy's action."""
    noise_clip: float = 0.5
    policy_delay: int = 2
    """Critic updates for one update of the actor."""
    priority_power: float = 0.4
    """A row's chance grows with this power of its error (the paper's alpha)."""
    min_priority: float = 1.0
    """Errors below it count as it, and are squared in the critic's loss."""

    def __post_init__(self) -> None:
        if self.copy_every < 1 or self.copy_every % self.policy_delay:
            raise ConfigError(
                f"copy_every: expected a multiple of policy_delay ({self.policy_delay}), "
                f"got {self.copy_every}"
            )


PRESETS = {"default": Config()}


class Encoder(NamedTuple):
    """f and g: the embedding of a state, and that of a state's embedding with an action."""

    state: mlp.Params
    pair: mlp.Params


class Network(NamedTuple):
    """An actor or the critics: a linear layer, normalised, then an MLP that sees embeddings too."""

    linear: mlp.Params
    mlp: mlp.Params


class Policy(NamedTuple):
    """Parameters of the policy: the state's encoder and the actor's two parts."""

    encoder: mlp.Params
    linear: mlp.Params
    mlp: mlp.Params


class Range(NamedTuple):
    """The smallest and the largest of some values, float32 scalars."""

    low: jax.Array
    high: jax.Array


class State(NamedTuple):
    """Parameters and optimiser state of one lane."""

    encoder: Encoder
    critic: Network
    actor: Network
    fixed_encoder: Encoder
    """The encoder at the last copy: actor and critics see its embeddings."""
    target_encoder: Encoder
    """The encoder one copy earlier: the targets see its embeddings."""
    target_critic: Network
    target_actor: Network
    moments: mlp.Moments
    """Of encoder and critics together; they count the updates."""
    actor_moments: mlp.Moments
    seen: Range
    """Of all targets so far."""
    bounds: Range
    """Of the targets up to the last copy; later ones are clipped to it."""
    priority: jax.Array
    """(n,) float32 by row, n being the number of rows rounded up to whole blocks."""


def init(key: jax.Array, sizes: Sizes, config: Config) -> State:
    """Make the state of a fresh lane; copies equal the networks, all rows are equally likely."""
    keys = iter(jax.random.split(key, 6))
    d, m, width, z = sizes.obs_dim, sizes.act_dim, config.hidden[0], config.embedding_dim
    encoder = Encoder(
        mlp.init_mlp(next(keys), (d, *config.hidden, z)),
        mlp.init_mlp(next(keys), (z + m, *config.hidden, z)),
    )
    actor = Network(
        mlp.init_mlp(next(keys), (d, width)),
        mlp.init_mlp(next(keys), (width + z, *config.hidden, m)),
    )
    critic = Network(
        mlp.init_ensemble(next(keys), _NUM_CRITICS, (d + m, width)),
        mlp.init_ensemble(next(keys), _NUM_CRITICS, (width + 2 * z, *config.hidden, 1)),
    )
    zero, infinity = jnp.zeros((), jnp.float32), jnp.full((), jnp.inf, jnp.float32)
    return State(
        encoder=encoder,
        critic=critic,
        actor=actor,
        fixed_encoder=encoder,
        target_encoder=encoder,
        target_critic=critic,
        target_actor=actor,
        moments=mlp.init_adam((encoder, critic)),
        actor_moments=mlp.init_adam(actor),
        seen=Range(infinity, -infinity),
        bounds=Range(zero, zero),
        priority=jnp.full(
            math.ceil(sizes.num_rows / _BLOCK) * _BLOCK,
            config.min_priority**config.priority_power,
            jnp.float32,
        ),
    )


def noise(key: jax.Array, batch_size: int, act_dim: int) -> jax.Array:
    """Draw standard normal noise for the target policy's actions, (b, m)."""
    return jax.random.normal(key, (batch_size, act_dim), jnp.float32)


def avg_l1_norm(x: jax.Array) -> jax.Array:
    """Divide x (..., n) by the mean size of its n numbers."""
    size = jnp.abs(x).mean(axis=-1, keepdims=True)
    return x / jnp.maximum(size, _SMALLEST_SIZE)


def embed(encoder: Encoder, obs: jax.Array) -> jax.Array:
    """Return f(s), (b, z)."""
    return avg_l1_norm(mlp.apply_mlp(encoder.state, obs, jax.nn.elu))


def predict(encoder: Encoder, z: jax.Array, action: jax.Array) -> jax.Array:
    """Return g(z, a), (b, z): the predicted next embedding, and the embedding of the pair."""
    return mlp.apply_mlp(encoder.pair, jnp.concatenate([z, action], axis=-1), jax.nn.elu)


def act(actor: Network, obs: jax.Array, z: jax.Array) -> jax.Array:
    """Return actions (b, m) in [-1, 1] for states and their embeddings."""
    x = avg_l1_norm(mlp.apply_mlp(actor.linear, obs))
    return jnp.tanh(mlp.apply_mlp(actor.mlp, jnp.concatenate([x, z], axis=-1)))


def q_values(
    critic: Network, encoder: Encoder, obs: jax.Array, z: jax.Array, action: jax.Array
) -> jax.Array:
    """Return both critics' values, (2, b); z is the states' embedding by that encoder."""
    x = avg_l1_norm(mlp.apply_ensemble(critic.linear, jnp.concatenate([obs, action], axis=-1)))
    embeddings = jnp.concatenate([predict(encoder, z, action), z], axis=-1)
    repeated = jnp.broadcast_to(embeddings, (_NUM_CRITICS, *embeddings.shape))
    x = jnp.concatenate([x, repeated], axis=-1)
    return jax.vmap(lambda net, rows: mlp.apply_mlp(net, rows, jax.nn.elu))(critic.mlp, x)[..., 0]


def encoder_loss(encoder: Encoder, batch: Batch) -> jax.Array:
    """Return the mean squared error of the predicted embedding of the next state (eq. 2)."""
    next_z = jax.lax.stop_gradient(embed(encoder, batch.next_obs))
    predicted = predict(encoder, embed(encoder, batch.obs), batch.action)
    return policy_mean(jnp.square(predicted - next_z).mean(axis=-1), batch)


def td_target(state: State, batch: Batch, noise: jax.Array, config: Config) -> jax.Array:
    """Return what the critics learn, (b,): TD3's target, its value clipped to the range seen."""
    z = embed(state.target_encoder, batch.next_obs)
    smoothing = jnp.clip(config.policy_noise * noise, -config.noise_clip, config.noise_clip)
    action = jnp.clip(act(state.target_actor, batch.next_obs, z) + smoothing, -1.0, 1.0)
    q = q_values(state.target_critic, state.target_encoder, batch.next_obs, z, action).min(axis=0)
    q = jnp.clip(q, state.bounds.low, state.bounds.high)
    return batch.reward + config.gamma * (1.0 - batch.terminal) * q


def widen(seen: Range, target: jax.Array, batch: Batch) -> Range:
    """Return the range widened by the targets of the rows that are kept."""
    kept = batch.keep > 0
    return Range(
        jnp.minimum(seen.low, jnp.where(kept, target, jnp.inf).min()),
        jnp.maximum(seen.high, jnp.where(kept, target, -jnp.inf).max()),
    )


def critic_loss(
    critic: Network, encoder: Encoder, z: jax.Array, batch: Batch, target: jax.Array, config: Config
) -> tuple[jax.Array, tuple[jax.Array, jax.Array]]:
    """Return LAP's Huber loss summed over both critics, the first one's mean value, (b,) errors.

    The error of a row is the larger one of the two critics'.
    """
    q = q_values(critic, encoder, batch.obs, z, batch.action)
    error = jnp.abs(q - jnp.broadcast_to(target, q.shape))
    near = error < config.min_priority
    huber = jnp.where(near, 0.5 * jnp.square(error), config.min_priority * error).sum(axis=0)
    return critic_mean(huber, batch), (policy_mean(q[0], batch), error.max(axis=0))


def actor_loss(
    actor: Network, critic: Network, encoder: Encoder, z: jax.Array, batch: Batch, config: Config
) -> tuple[jax.Array, jax.Array]:
    """Return the scaled distance to the data's actions minus the mean Q, and the distance."""
    action = act(actor, batch.obs, z)
    q = q_values(critic, encoder, batch.obs, z, action)
    scale = config.bc_weight * jax.lax.stop_gradient(policy_mean(jnp.abs(q).mean(axis=0), batch))
    distance = policy_mean(jnp.square(action - batch.action).mean(axis=-1), batch)
    return scale * distance - policy_mean(q.mean(axis=0), batch), distance


def reprioritise(priority: jax.Array, error: jax.Array, batch: Batch, config: Config) -> jax.Array:
    """Return the priorities (n,) after rows with errors (b,) were drawn."""
    drawn = jnp.maximum(error, config.min_priority) ** config.priority_power
    # A row that is not kept stands past the end, where nothing is written.
    position = jnp.where(batch.keep > 0, batch.position, priority.shape[0])
    # Down to zero, then up to the largest that came: smallest and largest do not depend on the
    # order in which a device gets to equal positions, so they need no loop to be repeatable.
    return priority.at[position].min(0.0, mode="drop").at[position].max(drawn, mode="drop")


def positions(state: State, key: jax.Array, num_rows: jax.Array, batch_size: int) -> jax.Array:
    """Draw rows by their priorities.

    Args:
        state: Of the lane.
        key: A JAX key.
        num_rows: () int32. Rows of the lane; those beyond are never drawn.
        batch_size: Number of draws, with replacement.

    Returns:
        (batch_size,) int32.
    """
    is_own = jnp.arange(state.priority.shape[0], dtype=jnp.int32) < num_rows
    mass = jnp.where(is_own, state.priority, 0.0).reshape(-1, _BLOCK)
    which, where = jax.random.uniform(key, (2, batch_size), jnp.float32)
    ends = jnp.cumsum(mass.sum(axis=1))
    block = jnp.searchsorted(ends, which * ends[-1], side="right", method="scan_unrolled")
    block = jnp.minimum(block, (num_rows - 1) // _BLOCK)
    ends = jnp.cumsum(mass[block], axis=1)
    place = where[:, None] * ends[:, -1:]
    row = jnp.sum(ends <= jnp.broadcast_to(place, ends.shape), axis=1, dtype=jnp.int32)
    # Sums taken in another order may differ in the last bit, and so end past the last row.
    return jnp.minimum(block * _BLOCK + row, num_rows - 1)


def copy(state: State, config: Config) -> State:
    """Copy the networks to the targets, the fixed encoder and the bounds, if it is time."""
    is_due = state.moments.num_updates % config.copy_every == 0
    renewed = {
        "target_actor": state.actor,
        "target_critic": state.critic,
        "target_encoder": state.fixed_encoder,
        "fixed_encoder": state.encoder,
        "bounds": state.seen,
    }
    old = {name: getattr(state, name) for name in renewed}
    chosen = jax.tree.map(lambda new, kept: jnp.where(is_due, new, kept), renewed, old)
    return state._replace(**chosen)


def update(
    state: State, batch: Batch, noise: jax.Array, phase: int, config: Config
) -> tuple[State, Metrics]:
    """Update encoder and critics; in the last phase of a cycle, also the actor."""
    z = embed(state.fixed_encoder, batch.obs)
    target = td_target(state, batch, noise, config)
    prediction_loss, encoder_grad = jax.value_and_grad(encoder_loss)(state.encoder, batch)
    (loss, (q, error)), critic_grad = jax.value_and_grad(critic_loss, has_aux=True)(
        state.critic, state.fixed_encoder, z, batch, target, config
    )
    (encoder, critic), moments = mlp.apply_adam(
        (state.encoder, state.critic),
        (encoder_grad, critic_grad),
        state.moments,
        learning_rate=config.critic_learning_rate,
    )
    state = state._replace(
        encoder=encoder,
        critic=critic,
        moments=moments,
        seen=widen(state.seen, target, batch),
        priority=reprioritise(state.priority, error, batch, config),
    )
    metrics = {"encoder_loss": prediction_loss, "critic_loss": loss, "q": q}
    if phase < config.policy_delay - 1:
        return state, metrics
    (loss, distance), grad = jax.value_and_grad(actor_loss, has_aux=True)(
        state.actor, critic, state.fixed_encoder, z, batch, config
    )
    actor, moments = mlp.apply_adam(
        state.actor, grad, state.actor_moments, learning_rate=config.actor_learning_rate
    )
    state = copy(state._replace(actor=actor, actor_moments=moments), config)
    return state, metrics | {"actor_loss": loss, "distance": distance}


def make(config: Config, *, num_steps: int) -> Learner:
    """Make the learner; nothing in it depends on ``num_steps``."""
    del num_steps
    return Learner(
        name="td7",
        config=config,
        init=partial(init, config=config),
        noise=noise,
        update=partial(update, config=config),
        actor=lambda state: Policy(state.fixed_encoder.state, *state.actor),
        actor_kind="td7",
        cycle=config.policy_delay,
        positions=positions,
    )
