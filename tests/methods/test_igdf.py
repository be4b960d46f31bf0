import jax
import jax.numpy as jnp
import numpy as np
import pytest

from puorl.data.split import PUSplit
from puorl.methods import igdf
from puorl.methods.base import make
from puorl.methods.igdf import AS_RELEASED, IGDF
from puorl.rl import pool

TINY = {"hidden": (4,), "num_dims": 2, "num_steps": 3, "batch_size": 8}


@pytest.fixture(scope="module")
def tiny(small_split):
    return IGDF(**TINY).prepare(small_split, seed=0)


def auc(score, positive):
    """How often a positive scores above another."""
    rank = np.argsort(np.argsort(score))
    return (rank[positive].mean() - (positive.sum() - 1) / 2) / (~positive).sum()


def test_loss_is_binary_cross_entropy_over_all_pairs():
    rng = np.random.default_rng(0)
    anchor, own, others = rng.normal(size=(5, 3)), rng.normal(size=(5, 3)), rng.normal(size=(4, 3))
    total = 0.0
    for i in range(5):
        candidates = [own[i], *others]
        for j, candidate in enumerate(candidates):
            yes = 1.0 / (1.0 + np.exp(-(anchor[i] @ candidate)))
            total -= np.log(yes if j == 0 else 1.0 - yes)
    found = igdf.contrastive_loss(*(jnp.asarray(a, jnp.float32) for a in (anchor, own, others)))
    assert float(found) == pytest.approx(total / 25, rel=1e-5)


def test_loss_does_not_overflow():
    large = jnp.full((2, 1), 100.0)
    assert float(igdf.contrastive_loss(large, large, -large[:1])) == 0.0
    assert float(igdf.contrastive_loss(large, -large, large[:1])) == 10_000.0


def test_cosine_is_that_of_float64():
    rng = np.random.default_rng(0)
    a, b = rng.normal(size=(20, 3)), rng.normal(size=(20, 3))
    expected = (a * b).sum(axis=1) / np.linalg.norm(a, axis=1) / np.linalg.norm(b, axis=1)
    found = igdf.cosine(jnp.asarray(a, jnp.float32), jnp.asarray(b, jnp.float32))
    np.testing.assert_allclose(found, expected, atol=1e-6)
    ends = igdf.cosine(jnp.array([[3.0, 4.0], [3.0, 4.0], [0.0, 0.0]]), jnp.full((3, 2), 1e3))
    assert float(ends[2]) == 0.0
    same = igdf.cosine(jnp.asarray(a, jnp.float32), jnp.asarray(-7 * a, jnp.float32))
    np.testing.assert_allclose(same, -np.ones(20), atol=1e-6)
    assert float(same.min()) >= -1.0


def test_weights_and_groups(small_split, tiny):
    assert (tiny.groups.num_first, tiny.groups.first_share, tiny.groups.top) == (100, 0.5, 0.75)
    assert tiny.reward is None
    assert np.all(np.abs(tiny.score) <= 1.0)
    assert tiny.score.std() > 0.0
    assert np.all(tiny.critic_weight[:100] == 1.0)
    np.testing.assert_allclose(tiny.critic_weight[100:], np.exp(tiny.score[100:]), rtol=1e-6)
    found = tiny.metadata["unlabelled_score"]
    assert found["min"] == tiny.score[100:].min()
    assert found["max"] == tiny.score[100:].max()
    doubled = IGDF(**TINY, importance=2.0).prepare(small_split, seed=0)
    expected = np.exp(2.0 * tiny.score[100:])
    np.testing.assert_allclose(doubled.critic_weight[100:], expected, rtol=1e-5)


@pytest.mark.parametrize(("xi", "kept"), [(0.25, 32), (0.75, 96), (1.0, 128)])
def test_a_learner_keeps_the_share_xi(small_split, xi, kept):
    chosen = IGDF(**TINY, xi=xi).prepare(small_split, seed=0)
    sets = pool.tables(
        [chosen], batch_size=256, normalise_states=False, scale_rewards=False, next_action=False
    )
    position = pool.draw(jax.random.key(0), sets, jnp.int32(0), 256)
    assert int(jnp.sum(position < 100)) == 128
    score = jnp.asarray(chosen.score)[position]
    sizes = (small_split.pool.obs.shape[1], small_split.pool.action.shape[1])
    rows = pool.Pool(jnp.zeros((len(small_split.pool), 2 * sum(sizes) + 1), jnp.float32))
    packed = pool.gather(rows, sets, jnp.int32(0), position)
    keep = np.asarray(pool.unpack(packed, position, *sizes).keep) == 1.0
    assert (keep[:128].sum(), keep[128:].sum()) == (128, kept)
    drawn = np.asarray(score)[128:]
    if kept < 128:
        assert drawn[keep[128:]].min() >= drawn[~keep[128:]].max()


def test_as_released_one_weight_scales_the_whole_loss(small_split, tiny):
    assert make("igdf", **AS_RELEASED) == IGDF(batch_size=128, weighting="batch")
    chosen = IGDF(**TINY, weighting="batch").prepare(small_split, seed=0)
    assert np.array_equal(chosen.score, tiny.score)
    [weight] = np.unique(chosen.critic_weight)
    best = np.sort(tiny.score[100:])[::-1][:675]
    expected = (128 + 96 * np.exp(best, dtype=np.float64).mean()) / 224
    assert weight == pytest.approx(expected, rel=1e-3)


def test_seed_decides(small_split, tiny):
    again, other = (IGDF(**TINY).prepare(small_split, seed=s).score for s in (0, 1))
    assert tiny.score.tobytes() == again.tobytes()
    assert tiny.score.tobytes() != other.tobytes()


def test_unknown_next_states_get_the_mean_score(open_split):
    split = PUSplit.from_mask(open_split, np.arange(1_000) < 100)
    chosen = IGDF(**TINY).prepare(split, seed=0)
    unknown = ~open_split.rows.next_known
    mean = chosen.score[100:][~unknown[100:]].mean()
    np.testing.assert_allclose(chosen.score[unknown], mean, rtol=1e-5)


def test_scores_tell_the_targets_next_states_from_the_sources(worlds):
    split = worlds.split(shift=2.0, noise=0.1)
    method = IGDF(hidden=(32, 32), num_dims=16, num_steps=1_500, batch_size=32, learning_rate=3e-3)
    chosen = method.prepare(split, seed=0)
    of_target = split.reveal("scoring")[split.unlabelled] == 0
    assert auc(chosen.score[len(split.labelled) :], of_target) > 0.95
    means = (chosen.metadata[f"{group}_score"]["mean"] for group in ("labelled", "unlabelled"))
    labelled, unlabelled = means
    assert labelled > unlabelled + 0.2
