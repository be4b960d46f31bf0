from dataclasses import replace

import jax
import jax.numpy as jnp
import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from puorl.core.errors import ConfigError
from puorl.pu import learners
from puorl.pu.alpha import bbe
from puorl.pu.config import NetworkConfig
from puorl.pu.learners import LEARNERS, row_threshold

NETWORK = NetworkConfig(hidden=(16, 16), batch_size=64)
TEDN = LEARNERS["tedn"]
RECIPES = list(LEARNERS.values())


@pytest.fixture(scope="module")
def blobs():
    """P and U of two Gaussians: positions 0-999 are P, the rest is U, one third of it target."""
    rng = np.random.default_rng(0)
    target, other = rng.normal(2, 1, (2_000, 3)), rng.normal(-2, 1, (2_000, 3))
    x = np.concatenate([target, other]).astype(np.float32)
    return jnp.asarray(x), np.arange(1_000), 1_000 + rng.permutation(3_000)


def rows(p, u, lanes):
    parts = (p[:700], u[:2_000], p[700:], u[2_000:])
    return learners.Rows(*[jnp.tile(jnp.asarray(a, jnp.int32), (lanes, 1)) for a in parts])


def run(x, rows, recipe, seeds, num_epochs=5):
    keys = jnp.stack([jax.random.key(s) for s in seeds])
    lanes = learners.init(NETWORK, x.shape[1], keys)
    for epoch in range(num_epochs):
        lanes, metrics = learners.run_epoch(
            lanes, x, rows, recipe=recipe, network=NETWORK, warm_up=epoch < 3
        )
    return lanes, metrics


@pytest.mark.parametrize("recipe", RECIPES, ids=lambda r: r.name)
def test_contract_every_learner_separates_what_can_be_separated(blobs, recipe):
    x, p, u = blobs
    lanes, metrics = run(x, rows(p, u, 1), recipe, [0], num_epochs=15)
    logit = learners.score_rows(lanes.params, np.asarray(x))[0]
    is_target = np.arange(4_000) < 2_000
    threshold = row_threshold(recipe.name, 1 / 3)
    assert ((logit > threshold) == is_target).mean() > 0.97
    assert np.isfinite(metrics["loss"]).all()
    assert float(lanes.alpha[0]) == pytest.approx(1 / 3, abs=0.06)


@pytest.mark.parametrize("recipe", RECIPES[:2], ids=lambda r: r.name)
def test_a_lane_does_not_feel_its_company(blobs, recipe):
    x, p, u = blobs
    one, _ = run(x, rows(p, u, 2), recipe, [0, 1])
    two, _ = run(x, rows(p, u, 2), recipe, [0, 2])
    first = [jax.tree.map(lambda a: np.asarray(a[0]), lanes.params) for lanes in (one, two)]
    jax.tree.map(np.testing.assert_array_equal, *first)
    assert not np.array_equal(one.params[0].w[1], two.params[0].w[1])


def test_an_epoch_is_compiled_once(blobs):
    x, p, u = blobs
    recipe = replace(TEDN, bbe_constant=3.0)  # settings that no other test has compiled
    before = learners.run_epoch._cache_size()
    run(x, rows(p, u, 1), recipe, [0], num_epochs=6)
    assert learners.run_epoch._cache_size() - before == 2  # warm-up and main


def test_ranking_a_sample_or_everything_agree(blobs):
    x, p, u = blobs
    exact, _ = run(x, rows(p, u, 1), replace(TEDN, rank_sample=None, alpha_sample=None), [0], 20)
    sampled, _ = run(x, rows(p, u, 1), replace(TEDN, rank_sample=500, alpha_sample=500), [0], 20)
    decided = [learners.score_rows(r.params, np.asarray(x))[0] > 0 for r in (exact, sampled)]
    assert (decided[0] == decided[1]).mean() > 0.97


def share_kept(batch):
    """A loss that reports which part of U takes part, and moves no weight."""
    return jnp.mean(batch.weight_u) + 0.0 * batch.logit_p.sum()


def test_rows_are_rejected_by_the_latest_weights_not_by_their_mean(blobs):
    x, p, u = blobs
    network = replace(NETWORK, averaging=0.99)
    recipe = replace(TEDN, main=share_kept, rank_sample=None, alpha_sample=None)
    lanes = learners.init(network, x.shape[1], jnp.stack([jax.random.key(0)]))
    lanes = lanes._replace(average=jax.tree.map(lambda leaf: 3.0 * leaf, lanes.params))
    logit, of_mean = (
        learners.score_rows(params, np.asarray(x))[0][u[:2_000]]
        for params in (lanes.params, lanes.average)
    )
    threshold = np.sort(logit)[1_000]
    assert (of_mean < threshold).mean() < 0.45 or (of_mean < threshold).mean() > 0.55
    _, metrics = learners.run_epoch(
        lanes, x, rows(p, u, 1), recipe=recipe, network=network, warm_up=False
    )
    assert metrics["threshold"][0] == pytest.approx(threshold, rel=1e-5)
    assert metrics["loss"][0] == pytest.approx(0.5, abs=0.04)  # alpha begins at one half


def test_blocks_do_not_change_scores(blobs, monkeypatch):
    x, p, u = blobs
    lanes, _ = run(x, rows(p, u, 1), TEDN, [0], 4)
    whole = learners.score_rows(lanes.params, np.asarray(x))
    monkeypatch.setattr(learners, "BLOCK", 300)
    np.testing.assert_allclose(learners.score_rows(lanes.params, np.asarray(x)), whole, rtol=1e-5)


def test_no_epochs_is_an_error():
    with pytest.raises(ConfigError, match="at least one of warm-up"):
        replace(TEDN, num_warm_up=0)


@settings(max_examples=60)
@given(
    st.integers(0, 2**31),
    st.sampled_from([(3, 4), (40, 80)]),  # every size is compiled anew
    st.sampled_from([1.0, 4.0]),
    st.booleans(),
)
def test_compiled_bbe_is_bbe(seed, sizes, k, ties):
    num_p, num_u = sizes
    rng = np.random.default_rng(seed)
    p = rng.normal(1, 1, num_p).astype(np.float32)
    u = rng.normal(0, 1, num_u).astype(np.float32)
    if ties:
        p, u = p.round(1), u.round(1)
    compiled = float(learners.best_bin(jnp.asarray(p), jnp.asarray(u), k=k))
    assert compiled == pytest.approx(bbe(p, u, k=k).value, abs=1e-5)


@settings(max_examples=60)
@given(st.integers(0, 2**31), st.sampled_from([1, 2, 50]), st.floats(0, 0.999))
def test_exactly_the_fraction_is_rejected(seed, n, fraction):
    score = np.random.default_rng(seed).permutation(n).astype(np.float32)
    threshold = float(learners.upper_quantile(jnp.asarray(score), jnp.float32(fraction)))
    assert (score >= threshold).sum() == int(np.float32(fraction) * np.float32(n))


def test_nothing_is_rejected_at_fraction_zero():
    assert learners.upper_quantile(jnp.arange(4.0), jnp.float32(0)) == np.inf
