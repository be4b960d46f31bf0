import json
from typing import NamedTuple

import jax
import jax.numpy as jnp
import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from safetensors.numpy import load, save, save_file

from puorl.core.errors import ConfigError, DataError
from puorl.nn import mlp
from puorl.rl.policy import NumpyPolicy, Policy

OBS = np.random.default_rng(1).standard_normal((9, 3)).astype(np.float32)
METADATA = {
    "learner": "td3_bc",
    "config": {"q_weight": 2.5, "hidden": [4]},
    "steps": 1000,
    "seed": 3,
    "data": "0123abcd",
    "versions": {"puorl": "0.1.0"},
}


def layers(*sizes, seed=0):
    rng = np.random.default_rng(seed)
    pairs = zip(sizes[:-1], sizes[1:], strict=True)
    return tuple(
        {"w": rng.standard_normal(pair), "b": rng.standard_normal(pair[1])} for pair in pairs
    )


def make_policy(**given):
    given = {"mean": [0.5, 0, -1], "scale": [1, 2, 3], "low": [-1, 0], "high": [1, 5]} | given
    return Policy.of("tanh", layers(3, 4, 2), **({"metadata": METADATA} | given))


POLICY = make_policy()


@pytest.fixture(scope="module")
def saved(tmp_path_factory):
    path = tmp_path_factory.mktemp("saved") / "policy.safetensors"
    POLICY.save(path)
    return path.read_bytes()


def assert_equal(one, other):
    assert one.fingerprint == other.fingerprint
    assert one.metadata == other.metadata
    assert one.act(OBS).tobytes() == other.act(OBS).tobytes()


def test_parameters_of_jax_are_copied():
    params = mlp.init_mlp(jax.random.key(0), (3, 8, 2), layer_norm=True)
    policy = Policy.of("tanh", params)
    assert sorted(policy.arrays) == ["0.b", "0.norm.offset", "0.norm.scale", "0.w", "1.b", "1.w"]
    np.testing.assert_array_equal(policy.arrays["1.w"], params[1].w)
    shown = np.asarray(params[0].w)  # the memory that training may use again
    assert not np.shares_memory(policy.arrays["0.w"], shown)


def test_trees_of_any_build_are_named_alike():
    class Layer(NamedTuple):
        w: object
        b: object
        norm: object = None

    as_dicts = layers(3, 4, 2)
    as_tuples = [Layer(jnp.asarray(a["w"], jnp.float32), a["b"]) for a in as_dicts]
    assert Policy.of("tanh", as_dicts).fingerprint == Policy.of("tanh", as_tuples).fingerprint


def test_defaults_leave_observations_and_actions_alone():
    plain = Policy.of("tanh", layers(3, 4, 2))
    same = make_policy(mean=np.zeros(3), scale=np.ones(3), low=-np.ones(2), high=np.ones(2))
    assert plain.fingerprint == same.fingerprint
    assert plain.metadata == {}
    assert plain.act(OBS).tobytes() == plain.to_numpy()(OBS).tobytes()


def test_to_numpy_acts_alike_and_knows_nothing_else():
    acting = POLICY.to_numpy()
    assert type(acting) is NumpyPolicy
    assert not hasattr(acting, "metadata")
    assert acting(OBS).tobytes() == acting.act(OBS).tobytes() == POLICY.act(OBS).tobytes()
    assert acting(OBS[0]).shape == (2,)


@pytest.mark.parametrize(
    "given",
    [{"mean": np.zeros(3)}, {"scale": np.ones(3)}, {"low": [-2, 0]}, {"high": [1, 6]}],
    ids=str,
)
def test_the_fingerprint_is_of_all_that_decides_actions(given):
    assert make_policy(**given).fingerprint != POLICY.fingerprint


def test_the_fingerprint_is_of_weights_and_kind_and_of_no_metadata():
    assert make_policy(metadata={}).fingerprint == POLICY.fingerprint
    one, other = Policy.of("tanh", layers(3, 2)), Policy.of("tanh", layers(3, 2, seed=1))
    kind = Policy.of("clip", layers(3, 2))
    assert len({one.fingerprint, other.fingerprint, kind.fingerprint}) == 3


def test_a_saved_policy_comes_back(tmp_path, saved):
    path = tmp_path / "new" / "policy.safetensors"
    POLICY.save(path)
    loaded = Policy.load(path)
    assert_equal(loaded, POLICY)
    assert loaded.metadata == METADATA
    assert path.read_bytes() == saved
    loaded.save(str(path), force=True)
    assert path.read_bytes() == saved
    assert path.stat().st_mode & 0o044  # not for its owner alone


def test_nothing_is_overwritten_unasked(tmp_path):
    path = tmp_path / "policy.safetensors"
    path.write_text("mine")
    with pytest.raises(DataError, match="already exists"):
        POLICY.save(path)
    assert path.read_text() == "mine"
    assert [p.name for p in tmp_path.iterdir()] == ["policy.safetensors"]


@settings(max_examples=60)
@given(data=st.data())
def test_damaged_files_never_give_another_policy(data, tmp_path, saved):
    raw = bytearray(saved)
    # The header is where most can go wrong, so half of the changes go there.
    header = 8 + int.from_bytes(saved[:8], "little")
    for _ in range(data.draw(st.integers(1, 3))):
        end = data.draw(st.sampled_from([header, len(raw)]))
        raw[data.draw(st.integers(0, end - 1))] ^= data.draw(st.integers(1, 255))
    raw = raw[: data.draw(st.one_of(st.just(len(raw)), st.integers(0, len(raw))))]
    path = tmp_path / "policy.safetensors"
    path.write_bytes(raw)
    try:
        loaded = Policy.load(path)
    except DataError:
        return
    assert_equal(loaded, POLICY)


@settings(max_examples=30)
@given(length=st.integers(0, 10_000))
def test_truncated_files_are_refused(length, tmp_path, saved):
    path = tmp_path / "policy.safetensors"
    path.write_bytes(saved[: length % len(saved)])
    with pytest.raises(DataError, match="expected a policy in safetensors"):
        Policy.load(path)


def about(saved):
    header = json.loads(saved[8 : 8 + int.from_bytes(saved[:8], "little")])
    return json.loads(header["__metadata__"]["puorl_policy"])


def rewritten(path, saved, *, drop=None, **changes):
    """The saved file with another header, or without one tensor."""
    tensors = {name: array for name, array in load(saved).items() if name != drop}
    path.write_bytes(save(tensors, {"puorl_policy": json.dumps(about(saved) | changes)}))
    return path


@pytest.mark.parametrize(
    ("changes", "message"),
    [
        ({"version": 2}, "got version 2; it was saved by a newer puorl, so update puorl"),
        ({"version": None}, "expected a policy's header"),
        ({"version": float("inf")}, "expected a policy's header"),
        ({"kind": "sigmoid"}, "expected a kind among"),
        ({"kind": "clip"}, "content hash differs"),
        ({"metadata": METADATA | {"seed": 4}}, "content hash differs"),
        ({"metadata": [1]}, "metadata: expected names and values"),
        ({"drop": "mean"}, "expected a part 'mean', got none"),
        ({"drop": "network.1.b"}, "1.b: expected shape"),
    ],
    ids=str,
)
def test_files_that_were_changed_are_refused(changes, message, tmp_path, saved):
    path = rewritten(tmp_path / "changed.safetensors", saved, **changes)
    with pytest.raises(DataError, match=message):
        Policy.load(path)


def test_a_file_without_change_is_read(tmp_path, saved):
    assert_equal(Policy.load(rewritten(tmp_path / "same.safetensors", saved)), POLICY)


def test_what_is_no_policy_is_refused(tmp_path):
    with pytest.raises(DataError, match="found no such file"):
        Policy.load(tmp_path / "missing.safetensors")
    with pytest.raises(DataError, match="found a folder"):
        Policy.load(tmp_path)
    (tmp_path / "text.safetensors").write_text("no tensors here")
    with pytest.raises(DataError, match="expected a policy in safetensors"):
        Policy.load(tmp_path / "text.safetensors")
    save_file({"other": np.zeros(2)}, tmp_path / "other.safetensors")
    with pytest.raises(DataError, match="a safetensors file of another kind"):
        Policy.load(tmp_path / "other.safetensors")


@pytest.mark.parametrize(
    "value", [np.float32(1), float("nan"), {1, 2}, object()], ids=["numpy", "nan", "set", "object"]
)
def test_metadata_must_be_json(value):
    with pytest.raises(DataError, match="metadata: expected JSON values"):
        make_policy(metadata={"value": value})


def test_metadata_is_as_a_file_would_give_it_back():
    assert make_policy(metadata={"hidden": (4, 4), "by": {1: 2}}).metadata == {
        "hidden": [4, 4],
        "by": {"1": 2},
    }


def test_wrong_parameters_are_refused():
    with pytest.raises(ConfigError, match="expected a kind among"):
        Policy.of("sigmoid", layers(3, 2))
    with pytest.raises(DataError, match="expected an array 0.w, got none"):
        Policy.of("tanh", ())
    with pytest.raises(DataError, match=r"0.w: expected shape"):
        Policy.of("tanh", [{"w": np.zeros((5, 3, 2)), "b": np.zeros((5, 2))}])  # five lanes at once


def test_repr_is_short_and_useful():
    text = repr(POLICY)
    assert text.startswith("Policy(td3_bc, obs 3 -> action 2, 26 weights, steps=1000, seed=3, ")
    assert POLICY.fingerprint.startswith(text[-9:-1])
    assert repr(Policy.of("clip", layers(3, 2))).startswith("Policy(clip, obs 3 -> action 2, 8 w")


# ------------------------------------------------------------------------------- columns

NAMED = {"obs_names": ["flow", "head", "heat"], "action_names": ["speed", "valve"]}


def test_names_of_columns_are_saved_and_shown(tmp_path):
    named = make_policy(metadata=METADATA | NAMED)
    named.save(tmp_path / "policy.safetensors")
    back = Policy.load(tmp_path / "policy.safetensors")
    assert (back.obs_names, back.action_names) == (("flow", "head", "heat"), ("speed", "valve"))
    assert "obs 3 -> action 2, flow, head, heat -> speed, valve, 26 weights" in repr(back)
    assert back.fingerprint == POLICY.fingerprint  # names decide no action
    assert (POLICY.obs_names, POLICY.action_names, POLICY.columns_text) == ((), (), "")


@pytest.mark.parametrize("names", [["flow"], "flow,head,heat", [1, 2, 3], None])
def test_names_that_cannot_be_are_refused(names):
    with pytest.raises(DataError, match="obs_names: expected 3 names of columns, got"):
        make_policy(metadata={"obs_names": names})


def network(kind, rng):
    def net(*sizes, norm=False):
        made = []
        for i, (fan_in, fan_out) in enumerate(zip(sizes[:-1], sizes[1:], strict=True)):
            layer = {"w": rng.normal(size=(fan_in, fan_out)), "b": rng.normal(size=fan_out)}
            if norm and i < len(sizes) - 2:
                layer["norm"] = {k: rng.normal(size=fan_out) for k in ("scale", "offset")}
            made.append(layer)
        return made

    if kind == "td7":
        return {"encoder": net(3, 6, 5), "linear": net(3, 4), "mlp": net(9, 6, 2)}
    if kind == "bcq":
        return {"q": net(3, 8, 2), "behaviour": net(3, 4, 2), "threshold": np.full(1, 0.3)}
    return net(3, 8, 2, norm=kind == "tanh")


@pytest.mark.parametrize("kind", ["tanh", "clip", "td7", "softmax", "greedy", "bcq"])
def test_columns_in_another_order_give_the_same_actions(kind):
    rng = np.random.default_rng(3)
    codes = ("off", "on") if kind in ("softmax", "greedy", "bcq") else None
    scaling = {"mean": rng.normal(size=3), "scale": rng.uniform(1, 2, 3)}
    scaling |= {} if codes else {"low": [-3, -1], "high": [1, 7]}
    policy = Policy.of(kind, network(kind, rng), **scaling, codes=codes, metadata=NAMED)
    other = policy.for_columns(("heat", "flow", "head"), ("valve", "speed"))
    here = OBS[:, [2, 0, 1]]
    if codes:
        np.testing.assert_allclose(other.probabilities(here), policy.probabilities(OBS), atol=1e-6)
        assert other.codes == codes
    else:
        np.testing.assert_allclose(other.act(here), policy.act(OBS)[:, [1, 0]], atol=1e-5)
        assert other.action_names == ("valve", "speed")
    assert other.obs_names == ("heat", "flow", "head")
    assert policy.for_columns(policy.obs_names, policy.action_names) is policy
    assert policy.for_columns((), ()) is policy  # nothing is known of the data


def test_other_columns_are_refused_with_the_repair():
    named = make_policy(metadata=NAMED)
    expected = (
        "obs: expected the columns that the policy was trained on (flow, head, heat), got flow, "
        "head, rain, without heat and with rain; name the same columns with --obs (obs=), or "
        "rename those of the log"
    )
    with pytest.raises(DataError) as caught:
        named.for_columns(("flow", "head", "rain"))
    assert str(caught.value) == expected
    with pytest.raises(DataError, match="^action: expected .* without valve"):
        named.for_columns((), ("speed",))
    assert make_policy().for_columns(("a", "b", "c")).obs_names == ()  # of an older file
