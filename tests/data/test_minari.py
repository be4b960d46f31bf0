import json
import os
import warnings

import h5py
import numpy as np
import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

import puorl
from puorl.core.errors import DataError, PuorlError
from puorl.data import minari as minari_module
from puorl.data.transitions import Provenance, Transitions

minari = pytest.importorskip("minari")
spaces = pytest.importorskip("gymnasium.spaces")

FEW = settings(
    max_examples=25,
    deadline=None,
    derandomize=True,
    suppress_health_check=[HealthCheck.function_scoped_fixture],
)


@pytest.fixture
def home(tmp_path, monkeypatch):
    monkeypatch.setenv("MINARI_DATASETS_PATH", str(tmp_path / "minari"))
    return tmp_path / "minari"


def box(*shape, dtype=np.float32):
    return spaces.Box(-np.inf, np.inf, shape=shape, dtype=dtype)


def foreign(episodes, *, observation=None, action=None, name="test/foreign-v0", **options):
    """A dataset made by Minari itself."""
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")  # Minari asks for author, code and so on
        minari.create_dataset_from_buffers(
            name,
            [minari.data_collector.EpisodeBuffer(**e) for e in episodes],
            observation_space=observation,
            action_space=action,
            **options,
        )
    return name


def episode(length, *, obs=None, action=None, terminal=False, start=0.0, infos=None):
    flags = np.zeros(length, bool)
    last = flags.copy()
    last[-1] = True
    plain = (start + np.arange(2.0 * (length + 1))).reshape(-1, 2).astype(np.float32)
    return {
        "observations": plain if obs is None else obs,
        "actions": np.ones((length, 3), np.float32) if action is None else action,
        "rewards": np.arange(length, dtype=np.float64),
        "terminations": last if terminal else flags,
        "truncations": flags if terminal else last,
        "infos": infos,
    }


@pytest.mark.parametrize("storage", ["hdf5", "arrow", "parquet"])
def test_reads_both_ends_of_a_step_and_both_flags(home, storage):
    foreign(
        [episode(3, terminal=True), episode(2, start=100.0)],
        observation=box(2),
        action=box(3),
        data_format=storage,
    )
    ds = puorl.load(home / "test" / "foreign-v0")
    assert ds.obs.tolist() == [[0, 1], [2, 3], [4, 5], [100, 101], [102, 103]]
    assert ds.next_obs.tolist() == [[2, 3], [4, 5], [6, 7], [102, 103], [104, 105]]
    assert ds.obs.dtype == np.float32
    assert ds.terminal.tolist() == [False, False, True, False, False]
    assert ds.timeout.tolist() == [False, False, False, False, True]
    assert ds.episode is not None
    assert ds.episode.tolist() == [0, 0, 0, 1, 1]
    assert ds.reward is not None
    assert ds.reward.tolist() == [0, 1, 2, 0, 1]
    assert ds.provenance.format == "minari"


@pytest.mark.parametrize("storage", ["hdf5", "arrow"])
def test_a_part_has_whole_episodes(home, storage, monkeypatch):
    monkeypatch.setattr("puorl.data.minari._BLOCK", 6)
    lengths = (3, 5, 2, 4, 7)
    rows = [episode(n, terminal=n == 5, start=n) for n in lengths]
    path = home / foreign(rows, observation=box(2), action=box(3), data_format=storage)
    loaded, lazy = puorl.load(path), puorl.open(path, partition_rows=6)
    assert [each.num_rows for each in lazy.partitions] == [8, 6, 7]
    assert lazy.to_dataset().fingerprint == loaded.fingerprint


def test_reads_the_inner_data_folder_and_an_id(home):
    foreign([episode(2)], observation=box(2), action=box(3))
    inner = puorl.load(home / "test" / "foreign-v0" / "data")
    from puorl.data.minari import read
    from puorl.data.validate import FieldNames

    by_id = read(type(home)("test/foreign-v0"), FieldNames())
    assert np.array_equal(inner.obs, by_id.arrays["obs"])


def test_discrete_actions_become_codes(home):
    # An empty Discrete must not be taken for flags: 2 is a choice.
    made = episode(3, action=np.array([0, 2, 1]))
    foreign([made], observation=box(2), action=spaces.Discrete(3))
    ds = puorl.load(home / "test" / "foreign-v0")
    assert ds.action_codes == ("0", "1", "2")
    assert ds.action_index.tolist() == [0, 2, 1]


def test_dictionary_observations_are_flattened_by_name(home):
    space = spaces.Dict({"z": box(2), "a": spaces.Dict({"k": spaces.Discrete(5)})})
    obs = {"z": np.arange(6, dtype=np.float32).reshape(3, 2), "a": {"k": np.array([4, 3, 2])}}
    foreign([episode(2, obs=obs)], observation=space, action=box(3))
    path = home / "test" / "foreign-v0"
    ds = puorl.load(path)
    assert ds.provenance.obs_names == ("a.k", "z_0", "z_1")
    assert ds.obs.tolist() == [[4, 0, 1], [3, 2, 3]]
    assert ds.next_obs.tolist() == [[3, 2, 3], [2, 4, 5]]
    assert puorl.load(path, obs="z").obs.tolist() == [[0, 1], [2, 3]]
    assert puorl.load(path, obs=["z", "a.*"]).provenance.obs_names == ("z_0", "z_1", "a.k")
    with pytest.raises(DataError, match=r"'q' \(named for obs\), found: .*observations\.z"):
        puorl.load(path, obs="q")


def test_text_parts_are_left_out_and_images_refused(home):
    space = spaces.Dict({"word": spaces.Text(9), "x": box(2)})
    obs = {"word": ["go", "on", "up"], "x": np.zeros((3, 2), np.float32)}
    foreign([episode(2, obs=obs)], observation=space, action=box(3))
    ds = puorl.load(home / "test" / "foreign-v0")
    assert ds.obs.shape == (2, 2)
    assert any("observations.word" in note for note in ds.provenance.notes)
    image = np.zeros((3, 4, 5), np.float32)
    foreign([episode(2, obs=image)], observation=box(4, 5), action=box(3), name="test/image-v0")
    with pytest.raises(DataError, match=r"observations: .*\(4, 5\)"):
        puorl.load(home / "test" / "image-v0")


def test_infos_with_one_value_a_step_become_columns(home):
    infos = {"speed": np.array([9.0, 1.0, 2.0]), "qpos": np.zeros((3, 7)), "inner": {"n": [1, 2]}}
    foreign([episode(2, infos=infos)], observation=box(2), action=box(3))
    ds = puorl.load(home / "test" / "foreign-v0")
    assert ds.columns["speed"].tolist() == [1, 2]  # the first belongs to the reset
    assert ds.columns["inner.n"].tolist() == [1, 2]
    assert "qpos" not in ds.columns
    assert any("infos.qpos" in note for note in ds.provenance.notes)
    named = puorl.load(home / "test" / "foreign-v0", time="speed")
    assert named.time is not None
    assert named.time.tolist() == [1, 2]
    with pytest.raises(DataError, match=r"'tim' \(named for time\), found"):
        puorl.load(home / "test" / "foreign-v0", time="tim")


def test_infos_of_some_episodes_only_are_left_out(home):
    infos = {"speed": np.array([1.0, 2.0])}
    made = [episode(2), episode(2, infos=infos), episode(2)]
    foreign(made, observation=box(2), action=box(3))
    ds = puorl.load(home / "test" / "foreign-v0")
    assert len(ds) == 6
    assert not ds.columns
    assert any("infos.speed" in note for note in ds.provenance.notes)


def test_the_environment_is_never_made(home, monkeypatch):
    obs = np.zeros((3, 4), np.float32)
    made = episode(2, obs=obs, action=np.array([0, 1]))
    foreign([made], env="CartPole-v1", name="test/cart-v0")
    path = home / "test" / "cart-v0"
    expected = puorl.load(path, discrete_actions=True)
    metadata = json.loads((path / "data" / "metadata.json").read_text())
    assert "env_spec" in metadata
    for key in ("observation_space", "action_space"):  # as in old datasets
        del metadata[key]
    metadata["env_spec"] = metadata["env_spec"].replace("CartPole-v1", "Nowhere-v9")
    (path / "data" / "metadata.json").write_text(json.dumps(metadata))

    def no_environment(*_, **__):
        raise AssertionError("an environment was made")

    monkeypatch.setattr("gymnasium.make", no_environment)
    assert puorl.load(path, discrete_actions=True).fingerprint == expected.fingerprint


@pytest.mark.parametrize(
    ("change", "message"),
    [
        ({"total_steps": 7}, "its metadata says 7 steps, found 3"),
        ({"total_episodes": 2}, "expected a readable Minari dataset"),
        ({"total_episodes": "x"}, "expected at least one episode"),
        ({"total_episodes": 0}, "expected at least one episode"),
        ({"data_format": "tar"}, "expected a readable Minari dataset"),
        ({"data_format": None}, "expected a readable Minari dataset"),
        ({"observation_space": "{"}, "expected a readable Minari dataset"),
        ({"puorl": {"version": 99}}, "another version of puorl"),
        ({"puorl": ["?"]}, "expected what puorl wrote"),
    ],
)
def test_wrong_metadata_is_named(home, change, message):
    foreign([episode(3)], observation=box(2), action=box(3))
    file = home / "test" / "foreign-v0" / "data" / "metadata.json"
    file.write_text(json.dumps(json.loads(file.read_text()) | change))
    with pytest.raises(DataError, match=message):
        puorl.load(home / "test" / "foreign-v0")
    with pytest.raises(DataError, match="foreign-v0: expected"):
        puorl.open(home / "test" / "foreign-v0").to_dataset()


def test_what_is_no_dataset_is_named(tmp_path, home):
    from puorl.data.minari import read
    from puorl.data.validate import FieldNames

    with pytest.raises(DataError, match="minari download nobody/knows-v0"):
        read(type(tmp_path)("nobody/knows-v0"), FieldNames())
    (tmp_path / "metadata.json").write_text("not json")
    with pytest.raises(DataError, match="expected a JSON file"):
        puorl.load(tmp_path)
    (tmp_path / "metadata.json").write_text("[]")
    with pytest.raises(DataError, match="expected Minari metadata by name, got list"):
        puorl.load(tmp_path)


def test_too_few_observations_are_named(home):
    short = episode(3) | {"observations": np.zeros((3, 2), np.float32)}
    foreign([short], observation=box(2), action=box(3))
    with pytest.raises(DataError, match="expected 4 observations for 3 rewards"):
        puorl.load(home / "test" / "foreign-v0")


def test_links_and_lost_records_in_parts(tmp_path, home):
    path = home / foreign([episode(3), episode(4)], observation=box(2), action=box(3))
    own = puorl.save(rows(), tmp_path / "own-v0")
    record = own / "data" / "metadata.json"
    record.write_text(record.read_text().replace('"puorl":', '"puosl":'))
    with pytest.raises(DataError, match="content hash differs"):
        puorl.open(own)
    os.mkfifo(path / "data" / "other")  # opening it would wait for ever
    with h5py.File(path / "data" / "main_data.hdf5", "a") as file:
        del file["episode_1"]
        file["episode_1"] = h5py.ExternalLink("other", "/episode_1")
    with pytest.raises(DataError, match="episode_1: expected values stored in this file"):
        puorl.open(path)


def read_in_parts(path):
    return puorl.open(path, partition_rows=2).to_dataset()


@pytest.mark.parametrize("storage", ["hdf5", "arrow"])
@pytest.mark.parametrize("read", [puorl.load, read_in_parts])
def test_damaged_files_never_end_in_a_traceback(home, storage, read):
    foreign([episode(5)], observation=box(2), action=box(3), data_format=storage)
    path = home / "test" / "foreign-v0"
    files = [f for f in (path / "data").rglob("*") if f.suffix in (".hdf5", ".arrow", ".json")]
    files += [f for f in (path / "data").rglob("part-*") if f not in files]
    assert len(files) >= 2
    rng = np.random.default_rng(0)
    refused = 0
    for file in files:
        whole = file.read_bytes()
        for trial in range(60):
            broken = bytearray(whole)
            if trial % 2:
                del broken[rng.integers(len(whole)) :]
            else:
                broken[rng.integers(len(whole))] ^= 1 << int(rng.integers(8))
            file.write_bytes(broken)
            try:
                read(path)
            except PuorlError:
                refused += 1
        file.write_bytes(whole)
    assert refused > 30
    assert len(read(path)) == 5


@st.composite
def datasets(draw):
    n, d, m = draw(st.integers(1, 24)), draw(st.integers(1, 3)), draw(st.integers(1, 2))
    rng = np.random.default_rng(draw(st.integers(0, 2**32)))
    dtype = draw(st.sampled_from([np.float32, np.float64]))
    path = rng.integers(-2, 3, size=(n + 1, d)).astype(dtype) * dtype(-0.5)  # zeros of both signs
    next_obs = path[1:].copy()
    jumps = rng.random(n) < draw(st.sampled_from([0.0, 0.3, 1.0]))
    next_obs[jumps] += dtype(0.25)
    terminal, timeout = rng.random(n) < 0.2, rng.random(n) < 0.2
    next_obs[terminal & (rng.random(n) < 0.5)] = np.nan
    optional = {
        "reward": rng.normal(size=n).astype(dtype),
        "episode": rng.integers(0, draw(st.integers(1, 5)), n) - 2,
        "time": rng.normal(size=n),
        "next_action": np.where(rng.random((n, m)) < 0.2, np.nan, 1.5).astype(dtype),
    }
    rows = Transitions(
        obs=path[:-1],
        action=rng.normal(size=(n, m)).astype(dtype),
        next_obs=next_obs,
        terminal=terminal,
        timeout=timeout,
        **{k: v for k, v in optional.items() if draw(st.booleans())},
    )
    texts = st.text(st.characters(codec="utf-8", exclude_categories=["Cs"]), max_size=4)
    names = draw(st.lists(texts | st.sampled_from(["row", "a/b", "x", "column_0"]), unique=True))
    kinds = ["?", "u1", "<i8", "<f4", "<f8", "U"]
    columns = {}
    for name in names[:4]:
        kind = draw(st.sampled_from(kinds))
        if kind == "U":
            values = np.array(draw(st.lists(texts, min_size=n, max_size=n)), dtype="U7")
        else:
            values = rng.integers(0, 2, n).astype(kind)
        columns[name] = values
    provenance = Provenance(source=("a", "b"), domain="here", recipe={"x": [1, 2.5]}, notes=("n",))
    return puorl.Dataset(rows, columns, provenance)


@FEW
@given(dataset=datasets())
def test_round_trip_is_exact(tmp_path_factory, dataset):
    path = tmp_path_factory.mktemp("trip") / "rows-v3"
    puorl.save(dataset, path)
    back = puorl.load(path)
    assert back.fingerprint == dataset.fingerprint
    assert back.provenance == dataset.provenance
    assert list(back.columns) == list(dataset.columns)
    assert set(back.rows.arrays()) == set(dataset.rows.arrays())


def rows(n=6, **fields):
    path = np.arange(2.0 * (n + 1)).reshape(-1, 2)
    return puorl.Dataset.from_arrays(
        obs=path[:-1], action=np.ones((n, 1)), next_obs=path[1:], **fields
    )


def test_minari_itself_reads_what_we_write(home):
    timeout = np.array([False, False, True, False, False, False])
    puorl.save(rows(terminal=np.zeros(6, bool), timeout=timeout), home / "fleet" / "target-v1")
    seen = minari.load_dataset("fleet/target-v1")
    assert (seen.total_episodes, seen.total_steps) == (2, 6)
    assert list(minari.list_local_datasets()) == ["fleet/target-v1"]
    first, second = seen
    assert first.observations.shape == (4, 2)
    assert first.truncations.tolist() == [False, False, True]
    # The record stops in the middle of the task: other tools must see it as cut.
    assert second.truncations.tolist() == [False, False, True]
    assert np.isnan(second.rewards).all()
    assert puorl.load(home / "fleet" / "target-v1").timeout.tolist() == timeout.tolist()


@pytest.mark.parametrize(
    ("name", "expected"),
    [("logs", "puorl/logs-v0"), ("a b-v2", "puorl/a-b-v2"), ("x.y", "puorl/x-y-v0")],
)
def test_names_outside_minaris_folder(tmp_path, home, name, expected):
    puorl.save(rows(), tmp_path / name, format="minari")
    assert minari.MinariDataset(tmp_path / name / "data").id == expected


def test_a_changed_value_in_our_own_folder_is_noticed(tmp_path):
    import h5py

    puorl.save(rows(), tmp_path / "own-v0")
    with h5py.File(tmp_path / "own-v0" / "data" / "main_data.hdf5", "r+") as file:
        file["episode_0/actions"][0, 0] = 1.5
    with pytest.raises(DataError, match="content hash differs"):
        puorl.load(tmp_path / "own-v0")


def test_given_names_win_over_our_own_record(tmp_path):
    puorl.save(rows(reward=np.arange(6.0)), tmp_path / "own-v0")
    named = puorl.load(tmp_path / "own-v0", reward="episode")
    assert named.reward is not None
    assert named.reward.tolist() == [0.0] * 6


def test_rows_that_minari_cannot_hold_are_refused(tmp_path, monkeypatch):
    with pytest.raises(DataError, match="at least one row"):
        puorl.save(rows()[:0], tmp_path / "none-v0")
    monkeypatch.setattr(minari_module, "MAX_RUNS", 5)
    with pytest.raises(DataError, match=r"6 rows fall into 6 runs .* save rows"):
        puorl.save(rows()[np.array([5, 3, 1, 4, 2, 0])], tmp_path / "many-v0")
    assert list(tmp_path.iterdir()) == []


def test_a_relative_path_is_as_good_as_an_absolute_one(tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    obs = np.arange(12.0).reshape(6, 2)
    data = puorl.Dataset.from_arrays(obs=obs, action=obs)
    for force in (False, True):
        puorl.save(data, "made/rows", force=force)
        assert puorl.load("made/rows").fingerprint == data.fingerprint
    assert [p.name for p in (tmp_path / "made").iterdir()] == ["rows"]
