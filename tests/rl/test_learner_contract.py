"""What every learner promises the trainer, for all of them.

One compiled program a learner serves all tests of it: several lanes make two cycles of updates that
differ in what a test asks for.
"""

import sys
from pathlib import Path
from typing import NamedTuple

import jax
import jax.numpy as jnp
import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from puorl.nn import mlp
from puorl.nn.numpy_mlp import KINDS
from puorl.rl import bc, cql, learner, rebrac, td3_bc, td7
from puorl.rl.learner import Batch, critic_mean, policy_mean
from puorl.rl.policy import Policy

sys.path.insert(0, str(Path(__file__).parent))
from reference_nets import random_rows
from tiny_runs import SETTINGS, small

SIZES = learner.Sizes(obs_dim=3, act_dim=2, num_rows=20)
CYCLES = 2
LANES = ("plain", "wild", "again", "half", "half critic", "other")
METRICS_THAT_DO_NOT_HALVE = {
    # Divided by the mean size of Q, which halves as well.
    "td3_bc": {"actor_loss"},
    "rebrac": {"actor_loss"},
    # Behaviour cloning is multiplied with that size: a quarter is left of it.
    "td7": {"actor_loss"},
    "cql": {"entropy_weight"},
}


class Updates(NamedTuple):
    """What two cycles of updates of all lanes left; leaves of ``cycles`` are by lane."""

    learner: learner.Learner
    fresh: object
    cycles: list
    """(state, metrics by phase) after every cycle."""
    repeated: tuple
    """The first cycle once more."""
    alone: tuple
    """The first cycle of the last lane, without vmap."""


@pytest.fixture(scope="module", params=[*learner.LEARNERS, *learner.DISCRETE_LEARNERS])
def updates(request):
    made = small(request.param)
    size = made.config.batch_size

    def cycle(state, batches, noises):
        metrics = []
        for phase in range(made.cycle):
            batch, noise = jax.tree.map(lambda x, phase=phase: x[phase], (batches, noises))
            state, measured = made.update(state, batch, noise, phase)
            metrics.append(measured)
        return state, tuple(metrics)

    @jax.jit
    def draw(key):
        keys = jax.random.split(key, CYCLES * made.cycle)
        noise = jax.vmap(lambda one: made.noise(one, size, SIZES.act_dim))(keys)
        return made.init(key, SIZES), noise

    @jax.jit
    def program(state, batches, noises):
        last = jax.tree.map(lambda x: x[-1], (state, batches, noises))
        return jax.vmap(cycle)(state, batches, noises), cycle(*last)

    one, noise = draw(jax.random.key(3))
    state = jax.tree.map(lambda x: jnp.stack([x] * len(LANES)), one)
    rng = np.random.default_rng(5)
    done, inputs = [], []
    for number in range(CYCLES):
        batches = [lane_rows(rng, size) for _ in range(made.cycle)]
        batches = jax.tree.map(lambda *xs: jnp.stack(xs, axis=1), *batches)
        here = jax.tree.map(lambda x, n=number: x[n * made.cycle : (n + 1) * made.cycle], noise)
        here = jax.tree.map(lambda x: jnp.stack([x] * len(LANES)), here)
        inputs.append((state, batches, here))
        after, alone = program(*inputs[-1])
        done.append((after, alone))
        state = after[0]
    repeated = program(*inputs[0])[0]
    return Updates(made, one, [after for after, _ in done], repeated, done[0][1])


def lane_rows(rng, size):
    """A batch for each of `LANES`."""
    plain = random_rows(rng, size, SIZES.obs_dim, SIZES.act_dim)
    lost = plain["keep"] == 0
    assert 0 < lost.sum() < size
    wild = {name: array.copy() for name, array in plain.items()}
    for name in ("obs", "reward", "next_obs"):
        wild[name][lost] = 1e3 * rng.normal(size=wild[name][lost].shape)
    for name in ("action", "next_action", "weight", "critic_weight"):
        wild[name][lost] = rng.uniform(-1, 1, wild[name][lost].shape)
    wild["terminal"][lost] = 1 - wild["terminal"][lost]
    wild["position"][lost] = SIZES.num_rows - 1
    other = random_rows(rng, size, SIZES.obs_dim, SIZES.act_dim)
    lanes = {
        "plain": plain,
        "wild": wild,
        "again": plain,
        "half": plain | {"weight": plain["weight"] / 2},
        "half critic": plain | {"critic_weight": plain["critic_weight"] / 2},
        "other": other | {"keep": np.ones(size, np.float32)},
    }
    rows = [Batch(**lanes[name]) for name in LANES]
    return jax.tree.map(lambda *xs: jnp.stack(xs), *rows)


def lane_of(tree, name):
    return jax.tree.map(lambda x: np.asarray(x[LANES.index(name)]), tree)


def assert_close(ours, expected, tolerance):
    """Leaf by leaf, as far as the norm of the difference goes."""
    assert jax.tree.structure(ours) == jax.tree.structure(expected)
    for a, b in zip(jax.tree.leaves(ours), jax.tree.leaves(expected), strict=True):
        a, b = np.asarray(a, np.float64), np.asarray(b, np.float64)
        equal = a == b  # infinities of a range that has seen nothing
        apart = np.linalg.norm(np.where(equal, 0, a) - np.where(equal, 0, b))
        assert apart <= tolerance * max(1.0, np.linalg.norm(np.where(np.isinf(b), 0, b)))


def test_a_state_keeps_its_tree_shapes_and_dtypes(updates):
    for state, _ in updates.cycles:
        one = lane_of(state, "plain")
        assert jax.tree.structure(one) == jax.tree.structure(updates.fresh)
        for leaf, first in zip(jax.tree.leaves(one), jax.tree.leaves(updates.fresh), strict=True):
            assert (leaf.shape, leaf.dtype) == (first.shape, first.dtype)
            assert leaf.dtype in (np.float32, np.int32)


def test_all_is_finite_and_something_was_learnt(updates):
    for state, metrics in updates.cycles:
        for leaf in jax.tree.leaves((state, metrics)):
            assert np.isfinite(leaf).all()
    before = jax.tree.leaves(updates.learner.actor(updates.fresh))
    after = jax.tree.leaves(updates.learner.actor(lane_of(updates.cycles[-1][0], "plain")))
    assert any((a != np.asarray(b)).any() for a, b in zip(after, before, strict=True))


def test_metrics_are_scalars_by_name_and_a_critic_tells_its_values(updates):
    names = set().union(*updates.cycles[0][1])
    for measured in updates.cycles[0][1]:
        for value in measured.values():
            assert (value.shape, value.dtype) == ((len(LANES),), np.float32)
    clones = updates.learner.name in ("bc", "discrete_bc")
    assert ("q" in names) == ("critic_loss" in names) == (not clones)
    has_actor = updates.learner.name != "discrete_cql"  # a critic alone
    assert ("actor_loss" in updates.cycles[0][1][-1]) == has_actor


def test_the_same_inputs_give_the_same_bytes(updates):
    for a, b in zip(
        jax.tree.leaves(updates.repeated), jax.tree.leaves(updates.cycles[0]), strict=True
    ):
        np.testing.assert_array_equal(a, b)
    for after in updates.cycles:
        plain, again = lane_of(after, "plain"), lane_of(after, "again")
        jax.tree.map(np.testing.assert_array_equal, plain, again)


def test_rows_that_are_not_kept_have_no_influence(updates):
    for after in updates.cycles:
        assert_close(lane_of(after, "wild"), lane_of(after, "plain"), 1e-6)


def test_half_a_weight_is_half_of_every_mean(updates):
    state_and_metrics = updates.cycles[0]
    spared = METRICS_THAT_DO_NOT_HALVE.get(updates.learner.name, set())
    plain = merged(lane_of(state_and_metrics[1], "plain"))
    half = merged(lane_of(state_and_metrics[1], "half"))
    assert set(plain) > spared
    # Adam's step hardly depends on a loss's scale, so that later phases are comparable, too.
    for name in set(plain) - spared:
        np.testing.assert_allclose(half[name], plain[name] / 2, rtol=2e-3, atol=1e-6, err_msg=name)
    if updates.learner.name in ("td3_bc", "rebrac"):
        penalty = getattr(updates.learner.config, "actor_penalty", 1.0)
        lost = penalty * plain["distance"] / 2
        np.testing.assert_allclose(
            half["actor_loss"], plain["actor_loss"] - lost, rtol=2e-3, atol=1e-6
        )


def test_half_a_critic_weight_is_half_of_the_critics_loss_alone(updates):
    plain, half = (lane_of(updates.cycles[0][1], name)[0] for name in ("plain", "half critic"))
    for name in plain:
        factor = 0.5 if name == "critic_loss" else 1.0
        np.testing.assert_allclose(half[name], factor * plain[name], rtol=1e-5, err_msg=name)


def merged(metrics):
    found = {}
    for measured in metrics:
        found |= measured
    return found


def test_a_lane_in_company_is_the_lane_alone(updates):
    assert_close(lane_of(updates.cycles[0], LANES[-1]), updates.alone, 1e-5)


def test_noise_is_of_the_batch_and_differs_by_key(updates):
    noise, size = updates.learner.noise, updates.learner.config.batch_size
    keys = jax.random.split(jax.random.key(0), 2)
    drawn = jax.vmap(lambda key: noise(key, size, SIZES.act_dim))(keys)
    for leaf in jax.tree.leaves(drawn):
        assert leaf.dtype == jnp.float32
        assert leaf.shape[-2:] == (size, SIZES.act_dim)
        assert not np.array_equal(leaf[0], leaf[1])


def test_the_policy_acts_as_the_learner(updates):
    state = jax.tree.map(jnp.asarray, lane_of(updates.cycles[-1][0], "plain"))
    made = updates.learner
    assert made.actor_kind in KINDS
    obs = np.random.default_rng(0).normal(size=(5, SIZES.obs_dim)).astype(np.float32)
    codes = ("0", "1") if made.discrete else None
    policy = Policy.of(made.actor_kind, made.actor(state), codes=codes)
    assert (policy.obs_dim, policy.act_dim) == (SIZES.obs_dim, SIZES.act_dim)
    if made.discrete:  # compared in test_discrete
        assert set(policy.act(obs)) <= {0, 1}
        return
    expected = np.asarray(OWN_ACTION[made.name](state, jnp.asarray(obs), made.config))
    np.testing.assert_allclose(policy.act(obs), expected, atol=1e-5)


def cql_action(state, obs, config):
    """The policy's sample without noise."""
    rows = {"obs": obs, "next_obs": obs} | dict.fromkeys(set(Batch._fields) - {"obs", "next_obs"})
    noise = jnp.zeros((2, 1, len(obs), SIZES.act_dim), jnp.float32)
    return cql.sample(state.policy.actor, Batch(**rows), noise, config).action[0, 0]


OWN_ACTION = {
    "td3_bc": lambda state, obs, _: td3_bc.act(state.actor, obs),
    "bc": lambda state, obs, _: bc.act(state.actor, obs),
    "rebrac": lambda state, obs, _: rebrac.act(state.actor, obs),
    "iql": lambda state, obs, _: jnp.clip(mlp.apply_mlp(state.policy.mean, obs), -1.0, 1.0),
    "cql": cql_action,
    "td7": lambda state, obs, _: td7.act(state.actor, obs, td7.embed(state.fixed_encoder, obs)),
}


@pytest.mark.parametrize("name", [n for n in SETTINGS if small(n).precompute_targets is not None])
def test_what_is_foreseen_is_what_an_update_would_compute_itself(name):
    made = small(name)
    size, rng = made.config.batch_size, np.random.default_rng(2)
    rows = [random_rows(rng, size, SIZES.obs_dim, SIZES.act_dim) for _ in range(made.cycle)]

    @jax.jit
    def both(key, batches):
        noise = [made.noise(one, size, SIZES.act_dim) for one in jax.random.split(key, made.cycle)]
        together = jax.tree.map(lambda *xs: jnp.concatenate(xs), *batches)
        seen = made.precompute_targets(
            made.init(key, SIZES), together, jax.tree.map(lambda *xs: jnp.concatenate(xs), *noise)
        )
        plain = ahead = made.init(key, SIZES)
        for phase, batch in enumerate(batches):
            share = jax.tree.map(lambda x, i=phase: x[i * size : (i + 1) * size], seen)
            plain, measured = made.update(plain, batch, noise[phase], phase)
            ahead, foreseen = made.update(ahead, batch, noise[phase], phase, share)
        return (plain, measured), (ahead, foreseen), seen

    plain, ahead, seen = both(jax.random.key(1), [Batch(**each) for each in rows])
    assert_close(ahead, plain, 1e-6)
    assert all(len(leaf) == size * made.cycle for leaf in jax.tree.leaves(seen))


def test_every_learner_is_among_the_small_ones():
    assert set(SETTINGS) == {*learner.LEARNERS, *learner.DISCRETE_LEARNERS}
    assert set(OWN_ACTION) == set(learner.LEARNERS)


# ------------------------------------------------------------------------------------------- means


SIZE = 7
ROWS = st.lists(
    st.tuples(
        st.floats(-100, 100, width=32),
        st.booleans(),
        st.floats(0, 1, width=32),
        st.floats(0, 4, width=32),
    ),
    min_size=SIZE,
    max_size=SIZE,
).filter(lambda rows: any(kept for _, kept, _, _ in rows))
MEANS = jax.jit(lambda x, batch: (policy_mean(x, batch), critic_mean(x, batch)))


def batch_of(keep, weight, critic_weight):
    """A batch of which only the columns that means are made of matter."""
    columns = (keep, weight, critic_weight)
    keep, weight, critic_weight = (jnp.asarray(column, jnp.float32) for column in columns)
    none = jnp.zeros((len(keep), 1), jnp.float32)
    flat = none[:, 0]
    position = jnp.arange(len(keep))
    return Batch(none, none, flat, none, flat, none, keep, weight, critic_weight, position)


@given(ROWS)
def test_means_are_sums_of_kept_rows_over_their_number(rows):
    x, keep, weight, critic_weight = (
        np.array(column, np.float64) for column in zip(*rows, strict=True)
    )
    batch = batch_of(keep, weight, critic_weight)
    of_policy, of_critic = MEANS(jnp.asarray(x, jnp.float32), batch)
    rows_kept = keep > 0
    wanted = [
        (weight * x)[rows_kept].sum() / rows_kept.sum(),
        (weight * critic_weight * x)[rows_kept].sum() / rows_kept.sum(),
    ]
    np.testing.assert_allclose([of_policy, of_critic], wanted, rtol=1e-4, atol=1e-4)


def test_weights_do_not_change_what_is_divided_by():
    # A row of weight 0 counts as drawn, one that is not kept does not.
    batch = batch_of(keep=[1, 1, 0], weight=[1, 0, 1], critic_weight=[3, 1, 1])
    x = jnp.array([2.0, 50.0, 70.0])
    of_policy, of_critic = MEANS(x, batch)
    assert float(of_policy) == 1.0
    assert float(of_critic) == 3.0


def test_a_wrong_rank_is_refused():
    batch = batch_of(keep=[1] * 4, weight=[1] * 4, critic_weight=[1] * 4)
    for mean in (policy_mean, critic_mean):
        with pytest.raises(ValueError, match="expected shape"):
            mean(jnp.zeros((4, 1)), batch)
