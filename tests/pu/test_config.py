import dataclasses
import json

import pytest

from puorl.core.errors import ConfigError
from puorl.pu.config import PRESETS, FeatureConfig, FilterConfig
from puorl.pu.learners import LEARNERS, make_recipe


def through_json(config):
    return FilterConfig.from_dict(json.loads(json.dumps(config.to_dict())))


@pytest.mark.parametrize("name", PRESETS)
def test_presets_survive_a_trip_through_json(name):
    back = through_json(PRESETS[name])
    assert back == PRESETS[name]
    # Equal programs are compiled once: settings are keys.
    assert hash(back) == hash(PRESETS[name])


def test_settings_of_ones_own_survive_too():
    own = FilterConfig(
        learner="nnpu",
        features=FeatureConfig(inputs="sars", difference=False),
        residuals=None,
        bbe_constant=2.0,
        num_warm_up=3,
        num_main=0,
        exact_ranking=True,
        alpha_estimator="scott",
    )
    assert through_json(own) == own


@pytest.mark.parametrize("name", LEARNERS)
def test_a_recipe_is_the_learners_own_but_for_what_is_set(name):
    own = LEARNERS[name]
    assert make_recipe(FilterConfig(learner=name, bbe_constant=own.bbe_constant)) == own
    assert make_recipe(FilterConfig(learner=name)).num_epochs == own.num_warm_up + own.num_main
    changed = FilterConfig(learner=name, bbe_constant=2.5, num_warm_up=2, num_main=0)
    expected = dataclasses.replace(own, bbe_constant=2.5, num_warm_up=2, num_main=0)
    assert make_recipe(changed) == expected
    assert make_recipe(changed).num_epochs == 2


def test_exact_ranking_ranks_all_rows():
    recipe = make_recipe(FilterConfig(exact_ranking=True))
    assert recipe.rank_sample is None
    assert recipe.alpha_sample is None
    assert make_recipe(FilterConfig()).rank_sample is not None


@pytest.mark.parametrize(
    ("change", "message"),
    [
        ({"learner": "svm"}, "expected one of tedn, nnpu, upu, pvu, got 'svm'"),
        ({"num_warm_up": 0}, "at least one of warm-up"),
        ({"num_main": -1}, "none or more of main"),
    ],
)
def test_impossible_settings(change, message):
    with pytest.raises(ConfigError, match=message):
        make_recipe(FilterConfig(**change))


def test_settings_from_before_the_choice_of_an_estimator_have_the_same_hash():
    assert "alpha_estimator" not in FilterConfig().to_dict()
    assert FilterConfig(alpha_estimator="en").to_dict()["alpha_estimator"] == "en"
    with pytest.raises(ConfigError, match="alpha_estimator: expected one of bbe, en"):
        FilterConfig(alpha_estimator="km2")  # pyright: ignore[reportArgumentType]
