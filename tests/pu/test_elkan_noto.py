"""The quotient of means, for one sample and for two."""

import numpy as np
import pytest

from puorl.core.errors import DataError
from puorl.pu.alpha import en


def test_by_hand():
    assert en(np.array([0.8, 0.4]), np.array([0.6, 0.0, 0.3])).value == pytest.approx(0.5)


def test_scores_must_be_probabilities_and_not_all_zero():
    with pytest.raises(DataError, match="sigmoid"):
        en(np.array([2.0]), np.array([0.1]))
    with pytest.raises(DataError, match="only zeros"):
        en(np.zeros(3), np.array([0.1]))
