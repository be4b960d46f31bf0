"""Models of how units move: derivatives, information, estimates of z, and training."""

import dataclasses
import os
import signal
import subprocess
import sys

import jax
import jax.numpy as jnp
import numpy as np
import pytest
from scipy import stats

from puorl.core.progress import quiet
from puorl.core.run_folder import Checkpoint
from puorl.nn import mlp
from puorl.pu.config import MachineConfig
from puorl.pu.machines import dynamics
from puorl.pu.machines.dynamics import Batch

SIZE, NUM_GIVEN, NUM_OUTPUTS = 2, 3, 3
VIEWS = ("dynamics", "relations")
CONFIG = MachineConfig(
    hidden=(8,), latent_sizes=(1, 2), num_seeds=2, num_steps=60, batch_size=32, horizons=(1,)
)


def network(view="dynamics", *, seed=0):
    num_inputs = NUM_GIVEN + SIZE + (2 * NUM_OUTPUTS if view == "relations" else 0)
    return mlp.init_mlp(jax.random.key(seed), (num_inputs, 16, 2 * NUM_OUTPUTS), init="lecun")


def batch(n, num_groups, *, seed=0, known=0.8):
    rng = np.random.default_rng(seed)
    return Batch(
        jnp.asarray(rng.normal(size=(n, NUM_GIVEN)), jnp.float32),
        jnp.zeros((n, 0, 1), jnp.float32),
        jnp.asarray(rng.normal(size=(n, NUM_OUTPUTS)), jnp.float32),
        jnp.asarray(rng.random((n, NUM_OUTPUTS)) < known, jnp.float32),
        jnp.asarray(rng.integers(0, num_groups, n), jnp.int32),
    )


def drawn_from(params, rows, z, *, seed=1):
    """The same rows with outcomes that the model itself would make."""
    location, log_scale = dynamics.predict(params, rows.given, jnp.asarray(z, jnp.float32))
    noise = np.random.default_rng(seed).standard_t(4, size=location.shape)
    return rows._replace(outcome=location + jnp.exp(log_scale) * jnp.asarray(noise, jnp.float32))


def total_nll(view, params, rows, z):
    """By the path that training takes, not the one of `_information`."""
    own = z[rows.unit]
    parts = range(NUM_OUTPUTS if view == "relations" else 1)
    every = [
        dynamics._part_nll(view, params, rows, own, jnp.full(len(own), part, jnp.int32))
        for part in parts
    ]
    return jnp.stack(every).sum()


def test_the_likelihood_is_a_student_t_up_to_a_constant():
    rows = batch(50, 1, known=1.0)
    rng = np.random.default_rng(3)
    location, log_scale = (
        jnp.asarray(rng.normal(size=(50, NUM_OUTPUTS)), jnp.float32) for _ in range(2)
    )
    made = np.asarray(dynamics.output_nll(location, log_scale, rows.outcome, rows.weight))
    wanted = -stats.t.logpdf(rows.outcome, 4, loc=location, scale=np.exp(log_scale))
    constant = -stats.t.logpdf(0.0, 4)
    np.testing.assert_allclose(made + constant, wanted, rtol=1e-4, atol=1e-5)


@pytest.mark.parametrize("view", VIEWS)
def test_gradient_is_that_of_the_summed_likelihood(view):
    params, rows = network(view), batch(200, 4)
    z = jnp.asarray(np.random.default_rng(2).normal(size=(4, SIZE)), jnp.float32)
    gradient, _ = dynamics._information(view, params, rows, z)
    wanted = jax.grad(lambda z: total_nll(view, params, rows, z))(z)
    assert np.abs(wanted).min() > 1e-2
    np.testing.assert_allclose(gradient, wanted, rtol=1e-3, atol=1e-3)


@pytest.mark.parametrize("view", VIEWS)
def test_information_is_symmetric_and_not_negative(view):
    params, rows = network(view), batch(200, 4)
    z = jnp.asarray(np.random.default_rng(2).normal(size=(4, SIZE)), jnp.float32)
    _, information = dynamics._information(view, params, rows, z)
    np.testing.assert_allclose(information, np.swapaxes(information, 1, 2), rtol=1e-5)
    assert (np.linalg.eigvalsh(information) > 0).all()


def test_information_is_the_mean_product_of_scores_of_the_models_own_data():
    n = 20 * dynamics._CHUNK_ROWS
    params, z = network(), np.repeat([[0.7, -0.4]], n, axis=0)
    rows = drawn_from(params, batch(n, 1, known=0.8), z)
    alone = rows._replace(unit=jnp.arange(n, dtype=jnp.int32))
    scores, _ = dynamics._information("dynamics", params, alone, jnp.asarray(z, jnp.float32))
    _, information = dynamics._information(
        "dynamics", params, rows, jnp.asarray(z[:1], jnp.float32)
    )
    scores = np.asarray(scores, np.float64)
    error = np.sqrt(np.diag(information[0]))
    assert (np.abs(scores.sum(axis=0)) < 4 * error).all()  # scores have mean 0
    product = scores.T @ scores
    assert np.abs(product - information[0]).max() < 0.05 * np.trace(information[0])


def test_latents_that_made_the_rows_are_found():
    n, num_groups = 6_000, 6
    params, rows = network(), batch(n, num_groups)
    true = np.random.default_rng(5).normal(size=(num_groups, SIZE))
    rows = drawn_from(params, rows, true[np.asarray(rows.unit)])
    found = dynamics.fit_latents(
        "dynamics",
        params,
        np.ones(SIZE),
        rows,
        np.zeros((num_groups, SIZE)),
        num_iterations=12,
        penalty=0.0,
    )
    np.testing.assert_array_equal(found.num_rows, np.bincount(rows.unit))
    # In standard errors of the information that is told with them.
    away = np.einsum("gi,gij,gj->g", found.z - true, found.information, found.z - true)
    assert away.max() < stats.chi2.ppf(0.9999, SIZE)
    assert np.abs(true).max() > 10 * np.abs(found.z - true).max()


def test_unused_numbers_of_z_stay_out():
    params, rows = network(), batch(300, 3)
    found = dynamics.fit_latents(
        "dynamics", params, np.array([1.0, 0.0]), rows, np.ones((3, 2)), num_iterations=4, penalty=0
    )
    assert (found.z[:, 1] == 0).all()
    assert (found.information[:, 1] == 0).all()
    assert (found.z[:, 0] != 1).all()


@pytest.mark.parametrize("view", VIEWS)
def test_padding_does_not_change_an_estimate(view):
    params, rows = network(view), batch(256, 3)
    more = batch(37, 1, seed=9)
    longer = Batch(*(jnp.concatenate(pair) for pair in zip(rows, more, strict=True)))
    longer = longer._replace(unit=longer.unit.at[256:].set(3))

    def fitted(rows, num_groups):
        start = np.zeros((num_groups, SIZE))
        return dynamics.fit_latents(
            view, params, np.ones(SIZE), rows, start, num_iterations=5, penalty=1e-3
        )

    exact, padded = fitted(rows, 3), fitted(longer, 4)
    np.testing.assert_allclose(padded.z[:3], exact.z, atol=1e-4)
    np.testing.assert_allclose(padded.information[:3], exact.information, rtol=1e-3, atol=1e-3)
    np.testing.assert_array_equal(padded.num_rows, [*exact.num_rows, 37])


def test_a_group_without_rows_has_no_information_and_the_priors_z():
    params, rows = network(), batch(64, 1)
    found = dynamics.fit_latents(
        "dynamics", params, np.ones(2), rows, np.ones((2, 2)), num_iterations=8, penalty=1e-3
    )
    np.testing.assert_array_equal(found.num_rows, [64, 0])
    assert (found.information[1] == 0).all()
    np.testing.assert_allclose(found.z[1], 0, atol=1e-12)


def test_a_hidden_sensor_does_not_enter_its_own_prediction():
    params, rows = network("relations"), batch(40, 1)
    z = jnp.zeros((40, SIZE), jnp.float32)
    before = np.stack(dynamics.all_outputs("relations", params, rows, z))
    for sensor in range(NUM_OUTPUTS):
        moved = rows._replace(outcome=rows.outcome.at[:, sensor].add(5.0))
        after = np.stack(dynamics.all_outputs("relations", params, moved, z))
        np.testing.assert_array_equal(after[:, :, sensor], before[:, :, sensor])
        others = np.delete(np.arange(NUM_OUTPUTS), sensor)
        assert (np.abs(after - before)[0][:, others].max(axis=0) > 1e-2).all()


def longer_batch(n, *, seed=0):
    """Rows with outcomes over three horizons, and two numbers of action between them."""
    rng = np.random.default_rng(seed)
    rows = batch(n, 3, seed=seed)
    return rows._replace(
        ahead=jnp.asarray(rng.normal(size=(n, 2, 2)), jnp.float32),
        outcome=jnp.asarray(rng.normal(size=(n, 3 * NUM_OUTPUTS)), jnp.float32),
        weight=jnp.ones((n, 3 * NUM_OUTPUTS), jnp.float32),
    )


def test_a_horizon_sees_the_actions_before_it_and_none_after():
    rows = longer_batch(40)
    config = dataclasses.replace(CONFIG, horizons=(1, 4, 12))
    params = dynamics.lane(dynamics.init_state("dynamics", rows, 3, config, 0).params, 0)
    z = jnp.zeros((40, SIZE), jnp.float32)

    def nll(rows, horizon):
        part = jnp.full(40, horizon, jnp.int32)
        return np.asarray(dynamics._part_nll("dynamics", params, rows, z, part))

    for moved in range(2):
        other = rows._replace(ahead=rows.ahead.at[:, moved].add(3.0))
        for horizon in range(3):
            same = np.array_equal(nll(other, horizon), nll(rows, horizon))
            assert same == (horizon <= moved)


def test_each_horizon_is_judged_by_its_own_outcome():
    rows = longer_batch(40)
    config = dataclasses.replace(CONFIG, horizons=(1, 4, 12))
    params = dynamics.lane(dynamics.init_state("dynamics", rows, 3, config, 0).params, 0)
    z = np.zeros((3, SIZE))

    def both(rows, horizon):
        part = jnp.full(40, horizon, jnp.int32)
        by_row = dynamics._part_nll("dynamics", params, rows, jnp.zeros((40, SIZE)), part)
        return np.asarray(by_row), dynamics.outputs_nll("dynamics", params, rows, z, horizon)

    for moved in range(3):
        columns = slice(moved * NUM_OUTPUTS, (moved + 1) * NUM_OUTPUTS)
        other = rows._replace(outcome=rows.outcome.at[:, columns].add(2.0))
        for horizon in range(3):
            by_row, by_output = both(rows, horizon)
            assert by_output.shape == (40, NUM_OUTPUTS)
            np.testing.assert_allclose(by_output.sum(axis=1), by_row, rtol=1e-4, atol=1e-4)
            after = both(other, horizon)
            assert np.array_equal(after[0], by_row) == (moved != horizon)
            assert np.array_equal(after[1], by_output) == (moved != horizon)


@pytest.mark.parametrize("horizon", range(3))
def test_gradient_of_a_horizon_is_that_of_its_likelihood(horizon):
    rows = longer_batch(200)
    config = dataclasses.replace(CONFIG, horizons=(1, 4, 12))
    params = dynamics.lane(dynamics.init_state("dynamics", rows, 3, config, 0).params, 0)
    z = jnp.asarray(np.random.default_rng(2).normal(size=(3, SIZE)), jnp.float32)

    def total(z):
        part = jnp.full(200, horizon, jnp.int32)
        return dynamics._part_nll("dynamics", params, rows, z[rows.unit], part).sum()

    gradient, _ = dynamics._information("dynamics", params, rows, z, horizon)
    np.testing.assert_allclose(gradient, jax.grad(total)(z), rtol=1e-3, atol=1e-3)


def test_both_ways_to_compute_a_prediction_agree():
    params, rows = network(), batch(64, 1)
    z = jnp.ones((64, SIZE), jnp.float32)
    one = dynamics.predict(params, rows.given, z)
    two = dynamics.predict(params, rows.given, z, forward_mode=True)
    for a, b in zip(one, two, strict=True):
        np.testing.assert_allclose(a, b, atol=1e-5)


def trained(view="dynamics", config=CONFIG, checkpoint=None, advance=quiet):
    return dynamics.train(
        view,
        batch(300, 5),
        5,
        config,
        seed=7,
        checkpoint=checkpoint or Checkpoint(None),
        advance=advance,
    )


def leaves(state):
    state = state._replace(key=jax.random.key_data(state.key))
    return [np.asarray(leaf) for leaf in jax.tree.leaves(state)]


KILLED_CODE = """
import os, signal, sys
sys.path.insert(0, sys.argv[1])
import test_dynamics as tests
from puorl.core.run_folder import Checkpoint

done = 0
def advance(amount, note="", /, *, earlier=False):
    global done
    done += amount
    if done > 40:
        os.kill(os.getpid(), signal.SIGKILL)

tests.dynamics._CHUNK = 20
tests.trained(sys.argv[2], checkpoint=Checkpoint(sys.argv[3], "job", seconds=-1.0), advance=advance)
"""


def test_a_killed_training_goes_on_to_the_same_bits(tmp_path, monkeypatch):
    view = "relations"
    monkeypatch.setattr(dynamics, "_CHUNK", 20)
    words = [os.path.dirname(__file__), view, str(tmp_path)]
    run = subprocess.run([sys.executable, "-c", KILLED_CODE, *words], check=False)
    assert run.returncode == -signal.SIGKILL
    steps = []

    def advance(amount, note="", /, *, earlier=False):
        steps.append((amount, earlier))

    resumed = trained(view, checkpoint=Checkpoint(tmp_path, "job"), advance=advance)
    assert steps == [(40, True), (20, False)]
    whole = trained(view)
    for a, b in zip(leaves(resumed), leaves(whole), strict=True):
        np.testing.assert_array_equal(a, b)
    # A finished one is read.
    steps.clear()
    again = trained(view, checkpoint=Checkpoint(tmp_path, "job"), advance=advance)
    assert steps == [(60, True)]
    np.testing.assert_array_equal(again.z, whole.z)


def test_a_lane_is_trained_as_if_alone():
    alone = dataclasses.replace(CONFIG, latent_sizes=(2,), num_seeds=1)
    both = dataclasses.replace(alone, num_seeds=2)
    one, two = trained(config=alone), trained(config=both)
    np.testing.assert_allclose(two.z[0], one.z[0], atol=1e-4)
    for a, b in zip(jax.tree.leaves(two.params), jax.tree.leaves(one.params), strict=True):
        np.testing.assert_allclose(a[0], b[0], atol=1e-4)
    # Not because all lanes are alike.
    assert np.abs(two.z[1] - one.z[0]).max() > 0.05


def test_training_moves_only_the_numbers_that_a_lane_uses():
    rows = batch(300, 5)
    first = dynamics.init_state("dynamics", rows, 5, CONFIG, 7)
    last = trained()
    used = np.asarray(dynamics.size_mask(CONFIG))
    np.testing.assert_array_equal(used, [[1, 0], [1, 0], [1, 1], [1, 1]])
    moved = np.abs(np.asarray(last.z) - np.asarray(first.z)).max(axis=1)
    assert (moved[used == 0] == 0).all()
    assert (moved[used == 1] > 0.01).all()


def test_latents_wait_for_their_start():
    config = dataclasses.replace(CONFIG, latent_start=0.5)
    waiting = trained(config=dataclasses.replace(config, latent_start=1.0))
    first = dynamics.init_state("dynamics", batch(300, 5), 5, CONFIG, 7)
    np.testing.assert_array_equal(waiting.z, first.z)
    assert (np.asarray(trained(config=config).z) != np.asarray(first.z)).any()


def test_training_brings_the_likelihood_down_and_parts_units_that_differ():
    rng = np.random.default_rng(0)
    rows, kind = batch(2_000, 6, known=1.0), np.array([0, 0, 0, 1, 1, 1])
    gain = jnp.asarray(np.where(kind == 0, 1.0, -1.0), jnp.float32)[rows.unit]
    noise = jnp.asarray(0.1 * rng.normal(size=rows.outcome.shape), jnp.float32)
    rows = rows._replace(outcome=gain[:, None] * rows.given + noise)
    config = dataclasses.replace(CONFIG, latent_sizes=(1,), num_seeds=1, num_steps=400)
    state = dynamics.train(
        "dynamics", rows, 6, config, seed=0, checkpoint=Checkpoint(None), advance=quiet
    )
    z = np.asarray(state.z)[0, :, 0]
    assert abs(z[:3].mean() - z[3:].mean()) > 5 * max(z[:3].std(), z[3:].std())
    params = dynamics.lane(state.params, 0)
    own = dynamics.outputs_nll("dynamics", params, rows, z[:, None]).mean()
    swapped = dynamics.outputs_nll("dynamics", params, rows, z[::-1, None]).mean()
    assert swapped - own > 0.2  # nats an output


def test_held_out_rows_are_a_fifth_in_blocks():
    class Rows:
        position = np.arange(5_000)

    held = dynamics.held_out(Rows, seed=3)
    assert held.mean() == pytest.approx(0.2)
    blocks = held.reshape(-1, 20)
    assert (blocks.all(axis=1) | ~blocks.any(axis=1)).all()
    assert not np.array_equal(held, dynamics.held_out(Rows, seed=4))


@pytest.mark.parametrize("number", [1, 2, 3, 1_000, 4_096, 4_097, 17_000, 1_000_000])
def test_there_is_room_for_all_and_little_more_in_large_sets(number):
    room = dynamics._room(number)
    assert number <= room < (2 * number if number <= 4_096 else 1.13 * number)
    assert dynamics._room(room) == room
