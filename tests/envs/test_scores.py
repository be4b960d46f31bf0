import numpy as np
import pytest

from puorl.core.errors import ConfigError
from puorl.envs import bodies
from puorl.envs.evaluate import normalised_score


@pytest.mark.parametrize("body", bodies.names())
def test_reference_returns_are_0_and_100(body):
    low, high = bodies.body(body).random_return, bodies.body(body).expert_return
    np.testing.assert_allclose(
        normalised_score(body, np.array([[low, high], [2 * high - low, low]])),
        [[0.0, 100.0], [200.0, 0.0]],
        atol=1e-12,
    )


def test_a_worked_value():
    # (3000 + 20.272305) / (3234.3 + 20.272305) = 0.928009
    assert float(normalised_score("hopper", 3000.0)) == pytest.approx(92.8009, abs=1e-4)


def test_unknown_body():
    with pytest.raises(ConfigError, match="halfcheetah, hopper, walker2d, got 'ant'"):
        normalised_score("ant", 0.0)
