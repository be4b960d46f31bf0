"""`puorl filter` with units decided by how they move: one known machine is enough."""

import csv
import dataclasses

import numpy as np
import pyarrow.parquet as pq
import pytest
from filter_runs import NUM_MACHINES, NUM_OURS, fleet_rows, hashes, words
from messages import message

import puorl
from puorl.cli.main import main
from puorl.core.hashing import of_bytes
from puorl.core.run_folder import FilterSettings, read_as
from puorl.data.labels import read_keep_list, read_labels
from puorl.pu.machines.report import MachineReport
from puorl.pu.unit_table import COLUMNS, decision, type_name

pytestmark = pytest.mark.usefixtures("small")
OURS = [f"M-{k + 1:02d}" for k in range(NUM_OURS)]


def report_of(folder):
    return read_as(MachineReport, folder / "run" / "report.json")


def test_one_known_machine_finds_its_like(fleet):
    folder, printed = fleet
    made = sorted(p.name for p in (folder / "run").iterdir())
    files = ["keep.csv", "kept.npz", "model", "report.html", "report.json", "settings.json"]
    assert made == [*files, "units.csv"]
    assert [name for name in made if f"\nrun/{name}: " not in printed] == []
    assert "Only one unit is known" in " ".join(printed.replace("│", " ").split())
    assert f"{NUM_MACHINES} units of 2 types: 1 known, {NUM_OURS - 1} of the other" in printed
    kept = puorl.load(folder / "run" / "kept.npz")
    assert sorted(set(kept.columns["machine"].tolist())) == OURS


def test_keep_list_names_machines_and_labels_again(fleet):
    folder, _ = fleet
    lines = (folder / "run" / "keep.csv").read_text().splitlines()
    assert lines[0] == "machine,score"
    assert sorted(line.split(",")[0] for line in lines[1:]) == OURS
    rows = fleet_rows()
    listed = read_keep_list(folder / "run" / "keep.csv", rows)
    assert np.array_equal(listed, np.flatnonzero(np.isin(rows.columns["machine"], OURS)))
    again = read_labels([str(folder / "fleet.npz")], str(folder / "run" / "keep.csv"))
    assert np.array_equal(np.flatnonzero(again.mask), listed)


def test_units_csv_says_what_the_report_says(fleet):
    folder, _ = fleet
    report = report_of(folder)
    with open(folder / "run" / "units.csv", newline="") as file:
        lines = list(csv.DictReader(file))
    assert tuple(lines[0]) == COLUMNS
    assert len(lines) == len(report.units) == NUM_MACHINES
    for line, row in zip(lines, report.units, strict=True):
        assert (line["unit"], int(line["rows"])) == (row.name, row.num_rows)
        assert float(line["evidence"]) == row.evidence
        assert float(line["probability"]) == row.probability
        assert float(line["agreement"]) == row.agreement
        assert (line["decision"], line["type"]) == (decision(row), type_name(row.cluster))
        assert line["labelled"] == str(int(row.name == "M-01"))
    flt = puorl.DomainFilter.load(folder / "run" / "model")
    assert flt.alpha_.value == report.alpha.value


def test_files_that_no_command_reads_have_their_hash_in_the_settings(fleet):
    folder = fleet[0] / "run"
    files = read_as(FilterSettings, folder / "settings.json").files
    assert files == {name: of_bytes(folder / name) for name in ("report.html", "units.csv")}


def test_without_a_report_the_units_are_still_written(fleet, here, capsys):
    folder, printed = fleet
    assert "checking ..." not in printed  # the fit has said all
    more = ("--unit", "column:machine", "--no-report")
    assert main(words(str(folder / "fleet.npz"), *more, labelled="machine == 'M-01'")) == 0
    assert "; verdict: machines differ\n" in capsys.readouterr().out
    got, expected = hashes(here / "run"), hashes(folder / "run")
    assert expected.keys() - got.keys() == {"report.html", "report.json"}
    assert [name for name in got if got[name] != expected[name]] == ["settings.json"]


@pytest.mark.parametrize(
    ("pair", "says"),
    [
        (("worn", "machine == 'M-77'"), "no row has machine == 'M-77' (did you mean 'M-07'?)"),
        (
            ("worn", "machine == 'M-01'"),
            "labelled_as worn: expected units that have no other label",
        ),
        (("ours", "machine == 'M-09'"), "expected a name of your own, got 'ours'"),
    ],
)
def test_other_types_are_checked_before_anything_is_learnt(fleet, here, capsys, pair, says):
    more = ("--unit", "column:machine", "--labelled-as", *pair)
    assert main(words(str(fleet[0] / "fleet.npz"), *more, labelled="machine == 'M-01'")) == 2
    out, err = capsys.readouterr()
    assert says in message(err)
    assert "learning" not in out


def test_the_page_of_puorl_report_reads_it(fleet, here):
    folder, _ = fleet
    assert main(["report", str(folder / "run"), "--out", "all.html"]) == 0
    page = (here / "all.html").read_text()
    assert "Map of the machines" in page
    assert "verdict: dynamics" in page


def test_by_rows_one_machine_is_refused(fleet, here, capsys):
    file = str(fleet[0] / "fleet.npz")
    more = ("--unit", "column:machine", "--evidence", "rows")
    assert main(words(file, *more, labelled="machine == 'M-01'")) == 2
    assert "expected at least 2 values of machine with labelled rows" in message(
        capsys.readouterr().err
    )


@pytest.mark.parametrize(
    ("more", "says"),
    [
        (["--evidence", "dynamics"], "expected units of several rows, got single rows"),
        (
            ["--evidence", "dynamics", "--unit", "episode", "--inputs", "sar"],
            "got --inputs sar; decide by --evidence rows",
        ),
        (
            ["--evidence", "dynamics", "--unit", "episode", "--mode", "top_alpha"],
            "got --mode top_alpha; decide by --evidence rows",
        ),
    ],
)
def test_what_dynamics_cannot_decide(fleet, here, capsys, more, says):
    assert main(words(str(fleet[0] / "fleet.npz"), *more, labelled="machine == 'M-01'")) == 2
    assert says in message(capsys.readouterr().err)
    assert list(here.iterdir()) == []


def test_few_units_are_refused(here, capsys):
    rows = fleet_rows()
    puorl.save(rows[np.isin(rows.columns["machine"], ["M-01", "M-02", "M-09"])], "few.npz")
    assert main(words("few.npz", "--unit", "column:machine", labelled="machine == 'M-01'")) == 2
    assert "expected at least 4 units" in message(capsys.readouterr().err)


def test_rows_without_a_machine_are_refused_or_left_out(here, capsys):
    rows = fleet_rows()
    empty = np.arange(len(rows)) % 10 == 3
    names = np.where(empty, "", rows.columns["machine"])
    table = dataclasses.replace(rows, columns={**rows.columns, "machine": names}).to_arrow()
    pq.write_table(table, "fleet.parquet", row_group_size=100)
    options = ("--unit", "column:machine", "--no-report")
    command = words("fleet.parquet", *options, labelled="machine == 'M-01'")
    assert main(command) == 2
    number, said = empty.sum(), message(capsys.readouterr().err)
    assert f"{number} bad cells in all: machine {number}" in said
    assert main([*command, "--stream"]) == 2
    said = message(capsys.readouterr().err)
    assert f"got empty cells: machine {number}; repair them" in said
    for more in ([], ["--stream", "--out-format", "parquet", "--force"]):
        assert main([*command, "--missing", "drop", *more]) == 0
        kept = puorl.load("run")
        assert set(kept.columns["machine"]) == set(OURS)


def test_every_name_has_a_probability_in_units_csv_and_for_new_machines(fleet, here, capsys):
    names = {"worn": "M-09", "old": "M-10"}  # two names on one type
    pairs = [(name, f"machine == '{unit}'") for name, unit in names.items()]
    more = [word for pair in pairs for word in ("--labelled-as", *pair)]
    file = str(fleet[0] / "fleet.npz")
    command = words(file, "--unit", "column:machine", *more, labelled="machine == 'M-01'")
    assert main(command) == 0
    assert "worn and old are not told apart" in " ".join(
        capsys.readouterr().out.replace("│", " ").split()
    )
    heads = ["p_ours", "p_worn", "p_old", "p_none of these"]
    with open(here / "run" / "units.csv", newline="") as table:
        lines = {line["unit"]: line for line in csv.DictReader(table)}
    assert list(lines["M-01"]) == [*COLUMNS, *heads]
    for line in lines.values():
        chances = [float(line[head]) for head in heads]
        assert sum(chances) == pytest.approx(1.0)
        assert chances[0] == float(line["probability"])
    known = [lines[unit][f"p_{name}"] for name, unit in names.items()]
    assert known == ["1.0", "1.0"]
    assert 0.4 < float(lines["M-12"]["p_worn"]) == float(lines["M-12"]["p_old"]) <= 0.5
    assert sorted(k for k, line in lines.items() if line["decision"] != "dropped") == OURS
    assert "Chance of type" in (here / "run" / "report.html").read_text()
    puorl.save(fleet_rows(strange=True), here / "new.npz")
    assert main(["score", "run", "new.npz", "--out", "scores.csv"]) == 0
    with open(here / "scores.csv", newline="") as table:
        new = {line["unit"]: line for line in csv.DictReader(table)}
    assert list(new["M-90"]) == [*COLUMNS, *heads]
    assert float(new["M-90"]["p_ours"]) > 0.9
    assert float(new["M-91"]["p_worn"]) == float(new["M-91"]["p_old"]) > 0.4
    assert float(new["M-92"]["p_none of these"]) > 0.9
