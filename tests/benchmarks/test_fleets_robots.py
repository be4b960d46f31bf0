import json

import numpy as np
import pytest
import robots
from baseline import Recorded
from method import METHODS, Decision, Method

CELLS = robots.all_cells()


@pytest.fixture(scope="module")
def cache(tmp_path_factory):
    return tmp_path_factory.mktemp("robots")


@pytest.fixture(scope="module")
def two_drivers(cache):
    # A hopper falls: several episodes in few rows.
    return robots.collect(CELLS["drivers/hopper/mass:torso=0.5"], 3_000, cache)


@pytest.fixture(scope="module")
def one_policy(cache):
    return robots.collect(CELLS["policy/hopper/body_mass/random"], 3_000, cache)


def test_cells_cover_the_questions_and_ten_of_two_drivers_are_held_out():
    one = [cell for cell in CELLS.values() if cell.question == "policy"]
    two = [cell for cell in CELLS.values() if cell.question == "drivers"]
    assert len(one) == 3 * 5 * 2
    assert len(two) == 18
    assert sum(cell.held_out for cell in two) == 10
    assert {cell.shift for cell in one if cell.held_out} == {"friction=0.5", "mass:torso=1.5"}


def test_all_four_parts_are_there_and_order_says_nothing(two_drivers):
    part = two_drivers.part
    assert set(part) == {"ours/A", "ours/B", "other/A", "other/B"}
    assert (np.diff((part == "ours/A").astype(int)) != 0).sum() >= 4
    assert set(two_drivers.data.columns) <= {"unit", "source_row"}
    units = np.unique(two_drivers.data.columns["unit"])
    np.testing.assert_array_equal(units, two_drivers.units)


def test_episodes_are_whole(one_policy):
    data = one_policy.data
    last = np.flatnonzero(np.diff(data.episode, append=-1))
    assert data.terminal[last].all()
    assert not data.timeout.any()
    same = data.episode[1:] == data.episode[:-1]
    np.testing.assert_array_equal(data.next_obs[:-1][same], data.obs[1:][same])


def test_an_episode_keeps_its_domain_under_its_new_name(one_policy, cache):
    cell = CELLS["policy/hopper/body_mass/random"]
    own = robots._play(cell, "nominal", None, 900, cache)
    starts = {row.tobytes() for row in own.obs}
    unit = np.asarray(one_policy.data.columns["unit"])
    for name, part in zip(one_policy.units, one_policy.part, strict=True):
        first = one_policy.data.obs[unit == name][0]
        assert (first.tobytes() in starts) == (part == "ours/A")


def test_known_episodes_are_of_our_first_driver(two_drivers, one_policy):
    cell = CELLS["drivers/hopper/mass:torso=0.5"]
    task = robots.draw_task(cell, two_drivers, 0)
    assert len(task.known) == robots.NUM_KNOWN
    assert set(two_drivers.part[np.isin(two_drivers.units, task.known)]) == {"ours/A"}
    other = robots.draw_task(cell, two_drivers, 1)
    assert set(task.known) != set(other.known)
    few = robots.draw_task(CELLS["policy/hopper/body_mass/random"], one_policy, 0)
    unit = np.asarray(one_policy.data.columns["unit"])
    assert np.isin(unit, few.known).mean() >= robots.LABELLED_FRACTION
    assert np.isin(unit, few.known[:-1]).mean() < robots.LABELLED_FRACTION


def test_kept_fractions_and_areas_are_recorded_by_part(two_drivers, tmp_path, monkeypatch):
    def by_driver(_, data, tasks):
        units = np.unique(data.columns["unit"])
        kept = np.char.endswith(two_drivers.part, "A")
        probability = kept.astype(float)
        return [Decision(units, probability, kept, 0.0, probability=probability) for _ in tasks]

    monkeypatch.setitem(METHODS, "linear", by_driver)
    recorded, cell = Recorded(tmp_path / "rows.jsonl"), CELLS["drivers/hopper/mass:torso=0.5"]
    for _ in range(2):
        robots.measure(Method("linear"), cell, two_drivers, 3_000, range(2), recorded)
    assert len(recorded.rows) == 2
    measured = recorded.rows[0]["measured"]
    assert measured["kept"] == {"ours/A": 1.0, "ours/B": 0.0, "other/A": 1.0, "other/B": 0.0}
    assert measured["auroc_between"]["ours/B, other/A"] == 0.0
    assert measured["auroc_between"]["ours/A, other/B"] == 1.0
    assert measured["auroc_between"]["ours/B, other/B"] == 0.5
    json.dumps(measured)
