import dataclasses
import json

import numpy as np
import pytest

from puorl.bench.prepare import SettingData, collect_all, content_hash, join_pools, prepare
from puorl.bench.settings import Source
from puorl.bench.suites import MethodChoice
from puorl.core.errors import ConfigError
from puorl.core.files import read_json
from puorl.data.dataset import Dataset
from puorl.data.draw import make_split
from puorl.data.training_set import Groups, TrainingSet
from puorl.envs.collect import Cache

IGDF = MethodChoice("igdf", {"hidden": (4,), "num_steps": 2, "num_dims": 2, "batch_size": 4})


@pytest.fixture(scope="module")
def split():
    rng = np.random.default_rng(0)
    domains = []
    for shift in (0.0, 1.0):
        rows = {name: rng.normal(size=(80, 2)) + shift for name in ("obs", "next_obs")}
        made = Dataset.from_arrays(
            **rows,
            action=rng.uniform(-1, 1, (80, 1)),
            reward=rng.normal(size=80),
            terminal=np.zeros(80, bool),
            timeout=np.arange(80) % 10 == 9,
        )
        domains.append(made)
    return make_split(*domains, rows=100, target_fraction=0.3, labelled_fraction=0.1, seed=0)


def prepared(folder, split, choice, seed=0):
    return prepare(folder, SettingData(split, {"split": split.fingerprint}), choice, seed=seed)


def arrays(done):
    chosen = done.set
    names = ("rows", "weight", "reward", "critic_weight", "score")
    return {n: getattr(chosen, n) for n in names if getattr(chosen, n) is not None}


def test_replaced_values_are_kept_and_count(split, tmp_path, monkeypatch):
    small = {"hidden": (4,), "num_steps": 2, "num_members": 2, "batch_size": 4, "tolerance": 100.0}
    quick = {"residuals": None, "network": {"hidden": (4,)}, "num_warm_up": 1, "num_main": 1}
    monkeypatch.setattr("puorl.pu.fitting.MIN_LABELLED", 5)
    monkeypatch.setattr("puorl.methods.share._FEWEST", 2)
    first = prepared(tmp_path, split, MethodChoice("pu_share", small | quick))
    monkeypatch.setattr("puorl.methods.share.PUShare.prepare", None)
    again = prepared(tmp_path, split, MethodChoice("pu_share", small | quick))
    np.testing.assert_array_equal(first.set.next_obs, again.set.next_obs)
    assert first.set.next_obs.shape == (len(first.set), 2)
    other = dataclasses.replace(first.set, next_obs=first.set.next_obs + 1.0)
    assert content_hash(first.set) == first.content_hash != content_hash(other)
    plain = dataclasses.replace(first.set, next_obs=split.pool.next_obs[first.set.rows])
    assert content_hash(plain) == content_hash(dataclasses.replace(first.set, next_obs=None))


def test_what_is_kept_is_what_was_made(split, tmp_path, monkeypatch):
    first = prepared(tmp_path, split, IGDF, seed=3)
    monkeypatch.setattr("puorl.methods.igdf.IGDF.prepare", None)  # nothing is made again
    again = prepared(tmp_path, split, IGDF, seed=3)
    assert arrays(first).keys() == arrays(again).keys() == {"rows", "critic_weight", "score"}
    for name, array in arrays(first).items():
        np.testing.assert_array_equal(array, arrays(again)[name])
        assert array.dtype == arrays(again)[name].dtype
    for name in ("groups", "returns", "metadata"):
        assert getattr(first.set, name) == getattr(again.set, name)
    assert (first.content_hash, first.seconds) == (again.content_hash, again.seconds)
    assert first.set.groups.num_first == 10
    assert first.set.metadata["seed"] == 3


def test_other_seeds_settings_and_splits_are_made_anew(split, tmp_path):
    other = make_split(split.pool, split.pool, rows=50, labelled_fraction=0.1, seed=0)
    wider = dataclasses.replace(IGDF, settings={**IGDF.settings, "num_dims": 3})
    for at, choice, seed in (
        (split, IGDF, 0),
        (split, IGDF, 1),
        (split, wider, 0),
        (other, IGDF, 0),
    ):
        prepared(tmp_path, at, choice, seed=seed)
    assert len(list(tmp_path.glob("*.npz"))) == len(list(tmp_path.glob("*.json"))) == 4


@pytest.mark.parametrize("suffix", [".npz", ".json"])
def test_a_damaged_file_is_made_anew(split, tmp_path, suffix):
    choice = MethodChoice("sharing_all")
    first = prepared(tmp_path, split, choice, seed=0)
    [file] = tmp_path.glob(f"*{suffix}")
    whole = file.read_bytes()
    file.write_bytes(whole[: len(whole) // 2])
    again = prepared(tmp_path, split, choice, seed=0)
    assert again.content_hash == first.content_hash
    assert file.stat().st_size == len(whole)


def test_rows_of_another_content_are_not_believed(split, tmp_path):
    choice = MethodChoice("olp")
    prepared(tmp_path, split, choice, seed=0)
    [file] = tmp_path.glob("*.npz")
    np.savez(file, rows=np.arange(5))
    again = prepared(tmp_path, split, choice, seed=0)
    np.testing.assert_array_equal(again.set.rows, split.labelled)


def test_sets_prepared_by_an_earlier_version_are_read(split, tmp_path, monkeypatch):
    first = prepared(tmp_path, split, IGDF)
    [file] = tmp_path.glob("*.json")
    content = read_json(file)
    content["about"], content["content"] = content.pop("metadata"), content.pop("content_hash")
    file.write_text(json.dumps(content))
    monkeypatch.setattr("puorl.methods.igdf.IGDF.prepare", None)
    again = prepared(tmp_path, split, IGDF)
    assert again.content_hash == first.content_hash
    assert again.set.metadata == first.set.metadata


@pytest.mark.parametrize("workers", [1, 2])
def test_collected_rows_are_in_the_cache(tmp_path, monkeypatch, workers):
    monkeypatch.setenv("PUORL_CACHE", str(tmp_path))
    sources = [Source("hopper", name, "random", 20, 0) for name in ("nominal", "body_mass")]
    collect_all(sources, workers=workers, show=False)
    assert len(list(Cache().folder.glob("*.hdf5"))) == 2
    before = {path: path.stat().st_mtime_ns for path in tmp_path.iterdir()}
    rows = sources[0].collect()
    assert len(rows) == 20
    assert {path: path.stat().st_mtime_ns for path in tmp_path.iterdir()} == before


# -------------------------------------------------------------------------------- content of sets


def pool(seed=0, n=40, shift=0.0):
    rng = np.random.default_rng(seed)
    return Dataset.from_arrays(
        obs=rng.normal(size=(n, 3)) + shift,
        action=rng.uniform(-1, 1, (n, 2)),
        next_obs=rng.normal(size=(n, 3)),
        reward=rng.normal(size=n),
        terminal=np.arange(n) % 10 == 9,
    )


def test_order_and_pool_do_not_matter():
    mine, order = pool(), np.random.default_rng(1).permutation(40)
    whole = TrainingSet.whole(mine)
    assert content_hash(whole) == content_hash(TrainingSet(mine, order))
    larger = Dataset.concatenate([pool(7), mine])
    assert content_hash(whole) == content_hash(TrainingSet(larger, 40 + order))


@pytest.mark.parametrize(
    "change",
    [
        {"rows": np.arange(39)},
        {"rows": np.append(np.arange(39), 38)},
        {"reward": np.arange(40.0)},
        {"weight": np.full(40, 0.5, np.float32)},
        {"critic_weight": np.full(40, 0.5, np.float32)},
        {"score": np.arange(40, dtype=np.float32)},
        {"groups": Groups(10)},
        {"pool": pool(shift=1e-3)},
    ],
    ids=lambda change: next(iter(change)),
)
def test_every_value_matters(change):
    whole = TrainingSet.whole(pool())
    assert content_hash(dataclasses.replace(whole, **change)) != content_hash(whole)


def test_who_is_in_which_group_matters_and_their_order_does_not():
    mine = pool()
    rows, groups = np.arange(40), Groups(10)
    within = np.concatenate([rows[:10][::-1], rows[10:][::-1]])
    across = np.concatenate([rows[20:], rows[:20]])
    one, same, other = (
        content_hash(TrainingSet(mine, r, groups=groups)) for r in (rows, within, across)
    )
    assert one == same
    assert one != other


def test_values_that_change_places_are_noticed():
    rng = np.random.default_rng(3)
    obs, action = rng.normal(size=(20, 2)), rng.uniform(-1, 1, (20, 1))
    sets = [
        TrainingSet.whole(Dataset.from_arrays(obs=o, action=action, next_obs=o, reward=o[:, 0]))
        for o in (obs, obs[:, ::-1].copy())
    ]
    assert content_hash(sets[0]) != content_hash(sets[1])


def test_returns_are_left_to_learners_that_use_them():
    mine = pool()
    ranged = TrainingSet.whole(mine, (0.0, 1.0))
    assert content_hash(ranged) == content_hash(TrainingSet.whole(mine))


def test_a_range_of_actions_beyond_one_matters():
    mine, rows = pool(), np.arange(40)
    wide = pool(9)
    wide = dataclasses.replace(wide, rows=dataclasses.replace(wide.rows, action=wide.action * 3))
    beside = Dataset.concatenate([mine, wide])
    assert content_hash(TrainingSet(beside, rows)) != content_hash(TrainingSet(mine, rows))


# -------------------------------------------------------------------------------------- one pool


def rows_of(num_rows, scale, rng):
    return Dataset.from_arrays(
        obs=rng.normal(size=(num_rows, 2)),
        action=scale * rng.uniform(-1, 1, (num_rows, 1)),
        reward=rng.normal(size=num_rows),
        next_obs=rng.normal(size=(num_rows, 2)),
        terminal=np.zeros(num_rows, bool),
    )


def test_sets_of_several_pools_draw_the_same_rows_from_one():
    rng = np.random.default_rng(0)
    one, two = rows_of(5, 1.0, rng), rows_of(7, 1.0, rng)
    sets = {
        "a": TrainingSet(one, np.array([4, 0])),
        "b": TrainingSet(two, np.array([6, 1]), weight=np.array([0.5, 1.0])),
        "c": TrainingSet(one, np.array([2])),
    }
    found = join_pools(sets)
    assert len({id(chosen.pool) for chosen in found.values()}) == 1
    for name, chosen in sets.items():
        own = found[name]
        np.testing.assert_array_equal(own.pool.obs[own.rows], chosen.pool.obs[chosen.rows])
        np.testing.assert_array_equal(own.pool.reward[own.rows], chosen.pool.reward[chosen.rows])
        assert own.weight is chosen.weight
    assert join_pools({"a": sets["a"]})["a"] is sets["a"]


def test_pools_with_other_actions_are_not_joined():
    rng = np.random.default_rng(0)
    sets = {
        name: TrainingSet.whole(rows_of(5, scale, rng)) for name, scale in (("a", 1.0), ("b", 3.0))
    }
    with pytest.raises(ConfigError, match="one range"):
        join_pools(sets)
