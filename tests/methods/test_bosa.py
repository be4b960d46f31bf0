import numpy as np
import pytest

from puorl.data.split import PUSplit
from puorl.methods import make
from puorl.methods.bosa import BOSA, log_density
from puorl.methods.dynamics import fit, hold_out

SMALL = {"hidden": (32,), "num_members": 2, "num_steps": 400, "batch_size": 128}


@pytest.fixture(scope="module")
def model():
    rng = np.random.default_rng(0)
    x = rng.normal(size=(600, 2)).astype(np.float32)
    y = np.stack([x[:, 0] - x[:, 1], 3 * x[:, 0]], axis=1) + 0.1 * rng.normal(size=(600, 2))
    made = fit(
        x, y, np.arange(600) % 5 == 0, seed=0, purpose="test", num_members=3, hidden=(32,),
        num_steps=500, batch_size=64, learning_rate=1e-2,
    )  # fmt: skip
    return made, x, y


def test_an_ensemble_learns_and_knows_its_error(model):
    made, x, y = model
    mean, deviation = made.predict(x)
    held = np.arange(600) % 5 == 0
    np.testing.assert_allclose(made.error, np.square(mean - y)[held].mean(axis=0), rtol=1e-4)
    assert (made.error < 0.03).all()  # the noise has 0.01
    far = made.predict(x[:50] * 20)[1]
    assert far.mean() > 5 * deviation.mean()


def test_what_holds_nowhere_else_is_not_learnt():
    rng = np.random.default_rng(0)
    x, y = rng.normal(size=(60, 3)).astype(np.float32), rng.normal(size=(60, 1))
    made = fit(
        x, y, hold_out(None, 60, 0, "test"), seed=0, purpose="test", num_members=2, hidden=(64,),
        num_steps=2_000, batch_size=48, learning_rate=1e-2, start_at_zero=True,
    )  # fmt: skip
    assert np.abs(made.predict(x)[0]).mean() < 0.3 * np.abs(y).mean()


def test_whole_episodes_are_held_out():
    episode = np.repeat(np.arange(10), 7)
    held = hold_out(episode, 70, 0, "test")
    assert held.sum() == 14
    assert all(len(set(held[episode == e])) == 1 for e in range(10))
    assert hold_out(None, 70, 0, "test").sum() == 14
    assert not np.array_equal(held, hold_out(episode, 70, 1, "test"))


def test_density_is_that_of_a_loop(model):
    made, x, y = model
    mean, deviation = made.predict(x)
    found = log_density(made, x, y)
    for i in (0, 7, 99):
        total = 0.0
        for j in range(2):
            variance = made.error[j] + float(deviation[i, j]) ** 2
            total += -0.5 * ((y[i, j] - mean[i, j]) ** 2 / variance + np.log(variance))
        assert found[i] == pytest.approx(total / 2, rel=1e-5)


def test_rows_without_support_hardly_count_and_gradients_are_bosas(small_split):
    method = make("oracle_bosa", **SMALL)
    chosen = method.prepare(small_split, seed=0)
    first, c = chosen.groups.num_first, method.conservatism
    assert (small_split.reveal("scoring")[chosen.rows[:first]] == 0).all()
    before = small_split.pool.reward[chosen.rows]
    np.testing.assert_array_equal(chosen.reward[:first], before[:first])
    assert (chosen.critic_weight[:first] == 1.0).all()
    of_source = chosen.critic_weight[first:]
    assert set(np.unique(of_source)) <= {np.float32(0.01), np.float32(1.0)}
    assert (of_source < 0.5).mean() > 0.95  # the other domain is seven deviations away
    assert chosen.metadata["supported_fraction"] == pytest.approx((of_source == 1).mean())
    # At any value q, whatever follows: 2 w (q - y') = 2 w (q - y) + c.
    w, q = of_source.astype(np.float64), 1.7
    ours = 2 * w * (q - chosen.reward[first:])
    np.testing.assert_allclose(ours, 2 * w * (q - before[first:]) + c, rtol=1e-4)


def test_a_domain_like_ours_is_supported(worlds):
    split = worlds.split(1_000, shift=0.0)
    chosen = make("oracle_bosa", **SMALL).prepare(split, seed=0)
    assert chosen.metadata["supported_fraction"] > 0.85


def test_unknown_next_states_are_supported(open_split):
    split = PUSplit.from_mask(open_split, np.arange(1_000) < 100)
    chosen = BOSA(**SMALL).prepare(split, seed=0)
    unknown = ~open_split.rows.next_known[chosen.rows]
    assert unknown.any()
    assert (chosen.critic_weight[unknown] == 1.0).all()
