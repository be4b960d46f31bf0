"""Lanes, chunks and points; with a learner that is a few sums where the algorithm does not matter.

Bytes are compared where only the company of a lane changes: that must not be seen at all.
"""

import dataclasses
import os
import subprocess
import sys
from functools import cache
from pathlib import Path

import jax
import jax.numpy as jnp
import numpy as np
import pytest

from puorl.core.errors import ConfigError
from puorl.data.training_set import TrainingSet
from puorl.nn import mlp
from puorl.rl import td7, trainer
from puorl.rl.learner import Batch
from puorl.rl.trainer import Lane

sys.path.insert(0, str(Path(__file__).parent))
import tiny_runs
from tiny_runs import TRACES, sums


@cache
def made_of(name):
    """One learner of each name, so that tests share what is compiled."""
    return tiny_runs.small(name)


SUMS = made_of("sums")


@pytest.fixture(scope="module")
def data():
    return tiny_runs.pool()


@pytest.fixture(scope="module")
def short(data):
    return TrainingSet(data, np.arange(10, 60))


@pytest.fixture(scope="module")
def three(data, short):
    """Sets of which the first alone is used: their tables have one shape, so one program serves."""
    return [short, TrainingSet.whole(data), TrainingSet.whole(data)]


def finish(made, sets, lanes, *, steps=12, interval=12):
    """The last point, states on the host."""
    job = trainer.prepare(made, sets, [Lane(*lane) for lane in lanes])
    *_, last = trainer.train(job, steps=steps, interval=interval)
    return dataclasses.replace(last, train_state=jax.device_get(last.train_state))


def lane(point, i):
    return jax.tree.map(lambda x: x[i], point.train_state.state), point.metrics[i], point.stopped[i]


def assert_same(ours, expected):
    jax.tree.map(np.testing.assert_array_equal, ours, expected)


# ---------------------------------------------------------------------------------- a plain loop


def plain_loop(made, data, rows, *, seed, steps):
    """Updates one after another, of one lane, with batches made in NumPy from the rows."""
    key, size = jax.random.key(seed, impl="threefry2x32"), made.config.batch_size
    obs, next_obs = data.obs[rows].astype(np.float64), data.next_obs[rows].astype(np.float64)
    next_obs = np.where(np.isnan(next_obs), obs, next_obs)  # of terminal rows
    if made.normalise_states:
        mean, std = obs.mean(axis=0), obs.std(axis=0) + 1e-5
        obs, next_obs = (obs - mean) / std, (next_obs - mean) / std
    sizes = trainer.Sizes(obs.shape[1], data.action.shape[1], len(rows))
    state = made.init(jax.random.fold_in(key, 0), sizes)
    for number in range(steps):
        of_update = jax.random.fold_in(jax.random.fold_in(key, 1), number)
        rows_key, noise_key = jax.random.split(of_update)
        drawn = np.asarray(jax.random.randint(rows_key, (size,), 0, len(rows)))
        columns = {
            "obs": obs[drawn],
            "action": np.clip(data.action[rows][drawn], -1 + 1e-5, 1 - 1e-5),
            "reward": data.reward[rows][drawn],
            "next_obs": next_obs[drawn],
            "terminal": data.terminal[rows][drawn],
            "next_action": np.zeros((size, sizes.act_dim)),
            **{name: np.ones(size) for name in ("keep", "weight", "critic_weight")},
        }
        batch = Batch(
            **{name: jnp.asarray(value, jnp.float32) for name, value in columns.items()},
            position=jnp.asarray(drawn, jnp.int32),
        )
        noise = made.noise(noise_key, size, sizes.act_dim)
        state, _ = made.update(state, batch, noise, number % made.cycle)
    return state


@pytest.mark.parametrize("name", ["td3_bc", "iql", "bc"])
def test_the_compiled_trainer_does_what_a_plain_loop_does(data, short, monkeypatch, name):
    made = made_of(name)
    # Two chunks and several lanes: neither the cut nor the company may show.
    monkeypatch.setattr(trainer, "_LONGEST_CHUNK", 6)
    chosen = dataclasses.replace(short, returns=None)
    ours, _, _ = lane(finish(made, [chosen, short], [(1, 3), (0, 4)]), 1)
    expected = plain_loop(made, data, short.rows, seed=4, steps=12)
    pairs = zip(jax.tree.leaves(ours), jax.tree.leaves(jax.device_get(expected)), strict=True)
    for one, other in pairs:
        np.testing.assert_allclose(one, other, rtol=1e-4, atol=2e-6)
    other_seed = plain_loop(made, data, short.rows, seed=5, steps=12)
    far = jax.tree.map(lambda a, b: np.abs(a - b).max(), ours, jax.device_get(other_seed))
    assert max(jax.tree.leaves(far)) > 1e-2  # so the comparison can fail


def test_updates_are_traced_with_half_units_and_nothing_after_them(short):
    made, seen = sums(growth=0.7), []

    def update(*args):
        seen.append(mlp._gpu_units.get())
        return made.update(*args)

    finish(made._replace(update=update), [short], [(0, 1)])
    assert jnp.bfloat16 in seen
    assert mlp._gpu_units.get() is jnp.float32


# ------------------------------------------------------------------------------------- company


def strange_company(data, made):
    """Sets that have nothing in common with a plain one: longer, edited, given up."""
    explodes = TrainingSet(data, np.arange(0, 120, 2), reward=np.full(60, 3e38))
    if made.positions is None:
        edited = tiny_runs.grouped(data, 30, seed=3, top=0.5)
    else:
        parted = tiny_runs.grouped(data, 30, seed=3)
        edited = dataclasses.replace(parted, groups=None)
    return edited, explodes


@pytest.mark.parametrize("name", ["sums", "td3_bc", "td7"])
def test_a_lane_has_the_same_bytes_in_any_company(data, short, three, name):
    made = made_of(name)
    sets = [short] if name == "sums" else three
    among_its_like = finish(made, sets, [(0, 5), (0, 1), (0, 5)])
    edited, explodes = strange_company(data, made)
    elsewhere = finish(made, [edited, short, explodes], [(2, 8), (1, 5), (0, 5)])
    expected = lane(among_its_like, 0)
    assert_same(lane(elsewhere, 1), expected)
    # The same seed and set give the same lane, in any place; another seed gives another.
    assert_same(lane(among_its_like, 2), expected)
    assert lane(among_its_like, 1)[1] != expected[1]
    assert lane(elsewhere, 2)[1] != expected[1]
    assert elsewhere.stopped[1] is elsewhere.stopped[2] is None
    reason = "passed" if name == "sums" else "not finite"
    assert (elsewhere.stopped[0].step, reason in elsewhere.stopped[0].reason) == (2, True)


def test_a_lane_is_nearly_the_same_among_more_or_fewer(three):
    made = made_of("td3_bc")
    alone = finish(made, three, [(0, 5)], steps=108)
    among = finish(made, three, [(0, 3), (0, 4), (0, 5)], steps=108)
    for ours, expected in zip(*map(jax.tree.leaves, (lane(among, 2), lane(alone, 0))), strict=True):
        apart = np.linalg.norm(np.asarray(ours) - np.asarray(expected))
        assert apart <= 1e-4 * max(np.linalg.norm(expected), 1e-3)


def test_a_sampler_of_its_own_does_not_see_how_long_other_sets_are():
    rng = np.random.default_rng(0)
    priority = rng.uniform(1, 5, 64 * 80).astype(np.float32)

    @jax.jit
    def draw(priority):
        state = td7.State(**{name: None for name in td7.State._fields} | {"priority": priority})
        return td7.positions(state, jax.random.key(1), jnp.int32(700), 5_000)

    long, short = draw(priority), draw(priority[: 64 * 11])
    np.testing.assert_array_equal(long, short)
    assert int(long.max()) < 700


def test_every_lane_draws_its_own_rows_and_noise(short):
    point = finish(SUMS, [short], [(0, seed) for seed in range(6)], steps=2, interval=2)
    positions = point.train_state.state.position
    assert len({tuple(row) for row in positions}) == 6
    assert positions.max() < len(short)


def test_keys_do_not_follow_the_default_generator(short):
    lanes = [(0, 1), (0, 2)]
    expected = finish(SUMS, [short], lanes)
    with jax.default_prng_impl("rbg"):
        changed = finish(SUMS, [short], lanes)
    assert_same([lane(changed, i) for i in (0, 1)], [lane(expected, i) for i in (0, 1)])


# ------------------------------------------------------------------------------ chunks and points


@pytest.mark.parametrize("name", ["sums", "td7"])
def test_the_length_of_a_chunk_changes_nothing(three, monkeypatch, name):
    made, lanes = made_of(name), [(0, 1), (0, 2), (0, 3)]
    whole = finish(made, three, lanes)
    job = trainer.prepare(made, three, [Lane(*each) for each in lanes])
    assert trainer._chunk_lengths(job, 12) == [12]
    monkeypatch.setitem(trainer._CHUNK_BYTES, "cpu", 4 * trainer._bytes_per_update(job))
    assert trainer._chunk_lengths(job, 12) == [4, 4, 4]
    parts = finish(made, three, lanes)
    assert_same(parts.train_state, whole.train_state)
    for ours, expected in zip(parts.metrics, whole.metrics, strict=True):
        assert ours == pytest.approx(expected, rel=1e-6)


def test_the_smallest_room_still_holds_a_cycle(short, monkeypatch):
    monkeypatch.setitem(trainer._CHUNK_BYTES, "cpu", 1)
    job = trainer.prepare(SUMS, [short], [Lane(0, 1)])
    assert trainer._chunk_lengths(job, 14) == [2] * 7


def test_a_stretch_that_nothing_divides_ends_in_a_shorter_chunk(short, monkeypatch):
    job = trainer.prepare(SUMS, [short], [Lane(0, 1)])
    monkeypatch.setitem(trainer._CHUNK_BYTES, "cpu", 20 * trainer._bytes_per_update(job))
    assert trainer._chunk_lengths(job, 62) == [20, 20, 20, 2]


def test_equal_chunks_are_compiled_once_and_states_are_given_away(short):
    made = sums(growth=0.8)
    job = trainer.prepare(made, [short], [Lane(0, 1), Lane(0, 2)])
    points = trainer.train(job, steps=30, interval=6)
    first = next(points)
    programs, traces = trainer.program()._cache_size(), len(TRACES)
    second = next(points)
    assert first.train_state.state.total.is_deleted()
    assert not second.train_state.state.total.is_deleted()
    assert [point.step for point in points] == [18, 24, 30]
    assert (trainer.program()._cache_size(), len(TRACES)) == (programs, traces)


def test_metrics_are_means_over_the_updates_since_the_last_point(short):
    flat = dataclasses.replace(short, reward=np.full(50, 2.0))
    point = finish(SUMS, [flat], [(0, 1), (0, 2), (0, 3)])
    assert [line["loss_0"] for line in point.metrics] == [2.0, 2.0, 2.0]
    job = trainer.prepare(SUMS, [short], [Lane(0, 1), Lane(0, 2)])
    one_by_one = list(trainer.train(job, steps=12, interval=2))
    together = list(trainer.train(job, steps=12, interval=6))
    assert trainer.metric_names(SUMS, job.sizes) == ("loss_0", "loss_1", "q")
    assert [set(line) for line in together[0].metrics] == 2 * [{"loss_0", "loss_1", "q"}]
    for number, point in enumerate(together):
        parts = one_by_one[3 * number : 3 * number + 3]
        for i in (0, 1):
            for name, value in point.metrics[i].items():
                mean = np.mean([part.metrics[i][name] for part in parts])
                assert value == pytest.approx(mean, rel=1e-5, abs=1e-6)


def test_the_last_stretch_may_be_shorter(short):
    job = trainer.prepare(SUMS, [short], [Lane(0, 1)])
    points = list(trainer.train(job, steps=10, interval=4))
    assert [point.step for point in points] == [4, 8, 10]
    assert int(points[-1].train_state.state.num_updates[0]) == 10


def test_training_goes_on_from_a_standing_as_if_it_had_not_stopped(short):
    lanes = [(0, 1), (0, 2)]
    expected = finish(SUMS, [short], lanes, interval=6)
    job = trainer.prepare(SUMS, [short], [Lane(*each) for each in lanes])
    halfway = next(trainer.train(job, steps=12, interval=6))
    kept = jax.tree.map(np.array, halfway.train_state)
    (last,) = trainer.train(
        job,
        steps=12,
        interval=6,
        train_state=kept._replace(state=jax.tree.map(jnp.asarray, kept.state)),
        done=6,
    )
    assert_same(jax.device_get(last.train_state), expected.train_state)
    assert last.metrics == expected.metrics


# -------------------------------------------------------------------------------- given up


def test_values_that_grow_without_bound_stop_a_lane_at_that_update(short):
    # 2^n passes the limit of 10,000 at update 14; rewards of 1,000 allow for more.
    ones = dataclasses.replace(short, reward=np.zeros(50))
    large = dataclasses.replace(short, reward=np.full(50, 1e3))
    point = finish(sums(growth=2.0), [ones, large], [(0, 1), (1, 1)], steps=18, interval=18)
    assert point.stopped[0].step == 14
    assert "passed 10,000" in point.stopped[0].reason
    assert point.stopped[1] is None


def test_what_was_seen_before_a_resume_still_counts(short):
    made = sums(growth=2.0)
    job = trainer.prepare(made, [dataclasses.replace(short, reward=np.zeros(50))], [Lane(0, 1)])
    points = list(trainer.train(job, steps=30, interval=10))
    assert [point.stopped[0] and point.stopped[0].step for point in points] == [None, 14, 14]


def test_a_policy_that_is_no_number_stops_its_lane_though_no_metric_shows_it(short):
    point = finish(sums(breaks_at=12), [short], [(0, 1)])
    assert np.isfinite(list(point.metrics[0].values())).all()
    assert point.stopped[0] == (12, "a loss or a value is not finite")


def test_no_discount_is_allowed(short):
    job = trainer.prepare(sums(gamma=1.0), [short], [Lane(0, 1)])
    assert np.isfinite(job.q_limit).all()


# ------------------------------------------------------------------------------------ refusals


def test_what_cannot_be_prepared(data, short):
    for sets, lanes in (([short], []), ([], [Lane(0, 0)])):
        with pytest.raises(ConfigError, match="expected lanes and training sets"):
            trainer.prepare(SUMS, sets, lanes)
    with pytest.raises(ConfigError, match="training sets 0 to 0"):
        trainer.prepare(SUMS, [short], [Lane(1, 0)])
    other = TrainingSet.whole(tiny_runs.pool(seed=1))
    with pytest.raises(ConfigError, match="of one pool"):
        trainer.prepare(SUMS, [short, other], [Lane(0, 0)])
    with pytest.raises(ConfigError, match="td7: draws its rows itself"):
        trainer.prepare(tiny_runs.small("td7"), [tiny_runs.grouped(data, 9)], [Lane(0, 0)])
    with pytest.raises(ConfigError, match="seed: expected"):
        trainer.fresh(trainer.prepare(SUMS, [short], [Lane(0, -1)]))


@pytest.mark.parametrize(("steps", "every"), [(7, 2), (8, 3), (0, 2), (8, 0)])
def test_numbers_of_updates_are_whole_cycles(short, steps, every):
    job = trainer.prepare(SUMS, [short], [Lane(0, 0)])
    with pytest.raises(ConfigError, match="expected a multiple of 2"):
        next(trainer.train(job, steps=steps, interval=every))


def test_importing_does_nothing_to_the_process():
    code = (
        "import importlib, os, pkgutil, jax; before = dict(os.environ), dict(jax.config.values); "
        "import puorl.rl; "
        "names = [m.name for m in pkgutil.iter_modules(puorl.rl.__path__, 'puorl.rl.')]; "
        "[importlib.import_module(name) for name in names]; assert len(names) > 10; "
        "assert before == (dict(os.environ), dict(jax.config.values))"
    )
    done = subprocess.run(
        [sys.executable, "-W", "error", "-c", code],
        capture_output=True,
        env=os.environ,
        check=False,
    )
    assert (done.returncode, done.stdout, done.stderr) == (0, b"", b"")
