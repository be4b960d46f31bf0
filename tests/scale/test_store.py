"""Chunks of rows to train on: every row in one of them, drawn as often as any other."""

import dataclasses

import numpy as np
import pytest

import puorl
from puorl.core.errors import ConfigError
from puorl.core.tasks import Workers
from puorl.scale.store import make_store


@pytest.fixture(scope="module")
def rows():
    rng = np.random.default_rng(0)
    n = 1_003
    return puorl.Dataset.from_arrays(
        obs=np.stack([np.arange(n), rng.normal(size=n)], axis=1).astype(np.float32),
        next_obs=rng.normal(size=(n, 2)).astype(np.float32),
        action=rng.uniform(-1, 1, (n, 1)).astype(np.float32),
        reward=rng.normal(size=n),
        terminal=np.arange(n) % 20 == 19,
        timeout=np.zeros(n, bool),
        episode=np.arange(n) // 20,
        columns={"weight": rng.uniform(0.1, 1, n).astype(np.float32)},
    )


@pytest.fixture(scope="module")
def store(rows, tmp_path_factory):
    folder = tmp_path_factory.mktemp("store")
    puorl.save(rows, folder / "rows.parquet")
    lazy = puorl.open(folder / "rows.parquet", partition_rows=170)
    return make_store(lazy, folder / "chunks", Workers(number=2), chunk_rows=200, seed=3)


def test_every_row_is_in_one_chunk(store, rows):
    assert store.num_chunks == 6
    assert store.chunk_rows == 167
    found = [store.chunk(i) for i in range(6)]
    numbers = np.concatenate([chunk.pool.obs[:, 0] for chunk in found]).astype(int)
    assert len(set(numbers.tolist())) == len(numbers) == 6 * 167
    assert numbers.max() < len(rows)
    for chunk in (*found, store.chunk(6)):
        mine = chunk.pool.obs[:, 0].astype(int)
        np.testing.assert_array_equal(chunk.pool.next_obs, rows.next_obs[mine])
        np.testing.assert_array_equal(chunk.pool.terminal, rows.terminal[mine])
        np.testing.assert_array_equal(chunk.weight, rows.columns["weight"][mine])
    assert store.chunk(6).pool.fingerprint == found[0].pool.fingerprint


def test_a_row_is_in_any_chunk_equally_often(rows, tmp_path):
    puorl.save(rows, tmp_path / "rows.parquet")
    lazy = puorl.open(tmp_path / "rows.parquet", partition_rows=400)
    count = np.zeros((4, len(rows)))
    for seed in range(60):
        folder = tmp_path / str(seed)
        from puorl.core.tasks import finish, part_path
        from puorl.scale.store import Store, _Deal, _starts

        task, folder = _Deal(lazy, 4, seed, False), tmp_path / str(seed)
        folder.mkdir()
        for i in range(len(lazy)):
            finish(task, folder, i)
        sizes = [len(np.load(part_path(folder, i, ".npy"))) for i in range(len(lazy))]
        widths = {"obs": 2, "action": 1, "next_obs": 2, "reward": 1, "terminal": 1, "weight": 1}
        origin = lazy.read(0).provenance
        made = Store(folder, tuple(sizes), _starts(sizes, 4), widths, 4, origin, None)
        for k in range(4):
            count[k, made.chunk(k).pool.obs[:, 0].astype(int)] += 1
    # Chi-square with 3 degrees of freedom for each row has mean 3.
    expected = count.sum(axis=0) / 4
    assert (np.square(count - expected) / expected).sum(axis=0).mean() == pytest.approx(3, abs=0.3)


def test_deviation_is_that_of_the_draws(store):
    steps, interval, size = 1_000, 90, 167
    used = np.zeros(6)
    for step in range(steps):
        used[step // interval % 6] += 1
    share = np.zeros(store.num_rows)
    for k in range(6):
        share[k * size : (k + 1) * size] = used[k] / steps / size
    by_hand = 0.5 * np.abs(share - 1 / store.num_rows).sum()
    assert store.deviation(steps, interval) == pytest.approx(by_hand)
    assert store.deviation(6 * 90, 90) == pytest.approx(1 / 1003)  # one row is in no chunk
    assert "6 random chunks of 167" in store.describe(steps, interval)


def test_training_uses_all_chunks(store, rows, monkeypatch):
    monkeypatch.setattr("puorl.rl.train.checkpoint_interval", lambda *_, **__: 20)
    seen = []
    read = type(store).chunk
    monkeypatch.setattr(type(store), "chunk", lambda s, k: (seen.append(k), read(s, k))[1])
    options = {"steps": 120, "hidden": (8,), "batch_size": 32}
    policy = puorl.train("td3_bc", store.chunk(0), **options)
    assert seen == [0, 0, 1, 2, 3, 4, 5]
    assert np.isfinite(policy.act(np.zeros(2))).all()
    one = dataclasses.replace(read(store, 0), chunks=None)
    alone = puorl.train("td3_bc", one, **options)
    assert not np.array_equal(policy.act(np.zeros(2)), alone.act(np.zeros(2)))


def test_one_chunk_trains_as_in_memory(rows, tmp_path):
    puorl.save(rows, tmp_path / "rows.parquet")
    lazy = puorl.open(tmp_path / "rows.parquet")
    store = make_store(lazy, tmp_path / "chunks", Workers(number=1), returns=(0.0, 9.0))
    assert store.num_chunks == 1
    options = {"steps": 40, "hidden": (8,), "batch_size": 32}
    chunk = store.chunk(0)
    made = puorl.train("iql", chunk, **options)
    plain = puorl.train("iql", dataclasses.replace(chunk, chunks=None), **options)
    state = np.array([0.3, -0.2])
    np.testing.assert_array_equal(made.act(state), plain.act(state))
    with pytest.raises(ConfigError, match="td7: needs all rows"):
        puorl.train("td7", chunk, **options)
