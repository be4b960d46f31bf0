"""The tree's conversion, which must not give the share of the others."""

import numpy as np
import pytest

from puorl.core.errors import ConfigError
from puorl.core.prng import generator
from puorl.pu.mpe.tice import tice


def test_share_of_target_rows_not_of_others():
    """At alpha = 0.5 both conversions agree; at 0.2 the wrong one would answer about 0.8."""
    rng = generator(0, "tice")
    x_p = rng.normal(8, 1, (4_000, 2))
    x_u = np.concatenate([rng.normal(8, 1, (800, 2)), rng.normal(0, 1, (3_200, 2))])
    assert tice(x_p, x_u, rng=rng).value == pytest.approx(0.2, abs=0.06)


def test_more_caution_gives_a_higher_alpha():
    rng = generator(0, "tice delta")
    x_p = rng.normal(8, 1, (2_000, 2))
    x_u = np.concatenate([rng.normal(8, 1, (600, 2)), rng.normal(0, 1, (1_400, 2))])
    values = [tice(x_p, x_u, rng=generator(1), delta=delta).value for delta in (0.4, 0.1, 0.02)]
    assert values == sorted(values)
    with pytest.raises(ConfigError, match="0 < delta < 1"):
        tice(x_p, x_u, rng=rng, delta=2.0)


def test_constant_columns_and_few_rows_do_no_harm():
    rng = generator(0, "tice small")
    value = tice(np.ones((3, 2)), np.ones((4, 2)), rng=rng).value
    assert 0 <= value <= 0.999
