from dataclasses import replace

import numpy as np

from puorl.pu.checks.auroc import MOST_DOUBTFUL, doubtful_episodes
from puorl.pu.units import parse_unit

SIZE = 50


def judged_by_mean(draw, mean, *, threshold=0.5):
    """Unlabelled episodes with the given mean scores, labelled rows first."""
    judged = draw(np.random.default_rng(0), 4, num_p=100, num_u=SIZE * len(mean)).scores
    score = np.repeat(np.array(mean, np.float32), SIZE)
    return replace(judged, score_u=score, kept_u=score >= threshold)


def split_of(pool, num_episodes, columns=None):
    rng = np.random.default_rng(0)
    return pool(rng, num_p=100, num_t=0, num_o=SIZE * num_episodes, size=SIZE, columns=columns)


def listed(split, judged, kept, unit="transition"):
    return doubtful_episodes(split, judged, kept, unit=parse_unit(unit))


def test_nearest_the_decision_first(pool, draw):
    judged = judged_by_mean(draw, [0.01, 0.3, 0.52, 0.99, 0.2])
    found = listed(split_of(pool, 5), judged, judged.kept_u)
    # The labelled rows are episodes 0 and 1.
    assert [each.episode for each in found] == ["4", "3", "6"]
    assert found[0].num_rows == SIZE
    assert found[0].kept_fraction == 1
    assert abs(found[0].mean_score - 0.52) < 1e-6


def test_decision_elsewhere(pool, draw):
    judged = judged_by_mean(draw, [0.05, 0.88, 0.92, 0.5], threshold=0.9)
    found = listed(split_of(pool, 4), judged, judged.kept_u)
    assert {each.episode for each in found[:2]} == {"3", "4"}


def test_at_most_a_dozen(pool, draw):
    judged = judged_by_mean(draw, np.linspace(0.3, 0.7, 40))
    assert len(listed(split_of(pool, 40), judged, judged.kept_u)) == MOST_DOUBTFUL


def test_clear_episodes_need_no_look(pool, draw):
    judged = judged_by_mean(draw, [0.001, 0.999])
    assert listed(split_of(pool, 2), judged, judged.kept_u) == ()


def test_no_episodes_no_list(clear_split, draw):
    assert clear_split.pool.episode is None
    judged = judged_by_mean(draw, [0.5, 0.5])
    assert listed(clear_split, judged, np.ones(len(clear_split.unlabelled), bool)) == ()


def test_everything_kept(pool, draw):
    judged = judged_by_mean(draw, [0.6, 0.99], threshold=0.0)
    found = listed(split_of(pool, 2), judged, judged.kept_u)
    assert [each.episode for each in found] == ["2"]


def test_the_kept_fraction_is_what_the_filter_keeps(pool, draw):
    judged = judged_by_mean(draw, [0.45, 0.55])
    kept = np.arange(2 * SIZE) % 5 == 0  # not what the held-out networks would keep
    found = listed(split_of(pool, 2), judged, kept)
    assert [each.kept_fraction for each in found] == [0.2, 0.2]


def test_a_text_column_that_names_each_episode_is_used(pool, draw):
    judged = judged_by_mean(draw, [0.45, 0.55])
    number = np.arange(4 * SIZE) // SIZE
    columns = {
        "site": np.array(["north"] * (4 * SIZE)),
        "part": np.arange(4 * SIZE).astype(str),
        "run": np.array(["a", "b", "c 3", "d"])[number],
    }
    found = listed(split_of(pool, 2, columns), judged, judged.kept_u)
    assert {each.episode for each in found} == {"c 3", "d"}
    del columns["run"]
    found = listed(split_of(pool, 2, columns), judged, judged.kept_u)
    assert {each.episode for each in found} == {"2", "3"}


def test_values_of_a_column_where_they_are_decided_about(pool, draw):
    judged = judged_by_mean(draw, [0.45, 0.55, 0.001])
    robot = np.repeat(["ours", "r1", "r2"], [100, 2 * SIZE, SIZE])
    split = split_of(pool, 3, {"robot": robot})
    [found] = listed(split, judged, judged.kept_u, "column:robot")
    assert (found.episode, found.num_rows, found.kept_fraction) == ("r1", 2 * SIZE, 0.5)
