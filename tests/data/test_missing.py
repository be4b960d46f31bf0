"""Cells that are missing or no numbers: counted in one message, dropped or held, never invented."""

import csv

import numpy as np
import pyarrow as pa
import pyarrow.parquet as pq
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

import puorl
from puorl.cli.main import main
from puorl.core.errors import ConfigError, DataError
from puorl.data.formats import load
from puorl.data.validate import parse_missing

HEADER = ["run", "clock", "obs_a", "obs_b", "act", "reward"]


def log(n=12, **changes):
    """Two runs of n / 2 rows; ``changes`` maps a column to {row: cell}."""
    rows = [[f"r{2 * i // n}", i % (n // 2), i, 10 * i, i % 3, 1] for i in range(n)]
    for name, cells in changes.items():
        for row, cell in cells.items():
            rows[row][HEADER.index(name)] = cell
    return rows


def store(path, rows, header=HEADER):
    with open(path, "w", newline="") as file:
        csv.writer(file).writerows([header, *rows])
    return path


def test_one_message_counts_all_bad_cells(tmp_path):
    path = store(
        tmp_path / "log.csv",
        log(obs_a={3: "", 4: "", 7: "err"}, reward={3: ""}, clock={2: ""}, run={9: ""}),
    )
    with pytest.raises(DataError) as error:
        load(path, episode="run", time="clock")
    text = str(error.value)
    assert "row 2 is empty" in text  # the first
    assert "6 bad cells in all: obs_a 3, " in text
    assert all(part in text for part in ("reward 1", "clock 1", "run 1", "--missing drop"))


def test_drop_cuts_the_episode(tmp_path):
    path = store(tmp_path / "log.csv", log(obs_a={3: "x"}))
    data = load(path, episode="run", missing="drop")
    # Row 3 is gone, row 2 has lost its next state, rows 5 and 11 are the last of their runs.
    assert data.columns["source_row"].tolist() == [0, 1, 4, 6, 7, 8, 9, 10]
    assert data.obs[:, 0].tolist() == [0, 1, 4, 6, 7, 8, 9, 10]
    assert (data.next_obs - data.obs)[:, 0].tolist() == [1.0] * 8
    assert data.timeout.tolist() == [False, True, True, False, False, False, False, True]
    assert data.num_episodes == 2
    assert data.provenance.count("missing_rows") == 1
    assert data.provenance.count("dropped_rows") == 3
    assert any(
        "obs_a: 1 cell is missing or no number (first: row 3" in n for n in data.provenance.notes
    )


def test_hold_carries_the_last_value_of_the_episode_on(tmp_path):
    path = store(tmp_path / "log.csv", log(obs_a={2: "", 3: "", 6: "", 7: ""}, act={8: ""}))
    data = load(path, episode="run", missing="hold:1", discrete_actions=False)
    held = dict(zip(data.columns["source_row"].tolist(), data.obs[:, 0].tolist(), strict=True))
    assert held[1] == 1.0  # its next state is row 2's, which was held
    assert data.next_obs[1, 0] == 1.0
    assert 3 not in held  # two steps after the last value
    assert 6 not in held  # nothing to hold in this run
    assert 7 not in held
    assert data.action[data.columns["source_row"] == 8].item() == 7 % 3
    assert load(path, episode="run", missing="hold").provenance.count("missing_rows") == 2
    assert data.provenance.count("held_cells") == 2


def test_a_row_of_unknown_episode_cuts_all_episodes_around_it(tmp_path):
    rows = [[f"r{i % 2}", i, i, i, 0, 1] for i in range(12)]  # interleaved
    rows[5][0] = ""
    data = load(store(tmp_path / "log.csv", rows), episode="run", time="", missing="drop")
    steps = (data.next_obs - data.obs)[:, 0]
    assert set(steps) == {2.0}
    assert 3.0 not in data.obs[:, 0]  # followed by the lost row, or by one after it
    assert 4.0 not in data.obs[:, 0]
    assert set(data.columns["run"]) == {"r0", "r1"}


def test_recorded_next_states_stay(tmp_path):
    header = ["obs", "act", "next_obs", "terminal"]
    rows = [[0, 0, 1, 0], ["", 0, 2, 0], [2, 0, "", 0], [3, 0, "", 1]]
    data = load(store(tmp_path / "log.csv", rows, header), missing="drop")
    assert data.obs.ravel().tolist() == [0.0, 3.0]
    np.testing.assert_array_equal(data.next_obs.ravel(), [1.0, np.nan])
    with pytest.raises(DataError, match="1 bad cell in all: obs 1"):
        load(tmp_path / "log.csv")


def test_parquet_and_its_lists(tmp_path):
    path = tmp_path / "log.parquet"
    table = {
        "obs": pa.array([[0.0, 0.0], [1.0, None], [2.0, 2.0], None, [4.0, 4.0], [5.0, 5.0]]),
        "act": [0.0, 1.0, 2.0, 3.0, 4.0, 5.0],
        "time": pa.array([0, 1, 2, 3, None, 5], pa.int64()),
    }
    pq.write_table(pa.table(table), path)
    with pytest.raises(DataError, match=r"row 1 is empty; 4 bad cells in all: obs 3, time 1"):
        load(path)
    data = load(path, missing="hold", time="")
    assert data.obs.tolist() == [[0, 0], [1, 0], [2, 2], [2, 2], [4, 4]]
    assert load(path, missing="hold", gap=3).obs[:, 0].tolist() == [0, 1, 2]


def test_gaps(tmp_path):
    rows = log()
    for row in rows[3:6]:
        row[1] += 2  # one step of three
    path = store(tmp_path / "log.csv", rows)
    assert len(load(path, episode="run", time="clock")) == 9
    wide = load(path, episode="run", time="clock", gap=4)
    assert len(wide) == 10
    assert any("steps over 4 x the median" in note for note in wide.provenance.notes)
    with pytest.raises(ConfigError, match="gap: expected a factor above 1"):
        load(path, gap=0.5)


@pytest.mark.parametrize("text", ["", "fill", "hold:", "hold:0", "hold:-1", "drop:2"])
def test_other_words(tmp_path, text):
    with pytest.raises(ConfigError, match="missing: expected error, drop, hold or hold:N"):
        parse_missing(text)


@pytest.mark.parametrize(
    "arrays", [{"obs": np.float64(1)}, {"obs": np.zeros((3, 1)), "reward": np.zeros(2)}, {}]
)
def test_what_are_no_rows_is_refused_in_words(tmp_path, arrays):
    np.savez(tmp_path / "log.npz", action=np.zeros((3, 1)), **arrays)
    with pytest.raises(DataError, match="obs"):
        load(tmp_path / "log.npz", missing="hold")


def test_nothing_left(tmp_path):
    path = store(tmp_path / "log.csv", log(obs_a=dict.fromkeys(range(12), "")))
    with pytest.raises(DataError, match="expected rows without missing cells, got none; 12 bad"):
        load(path, missing="hold")


def test_without_bad_cells_nothing_changes(tmp_path):
    path = store(tmp_path / "log.csv", log())
    prints = {
        load(path, episode="run", missing=how).fingerprint for how in ("error", "drop", "hold")
    }
    assert len(prints) == 1


def test_inspect_runs_and_shows_them(tmp_path, capsys):
    path = store(tmp_path / "log.csv", log(obs_a={3: "", 4: "err"}))
    assert main(["inspect", str(path), "--episode", "run"]) == 0
    shown = " ".join(capsys.readouterr().out.split())
    assert "obs_a: 2 cells are missing or no number (first: row 3 (line 5)" in shown
    assert "2 rows have cells that are missing or no numbers: left out here; filter" in shown
    assert "problem 2 rows" in shown
    assert main(["inspect", str(path), "--episode", "run", "--missing", "drop"]) == 0
    shown = " ".join(capsys.readouterr().out.split())
    assert "info 2 rows have cells that are missing or no numbers: left out, as" in shown
    assert "problem" not in shown
    assert main(["inspect", str(path), "--episode", "run", "--missing", "error"]) == 2
    assert main(["inspect", str(path), "--gap", "wide"]) == 2


BAD = st.sampled_from(["", " ", "err", "n/a", "nan", "-", "1,5", "inf"])


@settings(max_examples=60, deadline=None)
@given(
    cells=st.dictionaries(
        st.tuples(st.sampled_from(HEADER[1:]), st.integers(0, 23)), BAD, min_size=1, max_size=12
    ),
    how=st.sampled_from(["drop", "hold:2"]),
)
def test_messy_tables_give_only_values_that_were_written(tmp_path_factory, cells, how):
    """Against a plain reading, row by row: 60 of the tables of a messy fleet."""
    rows = log(24)
    for (name, row), cell in cells.items():
        rows[row][HEADER.index(name)] = cell
    path = store(tmp_path_factory.mktemp("messy") / "log.csv", rows)
    with pytest.raises(DataError, match="missing|NaN|stamps"):
        load(path, episode="run", time="clock")
    expected = plain(rows, how)
    if not expected:
        with pytest.raises(DataError):
            load(path, episode="run", time="clock", missing=how)
        return
    data = load(path, episode="run", time="clock", missing=how, discrete_actions=False)
    found = np.column_stack([data.obs, data.action, data.reward, data.next_obs])
    np.testing.assert_array_equal(found, expected)


def plain(rows, how):
    """What the rules say, in a loop."""

    def number(cell):
        try:
            value = float(str(cell))
        except ValueError:
            return None
        return value if np.isfinite(value) else None

    table = [[row[0], *(number(cell) for cell in row[1:])] for row in rows]
    if how != "drop":
        given_values = [list(row) for row in table]
        for column in (2, 3, 4, 5):
            for i, row in enumerate(table):
                for back in (1, 2):
                    before = given_values[i - back] if i >= back else None
                    if row[column] is None and before and before[0] == row[0]:
                        row[column] = before[column]
    result = []
    for row, after in zip(table, table[1:], strict=False):
        usable = None not in row and None not in after and row[0] == after[0]
        if usable and 0 <= after[1] - row[1] <= 1.5:
            result.append([*row[2:], *after[2:4]])
    return result


def test_gaps_of_rows_that_were_left_out_are_no_gaps_of_the_log(tmp_path, capsys):
    lines = [f"{k},{'' if k == 9 else k % 7},1,0" for k in range(20)]
    path = tmp_path / "log.csv"
    path.write_text("\n".join(["time,obs,action,episode", *lines]) + "\n")
    assert main(["inspect", str(path)]) == 0
    shown = " ".join(capsys.readouterr().out.split())
    assert "info 1 gap in time inside episodes between the rows that are left: the whole" in shown
    path.write_text(path.read_text().replace("\n15,1,1,0\n", "\n"))
    assert main(["inspect", str(path)]) == 0
    assert "warning 2 gaps in time" in " ".join(capsys.readouterr().out.split())


def machines(empty, name="m"):
    """A log of two runs whose machine is not named in some rows."""
    rows = log()
    for i, row in enumerate(rows):
        row.append("" if i in empty else name + row[0])
    return rows


@pytest.mark.parametrize("cell", ["", "  ", "nan"])
def test_empty_cells_of_a_needed_column_count_as_missing(tmp_path, cell):
    rows = machines(())
    rows[3][-1] = cell
    path = store(tmp_path / "log.csv", rows, [*HEADER, "machine"])
    with pytest.raises(DataError, match=r"column machine \(needed\): row 3 is empty; 1 bad cell"):
        load(path, needed="machine")
    data = load(path, needed="machine", missing="drop")
    assert set(data.columns["machine"]) == {"mr0", "mr1"}
    assert data.columns["source_row"].tolist() == [0, 1, 4, 6, 7, 8, 9, 10]  # as for any bad cell
    assert any("machine: 1 cell is missing" in note for note in data.provenance.notes)
    held = load(path, needed="machine", missing="hold")
    assert held.columns["machine"].tolist() == ["mr0"] * 5 + ["mr1"] * 5
    assert load(path).columns["machine"][3] == cell  # not needed: a column like any other


def test_a_misspelt_needed_column_is_refused_with_the_closest_name(tmp_path):
    path = store(tmp_path / "log.csv", machines(()), [*HEADER, "machine"])
    says = r"needed: expected a column 'machin' .*, found: machine, .*; did you mean 'machine'\?"
    for read in (load, puorl.open):
        with pytest.raises(DataError, match=says):
            read(path, needed="machin")
        with pytest.raises(DataError, match="expected a column 'xyz' .*; name one of these"):
            read(path, needed=["machine", "xyz"])
        read(path, needed=["machine", *HEADER[:2]])  # cells of fields always count


def test_names_are_held_inside_an_episode_only(tmp_path):
    path = store(tmp_path / "log.csv", machines((2, 3, 6)), [*HEADER, "machine"])
    data = load(path, needed="machine", missing="hold:1")
    assert data.columns["source_row"].tolist() == [0, 1, 4, 7, 8, 9, 10]
    assert data.columns["machine"].tolist() == ["mr0"] * 3 + ["mr1"] * 4
    some = store(tmp_path / "some.csv", machines((2, 8)), [*HEADER, "machine"])
    lazy = puorl.open(some, needed="machine", missing="hold", partition_rows=5)
    for whole in (lazy.to_dataset(), load(some, needed="machine", missing="hold")):
        assert whole.provenance.count("held_cells") == 2
    assert len(lazy) == 2


def test_missing_numbers_and_nulls_of_a_needed_column(tmp_path):
    table = {"obs": [0.0, 1, 2, 3, 4], "act": [0.5, 1, 2, 3, 4], "time": [0, 1, 2, 3, 4]}
    for ids in ([7, 7, None, 7, 7], ["a", "a", None, "a", "a"]):
        frame = pa.table({**table, "machine": ids})
        with pytest.raises(DataError, match="1 bad cell in all: machine 1"):
            load(frame, needed=["machine"])
        data = load(frame, needed=["machine"], missing="drop")
        assert data.obs.ravel().tolist() == [0.0, 3.0]
        assert len(np.unique(data.columns["machine"])) == 1


def test_nothing_changes_where_no_cell_is_empty(tmp_path):
    path = store(tmp_path / "log.csv", machines(()), [*HEADER, "machine"])
    plain = load(path)
    for missing in ("error", "drop", "hold"):
        found = load(path, needed="machine", missing=missing)
        assert found.fingerprint == plain.fingerprint
        assert found.provenance == plain.provenance


def test_empty_texts_are_no_id_of_an_episode(tmp_path):
    table = {"obs": [0.0, 1, 2, 3, 4], "act": [0.5, 1, 2, 3, 4], "run": ["a", "a", " ", "a", "a"]}
    frame = pa.table(table)
    with pytest.raises(DataError, match=r"column run \(episode\): row 2 is empty"):
        load(frame, episode="run")
    data = load(frame, episode="run", missing="drop")
    assert data.obs.ravel().tolist() == [0.0, 3.0]
    np.savez(tmp_path / "log.npz", obs=table["obs"], act=table["act"], run=table["run"])
    with pytest.raises(DataError, match=r"column run \(episode\): row 2 is empty"):
        load(tmp_path / "log.npz", action="act", episode="run")


def test_rows_left_out_of_a_file_of_ours_are_noted(tmp_path):
    path = store(tmp_path / "log.csv", machines((3,)), [*HEADER, "machine"])
    saved = tmp_path / "own.npz"
    puorl.save(load(path), saved)
    data = load(saved, needed="machine", missing="drop")
    assert len(data) < len(load(saved))
    assert any("machine: 1 cell is missing" in note for note in data.provenance.notes)
    assert ("machine", "") in data.provenance.emptied
    assert load(saved).provenance == load(path).provenance
