"""Evaluate policies in episodes: once, or at intervals of their training."""

import re
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field
from fractions import Fraction
from typing import Any, NamedTuple, Protocol, runtime_checkable

import numpy as np

from puorl.core.errors import ConfigError, DataError, require
from puorl.core.hashing import generator
from puorl.core.resources import require_memory
from puorl.core.stats import Estimate, mean_estimate
from puorl.envs import bodies
from puorl.envs.domains import DomainSpec, parse_domain
from puorl.envs.simulator import Simulator
from puorl.nn.numpy_mlp import NumpyPolicy, stack_policies

_GYMNASIUM_ID = re.compile(r"(?:[\w:.-]+/)?[\w:.-]+-v\d+")
_EPISODE_BYTES = 1000
"""Least memory of a running episode: its state and its random stream."""


def normalised_score(body: str, returns: float | np.ndarray) -> np.ndarray:
    """Return D4RL's scores of undiscounted ``returns``, in the same shape, float64.

    >>> float(normalised_score("hopper", 3234.3))
    100.0

    Raises:
        ConfigError: Unknown body.
    """
    low, high = bodies.body(body).random_return, bodies.body(body).expert_return
    return 100.0 * (np.asarray(returns, np.float64) - low) / (high - low)


@runtime_checkable
class Actor(Protocol):
    """Anything that turns observations (b, d) float32 into actions (b, m) or codes (b,)."""

    def act(self, obs: np.ndarray, /) -> np.ndarray:
        """Return actions (b, m) or codes (b,), one per row of ``obs``."""
        ...


Policy = Actor | Callable[[np.ndarray], np.ndarray]


@dataclass(frozen=True, eq=False)
class Evaluation:
    """Returns of p policies in e episodes each; episode j starts alike for all policies."""

    env: str
    returns: np.ndarray
    """(p, e) float64. Undiscounted sums of rewards."""
    lengths: np.ndarray
    """(p, e) int64. Steps of each episode."""
    scores: np.ndarray | None
    """(p, e) float64. D4RL's normalised scores; None if the reward is not D4RL's."""

    @property
    def mean(self) -> np.ndarray:
        """(p,) float64. Mean return of each policy."""
        return self.returns.mean(axis=1)

    @property
    def std(self) -> np.ndarray:
        """(p,) float64. Standard deviation of each policy's returns over episodes."""
        return self.returns.std(axis=1)

    @property
    def mean_score(self) -> np.ndarray | None:
        """(p,) float64. Mean normalised score of each policy."""
        return None if self.scores is None else self.scores.mean(axis=1)

    def means(self, groups: Sequence[str]) -> list["GroupMean"]:
        """Average the policies of each group of two or more; ``groups`` has one of each policy."""
        found = []
        for group in dict.fromkeys(groups):
            rows = np.array([other == group for other in groups])
            if rows.sum() > 1:
                scores = None if self.mean_score is None else mean_estimate(self.mean_score[rows])
                returns = mean_estimate(self.mean[rows])
                found.append(GroupMean(group, int(rows.sum()), returns, scores))
        return found

    def to_dict(self, names: Sequence[str], groups: Sequence[str], seed: int) -> dict[str, Any]:
        """Return everything that was measured, JSON-ready.

        Args:
            names: Name of each policy.
            groups: Group of each policy; policies of one group are averaged.
            seed: Seed of the evaluation.
        """
        policies = []
        for row, (name, group) in enumerate(zip(names, groups, strict=True)):
            scores = None if self.scores is None else self.scores[row].tolist()
            measured = {
                "returns": self.returns[row].tolist(),
                "lengths": self.lengths[row].tolist(),
            }
            policies.append({"policy": name, "group": group, **measured, "scores": scores})
        return {
            "env": self.env,
            "episodes": self.returns.shape[1],
            "seed": seed,
            "policies": policies,
            "means": [each.to_dict() for each in self.means(groups)],
        }

    def __str__(self) -> str:
        lines = [f"{self.env}, {self.returns.shape[1]} episodes"]
        for row, (mean, std) in enumerate(zip(self.mean, self.std, strict=True)):
            score = "" if self.scores is None else f", score {self.scores[row].mean():.1f}"
            lines.append(
                f"policy {row}: return {mean:.1f} (std {std:.1f}), "
                f"length {self.lengths[row].mean():.0f}{score}"
            )
        return "\n".join(lines)


class GroupMean(NamedTuple):
    """Mean return and score of several policies, with intervals over policies."""

    group: str
    num_policies: int
    returns: Estimate
    scores: Estimate | None

    def to_dict(self) -> dict[str, Any]:
        """Return the content, JSON-ready."""
        return {
            "group": self.group,
            "num_policies": self.num_policies,
            "return": self.returns.to_dict(),
            "score": None if self.scores is None else self.scores.to_dict(),
        }


def evaluate(
    policy: Policy | Sequence[Policy],
    env: Any,
    *,
    episodes: int = 10,
    seed: int = 0,
    threads: int | None = None,
) -> Evaluation:
    """Run ``episodes`` episodes of each policy in ``env``.

    Args:
        policy: One or several: an object with ``act(obs)``, or a callable; ``obs`` is (b, d)
            float32, the action (b, m), or (b,) whole numbers for a Discrete action space.
        env: ``"hopper"``, ``"hopper/body_mass"``, a ``DomainSpec`` or one of our own gymnasium
            environments, which run in one batch of the simulator; or any other gymnasium
            environment (ours in wrappers included) or its id, such as ``"CartPole-v1"``, which is
            stepped in a plain loop.
        episodes: Episodes of each policy.
        seed: Seed of the start states and the domain's noise, which are the same for all policies.
        threads: Threads of the physics and of the policies; all cores if None.

    Raises:
        ConfigError: No policy, no episode, more episodes than fit, or an unknown environment.
    """
    policies = list(policy) if isinstance(policy, Sequence) else [policy]
    if not policies or episodes < 1:
        raise ConfigError(
            f"evaluate: expected one or more policies and episodes, got {len(policies)} policies "
            f"and {episodes} episodes"
        )
    for one in policies:
        if not (isinstance(one, Actor) or callable(one)):
            raise ConfigError(
                f"evaluate: expected a policy with act(obs) or a callable, got {type(one).__name__}"
            )
    name = env if isinstance(env, str) else str(env)
    env = find_env(env) if isinstance(env, str | DomainSpec) else env
    spec = _simulated(env)
    for one in policies:
        if isinstance(one, NumpyPolicy):
            check_sizes(env if spec is None else spec, one.obs_dim, one.act_dim, one.codes)
    if spec is None:
        returns, lengths = _foreign(policies, env, episodes, seed)
        return Evaluation(name, returns, lengths, None)
    require_room(len(policies), episodes)
    returns, lengths = _batched(policies, spec, episodes, seed, threads)
    other_reward = any(shift.kind == "reward" for shift in spec.shifts)
    scores = None if other_reward else normalised_score(spec.body, returns)
    return Evaluation(spec.text, returns, lengths, scores)


def require_room(num_policies: int, episodes: int) -> None:
    """Refuse more episodes than fit into memory side by side.

    Raises:
        ConfigError: They need more than is free.
    """
    need = num_policies * episodes * _EPISODE_BYTES
    require_memory(need, f"{episodes:,} episodes", repair="take fewer episodes")


def find_env(text: str | DomainSpec) -> Any:
    """Return the domain of a text such as ``hopper``, or the environment of a gymnasium id.

    Raises:
        ConfigError: There is none of this name.
    """
    if isinstance(text, DomainSpec) or not _GYMNASIUM_ID.fullmatch(text):
        return parse_domain(text)
    gymnasium = require("gymnasium", extra="sim", purpose=f"the environment {text}")
    try:
        return gymnasium.make(text)
    except (gymnasium.error.Error, ImportError) as error:
        reason = (str(error).splitlines() or [""])[0]
        raise ConfigError(f"env: expected an environment that gymnasium makes: {reason}") from error


def check_sizes(
    env: Any,
    obs_dim: int,
    act_dim: int,
    codes: Sequence[str] | None = None,
    subject: str = "the policy",
) -> None:
    """Refuse a policy or data that do not fit the states and actions of an environment.

    Args:
        env: From `find_env`.
        obs_dim: Components of a state.
        act_dim: Components of an action.
        codes: Of discrete actions.
        subject: What is checked; messages start with it.

    Raises:
        DataError: They do not fit.
    """
    if isinstance(env, DomainSpec):
        robot, name = bodies.body(env.body), env.text
        sizes, known = (robot.obs_dim, robot.act_dim), None
    elif not (hasattr(env, "action_space") and hasattr(env, "observation_space")):
        return  # an environment of the caller's own, which says nothing of its sizes
    else:
        state, action = env.observation_space, env.action_space
        name = str(getattr(getattr(env, "spec", None), "id", env))
        shape = getattr(action, "shape", None) or ()
        sizes = (int(np.prod(state.shape or ())), int(np.prod(shape)))
        known = _codes_of(action)
    if (codes is None) != (known is None):
        kinds = "continuous", f"codes such as {', '.join((codes or known or ())[:3])}"
        raise DataError(
            f"{subject} has actions that are {kinds[codes is not None]}, but those of {name} are "
            f"{kinds[known is not None]}; choose another environment"
        )
    if codes is not None and known is not None:
        if lost := [code for code in codes if code not in known]:
            raise DataError(
                f"{subject} has the action {lost[0]!r}, but {name} knows {known[0]} to "
                f"{known[-1]}; log the numbers that the environment takes"
            )
        sizes = (sizes[0], act_dim)
    if (obs_dim, act_dim) != sizes:
        raise DataError(
            f"{subject} has {obs_dim} state and {act_dim} action components, but {name} has "
            f"{sizes[0]} and {sizes[1]}; choose another domain"
        )


def _codes_of(space: Any) -> tuple[str, ...] | None:
    """Return the numbers of a Discrete action space as codes; None for any other space."""
    if not hasattr(space, "n") or not hasattr(space, "start"):
        return None
    return tuple(str(int(space.start) + i) for i in range(int(space.n)))


@dataclass(eq=False)
class Evaluator:
    """Evaluate policies at intervals of their training, as a callback of `puorl.rl.run.run`."""

    env: str | DomainSpec | Mapping[str, str | DomainSpec]
    """Domain of all lanes, or of each lane by its name."""
    episodes: int
    """Episodes of each policy in an evaluation."""
    seed: int
    steps: int
    """Updates in all; the last one is always followed by an evaluation."""
    interval: int | Fraction | None = None
    """Updates between two evaluations; only after the last update if None."""
    _last: dict[tuple[str, ...], Evaluation] = field(default_factory=dict, init=False)

    def __call__(
        self, previous: int, step: int, policies: Mapping[str, Policy]
    ) -> dict[str, dict[str, float]]:
        """Return the metrics of each lane, or none where no evaluation is due.

        Args:
            previous: Updates made at the previous call; 0 at the first one.
            step: Updates made by now.
            policies: By lane.
        """
        is_last = step >= self.steps
        due = self.interval is not None and step // self.interval > previous // self.interval
        if not policies or not (due or is_last):
            return {}
        seen = self.evaluate(policies)
        if is_last:
            self._last[tuple(policies)] = seen
        found: dict[str, dict[str, float]] = {}
        for row, name in enumerate(policies):
            found[name] = {"return": float(seen.mean[row]), "return_std": float(seen.std[row])}
            if seen.mean_score is not None:
                found[name]["score"] = float(seen.mean_score[row])
        return found

    def final(self, policies: Mapping[str, Policy]) -> Evaluation:
        """Return the evaluation after the last update, one row for each of ``policies``."""
        # Lanes of several groups, or of a run that had already ended, were not evaluated together.
        return self._last.get(tuple(policies)) or self.evaluate(policies)

    def evaluate(self, policies: Mapping[str, Policy]) -> Evaluation:
        """Evaluate policies now, each in its lane's domain; one row for each policy."""
        if not policies:
            none = np.zeros((0, self.episodes))
            return Evaluation("", none, none.astype(np.int64), None)
        lanes: dict[str | DomainSpec, list[str]] = {}
        for name in policies:
            env = self.env[name] if isinstance(self.env, Mapping) else self.env
            lanes.setdefault(env, []).append(name)
        parts = [
            evaluate([policies[n] for n in own], env, episodes=self.episodes, seed=self.seed)
            for env, own in lanes.items()
        ]
        if len(parts) == 1:
            return parts[0]
        found = [name for own in lanes.values() for name in own]
        order = [found.index(name) for name in policies]
        scores = [part.scores for part in parts if part.scores is not None]
        return Evaluation(
            ", ".join(part.env for part in parts),
            np.concatenate([part.returns for part in parts])[order],
            np.concatenate([part.lengths for part in parts])[order],
            np.concatenate(scores)[order] if len(scores) == len(parts) else None,
        )


def _simulated(env: Any) -> DomainSpec | None:
    if isinstance(env, DomainSpec):
        return env
    if not (hasattr(env, "reset") and hasattr(env, "step") and hasattr(env, "action_space")):
        raise ConfigError(
            "evaluate: expected an environment such as 'hopper/body_mass', a DomainSpec or a "
            f"gymnasium environment, got {type(env).__name__}"
        )
    if hasattr(env, "single_action_space"):
        raise ConfigError(
            f"evaluate: expected a single environment, got the vector {type(env).__name__}"
        )
    own = getattr(env, "unwrapped", env)
    spec = getattr(own, "domain", None)
    return spec if isinstance(spec, DomainSpec) and _is_plain(env, own, spec) else None


def _is_plain(env: Any, own: Any, spec: DomainSpec) -> bool:
    """Return whether all wrappers are those of ``gymnasium.make``, which change nothing."""
    wrappers = require("gymnasium", extra="sim", purpose="a gymnasium environment").wrappers
    while env is not own:
        if type(env) is wrappers.TimeLimit:
            if env.spec is None or env.spec.max_episode_steps != bodies.body(spec.body).max_steps:
                return False
        elif type(env) not in (wrappers.OrderEnforcing, wrappers.PassiveEnvChecker):
            return False
        env = env.env
    return True


def _batched(
    policies: list[Policy], spec: DomainSpec, episodes: int, seed: int, threads: int | None
) -> tuple[np.ndarray, np.ndarray]:
    shape = len(policies), episodes
    returns, lengths = np.zeros(shape), np.zeros(shape, np.int64)
    policy, episode = (index.ravel() for index in np.indices(shape))
    streams = episode.tolist()
    stack = stack_policies(policies, rows=episodes, threads=threads)
    with Simulator([spec] * len(policy), seed=seed, threads=threads, streams=streams) as simulator:
        while len(policy):
            obs = simulator.obs.astype(np.float32)
            if stack is not None:
                action = _checked(stack.act(obs, policy), (len(obs), simulator.act_dim))
            else:
                action = np.empty((len(obs), simulator.act_dim))
                for number in np.unique(policy):
                    rows = policy == number
                    chosen = _call(policies[number], obs[rows])
                    action[rows] = _checked(chosen, action[rows].shape)
            step = simulator.step(action)
            returns[policy, episode] += step.reward
            lengths[policy, episode] += 1
            goes_on = ~(step.terminal | step.timeout)
            if not goes_on.all():
                policy, episode = policy[goes_on], episode[goes_on]
                simulator.keep(goes_on)
    return returns, lengths


def _foreign(
    policies: list[Policy], env: Any, episodes: int, seed: int
) -> tuple[np.ndarray, np.ndarray]:
    shape = len(policies), episodes
    returns, lengths = np.zeros(shape), np.zeros(shape, np.int64)
    seeds = generator(seed, "evaluate").integers(2**31, size=episodes)
    space = env.action_space
    is_discrete = _codes_of(space) is not None
    for number, episode in np.ndindex(shape):
        obs, _ = env.reset(seed=int(seeds[episode]))
        ended = False
        while not ended:
            action = _call(policies[number], np.asarray(obs, np.float32)[None])[0]
            action = int(action) if is_discrete else np.asarray(action, space.dtype)
            if getattr(space, "low", None) is not None:
                action = np.clip(action, space.low, space.high)
            obs, reward, terminated, truncated, _ = env.step(action)
            returns[number, episode] += float(reward)
            lengths[number, episode] += 1
            ended = terminated or truncated
    return returns, lengths


def _checked(action: np.ndarray, shape: tuple[int, ...]) -> np.ndarray:
    if action.shape != shape:
        raise DataError(f"policy: expected actions of shape {shape}, got {action.shape}")
    return action


def _call(policy: Policy, obs: np.ndarray) -> np.ndarray:
    return np.asarray(policy.act(obs) if isinstance(policy, Actor) else policy(obs))
