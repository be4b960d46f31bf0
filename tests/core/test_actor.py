import json
import os
import subprocess
import sys

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from safetensors.numpy import save_file

from puorl.core.errors import DataError
from puorl.nn.numpy_mlp import SquashedGaussianActor, read_metadata


def make_actor(obs_dim=17, act_dim=6, hidden=(256, 256), seed=0):
    rng = np.random.default_rng(seed)
    sizes = (obs_dim, *hidden, 2 * act_dim)
    layers = []
    for fan_in, fan_out in zip(sizes[:-1], sizes[1:], strict=True):
        scale = 1 / np.sqrt(fan_in)
        layers.append(
            (scale * rng.standard_normal((fan_in, fan_out)), rng.standard_normal(fan_out))
        )
    return SquashedGaussianActor(tuple(layers))


ACTOR = make_actor()
OBS = np.random.default_rng(1).standard_normal((67, 17)).astype(np.float32)
NOISE = np.random.default_rng(2).standard_normal((67, 6)).astype(np.float32)


def forward64(actor, obs):
    x = obs.astype(np.float64)
    for i, (w, b) in enumerate(actor.layers):
        x = x @ w.astype(np.float64) + b.astype(np.float64)
        x = np.maximum(x, 0) if i < len(actor.layers) - 1 else x
    return np.split(x, 2, axis=1)


def test_actions_agree_with_float64():
    mean, log_std = forward64(ACTOR, OBS)
    np.testing.assert_allclose(ACTOR.act(OBS), np.tanh(mean), atol=1e-5)
    assert log_std.max() > 2  # so that the bound matters here
    sampled = np.tanh(mean + np.exp(np.clip(log_std, -20, 2)) * NOISE)
    np.testing.assert_allclose(ACTOR.act_with_noise(OBS, NOISE), sampled, atol=1e-5)


def test_noise_comes_from_the_generator():
    drawn = ACTOR.act(OBS, rng=np.random.default_rng(5))
    noise = ACTOR.draw_noise(np.random.default_rng(5), len(OBS))
    np.testing.assert_array_equal(drawn, ACTOR.act_with_noise(OBS, noise))
    assert np.abs(drawn - ACTOR.act(OBS)).max() > 0.1


@pytest.mark.parametrize(("log_std", "expected"), [(50.0, 2.0), (-50.0, -20.0)])
def test_log_std_is_clipped(log_std, expected):
    actor = SquashedGaussianActor(((np.zeros((3, 4)), np.array([0, 0, log_std, log_std])),))
    noise = np.full((2, 2), 0.1, np.float32)
    got = actor.act_with_noise(np.zeros((2, 3)), noise)
    np.testing.assert_allclose(got, np.tanh(np.exp(expected) * 0.1), rtol=1e-5)


@settings(max_examples=60, deadline=None)
@given(rows=st.lists(st.integers(0, 66), min_size=0, max_size=40))
def test_a_row_has_the_same_bytes_in_any_company(rows):
    whole = ACTOR.act_with_noise(OBS, NOISE)
    part = ACTOR.act_with_noise(OBS[rows], NOISE[rows])
    assert part.dtype == np.float32
    assert part.shape == (len(rows), 6)
    assert part.tobytes() == whole[rows].tobytes()


def test_every_row_alone_has_the_bytes_of_the_batch():
    whole = ACTOR.act_with_noise(OBS, NOISE)
    alone = [ACTOR.act_with_noise(OBS[i : i + 1], NOISE[i : i + 1]) for i in range(len(OBS))]
    assert np.concatenate(alone).tobytes() == whole.tobytes()


def test_threads_of_blas_do_not_change_bytes(tmp_path):
    ACTOR.save(tmp_path / "a.safetensors")
    np.save(tmp_path / "obs.npy", np.tile(OBS, (20, 1)))
    code = (
        "import sys, hashlib, numpy as np\n"
        "from puorl.nn.numpy_mlp import SquashedGaussianActor\n"
        "actor = SquashedGaussianActor.load(sys.argv[1] + '/a.safetensors')\n"
        "action = actor.act(np.load(sys.argv[1] + '/obs.npy'))\n"
        "print(hashlib.sha256(action.tobytes()).hexdigest())\n"
    )
    found = set()
    for threads in ("1", "2", "7"):
        names = ("OPENBLAS_NUM_THREADS", "OMP_NUM_THREADS", "MKL_NUM_THREADS")
        env = os.environ | dict.fromkeys(names, threads)
        command = [sys.executable, "-c", code, str(tmp_path)]
        found.add(subprocess.run(command, env=env, check=True, capture_output=True).stdout)
    assert len(found) == 1


def test_a_saved_actor_is_the_rounded_one(tmp_path):
    path = tmp_path / "actor.safetensors"
    ACTOR.save(path, {"body": "walker2d", "steps": 3})
    loaded = SquashedGaussianActor.load(path)
    assert loaded.fingerprint == ACTOR.rounded().fingerprint != ACTOR.fingerprint
    np.testing.assert_array_equal(loaded.act(OBS), ACTOR.rounded().act(OBS))
    assert loaded.layers[0][0].dtype == np.float32
    assert read_metadata(path) == {"body": "walker2d", "steps": 3}
    # Weights in float16 and little else.
    assert path.stat().st_size < 2 * sum(w.size + b.size for w, b in ACTOR.layers) + 1000
    again = tmp_path / "again.safetensors"
    loaded.save(again, {"steps": 3, "body": "walker2d"})
    assert again.read_bytes() == path.read_bytes()


def test_save_does_not_overwrite(tmp_path):
    ACTOR.save(tmp_path / "a.safetensors")
    with pytest.raises(DataError, match="already exists"):
        ACTOR.save(tmp_path / "a.safetensors")


def test_cut_leaves_out_padding_only():
    padded = make_actor(17, 6, (32,))
    cut = padded.cut(11, 3)
    assert (cut.obs_dim, cut.act_dim) == (11, 3)
    obs = np.zeros((9, 17), np.float32)
    obs[:, :11] = OBS[:9, :11]
    np.testing.assert_allclose(
        cut.act_with_noise(OBS[:9, :11], NOISE[:9, :3]),
        padded.act_with_noise(obs, NOISE[:9])[:, :3],
        atol=1e-6,
    )


def test_what_is_no_actor_is_refused(tmp_path):
    (tmp_path / "text.safetensors").write_text("no tensors here")
    for name in ("text.safetensors", "missing.safetensors"):
        with pytest.raises(DataError, match="expected a policy"):
            SquashedGaussianActor.load(tmp_path / name)
        with pytest.raises(DataError, match="expected a policy"):
            read_metadata(tmp_path / name)
    save_file({"other": np.zeros(2)}, tmp_path / "other.safetensors")
    with pytest.raises(DataError, match="got other"):
        SquashedGaussianActor.load(tmp_path / "other.safetensors")


@pytest.mark.parametrize(
    "layers",
    [
        (),
        ((np.zeros((3, 5)), np.zeros(5)),),
        ((np.zeros((3, 4)), np.zeros(3)),),
        ((np.zeros((3, 4)), np.zeros(4)), (np.zeros((5, 4)), np.zeros(4))),
        ((np.full((3, 4), np.inf), np.zeros(4)),),
    ],
)
def test_layers_that_do_not_fit_are_refused(layers):
    with pytest.raises(DataError, match="expected"):
        SquashedGaussianActor(layers)


def test_wrong_observation_is_refused():
    with pytest.raises(DataError, match=r"expected shape \(n, 17\), got \(2, 11\)"):
        ACTOR.act(np.zeros((2, 11)))


def test_no_jax_is_needed():
    code = "import sys, json, puorl.nn.numpy_mlp; print(json.dumps('jax' in sys.modules))"
    done = subprocess.run([sys.executable, "-c", code], check=True, capture_output=True)
    assert json.loads(done.stdout) is False
