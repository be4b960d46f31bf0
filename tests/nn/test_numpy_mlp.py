import json
import os
import subprocess
import sys

import jax
import jax.numpy as jnp
import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from safetensors import safe_open
from safetensors.numpy import save_file

from puorl.core.errors import ConfigError, DataError
from puorl.core.hashing import HASH
from puorl.nn import mlp
from puorl.nn.numpy_mlp import (
    KINDS,
    NumpyPolicy,
    SquashedGaussianActor,
    dimensions,
    forward,
    stack_policies,
)
from puorl.rl import td3_bc, td7
from puorl.rl.learner import LEARNERS, Sizes, make
from puorl.rl.policy import Policy

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


# ----------------------------------------------------------------------------------------- together


def policies(count, kind="tanh", shape=(11, 256, 256, 3), *, norm=False):
    rng = np.random.default_rng(0)
    made = []
    for seed in range(count):
        arrays = network(shape, norm=norm, seed=seed)
        if kind == "td7":
            arrays = {name: a + np.float32(seed) / 8 for name, a in td7_arrays().items()}
        d, m = dimensions(kind, arrays)
        low = -rng.uniform(0.5, 2, m)
        made.append(
            NumpyPolicy(kind, arrays, rng.normal(size=d), rng.uniform(0.5, 2, d), low, low + 2)
        )
    return made


def apart(own, obs, number):
    return np.concatenate([own[k].act(obs[number == k]) for k in np.unique(number)])


@pytest.mark.parametrize(
    "own",
    [
        policies(3),
        policies(3, "clip", (11, 5, 1)),
        policies(3, norm=True),
        policies(3, "td7"),
        policies(40, shape=(11, 24, 3)),
    ],
    ids=["tanh", "clip", "normalised", "td7", "several threads"],
)
def test_together_they_do_what_each_does_alone_to_the_byte(own):
    rng = np.random.default_rng(1)
    number = np.sort(rng.integers(len(own), size=29))
    obs = rng.normal(size=(29, 11)).astype(np.float32)
    stack = stack_policies(own, rows=10)
    assert stack.act(obs, number).tobytes() == apart(own, obs, number).tobytes()


@given(data=st.data())
@settings(max_examples=60, deadline=None)
def test_some_end_sooner_than_others_and_the_rest_goes_on_as_before(data):
    own = policies(18, shape=(4, 12, 2))
    stack = stack_policies(own, rows=10)
    number = np.repeat(
        np.arange(18), data.draw(st.lists(st.integers(0, 10), min_size=18, max_size=18))
    )
    rng = np.random.default_rng(2)
    while len(number):
        obs = rng.normal(size=(len(number), 4)).astype(np.float32)
        assert stack.act(obs, number).tobytes() == apart(own, obs, number).tobytes()
        number = number[rng.random(len(number)) < 0.5]


def test_policies_of_other_shapes_kinds_or_makers_do_not_act_together():
    first = policies(1)[0]
    for other in (policies(1, shape=(11, 8, 3))[0], policies(1, "clip")[0], lambda obs: obs):
        assert stack_policies([first, other], rows=10) is None


def test_one_that_acts_otherwise_is_asked_itself():
    class Still(NumpyPolicy):
        def act(self, obs):
            return 0 * super().act(obs)

    first = policies(1)[0]
    still = Still(first.kind, first.arrays, first.mean, first.scale, first.low, first.high)
    assert stack_policies([first, still], rows=10) is None
    assert stack_policies([still], rows=10) is None


def test_many_rows_keep_a_network_busy_alone():
    own = policies(2)
    assert stack_policies(own, rows=16) is not None
    assert stack_policies(own, rows=17) is None


def test_an_observation_that_is_not_finite_is_refused():
    own = policies(2)
    obs = np.zeros((2, 11), np.float32)
    obs[1, 3] = np.nan
    with pytest.raises(DataError, match="got others in row 1"):
        stack_policies(own, rows=10).act(obs, np.array([0, 1]))


# ---------------------------------------------------------------------------------------- behaviour


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
ACTOR_OBS = np.random.default_rng(1).standard_normal((67, 17)).astype(np.float32)
ACTOR_NOISE = np.random.default_rng(2).standard_normal((67, 6)).astype(np.float32)


def forward64(actor, obs):
    x = obs.astype(np.float64)
    for i, (w, b) in enumerate(actor.layers):
        x = x @ w.astype(np.float64) + b.astype(np.float64)
        x = np.maximum(x, 0) if i < len(actor.layers) - 1 else x
    return np.split(x, 2, axis=1)


def test_actions_agree_with_float64():
    mean, log_std = forward64(ACTOR, ACTOR_OBS)
    np.testing.assert_allclose(ACTOR.act(ACTOR_OBS), np.tanh(mean), atol=1e-5)
    assert log_std.max() > 2  # so that the bound matters here
    sampled = np.tanh(mean + np.exp(np.clip(log_std, -20, 2)) * ACTOR_NOISE)
    np.testing.assert_allclose(ACTOR.act_with_noise(ACTOR_OBS, ACTOR_NOISE), sampled, atol=1e-5)


def test_noise_comes_from_the_generator():
    drawn = ACTOR.act(ACTOR_OBS, rng=np.random.default_rng(5))
    noise = ACTOR.draw_noise(np.random.default_rng(5), len(ACTOR_OBS))
    np.testing.assert_array_equal(drawn, ACTOR.act_with_noise(ACTOR_OBS, noise))
    assert np.abs(drawn - ACTOR.act(ACTOR_OBS)).max() > 0.1


@pytest.mark.parametrize(("log_std", "expected"), [(50.0, 2.0), (-50.0, -20.0)])
def test_log_std_is_clipped(log_std, expected):
    actor = SquashedGaussianActor(((np.zeros((3, 4)), np.array([0, 0, log_std, log_std])),))
    noise = np.full((2, 2), 0.1, np.float32)
    got = actor.act_with_noise(np.zeros((2, 3)), noise)
    np.testing.assert_allclose(got, np.tanh(np.exp(expected) * 0.1), rtol=1e-5)


@settings(max_examples=60, deadline=None)
@given(rows=st.lists(st.integers(0, 66), min_size=0, max_size=40))
def test_an_actors_row_has_the_same_bytes_in_any_company(rows):
    whole = ACTOR.act_with_noise(ACTOR_OBS, ACTOR_NOISE)
    part = ACTOR.act_with_noise(ACTOR_OBS[rows], ACTOR_NOISE[rows])
    assert part.dtype == np.float32
    assert part.shape == (len(rows), 6)
    assert part.tobytes() == whole[rows].tobytes()


def test_every_row_alone_has_an_actors_bytes_of_the_batch():
    whole = ACTOR.act_with_noise(ACTOR_OBS, ACTOR_NOISE)
    alone = [
        ACTOR.act_with_noise(ACTOR_OBS[i : i + 1], ACTOR_NOISE[i : i + 1])
        for i in range(len(ACTOR_OBS))
    ]
    assert np.concatenate(alone).tobytes() == whole.tobytes()


def test_threads_of_blas_do_not_change_bytes(tmp_path):
    ACTOR.save(tmp_path / "a.safetensors")
    np.save(tmp_path / "obs.npy", np.tile(ACTOR_OBS, (20, 1)))
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
    rounded = SquashedGaussianActor(
        tuple((w.astype(np.float16), b.astype(np.float16)) for w, b in ACTOR.layers)
    )
    assert loaded.fingerprint == rounded.fingerprint != ACTOR.fingerprint
    np.testing.assert_array_equal(loaded.act(ACTOR_OBS), rounded.act(ACTOR_OBS))
    assert loaded.layers[0][0].dtype == np.float32
    with safe_open(path, framework="numpy") as file:
        metadata = json.loads(file.metadata()["metadata"])
    assert metadata.pop(HASH)
    assert metadata == {"body": "walker2d", "steps": 3}
    # Weights in float16 and little else.
    assert path.stat().st_size < 2 * sum(w.size + b.size for w, b in ACTOR.layers) + 1000
    again = tmp_path / "again.safetensors"
    loaded.save(again, {"steps": 3, "body": "walker2d"})
    assert again.read_bytes() == path.read_bytes()


def test_save_does_not_overwrite(tmp_path):
    ACTOR.save(tmp_path / "a.safetensors")
    with pytest.raises(DataError, match="already exists"):
        ACTOR.save(tmp_path / "a.safetensors")


def test_what_is_no_actor_is_refused(tmp_path):
    (tmp_path / "text.safetensors").write_text("no tensors here")
    for name in ("text.safetensors", "missing.safetensors"):
        with pytest.raises(DataError, match="expected a policy"):
            SquashedGaussianActor.load(tmp_path / name)
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
