import numpy as np
import pytest

from puorl.core.errors import ConfigError, DataError
from puorl.envs import bodies
from puorl.envs.domains import domain
from puorl.envs.simulator import Simulator

GYMNASIUM = {"halfcheetah": "HalfCheetahEnv", "hopper": "HopperEnv", "walker2d": "Walker2dEnv"}
MODULES = {"halfcheetah": "half_cheetah_v4", "hopper": "hopper_v4", "walker2d": "walker2d_v4"}


@pytest.fixture(autouse=True)
def _own_folder(tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)  # MuJoCo keeps a log of its warnings in the working folder


def gymnasium_env(body: str):
    module = __import__(f"gymnasium.envs.mujoco.{MODULES[body]}", fromlist=["env"])
    return getattr(module, GYMNASIUM[body])()


def roll(simulator: Simulator, num_steps: int, seed: int = 0, rows=slice(None)):
    """Step with actions that depend on the stream's number only; stack what came."""
    rng = np.random.default_rng(seed)
    action = rng.uniform(-1.2, 1.2, (num_steps, 8, simulator.act_dim))
    obs, steps = [simulator.obs], []
    for t in range(num_steps):
        steps.append(simulator.step(action[t][rows]))
        obs.append(simulator.obs)
    return np.array(obs), [np.array(column) for column in zip(*steps, strict=True)]


def same(one, two) -> bool:
    return np.array_equal(one[0], two[0]) and all(
        np.array_equal(a, b) for a, b in zip(one[1], two[1], strict=True)
    )


@pytest.mark.parametrize("warm", [True, False])
@pytest.mark.parametrize("body", bodies.names())
def test_each_step_equals_gymnasium_v4(body, warm):
    env = gymnasium_env(body)
    env.reset(seed=3)
    rng = np.random.default_rng(4)
    simulator = Simulator([domain(body, masses="current")], seed=0, threads=1)
    num_ends = 0
    for _ in range(1000):
        simulator.set_state(env.data.qpos[None].copy(), env.data.qvel[None].copy())
        if not warm:
            env.data.qacc_warmstart[:] = 0  # gymnasium's solver starts cold as well
        action = rng.uniform(-1, 1, simulator.act_dim)
        obs, reward, terminated, _, _ = env.step(action)
        step = simulator.step(action[None])
        tolerance = 1e-12 if warm else 0
        np.testing.assert_allclose(step.next_obs[0], obs, rtol=tolerance, atol=tolerance)
        np.testing.assert_allclose(step.reward[0], reward, rtol=tolerance, atol=tolerance)
        assert step.terminal[0] == terminated
        num_ends += terminated
        # Episodes go on for a while after the end: more kinds of contact are compared.
        if rng.uniform() < 0.01:
            env.reset()
    assert (num_ends > 0) == bodies.body(body).can_end


@pytest.mark.parametrize("name", ["nominal", "joint_noise:all=0.2"])
def test_neither_threads_nor_company_change_a_bit(name):
    # Hopper under random actions falls often: resets are part of what is compared.
    spec, other = domain("hopper", name), domain("hopper", "body_mass")
    alone = roll(Simulator([spec] * 8, seed=5, threads=1), 60)
    assert alone[1][2].any(), "some episodes must end for this test to mean something"
    assert same(alone, roll(Simulator([spec] * 8, seed=5, threads=2), 60))
    mixed = roll(Simulator([spec, other] * 4, seed=5, threads=2), 60)
    assert np.array_equal(mixed[0][:, ::2], alone[0][:, ::2])
    assert not np.array_equal(mixed[0][:, 1::2], alone[0][:, 1::2])
    one = roll(Simulator([spec], seed=5, threads=1, streams=[3]), 60, rows=slice(3, 4))
    assert np.array_equal(one[0][:, 0], alone[0][:, 3])
    assert not same(alone, roll(Simulator([spec] * 8, seed=6, threads=1), 60))


def test_keep_goes_on_as_if_the_others_were_there():
    spec = domain("walker2d", "joint_noise")
    mask = np.array([False, True, True, False, True, False, False, True])
    whole, part = (Simulator([spec] * 8, seed=1, threads=1) for _ in range(2))
    roll(whole, 30)
    roll(part, 30)
    part.keep(mask)
    assert part.num_envs == 4
    expected, found = roll(whole, 40, seed=9), roll(part, 40, seed=9, rows=mask)
    assert np.array_equal(expected[0][:, mask], found[0])
    assert np.array_equal(expected[1][1][:, mask], found[1][1])


def test_ended_environments_are_reset_and_the_true_next_state_is_returned():
    simulator = Simulator([domain("hopper")] * 4, seed=0, threads=1)
    body = bodies.body("hopper")
    rng = np.random.default_rng(0)
    num_ends = 0
    for _ in range(100):
        step = simulator.step(rng.uniform(-1, 1, (4, 3)))
        ended = step.terminal | step.timeout
        assert np.array_equal(step.next_obs[~ended], simulator.obs[~ended])
        for env in np.flatnonzero(ended):
            height, angle = step.next_obs[env, :2]
            assert height <= 0.7 or abs(angle) >= 0.2
            start = np.concatenate([[1.25], np.zeros(10)])
            assert np.abs(simulator.obs[env] - start).max() <= body.reset_noise
        num_ends += ended.sum()
    assert num_ends > 4


def test_time_limit_is_a_timeout_and_no_terminal():
    simulator = Simulator([domain("halfcheetah")], seed=0, threads=1)
    flags = np.array([simulator.step(np.zeros((1, 6)))[2:] for _ in range(1001)])[..., 0]
    assert not flags[:, 0].any()
    assert np.flatnonzero(flags[:, 1]).tolist() == [999]


def test_joint_noise_moves_the_executed_action_only():
    width = 0.3
    nominal, noisy = domain("hopper"), domain("hopper", f"joint_noise:last={width}")
    simulator = Simulator([nominal, noisy], seed=0, threads=1, streams=[4, 4])
    action = np.full((2, 3), 0.5)
    step = simulator.step(action)
    noise = simulator._noise
    assert noise is not None
    assert not noise[0].any()
    assert not noise[1, :, :2].any()
    assert 0.9 * width < np.abs(noise[1, :, 2]).max() <= width
    # The nominal body, given the action that was executed, goes where the noisy one went.
    executed = action + np.array([noise[1, 0], noise[1, 0]])
    twin = Simulator([nominal, nominal], seed=0, threads=1, streams=[4, 4])
    moved = twin.step(executed)
    np.testing.assert_array_equal(moved.next_obs[1], step.next_obs[1])
    assert not np.array_equal(step.next_obs[0], step.next_obs[1])
    # Its cost is that of the intended action.
    cost = [1e-3 * np.square(a).sum() for a in (action[1], executed[1])]
    assert step.reward[1] + cost[0] == pytest.approx(moved.reward[1] + cost[1], abs=1e-12)


def test_reward_shift_keeps_the_dynamics():
    specs = [domain("walker2d"), domain("walker2d", "reward")]
    simulator = Simulator(specs, seed=0, threads=1, streams=[0, 0])
    action = np.random.default_rng(0).uniform(-1, 1, (10, 1, 6)).repeat(2, axis=1)
    for t in range(10):
        step = simulator.step(action[t])
        assert np.array_equal(step.next_obs[0], step.next_obs[1])
        rest = 1.0 - 1e-3 * np.square(action[t, 0]).sum()
        assert step.reward[0] - rest == pytest.approx(-(step.reward[1] - rest), abs=1e-12)


@pytest.mark.parametrize("body", bodies.names())
def test_start_states_are_spread_as_the_body_says(body):
    simulator = Simulator([domain(body)] * 400, seed=0, threads=1)
    robot = bodies.body(body)
    noise = simulator.qpos - simulator.models[0].qpos0
    assert np.abs(noise).max() <= robot.reset_noise
    # A uniform variable's standard deviation is its half-width / sqrt(3).
    assert noise.std() == pytest.approx(robot.reset_noise / 3**0.5, rel=0.05)
    shape = 1.0 if robot.reset_velocity == "normal" else 1 / 3**0.5
    assert simulator.qvel.std() == pytest.approx(robot.reset_noise * shape, rel=0.05)


def test_actions_are_clipped_and_checked():
    twins = Simulator([domain("hopper")] * 2, seed=0, threads=1, streams=[0, 0])
    step = twins.step(np.array([[1.0, -1.0, 1.0], [7.0, -1.5, 1.1]]))
    assert np.array_equal(step.next_obs[0], step.next_obs[1])
    assert step.reward[0] == step.reward[1]
    with pytest.raises(DataError, match=r"expected shape \(2, 3\), got \(3, 2\)"):
        twins.step(np.zeros((3, 2)))
    with pytest.raises(DataError, match="NaN .*environment 1"):
        twins.step(np.array([[0.0, 0.0, 0.0], [0.0, np.nan, 0.0]]))


def test_explosions_do_not_pass_unnoticed():
    simulator = Simulator([domain("hopper"), domain("hopper", "body_mass")], seed=0, threads=1)
    qpos, qvel = simulator.qpos, simulator.qvel
    qvel[1] = 1e11
    simulator.set_state(qpos, qvel)
    with pytest.raises(DataError, match="hopper/body_mass became unstable in environment 1"):
        simulator.step(np.zeros((2, 3)))


def test_wrong_settings_are_refused():
    with pytest.raises(ConfigError, match="hopper, walker2d; use one simulator per body"):
        Simulator([domain("hopper"), domain("walker2d")], seed=0)
    with pytest.raises(ConfigError, match="got none"):
        Simulator([], seed=0)
    with pytest.raises(ConfigError, match="threads: expected 1 or more"):
        Simulator([domain("hopper")], seed=0, threads=0)
    with pytest.raises(ConfigError, match="streams: expected one for each of 1 domains, got 2"):
        Simulator([domain("hopper")], seed=0, streams=[0, 1])


def random_returns(body: str, episodes: int) -> np.ndarray:
    simulator = Simulator([domain(body)] * episodes, seed=0)
    rng = np.random.default_rng(1)
    total, running = np.zeros(episodes), np.ones(episodes, bool)
    while running.any():
        action = rng.uniform(-1, 1, (simulator.num_envs, simulator.act_dim))
        step = simulator.step(action)
        rows = np.flatnonzero(running)
        total[rows] += step.reward
        goes_on = ~(step.terminal | step.timeout)
        running[rows[~goes_on]] = False
        simulator.keep(goes_on)
    return total


@pytest.mark.parametrize(("body", "known", "episodes"), [("hopper", 18, 100), ("walker2d", 2, 100)])
def test_random_returns_agree_with_the_known(body, known, episodes):
    returns = random_returns(body, episodes)
    error = returns.std() / episodes**0.5
    assert returns.mean() == pytest.approx(known, abs=3 * error + 1)


@pytest.mark.slow
@pytest.mark.parametrize(
    ("body", "known"), [("hopper", 18), ("walker2d", 2), ("halfcheetah", -280)]
)
def test_random_returns_of_many_episodes(body, known):
    returns = random_returns(body, 200)
    error = returns.std() / 200**0.5
    assert returns.mean() == pytest.approx(known, abs=3 * error + 0.01 * abs(known))
