from dataclasses import replace

import baseline
import numpy as np
import pytest
import readout
from simulate import FLEETS, Kind, simulate

TRUCKS = replace(FLEETS["carts-motor"], runs=2, rows=120)


def trucks(**factors):
    kinds = Kind("ours", 10), Kind("other", 10, factors)
    return replace(TRUCKS, kinds=kinds)


def test_a_planted_difference_is_found():
    fleet = trucks(motor=0.6)
    found = readout.read_out(simulate(fleet), fleet, num_draws=1)
    assert found.accuracy >= 0.95
    assert found.auroc >= 0.97


def test_without_a_difference_the_read_out_is_at_chance():
    fleet = trucks()
    found = readout.read_out(simulate(fleet), fleet, num_draws=1)
    assert 0.2 <= found.accuracy <= 0.75
    assert not found.is_decidable


def test_two_other_types_on_either_side_of_ours_are_told():
    rng = np.random.default_rng(0)
    kind = np.repeat([0, 1, 2], 8)
    place = np.array([0.0, 6.0, -6.0])[kind]
    features = np.column_stack([place + rng.normal(size=24), rng.normal(size=(24, 6))])
    logit = readout.held_out_logits([features], kind, num_draws=1)
    assert np.mean((logit > 0) == (kind == 0)) > 0.9


def test_features_of_second_order_and_their_orthonormal_span():
    value = np.random.default_rng(0).normal(size=(200, 3))
    features = readout.expand(value, 2)
    assert features.shape == (200, 1 + 3 + 6)
    doubled = np.hstack([features, features[:, 1:2]])
    basis = readout.orthonormal(doubled)
    assert basis.shape == (200, 10)
    np.testing.assert_allclose(basis.T @ basis / 200, np.eye(10), atol=1e-9)


def test_auroc_counts_ties_as_half():
    truth = np.array([True, True, False, False])
    assert readout.auroc(np.array([3.0, 2.0, 1.0, 0.0]), truth) == 1.0
    assert readout.auroc(np.array([1.0, 1.0, 1.0, 1.0]), truth) == 0.5
    assert readout.auroc(np.array([0.0, 2.0, 1.0, 1.0]), truth) == 0.5


def test_the_linear_model_ranks_units_like_the_known_ones_first():
    fleet = trucks(motor=0.5)
    table = simulate(fleet)
    units, ours = readout.unit_types(table, fleet)
    score = baseline.linear_scores(table, fleet, units[ours][:5])
    asked = ~np.isin(units, units[ours][:5])
    assert readout.auroc(score[asked], ours[asked]) > 0.9


def test_scores_are_cut_at_the_largest_gap():
    kept = baseline.above_largest_gap(np.array([0.1, 5.0, 0.2, 4.5, 0.4]))
    assert kept.tolist() == [False, True, False, True, False]


@pytest.mark.parametrize(("known", "unit"), [(1, "episode"), (2, "column:unit")])
def test_one_known_unit_is_decided_by_runs(known, unit):
    config = baseline.config_of("filter", TRUCKS, known, 0)
    assert config["unit"] == unit
    assert config["fleet"]["name"] == "carts-motor"
