"""`puorl score`: new machines and rows, without labels and without learning."""

import csv
import dataclasses
import json
import re

import numpy as np
import pytest
from filter_runs import fleet_rows
from messages import message

import puorl
from puorl.cli.main import main
from puorl.data.transitions import Note
from puorl.pu.machines.drift import UnitCourse
from puorl.pu.unit_table import COLUMNS


@pytest.fixture
def new(here):
    """Machines that the filter has not seen, the last of no known type."""
    return str(puorl.save(fleet_rows(strange=True), here / "new.npz"))


def test_new_machines_are_judged_and_a_strange_one_is_named(fleet, new, capsys):
    run = str(fleet[0] / "run")
    assert main(["score", run, new, "--out", "scores.csv"]) == 0
    printed = capsys.readouterr().out
    assert "3 units, 1 like ours" in printed
    assert re.search(r"M-92 .* dropped +none of these +1\.00", printed)
    assert "warning: M-92: unlike all units that the filter was fitted on" in printed
    with open("scores.csv", newline="") as file:
        lines = {line["unit"]: line for line in csv.DictReader(file)}
    assert tuple(lines["M-90"]) == COLUMNS
    decided = {name: (line["decision"], line["type"]) for name, line in lines.items()}
    expected = {"M-90": ("kept", "ours"), "M-91": ("dropped", "A")}
    assert decided == {**expected, "M-92": ("dropped", "none of these")}
    assert main(["score", run, new, "--out", "scores.csv"]) == 2  # nothing is overwritten
    capsys.readouterr()
    assert main(["score", f"{run}/model", new, "--json"]) == 0
    content = json.loads(capsys.readouterr().out)
    assert content["outside"] == ["M-92"]
    shown = {unit["name"]: unit["probability"] for unit in content["units"]}
    assert shown == {name: float(line["probability"]) for name, line in lines.items()}


def test_machines_without_usable_rows_are_named(fleet, here, capsys):
    rows = fleet_rows(strange=True)
    lost = tuple(("machine", f"M-{k}") for k in (93, 94, 95, 96))
    rows = dataclasses.replace(rows, provenance=dataclasses.replace(rows.provenance, emptied=lost))
    file = str(puorl.save(rows, here / "new.npz"))
    assert main(["score", str(fleet[0] / "run"), file]) == 0
    says = "4 units have no usable rows and are not decided: M-93, M-94, M-95 and 1 more"
    assert f"warning: {says}" in " ".join(capsys.readouterr().out.split())
    more = ("--unit", "column:machine", "--evidence", "dynamics")
    assert main(["filter", file, "--labelled", "machine == 'M-90'", "--out", "o", *more]) == 2
    assert f"warning: {says}" in " ".join(capsys.readouterr().out.split())


def test_decisions_in_doubt_and_rows_left_out_are_counted(fleet, new, capsys, monkeypatch):
    from puorl.pu.machines.model import MachineModel

    predict_units = MachineModel.predict_units

    def unsure(self, data):
        table = predict_units(self, data)
        chance, agreement = table.probability.copy(), table.agreement.copy()
        chance[table.name == "M-90"] = 0.9
        agreement[table.name == "M-91"] = 0.8
        return type(table)(**{**table._asdict(), "probability": chance, "agreement": agreement})

    monkeypatch.setattr(MachineModel, "predict_units", unsure)
    rows = puorl.load(new)
    notes = (*rows.provenance.notes, Note("missing_rows", 7))
    rows = dataclasses.replace(rows, provenance=dataclasses.replace(rows.provenance, notes=notes))
    monkeypatch.setattr("puorl.cli.score.load", lambda *_, **__: rows)
    assert main(["score", str(fleet[0] / "run"), new]) == 0
    printed = capsys.readouterr().out
    assert "2 decisions in doubt: M-90, M-91" in printed
    assert "note: missing: 7 rows with cells that are missing or no numbers were dropped" in printed
    assert main(["score", str(fleet[0] / "run"), new, "--json"]) == 0
    content = json.loads(capsys.readouterr().out)
    assert content["in_doubt"] == ["M-90", "M-91"]
    assert content["left_out"] == {"missing_rows": 7, "dropped_rows": 0}


def test_rows_without_a_machine_are_refused_or_left_out(fleet, here, capsys):
    rows, run = fleet_rows(strange=True), str(fleet[0] / "run")
    names = np.where(np.arange(len(rows)) % 10 == 3, " ", rows.columns["machine"])
    puorl.save(dataclasses.replace(rows, columns={**rows.columns, "machine": names}), "new.npz")
    for options in ([], ["--by-time", "20rows"]):
        assert main(["score", run, "new.npz", *options]) == 2
        assert "column machine (needed): row 3 is empty" in message(capsys.readouterr().err)
        assert main(["score", run, "new.npz", *options, "--missing", "drop"]) == 0
        assert "3 units" in capsys.readouterr().out


def test_rows_are_judged_one_by_one(whole, rows, here, capsys):
    file = str(puorl.save(rows, here / "again.npz"))
    assert main(["score", str(whole), file, "--out", "scores.csv"]) == 0
    assert "of 3,000 rows are likely the target's" in capsys.readouterr().out
    row, score, keep = np.loadtxt("scores.csv", delimiter=",", skiprows=1).T
    flt = puorl.DomainFilter.load(whole / "model")
    np.testing.assert_array_equal(score.astype(np.float32), flt.predict_proba(rows))
    np.testing.assert_array_equal(keep == 1, flt.predict(rows))
    assert row.tolist() == list(range(len(rows)))
    assert main(["score", str(whole), file, "--by-time", "9rows"]) == 2
    assert "expected a filter that decides about units" in message(capsys.readouterr().err)


def test_units_are_followed_over_time(fleet, new, capsys, monkeypatch):
    seen = {}

    def follow(model, data, window_of_row):
        seen["windows"] = window_of_row
        time, chance = np.array([0.0, 40.0, 1_740_991_519.0]), np.array([0.9, 0.9, 0.1])
        distance = np.array([np.nan, 0.4, 7.0])
        return [
            UnitCourse("M-90", time, chance, distance, 2.0, 2),
            UnitCourse("M-91", time, chance, distance, 9.0, None),
        ]

    monkeypatch.setattr("puorl.pu.machines.drift.follow", follow)
    call = ["score", str(fleet[0] / "run"), new, "--by-time", "40"]
    assert main([*call, "--out", "drift.csv"]) == 0
    printed = capsys.readouterr().out
    assert "2 units followed, 1 with an alarm" in printed
    changed = "M-90: beyond its band from 40 on, alarm at 1740991519 (window 3 of 3)"
    assert f"{changed}: 7 from its beginning, 2 is the bound" in printed  # all digits of a clock
    assert "warning: M-92: fewer than 4 windows, so not followed; choose shorter" in printed
    assert "warning: M-92: unlike all units that the filter was fitted on" in printed
    assert np.array_equal(seen["windows"], np.tile(np.repeat([0, 1, 2], 40), 3))
    with open("drift.csv", newline="") as file:
        lines = list(csv.reader(file))
    assert lines[0] == ["unit", "window", "time", "probability", "distance", "band", "alarm"]
    assert [line[4] for line in lines[1:4]] == ["", "0.4", "7.0"]
    assert [line[-1] for line in lines[1:]] == ["0", "0", "1", "0", "0", "0"]
    assert main([*call, "--json"]) == 0
    units = json.loads(capsys.readouterr().out)["units"]
    assert [unit["alarm"] for unit in units] == [2, None]


def test_what_does_not_fit_is_refused(fleet, here, capsys):
    rows = np.zeros((9, 5), np.float32)
    columns = {"machine": np.array(["M-01"] * 9)}
    other = puorl.Dataset.from_arrays(obs=rows, action=rows, next_obs=rows, columns=columns)
    file = str(puorl.save(other, here / "other.npz"))
    run = str(fleet[0] / "run")
    assert main(["score", run, file]) == 2
    assert "expected 2 state and 1 action components" in message(capsys.readouterr().err)
    assert main(["score", str(here), file]) == 2
    assert "expected a folder of puorl filter, or a saved filter" in message(
        capsys.readouterr().err
    )


def test_a_log_without_the_units_is_refused_as_by_filter(fleet, here, capsys):
    rows = fleet_rows(strange=True)
    columns = {"machines": rows.columns["machine"], "source_row": np.arange(len(rows))}
    file = str(puorl.save(dataclasses.replace(rows, columns=columns), here / "other.npz"))
    more = ("--unit", "column:machine", "--labelled", "machines == 'M-90'", "--out", "o")
    told = "a column 'machine' (--unit column:NAME, or needed= in Python), found: machines, "
    for call in (["score", str(fleet[0] / "run"), file], ["filter", file, *more]):
        assert main(call) == 2
        assert told in message(capsys.readouterr().err)


def test_explain_reads_the_log_of_the_filter(fleet, here, capsys, monkeypatch):
    from puorl.pu.machines.model import MachineModel

    def explain(model, data, name):
        assert len(data) == len(fleet_rows())
        return [("speed", 0.25), (name, -0.01)]

    monkeypatch.setattr(MachineModel, "explain", explain, raising=False)
    monkeypatch.chdir(fleet[0])  # where its paths lead from
    assert main(["explain", "run", "M-09"]) == 0
    printed = capsys.readouterr().out
    assert "what tells M-09 from ours" in printed
    assert re.search(r"^ *speed +\+0\.2500", printed, re.MULTILINE)
    assert main(["explain", "run", "M-09", "--json"]) == 0
    content = json.loads(capsys.readouterr().out)
    assert content == {"unit": "M-09", "columns": [["speed", 0.25], ["M-09", -0.01]]}
    assert main(["explain", "run", "M-01"]) == 0
    assert "nothing tells M-01 from ours" in capsys.readouterr().out


def test_explain_needs_units(whole, here, capsys):
    assert main(["explain", str(whole), "M-09"]) == 2
    assert "expected a filter that decides about units" in message(capsys.readouterr().err)
