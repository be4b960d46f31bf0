"""The closed form against a direct search over the dual."""

import numpy as np
import pytest

from puorl.core.prng import generator
from puorl.pu.mpe import penalised_l1


def test_closed_form_is_the_maximum_of_the_dual():
    """maximise a.b - penalty |a|^2 / 2 over a >= 0; the distance is a.b - theta + 1 there."""
    rng = generator(0, "dual")
    phi_p, phi_u = rng.random((5, 7)), rng.random((5, 7))
    theta, penalty = 0.6, 0.3
    means_p = penalised_l1._fold_means(phi_p, np.zeros(5, np.int64))
    means_u = penalised_l1._fold_means(phi_u, np.zeros(5, np.int64))
    _, distance = penalised_l1._evaluate(means_p, means_u, np.array([theta]), penalty)
    b = theta * phi_p.mean(axis=0) - phi_u.mean(axis=0)
    a = np.zeros(7)
    for _ in range(2_000):
        a = np.maximum(0.0, a + 0.05 * (b - penalty * a))
    assert distance[0] == pytest.approx(a @ b - theta + 1, abs=1e-9)


def test_fold_means_add_up():
    rng = generator(0, "folds")
    basis, fold = rng.random((11, 3)), np.arange(11) % 4
    means = penalised_l1._fold_means(basis, fold)
    np.testing.assert_allclose(means.all(), basis.mean(axis=0))
    np.testing.assert_allclose(means.without(2), basis[fold != 2].mean(axis=0))


def test_one_row_each_is_enough_to_answer():
    value = penalised_l1.pen_l1(np.zeros((1, 1)), np.ones((1, 1)), rng=generator(0)).value
    assert 0 <= value <= 0.999
