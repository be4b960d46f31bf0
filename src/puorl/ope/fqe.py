"""Fitted Q evaluation. Le, Voloshin and Yue 2019, "Batch Policy Learning under Constraints".

A critic learns r + gamma * Q(s', pi(s')) on logged rows; the value of the policy is Q at the
starts. Several critics are lanes of one program, each with its own draw of episodes.

Deviations from the paper:
1. The critic is not fitted anew in every iteration: its target network is replaced by it every
   ``target_interval`` updates, as in DQN. After n replacements a fraction gamma**n of the error
   of the first values is left, so there must be many.
2. Targets are cut to what rewards of the logged size can add up to.
3. Values are averaged over the last quarter of the training.
"""

from functools import partial
from typing import Any, NamedTuple

import jax
import jax.numpy as jnp
import numpy as np

from puorl.core.progress import Advance, quiet
from puorl.nn import mlp
from puorl.ope import fitting
from puorl.ope.config import OPEConfig
from puorl.ope.logged import Lanes, LoggedEpisodes


class CriticRows(NamedTuple):
    """What a critic learns from; logged returns have mean 0 and deviation 1 in its units."""

    obs: jax.Array
    action: jax.Array
    reward: jax.Array
    discount: jax.Array
    """Gamma, or 0 where the task ended."""
    next_obs: jax.Array
    next_choice: jax.Array
    """The policy's action in the next state, or its probabilities of all codes."""
    low: jax.Array
    high: jax.Array
    """Bounds of any policy's value, the same in all rows."""


class Critics(NamedTuple):
    """Fitted critics of one policy, one for each lane."""

    params: Any
    discrete: bool
    centre: float
    unit: float
    """Value of 0, and of a difference of 1, in the critics' units."""
    curve: np.ndarray
    """(k, c) float64. Value of all starts by each lane at k points of the last quarter of the
    training."""

    @property
    def value(self) -> float:
        """Value of the policy: the mean over lanes."""
        return float(self.curve.mean())

    @property
    def draws(self) -> np.ndarray:
        """(c,) float64. Value by each lane."""
        return self.curve.mean(axis=0)

    @property
    def drift(self) -> float:
        """Change of the mean value between the two halves of the last quarter."""
        last = self.curve.mean(axis=1)
        half = len(last) // 2
        return float(last[half:].mean() - last[:half].mean()) if half else 0.0

    def q(self, obs: np.ndarray, choice: np.ndarray) -> np.ndarray:
        """(c, k) float64. Value of a choice in each row by each critic."""
        q = fitting.in_blocks(_lanes_of[self.discrete], self.params, obs, choice)
        return self.centre + self.unit * q


def fit_critics(
    logged: LoggedEpisodes,
    choices: tuple[np.ndarray, np.ndarray],
    drawn: Lanes,
    config: OPEConfig,
    *,
    gamma: float,
    seed: int,
    advance: Advance = quiet,
) -> Critics:
    """Fit the critics of one policy.

    Args:
        logged: The episodes that judge.
        choices: What the policy does in the next states (n, m), and in the starts (e, m).
        drawn: Episodes of each lane.
        config: Settings of the networks.
        gamma: Discount of a step.
        seed: Decides weights and batches.
        advance: Is told of the updates made.
    """
    centre, unit = return_units(logged, gamma)
    low, high = ((bound - centre) / unit for bound in value_bounds(logged, gamma))
    discount, num_rows = gamma * ~logged.terminal, len(logged.reward)
    arrays = {
        "obs": logged.obs,
        "action": logged.action,
        "reward": (logged.reward - centre + discount * centre) / unit,
        "discount": discount,
        "next_obs": logged.next_obs,
        "next_choice": choices[0],
        "low": np.full(num_rows, low),
        "high": np.full(num_rows, high),
    }
    rows = CriticRows(**{name: jnp.asarray(a, jnp.float32) for name, a in arrays.items()})
    obs_dim, act_dim = logged.obs.shape[1], logged.action.shape[1]
    ends = (obs_dim, act_dim) if logged.discrete else (obs_dim + act_dim, 1)
    start_obs, start_choice = jnp.asarray(logged.obs[logged.starts]), jnp.asarray(choices[1])

    def watch(params: Any) -> np.ndarray:
        q = np.asarray(_lanes_of[logged.discrete](params, start_obs, start_choice), np.float64)
        return centre + unit * q.mean(axis=1)

    params, curve = fitting.fit(
        (ends[0], *config.hidden, ends[1]),
        _discrete_loss if logged.discrete else _loss,
        rows,
        fitting.as_draws(*drawn.tables(logged.episode)),
        fitting.Schedule(
            config.updates, config.target_interval, config.batch_size, config.learning_rate
        ),
        seed=seed,
        purpose="fqe",
        prepare=_discrete_targets if logged.discrete else _targets,
        watch=watch,
        advance=advance,
    )
    return Critics(params, logged.discrete, centre, unit, np.stack(curve))


def return_units(logged: LoggedEpisodes, gamma: float) -> tuple[float, float]:
    """Return mean and deviation of the discounted returns that follow the logged rows.

    What would have followed a record that was cut is worth the mean itself.
    """
    reward = logged.in_steps(logged.reward)
    later, share = np.zeros_like(reward), np.zeros_like(reward)
    last = (logged.place >= 0).sum(axis=1) - 1
    total, tail = np.zeros(len(reward)), np.zeros(len(reward))
    is_cut = ~logged.terminal[logged.place[np.arange(len(last)), last]]
    for step in range(reward.shape[1] - 1, -1, -1):
        tail = np.where(last == step, 1.0 * is_cut, tail)
        later[:, step] = total = reward[:, step] + gamma * total
        share[:, step] = tail = gamma * tail
    known = logged.place >= 0
    mean = later[known].mean() / (1.0 - share[known].mean())
    seen = later[known] + share[known] * mean
    return float(mean), float(seen.std()) or 1.0


def value_bounds(logged: LoggedEpisodes, gamma: float) -> tuple[float, float]:
    """Return the smallest and largest value that rewards of the logged size can add up to."""
    low, high = float(logged.reward.min()), float(logged.reward.max())
    if logged.terminal.any():  # a policy may end the task at once, or never
        low, high = min(low, low / (1 - gamma)), max(high, high / (1 - gamma))
        return low, high
    return low / (1 - gamma), high / (1 - gamma)


def q_values(params: mlp.Params, obs: jax.Array, choice: jax.Array, *, discrete: bool) -> jax.Array:
    """Return Q (...,) of a choice: of an action, or averaged over probabilities of codes."""
    if discrete:
        return (mlp.apply_mlp(params, obs) * choice).sum(axis=-1)
    return mlp.apply_mlp(params, jnp.concatenate([obs, choice], axis=-1))[..., 0]


def td_targets(params: mlp.Params, rows: CriticRows, *, discrete: bool) -> CriticRows:
    """Return the rows with what the critic learns in place of the reward."""
    following = q_values(params, rows.next_obs, rows.next_choice, discrete=discrete)
    target = jnp.clip(rows.reward + rows.discount * following, rows.low, rows.high)
    return rows._replace(reward=target)


def critic_loss(params: mlp.Params, rows: CriticRows, *, discrete: bool) -> jax.Array:
    """Return the mean squared error."""
    q = q_values(params, rows.obs, rows.action, discrete=discrete)
    return jnp.square(q - rows.reward).mean()


# One object each, so that compiled programs are found again.
_loss, _discrete_loss = (partial(critic_loss, discrete=each) for each in (False, True))
_targets, _discrete_targets = (partial(td_targets, discrete=each) for each in (False, True))


@partial(jax.jit, static_argnames="discrete")
def _all_lanes(params: Any, obs: jax.Array, choice: jax.Array, *, discrete: bool) -> jax.Array:
    return jax.vmap(lambda own: q_values(own, obs, choice, discrete=discrete))(params)


_lanes_of = {each: partial(_all_lanes, discrete=each) for each in (False, True)}
