import dataclasses
import math

import jax
import jax.numpy as jnp
import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from puorl.core.errors import ConfigError, DataError
from puorl.core.progress import quiet
from puorl.core.run_folder import Checkpoint
from puorl.data.dataset import Dataset
from puorl.nn import mlp
from puorl.pu import features
from puorl.pu.config import FeatureConfig, ResidualConfig
from puorl.pu.features import Task, build, fit_scaling


def make_rows(**changes):
    fields = {
        "obs": np.array([[1.0, 2.0], [3.0, 4.0]]),
        "action": np.array([[0.5], [-0.5]]),
        "next_obs": np.array([[1.5, 1.0], [3.0, 5.0]]),
        "reward": np.array([7.0, 8.0]),
    }
    return Dataset.from_arrays(**(fields | changes)).rows


@pytest.mark.parametrize(
    ("inputs", "difference", "first"),
    [
        ("sas", True, [1, 2, 0.5, 0.5, -1]),
        ("sas", False, [1, 2, 0.5, 1.5, 1]),
        ("sa", True, [1, 2, 0.5]),
        ("sar", True, [1, 2, 0.5, 7]),
        ("sars", True, [1, 2, 0.5, 7, 0.5, -1]),
    ],
)
def test_columns(inputs, difference, first):
    x = build(make_rows(), FeatureConfig(inputs=inputs, difference=difference))
    assert x.dtype == np.float32
    assert x[0].tolist() == first


def test_differences_of_large_values_are_taken_before_rounding():
    far = np.array([[1e9, 0.0], [1e9, 0.0]])
    x = build(make_rows(obs=far, next_obs=far + 0.25), FeatureConfig())
    assert x[:, 3:].tolist() == [[0.25, 0.25], [0.25, 0.25]]


def test_scaling_ignores_unknown_next_states_and_leaves_constants():
    x = np.array([[1, 5, np.nan], [3, 5, 2], [5, 5, 4]], np.float32)
    scaled = fit_scaling(x, FeatureConfig())(x.copy())
    np.testing.assert_allclose(scaled[:, 0], [-1.224745, 0, 1.224745], rtol=1e-5)
    assert scaled[:, 1].tolist() == [0, 0, 0]
    assert np.isnan(scaled[0, 2])
    np.testing.assert_allclose(scaled[1:, 2], [-1, 1])
    raw = fit_scaling(x, FeatureConfig(standardise=False))(x.copy())
    np.testing.assert_array_equal(raw, x)


def test_errors():
    with pytest.raises(ConfigError, match="sas, sa, sar, sars"):
        FeatureConfig(inputs="everything")
    bare = Dataset.from_arrays(obs=np.arange(4.0)[:, None], action=np.zeros((4, 1))).rows
    with pytest.raises(DataError, match="need rewards"):
        build(bare, FeatureConfig(inputs="sar"))


SMALL = ResidualConfig(hidden=(16,), num_steps=100, batch_size=64)
BLOCK = 16_384
CLOSE = {"rtol": 1e-4, "atol": 1e-4}
"""Blocks of other shapes may be summed in another order."""


def fit(*pools, inputs="sas", config=SMALL, seeds=(0, 1), advance=quiet):
    return features.fit_encoders(
        pools,
        FeatureConfig(inputs=inputs),
        config,
        seeds=seeds[: len(pools)],
        checkpoint=Checkpoint(None),
        advance=advance,
    )


def rows_of(world, shift):
    """Rows of which every tenth ends where nobody looked."""
    plain = world(1_000, shift, seed=1).rows
    unknown = np.arange(len(plain)) % 10 == 0
    next_obs = np.where(unknown[:, None], np.nan, plain.next_obs)
    return dataclasses.replace(plain, next_obs=next_obs, terminal=unknown)


@pytest.fixture(scope="module")
def rows(world):
    return rows_of(world, 0.0)


@pytest.fixture(scope="module")
def fitted(rows):
    told = []
    [made] = fit(rows, advance=lambda amount, note="", /: told.append(amount))
    assert sum(told) == features.num_steps(rows, FeatureConfig(), SMALL) == 2 * 100
    return made


@pytest.mark.parametrize(
    ("inputs", "config", "width"),
    [
        ("sas", SMALL, 3 + 2 + 3 + (3 + 2)),
        ("sars", SMALL, 3 + 2 + 1 + 3 + (1 + 3 + 2)),
        ("sar", SMALL, 3 + 2 + 1 + 1),
        ("sa", SMALL, 3 + 2),
        ("sas", None, 3 + 2 + 3),
    ],
)
def test_width_is_inputs_and_residuals(rows, monkeypatch, inputs, config, width):
    monkeypatch.setattr(features, "train_steps", lambda *_, **__: iter(()))  # as initialised
    [made] = fit(rows, inputs=inputs, config=config)
    assert made.encoder.width == width
    assert made.x.shape == (len(rows), width)
    assert made.x.dtype == np.float32
    assert np.isfinite(made.x).all()


def test_inputs_are_standardised_and_come_first(fitted):
    known = fitted.x[fitted.known][:, :8]
    np.testing.assert_allclose(known[:, 5:].mean(axis=0), 0, atol=1e-4)
    np.testing.assert_allclose(known[:, 5:].std(axis=0), 1, atol=1e-3)
    np.testing.assert_allclose(fitted.x[:, :5].std(axis=0), 1, atol=1e-3)


def test_unknown_rows_are_flagged_and_show_nothing_of_their_end(rows, fitted):
    x, known = fitted.encoder(rows)
    np.testing.assert_array_equal(known, rows.next_known)
    assert (~known).sum() == 100
    assert np.isfinite(x).all()
    assert (x[~known][:, 5:8] == 0).all()


def test_the_rows_of_the_fit_are_encoded_as_any_others(rows, fitted):
    x, known = fitted.encoder(rows)
    np.testing.assert_array_equal(x, fitted.x)
    np.testing.assert_array_equal(known, fitted.known)


def test_where_blocks_end_makes_no_difference(rows, fitted):
    # The last block holds three rows alone; they are the first ones once more.
    places = np.concatenate([np.arange(BLOCK) % len(rows), [0, 1, 2]])
    x, known = fitted.encoder(rows[places])
    np.testing.assert_allclose(x, fitted.x[places], **CLOSE)
    np.testing.assert_allclose(x[BLOCK:], x[:3], **CLOSE)
    np.testing.assert_array_equal(known, fitted.known[places])


def test_behaviour_is_what_an_encoder_of_states_and_actions_gives(rows, fitted):
    [expected] = fit(rows, inputs="sa")
    behaviour = fitted.encoder.behaviour()
    x, known = behaviour(rows)
    assert behaviour.width == 5
    np.testing.assert_array_equal(x, expected.x)
    assert known.all()  # without next states nothing is unknown


def test_rows_of_another_width_are_refused(fitted):
    wide = Dataset.from_arrays(obs=np.zeros((9, 7)), action=np.zeros((9, 1))).rows
    with pytest.raises(DataError, match="expected rows with 8 inputs, as in fit, got 15"):
        fitted.encoder(wide)


def test_nothing_to_tell_rows_apart_by(rows):
    flat = dataclasses.replace(
        rows, obs=np.ones((1_000, 3)), action=np.ones((1_000, 2)), next_obs=np.ones((1_000, 3))
    )
    with pytest.raises(DataError, match="expected columns that vary"):
        fit(flat)


@settings(max_examples=25)
@given(order=st.permutations(range(40)))
def test_a_row_is_encoded_from_that_row_alone(rows, fitted, order):
    x, known = fitted.encoder(rows[:40])
    moved, moved_known = fitted.encoder(rows[np.array(order)])
    np.testing.assert_allclose(moved, x[order], rtol=1e-6, atol=1e-6)
    np.testing.assert_array_equal(moved_known, known[order])


def test_pools_side_by_side_are_fitted_as_alone(world, rows, fitted):
    other = rows_of(world, 1.0)
    [other_alone] = fit(other, seeds=[1])
    for together, alone in zip(fit(rows, other), (fitted, other_alone), strict=True):
        np.testing.assert_array_equal(together.x[:, :8], alone.x[:, :8])
        np.testing.assert_allclose(together.x, alone.x, rtol=1e-3, atol=1e-3)
    assert np.abs(other_alone.x - fitted.x)[:, 8:].max() > 0.1  # far above the tolerance


def test_no_models_take_no_steps(rows):
    assert features.num_steps(rows, FeatureConfig(), None) == 0
    assert features.num_steps(rows, FeatureConfig(inputs="sa"), SMALL) == 0


MODEL = ResidualConfig(hidden=(16,), num_steps=48, batch_size=64)
FORWARD = Task(((0, 2), (2, 3)), ((3, 5),))
INVERSE = Task(((0, 2), (3, 5)), ((2, 3),))


def keys(*seeds):
    return jnp.stack([jax.random.key(seed) for seed in seeds])


def matrix(seed, n=400, f=5):
    return np.random.default_rng(seed).normal(size=(n, f)).astype(np.float32)


def everything(lanes, n=400):
    return jnp.tile(jnp.arange(n, dtype=jnp.int32), (lanes, 1))


def train(x, rows, seeds, *, task=FORWARD, config=MODEL, **settings):
    model, done = features.init_models(task, config, keys(*seeds)), 0
    for now, count in features.train_steps(model, 0, x, rows, task=task, config=config, **settings):
        model, done = now, count
    assert done == config.steps_for(rows.shape[1])
    return model


def lane(model, k):
    return jax.tree.map(lambda leaf: np.asarray(leaf[k]), model.params)


def assert_trees(one, two, **tolerance):
    for a, b in zip(jax.tree.leaves(one), jax.tree.leaves(two), strict=True):
        np.testing.assert_allclose(a, b, **tolerance)


@pytest.mark.parametrize(
    ("inputs", "wanted"),
    [
        ("sas", [([1, 2, 3], [5, 6]), ([1, 2, 5, 6], [3])]),
        ("sars", [([1, 2, 3], [4, 5, 6]), ([1, 2, 5, 6], [3])]),
        ("sar", [([1, 2, 3], [4])]),
        ("sa", []),
    ],
)
def test_tasks_read_and_predict_the_right_columns(inputs, wanted):
    # Every value says which column it is: state 1 2, action 3, reward 4, change of state 5 6.
    config = FeatureConfig(inputs=inputs)
    row = Dataset.from_arrays(
        obs=np.array([[1.0, 2.0]]),
        action=np.array([[3.0]]),
        reward=np.array([4.0]),
        next_obs=np.array([[6.0, 8.0]]),
    ).rows
    x = jnp.asarray(build(row, config))
    made = features.residual_tasks(config.inputs, 2, 1)
    told = [[features.take(x, columns)[0].tolist() for columns in task] for task in made]
    assert told == [list(pair) for pair in wanted]
    assert [(task.num_given, task.num_predicted) for task in made] == [
        (len(given), len(wanted)) for given, wanted in wanted
    ]


def network(seed, log_scale=0.0):
    """A random model; ``log_scale`` is added to what it says of scales."""
    params = mlp.init_mlp(jax.random.key(seed), (3, 16, 4))
    last = params[-1]
    return (*params[:-1], last._replace(b=last.b + jnp.asarray([0, 0, log_scale, log_scale], "f")))


def numpy_model(params, x):
    """Location and scale of columns 3 and 4 in float64, written out."""
    first, last = (jax.tree.map(lambda leaf: np.asarray(leaf, np.float64), p) for p in params)
    hidden = np.maximum(x[:, :3].astype(np.float64) @ first.w + first.b, 0.0)
    out = hidden @ last.w + last.b
    return out[:, :2], np.exp(np.clip(out[:, 2:], -9, 3))


@pytest.mark.parametrize("log_scale", [0.0, -30.0, 30.0])
def test_residual_is_the_signed_logarithm_of_deviations(log_scale):
    params, x = network(0, log_scale), matrix(1)
    location, scale = numpy_model(params, x)
    deviations = (x[:, 3:] - location) / scale
    expected = np.where(deviations > 0, 1, -1) * np.log(1 + np.abs(deviations))
    found = features.residual(params, jnp.asarray(x), FORWARD)
    np.testing.assert_allclose(found, expected, rtol=1e-4, atol=1e-5)


@pytest.mark.parametrize("log_scale", [0.0, -2.0, 2.0])
def test_loss_is_the_likelihood_of_a_student_t_with_3_degrees(log_scale):
    params, x = network(2, log_scale), matrix(3)
    location, scale = numpy_model(params, x)
    # The density of t with 3 degrees of freedom: 6 sqrt(3) / (pi (3 + z^2)^2).
    z = (x[:, 3:] - location) / scale
    likelihood = np.log(6 * math.sqrt(3) / (math.pi * scale * (3 + z**2) ** 2))
    constant = math.log(
        2 / (math.pi * math.sqrt(3))
    )  # that density at 0, which the loss leaves out
    found = features._loss(params, jnp.asarray(x[:, :3]), jnp.asarray(x[:, 3:]))
    assert float(found) == pytest.approx(constant - likelihood.mean(), rel=1e-4)


@pytest.fixture(scope="module")
def alone():
    """One lane on its own, for seeds 0 and 1."""
    return [train(jnp.asarray(matrix(5)), everything(1), [seed]) for seed in range(2)]


def test_a_lane_is_the_same_alone(alone):
    together = train(jnp.asarray(matrix(5)), everything(2), [0, 1])
    for k in range(2):
        assert_trees(lane(together, k), lane(alone[k], 0), rtol=1e-4, atol=1e-5)
    apart = jax.tree.map(lambda a, b: np.abs(a - b).max(), lane(together, 0), lane(together, 1))
    assert max(jax.tree.leaves(apart)) > 0.01  # far above the tolerance


def test_a_lane_may_bring_a_matrix_of_its_own(alone):
    x = matrix(5)
    own = train(jnp.stack([x, x]), everything(2), [0, 1])
    for k in range(2):
        assert_trees(lane(own, k), lane(alone[k], 0), rtol=1e-4, atol=1e-5)
    other = train(jnp.stack([x, -x]), everything(2), [0, 1])
    assert_trees(lane(other, 0), lane(alone[0], 0), rtol=1e-4, atol=1e-5)
    with pytest.raises(AssertionError, match="Not equal"):
        assert_trees(lane(other, 1), lane(alone[1], 0), rtol=1e-4, atol=1e-5)


def test_steps_in_chunks_are_bit_by_bit_those_of_one_long_run(alone):
    parts = train(jnp.asarray(matrix(5)), everything(1), [0], chunk=16)
    jax.tree.map(np.testing.assert_array_equal, alone[0].params, parts.params)
    jax.tree.map(np.testing.assert_array_equal, alone[0].moments, parts.moments)


def test_only_the_given_rows_are_learnt_from():
    x = matrix(8)
    spoilt = x.copy()
    spoilt[200:] = np.nan
    rows = everything(1) % 200
    one, two = (train(jnp.asarray(m), rows, [0]) for m in (x, spoilt))
    jax.tree.map(np.testing.assert_array_equal, one.params, two.params)


def test_small_data_gets_fewer_steps():
    config = ResidualConfig(num_steps=1_000, batch_size=100, max_passes=40)
    assert config.steps_for(1_000_000) == 1_000
    assert config.steps_for(1_000) == 40 * 1_000 // 100 + 1
    assert config.steps_for(1) == 1


NUM_ROWS, NUM_SHOWN = 6_000, 5_000
ODD = np.arange(NUM_ROWS) % 2 == 1


def two_domains(*, motor_noise=0.0, shift=0.0):
    """Rows of a plain domain and rows of one that differs, in turn."""
    rng = np.random.default_rng(9)
    odd = ODD[:, None]
    state, action = rng.normal(size=(NUM_ROWS, 2)), rng.uniform(-1.7, 1.7, (NUM_ROWS, 1))
    moved = action + motor_noise * odd * rng.normal(size=(NUM_ROWS, 1))
    change = 0.5 * np.tanh(state) + moved * [1.0, -0.5] + shift * odd
    change += 0.02 * rng.normal(size=change.shape)
    return np.concatenate([state, action, change], axis=1).astype(np.float32)


def learn(x, task):
    """A model that has seen the first rows."""
    config = ResidualConfig(hidden=(32,), num_steps=600, batch_size=256, learning_rate=5e-3)
    rows = everything(1, NUM_SHOWN)
    return lane(train(jnp.asarray(x), rows, [0], task=task, config=config, chunk=600), 0)


def held_out_residuals(x, task):
    left = np.asarray(features.residual(learn(x, task), jnp.asarray(x), task))
    new = np.arange(NUM_ROWS) >= NUM_SHOWN
    return left[new & ~ODD], left[new & ODD]


def test_training_finds_the_likelihood_of_rows_that_were_not_shown():
    x = two_domains()
    given, wanted = jnp.asarray(x[NUM_SHOWN:, :3]), jnp.asarray(x[NUM_SHOWN:, 3:])
    loss = float(features._loss(learn(x, FORWARD), given, wanted))
    # Changes have deviation 1.0 and 0.6, the noise 0.02: from near 0 towards log 0.02 = -3.9.
    assert loss < -2.5


def test_noise_on_motors_widens_the_inverse_residual():
    plain, noisy = held_out_residuals(two_domains(motor_noise=0.3), INVERSE)
    assert np.abs(noisy).mean() > 1.5 * np.abs(plain).mean()
    assert abs(noisy.mean() - plain.mean()) < 0.3 * np.abs(noisy).mean()  # wider, not moved


def test_a_shift_moves_the_forward_residual():
    plain, shifted = held_out_residuals(two_domains(shift=0.3), FORWARD)
    apart = shifted.mean(axis=0) - plain.mean(axis=0)
    assert (apart > plain.std(axis=0)).all()
