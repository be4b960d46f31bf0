"""What tests of `puorl filter` share: small data, small settings, a command and its result."""

import hashlib

import numpy as np

import puorl
from puorl.pu.config import FilterConfig, MachineConfig
from puorl.pu.learners import NetworkConfig

LENGTH, NUM_TARGET, NUM_OTHER, NUM_CHECKED = 50, 25, 35, 10
# The learner with the fewest programs to compile: the command is tested here, not the learners.
SMALL = FilterConfig(
    learner="pvu",
    network=NetworkConfig(hidden=(16, 16), batch_size=64),
    residuals=None,
    num_warm_up=12,
    num_main=0,
    machines=MachineConfig(
        hidden=(16, 16),
        latent_sizes=(2,),
        num_seeds=1,
        num_steps=400,
        batch_size=128,
        num_lags=1,
        horizons=(1, 4),
        learning_rate=1e-2,
        latent_learning_rate=3e-2,
    ),
)
NUM_MACHINES, NUM_OURS, NUM_RUNS, RUN_LENGTH = 14, 6, 3, 40


def mixed_rows():
    """Episodes of two domains in turn, one of which drifts; some of the target's are checked."""
    rng = np.random.default_rng(0)
    num_episodes = NUM_TARGET + NUM_OTHER
    is_target = rng.permutation(np.arange(num_episodes) < NUM_TARGET)
    checked = is_target & (np.cumsum(is_target) <= NUM_CHECKED)
    drift = np.where(is_target, 0.0, 0.3)[:, None]
    state = [rng.normal(size=(num_episodes, 3))]
    action = rng.uniform(-1, 1, (num_episodes, LENGTH, 2))
    for push in np.swapaxes(action, 0, 1):
        noise = 0.02 * rng.normal(size=state[0].shape)
        state.append(0.9 * state[-1] + 0.5 * np.pad(push, ((0, 0), (0, 1))) + drift + noise)
    path = np.stack(state, axis=1)
    obs, next_obs = (part.reshape(-1, 3) for part in (path[:, :-1], path[:, 1:]))
    domain, check = (np.repeat(flags, LENGTH) for flags in (is_target, checked))
    n = len(obs)
    return puorl.Dataset.from_arrays(
        obs=obs,
        action=action.reshape(n, 2),
        reward=obs[:, 0],
        next_obs=next_obs,
        terminal=np.zeros(n, bool),
        timeout=(np.arange(n) + 1) % LENGTH == 0,
        episode=np.arange(n) // LENGTH,
        columns={
            "checked": check.astype(np.int64),
            "ours": domain,
            "robot": np.where(domain, "A7", "B1"),
        },
    )


def fleet_rows(strange=False):
    """Machines that answer to commands in one of two ways, driven alike, with runs of their own.

    With ``strange`` three others, of which the last answers in a third way.
    """
    rng = np.random.default_rng(1 if strange else 0)
    gain = np.where(np.arange(NUM_MACHINES) < NUM_OURS, 1.0, 0.5)
    if strange:
        gain = np.array([1.0, 0.5, -4.0])
    gain = gain * rng.uniform(0.97, 1.03, len(gain))
    parts = []
    for machine in range(len(gain)):
        for run in range(NUM_RUNS):
            action, state = rng.uniform(-1, 1, (RUN_LENGTH, 1)), np.zeros((RUN_LENGTH + 1, 2))
            for t in range(RUN_LENGTH):
                push = np.array([gain[machine], 0.3]) * action[t] + 0.03 * rng.normal(size=2)
                state[t + 1] = 0.8 * state[t] + push
            parts.append((state[:-1], action, state[1:], machine, run))
    obs, action, next_obs = (np.concatenate([part[k] for part in parts]) for k in range(3))
    machine, run = (np.repeat([part[k] for part in parts], RUN_LENGTH) for k in (3, 4))
    first = 90 if strange else 1
    return puorl.Dataset.from_arrays(
        obs=obs,
        action=action,
        next_obs=next_obs,
        episode=machine * NUM_RUNS + run,
        time=np.tile(np.arange(NUM_RUNS * RUN_LENGTH, dtype=float), len(gain)),
        columns={"machine": np.array([f"M-{first + k:02d}" for k in machine])},
    )


def words(file, *more, labelled="checked == 1", out="run"):
    return ["filter", file, "--labelled", labelled, "--out", out, *more]


def hashes(folder):
    files = sorted(p for p in folder.rglob("*") if p.is_file())
    return {str(p.relative_to(folder)): hashlib.sha256(p.read_bytes()).hexdigest() for p in files}
