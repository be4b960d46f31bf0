"""The stored rows of the filter's tables are found by today's settings; what "told" means."""

import accuracy
import matched
import neighbours
import numpy as np
import pytest
import reward_shift
from many import best_threshold
from recorded import RESULTS, Recorded

MILLION = 1_000_000


def test_rows_of_the_papers_accuracy_tables_are_found():
    recorded = Recorded(RESULTS / "filter-accuracy.jsonl")
    cells = accuracy.classifier_accuracy()
    assert len(cells) == 56
    # Policies of Walker2d were trained again: the rows of its first version do not count.
    first = [c for c in cells if "behaviours" not in accuracy.config_of(c, MILLION, "default", 0)]
    assert {c.body for c in first} == {"hopper", "halfcheetah"}
    assert len(first) == 36
    for cell in first:
        for preset in ("default", "paper"):
            for seed in range(5):
                assert recorded.find(accuracy.config_of(cell, MILLION, preset, seed)), cell


def test_rows_of_matched_behaviour_are_found():
    recorded = Recorded(RESULTS / "filter-matched.jsonl")
    cells = [(s, "hopper", q) for s in matched.SHIFTS for q in matched.QUALITIES]
    for cell in cells:
        for preset in matched.BY_TRANSITION:
            config = matched.config_of(cell, MILLION, "transition", preset, 0)
            assert recorded.find(config), (cell, preset)


def test_rows_of_neighbours_and_of_rewards_are_found():
    recorded = Recorded(RESULTS / "filter-neighbours.jsonl")
    assert recorded.find(neighbours.config_of("hopper", "default", 200_000, 0))
    recorded = Recorded(RESULTS / "filter-reward.jsonl")
    assert recorded.find(reward_shift.config_of("hopper", "medium", "sar", MILLION, 0))


@pytest.mark.parametrize("seed", range(5))
def test_best_threshold_is_right_as_often_as_any(seed):
    rng = np.random.default_rng(seed)
    p = np.round(rng.normal(1.0, 1.0, 40), 1)  # rounded, so that scores are equal
    u = np.round(rng.normal(0.0, 1.0, 90), 1)

    def num_right(threshold):
        return int((p >= threshold).sum() + (u < threshold).sum())

    best = max(num_right(t) for t in [*p, *u, np.inf])
    assert num_right(best_threshold(p, u)) == best


def test_classifier_that_never_pays_keeps_nothing():
    assert best_threshold(np.array([0.0]), np.array([1.0, 2.0, 3.0])) == np.inf
