import json
from dataclasses import replace
from types import SimpleNamespace

import judged
import machines
import method
import numpy as np
import pytest
from baseline import Recorded
from readout import unit_types
from simulate import FLEETS, Kind, simulate

from puorl.core.stats import Estimate

SMALL = replace(
    FLEETS["carts-motor"],
    kinds=(Kind("ours", 6), Kind("other", 6, {"motor": 0.5})),
    runs=2,
    rows=60,
)


@pytest.fixture(scope="module")
def table():
    return simulate(SMALL)


def told(data, task, **fields):
    """A decision that follows the numbers in the units' names."""
    units = np.unique(data.columns["unit"])
    number = np.array([int(name.split("-")[1]) for name in units])
    kept = (number % 2 == 0) | np.isin(units, task.known)
    return method.Decision(units, -number.astype(float), kept, 1.0, **fields)


def test_a_dataset_holds_neither_type_nor_operator(table):
    data = machines.dataset_of(table, SMALL)
    assert set(data.columns) <= {"unit", "source_row"}
    assert data.obs.shape[1] == len(SMALL.sensors)
    assert data.action.shape[1] == len(SMALL.commands)


def test_a_decision_is_judged_on_the_units_that_were_not_known(table):
    data = machines.dataset_of(table, SMALL)
    units, ours = unit_types(table, SMALL)
    task = machines.draw_task(SMALL, units, ours, 2, 0)
    probability = np.linspace(0.0, 1.0, len(units))
    alpha = Estimate(0.4, 0.2, 0.6)
    made = told(data, task, probability=probability, alpha=alpha, verdict="dynamics")
    found = judged.judge(made, data, ours, task.known)
    asked = ~np.isin(units, task.known)
    assert found["num_asked"] == 10
    assert found["num_right"] == int((made.kept == ours)[asked].sum())
    assert found["num_ours"] == 4
    rows = np.asarray(data.columns["unit"])
    unlabelled = rows[~np.isin(rows, task.known)]
    assert found["true_alpha"] == pytest.approx(np.isin(unlabelled, units[ours]).mean())
    assert found["alpha_held"] is True
    assert found["recall"] is None
    assert found["recall_held"] is None
    assert len(found["units"]["probability"]) == 10
    json.dumps(found)


def test_known_units_are_ours_and_other_draws_know_others(table):
    units, ours = unit_types(table, SMALL)
    tasks = [machines.draw_task(SMALL, units, ours, 2, seed) for seed in range(5)]
    assert all(np.isin(task.known, units[ours]).all() for task in tasks)
    assert len({tuple(sorted(task.known)) for task in tasks}) > 1


def test_the_calibration_error_of_right_and_of_wrong_probabilities():
    rng = np.random.default_rng(0)
    probability = rng.uniform(size=20_000)
    truth = rng.uniform(size=20_000) < probability
    assert judged.calibration_error(probability, truth) < 0.02
    assert judged.calibration_error(np.ones(10), np.zeros(10)) == 1.0
    assert judged.calibration_error(np.full(10, 0.75), np.arange(10) < 5) == pytest.approx(0.25)


def test_an_interval_holds_the_truth_or_not_or_is_absent():
    assert judged.is_held(Estimate(0.5, 0.4, 0.6), 0.6) is True
    assert judged.is_held(Estimate(0.5, 0.4, 0.6), 0.7) is False
    assert judged.is_held(Estimate(0.5), 0.5) is None
    assert judged.is_held(None, 0.5) is None


def test_a_fitted_filter_is_read_in_the_order_of_names(table):
    data = machines.dataset_of(table, SMALL)
    units = np.unique(data.columns["unit"])
    order = np.random.default_rng(0).permutation(len(units))
    number = np.arange(len(units))[order]
    fields = {
        "name": units[order],
        "evidence": number,
        "keep": number > 3,
        "probability": number / 20,
        "cluster": number % 2,
    }
    flt = SimpleNamespace(
        units_=SimpleNamespace(**fields), alpha_=Estimate(0.3, 0.1, 0.5), verdict_="both"
    )
    made = method.read_filter(flt, data, seconds=0.0)
    np.testing.assert_array_equal(made.evidence, np.arange(len(units)))
    assert made.verdict == "both"
    flt.units_.name = flt.units_.name[:-1]
    with pytest.raises(ValueError, match="expected 12 units"):
        method.read_filter(flt, data, seconds=0.0)


def test_rows_are_added_once_and_a_failing_method_stops_nothing(
    table, tmp_path, monkeypatch, capsys
):
    asked = []

    def decide(_, data, tasks):
        asked.extend(tasks)
        return [told(data, task, alpha=Estimate(0.4, 0.2, 0.6)) for task in tasks]

    monkeypatch.setitem(method.METHODS, "linear", decide)
    recorded = Recorded(tmp_path / "rows.jsonl")
    chosen = method.Method("linear")
    machines.measure(chosen, SMALL, table, 2, 2, recorded)
    machines.measure(chosen, SMALL, table, 2, 3, recorded)
    assert [task.seed for task in asked] == [0, 1, 2]
    assert len(Recorded(tmp_path / "rows.jsonl").rows) == 3
    machines.measure(chosen, SMALL, table, 6, 3, recorded)
    assert len(recorded.rows) == 3, "all of ours known: nothing to ask"

    def fail(*_):
        raise RuntimeError("no")

    monkeypatch.setitem(method.METHODS, "linear", fail)
    machines.measure(chosen, SMALL, table, 3, 2, recorded)
    assert len(recorded.rows) == 3
    assert "FAILED RuntimeError: no" in capsys.readouterr().out


def test_another_trial_is_another_row():
    configs = [
        machines.machine_config(method.Method("dynamics", trial=trial), SMALL, 3, 0)
        for trial in ("", "wider")
    ]
    assert configs[0] != configs[1]
    assert configs[0]["filter"]["network"]


def test_the_table_says_what_is_missing_and_what_does_not_count(tmp_path):
    recorded = Recorded(tmp_path / "rows.jsonl")
    baseline = Recorded(machines.RESULTS / "fleets-baseline.jsonl")
    fleet, chosen = FLEETS["cranes-load"], method.Method("linear")
    told_of = {"num_right": 27, "num_asked": 27, "auroc": 1.0, "units": {"probability": None}}
    told_of |= {"alpha_held": None, "recall_held": None}
    recorded.add(machines.machine_config(chosen, fleet, 3, 0), told_of)
    text = machines.text_table(chosen, recorded, baseline, ["cranes-load", "fans-coil"], [3], 5)
    assert "| cranes-load | 100.0 | 100.0 (1.000) of 1 | 40.7 (0.836) |" in text
    assert "Not counted (read-out below 99 %): fans-coil (91.7 %)" in text
