"""Folders in the layout of LeRobot."""

import json

import numpy as np
import pyarrow as pa
import pyarrow.parquet as pq
import pytest

import puorl
from puorl.core.errors import DataError


def rows(seed=0):
    """Three runs of 20 steps, interleaved, the last one terminal; some rows left out."""
    rng = np.random.default_rng(seed)
    path = rng.normal(size=(3, 21, 2)).astype(np.float32)
    obs, next_obs = (part.transpose(1, 0, 2).reshape(60, 2) for part in (path[:, :-1], path[:, 1:]))
    step, run = np.repeat(np.arange(20), 3), np.tile(np.arange(3), 20)
    every = puorl.Dataset.from_arrays(
        obs=obs,
        action=rng.uniform(-1, 1, (60, 1)).astype(np.float32),
        next_obs=next_obs,
        reward=rng.normal(size=60).astype(np.float32),
        terminal=(step == 19) & (run == 2),
        timeout=(step == 19) & (run < 2),
        episode=run,
        time=step * 0.05,
        columns={"pump": np.array(["P-1", "P-2", "P-3"])[run], "checked": run == 1},
    )
    return every[(np.arange(60) % 7) != 3]


def sorted_rows(data):
    order = np.lexsort((data.time, data.episode))
    fields = {name: array[order] for name, array in data.rows.arrays().items()}
    return fields | {name: data.columns[name][order] for name in ("pump", "checked")}


def test_all_transitions_come_back(tmp_path):
    data = rows()
    puorl.save(data, tmp_path / "folder", format="lerobot")
    back = puorl.load(tmp_path / "folder")
    assert back.provenance.format == "lerobot"
    expected, found = sorted_rows(data), sorted_rows(back)
    assert expected.keys() <= found.keys()
    for name, array in expected.items():
        np.testing.assert_array_equal(found[name], array, err_msg=name)


@pytest.mark.parametrize("codes", [["up", "down", "stay"], [0, 1, 7]])
def test_discrete_actions_come_back(tmp_path, codes):
    chosen = np.array(codes)[np.random.default_rng(0).integers(0, 3, 40)]
    obs = np.random.default_rng(1).normal(size=(40, 2))
    data = puorl.Dataset.from_arrays(obs=obs, action=chosen, episode=np.arange(40) // 10)
    puorl.save(data, tmp_path / "folder", format="lerobot")
    back = puorl.load(tmp_path / "folder")
    assert back.action_codes == data.action_codes
    np.testing.assert_array_equal(back.action, data.action)


def test_the_layout_is_that_of_version_3(tmp_path):
    data = rows()
    puorl.save(data, tmp_path / "folder", format="lerobot")
    info = json.loads((tmp_path / "folder/meta/info.json").read_text())
    assert (info["codebase_version"], info["fps"], info["total_frames"]) == ("v3.0", 20, len(data))
    table = pq.read_table(
        tmp_path / "folder" / info["data_path"].format(chunk_index=0, file_index=0)
    )
    assert set(table.column_names) == set(info["features"])
    episodes = pq.read_table(
        tmp_path / "folder/meta/episodes/chunk-000/file-000.parquet"
    ).to_pydict()
    assert sum(episodes["length"]) == len(data)
    state = np.array(table["observation.state"].to_pylist())
    after = np.array(table["next.observation.state"].to_pylist())
    for start, stop in zip(
        episodes["dataset_from_index"], episodes["dataset_to_index"], strict=True
    ):
        np.testing.assert_array_equal(after[start : stop - 1], state[start + 1 : stop])
        assert table["frame_index"][start].as_py() == 0
        assert table["next.done"][stop - 1].as_py()
    assert info["total_episodes"] == len(episodes["length"]) > 3  # left-out rows cut runs
    stats = json.loads((tmp_path / "folder/meta/stats.json").read_text())
    np.testing.assert_allclose(stats["action"]["mean"], data.action.mean(axis=0), rtol=1e-5)
    tasks = pq.read_table(tmp_path / "folder/meta/tasks.parquet")
    assert tasks.schema.pandas_metadata["index_columns"] == ["__index_level_0__"]


def foreign(folder, *, frames=6, version="v2.1"):
    """What a robot's recorder writes: a file for each episode, names of motors, no next states."""
    (folder / "meta").mkdir(parents=True)
    for episode in range(2):
        file = folder / f"data/chunk-000/episode_{episode:06d}.parquet"
        file.parent.mkdir(parents=True, exist_ok=True)
        states = [[float(episode), float(step)] for step in range(3)]
        columns = {
            "observation.state": pa.array(states, pa.list_(pa.float32())),
            "action": pa.array([[1.0]] * 3, pa.list_(pa.float32())),
            "timestamp": [0.0, 0.1, 0.2],
            "episode_index": [episode] * 3,
            "next.done": [False, False, True],
        }
        pq.write_table(pa.table(columns), file)
    names = {"motors": ["elbow", "wrist"]}
    info = {"codebase_version": version, "total_frames": frames}
    info["features"] = {"observation.state": {"dtype": "float32", "shape": [2], "names": names}}
    (folder / "meta/info.json").write_text(json.dumps(info))
    (folder / "meta/tasks.parquet").write_bytes(b"not rows")
    return folder


def test_folders_of_other_programs_are_read(tmp_path):
    data = puorl.load(foreign(tmp_path / "arm"), reward="-abs(wrist)", terminal="next.done")
    assert data.obs.tolist() == [[0, 0], [0, 1], [0, 2], [1, 0], [1, 1], [1, 2]]
    assert data.provenance.obs_names == ("elbow", "wrist")
    assert data.reward.tolist() == [0, -1, -2, 0, -1, -2]
    assert len(puorl.load(tmp_path / "arm")) == 4  # the last frames lack a next state


def test_incomplete_and_other_folders_are_refused(tmp_path):
    with pytest.raises(DataError, match="expected 7 frames as in meta/info.json, found 6"):
        puorl.load(foreign(tmp_path / "short", frames=7))
    with pytest.raises(DataError, match="version 2 or 3, got 'v4.0'"):
        puorl.load(foreign(tmp_path / "new", version="v4.0"))
