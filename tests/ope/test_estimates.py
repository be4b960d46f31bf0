"""Estimators with networks against exact values: a table of codes, and a linear machine."""

import numpy as np
import pytest
import tabular

import puorl
from puorl import ope
from puorl.core.errors import ConfigError, DataError
from puorl.core.stats import Estimate
from puorl.data.dataset import Dataset
from puorl.ope import fitting, offline
from puorl.ope.behaviour import fit_behaviour
from puorl.ope.config import OPEConfig
from puorl.ope.fqe import return_units, value_bounds
from puorl.ope.logged import LoggedEpisodes, draw_lanes
from puorl.ope.rollout import fit_model, return_range, roll_out
from puorl.ope.values import Value, rank

SMALL = {
    "critics": 3, "hidden": (32,), "batch_size": 64, "learning_rate": 1e-3, "updates": 2_000,
    "target_interval": 50, "model_updates": 1_000,
}  # fmt: skip
GAMMA = 0.8


def machine(num_episodes=30, steps=20, seed=0):
    """Log a linear machine without noise of its own, under a noisy controller."""
    rng, rows = np.random.default_rng(seed), []
    for episode in range(num_episodes):
        x = rng.uniform(-1, 1)
        for step in range(steps):
            u = float(np.clip(-0.4 * x + 0.4 * rng.normal(), -1, 1))
            following = 0.8 * x + 0.4 * u
            rows.append((x, u, following, 1.0 - x**2 - 0.1 * u**2, episode, step == steps - 1))
            x = following
    x, u, following, reward, episode, timeout = map(np.array, zip(*rows, strict=True))
    return Dataset.from_arrays(
        obs=x[:, None], action=u[:, None], reward=reward, next_obs=following[:, None],
        episode=episode, timeout=timeout.astype(bool),
    )  # fmt: skip


def controller(gain):
    return lambda obs: np.clip(-gain * np.asarray(obs), -1, 1)


def true_value(data, gain):
    x = data.obs[np.unique(data.episode, return_index=True)[1], 0].astype(float)
    total = np.zeros(len(x))
    for step in range(200):
        u = np.clip(-gain * x, -1, 1)
        total += GAMMA**step * (1.0 - x**2 - 0.1 * u**2)
        x = 0.8 * x + 0.4 * u
    return total.mean()


@pytest.mark.parametrize("ends", [0.0, 0.15])
def test_fitted_q_of_codes_equals_the_exact_value_of_the_logged_frequencies(ends):
    data = tabular.log_rows(60, 15, seed=1, ends=ends)
    seen = ope.evaluate(
        tabular.TablePolicy(tabular.WANTED), data, gamma=GAMMA, estimators=["fqe"],
        **SMALL | {"critics": 1, "updates": 3_000},
    )  # fmt: skip
    exact = tabular.empirical_value(data, tabular.WANTED, GAMMA)
    behaviour = tabular.empirical_value(data, tabular.LOGGED, GAMMA)
    found = seen.values["policy"]["fqe"].estimate
    assert found.value == pytest.approx(exact, abs=0.05)
    assert abs(exact - behaviour) > 0.2  # the test could tell them apart
    assert found.interval is None  # a single critic has no spread


def test_codes_go_through_all_estimators():
    data = tabular.log_rows(60, 12, seed=2)
    policies = {"wanted": tabular.TablePolicy(tabular.WANTED),
                "logged": tabular.TablePolicy(tabular.LOGGED)}  # fmt: skip
    seen = ope.evaluate(policies, data, gamma=GAMMA, **SMALL)
    assert seen.estimators == ["blend", "fqe", "model", "dr", "pdis", "wis"]
    for name in ("fqe", "dr", "pdis"):
        for policy, table in (("wanted", tabular.WANTED), ("logged", tabular.LOGGED)):
            exact = tabular.empirical_value(data, table, GAMMA)
            found = seen.values[policy][name].estimate
            assert found.value == pytest.approx(exact, abs=0.35), (policy, name)
            assert found.low < found.value < found.high
    # Of its own log the logged policy is carried by nearly all episodes.
    assert seen.values["logged"]["pdis"].effective_size > 30
    assert seen.values["wanted"]["wis"].effective_size < 30
    assert seen.outside["logged"] < 0.05
    content = seen.to_dict()
    assert content["kind"] == "offline"
    assert [each["policy"] for each in content["policies"]] == ["wanted", "logged"]


def test_fitted_q_and_model_find_the_values_of_a_linear_machine():
    data = machine()
    gains = {"none": 0.0, "good": 0.9, "bad": -0.4}
    seen = ope.evaluate(
        {name: controller(gain) for name, gain in gains.items()},
        data, gamma=GAMMA, **SMALL,
    )  # fmt: skip
    assert seen.estimators == ["blend", "fqe", "model"]  # a deterministic policy has no density
    for name, gain in gains.items():
        exact = true_value(data, gain)
        for estimator in ("blend", "fqe", "model"):
            # The worst leaves the log a little: its values are 0.55 below those of none.
            assert seen.values[name][estimator].estimate.value == pytest.approx(exact, abs=0.25)
    for estimator in ("fqe", "model"):
        assert seen.ranking(estimator).order == ("good", "none", "bad")
    assert "good" in str(seen)


def test_with_noise_a_deterministic_policy_is_valued_by_weights_too():
    data = machine()
    seen = ope.evaluate(
        controller(0.4), data, gamma=GAMMA, action_noise=0.4,
        estimators=["dr", "pdis", "wis"], **SMALL,
    )  # fmt: skip
    # The logged controller is of this kind.
    exact = seen.behaviour.estimate.value
    for name in ("dr", "pdis"):
        found = seen.values["policy"][name]
        assert found.effective_size > 15
        assert found.estimate.value == pytest.approx(exact, abs=0.2)
    assert seen.values["policy"]["wis"].effective_size < 15  # weights of 20 steps multiply


def test_the_same_seed_gives_the_same_numbers_and_another_gives_others():
    data, options = machine(), SMALL | {"updates": 100, "model_updates": 500}
    seen = [
        ope.evaluate(controller(0.4), data, gamma=GAMMA, seed=seed, **options).to_dict()
        for seed in (0, 0, 1)
    ]
    assert seen[0] == seen[1]
    assert seen[0]["policies"] != seen[2]["policies"]


def test_behaviour_model_tells_what_lies_outside_the_data():
    logged = LoggedEpisodes.of(machine())
    config = ope.OPEConfig(hidden=(32,), batch_size=64, model_updates=1_000)
    fitted = fit_behaviour(logged, draw_lanes(logged.num_episodes, 3, 0), config, seed=0)
    # Before they are cut, actions are normal with mean -0.4 x and deviation 0.4.
    inner = np.abs(logged.action[:, 0]) < 0.9
    z = (logged.action[:, 0] + 0.4 * logged.state[:, 0]) / 0.4
    exact = -0.5 * z**2 - np.log(0.4) - 0.5 * np.log(2 * np.pi)
    error = (fitted.log_density(logged.action) - exact)[inner]
    assert abs(error.mean()) < 0.1
    assert np.abs(error).mean() < 0.25
    assert fitted.outside(logged.action) == pytest.approx(0.01, abs=0.005)
    assert fitted.outside(-0.4 * logged.state.astype(np.float32)) < 0.02
    assert fitted.outside(np.full_like(logged.action, 3.0)) > 0.95


def test_a_policy_outside_the_data_is_doubtful_in_words():
    def far(obs):
        return np.full((len(obs), 1), 4.0)

    options = SMALL | {"updates": 200}
    seen = ope.evaluate(far, machine(), gamma=GAMMA, estimators=["fqe"], **options)
    found = seen.values["policy"]["fqe"]
    assert found.is_doubtful
    assert found.trust.startswith("Do not trust it")
    assert found.effective_size < 3


def test_units_count_what_would_have_followed_a_cut_record():
    reward = np.ones(60)
    obs = np.linspace(0, 1, 60)[:, None]
    ends = {"timeout": np.arange(60) % 20 == 19, "terminal": np.arange(60) % 20 == 19}
    fields = {"obs": obs, "next_obs": obs, "action": obs, "reward": reward}
    for flag, exact in (("timeout", 10.0), ("terminal", None)):
        data = Dataset.from_arrays(**fields, episode=np.arange(60) // 20, **{flag: ends[flag]})
        mean, _ = return_units(LoggedEpisodes.of(data), 0.9)
        if exact is None:  # a task that ends is worth what was logged
            exact = np.mean([(1 - 0.9**n) / 0.1 for n in range(1, 21)])
        assert mean == pytest.approx(exact)


def test_bounds_hold_every_possible_return():
    logged = LoggedEpisodes.of(tabular.log_rows(20, 10, seed=0, ends=0.2), discrete=True)
    low, high = value_bounds(logged, 0.9)
    assert (low, high) == pytest.approx((-5.0, 20.0))
    logged = LoggedEpisodes.of(tabular.log_rows(20, 10, seed=0), discrete=True)
    assert value_bounds(logged, 0.9) == pytest.approx((-5.0, 20.0))


def test_the_range_of_returns_repeats_cut_records_for_ever():
    fields = {
        "obs": np.arange(6.0)[:, None],
        "action": np.zeros((6, 1)),
        "episode": [0] * 3 + [1] * 3,
    }
    ends = np.array([False, False, True] * 2)
    flags = {"terminal": ends & (np.arange(6) < 3), "timeout": ends & (np.arange(6) > 2)}
    rows = Dataset.from_arrays(reward=np.array([1.0, 0, 2, 3, 3, 3]), **fields, **flags)
    low, high = return_range(LoggedEpisodes.of(rows), 0.5)
    assert (low, high) == pytest.approx((1.5 - 0.45, 6.0 + 0.45))


def test_columns_that_switch_or_stand_still_do_not_leave_the_data():
    data, rng = machine(), np.random.default_rng(0)
    switch = rng.integers(0, 2, len(data))
    pairs = (data.obs, switch), (data.rows.next_obs, np.roll(switch, -1))
    columns = [np.column_stack([x, s, np.full(len(data), 7.0)]) for x, s in pairs]
    rows = Dataset.from_arrays(
        obs=columns[0], next_obs=columns[1], action=data.action, reward=data.reward,
        episode=data.episode, timeout=data.timeout,
    )  # fmt: skip
    logged, config = LoggedEpisodes.of(rows), OPEConfig(critics=2, hidden=(8,), model_updates=20)
    model = fit_model(logged, draw_lanes(logged.num_episodes, 2, 0), config, seed=0)
    assert model.switches.tolist() == [False, True, True]
    given = np.broadcast_to(logged.obs, (2, *logged.obs.shape))
    moved, _, _ = model.step(given, rng.normal(size=(2, len(data), 1)).astype(np.float32))
    assert set(np.unique(moved[..., 1])) <= set(np.unique(logged.obs[:, 1]))
    assert (moved[..., 2] == logged.obs[0, 2]).all()


def test_a_roll_out_that_leaves_the_data_is_worth_no_more_than_logged_episodes():
    logged = LoggedEpisodes.of(machine())
    config = OPEConfig(critics=2, hidden=(8,), model_updates=200)
    model = fit_model(logged, draw_lanes(logged.num_episodes, 2, 0), config, seed=0)
    # A machine that runs away, with a reward that it never paid.
    runaway = model._replace(centre=np.array([9.0, 50.0]), rewards=(-99.0, 99.0))
    rolled = roll_out(runaway, logged, controller(0.4), gamma=GAMMA, seed=0)
    assert rolled.outside == pytest.approx(1.0)
    assert rolled.draws == pytest.approx(return_range(logged, GAMMA)[1])
    inside = model._replace(low=model.low - 99, high=model.high + 99, rewards=(9.0, 99.0))
    rolled = roll_out(inside, logged, controller(0.4), gamma=GAMMA, seed=0)
    assert rolled.outside == 0.0
    assert rolled.draws.min() > return_range(logged, GAMMA)[1]


def test_a_roll_out_ends_beyond_an_edge_where_logged_tasks_end():
    """A counter that goes on by 1 until 5, and then falls over the edge."""
    step = np.tile(np.arange(5.0), 12)
    rows = Dataset.from_arrays(
        obs=step[:, None], next_obs=step[:, None] + 1, action=np.zeros((60, 1)), reward=np.ones(60),
        terminal=step == 4, episode=np.arange(60) // 5,
    )  # fmt: skip
    logged = LoggedEpisodes.of(rows)
    config = OPEConfig(critics=2, hidden=(8,), model_updates=20)
    model = fit_model(logged, draw_lanes(12, 2, 0), config, seed=0)
    assert [side.tolist() for side in model.ends] == [[False], [True]]
    given = np.broadcast_to(logged.obs[:5], (2, 5, 1)).astype(np.float32)
    far = model._replace(centre=np.array([9.0, 1.0]), scale=np.array([0.0, 0.0]))
    assert (far.step(given, given)[2] == 0).all()
    back = model._replace(centre=np.array([-9.0, 1.0]), scale=np.array([0.0, 0.0]))
    assert (back.step(given, given)[2] > 0).all()
    rolled = roll_out(far, logged, lambda obs: 0 * obs, gamma=GAMMA, seed=0)
    least = return_range(logged, GAMMA)[0]  # it pays 1 once, and no logged episode paid so little
    assert (rolled.outside, *rolled.draws) == pytest.approx((0, least, least))


@pytest.mark.parametrize(
    ("options", "match"),
    [
        ({"estimators": ["wis"]}, "wis: expected a policy with probabilities.*action_noise="),
        ({"estimators": ["nothing"]}, "expected one of blend"),
        ({"estimators": ["behaviour"]}, "judges no policy"),
        ({"gamma": 1.0}, "gamma: expected 0 or more and less than 1"),
        ({"action_noise": 0.0}, "action_noise: expected a positive number"),
        ({"critic": 5}, "expected settings among critics"),
        ({"updates": 150, "target_interval": 100}, "a multiple of target_interval"),
        ({"updates": 0}, "updates: expected 1 or more"),
    ],
)
def test_what_makes_no_sense_is_refused_with_the_repair(options, match):
    with pytest.raises(ConfigError, match=match):
        ope.evaluate(controller(0.4), machine(4, 4), **options)


def coded(codes, seed=0):
    rng = np.random.default_rng(seed)
    obs = rng.normal(size=(120, 1))
    action = np.array(codes)[rng.integers(len(codes), size=120)]
    reward = (action == "up").astype(float)
    return puorl.Dataset.from_arrays(
        obs=obs, action=action, reward=reward, episode=np.arange(120) // 10
    )


def test_codes_are_compared_by_their_names_and_not_by_their_places():
    policy = puorl.train("bc", coded(("down", "hold", "up")), steps=30, hidden=(8,), batch_size=16)
    small = {"gamma": 0.5, "estimators": ["model"], "model_updates": 40, "hidden": (8,)}
    seen = ope.evaluate(policy, coded(("down", "up")), **small)  # nobody held in this log
    assert np.isfinite(seen.values["policy"]["model"].estimate.value)
    with pytest.raises(DataError, match=r"\(down, hold, up\), got down, hold, left in the log"):
        ope.evaluate(policy, coded(("down", "hold", "left")), **small)


def test_policies_of_several_orders_of_codes_are_not_judged_together():
    small = {"gamma": 0.5, "estimators": ["model"], "model_updates": 40, "hidden": (8,)}
    log, quick = coded(("down", "up")), {"steps": 30, "hidden": (8,), "batch_size": 16}
    one = puorl.train("bc", log, **quick)
    other = puorl.train("bc", log.with_action_codes(("up", "down")), **quick)
    alone = ope.evaluate(other, log, **small)
    assert np.isfinite(alone.values["policy"]["model"].estimate.value)
    with pytest.raises(DataError, match="judge policies of other codes apart"):
        ope.evaluate({"one": one, "other": other}, log, **small)


def test_no_policies_are_refused():
    with pytest.raises(ConfigError, match="one or more policies"):
        ope.evaluate({}, machine(4, 4))


# -------------------------------------------------------------------------------- ranking


def value(mean, draws, doubts=(), vague=False):
    draws = tuple(mean + d for d in draws)
    return Value(Estimate(mean), 10.0, bool(doubts), "", draws, vague, doubts)


def test_the_regret_of_a_choice_is_that_of_the_normal_distribution():
    rng = np.random.default_rng(0)
    draws = rng.normal(size=(2, 4_000))
    found = rank({"a": value(0.0, draws[0]), "b": value(1.0, draws[1])}, "fqe")
    # The difference is normal with mean 1 and deviation sqrt(2): E max(0, -D) in closed form.
    z = 1 / np.sqrt(2)
    from scipy.stats import norm

    exact = np.sqrt(2) * (norm.pdf(z) - z * norm.cdf(-z))
    assert found.regret == pytest.approx(exact, abs=0.03)
    assert found.order == ("b", "a")
    assert found.rivals == ("a",)
    assert "cannot be told from a" in found.sentence


def test_shared_noise_does_not_hide_a_difference():
    noise = np.random.default_rng(0).normal(size=50)
    found = rank({"a": value(0.0, noise), "b": value(0.5, noise)}, "fqe")
    assert found.rivals == ()
    assert found.regret == pytest.approx(0.0, abs=1e-6)
    assert found.sentence.startswith("b is best")


@pytest.mark.parametrize("vague", ["a", "b"])
def test_nothing_is_told_from_a_vague_value(vague):
    noise = np.random.default_rng(0).normal(size=50)
    means = {"a": 0.0, "b": 0.5, "c": -1.0}
    found = rank({k: value(m, noise, vague=k == vague) for k, m in means.items()}, "fqe")
    assert found.order == ("b", "a", "c")
    assert found.rivals == (("a",) if vague == "a" else ("a", "c"))
    assert ("cost about" in found.sentence) == (vague == "a")


def test_a_value_is_vague_if_its_lanes_differ_more_than_logged_episodes():
    log, config = machine(12, 10), OPEConfig(**SMALL)
    run = offline._Run(LoggedEpisodes.of(log), config, 0.0, None, 0)
    assert run.spread == pytest.approx(LoggedEpisodes.of(log).returns(0.0).std())
    alike = LoggedEpisodes.of(log.with_reward("0 * timeout + 3"))
    assert offline._Run(alike, config, 0.0, None, 0).spread == pytest.approx(0.3)
    near, far = (run.spread * scale * np.array([-1, 0, 1]) for scale in (0.1, 1.0))
    clear, vague = (run._value(offline.over_lanes(each), 0.0, each, (), "") for each in (near, far))
    assert (clear.is_vague, clear.is_doubtful) == (False, False)
    assert (vague.is_vague, vague.is_doubtful) == (True, True)
    text = f"its interval reaches {vague.estimate.half_width:,.3g} to either side"
    assert text in vague.trust
    assert f"differ by {run.spread:,.3g} only" in vague.trust
    assert clear.doubts == ()
    assert vague.doubts == (offline._VAGUE,)
    blend = run._blended(clear, vague)
    assert blend.is_doubtful
    assert blend.doubts == (offline._VAGUE,)
    assert "says less than the log" in blend.trust
    far_off = run._value(clear.estimate, 0.9, near, *offline._support(0.9, "Critics guess there"))
    blend = run._blended(far_off, vague)
    assert blend.doubts == (offline._OUTSIDE, offline._VAGUE)
    assert "Do not trust it: in 90% of the states" in blend.trust


def test_a_ranking_says_what_it_does_not_know():
    alone = rank({"a": value(1.0, (), doubts=("few",))}, "fqe")
    assert alone.order == ("a",)
    unsure = rank({"a": value(1.0, (0.0,)), "b": value(2.0, (0.0,))}, "fqe")
    assert np.isnan(unsure.regret)
    assert "nothing says how surely" in unsure.sentence
    doubtful = {"a": value(1.0, (0, 0.1), doubts=("few", "far")), "b": value(0.0, (0, 0.1))}
    assert "a comes first" in rank(doubtful, "fqe").sentence
    assert rank(doubtful, "fqe").sentence.endswith(" Do not trust its value: few; far.")
    others = {"a": value(1.0, (0, 0.1)), "b": value(0.0, (0, 0.1), doubts=("few",))}
    assert rank(others, "fqe").sentence.endswith(" Do not trust 1 value of the others: few.")
    others["c"] = value(-1.0, (0, 0.1), doubts=("few", "far"))
    told = " Do not trust 2 values of the others: few; far (1)."
    assert rank(others, "fqe").sentence.endswith(told)


def test_the_logs_own_return_goes_on_behind_a_cut_as_policies_do():
    data = Dataset.from_arrays(
        obs=np.zeros((9, 1)), action=np.zeros((9, 1)), next_obs=np.zeros((9, 1)),
        reward=np.ones(9), episode=np.repeat([0, 1], [5, 4]),
        terminal=np.arange(9) == 8, timeout=np.arange(9) == 4,
    )  # fmt: skip
    logged = LoggedEpisodes.of(data)
    assert logged.is_cut.tolist() == [True, False]
    assert logged.returns(0.5) == pytest.approx([2.0, 1.875])  # a reward of 1 for ever; 4 steps
    assert logged.returns(0.0) == pytest.approx([1.0, 1.0])


def test_only_an_estimator_that_was_used_can_rank():
    options = SMALL | {"critics": 1, "model_updates": 50}
    seen = ope.evaluate(controller(0.4), machine(4, 4), estimators=["model"], **options)
    assert seen.default == "model"
    with pytest.raises(ConfigError, match="an estimator among model, got 'fqe'"):
        seen.ranking("fqe")
    assert any("only 4 episodes" in note for note in seen.notes)


def test_the_blend_is_the_mean_of_both_and_its_interval_shows_what_parts_them():
    data = tabular.log_rows(60, 12, seed=2)
    policy = tabular.TablePolicy(tabular.WANTED)
    seen = ope.evaluate(policy, data, gamma=GAMMA, estimators=["blend", "fqe", "model"], **SMALL)
    blend, fqe, model = (seen.values["policy"][name] for name in ("blend", "fqe", "model"))
    assert seen.default == "blend"
    both = (fqe.estimate.value, model.estimate.value)
    assert blend.estimate.value == pytest.approx(np.mean(both))
    assert blend.draws == fqe.draws + model.draws
    assert blend.estimate.half_width > abs(both[0] - both[1]) / 2
    alone = ope.evaluate(policy, data, gamma=GAMMA, estimators=["blend"], **SMALL)
    assert alone.estimators == ["blend"]
    assert alone.values["policy"]["blend"].estimate == blend.estimate


def test_the_number_of_cores_changes_no_number(monkeypatch):
    """On a CPU lanes run in threads; each computes what it computes alone."""
    judge = tabular.log_rows(20, 10, seed=1)
    policy = tabular.TablePolicy(tabular.WANTED)
    small = {"gamma": GAMMA, "estimators": ["fqe"], "updates": 40, "hidden": (8,), "critics": 3}
    found = []
    for number in (1, 2, 7):
        monkeypatch.setattr(fitting, "num_threads", lambda _, n=number: n)
        found.append(ope.evaluate(policy, judge, **small).values["policy"]["fqe"].draws)
    assert found[0] == found[1] == found[2]
    assert len(set(found[0])) == 3
