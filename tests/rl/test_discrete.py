"""Learners of discrete actions: against float64, on a chain with known values, and end to end."""

import dataclasses
import json
import subprocess
import sys
from pathlib import Path

import jax
import jax.numpy as jnp
import numpy as np
import pytest

import puorl
from puorl.core.errors import ConfigError, DataError
from puorl.data.dataset import Dataset
from puorl.data.training_files import as_training_set
from puorl.nn import mlp
from puorl.nn.numpy_mlp import NumpyPolicy
from puorl.rl import discrete_bc, discrete_bcq, discrete_cql, discrete_iql, learner, trainer
from puorl.rl.learner import DISCRETE_LEARNERS, Batch, form_of
from puorl.rl.policy import Policy
from puorl.rl.pool import tables
from puorl.rl.run import RunSpec, run

sys.path.insert(0, str(Path(__file__).parent))
import reference_discrete as reference
import reference_nets as nets

SIZES = learner.Sizes(obs_dim=3, act_dim=3, num_rows=9)
SMALL = {"hidden": (5, 4), "gamma": 0.9, "tau": 0.1, "critic_learning_rate": 0.03}
NUM_STEPS = 3
LEARNERS = {
    "bc": (discrete_bc.Config(hidden=(5, 4), actor_learning_rate=0.02), reference.update_bc),
    "iql": (
        discrete_iql.Config(**SMALL, beta=2.0, max_weight=1.5, actor_learning_rate=0.02),
        lambda *arguments: reference.update_iql(*arguments, NUM_STEPS),
    ),
    "cql": (discrete_cql.Config(**SMALL, conservative_weight=0.7), reference.update_cql),
    "bcq": (discrete_bcq.Config(**SMALL, threshold=0.6), reference.update_bcq),
}


def one_hot_rows(rng, num_rows=SIZES.num_rows):
    """Rows of a batch whose actions are codes, as the pool packs them."""
    rows = nets.random_rows(rng, num_rows, SIZES.obs_dim, SIZES.act_dim)
    drawn = rng.integers(SIZES.act_dim, size=num_rows)
    rows["action"] = np.eye(SIZES.act_dim, dtype=np.float32)[drawn]
    return Batch(**rows)


@pytest.mark.parametrize("name", LEARNERS)
def test_updates_agree_with_float64(name):
    config, expect = LEARNERS[name]
    rng = np.random.default_rng(3)
    made = learner.import_module(f"puorl.rl.discrete_{name}").make(config, num_steps=NUM_STEPS)
    fresh = made.init(jax.random.key(0), SIZES)
    stirred = {n: nets.stirred(p, rng) for n, p in fresh._asdict().items() if "moments" not in n}
    state = fresh._replace(**stirred)
    expected = nets.to_float64(state)
    update = jax.jit(made.update, static_argnums=3)
    for _ in range(4):
        batch = one_hot_rows(rng)
        state, metrics = update(state, batch, (), 0)
        expected, wanted = expect(expected, nets.to_float64(batch), config)
        nets.assert_trees_agree(state, expected)
        nets.assert_trees_agree(metrics, wanted)


def test_the_threshold_of_bcq_is_at_work_in_that_comparison():
    rng = np.random.default_rng(3)
    config = LEARNERS["bcq"][0]
    networks = [
        nets.to_float64(
            nets.stirred(discrete_bcq.init_network(jax.random.key(i), SIZES, (5, 4)), rng)
        )
        for i in (0, 1)
    ]
    found = reference.allowed(*networks, one_hot_rows(rng, 200).obs.astype(float), config)
    ours = discrete_bcq.allowed_values(
        *jax.tree.map(jnp.asarray, networks), jnp.asarray(found[:, :3]), config
    )
    assert 0.1 < np.isinf(found).mean() < 0.6
    assert np.isfinite(found).any(axis=1).all()
    assert ours.shape == found.shape


# --------------------------------------------------------------------- a known problem


def chain(copies=8):
    """Two states; in the first, code 2 leads on and the others end it, in the second code 1 pays.

    Code 0 is never taken in the second state: no learner may prefer it there.
    """
    obs, action, reward, after, terminal = [], [], [], [], []
    for state, code, gain, following, ends in (
        (0, 0, 0.5, 0, True),
        (0, 1, 0.0, 0, True),
        (0, 2, 0.0, 1, False),
        (1, 1, 1.0, 1, True),
        (1, 2, -1.0, 1, True),
    ):
        obs.append(np.eye(2)[state])
        action.append(code)
        reward.append(gain)
        after.append(np.eye(2)[following])
        terminal.append(ends)

    def repeat(rows):
        return np.repeat(np.array(rows), copies, axis=0)

    return Dataset.from_arrays(
        obs=repeat(obs).astype(np.float32),
        action=repeat(action),
        reward=repeat(reward),
        next_obs=repeat(after).astype(np.float32),
        terminal=repeat(terminal),
        episode=np.arange(5 * copies),
        discrete_actions=["0", "1", "2"],
    )


SETTINGS = {"hidden": (32, 32), "batch_size": 64}
FAST = {"critic_learning_rate": 3e-3, "tau": 0.05, "gamma": 0.9}
CHAIN = {
    "iql": FAST | {"value_learning_rate": 3e-3, "actor_learning_rate": 3e-3, "expectile": 0.9},
    "cql": FAST | {"conservative_weight": 0.05},
    "bcq": FAST | {"actor_learning_rate": 3e-3},
}


@pytest.mark.parametrize("name", CHAIN)
def test_the_chain_is_solved(name):
    policy = puorl.train(name, chain(), steps=1500, **SETTINGS, **CHAIN[name])
    assert policy.act(np.eye(2)).tolist() == [2, 1]
    assert policy.act(np.eye(2)[0]) == 2
    assert policy.metadata["learner"] == f"discrete_{name}"
    if name in ("iql", "bcq"):  # they never leave the data
        assert policy.probabilities(np.eye(2))[1, 0] < 0.05


def test_cloning_has_the_probabilities_of_the_data():
    policy = puorl.train("bc", chain(), steps=800, **SETTINGS)
    expected = [[1 / 3, 1 / 3, 1 / 3], [0, 1 / 2, 1 / 2]]
    np.testing.assert_allclose(policy.probabilities(np.eye(2)), expected, atol=0.03)
    rng = np.random.default_rng(0)
    drawn = policy.act(np.repeat(np.eye(2)[:1], 3000, axis=0), rng=rng)
    np.testing.assert_allclose(np.bincount(drawn) / 3000, expected[0], atol=0.05)


def test_lanes_in_company_are_lanes_alone():
    several = puorl.train_many("bcq", chain(), 2, steps=40, hidden=(8,), batch_size=16)
    alone = puorl.train("bcq", chain(), steps=40, seed=1, hidden=(8,), batch_size=16)
    for name, array in alone.arrays.items():
        np.testing.assert_allclose(several.policies["seed-1"].arrays[name], array, atol=1e-5)


# -------------------------------------------------------------------- forms and refusals


def test_the_form_follows_the_actions():
    codes = ("0", "1")
    assert [form_of(n, codes) for n in ("bc", "iql", "cql", "bcq")] == list(DISCRETE_LEARNERS)
    assert form_of("discrete_iql", codes) == "discrete_iql"
    assert form_of("iql", None) == "iql"
    for name in ("td3_bc", "rebrac", "td7"):
        with pytest.raises(
            ConfigError, match=f"{name}: expected continuous actions, got 2 codes; use bcq"
        ):
            form_of(name, codes)
        with pytest.raises(ConfigError, match="iql, cql or bc$"):  # texts are no amounts
            form_of(name, ("open", "shut"))
    for name in ("bcq", "discrete_cql"):
        with pytest.raises(ConfigError, match="expected discrete actions, got continuous ones"):
            form_of(name, None)
    with pytest.raises(ConfigError, match="expected one of td3_bc, iql, .*, bcq, got 'dqn'"):
        form_of("dqn", None)


def test_a_learner_of_the_other_kind_is_refused_before_it_trains():
    from puorl.data.training_set import TrainingSet

    data = chain()
    amounts = Dataset.from_arrays(
        obs=data.obs, next_obs=data.next_obs, action=data.action, reward=data.reward
    )
    lanes = [trainer.Lane(0, 0)]
    for name, rows, form in (("iql", data, "discrete_iql"), ("discrete_iql", amounts, "")):
        made = learner.make(name, num_steps=10)
        with pytest.raises(ConfigError, match=f"{name}: expected .*{form}"):
            trainer.prepare(made, [TrainingSet.whole(rows)], lanes)
    with pytest.raises(ConfigError, match="td3_bc: expected continuous actions"):
        puorl.train("td3_bc", data, steps=10)


def test_wrong_settings():
    with pytest.raises(ConfigError, match="threshold: expected a number from 0 to 1"):
        puorl.train("bcq", chain(), steps=10, threshold=2.0)
    with pytest.raises(ConfigError, match="expected settings among .*conservative_weight"):
        puorl.train("cql", chain(), steps=10, num_sampled=3)


# ---------------------------------------------------------------------------- policies


def layers(rng, *widths, prefix=""):
    return {
        f"{prefix}{i}.{kind}": rng.normal(size=shape).astype(np.float32)
        for i, (a, b) in enumerate(zip(widths[:-1], widths[1:], strict=True))
        for kind, shape in (("w", (a, b)), ("b", (b,)))
    }


def policy_of(kind, codes=("a", "b", "c")):
    rng = np.random.default_rng(1)
    arrays = layers(rng, 4, 6, len(codes))
    if kind == "bcq":
        arrays = layers(rng, 4, 6, 3, prefix="q.") | layers(rng, 4, 5, 3, prefix="behaviour.")
        arrays["threshold"] = np.array([0.4], np.float32)
    flat = np.zeros(len(codes))
    return Policy(kind, arrays, np.zeros(4), np.ones(4), flat, flat + 1, {}, codes=codes)


@pytest.mark.parametrize("kind", ["softmax", "greedy", "bcq"])
def test_a_policy_survives_its_file_and_needs_no_jax(tmp_path, kind):
    policy, obs = policy_of(kind), np.random.default_rng(0).normal(size=(50, 4))
    chances = policy.probabilities(obs)
    assert chances.shape == (50, 3)
    np.testing.assert_allclose(chances.sum(axis=1), 1, rtol=1e-5)
    assert policy.act(obs).tolist() == [("a", "b", "c")[i] for i in chances.argmax(axis=1)]
    assert policy.to_numpy().act(obs).tolist() == policy.act(obs).tolist()
    path = tmp_path / "policy.safetensors"
    policy.save(path)
    back = Policy.load(path)
    assert back.codes == policy.codes
    assert back.fingerprint == policy.fingerprint
    assert back.probabilities(obs).tobytes() == chances.tobytes()
    np.save(tmp_path / "obs.npy", obs)
    program = (
        "import sys, json, numpy as np; from puorl.rl.policy import Policy; "
        f"p = Policy.load({str(path)!r}); x = np.load({str(tmp_path / 'obs.npy')!r}); "
        "print(json.dumps(p.act(x).tolist())); assert 'jax' not in sys.modules"
    )
    shown = subprocess.run([sys.executable, "-c", program], capture_output=True, check=True)
    assert json.loads(shown.stdout) == policy.act(obs).tolist()


def test_a_row_has_the_same_bytes_in_any_company():
    policy, obs = policy_of("softmax"), np.random.default_rng(0).normal(size=(33, 4))
    whole = policy.probabilities(obs)
    for i in (0, 7, 32):
        assert policy.probabilities(obs[i]).tobytes() == whole[i].tobytes()


def test_codes_are_part_of_what_a_policy_is():
    one, other = policy_of("softmax"), policy_of("softmax", ("c", "b", "a"))
    assert one.fingerprint != other.fingerprint
    assert policy_of("softmax", ("0", "1", "7")).act(np.zeros(4)).dtype == np.int64
    assert "action 3 codes" in repr(one)
    with pytest.raises(DataError, match="codes: expected codes for a policy of the kind greedy"):
        NumpyPolicy("greedy", one.arrays, one.mean, one.scale, one.low, one.high)
    with pytest.raises(DataError, match="codes: expected no codes for a policy of the kind tanh"):
        Policy("tanh", one.arrays, one.mean, one.scale, one.low, one.high, {}, codes=one.codes)
    with pytest.raises(DataError, match="codes: expected 3 texts"):
        dataclasses.replace(policy_of("greedy"), codes=("a",))
    plain = Policy.of("tanh", [{"w": np.zeros((3, 2)), "b": np.ones(2)}])
    with pytest.raises(DataError, match="probabilities: expected a policy of discrete actions"):
        plain.probabilities(np.zeros(3))
    with pytest.raises(DataError, match="act: expected no rng"):
        plain.act(np.zeros(3), rng=np.random.default_rng(0))


@pytest.mark.parametrize("name", DISCRETE_LEARNERS)
def test_the_policy_acts_as_the_learner(name):
    made = learner.make(name, num_steps=10, hidden=(6,))
    state = made.init(jax.random.key(2), SIZES)
    obs = np.random.default_rng(0).normal(size=(40, SIZES.obs_dim)).astype(np.float32)
    policy = Policy.of(made.actor_kind, made.actor(state), codes=("0", "1", "2"))
    if name == "discrete_bcq":
        y = discrete_bcq.allowed_values(state.critic, state.behaviour, obs, made.config)
    else:
        y = mlp.apply_mlp(made.actor(state), obs)
    assert policy.act(obs).tolist() == np.asarray(y).argmax(axis=1).tolist()
    if made.actor_kind == "softmax":
        np.testing.assert_allclose(policy.probabilities(obs), jax.nn.softmax(y), atol=1e-6)


def test_rows_without_rewards_are_refused_in_words():
    from puorl.data.training_set import TrainingSet

    data = chain()
    bare = Dataset.from_arrays(
        obs=data.obs, next_obs=data.next_obs, action=data.action, discrete_actions=data.action_codes
    )
    with pytest.raises(DataError, match="expected rows with a reward"):
        tables(
            [TrainingSet.whole(bare)],
            batch_size=4,
            normalise_states=False,
            scale_rewards=False,
            next_action=False,
        )


class Stop(Exception):
    """Ends a run after a checkpoint."""


@pytest.mark.parametrize("name", ["discrete_iql", "discrete_bcq"])
def test_a_run_that_was_stopped_ends_in_the_same_bytes(tmp_path, name):
    data = as_training_set(chain())
    made = learner.make(name, num_steps=20, hidden=(4,), batch_size=8)
    spec = RunSpec(made, {"data": data}, {"data": range(2)}, 20, 5)

    def stop(progress, lanes):
        if progress.step == 10:
            raise Stop

    run(tmp_path / "whole", spec)
    with pytest.raises(Stop):
        run(tmp_path / "broken", spec, on_checkpoint=stop)
    run(tmp_path / "broken", spec)
    for file in ("policies/seed-0.safetensors", "policies/seed-1.safetensors", "metrics.jsonl"):
        whole, broken = ((tmp_path / place / file).read_bytes() for place in ("whole", "broken"))
        assert whole == broken


def test_codes_are_cloned_without_rewards():
    rows = chain()
    data = Dataset.from_arrays(obs=rows.obs, next_obs=rows.next_obs, action=rows.action_index)
    assert data.reward is None
    policy = puorl.train("bc", data, steps=8, hidden=(8,), batch_size=16)
    assert policy.probabilities(data.obs[:3]).shape == (3, 3)
    with pytest.raises(DataError, match="reward"):
        puorl.train("bcq", data, steps=8, hidden=(8,), batch_size=16)
