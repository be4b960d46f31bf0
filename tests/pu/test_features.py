import numpy as np
import pytest

from puorl.core.errors import ConfigError, DataError
from puorl.data.dataset import Dataset
from puorl.pu.features import FeatureConfig, build, fit_scaling


def rows(**changes):
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
    x = build(rows(), FeatureConfig(inputs=inputs, difference=difference))
    assert x.dtype == np.float32
    assert x[0].tolist() == first


def test_differences_of_large_values_are_taken_before_rounding():
    far = np.array([[1e9, 0.0], [1e9, 0.0]])
    x = build(rows(obs=far, next_obs=far + 0.25), FeatureConfig())
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
