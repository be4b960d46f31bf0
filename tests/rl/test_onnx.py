"""Policies as ONNX files act in onnxruntime as they do in NumPy."""

import json

import numpy as np
import pytest

import puorl
from puorl.core.errors import DataError
from puorl.nn.numpy_mlp import KINDS
from puorl.rl.policy import Policy

onnxruntime = pytest.importorskip("onnxruntime")
OBS_DIM, ACT_DIM = 7, 3


def layers(rng, *widths, norm=False):
    made = []
    for i, (fan_in, fan_out) in enumerate(zip(widths[:-1], widths[1:], strict=True)):
        layer = {"w": rng.normal(size=(fan_in, fan_out)), "b": 0.1 * rng.normal(size=fan_out)}
        layer["w"] /= np.sqrt(fan_in)
        if norm and i < len(widths) - 2:
            layer["norm"] = {"scale": rng.normal(size=fan_out), "offset": rng.normal(size=fan_out)}
        made.append(layer)
    return made


def random_policy(kind, seed=0, *, norm=False):
    rng = np.random.default_rng(seed)
    params = layers(rng, OBS_DIM, 32, 16, ACT_DIM, norm=norm)
    if kind == "td7":
        params = {
            "encoder": layers(rng, OBS_DIM, 16, 8),
            "linear": layers(rng, OBS_DIM, 5),
            "mlp": layers(rng, 13, 16, ACT_DIM),
        }
    low = rng.normal(size=ACT_DIM)
    scaling = {"mean": 10 * rng.normal(size=OBS_DIM), "scale": rng.uniform(0.1, 5, OBS_DIM)}
    metadata = {"learner": "bc", "seed": seed}
    high = low + rng.uniform(0.5, 50, ACT_DIM)
    return Policy.of(kind, params, **scaling, low=low, high=high, metadata=metadata)


def session(path):
    return onnxruntime.InferenceSession(str(path), providers=["CPUExecutionProvider"])


@pytest.mark.parametrize("norm", [False, True])
@pytest.mark.parametrize("kind", ["tanh", "clip", "td7"])
def test_onnxruntime_acts_as_numpy_does(tmp_path, kind, norm):
    policy = random_policy(kind, norm=norm)
    policy.to_onnx(tmp_path / "policy.onnx")
    noise = np.random.default_rng(1).normal(size=(500, OBS_DIM))
    obs = (policy.mean + policy.scale * noise).astype(np.float32)
    runtime = session(tmp_path / "policy.onnx")
    [action] = runtime.run(["action"], {"obs": obs})
    expected = policy.act(obs)
    width = policy.high - policy.low
    assert np.ptp(expected / width, axis=0).min() > 0.3  # not all at an end
    np.testing.assert_allclose(action / width, expected / width, atol=1e-5)
    [one] = runtime.run(None, {"obs": obs[:1]})
    np.testing.assert_allclose(one / width, expected[:1] / width, atol=1e-5)
    found = runtime.get_modelmeta().custom_metadata_map
    assert found == {
        "puorl.learner": "bc", "puorl.seed": "0", "puorl.fingerprint": policy.fingerprint
    }  # fmt: skip


@pytest.mark.parametrize("kind", ["softmax", "greedy", "bcq"])
def test_probabilities_of_codes_are_numpys(tmp_path, kind):
    rng = np.random.default_rng(4)
    params = layers(rng, OBS_DIM, 16, ACT_DIM)
    if kind == "bcq":
        behaviour = layers(rng, OBS_DIM, 8, ACT_DIM)
        params = {"q": params, "behaviour": behaviour, "threshold": np.full(1, 0.6)}
    codes = ("down", "hold", "up")
    policy = Policy.of(kind, params, mean=rng.normal(size=OBS_DIM), codes=codes)
    policy.to_onnx(tmp_path / "policy.onnx")
    obs = 2 * rng.normal(size=(500, OBS_DIM)).astype(np.float32)
    runtime = session(tmp_path / "policy.onnx")
    [chances] = runtime.run(["probabilities"], {"obs": obs})
    expected = policy.probabilities(obs)
    assert (expected.max(axis=1) == 1).all() == (kind != "softmax")
    assert len(set(expected.argmax(axis=1))) == ACT_DIM
    np.testing.assert_allclose(chances, expected, atol=1e-5)
    assert json.loads(runtime.get_modelmeta().custom_metadata_map["puorl.codes"]) == list(codes)


def test_a_trained_policy_acts_alike(tmp_path):
    rng = np.random.default_rng(0)
    obs = 100 + 20 * rng.normal(size=(300, 2))
    data = puorl.Dataset.from_arrays(obs=obs, action=3 * obs[:, :1], next_obs=obs)
    policy = puorl.train("bc", data, steps=100, hidden=(16,), batch_size=32)
    policy.to_onnx(tmp_path / "policy.onnx")
    [action] = session(tmp_path / "policy.onnx").run(None, {"obs": obs.astype(np.float32)})
    np.testing.assert_allclose(action, policy.act(obs), rtol=1e-5)


def test_files_are_not_overwritten_and_all_kinds_are_tried(tmp_path):
    random_policy("tanh").to_onnx(tmp_path / "a.onnx")
    with pytest.raises(DataError, match="already exists"):
        random_policy("clip").to_onnx(tmp_path / "a.onnx")
    random_policy("clip").to_onnx(tmp_path / "a.onnx", force=True)
    assert set(KINDS) == {"tanh", "clip", "td7", "softmax", "greedy", "bcq"}


def test_names_of_columns_are_in_the_file(tmp_path):
    names = {"obs_names": [f"s{i}" for i in range(OBS_DIM)], "action_names": ["a", "b", "ä"]}
    params = layers(np.random.default_rng(0), OBS_DIM, ACT_DIM)
    Policy.of("tanh", params, metadata=names).to_onnx(tmp_path / "policy.onnx")
    found = session(tmp_path / "policy.onnx").get_modelmeta().custom_metadata_map
    assert {k: json.loads(found[f"puorl.{k}"]) for k in names} == names
