"""A small Markov decision process with its exact values, computed without the code under test."""

import itertools

import numpy as np

from puorl.data.dataset import Dataset

STATES, ACTIONS = 3, 2
MOVE = np.array(
    [
        [[0.7, 0.2, 0.1], [0.1, 0.8, 0.1]],
        [[0.3, 0.4, 0.3], [0.0, 0.1, 0.9]],
        [[0.5, 0.3, 0.2], [0.2, 0.2, 0.6]],
    ]
)
"""(s, a, s') probabilities of the next state."""
REWARD = np.array([[1.0, 0.0], [-0.5, 2.0], [0.3, 0.7]])
START = np.array([0.5, 0.3, 0.2])
LOGGED = np.array([[0.6, 0.4], [0.5, 0.5], [0.3, 0.7]])
WANTED = np.array([[0.2, 0.8], [0.9, 0.1], [0.5, 0.5]])


class TablePolicy:
    """A policy that has probabilities of codes, for states that are one-hot."""

    def __init__(self, table):
        self.table = np.asarray(table)

    def probabilities(self, obs):
        return np.asarray(obs) @ self.table

    def act(self, obs):
        return self.probabilities(obs).argmax(axis=1)


def value_after(policy, steps, gamma):
    """(s,) Exact value of ``steps`` steps from every state."""
    value = np.zeros(STATES)
    for _ in range(steps):
        value = (policy * (REWARD + gamma * MOVE @ value)).sum(axis=1)
    return value


def all_paths(steps):
    """Every path of that many steps, with its probability under the logged policy."""
    states, actions, chance = [], [], []
    for path in itertools.product(*[range(STATES), range(ACTIONS)] * steps):
        s, a = np.array(path[::2]), np.array(path[1::2])
        p = START[s[0]] * LOGGED[s, a].prod() * MOVE[s[:-1], a[:-1], s[1:]].prod()
        if p > 0:
            states.append(s)
            actions.append(a)
            chance.append(p)
    return np.array(states), np.array(actions), np.array(chance)


def log_rows(num_episodes, steps, seed, *, ends=0.0):
    """Draw episodes of the logged policy; a task ends after a step with probability ``ends``."""
    rng = np.random.default_rng(seed)
    rows = []
    for episode in range(num_episodes):
        s = rng.choice(STATES, p=START)
        for step in range(steps):
            a = rng.choice(ACTIONS, p=LOGGED[s])
            following = rng.choice(STATES, p=MOVE[s, a])
            terminal = rng.random() < ends
            rows.append((s, a, following, terminal, step == steps - 1, episode))
            if terminal:
                break
            s = following
    s, a, following, terminal, timeout, episode = map(np.array, zip(*rows, strict=True))
    return Dataset.from_arrays(
        obs=np.eye(STATES)[s],
        action=np.eye(ACTIONS)[a],
        reward=REWARD[s, a],
        next_obs=np.eye(STATES)[following],
        terminal=terminal.astype(bool),
        timeout=timeout & ~terminal.astype(bool),
        episode=episode,
    )


def empirical_value(data, policy, gamma):
    """Value from the logged starts in the process that has exactly the logged frequencies."""
    s, a = data.obs.argmax(axis=1), data.action.argmax(axis=1)
    following = data.next_obs.argmax(axis=1)
    count, total = np.zeros((STATES, ACTIONS)), np.zeros((STATES, ACTIONS))
    move = np.zeros((STATES, ACTIONS, STATES))
    np.add.at(count, (s, a), 1)
    np.add.at(total, (s, a), data.reward)
    np.add.at(move, (s, a, following), ~data.terminal)
    mean, chance = total / count, move / count[..., None]
    step = np.einsum("sa,sat->st", policy, chance)
    value = np.linalg.solve(np.eye(STATES) - gamma * step, (policy * mean).sum(axis=1))
    first = np.unique(data.episode, return_index=True)[1]
    return float(value[s[first]].mean())
