import copy
import dataclasses

import jax.numpy as jnp
import numpy as np
import pytest

from puorl.core.errors import ConfigError, DataError
from puorl.data.dataset import Dataset
from puorl.data.split import PUSplit
from puorl.methods import dynamics, make, share, values
from puorl.methods.share import doubts, shrinkage, uncertainty
from puorl.pu.filter import DomainFilter
from puorl.rl import learner, trainer
from puorl.rl.trainer import Lane

SMALL = {"hidden": (32,), "num_members": 3, "num_steps": 600, "batch_size": 128}
BETTER = SMALL | {"imitate": "better"}


@pytest.fixture(scope="module")
def shared(small_split, fitted):
    """PU, and PU + sharing where the others' state moves by 2 more in each step."""
    pu = make("pu", filter=fitted).prepare(small_split, seed=0)
    return pu, make("pu_share", filter=fitted, **BETTER).prepare(small_split, seed=0)


def test_share_0_is_pu_to_the_byte(small_split, fitted, shared):
    pu, _ = shared
    none = make("pu_share", filter=fitted, share=0.0).prepare(small_split, seed=0)
    for name in ("rows", "weight", "reward", "critic_weight", "score", "action", "next_obs"):
        ours, theirs = getattr(none, name), getattr(pu, name)
        assert (ours is None) == (theirs is None), name
        assert ours is None or (ours.dtype, ours.tobytes()) == (theirs.dtype, theirs.tobytes())
    assert (none.groups, none.returns, none.pool) == (pu.groups, pu.returns, pu.pool)
    made = learner.make("td3_bc", num_steps=4, hidden=(4,), batch_size=8)
    acts = []
    for chosen in (pu, none):
        job = trainer.prepare(made, [chosen], [Lane(0, 0)])
        *_, last = trainer.train(job, steps=4, interval=4)
        [policy] = trainer.policies(job, last.train_state, steps=4)
        acts.append(policy.act(small_split.pool.obs[:50]).tobytes())
    assert acts[0] == acts[1]


def test_our_rows_stay_and_others_follow(small_split, shared):
    pu, chosen = shared
    num = len(pu)
    assert np.array_equal(chosen.rows[:num], pu.rows)
    assert (chosen.groups.num_first, chosen.groups.first_share) == (num, 0.5)
    assert not set(chosen.rows[num:]) & set(pu.rows)
    pool = small_split.pool
    np.testing.assert_array_equal(chosen.next_obs[:num], pool.next_obs[pu.rows])
    np.testing.assert_array_equal(chosen.reward[:num], pool.reward[pu.rows])
    assert (chosen.weight[:num] == 1.0).all()
    assert (chosen.critic_weight[:num] == 1.0).all()


def test_others_rows_are_moved_into_our_dynamics(small_split, shared):
    pu, chosen = shared
    rows, is_other = chosen.rows, small_split.reveal("scoring")[chosen.rows] == 1
    pool = small_split.pool
    expected = pool.obs[rows] + 0.3 * pool.action[rows]
    before = (pool.next_obs[rows] - expected)[is_other & (np.arange(len(rows)) >= len(pu))]
    after = (chosen.next_obs - expected)[is_other & (np.arange(len(rows)) >= len(pu))]
    assert before.mean() == pytest.approx(2.0, abs=0.1)
    assert np.abs(after.mean()) < 0.3
    assert after.std() < 0.45  # the noise of a step, 0.3, is still there
    assert after.std() > 0.25
    assert chosen.metadata["explained"] > 0.6  # of state and reward, which does not differ


def test_where_nothing_differs_a_filters_choice_by_outcome_is_undone(worlds, quick_config):
    split = worlds.split(1_000, shift=0.0)
    flt = DomainFilter(config=quick_config).fit(split, seed=0)
    chosen = make("pu_share", filter=flt, **SMALL, imitate="all").prepare(split, seed=0)
    pool, rows = split.pool, chosen.rows[chosen.groups.num_first :]
    expected = pool.obs[rows] + 0.3 * pool.action[rows]
    before = pool.next_obs[rows] - expected
    after = chosen.next_obs[chosen.groups.num_first :] - expected
    # What the filter left lies on one side by its choice alone; the noise is 0.3.
    assert np.abs(before.mean()) > 0.05
    assert np.abs(after.mean()) < np.abs(before.mean())
    assert after.std() < 0.35


def test_trust_ends_with_support(fitted, small_split):
    pool = small_split.pool
    obs = pool.obs.copy()
    far = small_split.unlabelled[-50:]
    obs[far] += 30.0
    moved = Dataset.from_arrays(
        obs=obs, action=pool.action, next_obs=pool.next_obs + (obs - pool.obs), reward=pool.reward
    )
    split = PUSplit.from_mask(moved, np.arange(len(obs)) < 100)
    chosen = make("pu_share", filter=fitted, **SMALL, tolerance=0.1).prepare(split, seed=0)
    weight = dict(zip(chosen.rows, chosen.weight * chosen.critic_weight, strict=True))
    theirs = set(chosen.rows[chosen.metadata["num_ours"] :])
    of_far = [weight[r] if r in theirs else 0.0 for r in far if r in theirs or r not in weight]
    of_near = [weight[r] for r in theirs - set(far)]
    assert len(of_far) > 10
    assert np.mean(of_far) < 0.3 * np.mean(of_near)


def test_whose_actions_are_imitated(small_split, fitted, shared):
    _, better = shared
    num = better.metadata["num_ours"]
    in_policy = {"better": better.weight[num:]}
    assert make("pu_share").settings()["imitate"] == "none"
    for words in ("all", "none"):
        method = make("pu_share", filter=fitted, **SMALL, imitate=words)
        chosen = method.prepare(small_split, seed=0)
        in_policy[words] = chosen.weight[num:]
        # The critic learns from all of them alike.
        np.testing.assert_allclose(
            chosen.weight * chosen.critic_weight, better.weight * better.critic_weight, rtol=1e-5
        )
    trust = in_policy["all"]
    np.testing.assert_allclose(in_policy["none"], 1e-3 * trust, rtol=1e-5)
    learns = np.isclose(in_policy["better"], trust, rtol=1e-5)
    assert better.metadata["imitated_fraction"] == pytest.approx(learns.mean())
    assert 0.05 < learns.mean() < 0.95


def test_variants_share_fitted_networks_and_give_the_same_sets(small_split, fitted, monkeypatch):
    """The second amount fits nothing; sets are those of methods that fitted for themselves."""
    fits = []

    def count(module, name):
        original = getattr(module, name)
        monkeypatch.setattr(module, name, lambda *a, **k: fits.append(name) or original(*a, **k))

    count(dynamics, "fit")
    count(share, "values_of_rows")
    quick = BETTER | {"num_steps": 5}
    made = []
    for changes in ({"share": 0.25}, {"share": 0.75}, {"imitate": "all"}, {"move": False}):
        made.append(make("pu_share", filter=fitted, **quick | changes).prepare(small_split, seed=3))
    # f and g once; values again only where the rows differ.
    assert fits == ["fit", "fit", "values_of_rows", "values_of_rows"]
    share._last_fit.clear()
    alone = make("pu_share", filter=fitted, **quick, share=0.75).prepare(small_split, seed=3)
    for name in ("rows", "weight", "reward", "critic_weight", "next_obs"):
        assert getattr(alone, name).tobytes() == getattr(made[1], name).tobytes(), name
    make("pu_share", filter=fitted, **quick).prepare(small_split, seed=4)
    assert fits[-3:] == ["fit", "fit", "values_of_rows"]


def test_others_rows_are_drawn_up_to_a_number(small_split, fitted):
    quick = SMALL | {"num_steps": 5, "tolerance": 100.0}
    chosen = make("pu_share", filter=fitted, **quick, most_others=50).prepare(small_split, seed=0)
    assert chosen.metadata["num_theirs"] == 50
    assert len(np.unique(chosen.rows)) == len(chosen) == chosen.metadata["num_ours"] + 50


def test_with_the_truth_our_rows_are_those_of_oracle(small_split):
    chosen = make("oracle_share", **SMALL | {"num_steps": 5}).prepare(small_split, seed=0)
    oracle = make("oracle").prepare(small_split, seed=0)
    num = chosen.metadata["num_ours"]
    assert np.array_equal(chosen.rows[:num], oracle.rows)
    truth = small_split.reveal("scoring")
    assert (truth[chosen.rows[:num]] == 0).all()
    assert (truth[chosen.rows[num:]] == 1).all()
    assert chosen.metadata["alpha"] == oracle.metadata["alpha"]


def test_without_moving_the_difference_lowers_trust_and_reward(small_split, fitted, shared):
    _, moved = shared
    settings = SMALL | {"move": False, "imitate": "all", "eta": 0.1, "tolerance": 10.0}
    chosen = make("pu_share", filter=fitted, **settings).prepare(small_split, seed=0)
    pool, num = small_split.pool, chosen.metadata["num_ours"]
    assert chosen.next_obs is None
    is_other = small_split.reveal("scoring")[chosen.rows[num:]] == 1
    lowered = (pool.reward[chosen.rows] - chosen.reward)[num:]
    assert lowered.max() <= 1.0 + 1e-9  # eta times the largest ratio
    assert lowered[is_other].mean() > 0.7
    assert chosen.metadata["mean_trust"] < 1.0
    assert moved.metadata["difference"] > 0.5


def test_a_constant_reward_does_not_lower_the_trust(small_split, fitted, shared):
    constant = dataclasses.replace(
        small_split.pool.rows, reward=np.ones_like(small_split.pool.reward)
    )
    pool = Dataset(constant, small_split.pool.columns, small_split.pool.provenance)
    split = dataclasses.replace(small_split, pool=pool)
    found = make("pu_share", filter=fitted, **SMALL).prepare(split, seed=0)
    assert found.metadata["mean_trust"] > 0.8 * shared[1].metadata["mean_trust"]


def test_rows_of_a_single_episode_are_held_out_in_pieces():
    held = dynamics.hold_out(np.zeros(1_000), 1_000, 0, "test")
    assert held.sum() == 200
    assert np.abs(np.diff(held.astype(int))).sum() <= 4  # two pieces, not single rows
    with pytest.raises(DataError, match="label more rows"):
        dynamics.fit(
            np.zeros((1, 2), np.float32), np.zeros((1, 1)), np.zeros(1, bool), seed=0,
            purpose="test", num_members=1, hidden=(4,), num_steps=2, batch_size=2, learning_rate=1,
        )  # fmt: skip


def test_a_soft_filter_is_refused(small_split, fitted):
    soft = copy.copy(fitted)
    soft.mode = "soft"
    with pytest.raises(ConfigError, match="got soft"):
        make("pu_share", filter=soft, **SMALL).prepare(small_split, seed=0)


@pytest.mark.parametrize(
    ("changed", "says"),
    [
        ({}, []),
        ({"trusted_fraction": 0.04}, ["4 % of the others' rows are trusted"]),
        ({"explained": -0.3}, ["0 % of how the machines differ was learnt"]),
        ({"difference": 1.3}, ["they differ by 1.3 of the spread"]),
        ({"num_ours": 40_000}, ["40,000 rows count as ours"]),
        ({"explained": 0.0, "difference": 2.0}, ["0 % of how", "they differ by 2"]),
    ],
)
def test_what_speaks_against_sharing_is_said(shared, changed, says):
    _, chosen = shared
    sound = {"num_ours": 2_000, "trusted_fraction": 0.8, "explained": 0.7, "difference": 0.3}
    assert set(sound) <= set(chosen.metadata)
    found = doubts(chosen.metadata | sound | changed)
    assert len(found) == len(says)
    assert all(start in text for start, text in zip(says, found, strict=True))


def test_who_shares_nothing_has_no_doubts_and_who_could_not_says_so(fitted, small_split, shared):
    pu, _ = shared
    assert doubts(pu.metadata) == []
    none = make("pu_share", filter=fitted, share=0.0).prepare(small_split, seed=0)
    assert doubts(none.metadata) == []
    assert doubts(none.metadata | {"share": 0.5}) == [
        "too few rows with a next state to learn how the machines differ: this is PU"
    ]


def test_moved_rows_are_saved_with_their_rewards(shared):
    _, chosen = shared
    kept, order = chosen.dataset, np.argsort(chosen.rows, kind="stable")
    np.testing.assert_array_equal(kept.reward, chosen.reward[order])
    np.testing.assert_array_equal(kept.next_obs, chosen.next_obs[order])
    assert set(kept.columns) == set(chosen.pool.columns)


def test_shrinkage_is_least_squares_of_each_output_within_bounds():
    rng = np.random.default_rng(0)
    predicted = rng.normal(size=(200, 4))
    left = predicted * [0.5, 2.0, -1.0, 0.0] + 0.1 * rng.normal(size=(200, 4))
    found = shrinkage(left, predicted)
    for j, slope in enumerate(found):
        [expected] = np.linalg.lstsq(predicted[:, [j]], left[:, j])[0]
        assert slope == pytest.approx(min(max(expected, 0.0), 1.0), abs=1e-9)
    assert shrinkage(left, np.zeros_like(left)).tolist() == [0.0] * 4


def test_uncertainty_is_that_of_a_loop():
    rng = np.random.default_rng(0)
    deviation, held = rng.uniform(size=(5, 3)), rng.uniform(size=(9, 3))
    error, spread = np.array([0.01, 3.0, 0.4]), np.array([1.0, 2.0, 0.5])
    found = uncertainty(deviation, held, error, spread)
    for i in range(5):
        total = 0.0
        for j in range(3):
            scale = max(1.0, error[j] / np.mean(held[:, j] ** 2))
            total += scale * deviation[i, j] ** 2 / spread[j]
        assert found[i] == pytest.approx(total / 3)


def test_advantages_have_the_sign_of_what_actions_are_worth():
    """Steps of 1 to the left or right from 0 to 1; the reward is the state that follows."""
    rng = np.random.default_rng(0)
    obs = rng.uniform(0, 1, (2_000, 1))
    action = rng.choice([-1.0, 1.0], (2_000, 1))
    after = np.clip(obs + 0.2 * action, 0, 1)
    data = Dataset.from_arrays(obs=obs, action=action, next_obs=after, reward=after[:, 0])
    q, v = values.values_of_rows(
        data.rows, data.reward, data.next_obs, num_first=500, seed=0, hidden=(32, 32),
        num_steps=1_500, batch_size=128,
    )  # fmt: skip
    found = q - v
    inside = (obs[:, 0] > 0.2) & (obs[:, 0] < 0.8)
    right = action[:, 0] > 0
    assert (found[inside & right] > 0).mean() > 0.9
    assert (found[inside & ~right] < 0).mean() > 0.9


def test_the_expectile_weighs_errors_above():
    error = np.array([-2.0, 3.0, 0.5])
    found = values.expectile_loss(jnp.asarray(error), 0.7)
    np.testing.assert_allclose(found, [0.3 * 4, 0.7 * 9, 0.7 * 0.25], rtol=1e-6)
