"""Keep-lists: what is written is what is read."""

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from puorl.core.errors import ConfigError, DataError
from puorl.data.dataset import Dataset
from puorl.data.labels import match_keep_list, read_keep_list, write_keep_list
from puorl.data.transitions import Transitions


def _dataset(episode, /, **columns):
    n = len(columns["trip"]) if episode is None else len(episode)
    rows = Transitions(
        obs=np.zeros((n, 1)),
        action=np.zeros((n, 1)),
        next_obs=np.zeros((n, 1)),
        terminal=np.zeros(n, bool),
        timeout=np.zeros(n, bool),
        episode=None if episode is None else np.asarray(episode, np.int64),
    )
    return Dataset(rows, columns)


def _with_dropped_rows():
    """Rows 2 and 5 of the file end their episodes and have no next state."""
    return Dataset.from_arrays(
        obs=np.arange(6.0)[:, None], action=np.zeros((6, 1)), episode=np.array([0, 0, 0, 1, 1, 1])
    )


EPISODES = [5, 5, -2, -2, -2, 9]
TRIPS = np.array(["b", "b", "a,1", "a,1", "a,1", ""])


def test_rows_with_scores(tmp_path):
    path, dataset = tmp_path / "keep.csv", _dataset(EPISODES)
    score = np.array([0.1, 0.2, 1 / 3, 0.4, 0.5, 0.6])
    write_keep_list(path, dataset, score > 0.3, score=score)
    assert path.read_text() == "row,score\n2,0.3333333333333333\n3,0.4\n4,0.5\n5,0.6\n"
    assert read_keep_list(path, dataset).tolist() == [2, 3, 4, 5]


def test_episodes_by_number_and_by_text(tmp_path):
    path, keep = tmp_path / "keep.csv", [4, 3, 2, 5]
    numbered = _dataset(EPISODES)
    write_keep_list(path, numbered, keep, unit="episode")
    assert path.read_text() == "episode\n-2\n9\n"
    assert read_keep_list(path, numbered).tolist() == [2, 3, 4, 5]
    named = _dataset(EPISODES, colour=np.array(["x"] * 6), trip=TRIPS)
    write_keep_list(path, named, keep, unit="episode", score=np.arange(6.0), force=True)
    assert path.read_text() == 'trip,score\n"a,1",3.0\n,5.0\n'
    assert read_keep_list(path, named).tolist() == [2, 3, 4, 5]


@pytest.mark.parametrize("episode_text", [TRIPS, np.array(["same"] * 6)])
def test_a_text_column_called_episode_is_no_trap(tmp_path, episode_text):
    dataset = _dataset(EPISODES, episode=episode_text)
    write_keep_list(tmp_path / "keep.csv", dataset, [0, 1], unit="episode")
    assert read_keep_list(tmp_path / "keep.csv", dataset).tolist() == [0, 1]


def test_nothing_kept(tmp_path):
    for unit in ("row", "episode"):
        write_keep_list(tmp_path / unit, _dataset(EPISODES), [], unit=unit)
        assert read_keep_list(tmp_path / unit, _dataset(EPISODES)).tolist() == []


def test_nothing_is_overwritten(tmp_path):
    path = tmp_path / "keep.csv"
    path.write_text("mine")
    with pytest.raises(DataError, match="already exists"):
        write_keep_list(path, _dataset(EPISODES), [0])
    assert path.read_text() == "mine"


@pytest.mark.parametrize(
    ("keep", "options", "says"),
    [
        ([0, 6], {}, "row numbers from 0 to 5, got 0 to 6"),
        ([-1], {}, "row numbers from 0 to 5"),
        ([True, False], {}, "expected 6 flags or a list of row numbers"),
        ([0.5], {}, "dtype float64"),
        ([0, 2], {"unit": "episode"}, "got 1 of 3 rows of episode -2"),
        ([0], {"score": np.zeros(3)}, r"expected 6 values, one a row, got shape \(3,\)"),
    ],
)
def test_wrong_choices(tmp_path, keep, options, says):
    with pytest.raises(DataError, match=says):
        write_keep_list(tmp_path / "keep.csv", _dataset(EPISODES), keep, **options)
    assert list(tmp_path.iterdir()) == []


def test_unknown_unit_and_unknown_episodes(tmp_path):
    with pytest.raises(ConfigError, match="expected row, episode or column:NAME.* got 'rows'"):
        write_keep_list(tmp_path / "keep.csv", _dataset(EPISODES), [0], unit="rows")
    with pytest.raises(DataError, match="has no episodes"):
        write_keep_list(tmp_path / "keep.csv", _dataset(None, trip=TRIPS), [0], unit="episode")


@pytest.mark.parametrize(
    ("content", "says"),
    [
        (b"", "got an empty file"),
        (b"row\n6\n", "is it the list of another dataset"),
        (b"row\n-1\n", "row numbers from 0 to 5"),
        (b"row\n1.5\n", "expected whole numbers"),
        (b"row\n99999999999999999999\n", "expected whole numbers"),
        (b"row,score\n1\n", "expected 2 cells as in the header, got 1 in entry 1"),
        (b"episode\n7\n", r"1 of 1 episodes are not in the dataset \(first: 7\)"),
        (b"trip\nb\nc\n", r"1 of 2 episodes are not in the dataset \(first: c\)"),
        (
            b"hue\nx\n",
            "must say what is listed, expected row or episode or trip or colour, got 'hue'",
        ),
        (b"row\n\xff\n", r"expected a keep-list \(CSV text\)"),
        (b'row\n"1\n', r"expected a keep-list \(CSV text\)"),
    ],
)
def test_wrong_files(tmp_path, content, says):
    path = tmp_path / "keep.csv"
    path.write_bytes(content)
    dataset = _dataset(EPISODES, trip=TRIPS, colour=np.array(["x"] * 6))
    with pytest.raises(DataError, match=says):
        read_keep_list(path, dataset)


@settings(max_examples=100, deadline=None)
@given(
    episode=st.lists(st.integers(-5, 5), min_size=1, max_size=20),
    chosen=st.sets(st.integers(-5, 5)),
    named=st.booleans(),
    prefix=st.text(st.characters(exclude_categories=["Cs"]), max_size=4),
)
def test_round_trip(tmp_path_factory, episode, chosen, named, prefix):
    columns = {"trip": np.array([f"{prefix}{e}" for e in episode])} if named else {}
    dataset = _dataset(episode, **columns)
    keep = np.isin(episode, sorted(chosen))
    folder = tmp_path_factory.mktemp("keep")
    for unit in ("row", "episode"):
        write_keep_list(folder / unit, dataset, keep, unit=unit, score=np.arange(len(episode)) / 7)
        np.testing.assert_array_equal(read_keep_list(folder / unit, dataset), np.flatnonzero(keep))


def test_rows_are_those_of_the_file_when_loading_dropped_some(tmp_path):
    dataset = _with_dropped_rows()
    write_keep_list(tmp_path / "keep.csv", dataset, [1, 2])
    assert (tmp_path / "keep.csv").read_text() == "source_row\n1\n3\n"
    assert read_keep_list(tmp_path / "keep.csv", dataset).tolist() == [1, 2]
    joined = Dataset.concatenate([dataset, dataset])
    assert "source_row" not in joined.columns


@pytest.mark.parametrize(
    ("content", "row", "note"),
    [
        ("source_row\n1\n3\n", [1, 2], ""),
        ("source_row\n2\n3\n3\n", [2], "1 of 2 listed rows was dropped in loading"),
        ("source_row\n0\n1\n2\n5\n", [0, 1], "2 of 4 listed rows were dropped in loading"),
    ],
)
def test_listed_rows_that_loading_dropped_are_left_out(tmp_path, content, row, note):
    (tmp_path / "list.csv").write_text(content)
    listed, notes = match_keep_list(tmp_path / "list.csv", _with_dropped_rows())
    assert listed.tolist() == row
    assert [text.partition(": ")[2] for text in notes] == ([note] if note else [])


@pytest.mark.parametrize(
    ("content", "says"),
    [
        ("source_row\n2\n5\n", "loading dropped all 2 listed rows"),
        ("source_row\n6\n", "source_row numbers from 0 to 5, got 6 to 6; is it the list of"),
        ("source_row\n-1\n0\n", "source_row numbers from 0 to 5"),
        ("row\n1\n", "loading dropped 2 rows, so row numbers are ambiguous; head the list with "),
        ("1\n", "the first line must say what is listed, expected source_row or episode, got '1'"),
    ],
)
def test_lists_that_do_not_fit_a_file_of_which_rows_were_dropped(tmp_path, content, says):
    (tmp_path / "list.csv").write_text(content)
    with pytest.raises(DataError, match=says):
        match_keep_list(tmp_path / "list.csv", _with_dropped_rows())


def test_rows_of_joined_files_are_counted_as_they_were_loaded(tmp_path):
    joined = Dataset.concatenate([_with_dropped_rows(), _with_dropped_rows()])
    (tmp_path / "list.csv").write_text("row\n5\n4\n")
    listed, notes = match_keep_list(tmp_path / "list.csv", joined)
    assert listed.tolist() == [4, 5]
    assert "counted without those that loading dropped" in notes[0]
    (tmp_path / "list.csv").write_text("source_row\n5\n")
    with pytest.raises(DataError, match="come from several files: head the list with row"):
        match_keep_list(tmp_path / "list.csv", joined)


def test_source_rows_where_none_was_dropped_are_refused(tmp_path):
    (tmp_path / "list.csv").write_text("source_row\n5\n")
    with pytest.raises(DataError, match="loading dropped no row: head the list with row"):
        read_keep_list(tmp_path / "list.csv", _dataset(EPISODES))


def test_a_spreadsheet_computes_nothing(tmp_path):
    path = tmp_path / "keep.csv"
    ids = ["=HYPERLINK(1)", "'=HYPERLINK(1)", "+1", "@x", "-y", "\tz", "''", "plain"]
    dataset = _dataset(range(len(ids)), **{"=trip": np.array(ids)})
    for kept in ([0], [1], list(range(len(ids)))):
        write_keep_list(path, dataset, kept, unit="episode", force=True)
        assert not any(line.strip('"')[0] in "=+@-\t" for line in path.read_text().splitlines())
        assert read_keep_list(path, dataset).tolist() == kept
    path.write_text("=trip\n=HYPERLINK(1)\n")  # as another tool writes it
    assert read_keep_list(path, dataset).tolist() == [0]


@pytest.mark.parametrize("kind", [str, np.int64, np.float64])
def test_values_of_a_column_are_listed_as_wholes(tmp_path, kind):
    values = np.array([7, 7, 3, 3, 7, 5])
    machine = np.array([f"=M{v}" for v in values]) if kind is str else values.astype(kind)
    dataset, path = _dataset(EPISODES, machine=machine), tmp_path / "keep.csv"
    write_keep_list(path, dataset, values != 3, unit="column:machine", score=np.arange(6.0))
    lines = path.read_text().splitlines()
    assert lines[0] == "machine,score"
    assert [line.partition(",")[2] for line in lines[1:]] == [repr(5 / 3), "5.0"]
    assert read_keep_list(path, dataset).tolist() == [0, 1, 4, 5]
    with pytest.raises(DataError, match="expected whole units, got 1 of 2 rows of value of mach"):
        write_keep_list(tmp_path / "k", dataset, [2], unit="column:machine")
    path.write_text("machine\n11\n")
    with pytest.raises(DataError, match="1 of 1 values of machine are not in the dataset"):
        read_keep_list(path, dataset)
