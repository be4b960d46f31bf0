import os
import subprocess
import sys

import gymnasium as gym
import numpy as np
import pytest
from gymnasium.utils.env_checker import check_env

from puorl.core.errors import ConfigError, DataError
from puorl.envs import bodies, domains
from puorl.envs.domains import domain
from puorl.envs.gymnasium_envs import DomainEnv, env_id, make_env
from puorl.envs.simulator import Simulator


@pytest.mark.parametrize("name", domains.names())
@pytest.mark.parametrize("body", bodies.names())
def test_registered_environments_pass_the_checker(body, name):
    # Warnings are errors here, so the checker's advice counts too. Pictures need a display driver.
    env = gym.make(env_id(body, name))
    assert isinstance(env.unwrapped, DomainEnv)
    assert env.unwrapped.domain == domain(body, name)
    assert env.spec is not None
    assert env.spec.max_episode_steps == 1000
    check_env(env.unwrapped, skip_render_check=True)
    env.close()


def test_ids_read_as_documented():
    assert env_id("hopper", "body_mass") == "puorl/Hopper-body_mass-v0"
    env = gym.make("puorl.envs.gymnasium_envs:puorl/HalfCheetah-joint_noise-v0")
    assert env.action_space.shape == (6,)
    env.close()


def test_environment_is_a_simulator_of_one():
    env = make_env("walker2d/joint_noise:all")
    obs, _ = env.reset(seed=7)
    seed = int(np.random.Generator(np.random.PCG64(7)).integers(2**63))
    simulator = Simulator([domain("walker2d", "joint_noise:all")], seed=seed, threads=1)
    assert np.array_equal(obs, simulator.obs[0])
    ended = False
    while not ended:
        action = env.action_space.sample()
        obs, reward, terminated, truncated, _ = env.step(action)
        step = simulator.step(action[None])
        assert np.array_equal(obs, step.next_obs[0])
        assert (reward, terminated) == (step.reward[0], step.terminal[0])
        ended = terminated or truncated
    with pytest.raises(DataError, match=r"call reset\(\) first"):
        env.step(env.action_space.sample())
    env.close()


def test_unseeded_environments_differ():
    first, second = make_env("hopper"), make_env("hopper")
    assert not np.array_equal(first.reset()[0], second.reset()[0])


def test_wrong_choices():
    with pytest.raises(ConfigError, match="rgb_array or none, got 'human'"):
        make_env("hopper", render_mode="human")
    with pytest.raises(ConfigError, match="body_mass"):
        make_env("hopper", "wind")
    assert make_env("hopper").render() is None


@pytest.mark.slow
def test_pictures():
    # How to draw without a screen is chosen when MuJoCo is imported: in a process of its own.
    code = """
from puorl.envs.gymnasium_envs import make_env
env = make_env("hopper", "gravity=0.5", render_mode="rgb_array")
env.reset(seed=0)
picture = env.render()
assert picture.shape == (480, 480, 3) and picture.std() > 1
env.close()
env.close()
"""
    run = subprocess.run(
        [sys.executable, "-c", code],
        env={**os.environ, "MUJOCO_GL": "egl"},
        capture_output=True,
        text=True,
        check=False,
    )
    assert run.returncode == 0, run.stderr
