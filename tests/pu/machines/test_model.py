"""From one known unit of a small fleet to decisions, files and units never seen."""

import dataclasses
import json
from pathlib import Path

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from puorl.core.errors import ConfigError, DataError
from puorl.core.files import read_json, write_json
from puorl.core.run_folder import decode
from puorl.data.dataset import Dataset
from puorl.data.split import PUSplit
from puorl.pu.filter import DomainFilter
from puorl.pu.machines import fitting, slopes
from puorl.pu.machines.decisions import LaneChances, quality
from puorl.pu.machines.drift import follow
from puorl.pu.machines.dynamics import make_batch
from puorl.pu.machines.findings import UnitTable
from puorl.pu.machines.mixture import Mixture
from puorl.pu.machines.newcomers import RowFit, RowMeans, UnitFit
from puorl.pu.machines.report import MachineReport
from puorl.pu.machines.sequences import build
from puorl.pu.machines.views import (
    ViewModel,
    estimate_latents,
    mean_nll,
    most_rows,
    slope_rows,
    thin_rows,
)
from puorl.pu.unit_table import type_of
from puorl.pu.units import Unit, number_units

ROBOT = Unit("column", column="robot")


def is_ours(name):
    return np.array([int(text[1:]) % 2 == 0 for text in name])


def in_mode(fitted, mode):
    return DomainFilter.of(fitted.model_, mode=mode)


def test_one_known_unit_decides_about_all(split, fitted):
    table = fitted.units_
    assert len(table) == 12
    np.testing.assert_array_equal(table.keep, is_ours(table.name))
    np.testing.assert_array_equal(table.labelled, table.name == "m00")
    assert table.probability[table.labelled] == 1
    assert (table.evidence[table.keep & ~table.labelled] > 0.9).all()
    assert (table.evidence[~table.keep] < -3).all()
    assert (table.cluster[table.keep] == 0).all()
    assert (table.cluster[~table.keep] != 0).all()
    assert (table.agreement[~table.keep] > 0.99).all()
    # One partition among the likeliest parts three of ours from the others.
    assert (table.agreement[table.keep] > 0.5).all()
    np.testing.assert_array_equal(table.num_rows, number_units(split.pool, ROBOT).num_rows)
    assert fitted.alpha_.low <= 5 / 11 <= fitted.alpha_.high
    assert fitted.verdict_ == "dynamics"


def test_a_filter_by_slopes_decides_explains_and_comes_back(
    split, fitted, fleet, tmp_path, monkeypatch
):
    found = fitting._mixtures

    def unsure(*arguments):
        return [
            view._replace(mixtures=tuple(m._replace(gain=m.gain - 100) for m in view.mixtures))
            for view in found(*arguments)
        ]

    monkeypatch.setattr(fitting, "_mixtures", unsure)
    flt = DomainFilter(unit="column:robot", config=fitted.config).fit(split, seed=0)
    assert [view.view for view in flt.model_.views] == ["slopes"]
    assert flt.verdict_ == "dynamics"
    np.testing.assert_array_equal(flt.units_.keep, is_ours(flt.units_.name))
    assert flt.model_.explain(split.pool, "m01")[0][0] == "obs_0"
    flt.save(tmp_path / "filter")
    new = fleet(num_units=6, seed=5, first=50)
    back = DomainFilter.load(tmp_path / "filter")
    one, two = (f.predict_units(new) for f in (flt, back))
    np.testing.assert_array_equal(one.keep, is_ours(one.name))
    np.testing.assert_array_equal(one.probability, two.probability)
    assert (one.cluster >= 0).all()
    odd = back.predict_units(fleet(num_units=2, seed=5, first=60, gains=(1.0, -0.5)))
    assert (odd.cluster == -1).all()
    changed = fleet(num_units=2, num_runs=30, seed=5)
    window = np.arange(len(changed)) // 117
    as_one = dataclasses.replace(changed, columns={"robot": np.repeat("m00", len(changed))})
    [course] = follow(back.model_, as_one, window)
    assert course.alarm == 11  # ten windows of one unit, ten of another
    assert (course.probability[:10] > 0.5).all()
    assert (course.probability[10:] < 0.5).all()


def test_rows_of_new_units_are_compared_with_rows_that_slopes_have_not_seen(fitted):
    # The model of all units has many columns for few rows: it fits rows that it has seen better.
    def noise(num_units, seed):
        rng, size = np.random.default_rng(seed), num_units * 160
        return Dataset.from_arrays(
            obs=rng.normal(size=(size, 12)),
            action=rng.normal(size=(size, 4)),
            episode=np.arange(size) // 40,
            columns={"robot": (np.arange(size) // 160).astype(str)},
        )

    def batch(data, scalings=None):
        found = number_units(data, ROBOT)
        rows, scalings = build(data.rows, found.number, config, scalings)
        return rows, found.number[rows.position], scalings

    config, data = fitted.config.machines, noise(12, 0)
    rows, number, scalings = batch(data)
    params = slopes.fit(slope_rows(make_batch("slopes", rows, number)), 12, 16)
    view = ViewModel(
        view="slopes",
        params=params,
        sizes=slopes.SIZES,
        centre=np.zeros((3, 4)),
        root=np.tile(np.eye(4), (3, 1, 1)),
        inflation=np.ones(3),
        mixtures=(Mixture(np.zeros((2, 2)), np.eye(2), np.array([6.0, 6.0]), 9.0),),
        held_out_nll=np.zeros(3),
    )
    model = dataclasses.replace(fitted.model_, scalings=scalings, views=(view,))
    [fit] = model.with_row_fits(data).row_fits
    rows, number, _ = batch(noise(40, 1), scalings)
    new = make_batch("slopes", rows, number)
    own = estimate_latents(view, 0, new, 40, config)
    assert np.median(fit.new_probability(mean_nll(view, 0, new, own), "slopes")) > 0.2


def test_rows_have_the_decision_of_their_unit(split, fitted):
    robot = split.pool.columns["robot"][split.unlabelled]
    np.testing.assert_array_equal(fitted.predict(split), is_ours(robot))
    score = fitted.predict_proba(split)
    assert score.dtype == np.float32
    by_name = dict(zip(fitted.units_.name, fitted.units_.probability, strict=True))
    np.testing.assert_allclose(score, [by_name[name] for name in robot], rtol=1e-6)


def test_soft_mode_weighs_rows_by_their_unit(split, fitted):
    chosen = in_mode(fitted, "soft").filter(split)
    assert len(chosen.rows) == len(split.pool)
    num_labelled = len(split.labelled)
    assert (chosen.weight[:num_labelled] == 1).all()
    np.testing.assert_array_equal(chosen.weight[num_labelled:], fitted.predict_proba(split))
    hard = fitted.filter(split)
    assert hard.weight is None
    assert is_ours(split.pool.columns["robot"][hard.rows]).all()


def test_top_alpha_keeps_whole_units_and_about_alpha(split, fitted):
    kept = in_mode(fitted, "top_alpha").predict(split)
    robot = split.pool.columns["robot"][split.unlabelled]
    for name in np.unique(robot):
        assert len(np.unique(kept[robot == name])) == 1, name
    assert abs(kept.mean() - fitted.alpha_.value) <= 1 / 11 + 1e-9


def test_alpha_is_of_the_rows_whose_unit_is_not_known(split, fitted):
    # One row in five of three units keeps its label: the others of these units are known.
    robot = split.pool.columns["robot"]
    mask = np.isin(robot, ["m00", "m02", "m04"]) & (np.arange(len(robot)) % 5 == 0)
    scattered = PUSplit.from_mask(split.pool, mask)
    kept = in_mode(fitted, "top_alpha").predict(scattered)
    known = np.isin(robot, ["m00", "m02", "m04"])[scattered.unlabelled]
    assert kept[known].all()
    length = fitted.units_.num_rows.max()
    assert abs(kept[~known].sum() - fitted.alpha_.value * (~known).sum()) <= length / 2 + 1


def test_a_saved_filter_decides_alike(split, fitted, tmp_path):
    fitted.save(tmp_path / "filter")
    back = DomainFilter.load(tmp_path / "filter")
    assert back.evidence == "dynamics"
    for name, value in fitted.units_._asdict().items():
        np.testing.assert_array_equal(getattr(back.units_, name), value, err_msg=name)
    assert back.alpha_ == fitted.alpha_
    assert back.verdict_ == fitted.verdict_
    np.testing.assert_array_equal(back.predict_proba(split), fitted.predict_proba(split))
    one, two = (flt.predict_units(split.pool) for flt in (fitted, back))
    np.testing.assert_array_equal(one.probability, two.probability)
    assert back.report(split).to_dict()["units"] == fitted.report().to_dict()["units"]


def truncate(folder):
    file = folder / "filter.safetensors"
    file.write_bytes(file.read_bytes()[:-100])


def without(key):
    def change(folder):
        content = read_json(folder / "filter.json")
        del content[key]
        (folder / "filter.json").unlink()
        write_json(folder / "filter.json", content)

    return change


@pytest.mark.parametrize(
    "damage",
    [
        truncate,
        lambda folder: (folder / "filter.safetensors").unlink(),
        without("finding"),
        without("views"),
        without("config"),
    ],
    ids=["cut", "no arrays", "no finding", "no views", "no config"],
)
def test_a_damaged_file_gives_one_line(fitted, tmp_path, damage):
    folder = fitted.save(tmp_path / "filter")
    damage(folder)
    with pytest.raises(DataError, match="fit and save it again") as caught:
        DomainFilter.load(folder)
    assert "\n" not in str(caught.value)


def test_units_of_the_fit_are_decided_alike_as_new_ones(split, fitted):
    table = fitted.predict_units(split.pool)
    np.testing.assert_array_equal(table.name, fitted.units_.name)
    np.testing.assert_array_equal(table.keep, fitted.units_.keep)
    asked = ~fitted.units_.labelled
    difference = np.abs(table.probability - fitted.units_.probability)[asked]
    assert difference.max() < 0.05


def test_units_never_seen_are_decided_without_labels(fitted, fleet):
    new = fleet(num_units=6, seed=5, first=50)
    table = fitted.predict_units(new)
    np.testing.assert_array_equal(table.keep, is_ours(table.name))
    assert not table.labelled.any()
    np.testing.assert_array_equal(fitted.predict(new), is_ours(new.columns["robot"]))
    # Another split of other data: units with a labelled row are ours.
    split = PUSplit.from_mask(new, new.columns["robot"] == "m51", unit="episode")
    robot = new.columns["robot"][split.unlabelled]
    np.testing.assert_array_equal(fitted.predict(split), is_ours(robot))


def test_units_are_judged_by_the_names_of_their_columns(fitted, fleet):
    named = fitted.model_.named._replace(obs_names=("flow", "heat"))
    model = dataclasses.replace(fitted.model_, named=named)
    data = fleet(num_units=4, seed=5)

    def turned(*names):
        rows = dataclasses.replace(
            data.rows, obs=data.obs[:, ::-1], next_obs=data.next_obs[:, ::-1]
        )
        origin = dataclasses.replace(data.provenance, obs_names=names)
        return Dataset(rows, data.columns, origin)

    want = fitted.predict_units(data)
    for part, same in zip(model.predict_units(turned("heat", "flow")), want, strict=True):
        np.testing.assert_array_equal(part, same)
    assert model.explain(turned("heat", "flow"), "m00")[0][0] in ("flow", "heat")
    window = np.arange(len(data)) // 20
    drift = follow(model, data, window)
    turned_drift = follow(model, turned("heat", "flow"), window)
    np.testing.assert_array_equal(drift[0].distance, turned_drift[0].distance)
    for use in (model.predict_units, model.score_rows, lambda d: follow(model, d, window)):
        with pytest.raises(DataError, match="without flow and with cold; name the same columns"):
            use(turned("heat", "cold"))


def test_units_with_few_windows_are_left_out_of_a_watch(fitted, fleet):
    data = fleet(num_units=3, seed=5)
    data = data[(data.columns["robot"] != "m01") | (data.episode % 4 == 0)]
    courses = follow(fitted.model_, data, np.arange(len(data)) // 39)
    assert [each.name for each in courses] == ["m00", "m02"]
    with pytest.raises(
        DataError, match="expected a unit with at least 4 windows .* most 1 windows"
    ):
        follow(fitted.model_, data, np.zeros(len(data), int))


def test_filters_from_before_columns_were_stored_are_read(fitted, fleet, tmp_path):
    fitted.save(tmp_path / "f")
    content = read_json(tmp_path / "f" / "filter.json")
    assert content.pop("columns")["num_obs"] == 2
    write_json(tmp_path / "f" / "filter.json", content, force=True)
    back, data = DomainFilter.load(tmp_path / "f"), fleet(num_units=4, seed=5)
    assert back.model_.named is None
    np.testing.assert_array_equal(back.predict_proba(data), fitted.predict_proba(data))
    rows = np.zeros((9, 3))
    columns = {"robot": np.array(["a"] * 9)}
    wide = Dataset.from_arrays(obs=rows, action=rows, next_obs=rows, columns=columns)
    with pytest.raises(DataError, match="expected 2 state and 1 action components"):
        back.predict_units(wide)


def test_a_unit_with_few_rows_is_less_sure(fitted, fleet):
    new = fleet(num_units=6, seed=5)
    many = fitted.predict_units(new)
    place = np.concatenate([np.arange(n) for n in many.num_rows])
    few = fitted.predict_units(new[place < 5])
    assert (few.num_rows == 5).all()
    assert np.abs(few.probability - 0.5).mean() < np.abs(many.probability - 0.5).mean() - 0.02
    assert (few.spread > many.spread).all()


@pytest.mark.parametrize("gain", [-0.5, 1.5])
def test_a_unit_of_another_kind_is_none_of_these(fitted, fleet, gain):
    """Ours have 0.5, the others 0.25."""
    table = fitted.predict_units(fleet(num_units=2, seed=5, gains=(gain, gain)))
    assert (table.cluster == -1).all()
    assert (table.agreement > 0.999).all()  # whatever lanes say of where it is


def test_a_unit_that_is_none_of_these_is_dropped_and_ordinary_ones_are_not_called_so(fitted, fleet):
    odd = fitted.predict_units(fleet(num_units=2, seed=5, gains=(1.5, 1.5)))
    assert not odd.keep.any()
    assert (odd.probability < 0.5).all()
    plain = fitted.predict_units(fleet(num_units=20, seed=6))
    assert (plain.cluster >= 0).all()


@pytest.mark.parametrize("gains", [(0.5, 0.25), (1.5, -0.5), (0.8, 1.0), (0.45, 0.1), (0.0, 0.37)])
def test_windows_are_judged_as_their_unit_is(fitted, fleet, gains):
    new = fleet(num_units=4, num_runs=8, seed=5, gains=gains)
    table = fitted.predict_units(new)
    place = np.concatenate([np.arange(n) for n in table.num_rows])
    courses = follow(fitted.model_, new, place // 78)
    assert [each.name for each in courses] == table.name.tolist()
    for each, chance, cluster in zip(courses, table.probability, table.cluster, strict=True):
        assert each.alarm is None
        assert each.probability.shape == (4,)
        if cluster < 0:
            assert (each.probability < 0.5).all()
            assert each.probability.max() <= 1e3 * chance + 1e-3
        else:
            assert abs(np.median(each.probability) - chance) < 0.15
    if gains == (0.5, 0.25):
        np.testing.assert_array_equal(table.keep, is_ours(table.name))


def test_a_unit_that_turns_strange_was_ours_before(fitted, fleet):
    before = fleet(num_units=1, num_runs=8, seed=5)
    after = fleet(num_units=1, num_runs=8, seed=6, gains=(1.5, 1.5))
    both = Dataset.from_arrays(
        obs=np.concatenate([before.obs, after.obs]),
        action=np.concatenate([before.action, after.action]),
        next_obs=np.concatenate([before.next_obs, after.next_obs]),
        columns={"robot": np.repeat("m50", len(before) + len(after))},
    )
    assert fitted.predict_units(both).cluster[0] < 0
    [course] = follow(fitted.model_, both, np.arange(len(both)) // 39)
    assert course.first_beyond == 8
    assert (course.probability[:8] > 0.5).all()
    assert (course.probability[8:] < 0.5).all()


def rows_of_units(rng, num_units, num_rows, shift=0.0):
    """Log-likelihoods of rows: neighbours are alike, and units differ by 0.3."""
    made = []
    for _ in range(num_units):
        noise = np.convolve(rng.normal(size=num_rows + 4), np.full(5, 0.2), mode="valid")
        made.append(1.0 + shift + 0.3 * rng.normal() + noise)
    return np.concatenate(made), np.repeat(np.arange(num_units), num_rows)


def test_ordinary_units_are_rarely_predicted_so_badly_and_odd_ones_always():
    rng = np.random.default_rng(0)
    chance, few = [], []
    for _ in range(100):
        fit = RowFit.of(0, *rows_of_units(rng, 12, 200))
        new, unit = rows_of_units(rng, 20, 300)
        chance.append(fit.probability(RowMeans(np.bincount(unit, new) / 300, np.full(20, 300))))
        new, unit = rows_of_units(rng, 20, 20)
        few.append(fit.probability(RowMeans(np.bincount(unit, new) / 20, np.full(20, 20))))
    for found in (np.concatenate(chance), np.concatenate(few)):
        assert 0.02 < np.mean(found < 0.05) < 0.09
        assert np.mean(found < 1e-3) < 4e-3
    fit = RowFit.of(0, *rows_of_units(rng, 12, 200))
    odd, unit = rows_of_units(rng, 20, 300, shift=6.0)
    rows = RowMeans(np.bincount(unit, odd) / 300, np.full(20, 300))
    assert (fit.probability(rows) < 1e-3).all()
    assert (fit.new_probability(rows, "dynamics") < 1e-3).all()
    relations = fit.new_probability(rows, "relations")  # which few units show less well
    assert (relations > fit.new_probability(rows, "dynamics")).all()


@pytest.mark.parametrize(("num_units", "size"), [(8, 4), (12, 8), (20, 4), (40, 8)])
def test_new_units_of_a_type_are_rarely_far_from_it_however_few_were_fitted(num_units, size):
    rng = np.random.default_rng(0)
    chance, fitted, odd = [], [], []
    for _ in range(60):
        member = np.arange(num_units) % 2
        kinds = 12.0 * np.eye(2, size)
        z = kinds[member] + rng.normal(size=(num_units, size))
        count = np.bincount(member).astype(float)
        found = np.stack([z[member == k].mean(axis=0) for k in (0, 1)])
        left = z - found[member]
        covariance = left.T @ left / num_units + 0.2 * np.eye(size)
        mixture = Mixture(found, covariance, count, 9.0, member=member)
        fit = UnitFit.of(mixture, z, member)
        assert fit.num_units == num_units
        new = kinds[rng.integers(2, size=30)] + rng.normal(size=(30, size))
        none = np.zeros((30, size, size))
        chance.append(fit.new_probability(new, none))
        fitted.append(fit.new_probability(z, none[:1]))
        odd.append(fit.new_probability(new + 60.0, none))
    chance, fitted, odd = map(np.concatenate, (chance, fitted, odd))
    assert np.mean(chance < 0.01) < 0.02  # there are several tests of a unit, and the least counts
    assert np.mean(fitted) > np.mean(chance)  # of which the types were made
    assert np.mean(odd < 0.01) > 0.9


def test_a_type_of_one_unit_and_no_others_has_a_distance():
    mixture = Mixture(np.zeros((2, 2)), np.eye(2), np.array([1.0, 1.0]), 9.0)
    fit = UnitFit.of(mixture, np.array([[0.0, 0.0], [5.0, 0.0]]), np.array([0, 1]))
    assert fit.distance == 1.0
    assert UnitFit.from_dict(json.loads(json.dumps(fit.to_dict()))).mean.tolist() == (
        fit.mean.tolist()
    )


def test_where_no_types_are_seen_new_units_are_kept_but_those_unlike_all_others(fitted, fleet):
    finding = dataclasses.replace(fitted.model_.finding, gain=-5.0)
    model = dataclasses.replace(fitted.model_, finding=finding)
    assert finding.seen == 0.0
    assert model.predict_units(fleet(num_units=6, seed=5)).keep.all()
    odd = model.predict_units(fleet(num_units=2, seed=5, gains=(1.5, 1.5)))
    assert not odd.keep.any()
    assert (odd.cluster == -1).all()


def test_explain_names_the_column_that_a_type_moves_most(split, fitted):
    other, ours = (fitted.model_.explain(split.pool, name) for name in ("m01", "m02"))
    assert [name for name, _ in other] == ["obs_0", "obs_1"]  # its gain acts twice as much on obs_0
    assert other[0][1] > 0.1 > abs(ours[0][1])


def test_explain_of_an_unknown_unit_names_some_that_exist(split, fitted):
    with pytest.raises(DataError, match="m99: no such unit; expected one of m00, m01"):
        fitted.model_.explain(split.pool, "m99")


def test_the_report_holds_all_units_and_comes_back_from_json(fitted):
    report = fitted.report()
    assert {row.name for row in report.units} == set(fitted.units_.name)
    assert report.units[0].name == "m00"
    assert report.num_types == 2
    assert "Only one unit is known" in report.advice
    back = reread(report)
    assert back == report


def test_other_types_may_be_known_by_name(split, fitted, tmp_path):
    flt = DomainFilter(unit="column:robot", config=fitted.config)
    flt.fit(split, seed=0, labelled_as={"old": "robot == 'm01'"})
    table = flt.units_
    np.testing.assert_array_equal(table.keep, is_ours(table.name))
    assert table.probability[table.name == "m01"] == 0
    assert (table.cluster[~table.keep] == 1).all()
    flt.save(tmp_path / "filter")
    assert flt.classes_ == ("ours", "old", "none of these")
    for each in (flt, DomainFilter.load(tmp_path / "filter")):
        np.testing.assert_array_equal(each.units_.classes, table.classes)
        np.testing.assert_array_equal(each.units_.classes[:, 0], table.probability)
        new = each.predict_units(split.pool)
        np.testing.assert_allclose(new.classes.sum(axis=1), 1.0, rtol=0, atol=1e-12)
        np.testing.assert_array_equal(new.cluster, np.where(is_ours(new.name), 0, 1))
        rows = {row.name: type_of(row) for row in each.report(split).units}
        assert rows == {name: "ours" if ours else "old" for name, ours in named(table)}
    back = reread(flt.report())
    assert back == flt.report()


def reread(report):
    return decode(MachineReport, json.loads(json.dumps(report.to_dict())), Path("report.json"))


def named(table):
    return zip(table.name.tolist(), is_ours(table.name), strict=True)


@pytest.mark.parametrize(
    ("labelled_as", "error"),
    [
        ({"old": "robot == 'm00'"}, "label each unit once"),
        ({"old": "robot == 'm01'", "new": "robot == 'm01'"}, "label each unit once"),
        ({"old": np.zeros(3, bool)}, "that holds for some of them"),
        (
            {"old": "robot == 'm00 '"},
            r"labelled_as old: .*\(did you mean 'm00'\?\); robot holds 'm00'",
        ),
        ({"old": "robot in ['m01', 'm7']"}, "labelled_as old: .* no row has robot == 'm7'"),
        ({"ours": "robot == 'm01'"}, "which is reserved"),
    ],
)
def test_names_that_cannot_be_are_refused(split, labelled_as, error):
    with pytest.raises((ConfigError, DataError), match=error):
        DomainFilter(unit="column:robot").fit(split, seed=0, labelled_as=labelled_as)
    with pytest.raises(ConfigError, match="got rows"):
        DomainFilter().fit(split, seed=0, labelled_as=labelled_as)


def test_another_seed_decides_alike_and_the_same_seed_the_same(split, fitted):
    again = DomainFilter(unit="column:robot", config=fitted.config).fit(split, seed=0)
    np.testing.assert_array_equal(again.units_.probability, fitted.units_.probability)
    other = DomainFilter(unit="column:robot", config=fitted.config).fit(split, seed=1)
    np.testing.assert_array_equal(other.units_.keep, fitted.units_.keep)
    assert not np.array_equal(other.units_.evidence, fitted.units_.evidence)


@pytest.mark.parametrize("labelled", ["m0", "m"])
def test_too_few_units_are_refused_in_one_line(fleet, labelled):
    data = fleet(num_units=3 if labelled == "m0" else 12)
    known = np.array(["m00"]) if labelled == "m0" else np.unique(data.columns["robot"])
    mask = np.isin(data.columns["robot"], known)
    mask[-1] = False
    split = PUSplit.from_mask(data, mask)
    with pytest.raises(DataError, match=r"expected at least 4 units.*decide by transition"):
        DomainFilter(unit="column:robot").fit(split, seed=0)


def test_rows_have_no_dynamics_of_their_own(split):
    with pytest.raises(ConfigError, match="expected units of several rows"):
        DomainFilter(evidence="dynamics")
    with pytest.raises(ConfigError, match="expected units of several rows"):
        DomainFilter(unit="episode").set_params(unit="transition", evidence="dynamics").fit(split)
    with pytest.raises(ConfigError, match="evidence: expected"):
        DomainFilter(evidence="guess").fit(split, seed=0)


@pytest.mark.parametrize("rows", ["new.csv", np.zeros((4, 2)), {"obs": [1.0]}])
def test_what_was_not_read_is_refused_with_the_repair(fitted, rows):
    name = type(rows).__name__
    for use in (fitted.predict_proba, fitted.predict):
        with pytest.raises(
            ConfigError, match=f"predict_proba: expected a Dataset or a PUSplit, got {name}; read"
        ):
            use(rows)
    with pytest.raises(ConfigError, match=f"predict_units: expected a Dataset, got {name}; read"):
        fitted.predict_units(rows)


def test_the_old_name_of_predict_proba_warns(split, fitted):
    with pytest.warns(DeprecationWarning, match="predict_proba"):
        old = fitted.score(split)
    np.testing.assert_array_equal(old, fitted.predict_proba(split))


@given(st.lists(st.integers(0, 4), max_size=80), st.integers(1, 12))
def test_thinned_rows_are_spread_evenly(unit, most):
    unit = np.array(unit, dtype=np.int64)
    kept = thin_rows(unit, most)
    assert (np.diff(kept) > 0).all()
    for k in np.unique(unit):
        own = np.flatnonzero(unit == k)
        place = np.searchsorted(own, kept[unit[kept] == k])
        assert len(place) == min(most, len(own))
        gaps = np.diff([*place, len(own)])
        assert gaps.max() - gaps.min() <= 1


def test_units_of_large_fleets_give_fewer_rows():
    assert most_rows("dynamics", 1) == most_rows("dynamics", 200) == 1_000
    assert most_rows("dynamics", 1_000) == 200
    assert most_rows("dynamics", 100_000) == 100
    assert most_rows("relations", 30) == 250


def test_intervals_of_many_sure_units_allow_for_some_that_are_misjudged():
    n, asked = 9_000, 0.3
    ours = np.arange(n) < asked * n
    column = np.zeros(n)
    table = UnitTable(
        name=np.arange(n).astype(str),
        num_rows=np.full(n, 20),
        labelled=np.zeros(n, bool),
        probability=ours.astype(float),
        evidence=column,
        misfit=column,
        keep=ours,
        cluster=column.astype(int),
        agreement=column,
        position=np.zeros((n, 2)),
        spread=column,
    )
    lanes = [LaneChances("dynamics", ours[None].astype(float), np.ones(1), asked)]
    alpha, recall, precision = quality(table, lanes, 1.0, 0)
    assert alpha.value == pytest.approx(asked)
    assert asked - 0.01 < alpha.low < asked - 0.003
    assert asked + 0.01 < alpha.high < asked + 0.02
    assert recall.value == precision.value == 1.0
    assert recall.high == 1.0
    assert 0.94 < recall.low < 0.96
    assert 0.97 < precision.low < 0.985
