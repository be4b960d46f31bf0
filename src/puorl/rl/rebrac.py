"""ReBRAC. Tarasov et al. 2023, "Revisiting the Minimalist Approach to Offline RL".

TD3+BC with a penalty on the distance to the data in both objectives of the paper's section 3: in
the actor's with weight beta1, in the critic's target with weight beta2. The critic's compares the
target policy's next action with the action that the data took next. Deeper networks, larger batches
and a critic with layer normalisation go with it.

Settings, and the points on which the paper is silent, are those of CORL's code: both distances are
summed over the action's components, the actor climbs the lower of both critics, the Q term is
divided by its own mean size, the normalisation follows the ReLU, biases start at 0.1 and output
layers near 0.

Deviations:
1. The target actor moves towards the actor after its update, as in TD3; in CORL towards the one
   before.
2. The actor learns in the last update of a cycle; in CORL in the first.
3. Layer normalisation adds 1e-5 to the variance; in CORL 1e-6.
4. ``default`` has the median of each penalty over the presets by body and quality, for data that
   has no row in the paper's table.
"""

from dataclasses import dataclass
from functools import partial

import jax
import jax.numpy as jnp

from puorl.nn import mlp
from puorl.rl import td3_bc
from puorl.rl.learner import Batch, Learner, Metrics, Sizes, policy_mean
from puorl.rl.td3_bc import State, act, noise

_NUM_CRITICS = 2


@dataclass(frozen=True)
class Config:
    """Settings."""

    actor_penalty: float = 0.01
    """Weight of the distance to the data in the actor's loss (the paper's beta1)."""
    critic_penalty: float = 0.01
    """Weight of the distance to the data in the critic's target (the paper's beta2)."""
    hidden: tuple[int, ...] = (256, 256, 256)
    batch_size: int = 1024
    actor_learning_rate: float = 1e-3
    critic_learning_rate: float = 1e-3
    gamma: float = 0.99
    tau: float = 0.005
    """Fraction of the soft update of the target networks."""
    policy_noise: float = 0.2
    """Standard deviation of the noise on the target policy's action."""
    noise_clip: float = 0.5
    policy_delay: int = 2
    """Critic updates for one update of the actor and of both targets."""
    layer_norm: bool = True
    """Whether the critic's hidden layers are normalised."""


PRESETS = {
    "default": Config(),
    "halfcheetah-random": Config(actor_penalty=0.001, critic_penalty=0.1),
    "halfcheetah-medium": Config(actor_penalty=0.001, critic_penalty=0.01),
    "halfcheetah-medium-expert": Config(actor_penalty=0.01, critic_penalty=0.1),
    "hopper-random": Config(actor_penalty=0.001, critic_penalty=0.01),
    "hopper-medium": Config(actor_penalty=0.01, critic_penalty=0.01),
    "hopper-medium-expert": Config(actor_penalty=0.1, critic_penalty=0.01),
    "walker2d-random": Config(actor_penalty=0.01, critic_penalty=0.0),
    "walker2d-medium": Config(actor_penalty=0.05, critic_penalty=0.1),
    "walker2d-medium-expert": Config(actor_penalty=0.01, critic_penalty=0.01),
}


def init(key: jax.Array, sizes: Sizes, config: Config) -> State:
    """Make the state of a fresh lane; the targets start equal to the networks."""
    actor_key, critic_key = jax.random.split(key)
    shape = (sizes.obs_dim, *config.hidden, sizes.act_dim)
    actor = mlp.init_mlp(actor_key, shape, init=_hidden_init, last_init=_within(1e-3))
    critic = mlp.init_ensemble(
        critic_key,
        _NUM_CRITICS,
        (sizes.obs_dim + sizes.act_dim, *config.hidden, 1),
        init=_hidden_init,
        last_init=_within(3e-3),
        layer_norm=config.layer_norm,
    )
    return State(actor, critic, actor, critic, mlp.init_adam(actor), mlp.init_adam(critic))


def q_values(critic: mlp.Params, obs: jax.Array, action: jax.Array) -> jax.Array:
    """Return both critics' values, (2, b)."""
    rows = jnp.concatenate([obs, action], axis=-1)
    return mlp.apply_ensemble(critic, rows, norm_after=True)[..., 0]


def distance(action: jax.Array, to: jax.Array) -> jax.Array:
    """Return the squared distance of actions (b, m) to others, (b,): the penalty of both losses."""
    return jnp.square(action - to).sum(axis=-1)


def td_target(state: State, batch: Batch, noise: jax.Array, config: Config) -> jax.Array:
    """Return what the critics learn, (b,): TD3's target less the penalty on the next action."""
    smoothing = jnp.clip(config.policy_noise * noise, -config.noise_clip, config.noise_clip)
    next_action = jnp.clip(act(state.target_actor, batch.next_obs) + smoothing, -1.0, 1.0)
    next_q = q_values(state.target_critic, batch.next_obs, next_action).min(axis=0)
    next_q = next_q - config.critic_penalty * distance(next_action, batch.next_action)
    return batch.reward + config.gamma * (1.0 - batch.terminal) * next_q


def actor_loss(
    actor: mlp.Params, critic: mlp.Params, batch: Batch, config: Config
) -> tuple[jax.Array, jax.Array]:
    """Return the penalty minus the scaled Q of the policy's actions, and their distance to data."""
    action = act(actor, batch.obs)
    q = q_values(critic, batch.obs, action).min(axis=0)
    scale = 1.0 / jax.lax.stop_gradient(policy_mean(jnp.abs(q), batch))
    apart = policy_mean(distance(action, batch.action), batch)
    return config.actor_penalty * apart - scale * policy_mean(q, batch), apart


def update(
    state: State, batch: Batch, noise: jax.Array, phase: int, config: Config
) -> tuple[State, Metrics]:
    """Update as TD3+BC does, with the target and the losses of this file."""
    losses = td3_bc.Losses(td_target, partial(td3_bc.critic_loss, q_of=q_values), actor_loss)
    return td3_bc.update(state, batch, noise, phase, config=config, losses=losses)


def make(config: Config, *, num_steps: int) -> Learner:
    """Make the learner; nothing in it depends on ``num_steps``."""
    del num_steps
    return Learner(
        name="rebrac",
        config=config,
        init=partial(init, config=config),
        noise=noise,
        update=partial(update, config=config),
        actor=lambda state: state.actor,
        actor_kind="tanh",
        cycle=config.policy_delay,
        needs_next_action=True,
    )


def _hidden_init(key: jax.Array, fan_in: int, fan_out: int) -> tuple[jax.Array, jax.Array]:
    w, b = mlp.torch_uniform(key, fan_in, fan_out)
    return w, jnp.full_like(b, 0.1)


def _within(bound: float) -> mlp.Initialiser:
    """Draw weights and biases uniformly in +-bound."""

    def init(key: jax.Array, fan_in: int, fan_out: int) -> tuple[jax.Array, jax.Array]:
        drawn = jax.random.uniform(key, (fan_in + 1, fan_out), jnp.float32, -bound, bound)
        return drawn[:-1], drawn[-1]

    return init
