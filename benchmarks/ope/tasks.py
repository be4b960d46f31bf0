"""Tasks with policies of known value: three bodies to judge by, two small systems to tune on.

A task has a log that judges, policies that it was not made for, and the true discounted return of
every policy from the log's own starts. Policies of bodies: those shipped with puorl (random, rungs
of a training, medium, expert, and those of other domains, without noise), and behaviour cloning and
TD3+BC at several lengths on other rows than those that judge. Policies of the small systems are
controllers with drawn gains.
"""

from collections.abc import Callable
from dataclasses import dataclass
from typing import Any

import numpy as np

import puorl
from puorl.core.hashing import generator
from puorl.envs import behaviour
from puorl.envs.domains import parse_domain
from puorl.envs.simulator import Simulator

GAMMA = 0.99
BODIES = ("hopper", "halfcheetah", "walker2d")
SYSTEMS = ("pendulum", "tank")
LEVELS = ("random", "medium", "expert")
TRAINED = (("bc", 300), ("bc", 2_000), ("td3_bc", 1_000), ("td3_bc", 3_000), ("td3_bc", 8_000))
TRAIN_ROWS = 50_000


@dataclass(frozen=True)
class Task:
    """A log that judges, policies, and what they are worth from its starts."""

    name: str
    judge: puorl.Dataset
    policies: dict[str, Any]
    truth: dict[str, float]
    """Mean discounted return from the starts of ``judge``."""


def make(name: str, *, rows: int, seed: int) -> Task:
    """Build a task; the same arguments give the same task."""
    return body(name, rows, seed) if name in BODIES else system(name, rows, seed)


# --------------------------------------------------------------------------------- bodies


def body(name: str, rows: int, seed: int) -> Task:
    """Log snapshots of a training (medium-replay), and value policies in the simulator."""
    judge = puorl.collect(name, quality="medium-replay", rows=rows, seed=seed)
    policies: dict[str, Any] = {"random": behaviour.behaviour(name, level="random")}
    for each in behaviour.shipped():
        if each.body == name:
            text = f"{each.domain}/{each.level}/v{each.version}"
            policies[text] = behaviour.behaviour(
                name, each.domain, each.level, version=each.version
            )
    train = puorl.collect(name, quality="medium-expert", rows=TRAIN_ROWS, seed=seed + 1)
    for learner, steps in TRAINED:
        policies[f"{learner}/{steps}"] = puorl.train(
            learner, train, steps=steps, seed=seed, hidden=(64, 64), batch_size=128
        )
    starts = judge.obs[np.unique(judge.episode, return_index=True)[1]]
    spec = parse_domain(name)
    truth = {text: in_simulator(policy, spec, starts) for text, policy in policies.items()}
    return Task(name, judge, policies, truth)


def in_simulator(policy: Any, spec: Any, starts: np.ndarray) -> float:
    """Mean discounted return of a policy from given observations of starts."""
    with Simulator([spec] * len(starts), seed=0) as simulator:
        nq, nv = simulator.qpos.shape[1], simulator.qvel.shape[1]
        # The position along the track is not observed, and nothing depends on it.
        qpos = np.column_stack([np.zeros(len(starts)), starts[:, : nq - 1]])
        simulator.set_state(qpos.astype(np.float64), starts[:, nq - 1 : nq - 1 + nv].astype(float))
        total, discount = np.zeros(len(starts)), 1.0
        number = np.arange(len(starts))
        while len(number) and discount > 1e-5:
            step = simulator.step(np.asarray(policy.act(simulator.obs.astype(np.float32)), float))
            total[number] += discount * step.reward
            discount *= GAMMA
            goes_on = ~(step.terminal | step.timeout)
            if not goes_on.all():
                number = number[goes_on]
                if len(number):
                    simulator.keep(goes_on)
    return float(total.mean())


# -------------------------------------------------------------------------------- systems


class Controller:
    """A policy that is a formula."""

    def __init__(self, formula: Callable[[np.ndarray], np.ndarray]) -> None:
        self.formula = formula

    def act(self, obs: np.ndarray) -> np.ndarray:
        """Return actions (n, 1) in [-1, 1]."""
        return np.clip(self.formula(np.asarray(obs, np.float64)), -1, 1)[:, None]


def system(name: str, rows: int, seed: int) -> Task:
    """Log a small system under mixed noisy controllers, and value controllers of drawn gains."""
    rng = generator(seed, "ope", name)
    start, step, observe, controller = _PENDULUM if name == "pendulum" else _TANK
    length = 100
    logs = []
    for episode in range(rows // length):
        state, acting = start(1, rng), Controller(controller(rng))
        for number in range(length):
            obs = observe(state)
            action = np.clip(acting.act(obs) + 0.3 * rng.normal(size=(1, 1)), -1, 1)
            state, reward, terminal = step(state, action[:, 0])
            logs.append((obs[0], action[0], reward[0], observe(state)[0], terminal[0],
                         number == length - 1 and not terminal[0], episode))  # fmt: skip
            if terminal[0]:
                break
    obs, action, reward, next_obs, terminal, timeout, episode = map(
        np.array, zip(*logs, strict=True)
    )
    judge = puorl.Dataset.from_arrays(
        obs=obs, action=action, reward=reward, next_obs=next_obs, terminal=terminal,
        timeout=timeout, episode=episode,
    )  # fmt: skip
    policies = {f"gains-{i}": Controller(controller(rng)) for i in range(12)}
    first = obs[np.unique(episode, return_index=True)[1]]
    truth = {}
    for text, policy in policies.items():
        state, alive, total = _STATE[name](first), np.ones(len(first)), np.zeros(len(first))
        for number in range(1_000):
            moved, reward, terminal = step(state, policy.act(observe(state))[:, 0])
            total += GAMMA**number * alive * reward
            alive *= ~terminal
            state = np.where(alive[:, None] > 0, moved, state)
        truth[text] = float(total.mean())
    return Task(name, judge, policies, truth)


def _pendulum_start(num: int, rng: np.random.Generator) -> np.ndarray:
    return np.column_stack([rng.uniform(-np.pi, np.pi, num), rng.uniform(-1, 1, num)])


def _pendulum_step(state: np.ndarray, action: np.ndarray) -> tuple[np.ndarray, ...]:
    angle, speed = state.T
    wrapped = (angle + np.pi) % (2 * np.pi) - np.pi
    reward = -(wrapped**2 + 0.1 * speed**2 + 0.001 * action**2) / 10
    speed = np.clip(speed + (15 * np.sin(angle) + 6 * action) * 0.05, -8, 8)
    return np.column_stack([angle + 0.05 * speed, speed]), reward, np.zeros(len(angle), bool)


def _pendulum_observe(state: np.ndarray) -> np.ndarray:
    return np.column_stack([np.cos(state[:, 0]), np.sin(state[:, 0]), state[:, 1]])


def _pendulum_controller(rng: np.random.Generator) -> Callable[[np.ndarray], np.ndarray]:
    pump, hold, damp = rng.uniform(-0.2, 0.6), rng.uniform(-2, 8), rng.uniform(-0.5, 2)

    def act(obs: np.ndarray) -> np.ndarray:
        cos, sin, speed = obs.T
        energy = 0.5 * speed**2 + 15 * (cos - 1)
        return np.where(cos > 0.8, -hold * sin - damp * speed, -pump * energy * np.sign(speed))

    return act


def _tank_start(num: int, rng: np.random.Generator) -> np.ndarray:
    return rng.uniform(0.2, 0.9, (num, 2))


def _tank_step(state: np.ndarray, action: np.ndarray) -> tuple[np.ndarray, ...]:
    upper, lower = state.T
    flow = 0.08 * np.sqrt(np.maximum(upper, 0))
    upper = upper + 0.06 * (action + 1) - flow
    lower = lower + flow - 0.06 * np.sqrt(np.maximum(lower, 0))
    spilt = (upper > 1.2) | (lower > 1.2)
    reward = 1.0 - 4 * (lower - 0.5) ** 2 - 0.05 * action**2 - 5.0 * spilt
    return np.column_stack([np.clip(upper, 0, 1.3), np.clip(lower, 0, 1.3)]), reward, spilt


def _tank_controller(rng: np.random.Generator) -> Callable[[np.ndarray], np.ndarray]:
    level, gain, ahead = rng.uniform(0.2, 0.8), rng.uniform(-1, 6), rng.uniform(-2, 3)
    return lambda obs: gain * (level - obs[:, 1]) + ahead * (level - obs[:, 0]) - 0.2


_PENDULUM = (_pendulum_start, _pendulum_step, _pendulum_observe, _pendulum_controller)
_TANK = (_tank_start, _tank_step, lambda state: state, _tank_controller)
_STATE = {
    "pendulum": lambda obs: np.column_stack([np.arctan2(obs[:, 1], obs[:, 0]), obs[:, 2]]),
    "tank": lambda obs: obs.astype(np.float64),
}
