import dataclasses

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from puorl.core.checkpoint import Checkpoint
from puorl.core.errors import ConfigError, DataError
from puorl.core.progress import quiet
from puorl.data.dataset import Dataset
from puorl.pu import features
from puorl.pu.config import FeatureConfig, ResidualConfig
from puorl.pu.features import build, fit_scaling


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
    monkeypatch.setattr(features.dynamics, "steps", lambda *_, **__: iter(()))  # as initialised
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
