"""Roll a policy out in learnt models of the machine: next state, reward and end of the task.

Each lane is a network fitted on its own draw of episodes. Roll-outs start at the logged starts and
end where the discount leaves a thousandth. A state that leaves the logged range is put back to its
edge, and such steps are counted: there the model knows nothing. Where the log itself leaves the
range of the states that it acted in only as the task ends, the roll-out ends, too. A roll-out that
crossed an edge is worth no more than the best logged episode, and no less than the worst. A column
with two logged values, such as a switch, has no values between them.
"""

import math
from typing import Any, NamedTuple

import jax
import jax.numpy as jnp
import numpy as np

from puorl.core.hashing import generator
from puorl.nn import mlp
from puorl.ope import fitting
from puorl.ope.config import OPEConfig
from puorl.ope.logged import Lanes, LoggedEpisodes

_TAIL = 0.001
_LONGEST = 2_000
_MARGIN = 0.1
"""How far beyond the logged range a state or a return may go, as a fraction of that range."""


class ModelRows(NamedTuple):
    """Inputs and outcomes in standard units."""

    given: jax.Array
    outcome: jax.Array
    """(n, d + 1): change of the state, and reward."""
    known: jax.Array
    """(n,) 1 where the next state was recorded."""
    terminal: jax.Array


class DynamicsModel(NamedTuple):
    """Fitted models, one for each lane."""

    params: Any
    centre: np.ndarray
    scale: np.ndarray
    """(d + 1,) float64. Units of the outcome."""
    low: np.ndarray
    high: np.ndarray
    """(d,) float32. Edges of the states, standardised; the very values of columns that switch."""
    switches: np.ndarray
    """(d,) bool. Columns with one or two logged values."""
    ends: tuple[np.ndarray, np.ndarray]
    """(d,) bool each. Whether tasks end beyond the lower and beyond the upper edge of a column."""
    rewards: tuple[float, float]
    """Smallest and largest logged reward."""
    has_ends: bool
    """Whether tasks end in the log at all."""

    def step(self, obs: np.ndarray, action: np.ndarray) -> tuple[np.ndarray, ...]:
        """Return next states (c, k, d) before they are put back, rewards and survival (c, k).

        Columns that switch have one of their logged values; beyond an edge where tasks end nothing
        survives.
        """
        given = np.concatenate([obs, action], axis=-1)
        out = np.asarray(_predict(self.params, given), np.float64)
        outcome = self.centre + self.scale * out[..., :-1]
        alive = 1.0 / (1.0 + np.exp(out[..., -1])) if self.has_ends else np.ones(out.shape[:2])
        moved = obs + outcome[..., :-1]
        nearest = np.where(moved - self.low > self.high - moved, self.high, self.low)
        moved = np.where(self.switches, nearest, moved)
        over = ((moved < self.low) & self.ends[0]) | ((moved > self.high) & self.ends[1])
        alive = np.where(over.any(axis=-1), 0.0, alive)
        return moved, np.clip(outcome[..., -1], *self.rewards), alive


class Rollout(NamedTuple):
    """Value of all starts by each lane, and how far data was left."""

    draws: np.ndarray
    """(c,) float64."""
    outside: float
    """Fraction of steps, by discount, at which a state was put back to the edge of the data."""


def fit_model(
    logged: LoggedEpisodes, drawn: Lanes, config: OPEConfig, *, seed: int
) -> DynamicsModel:
    """Fit a model of the dynamics, the reward and the ends in every lane."""
    known = ~logged.terminal | (logged.next_state != logged.state).any(axis=1)
    outcome = np.column_stack([logged.next_obs - logged.obs, logged.reward]).astype(np.float64)
    centre, scale = outcome[known].mean(axis=0), outcome[known].std(axis=0)
    scale = np.where(scale > 0, scale, 1.0)
    given = np.concatenate([logged.obs, logged.action], axis=1)
    rows = ModelRows(
        *(
            jnp.asarray(each, jnp.float32)
            for each in (given, (outcome - centre) / scale, known, logged.terminal)
        )
    )
    params, _ = fitting.fit(
        (given.shape[1], *config.hidden, outcome.shape[1] + 1),
        _loss,
        rows,
        fitting.as_draws(*drawn.tables(logged.episode)),
        fitting.Schedule(
            config.model_updates, min(200, config.model_updates), config.batch_size, 1e-3
        ),
        seed=seed,
        purpose="model",
    )
    acted, reached = logged.obs, logged.next_obs
    every = np.concatenate([acted, reached])
    low, high = every.min(axis=0), every.max(axis=0)
    switches = ((every == low) | (every == high)).all(axis=0)
    margin = np.where(switches, 0, _MARGIN * (high - low)).astype(every.dtype)
    return DynamicsModel(
        params,
        centre,
        scale,
        low - margin,
        high + margin,
        switches,
        ends=(
            logged.terminal[reached.argmin(axis=0)] & (reached.min(axis=0) < acted.min(axis=0)),
            logged.terminal[reached.argmax(axis=0)] & (reached.max(axis=0) > acted.max(axis=0)),
        ),
        rewards=(float(logged.reward.min()), float(logged.reward.max())),
        has_ends=bool(logged.terminal.any()),
    )


def roll_out(
    model: DynamicsModel,
    logged: LoggedEpisodes,
    policy: Any,
    *,
    gamma: float,
    seed: int,
) -> Rollout:
    """Run a policy from all starts in all lanes."""
    num_lanes, start = len(model.params[0].b), logged.obs[logged.starts]
    obs = np.broadcast_to(start, (num_lanes, *start.shape)).astype(np.float32)
    alive = np.ones(obs.shape[:2])
    total, left, all_steps = (np.zeros(obs.shape[:2]) for _ in range(3))
    crossed = np.zeros(obs.shape[:2], bool)
    rng = generator(seed, "ope", "roll-out")
    horizon = min(math.ceil(math.log(_TAIL) / math.log(gamma)), _LONGEST) if gamma > 0 else 1
    for step in range(horizon):
        state = obs.reshape(-1, obs.shape[2]) * logged.scale + logged.centre
        choice = logged.choices(policy, state.astype(np.float32))
        if logged.discrete:
            choice = _sampled(choice, rng)
        action = np.clip(choice, -1.0, 1.0).reshape(*obs.shape[:2], -1)
        moved, reward, survival = model.step(obs, action)
        weight = gamma**step * alive
        total += weight * reward
        beyond = ((moved < model.low) | (moved > model.high)).any(axis=-1)
        left += weight * (beyond & (survival > 0))
        crossed |= beyond & (alive > 0.5)
        obs = np.clip(moved, model.low, model.high).astype(np.float32)
        all_steps += weight
        alive = alive * survival
    total = np.where(crossed, np.clip(total, *return_range(logged, gamma)), total)
    return Rollout(total.mean(axis=1), float(left.sum() / all_steps.sum()))


def return_range(logged: LoggedEpisodes, gamma: float) -> tuple[float, float]:
    """Return the discounted returns of the worst and the best logged episode, with a margin."""
    returns = logged.returns(gamma)
    margin = _MARGIN * np.ptp(returns)
    return float(returns.min() - margin), float(returns.max() + margin)


def _sampled(probability: np.ndarray, rng: np.random.Generator) -> np.ndarray:
    """Draw a code from each row of probabilities, one-hot."""
    edge = np.cumsum(probability, axis=1)
    code = (rng.random((len(edge), 1)) * edge[:, -1:] > edge).sum(axis=1)
    return np.eye(probability.shape[1], dtype=np.float32)[code]


@jax.jit
def _predict(params: Any, given: jax.Array) -> jax.Array:
    return jax.vmap(mlp.apply_mlp)(params, given)


def _loss(params: mlp.Params, rows: ModelRows) -> jax.Array:
    out = mlp.apply_mlp(params, rows.given)
    error = jnp.square(out[..., :-1] - rows.outcome)
    # The reward of a terminal row is known even where its next state is not.
    moved = (rows.known * error[..., :-1].mean(axis=-1) + error[..., -1]).mean()
    logit = out[..., -1]
    return moved + (jax.nn.softplus(logit) - rows.terminal * logit).mean()
