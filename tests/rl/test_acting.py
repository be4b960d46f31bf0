import subprocess
import sys

import jax
import jax.numpy as jnp
import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from puorl.core.errors import ConfigError, DataError
from puorl.nn import mlp
from puorl.nn.numpy_mlp import KINDS, dimensions, forward
from puorl.rl import td3_bc, td7
from puorl.rl.learner import LEARNERS, Sizes, make
from puorl.rl.policy import NumpyPolicy, Policy

OBS = np.random.default_rng(1).standard_normal((43, 11)).astype(np.float32)


def network(sizes, *, prefix="", norm=False, seed=0):
    rng = np.random.default_rng(seed)
    arrays = {}
    for i, (fan_in, fan_out) in enumerate(zip(sizes[:-1], sizes[1:], strict=True)):
        arrays[f"{prefix}{i}.w"] = rng.standard_normal((fan_in, fan_out)) / np.sqrt(fan_in)
        arrays[f"{prefix}{i}.b"] = rng.standard_normal(fan_out)
        if norm and i < len(sizes) - 2:
            arrays[f"{prefix}{i}.norm.scale"] = rng.standard_normal(fan_out)
            arrays[f"{prefix}{i}.norm.offset"] = rng.standard_normal(fan_out)
    return {name: array.astype(np.float32) for name, array in arrays.items()}


def td7_arrays(d=11, width=16, z=12, m=3):
    return {
        **network((d, width, z), prefix="encoder."),
        **network((d, width), prefix="linear.", seed=1),
        **network((width + z, width, m), prefix="mlp.", seed=2),
    }


NETWORKS = {
    "wide": ("tanh", network((11, 256, 256, 6))),
    "narrow": ("clip", network((11, 5, 1))),
    "normalised": ("tanh", network((11, 33, 33, 3), norm=True)),
    "td7": ("td7", td7_arrays()),
    "wide td7": ("td7", td7_arrays(width=256, z=256)),
}


def around(arrays, kind="tanh", **given):
    obs_dim, act_dim = dimensions(kind, arrays)
    sizes = {"mean": np.zeros(obs_dim), "scale": np.ones(obs_dim)}
    sizes |= {"low": -np.ones(act_dim), "high": np.ones(act_dim)}
    return NumpyPolicy(kind, arrays, **(sizes | given))


@pytest.mark.parametrize("layer_norm", [False, True])
def test_networks_say_what_they_say_in_jax(layer_norm):
    params = mlp.init_mlp(jax.random.key(0), (11, 24, 24, 3), layer_norm=layer_norm)
    if layer_norm:  # as after training: scale and offset do something
        norm = mlp.LayerNorm(jnp.linspace(0.5, 2.0, 24), jnp.linspace(-1.0, 1.0, 24))
        params = tuple(p if p.norm is None else p._replace(norm=norm) for p in params)
    expected = np.asarray(mlp.apply_mlp(params, jnp.asarray(5 * OBS)))
    arrays = Policy.of("tanh", params).arrays
    assert ("0.norm.scale" in arrays) == layer_norm
    np.testing.assert_allclose(forward("tanh", arrays, 5 * OBS), np.tanh(expected), atol=2e-6)
    assert np.abs(expected).max() > 1.1  # so that the cut matters here
    np.testing.assert_allclose(forward("clip", arrays, 5 * OBS), expected.clip(-1, 1), atol=2e-6)


def filled(learner):
    """A state with drawn numbers in place of the learner's own, which take long to compile."""
    rng = np.random.default_rng(3)
    shapes = jax.eval_shape(lambda key: learner.init(key, Sizes(11, 3, 100)), jax.random.key(0))
    return jax.tree.map(
        lambda leaf: jnp.asarray(0.3 * rng.standard_normal(leaf.shape), leaf.dtype), shapes
    )


@pytest.mark.parametrize("name", LEARNERS)
def test_every_learner_gives_a_policy(name):
    learner = make(name, num_steps=1000)
    policy = Policy.of(learner.actor_kind, learner.actor(filled(learner)))
    assert (policy.obs_dim, policy.act_dim) == (11, 3)
    assert policy.act(OBS).std() > 0


def test_td3_bc_acts_as_it_learnt():
    learner = make("td3_bc", num_steps=2, hidden=(16, 16))
    actor = learner.actor(filled(learner))
    policy = Policy.of(learner.actor_kind, actor)
    np.testing.assert_allclose(policy.act(OBS), td3_bc.act(actor, jnp.asarray(OBS)), atol=2e-6)


def test_td7_acts_as_it_learnt():
    learner = make("td7", num_steps=2, hidden=(16, 16), embedding_dim=12)
    state = filled(learner)
    policy = Policy.of(learner.actor_kind, learner.actor(state))
    obs = jnp.asarray(OBS)
    expected = td7.act(state.actor, obs, td7.embed(state.fixed_encoder, obs))
    np.testing.assert_allclose(policy.act(OBS), expected, atol=2e-6)
    assert np.abs(expected).max() > 0.01


def test_layer_normalisation_by_hand():
    arrays = {
        "0.w": np.eye(2, dtype=np.float32),
        "0.b": np.zeros(2, np.float32),
        "0.norm.scale": np.array([0.5, 1], np.float32),
        "0.norm.offset": np.array([0, 0.25], np.float32),
        "1.w": np.eye(2, dtype=np.float32),
        "1.b": np.zeros(2, np.float32),
    }
    # (3, 1) has mean 2 and variance 1: it becomes (1, -1), then (0.5, -0.75), then (0.5, 0).
    got = forward("clip", arrays, np.array([[3, 1]], np.float32))
    np.testing.assert_allclose(got, [[0.5, 0.0]], atol=1e-5)


@pytest.mark.parametrize("name", NETWORKS)
@settings(max_examples=20)
@given(rows=st.lists(st.integers(0, len(OBS) - 1), max_size=30))
def test_a_row_has_the_same_bytes_in_any_company(name, rows):
    kind, arrays = NETWORKS[name]
    whole, part = forward(kind, arrays, OBS), forward(kind, arrays, OBS[rows])
    assert part.dtype == np.float32
    assert part.shape == (len(rows), whole.shape[1])
    assert part.tobytes() == whole[rows].tobytes()


@pytest.mark.parametrize("name", NETWORKS)
def test_every_row_alone_has_the_bytes_of_the_batch(name):
    kind, arrays = NETWORKS[name]
    mean, scale = np.linspace(-1, 1, 11), np.linspace(0.3, 3, 11)
    act_dim = dimensions(kind, arrays)[1]
    low, high = np.linspace(-3, -2, act_dim), np.linspace(0.1, 7, act_dim)
    policy = around(arrays, kind, mean=mean, scale=scale, low=low, high=high)
    whole = policy.act(OBS)
    assert len(np.unique(whole, axis=0)) > len(OBS) // 2
    assert np.concatenate([policy.act(row[None]) for row in OBS]).tobytes() == whole.tobytes()
    assert np.stack([policy.act(row) for row in OBS]).tobytes() == whole.tobytes()
    assert policy(OBS.astype(np.float64)).tobytes() == whole.tobytes()
    assert policy.act(np.asfortranarray(OBS)).tobytes() == whole.tobytes()


def test_observations_are_normalised_and_actions_mapped():
    arrays = {"0.w": np.eye(2, dtype=np.float32), "0.b": np.zeros(2, np.float32)}
    policy = around(arrays, "clip", mean=[1, 0], scale=[2, 4], low=[0, -1], high=[10, 1])
    assert policy.act([2.0, 1.0]).tolist() == [7.5, 0.25]
    assert policy.act([[1e9, -1e9]]).tolist() == [[10.0, -1.0]]


def test_the_range_from_minus_one_to_one_changes_nothing():
    kind, arrays = NETWORKS["wide"]
    assert around(arrays).act(OBS).tobytes() == forward(kind, arrays, OBS).tobytes()


@settings(max_examples=60)
@given(
    low=st.floats(-(2.0**127), 2.0**127, width=32),
    high=st.floats(-(2.0**127), 2.0**127, width=32),
)
def test_actions_stay_within_their_range(low, high):
    low, high = sorted((low, high))
    arrays = {"0.w": np.eye(1, dtype=np.float32), "0.b": np.zeros(1, np.float32)}
    policy = around(arrays, "clip", low=[low], high=[high])
    action = policy.act(np.array([[-5.0], [-0.3], [0.9], [5.0]]))
    assert (low <= action).all()
    assert (action <= high).all()


@pytest.mark.parametrize(
    ("obs", "message"),
    [
        (np.zeros(3), r"expected shape \(11,\) or \(n, 11\), got \(3,\)"),
        (np.zeros((2, 3)), r"got \(2, 3\)"),
        (np.zeros((1, 2, 11)), r"got \(1, 2, 11\)"),
        (np.zeros(()), r"got \(\)"),
        (np.array(["a"] * 11), "expected numbers"),
        (np.zeros(11, complex), "expected numbers"),
        (np.r_[np.zeros(10), np.nan], "row 0"),
        (np.stack([np.zeros(11), np.full(11, np.inf)]), "row 1"),
        (np.full(11, 1e300), "within float32"),
        (np.full(11, 3e38), "overflow inside"),
    ],
)
def test_wrong_observations_are_refused(obs, message):
    policy = around(NETWORKS["normalised"][1])
    with pytest.raises(DataError, match=message):
        policy.act(obs)


def test_no_rows_give_no_actions():
    assert around(NETWORKS["td7"][1], "td7").act(np.zeros((0, 11))).shape == (0, 3)


def without(arrays, name):
    return {key: array for key, array in arrays.items() if key != name}


LAYER = {"0.w": np.zeros((2, 3)), "0.b": np.zeros(3)}


@pytest.mark.parametrize(
    ("kind", "arrays", "message"),
    [
        ("tanh", {}, "expected an array 0.w, got none"),
        ("td7", LAYER, "expected an array encoder.0.w, got 0.b, 0.w"),
        ("tanh", LAYER | {"0.w": np.zeros(3)}, r"0.w: expected shape \(fan_in, fan_out\)"),
        ("tanh", LAYER | {"0.w": np.zeros((0, 3))}, r"got \(0, 3\)"),
        ("tanh", without(LAYER, "0.b"), r"0.b: expected shape \(3,\), got none"),
        ("tanh", LAYER | {"0.b": np.zeros(2)}, r"0.b: expected shape \(3,\), got \(2,\)"),
        ("tanh", LAYER | {"1.w": np.zeros((2, 1))}, r"1.w: expected shape \(3, fan_out\)"),
        ("tanh", LAYER | {"0.norm.scale": np.ones(3)}, "alone, got 0.norm.scale"),
        ("tanh", without(NETWORKS["normalised"][1], "1.norm.offset"), "1.norm.offset: expected"),
        ("tanh", LAYER | {"other": np.zeros(3)}, "alone, got other"),
        ("tanh", LAYER | {"0.w": np.full((2, 3), np.nan)}, "0.w: expected finite"),
        ("tanh", LAYER | {"0.w": np.full((2, 3), 1e300)}, "0.w: expected finite"),
        ("tanh", LAYER | {"0.w": [["a"]]}, "0.w: expected numbers"),
        ("td7", td7_arrays() | network((11, 9), prefix="linear."), "widths"),
        ("td7", td7_arrays() | network((7, 16), prefix="linear."), "widths"),
    ],
)
def test_arrays_that_do_not_fit_are_refused(kind, arrays, message):
    with pytest.raises(DataError, match=message):
        NumpyPolicy(kind, arrays, np.zeros(2), np.ones(2), -np.ones(3), np.ones(3))


def test_unknown_kinds_are_refused():
    with pytest.raises(ConfigError, match=f"among {', '.join(KINDS)}, got 'sigmoid'"):
        dimensions("sigmoid", LAYER)


@pytest.mark.parametrize(
    ("given", "message"),
    [
        ({"mean": np.zeros(1)}, r"mean: expected shape \(2,\), got \(1,\)"),
        ({"high": np.ones(())}, r"high: expected shape \(3,\), got \(\)"),
        ({"scale": np.array([1, 0])}, "scale: expected positive numbers, got 0.0"),
        ({"scale": np.array([1, np.nan])}, "scale: expected finite"),
        ({"low": np.array([0, 2, 0])}, "expected low <= high"),
    ],
)
def test_what_is_around_the_network_must_fit(given, message):
    with pytest.raises(DataError, match=message):
        around(LAYER, **given)


def test_a_policy_owns_its_arrays():
    w = np.ones((2, 3), np.float32)
    policy = around(LAYER | {"0.w": w})
    w[:] = 7
    assert policy.arrays["0.w"].max() == 1
    with pytest.raises(ValueError, match="read-only"):
        policy.arrays["0.w"][0, 0] = 5
    assert repr(policy) == "NumpyPolicy(tanh, obs 2 -> action 3)"


def test_acting_needs_no_jax(tmp_path):
    kind, arrays = NETWORKS["td7"]
    path = tmp_path / "policy.safetensors"
    saved = Policy(kind, arrays, np.zeros(11), np.ones(11), -np.ones(3), np.ones(3))
    saved.save(path)
    code = (
        "import sys, numpy as np\n"
        "from puorl.rl.policy import Policy\n"
        "policy = Policy.load(sys.argv[1])\n"
        "print(policy.act(np.ones(11)).tobytes().hex())\n"
        "print(policy.to_numpy()(np.ones(11)).tobytes().hex())\n"
        "assert not [name for name in sys.modules if name.partition('.')[0] in ('jax', 'jaxlib')]\n"
    )
    command = [sys.executable, "-c", code, str(path)]
    done = subprocess.run(command, capture_output=True, text=True, check=False)
    assert (done.returncode, done.stderr) == (0, "")
    assert done.stdout.split() == 2 * [saved.act(np.ones(11)).tobytes().hex()]
