from dataclasses import replace

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from puorl.core.errors import DataError
from puorl.pu.alpha import alpha_estimate, bbe, bootstrap_interval
from puorl.pu.checks import quality as module
from puorl.pu.checks.auroc import HeldOutScores
from puorl.pu.checks.quality import estimates_agree, measure_quality, of_filter, second_alpha
from puorl.pu.cross_fit import match_keep_rate
from puorl.pu.fitting import HeldOutLogits


def truth(drawn):
    """Recall and precision over the unlabelled rows."""
    kept = drawn.scores.kept_u
    right = np.count_nonzero(kept[: drawn.num_target])
    return right / drawn.num_target, right / np.count_nonzero(kept)


def covered(draw, num_draws, gap, **settings):
    """Share of draws whose intervals hold recall, precision, and precision from above."""
    hits = np.zeros(3)
    for seed in range(num_draws):
        rng = np.random.default_rng([seed, round(gap * 10)])
        drawn = draw(rng, gap, **settings)
        quality = measure_quality(drawn.scores, rng=rng)
        recall, precision = truth(drawn)
        hits += [
            quality.recall.low <= recall <= quality.recall.high,
            quality.precision.low <= precision <= quality.precision.high,
            precision <= quality.precision.high,
        ]
    return hits / num_draws


@pytest.mark.parametrize("gap", [6, 4])
def test_intervals_cover_where_domains_part(draw, gap):
    recall, precision, _ = covered(draw, 60, gap)
    assert recall >= 0.85
    assert precision >= 0.9


def test_precision_is_bounded_from_above_where_domains_overlap(draw):
    recall, _, bounded = covered(draw, 60, 2)
    assert recall >= 0.85
    assert bounded >= 0.9


def test_intervals_cover_with_groups(draw):
    recall, precision, _ = covered(draw, 60, 4, num_p=2000, size=50)
    assert recall >= 0.85
    assert precision >= 0.9


def test_rows_taken_as_independent_would_be_overconfident(draw):
    rng = np.random.default_rng(0)
    judged = draw(rng, 2, num_p=2000, size=50).scores
    grouped = measure_quality(judged, rng=rng).recall
    alone = measure_quality(replace(judged, group_p=None, group_u=None), rng=rng).recall
    assert grouped.high - grouped.low > 1.5 * (alone.high - alone.low)


def fits(rng, *, num_p=1000, num_u=20_000, gap=4.0, likeness=0.9):
    """A filter and five networks that judge: alike in what they see, each with a cut of its own."""
    num_target = round(0.3 * num_u)
    seen = rng.normal(size=num_p + num_u) + gap * (np.arange(num_p + num_u) < num_p + num_target)
    lane = np.concatenate([np.arange(num_p) * 5 // num_p, np.arange(num_u) * 5 // num_u])
    order = np.concatenate([np.arange(num_p), num_p + rng.permutation(num_u)])
    seen, is_target = seen[order], order < num_p + num_target

    def network():
        own = rng.normal(size=len(seen))
        cut = gap / 2 + 0.5 * rng.normal()
        return likeness * seen + np.sqrt(1 - likeness**2) * own - cut

    decided = network()[num_p:] >= 0
    logit = np.choose(lane, [network() for _ in range(5)])
    return HeldOutLogits(logit[:num_p], logit[num_p:]), decided, is_target[num_p:]


def judged_by(held, kept_p, kept_u, rng):
    value = bbe(held.p, held.u).value
    interval = bootstrap_interval(held.p, held.u, value=value, rng=rng, reps=50)
    return HeldOutScores(
        position_p=np.arange(len(held.p)),
        position_u=np.arange(len(held.p), len(held.p) + len(held.u)),
        score_p=held.p,
        score_u=held.u,
        kept_p=kept_p,
        kept_u=kept_u,
        group_p=None,
        group_u=None,
        alpha=alpha_estimate(value, interval, method="bbe"),
    )


def test_the_filters_own_recall_and_precision_are_covered_though_fits_differ():
    hits = np.zeros(3)
    num_draws = 40
    for seed in range(num_draws):
        rng = np.random.default_rng(seed)
        held, decided, is_target = fits(rng)
        recall, precision = decided[is_target].mean(), is_target[decided].mean()
        alike = judged_by(held, *match_keep_rate(held, decided, 5), rng)
        apart = judged_by(held, held.p >= 0, held.u >= 0, rng)
        found = measure_quality(alike, decided=decided, rng=rng)
        naive = measure_quality(apart, rng=rng)
        hits += [
            found.recall.low <= recall <= found.recall.high,
            found.precision.low <= precision <= found.precision.high,
            naive.recall.low <= recall <= naive.recall.high,
        ]
    assert hits[0] >= 0.9 * num_draws
    assert hits[1] >= 0.9 * num_draws
    assert hits[2] < 0.6 * num_draws  # each network's own cut says little about the filter's


@given(st.integers(0, 50), st.integers(0, 2000), st.integers(0, 2000), st.floats(0.01, 0.99))
def test_recall_is_the_less_certain_the_more_rows_are_disputed(num_kept_p, few, more, alpha):
    few, more = sorted([few, more])
    kept_p, kept_u = np.arange(50) < num_kept_p, np.arange(2000) < 600
    held = HeldOutLogits(kept_p.astype(np.float32), kept_u.astype(np.float32))
    estimate = alpha_estimate(alpha, (alpha / 2, (1 + alpha) / 2), method="bbe")
    judged = HeldOutScores(
        np.arange(50), np.arange(50, 2050), held.p, held.u, kept_p, kept_u, None, None, estimate
    )
    width = []
    for num_disputed in (few, more):
        decided = kept_u ^ (np.arange(2000) < num_disputed)
        found = measure_quality(judged, decided=decided, rng=np.random.default_rng(0))
        assert found.disputed == num_disputed / 2000
        recall = found.recall
        assert 0 <= recall.low <= recall.value <= recall.high <= 1
        assert recall.value == kept_p.mean()
        width.append(recall.high - recall.low)
    assert width[0] <= width[1] + 0.01  # quantiles of draws; ends stop at 0 and 1


def test_disputed_rows_widen_the_interval(draw):
    judged = draw(np.random.default_rng(11), 4).scores
    width = []
    for num_disputed in (0, 1000, 3000):
        decided = judged.kept_u ^ (np.arange(len(judged.kept_u)) < num_disputed)
        found = measure_quality(judged, decided=decided, rng=np.random.default_rng(0))
        width.append(found.recall.high - found.recall.low)
    assert width[0] < width[1] < width[2]
    assert width[2] > 1.5 * width[0]


def test_disputed_rows_count_more_with_few_labels(draw, monkeypatch):
    judged = draw(np.random.default_rng(12), 4, num_p=200).scores
    decided = judged.kept_u ^ (np.arange(len(judged.kept_u)) < 1_000)
    found = [measure_quality(judged, decided=decided, rng=np.random.default_rng(0)).recall]
    monkeypatch.setattr(module, "MANY_LABELS", 200)
    found.append(measure_quality(judged, decided=decided, rng=np.random.default_rng(0)).recall)
    assert found[0].value == found[1].value
    assert found[0].low < found[1].low - 0.02


@pytest.mark.slow
@pytest.mark.parametrize("size", [None, 50, 200])
@pytest.mark.parametrize("gap", [8, 6, 4, 2])
def test_coverage_at_length(draw, gap, size):
    recall, precision, bounded = covered(draw, 300, gap, num_p=2000, num_u=20_000, size=size)
    assert recall >= 0.9
    assert bounded >= 0.9
    assert gap < 4 or precision >= 0.9


def test_numbers_follow_from_their_definition(draw):
    rng = np.random.default_rng(3)
    judged = draw(rng, 3).scores
    quality = measure_quality(judged, rng=rng)
    recall, kept = judged.kept_p.mean(), judged.kept_u.mean()
    assert quality.recall.value == pytest.approx(recall)
    assert quality.precision.value == pytest.approx(judged.alpha.value * recall / kept)
    right = quality.precision.value * quality.num_kept
    expected = (quality.num_labelled + right) / (quality.num_labelled + quality.num_kept)
    assert quality.purity.value == pytest.approx(expected)
    assert quality.num_kept == np.count_nonzero(judged.kept_u)


@pytest.mark.parametrize(("low", "is_upper"), [(0.0, True), (0.2, False)])
def test_upper_estimate_where_alpha_has_no_lower_end(draw, low, is_upper):
    rng = np.random.default_rng(4)
    judged = replace(draw(rng, 3).scores, alpha=alpha_estimate(0.3, (low, 0.4), method="bbe"))
    assert measure_quality(judged, rng=rng).precision_is_upper is is_upper


def test_a_precision_that_may_be_nearly_anything_is_not_known(draw):
    rng = np.random.default_rng(5)
    judged = draw(rng, 8, alpha=0.002, num_u=20_000).scores
    judged = replace(judged, alpha=alpha_estimate(0.002, (0.0001, 0.003), method="bbe"))
    quality = measure_quality(judged, rng=rng)
    assert quality.precision.low < 0.1
    assert quality.precision.high > 0.9
    assert quality.precision_is_open
    assert not quality.precision_is_known


def test_nothing_kept_has_no_precision(draw):
    rng = np.random.default_rng(6)
    judged = draw(rng, 4).scores
    judged = replace(judged, kept_u=np.zeros(len(judged.kept_u), bool))
    quality = measure_quality(judged, rng=rng)
    assert np.isnan(quality.precision.value)
    assert quality.purity.value == 1
    assert quality.num_kept == 0


def test_all_rows_of_few_groups_kept_is_not_certainty(draw):
    rng = np.random.default_rng(7)
    judged = draw(rng, 30, size=200, likeness=0.0).scores
    assert judged.kept_p.all()
    # Five groups, none lost: a share of one in three lost is seen with 1 - (2/3)^5 = 87 % only.
    assert measure_quality(judged, rng=rng).recall.low < 2 / 3


def test_no_judged_rows_is_an_error(draw):
    judged = draw(np.random.default_rng(8), 4).scores
    empty = replace(judged, kept_p=judged.kept_p[:0])
    with pytest.raises(DataError, match="scored rows of both kinds"):
        measure_quality(empty, rng=np.random.default_rng(0))


def test_quality_of_what_the_filter_keeps(draw):
    rng = np.random.default_rng(9)
    measured = measure_quality(draw(rng, 4).scores, rng=rng)
    kept = np.arange(12_000) < 4000
    made = of_filter(measured, num_labelled=1500, kept=kept, weight=None)
    assert (made.num_labelled, made.num_unlabelled, made.num_kept) == (1500, 12_000, 4000)
    assert (made.recall, made.precision) == (measured.recall, measured.precision)
    for end in ("low", "value", "high"):
        right = getattr(made.precision, end) * 4000
        assert getattr(made.purity, end) == pytest.approx((1500 + right) / 5500)
    assert not made.is_soft
    soft = of_filter(measured, num_labelled=1500, kept=kept, weight=np.where(kept, 0.9, 0.3))
    assert soft.is_soft
    assert soft.mean_weight == pytest.approx(0.5)


def test_filter_that_keeps_nothing_has_no_precision(draw):
    rng = np.random.default_rng(10)
    measured = measure_quality(draw(rng, 4).scores, rng=rng)
    made = of_filter(measured, num_labelled=1000, kept=np.zeros(10_000, bool), weight=None)
    assert np.isnan(made.precision.value)
    assert made.purity.value == 1


@pytest.mark.parametrize("size", [None, 20])
def test_near_the_truth_where_domains_part(draw, size):
    rng = np.random.default_rng(0)
    found = second_alpha(draw(rng, 5, size=size).scores, rng=rng)
    low, high = found.interval
    assert found.method == "dedpul"
    assert found.value == pytest.approx(0.3, abs=0.04)
    assert 0 < low < found.value < high < 0.6


def test_groups_widen_the_interval(draw):
    rng = np.random.default_rng(0)
    alone = second_alpha(draw(rng, 4).scores, rng=rng).interval
    grouped = second_alpha(draw(rng, 4, size=100).scores, rng=rng).interval
    assert grouped[1] - grouped[0] > 1.5 * (alone[1] - alone[0])


@pytest.mark.parametrize(
    ("one", "other", "agree"),
    [
        ((0.30, (0.28, 0.32)), (0.31, (0.305, 0.315)), True),
        ((0.30, (0.29, 0.31)), (0.325, (0.32, 0.33)), True),
        ((0.30, (0.29, 0.31)), (0.40, (0.38, 0.42)), False),
        ((0.30, None), (0.40, None), False),
    ],
)
def test_agreement(one, other, agree):
    one, other = alpha_estimate(*one, method="bbe"), alpha_estimate(*other, method="dedpul")
    assert estimates_agree(one, other) is agree
    assert estimates_agree(other, one) is agree
