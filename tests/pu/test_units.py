"""Units of decision, and the threshold between target units and others."""

import dataclasses

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

import puorl
from puorl.core.errors import ConfigError, DataError
from puorl.data.dataset import Dataset
from puorl.data.split import PUSplit
from puorl.data.transitions import Provenance
from puorl.pu.config import FilterConfig, NetworkConfig
from puorl.pu.filter import DomainFilter
from puorl.pu.units import (
    NUM_FOLDS,
    Grouping,
    Unit,
    find_threshold,
    group,
    parse_unit,
    require_column,
    unusable_units,
)

EPISODE = Unit("episode")


def make(lengths, labelled, *, clock=None, order=None, columns=None):
    """A split of episodes with these lengths; ``labelled`` lists rows, ``clock`` goes from 0 up."""
    episode = np.repeat(np.arange(len(lengths)), lengths)
    n = len(episode)
    rng = np.random.default_rng(0)
    data = Dataset.from_arrays(
        obs=rng.normal(size=(n, 2)),
        action=rng.normal(size=(n, 1)),
        next_obs=rng.normal(size=(n, 2)),
        episode=episode,
        columns=columns,
    )
    if clock is not None:
        data = dataclasses.replace(
            data, rows=dataclasses.replace(data.rows, time=np.asarray(clock, np.float64))
        )
    mask = np.isin(np.arange(n), labelled)
    if order is not None:
        data, mask = data[order], mask[order]
    return PUSplit.from_mask(data, labelled=mask)


def firsts(lengths, num):
    """The first row of each of the first episodes."""
    return np.concatenate([[0], np.cumsum(lengths)])[:num]


@pytest.mark.parametrize(
    ("text", "unit"),
    [
        ("transition", Unit("transition")),
        ("episode", Unit("episode")),
        ("window:50", Unit("window", length=50)),
        ("window:007", Unit("window", length=7)),
        ("column:robot_id", Unit("column", column="robot_id")),
        ("column:a:b", Unit("column", column="a:b")),
    ],
)
def test_units_are_read(text, unit):
    assert parse_unit(text) == unit


@pytest.mark.parametrize(
    ("text", "meant"),
    [("exchanger", "column:exchanger"), ("Episode", "episode"), ("windows", "window")],
)
def test_a_unit_without_its_kind_is_refused_with_a_hint(text, meant):
    split = make([5] * 4, [0])
    with pytest.raises(ConfigError, match=rf"did you mean {meant}\?$"):
        DomainFilter(unit=text).fit(split)


@pytest.mark.parametrize("values", [["a", "", "b"], ["a", " ", "b"], [1.0, np.nan, 2.0]])
def test_rows_that_belong_to_no_unit_are_refused(values):
    split = make([4] * 6, [0], columns={"machine": np.tile(np.repeat(values, 4), 2)})
    says = r"8 empty cells in 24 rows of column 'machine', .* needed='machine'"
    with pytest.raises(DataError, match=says):
        DomainFilter(unit="column:machine").fit(split)
    with pytest.raises(DataError, match=says):
        require_column(split.pool, Unit("column", column="machine"))


def test_empty_cells_are_no_unit_without_usable_rows(tmp_path):
    (tmp_path / "log.csv").write_text("obs,act,machine\n0,0,a\n1,1,a\n2,0,\n3,1,b\n4,1,b\n5,0,c\n")
    data = puorl.load(tmp_path / "log.csv", needed="machine", missing="drop")
    assert unusable_units(data, Unit("column", column="machine")) == ["c"]


@pytest.mark.parametrize(
    "text",
    ["", "row", "Episode", "window", "window:", "window:0", "window:-3", "window:2.5", "window: 5"]
    + ["window:5\n", "window:1234567890", "column", "column:", "episode:3"],
)
def test_unknown_units_are_refused(text):
    with pytest.raises(ConfigError, match=r"window:N .* or column:NAME, got"):
        parse_unit(text)


def test_units_without_usable_rows_are_known_by_name(tmp_path):
    unit = Unit("column", column="pump")

    def table(name, *rows):
        path = tmp_path / name
        lines = [f"{pump},{run},{k},0.5,{k}" for k, (pump, run) in enumerate(rows)]
        path.write_text("\n".join(["pump,run,code,act_0,obs_0", *lines]) + "\n")
        return str(path)

    rows = [("P-1", "a"), ("P-1", "a"), ("P-2", "b"), ("P-3", "c"), ("P-3", "c"), ("P-4", "d")]
    one = puorl.load(table("one.csv", *rows), episode="run")
    assert unusable_units(one, unit) == ["P-2", "P-4"]
    assert unusable_units(one, Unit("column", column="code")) == ["1", "2", "4", "5"]
    assert Provenance.from_dict(one.provenance.to_dict()) == one.provenance
    assert unusable_units(puorl.load(puorl.save(one, tmp_path / "one.npz")), unit) == ["P-2", "P-4"]
    other = table("other.csv", ("P-2", "b"), ("P-2", "b"), ("P-5", "e"))
    both = puorl.load([str(tmp_path / "one.csv"), other], episode="run")
    assert unusable_units(both, unit) == ["P-4", "P-5"]
    whole = puorl.load(table("whole.csv", *rows[:2]), episode="run")
    assert (unusable_units(whole, unit), whole.provenance.emptied) == ([], (("code", "1"),))
    assert unusable_units(one, EPISODE) == []
    with pytest.raises(DataError, match="emptied cannot be"):
        Provenance.from_dict({"emptied": [["pump"]]})


def test_mean_over_units():
    number = np.array([0, 1, 0, 2, 1, 2, 3])
    every = np.zeros(7, np.int64)
    grouping = Grouping(number, every > 0, number, every, 0)
    value = np.array([1.0, 2.0, 4.0, np.nan, 6.0, np.nan, np.nan])
    value[5] = 8.0
    expected = [2.5, 4.0, 2.5, 8.0, 4.0, 8.0, np.nan]
    np.testing.assert_array_equal(grouping.mean(value), expected)


def test_episodes_are_units_and_folds_keep_them_whole():
    lengths = [3, 1, 4, 2, 5, 2, 3, 3, 1, 2, 4, 2]
    split = make(lengths, firsts(lengths, 6))
    made = group(split, EPISODE, seed=0)
    np.testing.assert_array_equal(made.number, split.pool.episode)
    np.testing.assert_array_equal(made.cluster, split.pool.episode)
    np.testing.assert_array_equal(made.labelled, split.pool.episode < 6)
    folds = [np.unique(made.fold[made.number == k]) for k in range(len(lengths))]
    assert all(len(fold) == 1 for fold in folds)
    # Labelled and unlabelled episodes are spread evenly, each for themselves.
    for part in (folds[:6], folds[6:]):
        counts = np.bincount(np.concatenate(part), minlength=NUM_FOLDS)
        assert len(counts) == NUM_FOLDS
        assert counts.max() - counts.min() == 1


def test_folds_are_those_of_the_seed():
    lengths = [2] * 60
    split = make(lengths, firsts(lengths, 20))
    one, same, other = (group(split, EPISODE, seed=seed).fold for seed in (0, 0, 1))
    np.testing.assert_array_equal(one, same)
    assert (one != other).any()


@pytest.mark.parametrize(
    ("length", "sizes"),
    [
        (4, [[4, 4], [4, 5], [4, 4, 2], [4, 4, 3], [1], [3], [5], [4, 2]]),
        (3, [[3, 3, 2], [3, 3, 3], [3, 3, 4], [3, 3, 3, 2], [1], [3], [3, 2], [3, 3]]),
        (1, [[1] * 8, [1] * 9, [1] * 10, [1] * 11, [1], [1] * 3, [1] * 5, [1] * 6]),
        (100, [[8], [9], [10], [11], [1], [3], [5], [6]]),
    ],
)
def test_windows_and_their_rests(length, sizes):
    lengths = [8, 9, 10, 11, 1, 3, 5, 6]
    made = group(make(lengths, firsts(lengths, 5)), Unit("window", length=length), seed=0)
    np.testing.assert_array_equal(np.bincount(made.number), np.concatenate(sizes))
    assert (np.diff(made.number) >= 0).all()  # numbered in order here: rows stand in order
    np.testing.assert_array_equal(made.cluster, np.repeat(np.arange(8), lengths))


def test_windows_follow_the_clock_and_not_the_place():
    lengths = [6] * 7
    clock = np.tile(np.arange(6), 7)
    order = np.random.default_rng(1).permutation(42)
    window = Unit("window", length=3)
    straight = group(make(lengths, firsts(lengths, 5), clock=clock), window, seed=0)
    shuffled = group(make(lengths, firsts(lengths, 5), clock=clock, order=order), window, seed=0)
    for name in ("number", "labelled", "cluster", "fold"):
        np.testing.assert_array_equal(getattr(shuffled, name), getattr(straight, name)[order])
    backwards = group(make(lengths, firsts(lengths, 5), clock=clock[::-1]), window, seed=0)
    np.testing.assert_array_equal(backwards.number[:6], [1, 1, 1, 0, 0, 0])


@given(
    lengths=st.lists(st.integers(1, 40), min_size=7, max_size=12),
    length=st.integers(1, 25),
    seed=st.integers(0, 5),
)
def test_windows_stay_in_their_episode_and_near_their_length(lengths, length, seed):
    n = sum(lengths)
    clock = np.concatenate([np.arange(size) for size in lengths])
    order = np.random.default_rng(seed).permutation(n)
    split = make(lengths, firsts(lengths, 5), clock=clock, order=order)
    made = group(split, Unit("window", length=length), seed=seed)
    np.testing.assert_array_equal(np.unique(made.number), np.arange(made.number.max() + 1))
    for number in np.unique(made.number):
        mine = made.number == number
        [episode] = np.unique(split.pool.episode[mine])  # never two
        [fold] = np.unique(made.fold[mine])
        assert 0 <= fold < NUM_FOLDS
        size = mine.sum()
        assert size < 1.5 * length
        assert size >= length / 2 or size == lengths[episode]
        # Steps of a window follow one another.
        assert np.ptp(split.pool.rows.time[mine]) == size - 1
    for episode in range(len(lengths)):
        assert len(np.unique(made.fold[split.pool.episode == episode])) == 1


def test_windows_of_labelled_rows_alone_are_known():
    lengths = [10] * 8
    labelled = np.arange(5) * 10  # one row each, in the first window of five episodes
    made = group(make(lengths, labelled), Unit("window", length=5), seed=0)
    assert made.labelled.sum() == 5 * 5
    assert made.num_scattered == 5 * 4
    known = made.labelled.reshape(8, 10)
    assert known[:5, :5].all()
    assert not known[:5, 5:].any()
    assert not known[5:].any()


def test_columns_of_text_are_units():
    robot = np.array(["b7", "a1", "c", "d", "e", "f", "g"])[np.arange(70) % 7]
    split = make([10] * 7, np.flatnonzero(robot < "f")[:12], columns={"robot": robot})
    made = group(split, Unit("column", column="robot"), seed=0)
    assert len(np.unique(made.number)) == 7
    for name in np.unique(robot):
        [number] = np.unique(made.number[robot == name])
        assert (robot[made.number == number] == name).all()
        assert len(np.unique(made.fold[robot == name])) == 1
    np.testing.assert_array_equal(made.labelled, robot < "f")
    assert made.num_scattered == (robot < "f").sum() - 12


def test_columns_need_no_episodes():
    split = make([10] * 7, np.arange(5) * 10, columns={"robot": np.repeat(np.arange(7), 10)})
    rows = dataclasses.replace(split.pool.rows, episode=None)
    bare = dataclasses.replace(split, pool=dataclasses.replace(split.pool, rows=rows))
    made = group(bare, Unit("column", column="robot"), seed=0)
    assert made.labelled.sum() == 50
    with pytest.raises(DataError, match="unit episode: expected rows with episode ids, got none"):
        group(bare, EPISODE, seed=0)
    with pytest.raises(DataError, match="unit window: expected rows with episode ids"):
        group(bare, Unit("window", length=5), seed=0)


def test_unknown_columns_are_refused():
    split = make([4] * 8, firsts([4] * 8, 5), columns={"robot": np.arange(32), "site": np.ones(32)})
    with pytest.raises(DataError, match="column:leg: expected one of robot, site, got 'leg'"):
        group(split, Unit("column", column="leg"), seed=0)
    with pytest.raises(DataError, match=r"the columns \(none\)"):
        group(make([4] * 8, [0]), Unit("column", column="leg"), seed=0)


@pytest.mark.parametrize(("labelled", "unlabelled"), [(1, 7), (7, 1), (8, 0)])
def test_too_few_units_of_either_kind(labelled, unlabelled):
    lengths = [4] * 8
    with pytest.raises(DataError, match=f"got {labelled} and {unlabelled}; label rows in more"):
        group(make(lengths, firsts(lengths, labelled)), EPISODE, seed=0)


def test_rows_that_nobody_parted_into_units():
    with pytest.raises(DataError, match="several episodes, got all in one; name the column"):
        group(make([32], [0, 1]), EPISODE, seed=0)


@pytest.mark.parametrize("num_labelled", [2, 3, 5, 6])
def test_few_units_make_few_folds_each_with_both_kinds(num_labelled):
    lengths = [4] * 8
    made = group(make(lengths, firsts(lengths, num_labelled)), EPISODE, seed=0)
    wanted = np.arange(min(NUM_FOLDS, num_labelled, 8 - num_labelled))
    np.testing.assert_array_equal(np.unique(made.fold[made.labelled]), wanted)
    np.testing.assert_array_equal(np.unique(made.fold[~made.labelled]), wanted)


def test_scattered_labels_make_whole_units_known(world):
    both = Dataset.concatenate(
        [world(400, 0.0, seed=1, length=20), world(400, 2.0, seed=2, length=20)]
    )
    labelled = np.arange(0, 200, 20)  # one row in each of ten episodes
    split = PUSplit.from_mask(both, labelled=np.isin(np.arange(800), labelled))
    config = FilterConfig(
        learner="pvu",
        network=NetworkConfig(hidden=(16,), batch_size=64),
        residuals=None,
        num_warm_up=60,
        num_main=0,
    )
    assert group(split, EPISODE, seed=0).num_scattered == 200 - 10
    fitted = DomainFilter(unit="episode", evidence="rows", config=config).fit(split, seed=0)
    score = fitted.predict_proba(split)
    known, ours = split.unlabelled < 200, split.unlabelled < 400
    assert (score[known] == 1).all()
    assert fitted.predict(split)[known].all()
    assert score[ours & ~known].min() > score[~ours].max()
    # Rows of an episode stand and fall together.
    episode = both.episode[split.unlabelled]
    assert all(len(np.unique(score[episode == k])) == 1 for k in np.unique(episode))


def drawn(gap, num_p, *, seed, num_u=1_000, alpha=0.3):
    rng = np.random.default_rng([seed, num_p])
    is_target = rng.random(num_u) < alpha
    mean_u = gap * is_target + rng.normal(size=num_u)
    return gap + rng.normal(size=num_p), mean_u, is_target


@pytest.mark.parametrize(("gap", "num_p", "right"), [(12, 5, 0.95), (8, 10, 0.98), (4, 50, 0.95)])
def test_separate_units_are_decided_by_few_labelled_ones(gap, num_p, right):
    accuracy, error = [], []
    for seed in range(20):
        mean_p, mean_u, is_target = drawn(gap, num_p, seed=seed)
        # The rough alpha is off by a third, as few labelled units make it.
        found = find_threshold(mean_p, mean_u, np.ones(len(mean_u)), alpha=0.2)
        accuracy.append(((mean_u >= found.logit) == is_target).mean())
        error.append(abs(found.alpha - is_target.mean()))
    assert np.mean(accuracy) > right
    assert np.median(error) < 0.02


def test_alpha_is_of_rows_not_of_units():
    mean_p = np.full(10, 5.0)
    mean_u = np.repeat([5.0, -5.0], [10, 30])
    num_rows = np.repeat([90, 10], [10, 30])  # a quarter of the units, three quarters of the rows
    found = find_threshold(mean_p, mean_u, num_rows, alpha=0.25)
    assert -5 < found.logit < 5
    assert found.alpha == pytest.approx(0.75)


def test_scale_and_offset_of_logits_do_not_matter():
    mean_p, mean_u, _ = drawn(6, 12, seed=3)
    rows = np.ones(len(mean_u))
    plain = find_threshold(mean_p, mean_u, rows, alpha=0.3)
    moved = find_threshold(7 * mean_p - 2, 7 * mean_u - 2, rows, alpha=0.3)
    assert moved.logit == pytest.approx(7 * plain.logit - 2, abs=1e-6)
    assert moved.alpha == plain.alpha


def test_ends():
    same = find_threshold(np.zeros(5), np.zeros(9), np.ones(9), alpha=0.9)
    assert (same.logit, same.alpha) == (0.0, 1.0)  # all alike: all kept
    every = find_threshold(np.array([4.0, 5.0, 6.0]), np.array([4.5, 5.5]), np.ones(2), alpha=0.999)
    assert every.alpha == 1.0
    none = find_threshold(np.full(6, 9.0), np.linspace(-2, -1, 50), np.ones(50), alpha=0.0)
    assert none.alpha == 0.0
    one = find_threshold(np.full(6, 9.0), np.array([9.0]), np.ones(1), alpha=0.999)
    assert one.logit <= 9.0
