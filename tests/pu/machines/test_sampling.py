"""Large fleets: a sample is learnt from, the others are judged by it."""

import numpy as np
import pytest

from puorl.data.dataset import Dataset
from puorl.data.split import PUSplit
from puorl.pu.filter import DomainFilter
from puorl.pu.machines import fitting, sampling
from puorl.pu.machines.sampling import draw_sample, draw_typed, take_units
from puorl.pu.units import number_units, parse_unit

NUM_UNITS, NUM_SAMPLED, NUM_TYPED = 40, 18, 14
ODD = "m40"
"""Unlike all others, and not in the sample."""
NAMED = {"old": "robot == 'm01'"}


@pytest.fixture(scope="module", autouse=True)
def _small_sample():
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(sampling, "_NUM_UNITS", NUM_SAMPLED)
        patch.setattr(sampling, "_NUM_ROWS", 1)
        patch.setattr(sampling, "_NUM_TYPED", NUM_TYPED)
        yield


@pytest.fixture(scope="module")
def large(fleet):
    """Forty units and an odd one; three are known."""
    odd = fleet(num_units=1, seed=7, first=int(ODD[1:]), gains=(1.5, 1.5))
    return known(Dataset.concatenate([fleet(num_units=NUM_UNITS), odd]), "m00", "m02", "m36")


@pytest.fixture(scope="module")
def config(fitted):
    return fitted.config


@pytest.fixture(scope="module")
def sampled(large, config):
    return fit(large, config, labelled_as=NAMED)


def known(data, *names):
    return PUSplit.from_mask(data, np.isin(data.columns["robot"], names), unit="episode")


def fit(split, config, **arguments):
    return DomainFilter(unit="column:robot", config=config).fit(split, seed=0, **arguments)


def is_ours(name):
    return np.array([int(text[1:]) % 2 == 0 and text != ODD for text in name])


def test_all_units_are_decided_in_their_order(large, sampled):
    table, found = sampled.units_, number_units(large.pool, parse_unit("column:robot"))
    assert len(sampled.model_.best[1].member) == NUM_TYPED
    np.testing.assert_array_equal(table.name, found.name)
    np.testing.assert_array_equal(table.num_rows, found.num_rows)
    np.testing.assert_array_equal(table.labelled, np.isin(table.name, ["m00", "m02", "m36"]))
    np.testing.assert_array_equal(table.keep, is_ours(table.name))
    np.testing.assert_array_equal(
        sampled.predict(large), is_ours(large.pool.columns["robot"][large.unlabelled])
    )
    assert {row.name for row in sampled.report().units} == set(table.name)


def test_units_have_the_type_that_was_named_in_the_sample_or_none(sampled):
    table = sampled.units_
    kind = dict(zip(table.name.tolist(), table.cluster.tolist(), strict=True))
    assert kind.pop(ODD) == -1
    assert kind == {name: 1 - int(name[1:]) % 2 == 0 for name in kind}
    assert table.probability[table.name == ODD] < 0.01
    assert table.probability[table.name == "m01"] == 0


def test_numbers_are_of_all_units(sampled):
    table, finding = sampled.units_, sampled.model_.finding
    asked = ~table.labelled
    assert finding.num_labelled == 3
    assert finding.num_odd == 0
    assert sampled.alpha_.value == pytest.approx(table.probability[asked].mean())
    assert sampled.alpha_.low <= is_ours(table.name)[asked].mean() <= sampled.alpha_.high
    assert sampled.alpha_.high - sampled.alpha_.low < 0.5


def test_all_units_lie_on_one_map(sampled):
    table, ours = sampled.units_, is_ours(sampled.units_.name)
    along = table.position[table.name != ODD, 0], ours[table.name != ODD]
    assert along[0][along[1]].max() < along[0][~along[1]].min()


def test_the_sample_decides_as_all_units_do(large, config, sampled, monkeypatch):
    monkeypatch.setattr(sampling, "_NUM_UNITS", NUM_UNITS + 1)
    whole = fit(large, config, labelled_as=NAMED)
    assert len(whole.model_.best[1].member) == NUM_UNITS + 1
    np.testing.assert_array_equal(sampled.units_.keep, whole.units_.keep)
    table = sampled.units_
    np.testing.assert_allclose(table.classes.sum(axis=1), 1.0, rtol=0, atol=1e-12)
    told = np.where(table.cluster < 0, 2, np.minimum(table.cluster, 2))
    np.testing.assert_array_equal(np.argmax(table.classes, axis=1), told)
    assert table.classes[table.name == ODD, 2] > 0.9
    assert abs(sampled.alpha_.value - whole.alpha_.value) < 0.1


def test_a_sampled_filter_comes_back_from_its_files(large, sampled, tmp_path):
    sampled.save(tmp_path / "filter")
    back = DomainFilter.load(tmp_path / "filter")
    np.testing.assert_array_equal(back.predict_proba(large), sampled.predict_proba(large))
    np.testing.assert_array_equal(back.units_.position, sampled.units_.position)
    new = back.predict_units(large.pool)
    np.testing.assert_array_equal(new.keep, is_ours(new.name))


def test_a_broken_fit_goes_on_to_the_same_bits(large, config, sampled, tmp_path, monkeypatch):
    def broken(*_):
        raise KeyboardInterrupt

    with monkeypatch.context() as patch:
        patch.setattr(fitting, "judge_others", broken)
        with pytest.raises(KeyboardInterrupt):
            fit(large, config, labelled_as=NAMED, checkpoint=tmp_path)
    resumed = fit(large, config, labelled_as=NAMED, checkpoint=tmp_path)
    for name, value in sampled.units_._asdict().items():
        np.testing.assert_array_equal(getattr(resumed.units_, name), value, err_msg=name)
    assert resumed.alpha_ == sampled.alpha_


def test_units_outside_the_sample_are_compared_within_their_driver(fleet, config):
    split = known(
        fleet(num_units=NUM_UNITS, gains=(0.6, 0.1), reach=(1.0, 0.3)), "m00", "m02", "m36"
    )
    seen = []

    def drivers(*arguments):
        seen.append(real(*arguments))
        return seen[-1]

    real = sampling._drivers
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(sampling, "_drivers", drivers)
        model = fit(split, config).model_
    assert model.finding.is_crossed
    number = np.arange(NUM_UNITS)
    label = np.where(np.isin(number, [0, 2, 36]), 0, -1)
    typed = draw_typed(label, draw_sample(label, np.full(NUM_UNITS, 160), 0), 0)
    second = number[~typed] // 2 % 2
    assert (seen[0] == second).all() or (seen[0] == 1 - second).all()
    np.testing.assert_array_equal(model.units.keep, number % 2 == 0)


def test_most_of_a_sample_are_unknown_units():
    label = np.repeat([-1, 0, 1], [60, 30, 10])
    sample = draw_sample(label, np.full(100, 50), 0)
    assert np.bincount(label[sample] + 1).tolist() == [11, 4, 3]
    few = np.where(np.arange(100) % 25 == 0, 0, -1)
    assert draw_sample(few, np.full(100, 50), 0)[few == 0].all()
    assert draw_sample(label[:NUM_SAMPLED], np.full(NUM_SAMPLED, 50), 0).all()


def test_types_are_found_among_units_that_networks_have_not_seen():
    label = np.where(np.arange(100) % 25 == 0, 0, -1)
    sample = draw_sample(label, np.full(100, 50), 0)
    typed = draw_typed(label, sample, 0)
    assert typed.sum() == NUM_TYPED
    np.testing.assert_array_equal(typed & sample, label == 0)
    sample = np.arange(100) >= 5
    typed = draw_typed(label, sample, 0)
    assert typed.sum() == NUM_TYPED
    assert typed[~sample].all()


def test_units_that_are_short_are_more(monkeypatch):
    monkeypatch.setattr(sampling, "_NUM_ROWS", 600)
    label = np.where(np.arange(100) == 5, 0, -1)
    assert [draw_sample(label, np.full(100, n), 0).sum() for n in (5, 20, 100)] == [
        100,
        30,
        NUM_SAMPLED,
    ]
    monkeypatch.setattr(sampling, "_MOST_UNITS", 50)
    assert draw_sample(label, np.full(100, 5), 0).sum() == 50


def test_windows_are_taken_with_their_rows(fleet):
    data = fleet(num_units=4)
    found = number_units(data, parse_unit("window:15"))
    wanted = np.arange(len(found.name)) % 3 == 1
    part = take_units(found, wanted)
    rows = wanted[found.number]
    np.testing.assert_array_equal(part.name[part.number], found.name[found.number][rows])
    same = part.cluster[:, None] == part.cluster
    np.testing.assert_array_equal(same, found.cluster[rows][:, None] == found.cluster[rows])
