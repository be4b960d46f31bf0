from dataclasses import replace

import drift
import numpy as np
import pytest
from baseline import Recorded
from method import Method

PUMPS = 0


@pytest.fixture(scope="module")
def pool():
    return drift.make_pool(PUMPS)


def test_half_of_the_watched_change_and_none_of_them_is_in_the_pool(pool):
    changes = [watched.change for watched in pool.watched]
    assert len(changes) == drift.NUM_WATCHED
    assert changes.count("none") == len(changes) // 2
    assert {"step", "ramp"} < set(changes)
    names = {watched.name for watched in pool.watched}
    assert not names & set(pool.table["unit"])
    assert set(pool.table["type"][np.isin(pool.table["unit"], pool.known)]) == {"ours"}


def test_a_record_is_in_the_order_of_time_and_changes_in_its_middle(pool):
    for watched in pool.watched:
        moment = watched.data.time
        assert (np.diff(moment) > 0).all()
        assert len(moment) > 0.9 * drift.WINDOW * drift.NUM_WINDOWS
        assert (watched.begin is None) == (watched.change == "none") == (not watched.factors)
        if watched.begin is not None:
            place = np.searchsorted(moment, watched.begin) / len(moment)
            assert 0.28 < place < 0.72


def test_rows_differ_from_an_unchanged_twin_from_the_change_on(pool, monkeypatch):
    changed = pool.watched[1]
    assert changed.change == "step"
    monkeypatch.setattr(drift, "draw_kind", same_draw_without_effect(drift.draw_kind))
    twin = drift.make_pool(PUMPS).watched[1]
    moment = changed.data.time
    np.testing.assert_array_equal(moment, twin.data.time)
    before = moment < changed.begin
    np.testing.assert_array_equal(changed.data.obs[before], twin.data.obs[before])
    assert not np.array_equal(changed.data.obs[~before], twin.data.obs[~before])


def same_draw_without_effect(draw):
    def made(shift, count, rng):
        kind = draw(shift, count, rng)
        return replace(kind, factors=dict.fromkeys(kind.factors, 1.0)) if count == 1 else kind

    return made


def test_an_alarm_is_false_before_the_change_and_late_after_it(pool):
    watched = next(each for each in pool.watched if each.change == "step")
    moment = watched.data.time
    end = int(np.searchsorted(moment, watched.begin))
    late = drift.judge_alarm(watched, float(moment[end + 149]))
    assert late["detected"] is True
    assert late["delay_windows"] == 1.5
    assert late["quiet_windows"] == pytest.approx(end / drift.WINDOW - drift.NUM_FREE)
    early = drift.judge_alarm(watched, float(moment[end - 1]))
    assert early["false_alarm"] is True
    assert early["detected"] is False
    missed = drift.judge_alarm(watched, None)
    assert (missed["detected"], missed["false_alarm"]) == (False, False)


def test_without_a_change_every_alarm_is_false(pool):
    watched = next(each for each in pool.watched if each.change == "none")
    moment = watched.data.time
    alarm = drift.judge_alarm(watched, float(moment[1_999]))
    assert alarm["false_alarm"] is True
    assert alarm["detected"] is None
    assert alarm["quiet_windows"] == 10.0
    quiet = drift.judge_alarm(watched, None)
    assert quiet["false_alarm"] is False
    assert quiet["quiet_windows"] == pytest.approx(len(moment) / drift.WINDOW - drift.NUM_FREE)


def test_watches_are_recorded_once_and_counted(pool, tmp_path, monkeypatch):
    monkeypatch.setattr(drift, "make_pool", lambda _: pool)
    monkeypatch.setitem(drift.FOLLOWERS, "linear", lambda _, data: float(data.time[-1]))
    recorded = Recorded(tmp_path / "rows.jsonl")
    for _ in range(2):
        drift.measure(Method("linear"), PUMPS, recorded)
    assert len(recorded.rows) == drift.NUM_WATCHED
    found = [row["measured"] for row in recorded.rows]
    assert "False alarms per 1,000 windows" in drift.text_table(found)
    assert sum(m["false_alarm"] for m in found) == 5
    assert all(m["detected"] for m in found if m["change"] != "none")


def test_the_linear_follower_sees_most_steps(pool):
    steps = [each for each in pool.watched if each.change == "step"]
    found = [drift.judge_alarm(each, drift.follow_linear(None, each.data)) for each in steps]
    assert sum(m["detected"] for m in found) >= 2
