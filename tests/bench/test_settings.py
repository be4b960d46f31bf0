import numpy as np
import pytest

from puorl.bench.results import Reference
from puorl.bench.settings import Setting
from puorl.bench.suites import BODIES, find_suite
from puorl.core.errors import ConfigError
from puorl.envs import behaviour


def test_the_papers_numbers_of_rows():
    setting = Setting("body_mass", "hopper", "ME/R")
    assert (setting.rows, setting.num_target, setting.num_labelled) == (1_000_000, 300_000, 10_000)
    assert Setting("body_mass", "hopper", "ME/R", 0.03).num_labelled == 30_000
    assert setting.name == "hopper/body_mass/ME-R/0.01"


def test_where_rows_come_from():
    target, other = Setting("body_mass", "walker2d", "ME/R").sources
    assert (target.domain, target.quality, target.rows) == ("nominal", "medium-expert", 300_000)
    assert (other.domain, other.quality, other.rows) == ("body_mass", "random", 700_000)


def test_a_mixture_is_half_and_half_and_of_the_others_quality():
    [mass, noise] = Setting("mixture", "hopper", "M/R").others
    assert [(s.domain, s.quality, s.rows, p) for s, p in (mass, noise)] == [
        ("body_mass", "random", 350_000, 0.5),
        ("joint_noise", "random", 350_000, 0.5),
    ]


def test_another_body_and_another_reward():
    [(other, _)] = Setting("entire_body", "halfcheetah", "ME/ME").others
    assert (other.body, other.domain) == ("walker2d", "nominal")
    [(other, _)] = Setting("reward", "hopper", "ME/ME").others
    assert (other.domain, other.policy_domain) == ("reward", "nominal")


def test_short_runs_are_other_rows_and_the_rest_keeps_its_name():
    long, short = (
        Setting("mixture", "hopper", "M/R"),
        Setting("mixture", "hopper", "M/R", horizon=50),
    )
    # Keys of runs and of trainings are made of these: nothing may have been added.
    assert "horizon" not in long.to_dict()
    assert set(long.target.to_dict()) == {
        *("body", "domain", "quality", "rows", "seed", "policy_domain")
    }
    assert short.to_dict() == long.to_dict() | {"horizon": 50}
    assert [source.horizon for source in long.sources] == [None] * 3
    assert [source.horizon for source in short.sources] == [50] * 3
    assert short.target.to_dict() == long.target.to_dict() | {"horizon": 50}


def test_another_version_of_the_policies_is_another_setting_and_version_1_keeps_its_name():
    first = Setting("mixture", "hopper", "M/R")
    later = Setting("mixture", "hopper", "M/R", policy_version=2)
    assert first == Setting("mixture", "hopper", "M/R", policy_version=1)
    assert "policy_version" not in first.to_dict()
    assert later.to_dict() == first.to_dict() | {"policy_version": 2}
    assert [source.policy_version for source in later.sources] == [2] * 3
    assert later.target.to_dict() == first.target.to_dict() | {"policy_version": 2}


def test_a_setting_has_the_standard_version_of_its_own_body(monkeypatch):
    monkeypatch.setitem(behaviour._STANDARD_VERSIONS, "walker2d", 2)
    assert Setting("body_mass", "walker2d", "ME/R").policy_version == 2
    # Rows of HalfCheetah against Walker2d were made with version 1 of both.
    [(other, _)] = Setting("entire_body", "halfcheetah", "ME/ME").others
    assert (other.body, other.policy_version) == ("walker2d", 1)


def test_short_runs_are_collected():
    made = Setting("reward", "hopper", "M/M", 0.05, rows=200, horizon=20).target.collect()
    assert np.bincount(made.episode).tolist() == [20, 20, 20]


def test_a_setting_makes_its_split():
    setting = Setting("reward", "hopper", "M/M", 0.05, rows=200)
    target, other = (source.collect() for source in setting.sources)
    split = setting.split(target, [other])
    assert (len(split.labelled), len(split.unlabelled)) == (10, 190)
    truth = split.reveal("benchmark")
    assert (truth == 0).sum() == 60
    assert split.config["seed"] == 0


@pytest.mark.parametrize(
    ("words", "says"),
    [
        (("wind", "hopper", "ME/R"), "expected one of body_mass, mixture, entire_body, reward"),
        (("body_mass", "cow", "ME/R"), "cow"),
        (("body_mass", "hopper", "ME"), "such as ME/R, got 'ME'"),
        (("body_mass", "hopper", "ME/X"), "such as ME/R, got 'ME/X'"),
    ],
)
def test_what_is_no_setting_is_refused(words, says):
    with pytest.raises(ConfigError, match=says):
        Setting(*words)


def keys(suite):
    return [
        (
            p.learner.name,
            p.setting.shift,
            p.setting.labelled_fraction,
            p.setting.body,
            p.setting.quality,
        )
        for p in suite.parts
    ]


def test_the_suite_paper_is_what_was_published():
    published = set(Reference.load("paper").scores)
    suite = find_suite("paper")
    assert len(suite.parts) == 78
    assert published == {
        (part.setting.name, part.learner.name, method.name)
        for part in suite.parts
        for method in part.methods
    }


def test_paper_is_core_then_more_in_the_order_they_are_wanted():
    paper, core, more = (keys(find_suite(name)) for name in ("paper", "core", "more"))
    assert paper == core + more
    assert {key[:3] for key in core} == {
        ("td3_bc", "body_mass", 0.01),
        ("td3_bc", "entire_body", 0.01),
    }
    stages = list(
        dict.fromkeys(
            "iql" if k[0] == "iql" else "3 %" if k[2] == 0.03 else f"{k[1]} {k[4][0]}" for k in more
        )
    )
    assert stages == ["body_mass M", "mixture M", "iql", "3 %"]
    assert {key[4] for key in more[:6]} == {"M/M", "M/R"}


def test_suites_train_as_the_issue_says():
    budget = find_suite("core").budget
    assert (budget.steps, budget.episodes) == (1_000_000, 10)
    assert (budget.points, budget.curve_episodes) == (5, 3)
    reward = find_suite("reward")
    assert [p.setting.body for p in reward.parts] == list(BODIES)
    [judged] = [m for m in reward.parts[0].methods if m.name == "pu"]
    assert judged.settings == {"features": {"inputs": "sar"}}


def test_the_control_is_the_baselines_home():
    [part] = find_suite("control").parts
    assert part.setting.num_labelled == 100_000
    assert part.setting.rows - part.setting.num_target == 700_000
    assert part.setting.num_target == 100_001  # a split must hide at least one
    labels = [method.label for method in part.methods]
    assert len(set(labels)) == len(labels) == 5


def test_an_unknown_suite_names_the_known():
    with pytest.raises(ConfigError, match="smoke, core, .*, sharing, few, shifts, got 'big'"):
        find_suite("big")


def test_few_rows_of_ours_a_tenth_of_them_labelled():
    suite = find_suite("few")
    sizes = {(p.setting.num_target, p.setting.num_labelled) for p in suite.parts}
    assert sizes == {(3_000, 300), (10_000, 1_000), (30_000, 3_000)}
    assert {p.setting.rows for p in suite.parts} == {1_000_000}
    assert len({p.setting.name for p in suite.parts}) == len(suite.parts) == 18
    labels = [method.label for method in suite.parts[0].methods]
    assert labels[-3:] == ["pu_share-25", "pu_share-50", "pu_share-75"]
    units = {m.name: m.all_settings.get("unit") for m in suite.parts[0].methods}
    assert {name for name, unit in units.items() if unit == "episode"} == {
        *("pu", "pu_dara", "pu_otdf", "pu_share")
    }
    assert {find_suite(name).budget.steps for name in ("few", "sharing", "shifts")} == {200_000}


def test_twelve_shifts_with_policies_of_the_nominal_body():
    suite = find_suite("shifts")
    assert len({(p.setting.shift, p.setting.body) for p in suite.parts}) == len(suite.parts) == 12
    others = [other for part in suite.parts for other, _ in part.setting.others]
    assert {other.policy_domain for other in others} == {"nominal"}
    assert {other.domain for other in others} == {
        *("gravity", "friction", "kinematic", "morphology")
    }


def test_sharing_is_core_and_medium_behaviour_of_the_bodies_that_fall():
    suite = find_suite("sharing")
    assert len(suite.parts) == 12
    assert {p.setting.body for p in suite.parts if p.setting.quality[0:2] == "M/"} == {
        *("hopper", "walker2d")
    }


def test_records_are_cut_without_an_end_and_labelled_whole():
    setting = Setting("body_mass", "hopper", "R/R", 0.05, 2_000, 0.5, record=10)
    target, other = (source.collect() for source in setting.sources)
    split = setting.split(target, [other])
    pool = split.pool
    sizes = np.bincount(pool.episode)
    assert sizes.max() == 10
    assert abs(len(split.labelled) - 100) <= 20
    labelled = np.isin(pool.episode, pool.episode[split.labelled])
    assert np.array_equal(np.flatnonzero(labelled), np.sort(split.labelled))
    last = np.flatnonzero(np.append(np.diff(pool.episode) != 0, True))
    ended = pool.terminal[last] | pool.timeout[last]
    assert ended.all()
    inside = np.setdiff1d(np.arange(len(pool)), last)
    assert not (pool.terminal | pool.timeout)[inside].any()
    # Within a record each row follows the one before.
    np.testing.assert_array_equal(pool.next_obs[inside], pool.obs[inside + 1])
    assert setting.to_dict()["record"] == 10
    assert "record" not in Setting("body_mass", "hopper", "R/R").to_dict()
