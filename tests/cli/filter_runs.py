"""What tests of `puorl filter` share: small data, small settings, a command and its result."""

import hashlib

import numpy as np

import puorl
from puorl.pu.classifier import NetworkConfig
from puorl.pu.config import FilterConfig

LENGTH, NUM_TARGET, NUM_OTHER, NUM_CHECKED = 50, 25, 35, 10
# The learner with the fewest programs to compile: the command is tested here, not the learners.
SMALL = FilterConfig(
    learner="pvu",
    network=NetworkConfig(hidden=(16, 16), batch_size=64),
    residuals=None,
    num_warm_up=12,
    num_main=0,
)


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


def words(file, *more, labelled="checked == 1", out="run"):
    return ["filter", file, "--labelled", labelled, "--out", out, *more]


def hashes(folder):
    files = sorted(p for p in folder.rglob("*") if p.is_file())
    return {str(p.relative_to(folder)): hashlib.sha256(p.read_bytes()).hexdigest() for p in files}
