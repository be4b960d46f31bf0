"""CQL. Kumar et al. 2020, "Conservative Q-Learning for Offline Reinforcement Learning".

CQL(H), eq. 4: soft actor-critic whose critics also pay for the gap between the log-sum-exp of Q
over all actions and Q of the data's action. The log-sum-exp is estimated by importance sampling
(appendix F) from uniform and from the policy's own actions. The entropy's weight is learnt, for a
target entropy of minus the number of action components.

``default`` has CORL's settings for MuJoCo: actor and critics have three hidden layers of 256 each.
``jax-corl`` has JAX-CORL's: two hidden layers, other learning rates and weight, raw states.

Deviations from the paper, 1 to 4 as in both:
1. A third of the sampled actions is the policy's at the next state; Q is that of the present state.
2. The squared error has no factor 1/2: a weight of 10 here is one of 5 in eq. 4.
3. The weight is fixed (no Lagrange variant), and the td_target has no entropy term.
4. The policy's log deviation is 1 lower than its network's output (``log_std_offset``). There that
   number is learnt, and a factor besides; here it stays: the output layer can learn the same.
5. Output layers start orthogonal with gain 0.01 under every ``init``. CORL says orthogonal but
   starts its actor's hidden layers otherwise; here they are as the critics'.

All gradients are taken at the same parameters, as in both.
"""

import math
from dataclasses import dataclass
from functools import partial
from typing import NamedTuple

import jax
import jax.numpy as jnp

from puorl.core.errors import ConfigError
from puorl.nn import mlp
from puorl.nn.numpy_mlp import LOG_STD_RANGE
from puorl.rl.learner import Batch, Learner, Metrics, Sizes, critic_mean, policy_mean

_NUM_CRITICS = 2


@dataclass(frozen=True)
class Config:
    """Settings."""

    conservative_weight: float = 10.0
    """Weight of the gap against the squared error (the paper's alpha, times two)."""
    num_sampled: int = 10
    """Actions of each of the three kinds in an estimate of the log-sum-exp."""
    hidden: tuple[int, ...] = (256, 256, 256)
    batch_size: int = 256
    actor_learning_rate: float = 3e-5
    """Of the entropy's weight, too."""
    critic_learning_rate: float = 3e-4
    gamma: float = 0.99
    tau: float = 0.005
    """Fraction of the soft update of the target critics."""
    log_std_offset: float = -1.0
    """Added to the network's log deviation before it is clipped to its range."""
    init: str = "orthogonal"
    """Initialisation of hidden layers: a name in `puorl.nn.mlp.INITIALISERS`."""
    normalise_states: bool = True

    def __post_init__(self) -> None:
        if self.num_sampled < 1:
            raise ConfigError(f"num_sampled: expected at least 1, got {self.num_sampled}")


PRESETS = {
    "default": Config(),
    "jax-corl": Config(
        conservative_weight=5.0,
        hidden=(256, 256),
        actor_learning_rate=3e-4,
        init="lecun",
        normalise_states=False,
    ),
}


class Policy(NamedTuple):
    """Parameters that are learnt at the actor's rate."""

    actor: mlp.Params
    """Its output is 2m wide: means, then log deviations."""
    log_entropy_weight: jax.Array


class State(NamedTuple):
    """Parameters and optimiser state of one lane."""

    policy: Policy
    critic: mlp.Params
    target_critic: mlp.Params
    policy_moments: mlp.Moments
    critic_moments: mlp.Moments


class Noise(NamedTuple):
    """All randomness of an update, for n sampled actions of a kind."""

    uniform: jax.Array
    """(n, b, m) in [-1, 1]: actions as they are."""
    normal: jax.Array
    """(2, 1 + n, b, m): behind the policy's actions at the states and at the next states."""


class Sampled(NamedTuple):
    """Actions and their log densities."""

    action: jax.Array
    """(..., b, m)."""
    log_density: jax.Array
    """(..., b)."""


def init(key: jax.Array, sizes: Sizes, config: Config) -> State:
    """Make the state of a fresh lane; targets equal the critics, the entropy's weight is 1."""
    actor_key, critic_key = jax.random.split(key)
    last_init = mlp.Orthogonal(1e-2)
    actor = mlp.init_mlp(
        actor_key,
        (sizes.obs_dim, *config.hidden, 2 * sizes.act_dim),
        init=config.init,
        last_init=last_init,
    )
    critic = mlp.init_ensemble(
        critic_key,
        _NUM_CRITICS,
        (sizes.obs_dim + sizes.act_dim, *config.hidden, 1),
        init=config.init,
        last_init=last_init,
    )
    policy = Policy(actor, jnp.zeros((), jnp.float32))
    return State(policy, critic, critic, mlp.init_adam(policy), mlp.init_adam(critic))


def noise(key: jax.Array, batch_size: int, act_dim: int, config: Config) -> Noise:
    """Draw the noise of one update."""
    uniform_key, normal_key = jax.random.split(key)
    n, rows = config.num_sampled, (batch_size, act_dim)
    return Noise(
        jax.random.uniform(uniform_key, (n, *rows), jnp.float32, -1.0, 1.0),
        jax.random.normal(normal_key, (2, 1 + n, *rows), jnp.float32),
    )


def sample(actor: mlp.Params, batch: Batch, noise: jax.Array, config: Config) -> Sampled:
    """Draw squashed Gaussian actions (2, 1 + n, b, m) at the states and at the next states."""
    # One pass for both kinds of states; every sample of a state shares its mean and deviation.
    out = mlp.apply_mlp(actor, jnp.stack([batch.obs, batch.next_obs]))[:, None]
    mean, log_std = jnp.split(out, 2, axis=-1)
    log_std = jnp.clip(log_std + config.log_std_offset, *LOG_STD_RANGE)
    raw = mean + jnp.exp(log_std) * noise
    # log(1 - tanh(u)^2) = 2 (log 2 - u - softplus(-2u)), which stays finite for large |u|.
    log_slope = 2.0 * (math.log(2.0) - raw - jax.nn.softplus(-2.0 * raw))
    log_density = -0.5 * jnp.square(noise) - log_std - 0.5 * math.log(2.0 * math.pi) - log_slope
    return Sampled(jnp.tanh(raw), log_density.sum(axis=-1))


def q_values(critic: mlp.Params, obs: jax.Array, action: jax.Array) -> jax.Array:
    """Return both critics' values (2, ..., b) of actions (..., b, m) at the states (b, d)."""
    obs = jnp.broadcast_to(obs, (*action.shape[:-1], obs.shape[-1]))
    rows = jnp.concatenate([obs, action], axis=-1)
    # All actions as rows of one product: that is where the time goes.
    q = mlp.apply_ensemble(critic, rows.reshape(-1, rows.shape[-1]))
    return q.reshape(_NUM_CRITICS, *action.shape[:-1])


def policy_loss(
    policy: Policy, critic: mlp.Params, batch: Batch, noise: jax.Array, config: Config
) -> tuple[jax.Array, tuple[Sampled, Metrics]]:
    """Return SAC's losses of the actor and of the entropy's weight, and the sampled actions.

    Each loss has gradients of its own parameters only.
    """
    sampled = sample(policy.actor, batch, noise, config)
    action, log_density = sampled.action[0, 0], sampled.log_density[0, 0]
    q = q_values(critic, batch.obs, action).min(axis=0)
    entropy_weight = jnp.exp(jax.lax.stop_gradient(policy.log_entropy_weight))
    actor_loss = policy_mean(entropy_weight * log_density - q, batch)
    # The target entropy is minus the number of action components.
    shortfall = jax.lax.stop_gradient(policy_mean(log_density - action.shape[-1], batch))
    weight_loss = -policy.log_entropy_weight * shortfall
    metrics = {"actor_loss": actor_loss, "entropy_weight": entropy_weight}
    metrics |= {"entropy": -policy_mean(log_density, batch)}
    return actor_loss + weight_loss, (sampled, metrics)


def td_target(
    target_critic: mlp.Params, batch: Batch, next_action: jax.Array, config: Config
) -> jax.Array:
    """Return what the critics learn, (b,): the double-Q target without entropy."""
    next_q = q_values(target_critic, batch.next_obs, next_action).min(axis=0)
    return batch.reward + config.gamma * (1.0 - batch.terminal) * next_q


def proposals(uniform: jax.Array, sampled: Sampled) -> Sampled:
    """Return the 3n actions (3n, b, m) of the estimate: n uniform, 2n the policy's."""
    n, b, m = uniform.shape
    action = sampled.action[:, 1:].reshape(2 * n, b, m)
    log_density = sampled.log_density[:, 1:].reshape(2 * n, b)
    return Sampled(
        jnp.concatenate([uniform, action]),
        jnp.concatenate([jnp.full((n, b), -m * math.log(2.0), jnp.float32), log_density]),
    )


def critic_loss(
    critic: mlp.Params, batch: Batch, target: jax.Array, proposed: Sampled, config: Config
) -> tuple[jax.Array, Metrics]:
    """Return eq. 4: squared errors plus the weighted gap, summed over both critics."""
    action = jnp.concatenate([batch.action[None], proposed.action])
    q = q_values(critic, batch.obs, action)
    q_data, q_proposed = q[:, 0], q[:, 1:]
    # Importance sampling: the integral of exp(Q) is the mean of exp(Q) / density.
    log_ratio = q_proposed - jnp.broadcast_to(proposed.log_density, q_proposed.shape)
    log_integral = jax.nn.logsumexp(log_ratio, axis=1) - math.log(q_proposed.shape[1])
    gap = (log_integral - q_data).sum(axis=0)
    error = jnp.square(q_data - jnp.broadcast_to(target, q_data.shape)).sum(axis=0)
    loss = critic_mean(error + config.conservative_weight * gap, batch)
    metrics = {"critic_loss": loss, "q": policy_mean(q_data[0], batch)}
    return loss, metrics | {"gap": policy_mean(gap, batch) / _NUM_CRITICS}


def update(
    state: State, batch: Batch, noise: Noise, phase: int, config: Config
) -> tuple[State, Metrics]:
    """Update the policy and the critics, then the targets; every phase is the same."""
    del phase
    (_, (sampled, policy_metrics)), policy_grad = jax.value_and_grad(policy_loss, has_aux=True)(
        state.policy, state.critic, batch, noise.normal, config
    )
    target = td_target(state.target_critic, batch, sampled.action[1, 0], config)
    critic_grad, critic_metrics = jax.grad(critic_loss, has_aux=True)(
        state.critic, batch, target, proposals(noise.uniform, sampled), config
    )
    policy, policy_moments = mlp.apply_adam(
        state.policy, policy_grad, state.policy_moments, learning_rate=config.actor_learning_rate
    )
    critic, critic_moments = mlp.apply_adam(
        state.critic, critic_grad, state.critic_moments, learning_rate=config.critic_learning_rate
    )
    target_critic = mlp.soft_update(state.target_critic, critic, config.tau)
    state = State(policy, critic, target_critic, policy_moments, critic_moments)
    return state, policy_metrics | critic_metrics


def mean_actor(state: State) -> mlp.Params:
    """Return the actor without its log deviations: tanh of its output is the mean action."""
    *hidden, last = state.policy.actor
    act_dim = last.b.shape[-1] // 2
    return (*hidden, mlp.Layer(last.w[..., :act_dim], last.b[..., :act_dim]))


def make(config: Config, *, num_steps: int) -> Learner:
    """Make the learner; nothing in it depends on ``num_steps``."""
    del num_steps
    return Learner(
        name="cql",
        config=config,
        init=partial(init, config=config),
        noise=partial(noise, config=config),
        update=partial(update, config=config),
        actor=mean_actor,
        actor_kind="tanh",
        normalise_states=config.normalise_states,
    )
