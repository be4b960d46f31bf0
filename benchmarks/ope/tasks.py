"""Tasks with policies of known value: three bodies and two games to judge by, three to tune on.

A task has a log that judges, policies that it was not made for, and the true discounted return of
every policy from the log's own starts. Policies of bodies: those shipped with puorl (random, rungs
of a training, medium, expert, and those of other domains, without noise), and what puorl and d3rlpy
trained on other rows than those that judge. Policies of games, whose actions are codes: controllers
with drawn gains, and trained ones, all greedy. Policies of the small systems are controllers.

A body's log is half snapshots of a training (medium-replay) and half medium-expert, so that it
shows at least something of what every policy does.
"""

import importlib
import json
import sys
from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np

import puorl
from puorl.core.hashing import generator
from puorl.envs import behaviour
from puorl.envs.domains import parse_domain
from puorl.envs.simulator import Simulator

GAMMA = 0.99
BODIES = ("hopper", "halfcheetah", "walker2d")
GAMES = {"cartpole": "CartPole-v1", "lunarlander": "LunarLander-v3", "acrobot": "Acrobot-v1"}
JUDGED = (*BODIES, "cartpole", "lunarlander")
TUNED = ("pendulum", "tank", "acrobot")
TRAINED = {
    "body": (("bc", 300), ("td3_bc", 1_000), ("td3_bc", 6_000), ("d3rlpy", 3_000)),
    "game": (("bc", 500), ("d3rlpy", 1_000), ("cql", 1_000), ("iql", 3_000), ("bcq", 3_000),
             ("cql", 4_000), ("d3rlpy", 4_000)),
}  # fmt: skip
"""Learners and updates; d3rlpy's are TD3+BC, and discrete CQL."""
SHIPPED = (
    "nominal/ladder-0", "nominal/ladder-1", "nominal/ladder-3", "nominal/ladder-5",
    "nominal/medium", "nominal/expert", "body_mass/medium", "joint_noise/expert",
)  # fmt: skip
TRAIN_ROWS = 40_000
NUM_CONTROLLERS = 9
"""Of a game. Trained policies of CartPole are all worth the same."""
_ENDLESS = 1e-5
"""Discount at which a true return is complete."""


@dataclass(frozen=True)
class Task:
    """A log that judges, policies, and what they are worth from its starts."""

    name: str
    judge: puorl.Dataset
    policies: dict[str, Any]
    truth: dict[str, float]
    """Mean discounted return from the starts of ``judge``."""


def make(name: str, *, rows: int, seed: int, folder: Path | None = None) -> Task:
    """Build a task; the same arguments give the same task.

    Args:
        name: In `JUDGED` or `TUNED`.
        rows: Of the log that judges.
        seed: Decides all randomness.
        folder: Where a task that takes long is kept, and read again.
    """
    if name not in JUDGED and name not in GAMES:
        return system(name, rows, seed)
    own = None if folder is None else folder / f"{name}-{rows}-{seed}"
    if own is not None and (own / "truth.json").exists():
        judge = puorl.load(own / "judge.npz")
        truth = json.loads((own / "truth.json").read_text(encoding="utf-8"))
        return Task(name, judge, _policies(name, seed, judge, own), truth)
    if own is not None:
        own.mkdir(parents=True, exist_ok=True)
    judge = log(name, rows, seed)
    policies = _policies(name, seed, judge, own)
    truth = {}
    for text, policy in policies.items():
        if name in BODIES:
            starts = judge.obs[np.unique(judge.episode, return_index=True)[1]]
            truth[text] = in_simulator(policy, parse_domain(name), starts)
        else:
            truth[text] = in_game(policy, GAMES[name], np.unique(judge.episode).tolist())
        print(name, text, f"{truth[text]:.4g}", flush=True)
    if own is not None:
        puorl.save(judge, own / "judge.npz", force=True)
        (own / "truth.json").write_text(json.dumps(truth), encoding="utf-8")
    return Task(name, judge, policies, truth)


def log(name: str, rows: int, seed: int) -> puorl.Dataset:
    """Make the log that judges a task."""
    if name in BODIES:
        return _joined(
            puorl.collect(name, quality="medium-replay", rows=rows // 2, seed=seed),
            puorl.collect(name, quality="medium-expert", rows=rows - rows // 2, seed=seed),
        )
    if name in GAMES:
        return _game_log(name, rows, first_seed=10_000 * seed)
    return system(name, rows, seed).judge


def _joined(*logs: puorl.Dataset) -> puorl.Dataset:
    names = ("obs", "action", "reward", "next_obs", "terminal", "timeout")
    arrays: dict[str, Any] = {n: np.concatenate([getattr(x, n) for x in logs]) for n in names}
    episodes, first = [], 0
    for log in logs:
        number = np.unique(log.episode, return_inverse=True)[1]
        episodes.append(first + number)
        first += number.max() + 1
    # Rows that the size of a log cuts off have no flag, and are no end of the task.
    return puorl.Dataset.from_arrays(**arrays, episode=np.concatenate(episodes))


def _policies(name: str, seed: int, judge: puorl.Dataset, own: Path | None) -> dict[str, Any]:
    made: dict[str, Any] = {}
    if name in BODIES:
        made["random"] = behaviour.behaviour(name, level="random")
        for each in behaviour.shipped():
            if each.body == name and each.version == 1 and f"{each.domain}/{each.level}" in SHIPPED:
                policy = behaviour.behaviour(name, each.domain, each.level, version=1)
                made[f"{each.domain}/{each.level}"] = policy
    else:
        rng = generator(seed, "ope", name)
        for number in range(NUM_CONTROLLERS):
            made[f"gains-{number}"] = Coded(_CONTROLLERS[name](rng), len(judge.action_codes or ()))
    train = None
    for learner, steps in TRAINED["body" if name in BODIES else "game"]:
        if learner == "d3rlpy" and name not in JUDGED:
            continue
        suffix = "npz" if learner == "d3rlpy" else "safetensors"
        path = None if own is None else own / f"{learner}-{steps}.{suffix}"
        if path is None or not path.exists():
            if train is None:
                train = _train_log(name, seed)
            policy = _trained(learner, steps, train, seed, discrete=name in GAMES)
            if path is not None:
                policy.save(path)
        else:
            policy = Network.load(path) if learner == "d3rlpy" else puorl.Policy.load(path)
        made[f"{learner}/{steps}"] = Greedy(policy) if name in GAMES else policy
    return made


def _train_log(name: str, seed: int) -> puorl.Dataset:
    if name in BODIES:
        return puorl.collect(name, quality="medium-expert", rows=TRAIN_ROWS, seed=seed + 1)
    return _game_log(name, TRAIN_ROWS // 2, first_seed=10_000 * seed + 5_000)


def _trained(learner: str, steps: int, train: puorl.Dataset, seed: int, *, discrete: bool) -> Any:
    if learner != "d3rlpy":
        return puorl.train(learner, train, steps=steps, seed=seed, hidden=(64, 64), batch_size=128)
    import d3rlpy
    import torch

    d3rlpy.seed(seed)
    torch.set_num_threads(1)
    centre, scale = train.obs.mean(axis=0), train.obs.std(axis=0) + 1e-6
    last = np.append(train.episode[1:] != train.episode[:-1], True)
    data = d3rlpy.dataset.MDPDataset(
        ((train.obs - centre) / scale).astype(np.float32),
        train.action_index[:, None] if discrete else train.action.astype(np.float32),
        train.reward.astype(np.float32),
        train.terminal.astype(np.float32),
        (last & ~train.terminal).astype(np.float32),
    )
    encoder = d3rlpy.models.VectorEncoderFactory([64, 64])
    if discrete:
        config: Any = d3rlpy.algos.DiscreteCQLConfig(
            batch_size=128, learning_rate=3e-4, target_update_interval=200, encoder_factory=encoder
        )
    else:
        config = d3rlpy.algos.TD3PlusBCConfig(
            batch_size=128, actor_encoder_factory=encoder, critic_encoder_factory=encoder
        )
    algo = config.create(device="cpu:0")
    algo.fit(data, n_steps=steps, n_steps_per_epoch=steps, show_progress=False,
             logger_adapter=d3rlpy.logging.NoopAdapterFactory())  # fmt: skip
    modules = algo.impl.modules
    network = modules.q_funcs[0] if discrete else modules.policy
    layers = [m for m in network.modules() if isinstance(m, torch.nn.Linear)]
    weights = [(m.weight.detach().numpy().T, m.bias.detach().numpy()) for m in layers]
    (w, b), *others = weights
    made = Network([(w / scale[:, None], b - (centre / scale) @ w), *others])
    states = train.obs[:100].astype(np.float32)
    said = algo.predict(((states - centre) / scale).astype(np.float32))
    found = made.probabilities(states).argmax(axis=1) if discrete else made.act(states)
    assert np.mean(np.abs(found - said) > 1e-3) < 0.05, "weights were read wrongly"
    return made


class Network:
    """A policy that another library trained: a perceptron, whose outputs are actions or values."""

    def __init__(self, layers: list[tuple[np.ndarray, np.ndarray]]) -> None:
        self.layers = [(np.asarray(w, np.float32), np.asarray(b, np.float32)) for w, b in layers]

    def _outputs(self, obs: np.ndarray) -> np.ndarray:
        x = np.asarray(obs, np.float32)
        for w, b in self.layers[:-1]:
            x = np.maximum(x @ w + b, 0)
        return x @ self.layers[-1][0] + self.layers[-1][1]

    def act(self, obs: np.ndarray) -> np.ndarray:
        """Return actions (n, m) in [-1, 1]."""
        return np.tanh(self._outputs(obs))

    def probabilities(self, obs: np.ndarray) -> np.ndarray:
        """Return values (n, A) of all codes: `Greedy` asks only which is largest."""
        return self._outputs(obs)

    def save(self, path: Path) -> None:
        """Write the weights."""
        np.savez(path, *[a for layer in self.layers for a in layer])

    @classmethod
    def load(cls, path: Path) -> "Network":
        """Read what `save` wrote."""
        with np.load(path) as held:
            arrays = [held[f"arr_{i}"] for i in range(len(held.files))]
        return cls(list(zip(arrays[::2], arrays[1::2], strict=True)))


class Greedy:
    """A policy over codes that always takes the likeliest."""

    def __init__(self, policy: Any) -> None:
        self.policy = policy

    def probabilities(self, obs: np.ndarray) -> np.ndarray:
        """Return a one-hot row for each state."""
        given = np.asarray(self.policy.probabilities(obs))
        return np.eye(given.shape[1], dtype=np.float32)[given.argmax(axis=1)]


class Coded:
    """A policy over codes that is a formula."""

    def __init__(self, formula: Callable[[np.ndarray], np.ndarray], num_codes: int) -> None:
        self.formula, self.num_codes = formula, num_codes

    def probabilities(self, obs: np.ndarray) -> np.ndarray:
        """Return a one-hot row for each state."""
        return np.eye(self.num_codes, dtype=np.float32)[self.formula(np.asarray(obs, float))]


# --------------------------------------------------------------------------- true returns


def in_simulator(policy: Any, spec: Any, starts: np.ndarray) -> float:
    """Mean discounted return of a policy from given observations of starts."""
    with Simulator([spec] * len(starts), seed=0) as simulator:
        nq, nv = simulator.qpos.shape[1], simulator.qvel.shape[1]
        # The position along the track is not observed, and nothing depends on it.
        qpos = np.column_stack([np.zeros(len(starts)), starts[:, : nq - 1]])
        simulator.set_state(qpos.astype(np.float64), starts[:, nq - 1 : nq - 1 + nv].astype(float))
        total, discount = np.zeros(len(starts)), 1.0
        number = np.arange(len(starts))
        while len(number) and discount > _ENDLESS:
            step = simulator.step(np.asarray(policy.act(simulator.obs.astype(np.float32)), float))
            total[number] += discount * step.reward
            discount *= GAMMA
            goes_on = ~(step.terminal | step.timeout)
            if not goes_on.all():
                number = number[goes_on]
                if len(number):
                    simulator.keep(goes_on)
    return float(total.mean())


def in_game(policy: Any, env: str, seeds: list[int]) -> float:
    """Mean discounted return of a greedy policy from the starts of given seeds, without limits."""
    import gymnasium

    learners().without_screen()
    games = [gymnasium.make(env).unwrapped for _ in seeds]
    obs = [game.reset(seed=seed)[0] for game, seed in zip(games, seeds, strict=True)]
    total, discount = 0.0, 1.0
    while games and discount > _ENDLESS:
        codes = policy.probabilities(np.array(obs, np.float32)).argmax(axis=1)
        steps = [game.step(int(code)) for game, code in zip(games, codes, strict=True)]
        total += discount * sum(float(step[1]) for step in steps)
        discount *= GAMMA
        games = [game for game, step in zip(games, steps, strict=True) if not step[2]]
        obs = [step[0] for step in steps if not step[2]]
    return total / len(seeds)


# ---------------------------------------------------------------------------------- games


def _game_log(name: str, rows: int, first_seed: int) -> puorl.Dataset:
    """Log controllers with fractions of random actions; an episode's number is its seed."""
    return learners().make_log(GAMES[name], rows, first_seed=first_seed)


def learners() -> Any:
    """Return the module of the benchmark of discrete learners."""
    sys.path.insert(0, str(Path(__file__).parents[1] / "learners"))
    return importlib.import_module("discrete")


def _cartpole_controller(rng: np.random.Generator) -> Callable[[np.ndarray], np.ndarray]:
    gains = rng.normal([0.05, 0.1, 1.0, 0.3], [0.3, 0.3, 0.7, 0.3])
    return lambda obs: (obs @ gains > 0).astype(int)


def _acrobot_controller(rng: np.random.Generator) -> Callable[[np.ndarray], np.ndarray]:
    gains = rng.normal([0.0, 0.0, 0.0, 0.0, 0.3, 0.7], [0.3, 0.5, 0.3, 0.5, 0.6, 0.6])
    return lambda obs: np.clip(np.round(1 + 2 * obs @ gains), 0, 2).astype(int)


def _lander_controller(rng: np.random.Generator) -> Callable[[np.ndarray], np.ndarray]:
    tilt, turn, spin, height, sink = rng.uniform([0.1, 0.1, 0.3, 0.1, 0.1], [1.2, 1.0, 1.5, 1, 1])

    def act(obs: np.ndarray) -> np.ndarray:
        x, y, vx, vy, angle, omega = obs[:, :6].T
        landed = obs[:, 6:].any(axis=1)
        aim = np.clip(tilt * x + vx, -0.4, 0.4)
        turning = np.where(landed, 0.0, turn * (aim - angle) - spin * omega)
        lifting = np.where(landed, -sink * vy, height * (0.5 * np.abs(x) - y) - sink * vy)
        sideways = np.where(turning < -0.05, 3, np.where(turning > 0.05, 1, 0))
        return np.where((lifting > np.abs(turning)) & (lifting > 0.05), 2, sideways)

    return act


_CONTROLLERS = {
    "cartpole": _cartpole_controller,
    "acrobot": _acrobot_controller,
    "lunarlander": _lander_controller,
}


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
    start, step, observe, controller = PENDULUM if name == "pendulum" else TANK
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
    truth = {text: in_system(name, policy, first) for text, policy in policies.items()}
    return Task(name, judge, policies, truth)


def in_system(name: str, policy: Any, starts: np.ndarray) -> float:
    """Mean discounted return of a policy from given observations of starts."""
    _, step, observe, _ = PENDULUM if name == "pendulum" else TANK
    state, alive, total = _STATE[name](starts), np.ones(len(starts)), np.zeros(len(starts))
    for number in range(1_000):
        action = np.asarray(policy.act(observe(state)), np.float64)[:, 0]
        moved, reward, terminal = step(state, np.clip(action, -1, 1))
        total += GAMMA**number * alive * reward
        alive *= ~terminal
        state = np.where(alive[:, None] > 0, moved, state)
    return float(total.mean())


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


PENDULUM = (_pendulum_start, _pendulum_step, _pendulum_observe, _pendulum_controller)
TANK = (_tank_start, _tank_step, lambda state: state, _tank_controller)
_STATE = {
    "pendulum": lambda obs: np.column_stack([np.arctan2(obs[:, 1], obs[:, 0]), obs[:, 2]]),
    "tank": lambda obs: obs.astype(np.float64),
}
