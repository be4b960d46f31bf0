import dataclasses

import numpy as np
import pytest

from puorl.core.errors import ConfigError, DataError
from puorl.data.dataset import Dataset
from puorl.data.split import PUSplit, make_split
from puorl.pu import model_choice
from puorl.pu.classifier import NetworkConfig
from puorl.pu.config import FilterConfig
from puorl.pu.features import FeatureConfig
from puorl.pu.filter import DomainFilter
from puorl.pu.learning import learn
from puorl.pu.model_choice import choose
from puorl.pu.mpe.estimate import AlphaEstimate

NETWORK = NetworkConfig(hidden=(32,), batch_size=64)
GOOD = FilterConfig(residuals=None, network=NETWORK, num_main=15)
HASTY = FilterConfig(
    features=FeatureConfig(difference=False, standardise=False),
    residuals=None,
    network=NETWORK,
    num_warm_up=1,
    num_main=0,
)


def is_target(split, positions):
    return split.reveal("scoring")[positions] == 0


@pytest.fixture
def fits(monkeypatch):
    """What `choose` has learnt, by its settings."""
    made = {}

    def remembered(split, config, **settings):
        made[config] = learn(split, config, **settings)
        return made[config]

    monkeypatch.setattr(model_choice, "learn", remembered)
    return made


def test_the_more_accurate_filter_is_chosen_and_the_risk_is_its_error(clear_split, fits):
    choice = choose(clear_split, {"hasty": HASTY, "good": GOOD})
    truth = is_target(clear_split, clear_split.unlabelled)
    held = clear_split.unlabelled_part == 2
    wrong = {}
    for row, config in zip(choice.table, (HASTY, GOOD), strict=True):
        kept = DomainFilter.of(fits[config]).predict(clear_split)
        wrong[row.name] = (kept != truth)[held].mean()
        assert row.alpha == fits[config].alpha.value
        assert row.kept_share == pytest.approx(kept[held].mean())
        # alpha may be off by 0.03, as elsewhere; the held-out rows add their own chance.
        assert row.risk == pytest.approx(wrong[row.name], abs=0.03 + 3 * row.error)
    assert wrong["good"] < wrong["hasty"] - 0.2
    assert choice.best == "good"
    assert choice.filter.config == GOOD
    np.testing.assert_array_equal(
        choice.filter.predict(clear_split), DomainFilter.of(fits[GOOD]).predict(clear_split)
    )


def test_units_are_compared_on_rows_their_lane_held_out(world):
    split = make_split(
        world(2_000, 0.0, seed=1),
        world(3_500, 2.0, seed=2),
        rows=5_000,
        labelled_share=0.1,
        unit="episode",
        seed=0,
    )
    choice = choose(split, {"hasty": HASTY, "good": GOOD}, unit="episode")
    truth = is_target(split, split.unlabelled)
    assert choice.best == "good"
    assert choice.filter.unit == "episode"
    assert (choice.filter.predict(split) == truth).mean() > 0.95
    assert choice.table[1].risk == pytest.approx(0, abs=0.05)


class Stub:
    """Stands for a fit: logits over the pool that were made by hand."""

    def __init__(self, logit, alpha, unit="transition"):
        self.logit, self.unit, self.config = np.asarray(logit, np.float32), unit, FilterConfig()
        self.alpha = AlphaEstimate(alpha, None, "bbe")

    def held_out_logits(self, split, positions):
        return self.logit[positions]

    def probability(self, logit):
        return np.where(np.isnan(logit), self.alpha.value, logit > 0)


@pytest.fixture
def choose_of(monkeypatch):
    """`choose` over stubs instead of fits."""

    def chosen(split, stubs, **settings):
        coming = iter(stubs.values())
        monkeypatch.setattr(model_choice, "learn", lambda *_, **__: next(coming))
        return choose(split, dict.fromkeys(stubs, FilterConfig()), **settings)

    return chosen


def decided(split, recall, false_alarm, seed=0):
    """Logits of a filter that keeps these shares of the target's rows and of the others."""
    rng = np.random.default_rng(seed)
    kept = np.where(is_target(split, np.arange(len(split.pool))), recall, false_alarm)
    return np.where(rng.random(len(kept)) < kept, 1.0, -1.0)


def alpha_of(split):
    return is_target(split, split.unlabelled).mean()


@pytest.mark.parametrize(("recall", "false_alarm"), [(0.99, 0.01), (0.7, 0.05), (0.95, 0.4)])
def test_with_the_true_alpha_the_risk_is_one_minus_accuracy(
    clear_split, choose_of, recall, false_alarm
):
    alpha = alpha_of(clear_split)
    expected = alpha * (1 - recall) + (1 - alpha) * false_alarm
    off = []
    for seed in range(40):
        logit = decided(clear_split, recall, false_alarm, seed)
        [row] = choose_of(clear_split, {"only": Stub(logit, alpha)}).table
        off.append((row.risk - expected) / row.error)
    # Standardised errors of 40 draws: a mean within 3.2 / sqrt(40), a spread near one. Which rows
    # are the target's is fixed here, so that the spread may be smaller, not larger.
    assert abs(np.mean(off)) < 0.55
    assert np.std(off) < 1.35


def test_all_are_given_the_smallest_alpha_and_a_bias_keeps_the_order_at_equal_recall(
    clear_split, choose_of
):
    worse, better = (decided(clear_split, 0.95, wrong) for wrong in (0.3, 0.02))
    for alphas in ((0.9, 0.6), (0.6, 0.9)):
        stubs = {"worse": Stub(worse, alphas[0]), "better": Stub(better, alphas[1])}
        choice = choose_of(clear_split, stubs)
        assert choice.best == "better"
        for row in choice.table:
            assert row.risk == pytest.approx(1.2 * (1 - row.recall) + row.kept_share - 0.6)
        assert [row.alpha for row in choice.table] == list(alphas)


def test_ties_go_to_the_earlier_name(clear_split, choose_of):
    logit, alpha = decided(clear_split, 0.95, 0.02), alpha_of(clear_split)
    almost = logit.copy()
    almost[clear_split.unlabelled[clear_split.unlabelled_part == 2][0]] *= -1
    for first, second in ((logit, almost), (almost, logit), (logit, logit)):
        choice = choose_of(clear_split, {"b": Stub(first, alpha), "a": Stub(second, alpha)})
        assert choice.best == "b"
    # A clear difference is no tie, whatever stands first.
    bad = Stub(decided(clear_split, 0.95, 0.1), alpha)
    assert choose_of(clear_split, {"bad": bad, "good": Stub(logit, alpha)}).best == "good"


def test_rows_that_one_candidate_cannot_judge_count_for_none(clear_split, choose_of):
    logit, alpha = decided(clear_split, 0.95, 0.02), alpha_of(clear_split)
    blind = logit.copy()
    test_p, test_u = clear_split.part("test")
    blind[test_p[::2]] = blind[test_u[::3]] = np.nan
    rows = choose_of(clear_split, {"a": Stub(logit, alpha), "b": Stub(blind, alpha)}).table
    assert rows[0] == dataclasses.replace(rows[1], name="a")
    seen = np.isfinite(blind[test_u])
    assert rows[0].kept_share == pytest.approx((logit[test_u][seen] > 0).mean())
    blind[test_p] = np.nan
    with pytest.raises(DataError, match="got 0 labelled and"):
        choose_of(clear_split, {"a": Stub(logit, alpha), "b": Stub(blind, alpha)})


def test_episodes_that_agree_within_themselves_widen_the_error(world, choose_of):
    split = make_split(
        world(4_000, 0.0, seed=1),
        world(7_000, 2.0, seed=2),
        rows=10_000,
        labelled_share=0.1,
        unit="episode",
        seed=0,
    )
    rng, episode = np.random.default_rng(0), split.pool.episode
    alike = np.where(rng.random(episode.max() + 1) < 0.5, 1.0, -1.0)[episode]
    mixed = rng.permutation(alike)
    errors = [choose_of(split, {"a": Stub(each, 0.3)}).table[0].error for each in (alike, mixed)]
    assert errors[0] > 5 * errors[1]  # episodes of 100 rows: ten times in theory


def test_a_column_as_unit_takes_known_units_as_labelled(world, choose_of):
    data = world(2_000, 0.0, seed=1)
    robot = np.arange(2_000) // 100
    data = Dataset(data.rows, {"robot": robot}, data.provenance)
    split = PUSplit.from_mask(data, labelled=(robot < 8) & (np.arange(2_000) % 2 == 0))
    logit = np.where(robot < 4, 1.0, -1.0)
    [row] = choose_of(split, {"a": Stub(logit, 0.3, "column:robot")}, unit="column:robot").table
    assert (row.recall, row.kept_share) == (0.5, 0.0)


def test_what_cannot_be_chosen_from(clear_split):
    with pytest.raises(ConfigError, match="at least one candidate"):
        choose(clear_split, {})
    with pytest.raises(ConfigError, match="tedn, nnpu, upu, pvu"):
        choose(clear_split, {"good": GOOD, "typo": FilterConfig(learner="tedm")})
