import jax
import jax.numpy as jnp
import numpy as np
import pytest

from puorl.core.checkpoint import Checkpoint
from puorl.core.errors import DataError


def state(seed):
    rng = np.random.default_rng(seed)
    key = jax.random.key(seed, impl="threefry2x32")
    weights = {"w": jnp.asarray(rng.normal(size=(2, 3)), jnp.float32), "n": jnp.arange(seed, 9)}
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
    with pytest.raises(DataError, match="expected a whole checkpoint.*remove it to start again"):
        Checkpoint(tmp_path, "job").restore("fit", state(0))
