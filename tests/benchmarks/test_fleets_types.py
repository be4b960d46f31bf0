import named_types
import numpy as np
import pytest
from draws import draw_fleet
from named_types import Question, grouped, num_found, purity, rand_index, told_of

from puorl.pu.machines.mixture import SEEN

TRUTH = np.array([0, 0, 0, 1, 1, 1, 2, 2])


def test_the_same_groups_by_other_numbers_match_wholly():
    same = np.array([5, 5, 5, -1, -1, -1, 0, 0])
    assert purity(same, TRUTH) == 1.0
    assert rand_index(same, TRUTH) == 1.0
    assert rand_index(np.zeros(8, int), np.zeros(8, int)) == 1.0


def test_one_group_is_as_pure_as_the_largest_type_and_no_better_than_chance():
    assert purity(np.zeros(8, int), TRUTH) == 3 / 8
    assert rand_index(np.zeros(8, int), TRUTH) == 0.0
    found = np.random.default_rng(0).integers(0, 3, (200, 30))
    truth = np.repeat(np.arange(3), 10)
    assert abs(np.mean([rand_index(each, truth) for each in found])) < 0.02


def test_the_adjusted_rand_index_of_a_known_example():
    # Of 28 pairs, 7 are together in either, and 5 in both.
    found = np.array([0, 0, 0, 1, 1, 2, 2, 2])
    agree, one, two, every = 5.0, 7.0, 7.0, 28.0
    expected = (agree - one * two / every) / ((one + two) / 2 - one * two / every)
    assert rand_index(found, TRUTH) == pytest.approx(expected)


def test_types_count_where_they_are_seen():
    row = {"cluster": [0, 1, 2, -1], "gain": SEEN}
    assert num_found(row) == 3
    assert num_found(row | {"gain": SEEN - 0.1}) == 1
    assert grouped(row | {"gain": SEEN - 0.1}).tolist() == [0, 0, 0, 0]


def test_told_classes_are_those_of_the_units_that_were_asked_about():
    row = {
        "label": [0, -1, 1, -1, -1],
        "truth": [0, 0, 2, 2, 1],
        "cluster": [0, 0, 1, 2, -1],
        "classes": [[1, 0, 0], [0.9, 0.1, 0], [0, 1, 0], [0, 0.3, 0.7], [0, 0, 1]],
        "in_doubt": [0, 1, 0, 1, 0],
    }
    told = told_of(row, (0, 2))
    assert told.told.tolist() == [0, 2, 2]
    assert told.right.tolist() == [0, 1, 2]
    assert told.chance.tolist() == [0.9, 0.7, 1.0]
    assert told.in_doubt.tolist() == [True, True, False]


def test_known_units_are_of_the_types_that_are_asked_and_known_once():
    asked = Question("twice", (0, 2, 2), 1)
    label = named_types.draw_known(asked, TRUTH, np.random.default_rng(0))
    assert np.bincount(label[label >= 0]).tolist() == [1, 1, 1]
    assert TRUTH[label == 0].tolist() == [0]
    assert (TRUTH[label > 0] == 2).all()


def test_a_type_is_left_without_a_name_where_there_are_three():
    for seed in range(20):
        fleet = draw_fleet(seed)
        asked = {question.name: question for question in named_types.questions(fleet)}
        assert ("unnamed" in asked) is (len(fleet.kinds) > 2)
        assert asked["named-2"].kinds == tuple(range(len(fleet.kinds)))
        if "unnamed" in asked:
            assert len(asked["unnamed"].kinds) == len(fleet.kinds) - 1
            assert asked["unnamed"].kinds[0] == 0
