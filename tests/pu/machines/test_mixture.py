"""Types of units: against plain references, and how often they are found where there are none."""

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from scipy import stats

from puorl.pu.machines import evidence
from puorl.pu.machines import mixture as module
from puorl.pu.machines.evidence import partition_evidence
from puorl.pu.machines.findings import SEEN
from puorl.pu.machines.mixture import (
    SURE,
    Mixture,
    fit_types,
    join_alike,
    mahalanobis,
    split_evidence,
    weights,
)


def rng_of(*seed):
    return np.random.default_rng(seed)


def groups(rng, sizes, *, gap, size=2):
    """Units of types whose means lie ``gap`` deviations apart on a line; and their types."""
    kind = np.repeat(np.arange(len(sizes)), sizes)
    direction = rng.normal(size=size)
    centre = gap * np.arange(len(sizes))[:, None] * direction / np.linalg.norm(direction)
    return centre[kind] + rng.normal(size=(len(kind), size)), kind


def one_known(kind):
    label = np.full(len(kind), -1)
    label[np.flatnonzero(kind == 0)[0]] = 0
    return label


def evidence_by_chain_rule(z, member, num_types, sphere, label):
    """Log density of units one after another, each given those before it."""
    n, size = z.shape
    centre = z.mean(axis=0)
    count, mean = np.full(num_types, evidence.SPACING), np.tile(centre, (num_types, 1))
    scatter, degrees = evidence.PRIOR * sphere * np.eye(size), evidence.PRIOR
    value = 0.0
    for unit, kind in zip(z, member, strict=True):
        wider = (1.0 + 1.0 / count[kind]) / degrees
        value += stats.multivariate_t.logpdf(unit, mean[kind], scatter * wider, df=degrees)
        away = unit - mean[kind]
        scatter = scatter + count[kind] / (count[kind] + 1.0) * np.outer(away, away)
        count[kind] += 1.0
        mean[kind] += away / count[kind]
        degrees += 1.0
    # Shares of types, one after another, too: flat at first; and the numbers of types are names.
    # Known units were chosen for their types.
    seen = np.zeros(num_types)
    for k, kind in enumerate(member[label < 0]):
        value += np.log((seen[kind] + 1.0) / (k + num_types))
        seen[kind] += 1.0
    return value + np.log(np.prod(np.arange(1, num_types + 1)))


@settings(max_examples=20)
@given(st.integers(0, 2**16), st.integers(1, 5), st.integers(1, 4))
def test_evidence_is_the_product_of_predictive_densities(seed, size, num_types):
    rng = rng_of(seed)
    z = rng.normal(size=(9, size)) * rng.uniform(0.1, 10.0)
    member = np.stack([rng.permutation(np.arange(9) % num_types) for _ in range(2)])
    known = np.flatnonzero(member[0] == member[1])[: rng.integers(4)]
    label = np.full(9, -1)
    label[known] = member[0, known]
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(evidence, "_SCALES", np.array([0.3]))
        value, sphere = evidence.log_evidence(z, member, num_types, label)
    wanted = [
        evidence_by_chain_rule(z, m, num_types, s, label)
        for m, s in zip(member, sphere, strict=True)
    ]
    # Both are known up to one constant, which is the same for all partitions of these units.
    assert value[0] - value[1] == pytest.approx(wanted[0] - wanted[1], abs=1e-6)


@pytest.mark.parametrize("size", [1, 3])
def test_a_fitted_unit_is_judged_by_the_others(size, monkeypatch):
    monkeypatch.setattr(evidence, "_SCALES", np.array([0.3]))
    rng = rng_of(5)
    z, member = groups(rng, (6, 5, 1), gap=2.0, size=size)
    label = np.full(len(z), -1)
    label[[0, 1, 6]] = member[[0, 1, 6]]
    _, sphere = evidence.log_evidence(z, member[None], 3, label)
    found = module._posterior(z, member, 3, label, sphere[0]).fitted_log_probability(z)
    for unit in np.flatnonzero(label < 0):
        moved = np.tile(member, (3, 1))
        moved[:, unit] = np.arange(3)
        value, _ = evidence.log_evidence(z, moved, 3, label)
        np.testing.assert_allclose(
            found[unit], value - np.logaddexp.reduce(value), rtol=1e-6, atol=1e-8
        )


def test_evidence_is_integrated_over_the_size_of_the_sphere():
    z, member = groups(rng_of(6), (6, 5), gap=4.0)
    label = np.full(len(z), -1)
    value, sphere = evidence.log_evidence(z, member[None], 2, label)
    each = []
    for scale in evidence._SCALES:
        with pytest.MonkeyPatch.context() as patch:
            patch.setattr(evidence, "_SCALES", np.array([scale]))
            each.append(evidence.log_evidence(z, member[None], 2, label)[0][0])
    assert value[0] == pytest.approx(np.logaddexp.reduce(each) - np.log(len(each)))
    best = evidence._SCALES[int(np.argmax(each))] * z.var(axis=0).mean()
    assert sphere[0] == pytest.approx(best)


@pytest.mark.parametrize(
    "size", [2, *(pytest.param(size, marks=pytest.mark.slow) for size in (1, 4))]
)
def test_two_groups_are_seen_and_one_is_not(size):
    """Of 50 draws each: two groups seen in 49 (46, 50), one group taken for two in none."""
    seen, alarms, right = 0, 0, 0
    for draw in range(50):
        z, kind = groups(rng_of(draw, size, 0), (10, 8), gap=8.0, size=size)
        found = fit_types(z, one_known(kind), rng_of(draw))
        seen += found[0].gain > SEEN
        chance = weights(found) @ [each.ours_probability(z, fitted=True) for each in found]
        right += np.array_equal(chance > 0.5, kind == 0)
        z, kind = groups(rng_of(draw, size, 1), (18,), gap=0.0, size=size)
        alarms += fit_types(z, one_known(kind), rng_of(draw))[0].gain > SEEN
    assert seen >= 45
    assert right >= 45
    assert alarms == 0


def test_labelled_units_say_which_type_is_ours():
    z, kind = groups(rng_of(3), (12, 12), gap=10.0)
    for ours in (0, 1):
        label = np.full(24, -1)
        label[np.flatnonzero(kind == ours)[0]] = 0
        found = fit_types(z, label, rng_of(0))[0]
        np.testing.assert_array_equal(found.log_probability(z).argmax(axis=1) == 0, kind == ours)
        np.testing.assert_allclose(found.mean[0], z[kind == ours].mean(axis=0), atol=0.1)


def test_a_label_holds_where_the_unit_lies_among_others():
    z, kind = groups(rng_of(3), (12, 12), gap=10.0)
    label = np.full(24, -1)
    label[:6], label[12] = 0, 0
    found = fit_types(z, label, rng_of(0))[0]
    assert found.num_units[0] >= 7
    free = fit_types(z, np.where(np.arange(24) < 6, 0, -1), rng_of(0))[0]
    assert free.num_units[0] == pytest.approx(12, abs=0.5)
    assert found.gain < free.gain  # the label goes against the groups


def test_several_labelled_types_keep_their_numbers():
    z, kind = groups(rng_of(4), (8, 8, 8), gap=9.0)
    label = np.full(24, -1)
    label[[16, 0]] = 0, 1  # the last group is ours, the first is the second type
    found = fit_types(z, label, rng_of(0))[0]
    assert found.num_types == 3
    np.testing.assert_allclose(found.mean[0], z[kind == 2].mean(axis=0), atol=0.1)
    np.testing.assert_allclose(found.mean[1], z[kind == 0].mean(axis=0), atol=0.1)


@pytest.mark.parametrize("num_types", [2, 3, 4])
def test_the_number_of_types_is_found(num_types):
    right = 0
    for draw in range(10):
        rng = rng_of(draw, num_types)
        kind = np.repeat(np.arange(num_types), 10)
        corner = 12.0 * np.array([[0, 0], [1, 0], [0, 1], [1, 1]])[:num_types]
        z = corner[kind] + rng.normal(size=(len(kind), 2))
        right += fit_types(z, one_known(kind), rng)[0].num_types == num_types
    assert right >= 9


def test_units_of_known_types_are_seldom_outside_and_far_ones_always():
    """Nominal rate 0.1 %, for a fit to 24 units; measured 0.17 %."""
    inside = far = total = 0
    for draw in range(20):
        rng = rng_of(draw, 7)
        z, kind = groups(rng, (12, 12), gap=10.0)
        found = fit_types(z, one_known(kind), rng)[0]
        true = np.stack([z[kind == k].mean(axis=0) for k in (0, 1)])
        new = true[rng.integers(0, 2, 500)] + rng.normal(size=(500, 2)) * np.sqrt(1 + 1 / 12)
        inside += found.is_outside(new).sum()
        far += found.is_outside(new + 40.0 * rng.choice([-1, 1], (500, 2))).sum()
        total += 500
    assert inside / total < 0.005
    assert far == total


def test_uncertainty_of_a_unit_makes_it_less_sure_and_less_outside():
    z, kind = groups(rng_of(0), (12, 12), gap=8.0)
    found = fit_types(z, one_known(kind), rng_of(0))[0]
    between = 0.6 * found.mean[:1] + 0.4 * found.mean[1:2]
    some = 10.0 * np.eye(2)[None]
    sure, unsure = found.log_probability(between), found.log_probability(between, some)
    assert np.exp(sure[0, 0]) > np.exp(unsure[0, 0]) > 0.5
    far = found.mean[:1] + 30.0
    assert found.is_outside(far)[0]
    assert not found.is_outside(far, 1e3 * np.eye(2)[None])[0]


@settings(max_examples=30)
@given(st.integers(0, 2**16), st.integers(1, 4), st.booleans())
def test_predictive_density_is_a_multivariate_t(seed, size, with_extra):
    rng = rng_of(seed)
    root = rng.normal(size=(size, size)) + 2 * np.eye(size)
    made = Mixture(rng.normal(size=(3, size)), root @ root.T, np.array([9.0, 4.0, 0.5]), 1.0)
    z = 3 * rng.normal(size=(5, size))
    extra = np.array([k * np.eye(size) for k in range(5)]) if with_extra else None
    found = made.log_density(z, extra)
    degrees = 13.5 + evidence.PRIOR
    wanted = np.empty((5, 3))
    for i in range(5):
        for t, count in enumerate((9.0, 4.0, 0.5)):
            wider = 1 + 1 / (count + evidence.SPACING)
            spread = made.covariance * wider + (i * np.eye(size) if with_extra else 0.0)
            wanted[i, t] = stats.multivariate_t.logpdf(z[i], made.mean[t], spread, df=degrees)
    constant = wanted[0, 0] - found[0, 0]
    np.testing.assert_allclose(found + constant, wanted, rtol=1e-6, atol=1e-8)
    share = np.array([10.0, 5.0, 1.5]) / 16.5
    joint = np.exp(wanted) * share
    np.testing.assert_allclose(
        np.exp(made.log_probability(z, extra)), joint / joint.sum(axis=1, keepdims=True), atol=1e-8
    )


def test_distances_are_those_of_scipy():
    rng = rng_of(0)
    one = np.cov(rng.normal(size=(3, 20)))
    each = np.stack([one, 2 * one])
    difference = rng.normal(size=(2, 3))
    for covariance in (one, each):
        inverse = np.linalg.inv(np.broadcast_to(covariance, (2, 3, 3)))
        wanted = [d @ v @ d for d, v in zip(difference, inverse, strict=True)]
        np.testing.assert_allclose(mahalanobis(difference, covariance), wanted)


def test_lanes_that_see_types_weigh_more():
    plain = Mixture(np.zeros((2, 1)), np.eye(1), np.ones(2), 0.0)
    gains = (0, 0.0), (1, 3.0), (2, -300.0), (1, 1.0)
    weight = weights([plain._replace(gain=gain, lane=lane) for lane, gain in gains])
    assert weight.sum() == pytest.approx(1)
    second = 2.0 * np.logaddexp(3.0 / 2.0, 1.0 / 2.0)
    assert (weight[1] + weight[3]) / weight[0] == pytest.approx(np.exp(second / 3.0))
    assert weight[1] / weight[3] == pytest.approx(np.exp(2.0 / 2.0))
    assert weight[2] < 1e-30


def test_a_split_is_worth_what_joining_its_types_would_lose():
    z, kind = groups(rng_of(5), (6, 6, 6), gap=12.0)
    label = one_known(kind)
    found = fit_types(z, label, rng_of(1))[0]
    np.testing.assert_array_equal(found.member == 0, kind == 0)
    one, two = (
        evidence.log_evidence(z, member[None], int(member.max()) + 1, label)[0][0]
        for member in (np.where(kind == 2, 1, 0), kind)
    )
    np.testing.assert_allclose(split_evidence(z, found, kind < 2, label), two - one)
    assert two - one > SEEN
    assert split_evidence(z, found, kind == 0, label) == np.inf
    everyone = np.ones(len(kind), bool)
    np.testing.assert_allclose(split_evidence(z, found, everyone, label), found.gain)


@pytest.mark.parametrize("drivers", [1, 2])
def test_a_partition_found_elsewhere_is_preferred_only_where_it_shows(drivers):
    z, kind = groups(rng_of(5), (12, 12), gap=8.0)
    label = one_known(kind)
    driver = np.arange(len(z)) % drivers
    z = z + 5.0 * driver[:, None]
    found = fit_types(z, label, rng_of(0), driver)[0]
    assert partition_evidence(z, kind, label, driver) == pytest.approx(found.gain, abs=0.1)
    mixed = rng_of(1).permutation(kind) * (label < 0)
    assert partition_evidence(z, mixed, label, driver) < -SEEN


def unbalanced(seed, gap):
    """Two types, and two drivers who have four of five units of one type each."""
    rng = rng_of(seed)
    z, kind = groups(rng, (10, 10), gap=gap)
    driver = np.where(np.arange(len(kind)) % 5 == 0, 1 - kind, kind)
    return z + 5.0 * driver[:, None], kind, driver


def test_shifts_of_drivers_and_means_of_types_suit_each_other():
    """The same as by turns, many times."""
    z, kind, driver = unbalanced(0, 6.0)
    shift, centre = np.zeros((2, 2)), np.zeros((2, 2))
    for _ in range(2_000):
        own = z - shift[driver]
        middle = own.mean(axis=0)
        for k in range(2):
            centre[k] = (own[kind == k] - middle).sum(axis=0) / (10.0 + evidence.SPACING) + middle
        shift[1] = (z - centre[kind])[driver == 1].mean(axis=0)
        shift[1] -= (z - centre[kind])[driver == 0].mean(axis=0)
    np.testing.assert_allclose(evidence.best_shift(z, kind, driver)[1], shift[1], rtol=1e-6)


def test_types_show_where_drivers_have_unlike_shares_of_them():
    """Shifts that are not solved with the means of types take up most of what types differ by."""
    worth = []
    for gap in (8.0, 0.0):
        pools = [unbalanced(seed, gap) for seed in range(10)]
        worth.append([partition_evidence(z, kind, one_known(kind), by) for z, kind, by in pools])
    assert np.median(worth[0]) > SEEN
    assert max(worth[1]) < -SEEN


def test_known_units_on_one_side_speak_for_a_type_of_their_own():
    """Two groups that hardly part: units known from one of them alone make the cut likelier."""
    z, kind = groups(rng_of(11), (10, 10), gap=5.0)
    cut, whole = kind[None], np.zeros((1, 20), int)
    gains = []
    for number in (0, 1, 3, 6):
        label = np.full(20, -1)
        label[:number] = 0
        two = evidence.log_evidence(z, cut, 2, label)[0][0]
        gains.append(two - evidence.log_evidence(z, whole, 1, label)[0][0])
    # How seldom so many units, drawn from all, would be of one half; and shares of fewer units.
    wanted = [
        np.log((20 + 1) / (20 - k + 1)) - stats.hypergeom.logpmf(k, 20, 10, k) for k in (1, 3, 6)
    ]
    np.testing.assert_allclose(np.array(gains[1:]) - gains[0], wanted)


def test_likely_partitions_are_kept_with_their_odds():
    """A unit halfway between two groups belongs to either."""
    rng = rng_of(8)
    ours, others = rng.normal(size=(11, 2)), rng.normal(size=(10, 2)) + [12.0, 0.0]
    z = np.concatenate([ours, others, [(ours.mean(axis=0) + others.mean(axis=0)) / 2.0]])
    label = np.full(22, -1)
    label[0] = 0
    found = fit_types(z, label, rng)
    chance = weights(found) @ [each.ours_probability(z, fitted=True) for each in found]
    assert 0.2 < chance[21] < 0.8
    assert (np.abs(chance[:21] - 0.5) > 0.45).all()
    assert [m.gain for m in found] == sorted((m.gain for m in found), reverse=True)
    assert len({m.member.tobytes() for m in found}) == len(found)


@pytest.mark.parametrize("n", [4, 5, 6])
def test_a_few_units_that_are_all_alike_are_not_parted(n):
    z = np.ones((n, 2))
    found = fit_types(z, np.array([0] + [-1] * (n - 1)), rng_of(0))[0]
    assert np.isfinite(found.gain)
    assert found.gain < SEEN


def test_units_that_do_not_shape_types_are_judged_as_new_ones():
    rng = rng_of(5)
    z, kind = groups(rng, [12, 12], gap=12.0, size=1)
    odd = z[:3] + np.sign(z[0] - z[-1]) * 6.0  # three of ours, on the far side
    z, label = np.vstack([z, odd]), np.append(one_known(kind), [-1, -1, -1])
    shapes = np.arange(len(z)) < len(kind)
    found = fit_types(z, label, rng, shapes=shapes)[0]
    alone = fit_types(z[shapes], label[shapes], rng)[0]
    assert found.num_types == alone.num_types == 2
    np.testing.assert_array_equal(found.member, [*alone.member, -1, -1, -1])
    chance = found.ours_probability(z, fitted=True)
    np.testing.assert_allclose(chance[shapes], alone.ours_probability(z[shapes], fitted=True))
    np.testing.assert_allclose(chance[~shapes], alone.ours_probability(odd))
    assert (chance[~shapes] > 0.9).all()
    kept = chance >= 0.5
    assert split_evidence(z, found, np.ones(len(z), bool), label) == pytest.approx(
        split_evidence(z[shapes], alone, np.ones(len(kind), bool), label[shapes])
    )
    assert kept.sum() == 15


def driven_types(**given):
    """Types on a line: ours at 0, another at -6, and a third, each of 10 units."""
    mean = np.array([[0.0], [-6.0], [given.get("third", -2.0)]])
    count = np.array([10.0, 20.0, 10.0])
    member = np.repeat([0, 1, 1, 2], 10)
    return Mixture(mean, np.eye(1), count, 50.0, member=member)


def test_a_driver_who_lacks_ours_has_it_in_a_type_of_its_own_on_our_side():
    driver = np.repeat([0, 0, 1, 1], 10)
    assert driven_types().with_driven(driver).ours == (0, 2)
    assert driven_types(third=-9.0).with_driven(driver).ours == (0,)


@pytest.mark.parametrize(
    "driver",
    [
        np.repeat([0, 0, 0, 1], 10),  # no type is shared: another machine, perhaps
        np.repeat([0, 0, 1, 0], 10),  # the third type has the known units' driver
        np.where(np.arange(40) % 2, 1, 0),  # ours has both drivers
    ],
)
def test_other_types_are_not_called_ours_for_their_drivers(driver):
    assert driven_types().with_driven(driver).ours == (0,)


@pytest.mark.parametrize("seed", range(3))
def test_where_all_units_are_one_type_another_can_still_be_named(seed):
    rng = rng_of(seed)
    label = np.where(np.arange(2_000) < 60, 0, -1)
    found = fit_types(rng.normal(size=(2_000, 1)), label, rng)
    assert max(mixture.num_types for mixture in found) > 1
    assert max(mixture.gain for mixture in found) < SEEN


@pytest.mark.parametrize("drivers", [1, 2])
def test_a_few_odd_units_do_not_show_that_the_others_are_of_one_type(drivers):
    rng = rng_of(3)
    z, kind = groups(rng, (118, 2), gap=30.0)
    driver = np.arange(len(z)) % drivers
    z += 5.0 * driver[:, None]
    found = fit_types(z, one_known(kind), rng, driver)[0]
    assert (found.member[-2:] > 0).all()  # odd they are
    assert found.gain < SEEN
    z[:60] += 8.0
    found = fit_types(z, one_known(kind), rng, driver)[0]
    assert found.gain > 20.0
    assert found.num_types == 3


def test_two_units_of_few_are_a_type_and_so_are_two_that_are_known():
    z, kind = groups(rng_of(4), (10, 2), gap=30.0)
    assert fit_types(z, one_known(kind), rng_of(0))[0].gain > SEEN
    z, kind = groups(rng_of(4), (38, 2), gap=30.0)
    assert fit_types(z, one_known(kind), rng_of(0))[0].gain < SEEN
    label = one_known(kind)
    label[-1] = 1
    assert fit_types(z, label, rng_of(0))[0].gain > SEEN


@pytest.mark.parametrize(
    ("mean", "count", "ours"),
    [
        ([0.0, 5.0, 90.0], [80.0, 80.0, 2.0], (0,)),  # seen from odd units all others are near
        ([0.0, 5.0, 90.0], [80.0, 80.0, 20.0], (0, 1)),
        ([0.0, 5.0, 40.0, 900.0], [80.0, 80.0, 80.0, 2.0], (0, 1)),
        ([0.0, 5.0, 40.0], [80.0, 2.0, 80.0], (0, 1)),  # odd units may be near themselves
        ([0.0, 5.0], [80.0, 2.0], (0,)),
    ],
)
def test_types_are_not_near_ours_because_odd_units_are_far(mean, count, ours):
    found = Mixture(np.array(mean)[:, None], np.eye(1), np.array(count), 9.0)
    assert found.with_near().ours == ours


def test_a_type_of_which_a_unit_is_known_is_not_odd_however_small():
    mean, count = np.array([[0.0], [5.0], [90.0]]), np.array([80.0, 80.0, 2.0])
    found = Mixture(mean, np.eye(1), count, 9.0, num_known=np.array([3, 0, 1]))
    assert found.fair.all()
    assert found.with_near().ours == (0, 1)


def test_a_type_that_has_a_name_is_never_ours_however_near():
    mean, count = np.array([[0.0], [5.0], [90.0]]), np.array([80.0, 80.0, 80.0])
    found = Mixture(mean, np.eye(1), count, 9.0, num_known=np.array([3, 1, 0]))
    assert found.with_near().ours == (0,)
    assert found._replace(num_known=np.array([3, 0, 0])).with_near().ours == (0, 1)


def test_groups_of_known_units_share_the_probability_of_all_types():
    mean, count = np.array([[0.0], [9.0], [18.0], [27.0]]), np.full(4, 20.0)
    shared = np.array([[1.0, 0.0, 0.0, 0.0], [0.0, 0.5, 0.5, 0.0], [0.0, 0.0, 0.0, 1.0]])
    found = Mixture(mean, np.eye(1), count, 9.0, num_known=np.ones(4), classes=shared)
    z = np.array([[0.2], [8.8], [18.1], [26.9]])
    grouped = found.group_probability(z)
    np.testing.assert_allclose(grouped.sum(axis=1), 1.0)
    assert np.argmax(grouped, axis=1).tolist() == [0, 1, 2, 2]
    np.testing.assert_allclose(grouped[:, 0], found.ours_probability(z))
    assert found.nearest_unnamed(z).tolist() == [3, 3, 3, 4]  # after ours and two names
    assert found._replace(ours=(0, 2, 3)).nearest_unnamed(z).tolist() == [-1] * 4


def test_odd_units_change_no_gain_where_fair_types_bring_most_of_it(monkeypatch):
    z, kind = groups(rng_of(5), (40, 40, 1), gap=12.0)
    found = fit_types(z, one_known(kind), rng_of(0))[0]
    assert found.num_types == 3
    monkeypatch.setattr(module, "_is_odd", lambda count: np.zeros(len(count), bool))
    assert fit_types(z, one_known(kind), rng_of(0))[0].gain == found.gain


def test_a_few_units_given_to_the_wrong_driver_do_not_show_that_drivers_share_machines():
    rng = rng_of(6)
    z, kind = groups(rng, (60, 60), gap=25.0)
    driver = kind.copy()
    driver[[7, 70, 80]] = 1 - driver[[7, 70, 80]]
    assert fit_types(z, one_known(kind), rng, driver)[0].gain < SEEN
    driver = np.arange(len(z)) % 2
    assert fit_types(z, one_known(kind), rng, driver)[0].gain > 20.0


@pytest.mark.parametrize("strays", [0, 1])
def test_a_driver_of_one_type_alone_has_the_type_that_shifts_it_least(strays):
    # Driver 0 has both types, 1 and 2 one each: shifts of 1 and -1 do, and so do 21 and -21.
    rng, driver = rng_of(7), np.repeat([0, 0, 1, 2], 10)
    kind = np.repeat([0, 1, 0, 1], 10)
    z = 20.0 * kind[:, None] + np.array([0.0, 1.0, -1.0])[driver, None]
    z += 0.1 * rng.normal(size=(40, 1))
    label = np.where(np.arange(40) < 3, 0, -1)
    wrong = np.where(driver == 1, 1, np.where(driver == 2, 0, kind))
    wrong[20 : 20 + strays] = 0
    shift = np.array([[0.0], [-19.0], [19.0]])
    found = Mixture(np.array([[0.0], [20.0]]), 0.01 * np.eye(1), np.bincount(wrong) + 0.0, 9.0)
    found = found._replace(member=wrong, shift=shift, num_known=np.array([3, 0]))
    right = found.with_least_shifts(driver, label)
    np.testing.assert_allclose(right.shift, [[0.0], [1.0], [-1.0]])
    np.testing.assert_array_equal(right.member[20 + strays :], kind[20 + strays :])
    assert (right.member[20 : 20 + strays] == -1).all()
    assert right.num_units.tolist() == [20 - strays, 20]
    chance = right.ours_probability(z - right.shift[driver], fitted=True)
    np.testing.assert_array_equal(chance > 0.5, kind == 0)


def test_shifts_stay_where_a_driver_has_two_types_or_known_units():
    driver, kind = np.repeat([0, 1], 20), np.arange(40) % 2
    shift, label = np.array([[0.0], [-19.0]]), np.full(40, -1)
    found = Mixture(np.array([[0.0], [20.0]]), np.eye(1), np.array([20.0, 20.0]), 9.0, shift)
    found = found._replace(member=kind)
    np.testing.assert_array_equal(found.with_least_shifts(driver, label).shift, shift)
    kind, label = np.where(driver == 1, 1, kind), np.where(driver == 1, 0, -1)
    found = found._replace(member=kind)
    np.testing.assert_array_equal(found.with_least_shifts(driver, label).shift, shift)
    moved = found.with_least_shifts(driver, np.full(40, -1))
    np.testing.assert_array_equal(moved.shift, [[0.0], [1.0]])


def wide_ours(rng, num=100, *, crossed=False):
    """Ours vary three times as much as others; who are known lie on one side. z, label, driver."""
    ours, others = rng.uniform(-1.5, -0.6, num), rng.normal(0.7, 0.1, 170)
    known = np.argsort(ours)[:5]
    label = np.full(num + 170, -1)
    label[known] = 0
    driver = np.repeat([0, 1], [num, 170]) if crossed else np.zeros(num + 170, int)
    return np.append(ours, others)[:, None], label, driver


def joined(z, label, driver, num=100):
    """Ours and gain of the likeliest partition, before and after."""
    best = max(fit_types(z, label, np.random.default_rng(0), driver), key=lambda m: m.gain)
    found = join_alike(best, z, label, driver)
    count = [int(np.isin(m.member[:num], m.ours).sum()) for m in (best, found)]
    return best, found, count


@pytest.mark.parametrize(("num", "seed"), [(100, 0), (100, 1), (200, 0), (200, 1)])
def test_a_wide_type_is_not_cut_since_others_are_narrow(num, seed):
    z, label, driver = wide_ours(np.random.default_rng(seed), num)
    best, found, (before, after) = joined(z, label, driver, num)
    assert before < 0.7 * num
    assert after == num
    assert not np.isin(found.member[num:], found.ours).any()
    assert found.gain == best.gain


@pytest.mark.parametrize("seed", range(3))
def test_nor_where_each_type_has_a_driver_of_its_own(seed):
    z, label, driver = wide_ours(np.random.default_rng(seed), crossed=True)
    best, found, (before, after) = joined(z, label, driver)
    assert before < 70
    assert after == 100
    assert best.gain > SEEN > found.gain


def test_types_that_are_seen_by_themselves_stay_apart_and_named_ones_too():
    rng = np.random.default_rng(0)
    z = np.append(rng.normal(0, 0.1, 40), rng.normal(1, 0.1, 20))[:, None]
    label = np.full(60, -1)
    label[:3] = 0
    found = fit_types(z, label, rng)[0]
    same = join_alike(found, z, label, np.zeros(60, int))
    assert (same.ours, same.gain) == (found.ours, found.gain)
    alike = rng.normal(0, 0.1, 60)[:, None]
    label[50:53] = 1
    named = fit_types(alike, label, rng)[0]
    assert join_alike(named, alike, label, np.zeros(60, int)).ours == named.ours


def test_types_that_would_all_join_stay_what_they_are_if_some_nats_are_seen():
    rng = np.random.default_rng(3)
    driver = np.zeros(24, int)
    tried = 0
    for gap in np.arange(3.0, 7.0, 0.25):
        z, kind = groups(rng, (16, 8), gap=gap)
        found = fit_types(z, one_known(kind), rng)[0]
        if found.num_types == 2 and SEEN <= found.gain < SURE:
            same = join_alike(found, z, one_known(kind), driver)
            assert (same.ours, same.gain) == ((0,), found.gain)
            tried += 1
    assert tried > 1


def test_types_that_joined_ours_still_do_where_drivers_differ():
    mean, count = np.array([[0.0], [3.0], [30.0]]), np.array([80.0, 80.0, 80.0])
    found = Mixture(mean, np.eye(1), count, 9.0)
    assert found.with_near().ours == (0, 1)
    assert found._replace(ours=(0, 2)).with_near().ours == (0, 2)  # else no other would be left
    four = Mixture(np.append(mean, [[40.0]], axis=0), np.eye(1), np.append(count, 80.0), 9.0)
    assert four._replace(ours=(0, 2)).with_near().ours == (0, 1, 2)
