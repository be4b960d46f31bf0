import importlib
import sys
from pathlib import Path
from types import SimpleNamespace

import jax
import numpy as np
import pytest
import sac
import sac_training

from puorl.core.errors import ConfigError, DataError

BENCHMARK = Path(__file__).parents[2] / "benchmarks" / "behaviour"


class PointMass:
    """Points on a line, pushed by the action; the reward is highest at 0. Nothing is terminal."""

    def __init__(self, num_envs, *, limit=25, seed=0):
        self._rng = np.random.default_rng(seed)
        self._limit = limit
        self._elapsed = np.zeros(num_envs, int)
        self.obs = self._rng.uniform(-2, 2, (num_envs, 1))
        self.seen = []

    def step(self, action):
        self.seen.append(action)
        next_obs = np.clip(self.obs + 0.4 * action, -3, 3)
        self._elapsed += 1
        timeout = self._elapsed >= self._limit
        self.obs = np.where(timeout[:, None], self._rng.uniform(-2, 2, next_obs.shape), next_obs)
        self._elapsed[timeout] = 0
        reward = -np.square(next_obs[:, 0])
        return SimpleNamespace(
            next_obs=next_obs, reward=reward, terminal=np.zeros_like(timeout), timeout=timeout
        )


CONFIG = sac.SACConfig(
    hidden=(16, 16), learning_rate=3e-3, gamma=0.9, tau=0.02, batch_size=32, num_envs=4,
    warm_up_steps=400, capacity=4000, initial_alpha=0.2,
)  # fmt: skip


def init(num_lanes=2, config=CONFIG):
    mask = np.ones((num_lanes, 1), np.float32)
    return sac.init(config, range(num_lanes), obs_dim=1, action_mask=mask)


def test_a_point_mass_is_brought_to_rest():
    env = PointMass(8)
    points = sac_training.train(init(), env, CONFIG, num_iterations=400, point_every=100)
    returns = []
    num_traces = sac_training._learn._cache_size()
    for i, point in enumerate(points):
        returns.append([point.episodes.returns[point.episodes.lane == k].mean() for k in range(2)])
        assert (point.metrics == {}) == (i == 0)
    assert sac_training._learn._cache_size() <= num_traces + 1
    # Warm-up is the first point. The best policy pays about 1.8 for the way to 0, and the noise
    # that the target entropy asks for costs a little all the time.
    before, after = np.array(returns[0]), np.array(returns[-1])
    assert (before < -20).all()
    assert (after > -7).all()


def test_a_time_limit_is_never_a_terminal_and_next_obs_is_the_true_one():
    env = PointMass(8, limit=3)
    *_, point = sac_training.train(init(), env, CONFIG, num_iterations=20, point_every=20)
    rows = np.asarray(point.state.replay.row)[:, : 20 * 4].reshape(2 * 20 * 4, 5)
    obs, action, reward, next_obs, terminal = rows.T
    assert not terminal.any()
    np.testing.assert_allclose(next_obs, np.clip(obs + 0.4 * action, -3, 3), atol=1e-6)
    np.testing.assert_allclose(reward, -np.square(next_obs), atol=1e-5)
    assert (point.episodes.length == 3).all()
    assert len(point.episodes.length) == 8 * (20 // 3)


def test_episodes_are_counted_across_points():
    env = PointMass(8, limit=15)
    state = init()
    ended = [
        point.episodes
        for point in sac_training.train(state, env, CONFIG, num_iterations=40, point_every=10)
    ]
    assert [len(one.returns) for one in ended] == [0, 8, 8, 0]
    assert all((one.length == 15).all() for one in ended)
    np.testing.assert_array_equal(ended[1].lane, np.repeat([0, 1], 4))


def test_noise_is_fresh_at_every_step():
    env = PointMass(8)
    for _ in sac_training.train(init(), env, CONFIG, num_iterations=150, point_every=50):
        pass
    seen = np.array(env.seen)
    assert np.unique(seen.reshape(150, -1), axis=0).shape == (150, 8)


def test_points_must_divide_the_iterations():
    points = sac_training.train(init(), PointMass(8), CONFIG, num_iterations=10, point_every=4)
    with pytest.raises(ConfigError, match="multiple of point_every=4, got 10"):
        next(points)


@pytest.fixture
def script(monkeypatch):
    """The training script, imported as it imports its neighbours."""
    pytest.importorskip("mujoco")
    monkeypatch.syspath_prepend(str(BENCHMARK))
    monkeypatch.setenv("OPENBLAS_NUM_THREADS", "1")
    yield importlib.import_module("train")
    for name in ("train", "choose", "checkpoint", "fleet"):
        sys.modules.pop(name, None)


def make_run(script, work, **changes):
    config = sac.SACConfig(hidden=(16,), batch_size=8, num_envs=2, warm_up_steps=40, capacity=120)
    settings = dict(
        work=work, bodies=("hopper", "walker2d"), domains=("joint_noise",),
        num_seeds=1, num_steps=240, snapshot_every=40, segment_every=80, config=config,
    )  # fmt: skip
    return script.Run(**(settings | changes))


def test_a_resumed_run_equals_an_unbroken_one(script, tmp_path, capsys):
    whole = script.train(make_run(script, tmp_path / "whole"))
    # No minutes: it stops after its first segment.
    script.train(make_run(script, tmp_path / "parts", minutes=0))
    script.train(make_run(script, tmp_path / "parts", minutes=0, resume=True))
    parts = script.train(make_run(script, tmp_path / "parts", resume=True))
    assert int(parts.replay.num_inserts) == 120
    leaves = zip(jax.tree.leaves(whole), jax.tree.leaves(parts), strict=True)
    for one, other in leaves:
        if jax.dtypes.issubdtype(one.dtype, jax.dtypes.prng_key):
            one, other = jax.random.key_data(one), jax.random.key_data(other)
        assert np.asarray(one).tobytes() == np.asarray(other).tobytes()
    for folder in ("whole", "parts"):
        found = sorted(path.name for path in (tmp_path / folder).glob("0*.safetensors"))
        assert found == [f"{steps:09d}.safetensors" for steps in range(0, 241, 40)]
    assert "steps 240" in capsys.readouterr().out
    with pytest.raises(DataError, match="run.json: already exists"):
        script.train(make_run(script, tmp_path / "parts"))
    with pytest.raises(ConfigError, match="expected the settings of the run"):
        script.train(make_run(script, tmp_path / "parts", resume=True, seed=1))


def test_a_chosen_policy_acts_as_its_lane_did(script, tmp_path, capsys):
    state = script.train(make_run(script, tmp_path, num_steps=80))
    choose = sys.modules["choose"]
    checkpoint = sys.modules["checkpoint"]
    snapshot = checkpoint.list_snapshots(tmp_path)[-1]
    agent = choose.Agent(0, "nominal", 0, snapshot.num_steps, snapshot.path)
    actor = choose.load_actor("hopper", agent)
    assert (actor.obs_dim, actor.act_dim) == (11, 3)
    rng = np.random.default_rng(0)
    obs = np.zeros((9, 17), np.float32)
    obs[:, :11] = rng.standard_normal((9, 11))
    noise = rng.standard_normal((9, 6)).astype(np.float32)
    one = jax.tree.map(lambda leaf: leaf[0], state.lane.params.actor)
    expected, _ = sac.sample_action(one, obs, noise, state.lane.action_mask[0])
    # float16 keeps three digits.
    np.testing.assert_allclose(
        actor.act_with_noise(obs[:, :11], noise[:, :3]), expected[:, :3], atol=5e-3
    )


def test_cut_leaves_out_padding_only(script):
    choose = importlib.import_module("choose")
    rng = np.random.default_rng(0)
    sizes = [(17, 32), (32, 12)]
    layers = [(rng.standard_normal(size) / 6, rng.standard_normal(size[1])) for size in sizes]
    padded, cut = choose.SquashedGaussianActor(tuple(layers)), choose.cut(layers, 11, 3)
    assert (cut.obs_dim, cut.act_dim) == (11, 3)
    obs, noise = np.zeros((9, 17), np.float32), rng.standard_normal((9, 6)).astype(np.float32)
    obs[:, :11] = rng.standard_normal((9, 11))
    np.testing.assert_allclose(
        cut.act_with_noise(obs[:, :11], noise[:, :3]),
        padded.act_with_noise(obs, noise)[:, :3],
        atol=1e-6,
    )


def test_measuring_counts_whole_first_episodes(script):
    choose = importlib.import_module("choose")
    falls = make_constant(choose, 1.0)
    rests = make_constant(choose, 0.0)
    jobs = [("nominal", falls), ("joint_noise", rests), ("nominal", rests)]
    measured = choose.measure("hopper", jobs, episodes=3, seed=1, threads=1)
    again = choose.measure("hopper", jobs[2:], episodes=3, seed=1, threads=1)
    # Up to noise of e^-20 the same policy meets the same start states in any company.
    np.testing.assert_allclose(measured[2].returns, again[0].returns, rtol=1e-6)
    assert not np.allclose(measured[1].returns, measured[2].returns, rtol=1e-3)
    assert all(one.returns.shape == one.length.shape == (3,) for one in measured)
    # A step that does not end the episode pays 1 for being healthy, plus speed: a resting hopper
    # sinks within about a hundred steps, a kicking one sooner.
    assert (measured[0].length < measured[2].length).all()
    assert (measured[2].length < 300).all()


def make_constant(choose, value):
    """A policy that always does the same: std e^-20."""
    b = np.concatenate([np.full(3, np.arctanh(0.99) * value), np.full(3, -20.0)])
    return choose.SquashedGaussianActor(((np.zeros((11, 6)), b),))


def test_wanted_levels_and_costs(script):
    choose = importlib.import_module("choose")
    slots = choose.wanted("hopper", ["nominal", "nominal", "body_mass"])
    names = [(slot.domain, slot.level) for slot in slots]
    rungs = [("nominal", f"ladder-{k}") for k in range(6)]
    both = ("medium", "expert")
    assert names == [(d, level) for d in ("nominal", "body_mass") for level in both] + rungs
    targets = [slot.target for slot in slots[-6:]]
    assert targets[0] == 18
    assert targets[-1] == 1420
    np.testing.assert_allclose(np.diff(targets), (1420 - 18) / 5)
    early = choose.Agent(0, "nominal", 0, 100, Path())
    late = early._replace(num_steps=900)
    exact = choose.Measured(np.full(4, 1420.0), np.full(4, 400))
    off = choose.Measured(np.full(4, 1500.0), np.full(4, 400))
    medium, expert = slots[:2]

    def cost(slot, agent, measured):
        return choose.cost("hopper", slot, agent, measured, 1000)

    assert cost(medium, early, exact) < cost(medium, early, off)
    assert cost(medium, early, exact) < cost(medium, late, exact)
    steady = choose.Measured(np.full(4, 3400.0), np.full(4, 1000))
    wild = choose.Measured(np.array([3400.0 - 900, 3400 + 900] * 2), np.full(4, 1000))
    assert cost(expert, late, steady) < cost(expert, late, wild)


def test_candidates_are_nearest_in_training_and_rather_early(script):
    choose = importlib.import_module("choose")
    checkpoint = importlib.import_module("checkpoint")
    lanes = [
        dict(body="walker2d", domain="nominal", seed=3),
        dict(body="hopper", domain="nominal", seed=4),
    ]
    returns = [None, 20.0, 1500.0, 1400.0, 3300.0, 1420.0, 1400.0]
    snapshots = [
        checkpoint.Snapshot(Path(f"{k}"), 1000 * k, (0.0, value)) for k, value in enumerate(returns)
    ]
    medium, expert = choose.wanted("hopper", ["nominal"])[:2]

    def steps(slot, num):
        found = choose._candidates("hopper", slot, lanes, snapshots, num)
        assert {agent.lane for agent in found} == {1}
        return [agent.num_steps for agent in found]

    # Means over the intervals before and after: 20, 760, 1450, 2350, 2360, 1410, 1400.
    assert steps(medium, 3) == [2000, 5000, 6000]
    assert steps(expert, 1) == [4000]
