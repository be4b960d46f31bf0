"""Discrete actions: recognised and told, held as one-hot columns, and kept by every format."""

import copy
import dataclasses

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

import puorl
from puorl.core.errors import DataError
from puorl.core.formatting import code_values
from puorl.data.actions import in_order, is_one_hot, one_hot
from puorl.data.dataset import Dataset
from puorl.data.draw import make_split
from puorl.data.formats import writable
from puorl.data.inspect import inspect
from puorl.data.split import PUSplit
from puorl.data.transitions import Provenance


def write_csv(path, actions, *, more=None):
    """Write rows of two episodes with one action column, ``valve``."""
    half = len(actions) // 2
    header = ["run", "x", "valve", *(more or {})]
    lines = [",".join(header)]
    for i, action in enumerate(actions):
        extra = [str(values[i]) for values in (more or {}).values()]
        lines.append(",".join([str(i // half), f"{i * 0.5}", str(action), *extra]))
    path.write_text("\n".join(lines) + "\n")
    return path


def read(path, **options):
    return puorl.load(path, obs="x", action="valve", episode="run", **options)


def made(num_rows=40, codes=("left", "none", "right"), seed=0):
    """Rows with an episode column and next actions."""
    rng = np.random.default_rng(seed)
    data = Dataset.from_arrays(
        obs=rng.normal(size=(num_rows, 2)).astype(np.float32),
        action=np.array(codes)[np.arange(num_rows) % len(codes)],
        reward=rng.normal(size=num_rows),
        episode=np.arange(num_rows) // 10,
    )
    return data.with_next_action()


# ---------------------------------------------------------------------- recognition


def test_few_small_whole_numbers_in_one_column_are_codes_and_a_note_says_so(tmp_path):
    data = read(write_csv(tmp_path / "a.csv", [0, 1, 3, 1, 0, 1, 3, 3]))
    assert data.action_codes == ("0", "1", "3")
    assert data.action.dtype == np.float32
    assert data.action.tolist()[:3] == [[1, 0, 0], [0, 1, 0], [0, 0, 1]]
    assert data.provenance.action_names == ("valve=0", "valve=1", "valve=3")
    [note] = [n for n in data.provenance.notes if "codes" in n]
    assert note == (
        "valve: 3 codes (0, 1, 3), taken as discrete; if they are amounts, say so with "
        "--action-kind continuous (discrete_actions=False)"
    )
    assert "action 3 codes" in repr(data)


def test_texts_are_codes_by_alphabet_and_blanks_do_not_count(tmp_path):
    data = read(write_csv(tmp_path / "a.csv", ["open", " shut", "open", "hold "]))
    assert data.action_codes == ("hold", "open", "shut")
    assert "valve: 3 codes (hold, open, shut), taken as discrete" in data.provenance.notes
    assert data.action_index.tolist() == [1, 1]  # a last row of each run has no next state


def test_numbers_are_sorted_as_numbers():
    data = Dataset.from_arrays(obs=np.zeros((20, 1)), action=np.arange(20) % 2 * 8 + 2)
    assert data.action_codes == ("2", "10")
    assert in_order(["10", "2"]) == ("2", "10")


@pytest.mark.parametrize(
    "values",
    [[0.5, 1, 2, 0] * 5, [1000, 1500] * 10, [-1, 0, 1, 0] * 5, list(range(20)), [1] * 20],
    ids=["fractions", "large", "negative", "rarely repeated", "constant"],
)
def test_other_numbers_stay_continuous_unless_asked(tmp_path, values):
    path = write_csv(tmp_path / "a.csv", values)
    assert read(path).action_codes is None
    assert read(path).action[:, 0].tolist() == [*values[:9], *values[10:19]]
    asked = read(path, discrete_actions=True)
    assert code_values(asked.action_codes) == (
        sorted(set(values)) if 0.5 not in values else ["0", "0.5", "1", "2"]
    )


def test_codes_can_be_called_amounts(tmp_path):
    path = write_csv(tmp_path / "a.csv", [0, 1, 3, 1, 0, 1, 3, 3])
    data = read(path, discrete_actions=False)
    assert data.action_codes is None
    assert data.action[:, 0].tolist() == [0, 1, 3, 0, 1, 3]


def test_codes_can_be_named_in_order(tmp_path):
    path = write_csv(tmp_path / "a.csv", [0, 1, 3, 1, 0, 1, 3, 3])
    data = read(path, discrete_actions=["3", "2", "1", "0"])
    assert data.action_codes == ("3", "2", "1", "0")
    assert data.action_index.tolist() == [3, 2, 0, 3, 2, 0]
    with pytest.raises(DataError, match=r"expected only the codes 0, 1, got 3; add them"):
        read(path, discrete_actions=["0", "1"])


def test_whole_floats_of_an_array_file_are_amounts():
    obs, action = np.zeros((20, 1)), np.arange(20.0) % 3
    assert Dataset.from_arrays(obs=obs, action=action).action_codes is None
    assert Dataset.from_arrays(obs=obs, action=action.astype(int)).action_codes is not None
    assert Dataset.from_arrays(obs=obs, action=action > 1).action_codes == ("0", "1")


def test_one_hot_columns_are_taken_where_the_user_says_so():
    obs, action = np.zeros((4, 1)), np.eye(3)[[0, 2, 1, 1]]
    assert Dataset.from_arrays(obs=obs, action=action).action_codes is None
    data = Dataset.from_arrays(obs=obs, action=action, discrete_actions=["a", "b", "c"])
    assert data.action_codes == ("a", "b", "c")
    assert data.action_index.tolist() == [0, 2, 1]
    with pytest.raises(DataError, match="one column of codes, or one-hot columns, got 3 columns"):
        Dataset.from_arrays(obs=obs, action=2 * action, discrete_actions=True)


def test_too_many_texts_are_refused():
    action = np.array([f"id {i}" for i in range(1001)])
    with pytest.raises(DataError, match="expected 1 to 1,000 codes or numbers, got 1,001"):
        Dataset.from_arrays(obs=np.zeros((1001, 1)), action=action)


# -------------------------------------------------------------------- messy logs


def test_missing_codes_are_counted_dropped_or_held(tmp_path):
    cells = ["open", "", "shut", "open", "n/a", "shut", "open", "open"]
    path = write_csv(tmp_path / "a.csv", cells)
    with pytest.raises(DataError, match=r"row 1: expected a code, got ''; 2 bad cells in all"):
        read(path)
    assert read(path, missing="drop").action_codes == ("open", "shut")
    assert len(read(path, missing="drop")) == 3
    held = read(path, missing="hold")
    assert held.action_index.tolist() == [0, 0, 1, 1, 0]  # the second run starts with a gap


def test_an_empty_cell_among_numbers_does_not_change_what_they_are(tmp_path):
    path = write_csv(tmp_path / "a.csv", [0, 1, "", 1, 0, 1, 0, 0])
    assert read(path, missing="drop").action_codes == ("0", "1")


def test_few_texts_among_numbers_are_bad_cells_not_codes(tmp_path):
    path = write_csv(tmp_path / "a.csv", [0.5, 1.5, "oops", 1, 0, 1, 0.25, 0])
    with pytest.raises(DataError, match="expected a number, got 'oops'"):
        read(path)


def test_conditions_and_rewards_use_the_codes(tmp_path):
    path = write_csv(tmp_path / "a.csv", [0, 1, 3, 1, 0, 1, 3, 3])
    data = read(path, label="valve == 3", reward="-1.0 * valve")
    assert data.columns["labelled"].tolist() == [False, False, True] * 2
    assert data.reward.tolist() == [0, -1, -3] * 2
    texts = read(write_csv(tmp_path / "b.csv", ["a", "b", "b", "a"] * 2), label="valve == 'b'")
    assert texts.columns["labelled"].tolist() == [False, True, True] * 2


# ----------------------------------------------------------------- several files


def test_files_with_other_codes_share_all_of_them(tmp_path):
    paths = [
        write_csv(tmp_path / "a.csv", [0, 1, 0, 1] * 2),
        write_csv(tmp_path / "b.csv", [1, 10, 1, 10] * 2),
    ]
    data = read(paths)
    assert data.action_codes == ("0", "1", "10")
    assert data.action_index.tolist() == [0, 1, 0] * 2 + [1, 2, 1] * 2


def test_codes_and_amounts_do_not_mix(tmp_path):
    paths = [
        write_csv(tmp_path / "a.csv", [0, 1, 0, 1] * 2),
        write_csv(tmp_path / "b.csv", [0.5, 1, 0.25, 1] * 2),
    ]
    with pytest.raises(
        DataError, match=r"got discrete ones in .*a\.csv and continuous ones in .*b"
    ):
        read(paths)
    assert read(paths, discrete_actions=False).action_codes is None


def test_domains_must_share_their_codes():
    parts = [made(codes=codes) for codes in (("a", "b"), ("b", "a"), ("a", "c"))]
    make_split(parts[0], [parts[1]], rows=30, labelled_fraction=0.1, seed=0)
    with pytest.raises(DataError, match="expected the actions of the target, the codes a, b, got"):
        make_split(parts[0], [parts[2]], rows=30, labelled_fraction=0.1, seed=0)


@given(st.permutations(["a", "b", "c", "d"]), st.integers(0, 2**16))
def test_codes_in_another_order_are_the_same_actions(order, seed):
    data = made(codes=("a", "b", "c"), seed=seed)
    changed = data.with_action_codes(order)
    assert np.array_equal(
        np.array(data.action_codes)[data.action_index],
        np.array(changed.action_codes)[changed.action_index],
    )
    assert np.array_equal(np.isnan(data.next_action[:, 0]), np.isnan(changed.next_action[:, 3]))
    assert changed.with_action_codes(data.action_codes + ("d",)).fingerprint == (
        data.with_action_codes(data.action_codes + ("d",)).fingerprint
    )
    with pytest.raises(DataError, match="expected codes among a, b, got a, b, c"):
        data.with_action_codes(["a", "b"])


# ------------------------------------------------------------------------- formats


@pytest.mark.parametrize("codes", [("left", "none", "right"), ("2", "3", "4"), ("0", "7")])
@pytest.mark.parametrize("name", writable())
def test_every_format_gives_the_codes_back(tmp_path, name, codes):
    data = made(codes=codes)
    path = puorl.save(data, tmp_path / "rows", format=name)
    back = puorl.load(path, format=name)
    assert back.action_codes == codes
    assert back.fingerprint == data.fingerprint
    assert back.action.dtype == np.float32
    assert back.provenance == data.provenance
    assert np.array_equal(back.next_action, data.next_action, equal_nan=True)


@pytest.mark.parametrize("name", writable())
def test_saved_amounts_do_not_become_codes(tmp_path, name):
    data = Dataset.from_arrays(obs=np.zeros((20, 1)), action=np.arange(20.0) % 3)
    back = puorl.load(puorl.save(data, tmp_path / "rows", format=name), format=name)
    assert back.action_codes is None
    assert back.fingerprint == data.fingerprint


def test_rows_keep_their_codes():
    data = made()
    assert data[5:9].action_codes == data.action_codes
    assert data[np.array([3, 1])].action_index.tolist() == [0, 1]
    assert copy.deepcopy(data).action_codes == data.action_codes
    split = PUSplit.from_mask(data, np.arange(len(data)) < 12)
    assert split.pool.action_codes == data.action_codes
    again = Dataset.from_arrays(
        obs=data.obs,
        next_obs=data.next_obs,
        action=data.action,
        reward=data.reward,
        provenance=data.provenance,
    )
    assert again.action_codes == data.action_codes


def test_what_columns_stand_for_is_part_of_the_fingerprint():
    data = made()
    other = dataclasses.replace(data.provenance, action_codes=("right", "none", "left"))
    assert Dataset(data.rows, {}, other).fingerprint != data.fingerprint
    with pytest.raises(DataError, match="expected 2 one-hot columns, got 3"):
        Dataset(data.rows, {}, dataclasses.replace(other, action_codes=("a", "b")))


def test_the_record_of_continuous_rows_is_as_before():
    assert "action_codes" not in Provenance().to_dict()
    with pytest.raises(DataError, match="action_codes cannot be"):
        Provenance.from_dict({"action_codes": [1, 2]})


def test_frames_hold_codes_in_one_column(tmp_path):
    pytest.importorskip("pyarrow")
    data = read(write_csv(tmp_path / "a.csv", ["open", "shut"] * 10))
    frame = data.to_arrow()
    assert frame["valve"].to_pylist()[:3] == ["open", "shut", "open"]
    back = puorl.load(frame, obs="x", action="valve", next_obs="next_x")
    assert back.action_codes == data.action_codes
    assert np.array_equal(back.action, data.action)


def test_a_discrete_space_of_minari_comes_and_goes(tmp_path):
    minari = pytest.importorskip("minari")
    spaces = pytest.importorskip("gymnasium.spaces")
    buffer = minari.data_collector.EpisodeBuffer(
        id=0,
        observations=np.arange(8, dtype=np.float32).reshape(4, 2),
        actions=np.array([1, 3, 1]),
        rewards=[0.0, 1.0, 0.5],
        terminations=[False, False, True],
        truncations=[False, False, False],
    )
    from minari.dataset.minari_storage import MinariStorage

    folder = tmp_path / "given" / "data"
    folder.mkdir(parents=True)
    storage = MinariStorage.new(
        folder,
        observation_space=spaces.Box(-np.inf, np.inf, (2,), np.float32),
        action_space=spaces.Discrete(4, start=1),
        data_format="hdf5",
    )
    storage.update_metadata({"dataset_id": "given-v0", "minari_version": minari.__version__})
    storage.update_episodes([buffer])
    data = puorl.load(tmp_path / "given")
    assert data.action_codes == ("1", "2", "3", "4")  # the space names codes that no row has
    assert data.action_index.tolist() == [0, 2, 0]
    assert any("as its space says" in note for note in data.provenance.notes)

    puorl.save(data, tmp_path / "made")
    stored = minari.MinariDataset(tmp_path / "made" / "data")
    assert stored.action_space == spaces.Discrete(4, start=1)
    assert stored[0].actions.tolist() == [1, 3, 1]
    assert puorl.load(tmp_path / "given", discrete_actions=False).action_codes is None


def test_inspection_shows_one_column_of_codes(tmp_path):
    seen = inspect(read(write_csv(tmp_path / "a.csv", ["open", "shut"] * 10)))
    [column] = [c for c in seen.columns if c.name == "valve"]
    assert column.kind == "text"
    assert column.num_distinct == 2


def test_one_hot_columns_are_told_from_amounts():
    codes = np.eye(3, dtype=np.float32)[np.arange(30) % 3]
    assert is_one_hot(codes)
    assert not is_one_hot(codes[:, :2])  # some rows have no 1
    assert not is_one_hot(np.ones((5, 1)))
    late = codes.copy()
    late[20, 0] = 0.5
    assert not is_one_hot(late)


def test_an_unknown_position_is_unknown_in_all_columns():
    assert np.isnan(one_hot(np.array([np.nan]), 2)).all()


@pytest.mark.parametrize("codes", [["0", "1", "3", "3"], ["0", "1", "3", ""]])
def test_codes_that_cannot_be_are_refused(tmp_path, codes):
    path = write_csv(tmp_path / "a.csv", [0, 1, 3, 1, 0, 1, 3, 3])
    with pytest.raises(DataError, match="expected codes that differ, got"):
        read(path, discrete_actions=codes)


def test_only_codes_have_an_index():
    with pytest.raises(DataError, match="action_index: expected discrete actions"):
        _ = Dataset.from_arrays(obs=np.zeros((3, 1)), action=np.full((3, 1), 0.5)).action_index
