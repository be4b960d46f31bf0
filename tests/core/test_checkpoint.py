import jax
import jax.numpy as jnp
import numpy as np
import pytest
from safetensors.numpy import save_file

from puorl.core import hashing
from puorl.core.errors import DataError
from puorl.core.run_folder import Checkpoint


def state(seed):
    rng = np.random.default_rng(seed)
    key = jax.random.key(seed, impl="threefry2x32")
    weights = {"w": jnp.asarray(rng.normal(size=(2, 3)), jnp.float32), "n": jnp.arange(9) + seed}
    return (weights, jax.random.split(key, 2), key)


def test_what_is_stored_comes_back(tmp_path):
    Checkpoint(tmp_path, "job").store("fit", state(1), 7, now=True)
    (weights, keys, key), done = Checkpoint(tmp_path, "job").restore("fit", state(0))
    wanted, wanted_keys, wanted_key = state(1)
    assert done == 7
    for name in ("w", "n"):
        np.testing.assert_array_equal(weights[name], wanted[name])
        assert weights[name].dtype == wanted[name].dtype
    # Keys are keys again: they draw what the stored ones would have drawn.
    assert (keys.dtype, keys.shape) == (wanted_keys.dtype, wanted_keys.shape)
    assert jax.random.bits(key) == jax.random.bits(wanted_key) != jax.random.bits(state(0)[2])
    np.testing.assert_array_equal(jax.random.key_data(keys), jax.random.key_data(wanted_keys))


def test_stages_are_kept_apart(tmp_path):
    kept = Checkpoint(tmp_path, "job")
    kept.store("one", state(1), 1, now=True)
    kept.store("two", state(2), 2, now=True)
    assert [kept.restore(stage, state(0))[1] for stage in ("one", "two", "three")] == [1, 2, 0]


def test_without_a_folder_nothing_is_kept(tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    kept, fresh = Checkpoint(None, "job"), state(0)
    kept.store("fit", state(1), 7, now=True)
    assert kept.restore("fit", fresh) == (fresh, 0)
    assert list(tmp_path.iterdir()) == []


def test_a_state_is_written_now_and_then_or_at_once(tmp_path):
    rarely = Checkpoint(tmp_path / "rarely", "job", seconds=3600.0)
    rarely.store("fit", state(1), 1)
    assert rarely.restore("fit", state(0))[1] == 0
    rarely.store("fit", state(1), 2, now=True)
    rarely.store("fit", state(1), 3)
    assert rarely.restore("fit", state(0))[1] == 2
    always = Checkpoint(tmp_path / "always", "job", seconds=-1.0)
    for done in (1, 2):
        always.store("fit", state(1), done)
        assert always.restore("fit", state(0))[1] == done


def test_a_state_of_another_job_is_refused(tmp_path):
    Checkpoint(tmp_path, "job").store("fit", state(1), 7, now=True)
    with pytest.raises(DataError, match="expected a checkpoint of this job"):
        Checkpoint(tmp_path, "another").restore("fit", state(0))


@pytest.mark.parametrize("share", [0.0, 0.3, 0.99])
def test_a_cut_file_is_refused(tmp_path, share):
    Checkpoint(tmp_path, "job").store("fit", state(1), 7, now=True)
    [path] = tmp_path.iterdir()
    content = path.read_bytes()
    path.write_bytes(content[: int(share * len(content))])
    with pytest.raises(DataError, match="expected a whole checkpoint.*remove it to go on"):
        Checkpoint(tmp_path, "job").restore("fit", state(0))


def test_every_flipped_bit_is_seen(tmp_path):
    small = {"w": jnp.arange(3, dtype=jnp.float32), "key": jax.random.key(1, impl="threefry2x32")}
    Checkpoint(tmp_path, "job").store("fit", small, 7, now=True, metrics="noted")
    [path] = tmp_path.iterdir()
    whole, told = path.read_bytes(), 0
    for place in range(len(whole)):
        flipped = bytearray(whole)
        flipped[place] ^= 1 << (place % 8)
        path.write_bytes(flipped)
        kept = Checkpoint(tmp_path, "job")
        try:
            restored, done = kept.restore("fit", small)
        except DataError as error:
            told += "remove it" in str(error)
            continue
        # Only the name of the hash, without which no run says that it resumed bitwise.
        assert hashing.HASH not in kept.notes
        assert (done, restored["w"].tolist()) == (7, [0, 1, 2])
    assert told > 0.9 * len(whole)


def test_other_shapes_and_dtypes_are_refused_without_a_hash_too(tmp_path):
    for stage, array in (("shape", np.zeros(3, np.float32)), ("dtype", np.zeros(2))):
        metadata = {"identity": "job", "done": "7"}  # as version 0.1 wrote it
        save_file({"0": array}, tmp_path / f"{stage}.safetensors", metadata=metadata)
        with pytest.raises(DataError, match="array 0 is float"):
            Checkpoint(tmp_path, "job").restore(stage, jnp.zeros(2, jnp.float32))
    save_file({"0": np.ones(2, np.float32)}, tmp_path / "old.safetensors", metadata=metadata)
    kept = Checkpoint(tmp_path, "job")
    assert kept.restore("old", jnp.zeros(2, jnp.float32))[0].tolist() == [1, 1]
    assert hashing.HASH not in kept.notes
