import dataclasses

import jax
import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st
from hypothesis.extra import numpy as hnp

from puorl.core.run_folder import Checkpoint
from puorl.data.dataset import Dataset
from puorl.data.split import PUSplit
from puorl.pu import cross_fit, fitting, learners
from puorl.pu.alpha import alpha_estimate
from puorl.pu.checks.quality import measure_quality
from puorl.pu.config import FilterConfig, NetworkConfig, ResidualConfig
from puorl.pu.cross_fit import (
    NUM_FOLDS,
    behaviour_config,
    cross_fit_behaviour,
    match_keep_rate,
)
from puorl.pu.cross_fit import cross_fit as make_scores
from puorl.pu.fitting import HeldOutLogits, fit
from puorl.pu.model import keep
from puorl.pu.units import Unit

SMALL = FilterConfig(
    network=NetworkConfig(hidden=(16,), batch_size=64, learning_rate=5e-3),
    residuals=ResidualConfig(hidden=(16,), num_steps=1_000, batch_size=32),
    num_warm_up=30,
    num_main=10,
)
WARM_UP = dataclasses.replace(SMALL, num_main=0)
"""For refits: one program to compile instead of two."""
NOWHERE = Checkpoint(None)


def with_next_obs(split, next_obs, **changes):
    rows = dataclasses.replace(split.pool.rows, next_obs=next_obs, **changes)
    return dataclasses.replace(split, pool=dataclasses.replace(split.pool, rows=rows))


@pytest.fixture(scope="module")
def split(world):
    both = Dataset.concatenate([world(600, 0.0, seed=1), world(900, 2.0, seed=2)])
    rows = dataclasses.replace(both.rows, episode=None)
    return PUSplit.from_mask(
        dataclasses.replace(both, rows=rows), labelled=np.arange(len(both)) < 200
    )


@pytest.fixture(scope="module")
def model(split):
    made = fit(split, SMALL, unit=Unit("transition"), seed=0, checkpoint=NOWHERE)
    return dataclasses.replace(made, config=WARM_UP)


@pytest.fixture(scope="module")
def judged(split, model):
    """A scores, and what was trained for it."""
    seen = {}
    with pytest.MonkeyPatch.context() as patch:

        def spy(x, rows, *args, **kwargs):
            seen.update(x=x, rows=rows, end=train(x, rows, *args, **kwargs))
            return seen["end"]

        train = fitting.train
        patch.setattr(fitting, "train", spy)
        scores = make_scores(model, split, "hard", seed=0, checkpoint=NOWHERE)
    return scores, seen


def test_every_row_is_judged_at_most_once_and_nearly_all_are(split, judged):
    scores, _ = judged
    for position, wanted in (
        (scores.position_p, split.labelled),
        (scores.position_u, split.unlabelled),
    ):
        assert len(np.unique(position)) == len(position)
        assert np.isin(position, wanted).all()
        assert len(wanted) - len(position) < NUM_FOLDS  # lanes are of one size: a rest is left
    assert scores.score_p.shape == scores.kept_p.shape == scores.position_p.shape
    assert scores.score_u.shape == scores.kept_u.shape == scores.position_u.shape


def test_rows_are_judged_by_the_lane_that_did_not_learn_from_them(model, judged):
    scores, seen = judged
    rows = learners.Rows(*(np.asarray(column) for column in seen["rows"]))
    assert len(rows.held_p) == NUM_FOLDS
    expected = np.full(len(seen["x"]), np.nan, np.float32)
    for k in range(NUM_FOLDS):
        learnt_from = np.concatenate([rows.train_p[k], rows.train_u[k]])
        held = np.concatenate([rows.held_p[k], rows.held_u[k]])
        assert not np.isin(held, learnt_from).any()
        own = jax.tree.map(lambda leaf, k=k: leaf[k : k + 1], seen["end"].state.average)
        [logit] = learners.score_rows(own, seen["x"][held])
        expected[held] = model.probability(logit)
    np.testing.assert_allclose(scores.score_p, expected[scores.position_p], atol=1e-6)
    np.testing.assert_allclose(scores.score_u, expected[scores.position_u], atol=1e-6)


def test_lanes_keep_as_many_of_their_unlabelled_rows_as_the_filter(split, model, judged):
    scores, seen = judged
    held = scores.kept_u.reshape(NUM_FOLDS, -1)
    own = model.logits(split, scores.position_u).reshape(held.shape) >= 0
    np.testing.assert_array_equal(held.sum(axis=1), own.sum(axis=1))
    assert 0 < held.sum() < held.size
    score_u = scores.score_u.reshape(held.shape)
    kept_p = scores.kept_p.reshape(NUM_FOLDS, -1)
    score_p = scores.score_p.reshape(kept_p.shape)
    for lane in range(NUM_FOLDS):
        least = score_u[lane][held[lane]].min()
        assert least > score_u[lane][~held[lane]].max()
        np.testing.assert_array_equal(kept_p[lane], score_p[lane] >= least)
    low, high = scores.alpha.interval
    assert 0 <= low <= scores.alpha.value <= high <= 1
    assert scores.group_p is scores.group_u is None


def test_a_filter_that_keeps_less_is_judged_by_networks_that_keep_less(split, model, judged):
    plain, _ = judged
    logit = model.logits(split, split.unlabelled)
    strict = dataclasses.replace(model, threshold=float(np.quantile(logit, 0.9)))
    less = make_scores(strict, split, "hard", seed=0, checkpoint=NOWHERE)
    assert less.kept_u.mean() == pytest.approx(0.1, abs=0.005)
    assert less.kept_p.mean() < plain.kept_p.mean() - 0.2
    # A third of the rows that are left to find are kept, and a third of the labelled ones.
    assert less.kept_p.mean() == pytest.approx(less.kept_u[less.position_u < 600].mean(), abs=0.1)


def test_top_alpha_keeps_the_filters_number_too(split, model, judged):
    plain, _ = judged
    top = make_scores(model, split, "top_alpha", seed=0, checkpoint=NOWHERE)
    np.testing.assert_array_equal(top.score_u, plain.score_u)
    score = model.probability(model.logits(split, split.unlabelled))
    wanted = split.unlabelled[keep(score, "top_alpha", model.alpha.value)]
    assert top.kept_u.sum() == np.isin(top.position_u, wanted).sum() > 0


HELD = st.integers(1, 4).flatmap(
    lambda lanes: st.tuples(
        st.just(lanes),
        hnp.arrays(np.float32, (lanes, 7), elements=st.floats(-9, 9, width=32)),
        hnp.arrays(np.float32, (lanes, 11), elements=st.floats(-9, 9, width=32), unique=True),
        hnp.arrays(bool, (2, lanes, 11)),
    )
)


@given(HELD)
def test_lanes_are_cut_at_the_number_that_is_kept(drawn):
    lanes, logit_p, logit_u, (some, others) = drawn
    held = HeldOutLogits(logit_p.ravel(), logit_u.ravel())
    kept_p, kept_u = match_keep_rate(held, some.ravel(), lanes)
    more_p, more_u = match_keep_rate(held, (some | others).ravel(), lanes)
    assert (kept_p <= more_p).all()
    assert (kept_u <= more_u).all()
    kept_p, kept_u = kept_p.reshape(lanes, -1), kept_u.reshape(lanes, -1)
    np.testing.assert_array_equal(kept_u.sum(axis=1), some.sum(axis=1))
    for lane in range(lanes):
        for logit, kept in ((logit_p, kept_p), (logit_u, kept_u)):
            assert (logit[lane][kept[lane]][:, None] > logit_u[lane][~kept_u[lane]]).all()
            assert (logit[lane][~kept[lane]][:, None] < logit_u[lane][kept_u[lane]]).all()


def test_where_alpha_is_about_zero_nothing_is_kept(world, model):
    both = Dataset.concatenate([world(400, 0.0, seed=1), world(2_000, 2.0, seed=2)])
    rows = dataclasses.replace(both.rows, episode=None)
    data = dataclasses.replace(both, rows=rows)
    split = PUSplit.from_mask(data, labelled=np.arange(len(both)) < 400)
    empty = fit(split, WARM_UP, unit=Unit("transition"), seed=0, checkpoint=NOWHERE)
    assert empty.alpha.value < 0.02
    assert empty.alpha.low <= 0.001
    score = np.linspace(0, 1, 2_000, dtype=np.float32)
    assert not empty.keep(split, score, "hard").any()
    found = make_scores(empty, split, "hard", seed=0, checkpoint=NOWHERE)
    assert not found.kept_u.any()
    quality = measure_quality(found, rng=np.random.default_rng(0))
    assert not quality.precision_is_known
    # A lower end above 0 says that there are some, however few.
    some = dataclasses.replace(empty, alpha=alpha_estimate(0.01, (0.008, 0.012), method="bbe"))
    assert some.keep(split, score, "hard").any()


def test_a_row_as_high_as_the_least_kept_one_is_kept():
    held = HeldOutLogits(np.array([2.0, 1.9, 7.0, 5.0]), np.array([3.0, 2.0, 1.0, 7.0, 6.0, 5.0]))
    kept = np.array([True, False, True, False, True, False])
    kept_p, kept_u = match_keep_rate(held, kept, 2)
    assert kept_u.tolist() == [True, True, False, True, False, False]
    assert kept_p.tolist() == [True, False, True, False]


def test_rows_without_a_known_end_are_left_out(split, model):
    unknown = np.arange(len(split.pool)) % 50 == 0
    next_obs = np.where(unknown[:, None], np.nan, split.pool.next_obs)
    holes = with_next_obs(split, next_obs, terminal=unknown)
    scores = make_scores(model, holes, "hard", seed=0, checkpoint=NOWHERE)
    assert not unknown[scores.position_p].any()
    assert not unknown[scores.position_u].any()
    assert len(scores.position_u) > (~unknown[split.unlabelled]).sum() - NUM_FOLDS


def test_behaviour_is_judged_by_states_and_actions_alone(split, model, judged):
    scores, _ = judged
    one = cross_fit_behaviour(model, split, "hard", seed=0, checkpoint=NOWHERE, progress=False)
    other = with_next_obs(split, np.random.default_rng(0).normal(size=(1_500, 3)))
    two = cross_fit_behaviour(model, other, "hard", seed=0, checkpoint=NOWHERE, progress=False)
    for field in dataclasses.fields(one):
        np.testing.assert_array_equal(getattr(one, field.name), getattr(two, field.name))
    # One fold of five, and judged anew: dynamics tell these domains apart, behaviour does not.
    assert len(one.position_u) == len(split.unlabelled) // NUM_FOLDS
    for each, low, high in ((scores, 0.9, 1.0), (one, 0.4, 0.6)):
        ours = each.position_u < 600
        higher = each.score_u[ours][:, None] > each.score_u[~ours][None, :]
        assert low < higher.mean() <= high


def test_behaviour_settings_have_nothing_of_the_dynamics():
    for inputs in ("sas", "sars", "sar", "sa"):
        features = dataclasses.replace(SMALL.features, inputs=inputs, standardise=False)
        config = behaviour_config(dataclasses.replace(SMALL, features=features))
        assert config.features == dataclasses.replace(features, inputs="sa")
        assert config.residuals is None
        assert config.network == SMALL.network


@pytest.fixture(scope="module")
def episodes(world):
    both = Dataset.concatenate(
        [world(600, 0.0, seed=1, length=20), world(900, 2.0, seed=2, length=20)]
    )
    return PUSplit.from_mask(both, labelled=np.arange(1_500) < 200, unit="episode")


@pytest.fixture(scope="module")
def over_folds(episodes):
    """A fit whose refit on behaviour is the same program."""
    config = behaviour_config(WARM_UP)
    return fit(episodes, config, unit=Unit("transition"), seed=0, checkpoint=NOWHERE)


def test_a_split_by_episodes_has_held_every_row_out_already(episodes, over_folds, monkeypatch):
    fitted = over_folds
    monkeypatch.setattr(fitting, "train", None)  # nothing is fitted again
    scores = make_scores(fitted, episodes, "hard", seed=0, checkpoint=NOWHERE)
    np.testing.assert_array_equal(scores.position_p, episodes.labelled)
    np.testing.assert_array_equal(scores.position_u, episodes.unlabelled)
    np.testing.assert_array_equal(scores.group_u, episodes.pool.episode[episodes.unlabelled])
    own = fitted.logits(episodes, episodes.unlabelled) >= fitted.threshold
    np.testing.assert_array_equal(scores.kept_u, own)  # no row is in dispute
    for fold in range(NUM_FOLDS):
        mine = episodes.unlabelled_part == fold
        lanes = np.full(mine.sum(), fold)
        logit = fitted.row_logits(episodes.pool.rows[episodes.unlabelled[mine]], lanes)
        np.testing.assert_allclose(scores.score_u[mine], fitted.probability(logit), atol=1e-6)


def test_behaviour_of_a_split_by_episodes_too(episodes, over_folds):
    fitted = dataclasses.replace(over_folds, config=WARM_UP)
    other = with_next_obs(episodes, np.random.default_rng(0).normal(size=(1_500, 3)))
    one, two = (
        cross_fit_behaviour(fitted, each, "hard", seed=0, checkpoint=NOWHERE, progress=False)
        for each in (episodes, other)
    )
    assert len(one.position_u) == len(episodes.unlabelled)
    np.testing.assert_array_equal(one.score_u, two.score_u)
    np.testing.assert_array_equal(one.score_p, two.score_p)


@given(
    score=hnp.arrays(np.float32, st.integers(1, 30), elements=st.floats(0, 1, width=32)),
    alpha=st.floats(0, 1),
)
def test_modes_keep_the_highest_scores(score, alpha):
    for mode in ("hard", "soft"):
        np.testing.assert_array_equal(keep(score, mode, alpha), score >= 0.5)
    top = keep(score, "top_alpha", alpha)
    wanted = int(alpha * len(score))
    assert top.any() == (wanted > 0)
    if 0 < top.sum() < len(score):
        assert score[top].min() > score[~top].max()  # equal scores are not parted
    if wanted > 0:
        possible = [(score >= value).sum() for value in score]
        assert abs(top.sum() - wanted) == min(abs(num - wanted) for num in possible)


def test_equal_scores_are_kept_or_left_together():
    score = np.array([0.2, 0.7, 0.9, 0.7, 0.7], np.float32)
    assert keep(score, "top_alpha", 0.4).tolist() == [False, False, True, False, False]
    assert keep(score, "top_alpha", 0.6).tolist() == [False, True, True, True, True]
    assert keep(score[[1, 3]], "top_alpha", 0.5).tolist() == [True, True]


def test_episodes_stay_together_where_rows_carry_them(world, model):
    both = Dataset.concatenate([world(600, 0.0, seed=1), world(900, 2.0, seed=2)])
    assert both.episode is not None
    split = PUSplit.from_mask(both, labelled=np.isin(both.episode, np.unique(both.episode)[:4]))
    fold, number = cross_fit._folds(split, split.labelled, split.unlabelled, seed=0)
    np.testing.assert_array_equal(number, np.unique(both.episode, return_inverse=True)[1])
    for episode in np.unique(number):
        assert len(np.unique(fold[number == episode])) == 1
    assert set(fold[split.labelled]) == set(fold[split.unlabelled]) == {0, 1, 2, 3}


def test_copies_of_a_row_have_the_fold_of_the_first(world):
    once = world(300, 0.0, seed=1)
    rows = dataclasses.replace(Dataset.concatenate([once] * 3).rows, episode=None)
    split = PUSplit.from_mask(Dataset(rows, {}, once.provenance), np.arange(900) % 300 < 60)
    fold, cluster = cross_fit._folds(split, split.labelled, split.unlabelled, seed=0)
    assert len(np.unique(fold)) == NUM_FOLDS
    assert (fold.reshape(3, 300) == fold[:300]).all()
    assert (cluster.reshape(3, 300) == cluster[:300]).all()


def test_without_target_rows_no_scored_row_is_kept(model):
    held = HeldOutLogits(np.array([3.0, 2.0]), np.array([3.0, -3.0]))
    place = np.arange(2)
    for alpha, kept in (((0.01, (0.0, 0.02)), 0), ((0.01, (0.008, 0.012)), 1)):
        found = dataclasses.replace(model, alpha=alpha_estimate(*alpha, method="bbe"))
        scores = cross_fit._scores(found, place, place, held, None, "hard")
        assert (scores.kept_u.sum(), scores.kept_p.sum()) == (kept, 2 * kept)


def test_many_labels_need_three_folds(world):
    both = world(12_000, 0.0, seed=1)
    rows = dataclasses.replace(both.rows, episode=None)
    data = dataclasses.replace(both, rows=rows)
    few = PUSplit.from_mask(data, labelled=np.arange(len(both)) < 2_999)
    many = PUSplit.from_mask(data, labelled=np.arange(len(both)) < 3_000)
    assert len(np.unique(cross_fit._folds(few, few.labelled, few.unlabelled, seed=0)[0])) == 5
    assert len(np.unique(cross_fit._folds(many, many.labelled, many.unlabelled, seed=0)[0])) == 3


SCORES = st.lists(st.sampled_from([0.0, 0.1, 0.3, 0.5, 0.9, 1.0]), min_size=1, max_size=60)


@given(SCORES, st.floats(0, 1))
def test_top_alpha_keeps_equal_scores_together_and_the_highest_first(scores, alpha):
    score = np.array(scores, np.float32)
    kept = keep(score, "top_alpha", alpha)
    if kept.any() and not kept.all():
        assert score[kept].min() > score[~kept].max()
    assert kept.any() == (int(alpha * len(score)) > 0)


@given(SCORES, st.floats(0, 1))
def test_no_other_cut_comes_nearer_to_the_wanted_number(scores, alpha):
    score = np.array(scores, np.float32)
    wanted = int(alpha * len(score))
    possible = [np.count_nonzero(score >= value) for value in score] if wanted else [0]
    nearest = min(abs(number - wanted) for number in possible)
    assert abs(np.count_nonzero(keep(score, "top_alpha", alpha)) - wanted) == nearest


def test_rows_of_their_own_scores_are_kept_to_the_number():
    score = np.random.default_rng(0).permutation(np.linspace(0, 1, 1000)).astype(np.float32)
    kept = keep(score, "top_alpha", 0.2934)
    assert kept.sum() == 293
    assert score[kept].min() > score[~kept].max()


@pytest.mark.parametrize(("alpha", "units"), [(0.26, 1), (0.37, 1), (0.38, 2), (0.6, 2)])
def test_units_stay_whole(alpha, units):
    """Four units of 100 rows each: the number of rows is rounded to whole units."""
    score = np.repeat(np.array([0.2, 0.8, 0.4, 0.6], np.float32), 100)
    assert keep(score, "top_alpha", alpha).sum() == 100 * units


@pytest.mark.parametrize("mode", ["hard", "soft"])
def test_other_modes_cut_at_one_half(mode):
    score = np.array([0.1, 0.5, 0.49, 0.9], np.float32)
    assert keep(score, mode, 0.01).tolist() == [False, True, False, True]
