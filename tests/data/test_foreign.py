"""Logs of other programs: files that their own writers made, or files in their published layout.

`foreign/` holds what LeRobot and TensorFlow Datasets wrote (`foreign/README.md` says how); Minari
writes here. D4RL's files are written here by h5py, as its scripts do, with the keys of version 2.
"""

import gc
import struct
import warnings
from pathlib import Path

import h5py
import numpy as np
import pytest

import puorl
from puorl.core.errors import DataError

FOREIGN = Path(__file__).parent / "foreign"


# ---------------------------------------------------------------------------------- D4RL


def d4rl_v2(path, lengths=(5, 4), limit=5):
    """Two episodes: one is cut at the limit, one falls; with all keys of a v2 file."""
    rng, n = np.random.default_rng(0), sum(lengths)
    states = [rng.normal(size=(k + 1, 11)).astype(np.float32) for k in lengths]
    last = np.cumsum(lengths) - 1
    ended = np.isin(np.arange(n), last)
    cut = ended & np.isin(np.arange(n), last[np.array(lengths) == limit])
    with h5py.File(path, "w") as file:
        arrays = {
            "observations": np.concatenate([s[:-1] for s in states]),
            "next_observations": np.concatenate([s[1:] for s in states]),
            "actions": rng.uniform(-1, 1, (n, 3)).astype(np.float32),
            "rewards": rng.normal(size=n).astype(np.float32),
            "terminals": ended & ~cut,
            "timeouts": cut,
            "infos/action_log_probs": rng.normal(size=n).astype(np.float32),
            "infos/qpos": rng.normal(size=(n, 6)),
            "infos/qvel": rng.normal(size=(n, 6)),
        }
        for name, array in arrays.items():
            file.create_dataset(name, data=array, compression="gzip")
        file["metadata/algorithm"] = np.bytes_("SAC")
        file["metadata/iteration"] = np.int64(1000)
        file["metadata/policy/nonlinearity"] = np.bytes_("relu")
        file["metadata/policy/output_distribution"] = np.bytes_("tanh_gaussian")
        for layer, shape in (("fc0", (256, 11)), ("fc1", (256, 256)), ("last_fc", (3, 256))):
            file[f"metadata/policy/{layer}/weight"] = np.zeros(shape, np.float32)
            file[f"metadata/policy/{layer}/bias"] = np.zeros(shape[0], np.float32)
    return arrays


def test_a_file_of_d4rl_version_2_with_its_metadata(tmp_path):
    arrays = d4rl_v2(tmp_path / "hopper_medium-v2.hdf5")
    data = puorl.load(tmp_path / "hopper_medium-v2.hdf5")
    for field, key in (("obs", "observations"), ("action", "actions"), ("reward", "rewards"),
                       ("next_obs", "next_observations"), ("terminal", "terminals"),
                       ("timeout", "timeouts")):  # fmt: skip
        np.testing.assert_array_equal(getattr(data, field), arrays[key], err_msg=field)
    assert data.num_episodes == 2
    log = puorl.load(tmp_path / "hopper_medium-v2.hdf5", obs="infos/qpos", next_obs="")
    kept = [0, 1, 2, 3, 5, 6, 7, 8]  # of row 4 nobody knows what followed
    np.testing.assert_array_equal(log.obs, arrays["infos/qpos"][kept])


# -------------------------------------------------------------------------------- Minari


@pytest.mark.filterwarnings("ignore::ResourceWarning")  # of its own temporary folder
def test_a_folder_that_minari_recorded(tmp_path, monkeypatch):
    minari = pytest.importorskip("minari")
    gymnasium = pytest.importorskip("gymnasium")
    monkeypatch.setenv("MINARI_DATASETS_PATH", str(tmp_path))
    env = minari.DataCollector(gymnasium.make("CartPole-v1", max_episode_steps=30))
    for seed in range(4):
        obs, _ = env.reset(seed=seed)
        ended = False
        while not ended:
            push = int(obs[2] + 0.3 * obs[3] > 0) if seed % 2 else 1
            obs, _, terminal, timeout, _ = env.step(push)
            ended = terminal or timeout
    with warnings.catch_warnings():  # it recommends to name authors
        warnings.simplefilter("ignore")
        written = env.create_dataset("cart/pole-v0")
    del env
    gc.collect()
    data = puorl.load(tmp_path / "cart" / "pole-v0")
    episodes = list(written.iterate_episodes())
    assert len(data) == sum(len(episode.rewards) for episode in episodes)
    assert data.action_codes == ("0", "1")
    for episode in episodes:
        own = data[data.episode == episode.id]
        np.testing.assert_array_equal(own.obs, episode.observations[:-1])
        np.testing.assert_array_equal(own.next_obs, episode.observations[1:])
        np.testing.assert_array_equal(own.action_index, episode.actions)
        np.testing.assert_array_equal(own.terminal, episode.terminations)
        np.testing.assert_array_equal(own.timeout, episode.truncations)
    assert data.terminal.sum() == 2
    assert data.timeout.sum() == 2


# ---------------------------------------------------------------------------------- RLDS


def expected_steps(seed, length, *, terminal):
    """The episode that TensorFlow Datasets wrote, and that `rlds_record` writes here."""
    rng = np.random.default_rng(seed)
    return {
        "observation/state": rng.normal(size=(length, 3)).astype(np.float32),
        "observation/gripper": rng.integers(-3, 4, (length, 1)),
        "action": rng.uniform(-1, 1, (length, 2)).astype(np.float32),
        "reward": rng.normal(size=(length, 1)).astype(np.float32),
        "discount": np.ones((length, 1), np.float32),
        "is_first": np.arange(length)[:, None] == 0,
        "is_last": np.arange(length)[:, None] == length - 1,
        "is_terminal": (np.arange(length)[:, None] == length - 1) & terminal,
    }


EPISODES = [expected_steps(0, 6, terminal=True), expected_steps(1, 4, terminal=False)]


def varint(value):
    value, parts = value % (1 << 64), []
    while value > 0x7F:
        parts.append(value & 0x7F | 0x80)
        value >>= 7
    return bytes([*parts, value])


def field(number, content):
    return varint(number << 3 | 2) + varint(len(content)) + content


def feature(values):
    if values.dtype.kind == "S":
        return field(1, b"".join(field(1, each) for each in values.tolist()))
    if values.dtype.kind == "f":
        return field(2, field(1, values.astype("<f4").tobytes()))
    return field(3, field(1, b"".join(varint(int(each)) for each in values.reshape(-1))))


def rlds_record(steps, **more):
    held = {f"steps/{name}": values for name, values in steps.items()} | more
    pairs = (field(1, field(1, k.encode()) + field(2, feature(v))) for k, v in held.items())
    example = field(1, b"".join(pairs))
    return struct.pack("<Q", len(example)) + bytes(4) + example + bytes(4)


def check_rlds(data):
    state, push = ([e[key] for e in EPISODES] for key in ("observation/state", "action"))
    grip = [e["observation/gripper"] for e in EPISODES]
    names = ("gripper", "state_0", "state_1", "state_2")
    assert data.provenance.obs_names == names
    obs = [np.concatenate([g, s], axis=1) for g, s in zip(grip, state, strict=True)]
    np.testing.assert_array_equal(data.obs, np.concatenate([each[:-1] for each in obs]))
    np.testing.assert_array_equal(data.next_obs, np.concatenate([each[1:] for each in obs]))
    np.testing.assert_array_equal(data.action, np.concatenate([each[:-1] for each in push]))
    reward = np.concatenate([e["reward"][:-1, 0] for e in EPISODES])
    np.testing.assert_array_equal(data.reward, reward)
    assert data.terminal.tolist() == [False] * 4 + [True] + [False] * 3
    assert data.timeout.tolist() == [False] * 7 + [True]
    assert data.episode.tolist() == [0] * 5 + [1] * 3
    assert set(data.columns) >= {"discount"}


@pytest.fixture
def rlds(tmp_path):
    folder = tmp_path / "arm" / "1.0.0"
    folder.mkdir(parents=True)
    (folder / "features.json").write_text("{}")
    names = np.array([b"one", b"two"])
    images = [np.array([b"\x89PNG"] * len(e["action"])) for e in EPISODES]
    for i, steps in enumerate(EPISODES):  # a shard each
        record = rlds_record(steps | {"image": images[i]}, **{"episode_metadata/file": names[[i]]})
        (folder / f"arm-train.tfrecord-0000{i}-of-00002").write_bytes(record)
    return folder


def test_rlds_that_tensorflow_datasets_wrote():
    data = puorl.load(FOREIGN / "rlds" / "1.0.0")
    check_rlds(data)
    assert data.columns["episode_metadata/file"].tolist() == ["one"] * 5 + ["two"] * 3


def test_a_folder_that_lerobot_wrote():
    pytest.importorskip("pyarrow")
    data = puorl.load(FOREIGN / "lerobot", reward="-abs(wrist)")
    rng, state, action = np.random.default_rng(0), [], []
    for _ in range(10):
        state.append(rng.normal(size=2).astype(np.float32))
        action.append(rng.uniform(-1, 1, 2).astype(np.float32))
    kept = [0, 1, 2, 3, 4, 6, 7, 8]  # the last frame of an episode has no next state
    np.testing.assert_array_equal(data.obs, np.array(state)[kept])
    np.testing.assert_array_equal(data.next_obs, np.array(state)[[k + 1 for k in kept]])
    np.testing.assert_array_equal(data.action, np.array(action)[kept])
    assert data.provenance.obs_names == ("elbow", "wrist")
    assert data.provenance.action_names == ("torque", "grip")
    assert data.episode.tolist() == [0] * 5 + [1] * 3
    np.testing.assert_allclose(data.time, [0, 0.1, 0.2, 0.3, 0.4, 0, 0.1, 0.2], atol=1e-6)


def test_rlds_in_its_published_layout(rlds):
    data = puorl.load(rlds)
    check_rlds(data)
    assert data.columns["episode_metadata/file"].tolist() == ["one"] * 5 + ["two"] * 3
    only = puorl.load(rlds, obs="state", reward="discount")
    assert only.obs.shape == (8, 3)
    assert (only.reward == 1).all()


def test_damaged_and_other_records_are_refused(rlds):
    with pytest.raises(DataError, match="expected numbers at observation/angle for obs, found"):
        puorl.load(rlds, obs="angle")
    with pytest.raises(DataError, match="expected 'gain' .named for reward., found"):
        puorl.load(rlds, reward="gain")
    file = rlds / "arm-train.tfrecord-00000-of-00002"
    content = file.read_bytes()
    rng = np.random.default_rng(0)
    for _ in range(60):  # no damage gives anything but rows or a message
        place = int(rng.integers(len(content)))
        file.write_bytes(content[:place] + bytes([content[place] ^ 0x55]) + content[place + 1 :])
        try:
            puorl.load(rlds)
        except DataError:
            continue
    file.write_bytes(content[: len(content) // 2])
    with pytest.raises(DataError, match="ends within a record"):
        puorl.load(rlds)
    for each in rlds.glob("*.tfrecord*"):
        each.unlink()
    with pytest.raises(DataError, match="expected TFRecord files next to features.json"):
        puorl.load(rlds)
