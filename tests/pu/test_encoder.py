import dataclasses

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from puorl.core.checkpoint import Checkpoint
from puorl.core.errors import DataError
from puorl.core.progress import quiet
from puorl.data.dataset import Dataset
from puorl.pu import encoder
from puorl.pu.dynamics import ResidualConfig
from puorl.pu.features import FeatureConfig

SMALL = ResidualConfig(hidden=(16,), num_steps=100, batch_size=64)
BLOCK = 16_384
CLOSE = {"rtol": 1e-4, "atol": 1e-4}
"""Blocks of other shapes may be summed in another order."""


def learn(*pools, inputs="sas", config=SMALL, seeds=(0, 1), advance=quiet):
    return encoder.learn(
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
def learnt(rows):
    told = []
    [made] = learn(rows, advance=lambda amount, note="", /: told.append(amount))
    assert sum(told) == encoder.num_steps(rows, FeatureConfig(), SMALL) == 2 * 100
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
    monkeypatch.setattr(encoder.residuals, "steps", lambda *_, **__: iter(()))  # as initialised
    [made] = learn(rows, inputs=inputs, config=config)
    assert made.encoder.width == width
    assert made.x.shape == (len(rows), width)
    assert made.x.dtype == np.float32
    assert np.isfinite(made.x).all()


def test_inputs_are_standardised_and_come_first(learnt):
    known = learnt.x[learnt.known][:, :8]
    np.testing.assert_allclose(known[:, 5:].mean(axis=0), 0, atol=1e-4)
    np.testing.assert_allclose(known[:, 5:].std(axis=0), 1, atol=1e-3)
    np.testing.assert_allclose(learnt.x[:, :5].std(axis=0), 1, atol=1e-3)


def test_unknown_rows_are_flagged_and_show_nothing_of_their_end(rows, learnt):
    x, known = learnt.encoder(rows)
    np.testing.assert_array_equal(known, rows.next_known)
    assert (~known).sum() == 100
    assert np.isfinite(x).all()
    assert (x[~known][:, 5:8] == 0).all()


def test_the_rows_learnt_from_are_encoded_as_any_others(rows, learnt):
    x, known = learnt.encoder(rows)
    np.testing.assert_array_equal(x, learnt.x)
    np.testing.assert_array_equal(known, learnt.known)


def test_where_blocks_end_makes_no_difference(rows, learnt):
    # The last block holds three rows alone; they are the first ones once more.
    places = np.concatenate([np.arange(BLOCK) % len(rows), [0, 1, 2]])
    x, known = learnt.encoder(rows[places])
    np.testing.assert_allclose(x, learnt.x[places], **CLOSE)
    np.testing.assert_allclose(x[BLOCK:], x[:3], **CLOSE)
    np.testing.assert_array_equal(known, learnt.known[places])


def test_behaviour_is_what_an_encoder_of_states_and_actions_gives(rows, learnt):
    [expected] = learn(rows, inputs="sa")
    behaviour = learnt.encoder.behaviour()
    x, known = behaviour(rows)
    assert behaviour.width == 5
    np.testing.assert_array_equal(x, expected.x)
    assert known.all()  # without next states nothing is unknown


def test_rows_of_another_width_are_refused(learnt):
    wide = Dataset.from_arrays(obs=np.zeros((9, 7)), action=np.zeros((9, 1))).rows
    with pytest.raises(DataError, match="expected rows with 8 inputs, as in fit, got 15"):
        learnt.encoder(wide)


def test_nothing_to_tell_rows_apart_by(rows):
    flat = dataclasses.replace(
        rows, obs=np.ones((1_000, 3)), action=np.ones((1_000, 2)), next_obs=np.ones((1_000, 3))
    )
    with pytest.raises(DataError, match="every column is constant"):
        learn(flat)


@settings(max_examples=25)
@given(order=st.permutations(range(40)))
def test_a_row_is_encoded_from_that_row_alone(rows, learnt, order):
    x, known = learnt.encoder(rows[:40])
    moved, moved_known = learnt.encoder(rows[np.array(order)])
    np.testing.assert_allclose(moved, x[order], rtol=1e-6, atol=1e-6)
    np.testing.assert_array_equal(moved_known, known[order])


def test_pools_side_by_side_are_learnt_as_alone(world, rows, learnt):
    other = rows_of(world, 1.0)
    [other_alone] = learn(other, seeds=[1])
    for together, alone in zip(learn(rows, other), (learnt, other_alone), strict=True):
        np.testing.assert_array_equal(together.x[:, :8], alone.x[:, :8])
        np.testing.assert_allclose(together.x, alone.x, rtol=1e-3, atol=1e-3)
    assert np.abs(other_alone.x - learnt.x)[:, 8:].max() > 0.1  # far above the tolerance


def test_no_models_take_no_steps(rows):
    assert encoder.num_steps(rows, FeatureConfig(), None) == 0
    assert encoder.num_steps(rows, FeatureConfig(inputs="sa"), SMALL) == 0
