import dataclasses
import sys
from pathlib import Path

import jax
import jax.numpy as jnp
import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st
from hypothesis.extra import numpy as arrays

from puorl.core.errors import ConfigError, DataError
from puorl.data.dataset import Dataset
from puorl.data.training_set import TrainingSet
from puorl.rl import learner, pool, trainer
from puorl.rl import train as training
from puorl.rl.learner import Sizes
from puorl.rl.policy import Policy
from puorl.rl.trainer import Lane

sys.path.insert(0, str(Path(__file__).parent))
import tiny_runs

DRAWS = 200
"""Batches of one test of the sampler."""
# The 99.9 % points of chi-square, by the Wilson-Hilferty formula: draws are fixed by their key.
CHI_SQUARE = {n: n * (1 - 2 / (9 * n) + 3.09 * np.sqrt(2 / (9 * n))) ** 3 for n in range(1, 200)}


@pytest.fixture(scope="module")
def data():
    return tiny_runs.pool()


def tables(*sets, batch_size=16, **settings):
    defaults = {"normalise_states": False, "scale_rewards": False, "next_action": False}
    return pool.tables(sets, batch_size=batch_size, **(defaults | settings))


def batches(held, line, data, *, batch_size=16, seed=0, number=DRAWS):
    """Many batches of a line, as NumPy arrays with a leading axis."""
    rows = pool.Pool(jnp.asarray(pool.pack(data.rows, pool.action_range(data.action))))
    keys = jax.random.split(jax.random.key(seed), number)
    return jax.tree.map(np.asarray, _draw_all(keys, rows, held, np.int32(line), batch_size))


def _draw(key, rows, held, line, batch_size):
    position = pool.draw(key, held, line, batch_size)
    return pool.unpack(pool.gather(rows, held, line, position), position, 3, 2)


_draw_all = jax.jit(jax.vmap(_draw, (0, None, None, None, None)), static_argnums=4)


def chi_square(counts):
    return ((counts - counts.mean()) ** 2 / counts.mean()).sum()


# ------------------------------------------------------------------------------ which rows


def test_draws_are_uniform_and_stay_within_the_set(data):
    chosen = TrainingSet(data, np.arange(3, 120, 3))
    held = tables(chosen, TrainingSet.whole(data))
    drawn = batches(held, 0, data)
    assert drawn.keep.all()
    counts = np.bincount(drawn.position.ravel(), minlength=len(chosen))
    assert len(counts) == len(chosen)  # never from the padding, which is as long as the other set
    assert chi_square(counts) < CHI_SQUARE[len(chosen) - 1]
    rewards = data.reward[chosen.rows].astype(np.float32)
    np.testing.assert_array_equal(drawn.reward, rewards[drawn.position])


@pytest.mark.parametrize(("num_first", "share"), [(30, 0.5), (100, 0.25), (4, 0.9)])
def test_groups_have_their_shares_of_every_batch_and_are_uniform_within(data, num_first, share):
    chosen = tiny_runs.grouped(data, num_first, first_share=share)
    drawn = batches(tables(chosen), 0, data)
    of_first = round(16 * share)
    first, second = drawn.position[:, :of_first], drawn.position[:, of_first:]
    assert first.max() < num_first <= second.min()
    assert second.max() < len(data)
    for part, start, size in ((first, 0, num_first), (second, num_first, 120 - num_first)):
        counts = np.bincount(part.ravel() - start, minlength=size)
        assert chi_square(counts) < CHI_SQUARE[size - 1]
    assert drawn.keep.all()
    at = drawn.position
    np.testing.assert_array_equal(drawn.reward, chosen.reward.astype(np.float32)[at])
    parts = chosen.weight[:num_first].mean(), chosen.weight[num_first:].mean()
    mean = share * parts[0] + (1 - share) * parts[1]  # of a batch, not of the set
    np.testing.assert_allclose(drawn.weight, (chosen.weight / mean)[at], rtol=1e-6)
    np.testing.assert_array_equal(drawn.critic_weight, chosen.critic_weight[at])


def test_without_groups_a_set_is_both_groups(data):
    held = tables(TrainingSet.whole(data))
    found = (held.first_size, held.second_start, held.first_draws, held.num_rows)
    assert [int(x[0]) for x in found] == [120, 0, 16, 120]
    assert held.num_kept is None


def test_a_set_that_keeps_all_is_the_same_beside_one_that_does_not(data):
    own = tiny_runs.grouped(data, 40, top=0.75)
    beside = batches(tables(TrainingSet.whole(data), own), 0, data)
    alone = batches(tables(TrainingSet.whole(data)), 0, data)
    for one, other in zip(beside, alone, strict=True):
        np.testing.assert_array_equal(one, other)
    assert alone.keep.all()


# ------------------------------------------------------------------------------- which are kept


def test_three_quarters_of_the_second_half_are_kept(data):
    chosen = tiny_runs.grouped(data, 40, top=0.75)
    drawn = batches(tables(chosen, batch_size=256), 0, data, batch_size=256, number=20)
    np.testing.assert_array_equal(drawn.keep[:, :128], 1.0)
    second = drawn.keep[:, 128:]
    assert (second.sum(axis=1) == 96).all()  # exactly, though every row is drawn several times
    score = chosen.score[drawn.position[:, 128:]]
    worst_kept = np.where(second > 0, score, np.inf).min(axis=1)
    best_lost = np.where(second > 0, -np.inf, score).max(axis=1)
    assert (worst_kept >= best_lost).all()


@given(
    arrays.arrays(np.float32, 12, elements=st.sampled_from([-2.0, -0.5, 0.0, 0.0, 1.0, 3.0])),
    st.integers(0, 12),
    st.integers(1, 12),
)
def test_the_best_are_those_of_a_stable_sort(score, first, num_kept):
    of_first = np.arange(12) < first
    keep = np.asarray(_best(score, of_first, np.int32(num_kept)))
    order = np.argsort(-np.where(of_first, np.inf, score), kind="stable")
    expected = np.zeros(12)
    expected[order[:num_kept]] = 1
    np.testing.assert_array_equal(keep, expected)


_best = jax.jit(pool.best)


def test_all_scores_equal_still_keeps_the_exact_number(data):
    chosen = dataclasses.replace(
        tiny_runs.grouped(data, 40, top=0.75), score=np.zeros(120, np.float32)
    )
    drawn = batches(tables(chosen), 0, data)
    assert (drawn.keep.sum(axis=1) == 8 + 6).all()


def test_a_batch_that_has_no_room_for_two_groups_is_refused(data):
    with pytest.raises(ConfigError, match="rows of both groups in a batch of 4, got 0"):
        tables(tiny_runs.grouped(data, 40, first_share=0.1), batch_size=4)


# ------------------------------------------------------------------------------------ states


def test_states_are_normalised_by_the_sets_own_statistics(data):
    chosen = TrainingSet(data, np.arange(40))
    held = tables(chosen, TrainingSet.whole(data), normalise_states=True)
    drawn = batches(held, 0, data)
    mean, std = data.obs[:40].mean(axis=0), data.obs[:40].std(axis=0) + 1e-5
    at = drawn.position
    np.testing.assert_allclose(drawn.obs, ((data.obs - mean) / std)[at], rtol=1e-4, atol=1e-4)
    # A terminal row whose end was not recorded has its own state in that place.
    assert np.isnan(data.next_obs[:40]).any()
    next_obs = np.where(np.isnan(data.next_obs), data.obs, data.next_obs)
    np.testing.assert_allclose(drawn.next_obs, ((next_obs - mean) / std)[at], rtol=1e-4, atol=1e-4)
    np.testing.assert_allclose(drawn.action, data.action[at], atol=2e-5)
    np.testing.assert_array_equal(drawn.terminal, data.terminal[at])
    raw = batches(tables(chosen), 0, data)
    np.testing.assert_array_equal(raw.obs, data.obs.astype(np.float32)[raw.position])


def test_a_state_component_that_never_changes_does_no_harm(data):
    obs = data.obs.copy()
    obs[:, 1] = 7.0
    still = Dataset.from_arrays(obs=obs, next_obs=obs, action=data.action, reward=data.reward)
    drawn = batches(tables(TrainingSet.whole(still), normalise_states=True), 0, still, number=20)
    assert np.abs(drawn.obs).max() < 10
    np.testing.assert_array_equal(drawn.obs[:, :, 1], 0.0)


# ------------------------------------------------------------------------------------ rewards


@pytest.mark.parametrize(
    ("returns", "factor"),
    [((-20.0, 230.0), 4.0), ((0.0, 1000.0), 1.0), ((3.0, 3.0), None), (None, None)],
)
def test_the_reward_factor_follows_from_the_returns_alone(data, returns, factor):
    chosen = TrainingSet(data, np.arange(30), returns=returns, reward=np.arange(30.0))
    assert pool.reward_factor(chosen) == factor
    held = tables(chosen, TrainingSet.whole(data), scale_rewards=True)
    expected = np.arange(30.0) * (1.0 if factor is None else factor)
    np.testing.assert_array_equal(held.column[0, :30, 0], expected.astype(np.float32))
    unscaled = tables(chosen)
    np.testing.assert_array_equal(unscaled.column[0, :30, 0], np.arange(30.0))
    fixed = tables(chosen, fixed_factor=0.5)
    np.testing.assert_array_equal(fixed.column[0, :30, 0], np.arange(30.0) / 2)


def test_rewards_must_be_known(data):
    silent = Dataset.from_arrays(obs=data.obs, next_obs=data.obs, action=data.action)
    with pytest.raises(DataError, match="expected rows with a reward"):
        tables(TrainingSet.whole(silent))
    assert not tables(TrainingSet.whole(silent), needs_reward=False).column[:, :, 0].any()
    own = TrainingSet(silent, np.arange(5), reward=np.arange(5.0))
    np.testing.assert_array_equal(tables(own).column[0, :, 0], np.arange(5.0))


# ------------------------------------------------------------------------------- next actions


def test_rows_without_a_next_action_are_left_out_where_it_is_needed(data):
    weight = np.linspace(0, 1, 120, dtype=np.float32)
    chosen = TrainingSet(data, np.arange(120)[::-1], weight)
    held = tables(chosen, next_action=True)
    cut = data.timeout  # the task went on, but nobody knows how
    assert 0 < cut.sum() < data.terminal.sum() + cut.sum()
    expected = np.flatnonzero(~cut)[::-1]
    assert int(held.num_rows[0]) == len(expected)
    np.testing.assert_array_equal(held.row[0], expected)
    wanted = weight[::-1][expected]
    np.testing.assert_allclose(held.column[0, :, 1], wanted / wanted.mean(), rtol=1e-6)
    drawn = batches(held, 0, data, number=20)
    at = expected[drawn.position]
    known = ~data.terminal[at]
    following = data.action[np.minimum(at + 1, 119)]
    np.testing.assert_allclose(drawn.next_action[known], following[known], atol=2e-5)
    np.testing.assert_array_equal(drawn.next_action[~known], 0.0)


def test_needing_next_actions_that_no_row_has_is_an_error(data):
    rows = dataclasses.replace(data.rows, next_action=None)
    bare = dataclasses.replace(data, rows=rows)
    with pytest.raises(DataError, match="expected rows whose next action is known"):
        tables(TrainingSet.whole(bare), next_action=True)
    with pytest.raises(DataError, match="takes no groups"):
        tables(tiny_runs.grouped(data, 40), next_action=True)


# ------------------------------------------------------------------------------------ actions


@given(
    arrays.arrays(np.float64, (6, 2), elements=st.floats(-1e3, 1e3)),
    arrays.arrays(np.float32, (4, 2), elements=st.floats(-1, 1, width=32)),
)
def test_a_policy_acts_in_the_range_of_the_data(action, said):
    low, high = pool.action_range(action)
    inside = np.abs(action).max() <= 1
    if inside:
        np.testing.assert_array_equal([low, high], [[-1, -1], [1, 1]])
    else:
        moves = action.max(axis=0) > action.min(axis=0)
        np.testing.assert_array_equal(low[moves], action.min(axis=0)[moves])
        np.testing.assert_array_equal(high[moves], action.max(axis=0)[moves])
    assert (low < high).all()
    inward = pool.ActionRange(low, high).inward(action)
    assert inward.dtype == np.float32
    assert np.abs(inward).max() < 1
    # Through a policy that says what it is shown, the data's actions come out again.
    mirror = [{"w": np.eye(2, dtype=np.float32), "b": np.zeros(2, np.float32)}]
    policy = Policy.of("clip", mirror, low=low, high=high)
    width = high - low
    back = policy.act(inward)
    assert (np.abs(back - action) <= 2e-5 * width + 1e-4).all()
    answer = policy.act(said)
    assert (answer >= policy.low).all()
    assert (answer <= policy.high).all()


def test_actions_a_hair_beyond_one_are_not_mapped():
    low, high = pool.action_range(np.array([[1.0 + 5e-7], [0.2]]))
    assert (low.tolist(), high.tolist()) == ([-1.0], [1.0])


def test_groups_and_plain_sets_share_a_table(data):
    plain, parted = TrainingSet.whole(data), tiny_runs.grouped(data, 10, np.arange(50), top=0.5)
    together, alone = tables(plain, parted), tables(parted)
    held = jax.tree.map(lambda x: x[1:], together)
    a, b = batches(held, 0, data, number=5), batches(alone, 0, data, number=5)
    jax.tree.map(np.testing.assert_array_equal, a, b)


# ------------------------------------------------------------------------------------------ memory


sys.path.insert(0, str(Path(__file__).parent))


@pytest.fixture
def optimised():
    """As users compile: what these tests' quick compiler takes is more."""
    kept = jax.config.read("jax_disable_most_optimizations")
    jax.config.update("jax_disable_most_optimizations", False)
    yield
    jax.config.update("jax_disable_most_optimizations", kept)


@pytest.mark.parametrize(
    ("name", "settings", "num_lanes"),
    [
        ("bc", {"batch_size": 512, "hidden": (32, 64)}, 1),
        ("bc", {"batch_size": 32, "hidden": (500,)}, 2),
        ("iql", {"batch_size": 64, "hidden": (128,)}, 3),
    ],
)
def test_no_more_is_counted_than_the_compiled_program_takes(optimised, name, settings, num_lanes):
    chosen = TrainingSet.whole(tiny_runs.pool())
    made = learner.make(name, num_steps=10, **settings)
    work = trainer.prepare(made, [chosen], [Lane(0, seed) for seed in range(num_lanes)])
    keys = trainer._keys(work.lanes, "updates")
    line = jnp.zeros(num_lanes, jnp.int32)
    state = jax.eval_shape(lambda k: trainer.init_states(k, made, work.sizes), keys)
    taken = (
        trainer.program()
        .lower(
            state,
            keys,
            line,
            jnp.asarray(work.q_limit),
            work.pool,
            work.sets,
            np.int32(0),
            learner=made,
            sizes=work.sizes,
            length=made.cycle,
        )  # fmt: skip
        .compile()
        .memory_analysis()
    )
    counted = pool._parts(made, work.sizes, lanes=num_lanes, num_rows=len(chosen.pool), sets=1)
    whole = taken.argument_size_in_bytes + taken.temp_size_in_bytes
    assert 0.1 * whole < sum(counted.values()) <= whole
    states = sum(4 * leaf.size for leaf in jax.tree.leaves(state))
    assert counted["networks"] == states


@pytest.mark.parametrize("name", list(learner.LEARNERS))
def test_sizes_beyond_all_reason_are_refused_before_anything_is_compiled(name):
    most = 2**31 - 1
    sizes = Sizes(11, 3, 1000)
    for settings in ({"batch_size": most}, {"hidden": (most, most)}):
        made = learner.make(name, num_steps=10, **settings)
        wanted = f"training 5 of {name} side by side.*need .* [TPE]B"
        with pytest.raises(ConfigError, match=wanted):
            pool.check_memory(made, sizes, lanes=5, num_rows=1000, sets=1)
    for settings in ({"batch_size": most + 1}, {"hidden": (8, most + 1)}):
        made = learner.make(name, num_steps=10, **settings)
        with pytest.raises(ConfigError, match="expected 2,147,483,647 or less, got 2,147,483,648"):
            pool.check_memory(made, sizes, lanes=1, num_rows=1000, sets=1)


def test_rows_count_too(monkeypatch):
    made = learner.make("bc", num_steps=10, hidden=(8,), batch_size=8)
    monkeypatch.setattr("puorl.core.resources.free_memory", lambda: 10**9)
    pool.check_memory(made, Sizes(11, 3, 10**6), lanes=1, num_rows=10**6, sets=1)
    with pytest.raises(ConfigError, match="most of it for rows: .* train on fewer rows"):
        pool.check_memory(made, Sizes(11, 3, 10**7), lanes=1, num_rows=10**7, sets=1)


def test_numbers_of_updates_are_counted_in_32_bits():
    made = learner.make("bc", num_steps=10)
    trainer.check_steps(made, steps=2**31 - 1)
    with pytest.raises(ConfigError, match="steps: expected 2,147,483,647 or less"):
        trainer.check_steps(made, steps=2**31)
    long = learner.make("td3_bc", num_steps=10, policy_delay=101)
    with pytest.raises(ConfigError, match="got 101; lower policy_delay"):
        trainer.check_steps(long, steps=202)


# ------------------------------------------------------------------------ rows that mislead


def test_a_state_that_never_changes_has_scale_one():
    obs = np.random.default_rng(0).normal(size=(1000, 3)).astype(np.float32)
    obs[:, 1], obs[:, 2] = 5.001, 0.0
    data = Dataset.from_arrays(obs=obs, next_obs=obs, action=obs[:, :1], reward=obs[:, 0])
    chosen = TrainingSet.whole(data)
    assert pool.constant_states(chosen).tolist() == [False, True, True]
    mean, scale = pool.state_scaling(chosen)
    assert scale[0] == pytest.approx(obs[:, 0].std(), abs=1e-4)
    assert scale[1:].tolist() == [1.0, 1.0]
    # What the learner sees of such a column is 0, as before.
    assert (obs[:, 1:] - mean[1:] == 0).all()
    weighted = dataclasses.replace(chosen, weight=np.linspace(0.1, 1, 1000).astype(np.float32))
    assert pool.constant_states(weighted).tolist() == [False, True, True]


def bounded(action, bounds):
    """A training set of rows with these actions, and the user's bounds."""
    data = Dataset.from_arrays(obs=action, next_obs=action, action=action, reward=action[:, 0])
    return pool.with_action_bounds(TrainingSet.whole(data), bounds)


def test_given_bounds_decide_what_learners_see():
    action = np.random.default_rng(0).uniform(-3, 3, (1000, 2))
    action[17, 1] = 1e4
    chosen = bounded(action, (-4, [4.0, 6.0]))
    stated = chosen.pool.provenance.action_range
    assert stated == ((-4.0, -4.0), (4.0, 6.0))
    low, high = pool.action_range(action, stated)
    assert (low.tolist(), high.tolist()) == ([-4, -4], [4, 6])
    seen = pool.pack(chosen.pool.rows, pool.ActionRange(low, high))[:, 2:4]
    expected = (action - [0.0, 1.0]) / [4.0, 5.0]
    others = np.arange(1000) != 17
    np.testing.assert_allclose(seen[others], expected[others], rtol=1e-6)
    assert seen[17, 1] == np.float32(pool.ACTION_LIMIT)
    told = pool.describe_odd_actions(action, stated)
    assert told == "actions of 1 of 1,000 rows lie outside their bounds and are clipped to them"
    assert pool.describe_odd_actions(action[others], stated) is None
    assert pool.action_range(action / 1e5, stated).low[0] == -4  # also where all are within 1


@pytest.mark.parametrize(
    "bounds", [(1, -1), (0, 0), (0, np.nan), (0,), (0, 1, 2), ([0, 0, 0], 1), ("a", "b"), 3]
)
def test_bounds_that_make_no_sense_are_refused(bounds):
    with pytest.raises(ConfigError, match="expected low and high, one or 2 finite numbers each"):
        bounded(np.zeros((10, 2)), bounds)


def test_bounds_of_another_number_of_columns_are_refused():
    with pytest.raises(DataError, match="expected bounds of 2 action columns, got 1"):
        pool.action_range(np.zeros((10, 2)), ((-1.0,), (1.0,)))


def test_few_rows_that_set_the_range_of_actions_are_told():
    rng = np.random.default_rng(0)
    action = rng.uniform(-3, 3, (1000, 2))
    assert pool.describe_odd_actions(action) is None
    assert pool.describe_odd_actions(action / 3) is None
    action[17, 1] = 1e4
    told = pool.describe_odd_actions(action)
    assert told.startswith("action 1: its range -")
    assert "to 10000" in told
    assert "99 % lie in -2.9" in told
    assert pool.describe_odd_actions(rng.standard_normal((100_000, 1))) is None
    data = Dataset.from_arrays(
        obs=action,
        next_obs=action,
        action=action,
        reward=action[:, 0],
        terminal=np.ones(1000, bool),
    )
    with pytest.warns(UserWarning, match="set by a few rows"):
        training.check_rows(learner.make("bc", num_steps=10), TrainingSet.whole(data))


def test_replaced_values_become_rows_at_the_end_of_the_pool():
    held = Dataset.from_arrays(
        obs=np.arange(5.0)[:, None], next_obs=np.zeros((5, 1)), action=np.zeros((5, 1))
    )
    next_obs = np.array([[0.0], [7.0], [8.0]])
    changed = TrainingSet(held, np.array([3, 0, 4]), next_obs=next_obs)
    twice = TrainingSet(held, np.array([1, 1]), action=np.array([[0.0], [0.5]]))
    plain = TrainingSet(held, np.array([2]))
    first, second, third = pool.with_own_rows([changed, twice, plain])
    assert first.pool is second.pool is third.pool
    assert len(first.pool) == 5 + 2 + 1  # what is as before is not repeated
    assert (first.rows.tolist(), second.rows.tolist(), third.rows.tolist()) == (
        [3, 5, 6],
        [1, 7],
        [2],
    )
    assert first.pool.obs[first.rows, 0].tolist() == [3, 0, 4]
    np.testing.assert_array_equal(first.pool.next_obs[first.rows], next_obs)
    assert second.pool.action[second.rows, 0].tolist() == [0.0, 0.5]
    assert second.pool.obs[second.rows, 0].tolist() == [1, 1]
    assert changed.dataset.next_obs[:, 0].tolist() == [7.0, 0.0, 8.0]  # in the order of the pool
    assert pool.with_own_rows([plain])[0] is plain
