import math

import jax
import jax.numpy as jnp
import numpy as np
import pytest

from puorl.data.dataset import Dataset
from puorl.nn import mlp
from puorl.pu import dynamics
from puorl.pu.config import FeatureConfig, ResidualConfig
from puorl.pu.dynamics import Task
from puorl.pu.features import build

SMALL = ResidualConfig(hidden=(16,), num_steps=48, batch_size=64)
FORWARD = Task(((0, 2), (2, 3)), ((3, 5),))
INVERSE = Task(((0, 2), (3, 5)), ((2, 3),))


def keys(*seeds):
    return jnp.stack([jax.random.key(seed) for seed in seeds])


def matrix(seed, n=400, f=5):
    return np.random.default_rng(seed).normal(size=(n, f)).astype(np.float32)


def everything(lanes, n=400):
    return jnp.tile(jnp.arange(n, dtype=jnp.int32), (lanes, 1))


def train(x, rows, seeds, *, task=FORWARD, config=SMALL, **settings):
    model, done = dynamics.init(task, config, keys(*seeds)), 0
    for now, count in dynamics.steps(model, 0, x, rows, task=task, config=config, **settings):
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
    made = dynamics.tasks(config.inputs, 2, 1)
    told = [[dynamics.take(x, columns)[0].tolist() for columns in task] for task in made]
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
    found = dynamics.residual(params, jnp.asarray(x), FORWARD)
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
    found = dynamics._loss(params, jnp.asarray(x[:, :3]), jnp.asarray(x[:, 3:]))
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
    left = np.asarray(dynamics.residual(learn(x, task), jnp.asarray(x), task))
    new = np.arange(NUM_ROWS) >= NUM_SHOWN
    return left[new & ~ODD], left[new & ODD]


def test_training_finds_the_likelihood_of_rows_that_were_not_shown():
    x = two_domains()
    given, wanted = jnp.asarray(x[NUM_SHOWN:, :3]), jnp.asarray(x[NUM_SHOWN:, 3:])
    loss = float(dynamics._loss(learn(x, FORWARD), given, wanted))
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
