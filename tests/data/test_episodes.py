"""Rows carry their own number as state, so every next state tells which row it was taken from."""

from dataclasses import dataclass

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from puorl.core.errors import DataError
from puorl.data.dataset import Dataset
from puorl.data.episodes import complete, episode_returns, next_actions, return_range
from puorl.data.validate import canonical


def log(n, **more):
    """Flat rows without next states: obs and action hold the row number."""
    number = np.arange(float(n))[:, None]
    return {"obs": number, "action": -number, **more}


def build(n, **more):
    return complete(canonical(log(n, **more), source="here"), source="here")


def kept_rows(done):
    return done.rows.obs[:, 0].astype(int).tolist()


def next_rows(done):
    """Row number of each next state; None where it is unknown."""
    return [None if np.isnan(x) else int(x) for x in done.rows.next_obs[:, 0]]


def flags(n, *on):
    array = np.zeros(n, bool)
    array[list(on)] = True
    return array


def test_one_recording_in_order():
    done = build(4)
    assert kept_rows(done) == [0, 1, 2]
    assert next_rows(done) == [1, 2, 3]
    assert done.rows.timeout.tolist() == [False, False, True]
    assert not done.rows.terminal.any()
    assert done.rows.episode.tolist() == [0, 0, 0]
    assert done.missing == ("reward", "next_obs", "terminal", "timeout")
    assert any("taken as one episode" in note for note in done.notes)


def test_a_terminal_row_never_gets_the_next_episodes_first_state():
    done = build(5, terminal=flags(5, 2), timeout=flags(5, 4))
    assert kept_rows(done) == [0, 1, 2, 3]
    assert next_rows(done) == [1, 2, None, 4]
    assert done.rows.terminal.tolist() == [False, False, True, False]
    assert done.rows.episode.tolist() == [0, 0, 0, 1]
    assert any("unknown (NaN) in 1 terminal rows" in note for note in done.notes)


def test_a_timeout_row_is_dropped_and_the_row_before_it_is_cut():
    done = build(5, terminal=flags(5), timeout=flags(5, 2, 4))
    assert kept_rows(done) == [0, 1, 3]
    assert next_rows(done) == [1, 2, 4]
    assert done.rows.timeout.tolist() == [False, True, True]
    assert not done.rows.terminal.any()
    assert done.kept.tolist() == [0, 1, 3]


def test_stored_next_states_are_used_and_no_row_is_lost():
    n = 4
    stored = np.array([[1.0], [90.0], [3.0], [91.0]])  # 90 and 91: end states only stored here
    done = build(n, next_obs=stored, terminal=flags(n, 1), timeout=flags(n, 3))
    assert done.kept is None
    assert next_rows(done) == [1, 90, 3, 91]
    assert done.rows.episode.tolist() == [0, 0, 1, 1]
    assert done.rows.timeout.tolist() == [False, False, False, True]


def test_without_timeouts_stored_next_states_show_where_a_record_was_cut():
    stored = np.array([[1.0], [90.0], [3.0], [4.0], [5.0]])
    done = build(5, next_obs=stored, terminal=flags(5))
    assert done.rows.episode.tolist() == [0, 0, 1, 1, 1]
    assert not done.rows.timeout.any()


def test_shuffled_rows_have_no_episodes():
    done = build(4, next_obs=np.full((4, 1), 50.0))
    assert done.rows.episode is None
    assert any("episodes are unknown" in note for note in done.notes)


def test_no_transition_across_a_time_gap():
    done = build(6, time=np.array([0, 1, 2, 7, 8, 9.0]))
    assert kept_rows(done) == [0, 1, 3, 4]
    assert next_rows(done) == [1, 2, 4, 5]
    assert done.rows.timeout.tolist() == [False, True, False, True]
    assert any("1 gaps" in note for note in done.notes)


def test_a_step_of_one_and_a_half_medians_is_no_gap():
    assert len(build(5, time=np.array([0, 1, 2, 3.5, 4.5])).rows) == 4
    assert len(build(5, time=np.array([0, 1, 2, 3.6, 4.6])).rows) == 3


def test_no_transition_across_a_clock_reset():
    done = build(5, time=np.array([5, 6, 7, 0, 1.0]), episode=np.zeros(5, int))
    assert next_rows(done) == [1, 2, 4]
    assert kept_rows(done) == [0, 1, 3]
    assert any("1 clock resets" in note for note in done.notes)


def test_a_coarse_clock_is_no_break_but_noted():
    done = build(5, time=np.array([0, 0, 1, 1, 2.0]), episode=np.zeros(5, int))
    assert next_rows(done) == [1, 2, 3, 4]
    assert any("2 stamps repeat" in note for note in done.notes)


def test_a_gap_between_episodes_is_none():
    done = build(4, time=np.array([0, 1, 900, 901.0]), episode=np.array([0, 0, 1, 1]))
    assert not any("gaps" in note for note in done.notes)


def test_interleaved_episodes_follow_their_own_rows():
    done = build(6, episode=np.array(["a", "b", "a", "b", "b", "a"]))
    assert kept_rows(done) == [0, 1, 2, 3]
    assert next_rows(done) == [2, 3, 5, 4]
    assert done.rows.episode.tolist() == [0, 1, 0, 1]
    assert done.rows.timeout.tolist() == [False, False, True, True]


def test_no_two_rows_follow_each_other():
    with pytest.raises(DataError, match="here: no row has a next state"):
        build(3, episode=np.arange(3))
    with pytest.raises(DataError, match="no row has a next state"):
        build(1)


def test_a_single_terminal_row_is_a_transition():
    done = build(1, terminal=flags(1, 0))
    assert next_rows(done) == [None]
    assert done.kept is None


@dataclass
class Layout:
    """A random recording and, found by plain loops, which row follows which."""

    episode: list
    terminal: list
    timeout: list
    time: list
    successor: list


@st.composite
def layouts(draw, *, with_time):
    lengths = draw(st.lists(st.integers(1, 6), min_size=1, max_size=6))
    ids = draw(st.permutations(range(10, 10 + len(lengths))))
    queue = [[(k, step) for step in range(length)] for k, length in enumerate(lengths)]
    interleaved = draw(st.booleans())
    order = []
    while any(queue):
        alive = [k for k, rest in enumerate(queue) if rest]
        k = draw(st.sampled_from(alive)) if interleaved else alive[0]
        order.append(queue[k].pop(0))
    ends = [draw(st.sampled_from(["terminal", "timeout", "nothing"])) for _ in lengths]
    breaks = {}  # (episode, step) -> time step that leads to it
    for k, length in enumerate(lengths):
        for step in range(1, length):
            kinds = [1.0, 1.0, 1.0, 1.0, 0.0, 9.0, -4.0] if with_time else [1.0]
            breaks[k, step] = draw(st.sampled_from(kinds))
    clock = {}
    for k, length in enumerate(lengths):
        clock[k, 0] = 100.0 * k
        for step in range(1, length):
            clock[k, step] = clock[k, step - 1] + breaks[k, step]
    forward = [dt for dt in breaks.values() if dt > 0]
    limit = 1.5 * float(np.median(forward)) if forward else np.inf
    row_of = {pair: row for row, pair in enumerate(order)}
    successor = []
    for k, step in order:
        dt = breaks.get((k, step + 1))
        successor.append(row_of[k, step + 1] if dt is not None and 0 <= dt <= limit else None)
    last = [step == lengths[k] - 1 for k, step in order]
    return Layout(
        episode=[ids[k] for k, _ in order],
        terminal=[end and ends[k] == "terminal" for end, (k, _) in zip(last, order, strict=True)],
        timeout=[end and ends[k] == "timeout" for end, (k, _) in zip(last, order, strict=True)],
        time=[clock[pair] for pair in order],
        successor=successor,
    )


def check_against_truth(layout, done):
    kept = [
        row
        for row, after in enumerate(layout.successor)
        if after is not None or layout.terminal[row]
    ]
    assert kept_rows(done) == kept
    assert next_rows(done) == [layout.successor[row] for row in kept]
    assert done.rows.terminal.tolist() == [layout.terminal[row] for row in kept]
    cut = [
        after is not None and layout.successor[after] is None and not layout.terminal[after]
        for after in (layout.successor[row] for row in kept)
    ]
    flagged = [layout.timeout[row] for row in kept]
    assert done.rows.timeout.tolist() == [a or b for a, b in zip(cut, flagged, strict=True)]


@given(layouts(with_time=False))
@settings(max_examples=300)
def test_next_states_equal_the_truth_by_episode_id(layout):
    if all(after is None for after in layout.successor) and not any(layout.terminal):
        with pytest.raises(DataError, match="no row has a next state"):
            build_layout(layout, time=False)
        return
    check_against_truth(layout, build_layout(layout, time=False))


@given(layouts(with_time=True))
@settings(max_examples=300)
def test_next_states_equal_the_truth_by_id_and_clock(layout):
    if all(after is None for after in layout.successor) and not any(layout.terminal):
        with pytest.raises(DataError, match="no row has a next state"):
            build_layout(layout, time=True)
        return
    done = build_layout(layout, time=True)
    check_against_truth(layout, done)
    for row, after in zip(kept_rows(done), next_rows(done), strict=True):
        if after is not None:
            assert layout.episode[row] == layout.episode[after]


def build_layout(layout, *, time):
    n = len(layout.episode)
    more = {"time": np.array(layout.time)} if time else {}
    return build(
        n,
        episode=np.array(layout.episode),
        terminal=np.array(layout.terminal),
        timeout=np.array(layout.timeout),
        **more,
    )


@given(st.lists(st.tuples(st.integers(1, 5), st.booleans()), min_size=1, max_size=8))
@settings(max_examples=200)
def test_flags_alone_give_the_same_episodes(episodes):
    """D4RL without next states: every episode ends in a flag, and no id is given."""
    ends = np.cumsum([length for length, _ in episodes]) - 1
    n = int(ends[-1]) + 1
    terminal = flags(n, *[e for e, (_, died) in zip(ends, episodes, strict=True) if died])
    timeout = flags(n, *[e for e, (_, died) in zip(ends, episodes, strict=True) if not died])
    expected = np.repeat(np.arange(len(episodes)), [length for length, _ in episodes])
    if n == timeout.sum():
        with pytest.raises(DataError, match="no row has a next state"):
            build(n, terminal=terminal, timeout=timeout)
        return
    done = build(n, terminal=terminal, timeout=timeout)
    rows = kept_rows(done)
    assert rows == np.flatnonzero(~timeout).tolist()
    assert done.rows.episode.tolist() == expected[rows].tolist()
    assert next_rows(done) == [None if terminal[r] else r + 1 for r in rows]


@given(layouts(with_time=True))
@settings(max_examples=200)
def test_next_actions_are_those_of_the_following_row(layout):
    """Stored next states, so that no row is dropped; actions hold the negative row number."""
    n = len(layout.episode)
    stored = np.array([[-1.0 if after is None else after] for after in layout.successor])
    done = build(
        n,
        next_obs=stored,
        episode=np.array(layout.episode),
        terminal=np.array(layout.terminal),
        timeout=np.array(layout.timeout),
        time=np.array(layout.time),
    )
    found = next_actions(done.rows)[:, 0]
    expected = [np.nan if after is None else -float(after) for after in layout.successor]
    np.testing.assert_array_equal(found, expected)


def test_a_next_action_needs_the_recorded_next_state():
    done = build(3, next_obs=np.array([[1.0], [77.0], [3.0]]), episode=np.zeros(3, int))
    assert next_actions(done.rows)[:, 0].tolist()[0] == -1.0
    assert np.isnan(next_actions(done.rows)[1:]).all()


def test_next_actions_of_no_rows():
    dataset = Dataset.from_arrays(obs=np.zeros((3, 1)), action=np.zeros((3, 1)))
    assert dataset[:0].with_next_action().next_action.shape == (0, 1)


def recorded(lengths, ends, rewards):
    n = sum(lengths)
    last = np.cumsum(lengths) - 1
    flags = {name: np.zeros(n, bool) for name in ("terminal", "timeout")}
    for row, end in zip(last, ends, strict=True):
        if end:
            flags[end][row] = True
    return Dataset.from_arrays(
        obs=np.zeros((n, 1)),
        next_obs=np.zeros((n, 1)),
        action=np.zeros((n, 1)),
        reward=np.repeat(np.asarray(rewards, float), lengths),
        episode=np.repeat(np.arange(len(lengths)), lengths),
        **flags,
    ).rows


def test_only_whole_episodes_count():
    rows = recorded(
        [3, 5, 5, 2, 4], ["terminal", "timeout", None, "timeout", None], [1, 2, 9, 7, 5]
    )
    # 3 x 1 ended, 5 x 2 reached the limit; the others were cut or never finished.
    assert episode_returns(rows).tolist() == [3.0, 10.0]
    assert return_range([rows]) == (3.0, 10.0)


def test_range_is_over_all_parts_and_absent_without_episodes():
    one, two = recorded([2], ["terminal"], [1]), recorded([2], ["terminal"], [-4])
    assert return_range([one, two]) == (-8.0, 2.0)
    assert return_range([one]) is None
    bare = Dataset.from_arrays(obs=np.arange(4.0)[:, None], action=np.zeros((4, 1)))
    assert len(episode_returns(bare.rows)) == 0
