import dataclasses
import json

import numpy as np
import pytest

from puorl.core.errors import ConfigError, DataError, NotFittedError
from puorl.core.files import read_json
from puorl.data.dataset import Dataset
from puorl.data.split import PUSplit
from puorl.pu import filter as filter_module
from puorl.pu.config import (
    FeatureConfig,
    FilterConfig,
    NetworkConfig,
    ResidualConfig,
    preset_config,
)
from puorl.pu.filter import DomainFilter

SMALL = FilterConfig(
    network=NetworkConfig(hidden=(32, 32), batch_size=64),
    residuals=ResidualConfig(hidden=(32, 32), num_steps=500, batch_size=64),
    num_main=30,
)


@pytest.fixture(scope="module")
def fitted(clear_split):
    return DomainFilter(config=SMALL).fit(clear_split, seed=0)


def truth(split):
    return split.reveal("scoring")[split.unlabelled] == 0


def test_rows_are_told_apart_and_alpha_is_found(clear_split, fitted):
    is_target = truth(clear_split)
    assert (fitted.predict(clear_split) == is_target).mean() > 0.97
    assert fitted.alpha_.value == pytest.approx(is_target.mean(), abs=0.03)
    low, high = fitted.alpha_.interval
    assert low <= fitted.alpha_.value <= high
    assert fitted.alpha_history_.shape == (40, 1)


def test_scores_are_probabilities_in_the_order_of_the_unlabelled_rows(clear_split, fitted):
    score = fitted.predict_proba(clear_split)
    assert score.shape == clear_split.unlabelled.shape
    assert ((score >= 0) & (score <= 1)).all()
    is_target = truth(clear_split)
    assert score[is_target].mean() > 0.9 > 0.1 > score[~is_target].mean()


def test_a_row_is_decided_from_that_row_alone(clear_split, fitted):
    order = np.random.default_rng(0).permutation(len(clear_split.pool))
    pool = clear_split.pool[order]
    back = np.argsort(order)
    mask = np.zeros(len(pool), bool)
    mask[back[clear_split.labelled]] = True
    shuffled = PUSplit.from_mask(pool, labelled=mask)
    ours = dict(zip(order[shuffled.unlabelled], fitted.predict_proba(shuffled), strict=True))
    again = np.array([ours[i] for i in clear_split.unlabelled])
    np.testing.assert_allclose(again, fitted.predict_proba(clear_split), atol=1e-6)


def test_same_seed_same_filter_other_seed_another(clear_split, fitted):
    again = DomainFilter(config=SMALL).fit(clear_split, seed=0)
    np.testing.assert_array_equal(
        again.predict_proba(clear_split), fitted.predict_proba(clear_split)
    )
    other = DomainFilter(config=SMALL).fit(clear_split, seed=1)
    assert not np.array_equal(other.predict_proba(clear_split), fitted.predict_proba(clear_split))


def test_modes(clear_split, fitted):
    hard = fitted.filter(clear_split)
    assert set(clear_split.labelled) <= set(hard.rows)
    assert len(hard) == len(clear_split.labelled) + fitted.predict(clear_split).sum()
    assert hard.weight is None
    assert hard.returns == clear_split.returns
    assert len(hard.dataset) == len(hard)
    top = DomainFilter("default", mode="top_alpha", config=SMALL).fit(clear_split, seed=0)
    kept = top.predict(clear_split)
    assert kept.sum() == int(top.alpha_.value * len(kept))
    assert top.predict_proba(clear_split)[kept].min() >= top.predict_proba(clear_split)[~kept].max()
    soft = DomainFilter("default", mode="soft", config=SMALL).fit(clear_split, seed=0)
    every = soft.filter(clear_split)
    assert len(every) == len(clear_split.pool)
    assert (every.weight[: len(clear_split.labelled)] == 1).all()


def test_a_dataset_with_labels_is_fitted_as_its_split(clear_split, fitted):
    mask = np.isin(np.arange(len(clear_split.pool)), clear_split.labelled)
    by_mask = DomainFilter(config=SMALL).fit(clear_split.pool, mask, seed=0)
    split = PUSplit.from_mask(clear_split.pool, mask, seed=0)
    by_split = DomainFilter(config=SMALL).fit(split, seed=0)
    np.testing.assert_array_equal(by_mask.filter().rows, by_split.filter(split).rows)
    assert by_mask.report().verdict == by_split.report(split).verdict
    with pytest.raises(ConfigError, match="labels with a Dataset only"):
        DomainFilter().fit(split, mask)
    with pytest.raises(ConfigError, match="expected a Dataset or a PUSplit, got str; read files"):
        DomainFilter().fit("rows.csv")


def test_parameters_are_those_of_scikit_learns_estimators(fitted):
    flt = DomainFilter("thorough", mode="soft", config=SMALL)
    params = flt.get_params()
    assert DomainFilter(**params).get_params() == params
    assert all(DomainFilter(**params).get_params()[name] is params[name] for name in params)
    assert flt.set_params(mode="hard", unit="episode") is flt
    assert (flt.mode, flt.unit, flt.preset) == ("hard", "episode", "thorough")
    with pytest.raises(ConfigError, match="set_params.*modus"):
        flt.set_params(modus="hard", preset="paper")
    assert flt.preset == "thorough"
    assert repr(DomainFilter()) == "DomainFilter()"
    assert repr(flt) == (
        "DomainFilter(preset='thorough', unit='episode', config=FilterConfig(...))"
    )
    assert repr(fitted).startswith("DomainFilter(config=FilterConfig(...), fitted: alpha ")


def test_scikit_learn_clones_a_filter(fitted):
    base = pytest.importorskip("sklearn.base")
    copy = base.clone(fitted)
    assert copy.get_params() == fitted.get_params()
    with pytest.raises(NotFittedError):
        copy.filter()


def test_saved_filter_scores_alike(tmp_path, clear_split, fitted):
    fitted.save(tmp_path / "f")
    back = DomainFilter.load(tmp_path / "f")
    np.testing.assert_array_equal(
        back.predict_proba(clear_split), fitted.predict_proba(clear_split)
    )
    assert (back.alpha_, back.config, back.mode) == (fitted.alpha_, fitted.config, fitted.mode)
    with pytest.raises(DataError, match="already exists"):
        fitted.save(tmp_path / "f")
    (tmp_path / "f" / "filter.json").write_text(json.dumps({"puorl_filter": 1}))
    with pytest.raises(DataError, match="version 2"):
        DomainFilter.load(tmp_path / "f")


def test_identical_domains_look_like_nearly_all_ours(same_split):
    fitted = DomainFilter(config=SMALL).fit(same_split, seed=0)
    assert fitted.alpha_.value > 0.7


def test_episode_split_is_cross_fitted(episode_split):
    fitted = DomainFilter(config=SMALL).fit(episode_split, seed=0)
    assert fitted.alpha_history_.shape[1] == 5  # a lane for each fold
    assert (fitted.predict(episode_split) == truth(episode_split)).mean() > 0.95


def test_known_rows_are_kept_and_alpha_is_of_the_rest(episode_split):
    # One row in five of each labelled episode keeps its label: the others are known.
    pool = episode_split.pool
    mask = np.zeros(len(pool), bool)
    mask[episode_split.labelled[::5]] = True
    split = PUSplit.from_mask(pool, labelled=mask)
    top = DomainFilter(mode="top_alpha", unit="episode", evidence="rows", config=SMALL).fit(
        split, seed=0
    )
    kept = top.predict(split)
    known = np.isin(pool.episode, pool.episode[split.labelled])[split.unlabelled]
    assert known.any()
    assert kept[known].all()
    length = int(np.bincount(pool.episode).max())
    assert abs(kept[~known].sum() - top.alpha_.value * (~known).sum()) <= length / 2 + 1


def test_one_sample_and_two_sample_data(clear_split, world):
    # The same rows, once cut from the pool and once beside it: alpha is of the given U in both.
    is_target = clear_split.reveal("scoring") == 0
    mask = np.zeros(len(clear_split.pool), bool)
    mask[clear_split.labelled] = True
    pool = clear_split.pool
    one = PUSplit.from_mask(pool, labelled=mask, sampling="one")
    fresh = world(600, 0.0, seed=9)
    both = Dataset.concatenate([fresh, pool])
    two = PUSplit.from_mask(both, labelled=np.arange(len(both)) < len(fresh), sampling="two")
    for split, alpha in ((one, is_target[~mask].mean()), (two, is_target.mean())):
        found = DomainFilter(config=SMALL).fit(split, seed=0).alpha_
        assert found.value == pytest.approx(alpha, abs=0.03)


def test_rows_without_a_known_end_are_not_judged(world):
    ours, others = world(2_000, 0.0, seed=1), world(4_000, 2.0, seed=2)
    both = Dataset.concatenate([ours, others])
    next_obs, terminal = both.next_obs.copy(), both.terminal.copy()
    next_obs[::50], terminal[::50] = np.nan, True
    data = Dataset.from_arrays(
        obs=both.obs, action=both.action, next_obs=next_obs, terminal=terminal, timeout=both.timeout
    )
    split = PUSplit.from_mask(data, labelled=np.arange(len(data)) < 500)
    fitted = DomainFilter(config=SMALL).fit(split, seed=0)
    score = fitted.predict_proba(split)
    unknown = ~data.rows.next_known[split.unlabelled]
    assert unknown.sum() == 110
    np.testing.assert_allclose(score[unknown], fitted.alpha_.value, rtol=1e-6)
    assert np.isfinite(score).all()


def test_other_reward_is_seen_with_rewards_only(world):
    ours, others = world(3_000, 0.0, seed=1), world(6_000, 0.0, seed=2)
    reward = np.concatenate([ours.reward, others.reward + 3.0])
    both = Dataset.concatenate([ours, others])
    data = Dataset.from_arrays(
        obs=both.obs, action=both.action, next_obs=both.next_obs, reward=reward
    )
    labelled = np.arange(len(data)) < 600
    split = PUSplit.from_mask(data, labelled=labelled)
    is_target = (np.arange(len(data)) < 3_000)[split.unlabelled]
    config = FilterConfig(features=FeatureConfig(inputs="sar"), network=SMALL.network, num_main=30)
    right = DomainFilter(config=config).fit(split, seed=0)
    assert (right.predict(split) == is_target).mean() > 0.97


@pytest.mark.parametrize(
    ("change", "error", "message"),
    [
        ({"preset": "best"}, ConfigError, "default, thorough, robots, paper"),
        ({"mode": "half"}, ConfigError, "hard, top_alpha, soft"),
        ({"alpha_estimator": "km2"}, ConfigError, "alpha_estimator: expected one of bbe, en"),
        ({"config": FilterConfig(learner="svm")}, ConfigError, "tedn, nnpu, upu, pvu"),
    ],
)
def test_unknown_choices(clear_split, change, error, message):
    with pytest.raises(error, match=message):
        DomainFilter(**change).fit(clear_split)


def test_what_cannot_be_fitted(clear_split, world):
    with pytest.raises(NotFittedError, match="call fit"):
        DomainFilter().predict_proba(clear_split)
    few = PUSplit.from_mask(world(100, 0.0, seed=0), labelled=np.arange(100) < 5)
    with pytest.raises(DataError, match="at least 20 labelled rows"):
        DomainFilter().fit(few)
    flat = Dataset.from_arrays(
        obs=np.ones((100, 2)), action=np.ones((100, 1)), next_obs=np.ones((100, 2))
    )
    with pytest.raises(DataError, match="expected columns that vary"):
        DomainFilter().fit(PUSplit.from_mask(flat, labelled=np.arange(100) < 50))


def test_other_data_is_refused(clear_split, fitted):
    wide = Dataset.from_arrays(obs=np.zeros((50, 7)), action=np.zeros((50, 1)))
    split = PUSplit.from_mask(wide, labelled=np.arange(len(wide)) < 20)
    with pytest.raises(DataError, match="expected 3 state and 2 action components.* got 7 and 1"):
        fitted.predict_proba(split)
    older = DomainFilter.of(dataclasses.replace(fitted.model_, named=None))
    with pytest.raises(DataError, match="expected rows with 8 inputs"):
        older.predict_proba(split)


def test_rows_are_scored_by_the_names_of_their_columns(tmp_path, clear_split, fitted):
    columns = fitted.model_.named._replace(obs_names=tuple("abc"))
    DomainFilter.of(dataclasses.replace(fitted.model_, named=columns)).save(tmp_path / "f")
    back, data = DomainFilter.load(tmp_path / "f"), clear_split.pool[:500]

    def turned(names):
        order = ["abc".index(name) for name in "cab"]
        rows = dataclasses.replace(
            data.rows, obs=data.obs[:, order], next_obs=data.next_obs[:, order]
        )
        origin = dataclasses.replace(data.provenance, obs_names=tuple(names))
        return Dataset(rows, {}, origin)

    np.testing.assert_array_equal(back.predict_proba(turned("cab")), fitted.predict_proba(data))
    assert not np.allclose(back.predict_proba(turned("")), fitted.predict_proba(data))
    with pytest.raises(DataError, match="obs: expected the columns that the filter was fitted on"):
        back.predict_proba(turned("cax"))


@pytest.mark.parametrize("name", ["en", "scott", "dedpul"])
def test_the_estimator_of_alpha_can_be_chosen(clear_split, fitted, name, tmp_path):
    other = DomainFilter(config=SMALL, alpha_estimator=name).fit(clear_split, seed=0)
    assert (other.alpha_.method, fitted.alpha_.method) == (name, "bbe")
    low, high = other.alpha_.interval
    assert low <= other.alpha_.value <= high
    assert other.alpha_.value == pytest.approx(truth(clear_split).mean(), abs=0.05)
    np.testing.assert_array_equal(other.alpha_history_, fitted.alpha_history_)
    other.save(tmp_path / "f")
    assert DomainFilter.load(tmp_path / "f").config.alpha_estimator == name


@pytest.mark.parametrize(
    ("settings", "may_choose"),
    [
        ({}, True),
        ({"config": SMALL}, True),
        ({"preset": "paper"}, False),
        ({"preset": "paper", "config": SMALL}, False),
        ({"config": preset_config("paper")}, False),
        ({"alpha_estimator": "bbe"}, False),
        ({"config": SMALL.changed({"alpha_estimator": "en"})}, False),
    ],
)
def test_what_was_asked_for_is_not_replaced_by_a_fit_without_rejection(
    clear_split, fitted, monkeypatch, settings, may_choose
):
    asked = []

    def fit(*arguments, choose, **named):
        asked.append(choose)
        return fitted.model_

    monkeypatch.setattr(filter_module, "fit", fit)
    DomainFilter(**settings).fit(clear_split, seed=0)
    assert asked == [may_choose]


def test_filters_that_were_saved_with_an_interval_are_read(tmp_path, clear_split, fitted):
    fitted.save(tmp_path / "f")
    path = tmp_path / "f" / "filter.json"
    content = read_json(path)
    alpha = content["alpha"]
    content["alpha"] = {
        "value": alpha["value"],
        "interval": [alpha["low"], alpha["high"]],
        "method": alpha["method"],
    }
    path.write_text(json.dumps(content))
    assert DomainFilter.load(tmp_path / "f").alpha_ == fitted.alpha_


def test_a_filter_by_rows_has_no_machines(clear_split, fitted):
    for name in ("units_", "recall_", "verdict_"):
        with pytest.raises(ConfigError, match=f"{name}: expected a filter that decides by dyn"):
            getattr(fitted, name)
    with pytest.raises(ConfigError, match="predict_units: expected a filter that decides by dyn"):
        fitted.predict_units(clear_split.pool)


def test_a_loaded_filter_asks_for_its_split_and_refuses_another(
    tmp_path, clear_split, same_split, fitted
):
    fitted.save(tmp_path / "filter")
    loaded = DomainFilter.load(tmp_path / "filter")
    for method in (loaded.filter, loaded.report):
        with pytest.raises(DataError, match="expected the split that the filter was fitted on"):
            method()
    with pytest.raises(DataError, match="report: expected the split that the filter was fitted on"):
        loaded.report(same_split)
    np.testing.assert_array_equal(loaded.filter(clear_split).rows, fitted.filter(clear_split).rows)
