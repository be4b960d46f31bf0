"""IQL with discrete actions: as `puorl.rl.iql`, with a softmax policy.

V is an expectile of Q over the data's actions and Q bootstraps from V, so that no action outside
the data is ever evaluated: V and Q are as for continuous actions. The critics read the state and
the one-hot action. The policy maximises the log probability of the data's actions, weighted by
advantage (eq. 7 of Kostrikov et al. 2022).

Deviations from `puorl.rl.iql`:
1. The policy is a softmax instead of a Gaussian; it has no log standard deviation.
2. States are normalised: logs of discrete decisions often mix units.
"""

from functools import partial

import jax
import jax.numpy as jnp

from puorl.nn import mlp
from puorl.rl import iql
from puorl.rl.discrete_bc import init_network, log_probability
from puorl.rl.iql import Config, State
from puorl.rl.learner import Batch, Learner, Sizes, policy_mean

PRESETS = {"default": Config(normalise_states=True)}


def init(key: jax.Array, sizes: Sizes, config: Config) -> State:
    """Make the state of a fresh lane; the target critics start equal to the critics."""
    policy_key = jax.random.split(key, 3)[0]
    return iql.init(key, sizes, config, init_network(policy_key, sizes, config.hidden))


def policy_loss(
    policy: mlp.Params, batch: Batch, advantage: jax.Array, config: Config
) -> jax.Array:
    """Return minus the log probability of the data's actions, weighted by advantage (b,)."""
    weight = jnp.minimum(jnp.exp(config.beta * advantage), config.max_weight)
    return -policy_mean(weight * log_probability(policy, batch), batch)


def make(config: Config, *, num_steps: int) -> Learner:
    """Make the learner; the policy's learning rate is 0 after ``num_steps`` updates."""
    return Learner(
        name="discrete_iql",
        config=config,
        init=partial(init, config=config),
        noise=iql.noise,
        update=partial(iql.update, config=config, num_steps=num_steps, loss=policy_loss),
        actor=lambda state: state.policy,
        actor_kind="softmax",
        normalise_states=config.normalise_states,
        scale_rewards=config.reward_scale == 0.0,
        reward_factor=config.reward_scale or 1.0,
        discrete=True,
    )
