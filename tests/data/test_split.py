import copy
import dataclasses
import json
import math

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from puorl.core import hashing
from puorl.core.errors import ConfigError, DataError
from puorl.data.dataset import Dataset
from puorl.data.draw import make_split
from puorl.data.split import PUSplit


def domain(n, mark, *, seed=0, length=50, columns=None):
    """Rows that carry their own identity: obs = (domain mark, row number)."""
    rng = np.random.default_rng([seed, mark])
    row = np.arange(n, dtype=np.float32)
    end = (np.arange(n) + 1) % length == 0
    return Dataset.from_arrays(
        obs=np.column_stack([np.full(n, mark, np.float32), row]),
        next_obs=np.column_stack([np.full(n, mark, np.float32), row + 1]),
        action=rng.uniform(-1, 1, (n, 1)).astype(np.float32),
        reward=np.ones(n, np.float32) * mark,
        terminal=np.zeros(n, bool),
        timeout=end,
        columns=columns,
    )


@pytest.fixture(scope="module")
def million():
    return domain(310_000, 0), domain(710_000, 1)


@pytest.mark.parametrize(
    ("share", "labelled", "alpha", "parts"),
    [
        (0.01, 10_000, 29 / 99, ((8_000, 792_000), (1_000, 99_000), (1_000, 99_000))),
        (0.03, 30_000, 27 / 97, ((24_000, 776_000), (3_000, 97_000), (3_000, 97_000))),
    ],
)
def test_paper_sizes(million, share, labelled, alpha, parts):
    split = make_split(*million, labelled_fraction=share, seed=0, parts="stratified")
    is_target = split.reveal("benchmark") == 0
    assert len(split.labelled) == labelled
    assert len(split.pool) == 1_000_000
    assert is_target.sum() == 300_000
    assert is_target[split.labelled].all()
    for name, (num_p, num_u) in zip(("train", "validation", "test"), parts, strict=True):
        p, u = split.part(name)
        assert (len(p), len(u)) == (num_p, num_u)
        assert is_target[u].mean() == pytest.approx(alpha, abs=1e-12)
    # A classifier that calls every unlabelled row negative scores 70.7 % and 72.2 %.
    trivial = 1 - is_target[split.unlabelled].mean()
    assert round(100 * trivial, 1) == {0.01: 70.7, 0.03: 72.2}[share]


def test_parts_are_cut_after_mixing():
    target, other = domain(4_000, 0), domain(9_000, 1)
    splits = [make_split(target, other, rows=10_000, seed=s) for s in range(30)]
    found = []
    for split in splits:
        is_target = split.reveal("benchmark") == 0
        sizes = [tuple(map(len, split.part(name))) for name in ("train", "validation", "test")]
        assert sizes == [(80, 7_920), (10, 990), (10, 990)]
        found.append(is_target[split.part("validation")[1]].mean())
        assert split.config["parts"] == "mixed"
    # Standard deviation of a draw without replacement: sqrt(a (1 - a) / 990 * 8910 / 9899).
    assert 0.6 * 0.0137 < np.std(found) < 1.5 * 0.0137
    assert abs(np.mean(found) - 29 / 99) < 4 * 0.0137 / np.sqrt(30)


def test_stratified_splits_are_those_of_earlier_versions():
    target, other = domain(4_000, 0), domain(9_000, 1)
    old = make_split(target, other, rows=10_000, seed=5, parts="stratified")
    assert old.fingerprint == "3347f5f8a0ddca816b31f12008b80607"
    assert "parts" not in old.config
    new = make_split(target, other, rows=10_000, seed=5)
    assert new.pool.fingerprint == old.pool.fingerprint
    np.testing.assert_array_equal(new.reveal("scoring"), old.reveal("scoring"))
    episodes = make_split(target, other, rows=10_000, unit="episode", seed=5)
    assert episodes.fingerprint == "e70ec235eeb9570846666ec4eb3615f9"


def test_every_row_is_drawn_at_most_once(million):
    split = make_split(*million, seed=3)
    drawn = np.unique(split.pool.obs, axis=0)
    assert len(drawn) == len(split.pool)
    assert sorted([*split.labelled, *split.unlabelled]) == list(range(len(split.pool)))


def test_target_rows_and_labels_do_not_depend_on_the_negatives():
    target = domain(4_000, 0)
    one = make_split(target, domain(9_000, 1), rows=10_000, seed=5)
    two = make_split(target, [domain(8_000, 2), domain(9_500, 3)], rows=10_000, seed=5)
    np.testing.assert_array_equal(one.pool.obs[one.labelled], two.pool.obs[two.labelled])

    def target_rows(split):
        rows = split.pool.obs[split.reveal("benchmark") == 0]
        return rows[np.argsort(rows[:, 1])]

    np.testing.assert_array_equal(target_rows(one), target_rows(two))
    other_seed = make_split(target, domain(9_000, 1), rows=10_000, seed=6)
    assert not np.array_equal(one.pool.obs[one.labelled], other_seed.pool.obs[other_seed.labelled])


def test_same_seed_same_split_other_seed_other_split():
    target, other = domain(4_000, 0), domain(9_000, 1)
    prints = {make_split(target, other, rows=10_000, seed=s).fingerprint for s in (1, 1, 2)}
    assert len(prints) == 2


def test_several_negatives_in_proportion():
    others = [domain(9_000, 1), domain(9_000, 2)]
    split = make_split(
        domain(4_000, 0), others, rows=10_000, seed=0, proportions=[3, 1], parts="stratified"
    )
    counts = np.bincount(split.reveal("benchmark"))
    assert counts.tolist() == [3_000, 5_250, 1_750]
    # Every part holds every domain in the same proportion.
    _, u = split.part("test")
    assert np.bincount(split.reveal("benchmark")[u]).tolist() == [290, 525, 175]


def test_order_of_the_pool_tells_nothing():
    split = make_split(domain(4_000, 0), domain(9_000, 1), rows=10_000, seed=0)
    truth = split.reveal("benchmark")[split.unlabelled] == 0
    halves = truth[: len(truth) // 2].mean(), truth[len(truth) // 2 :].mean()
    assert abs(halves[0] - halves[1]) < 0.03


def test_numbers_of_drawn_episodes_tell_nothing():
    target, other = domain(4_000, 0), domain(9_000, 1)
    split = make_split(target, other, rows=10_000, unit="episode", seed=0)
    truth = split.reveal("benchmark")[split.unlabelled] == 0
    ids = split.pool.episode[split.unlabelled]
    assert abs(ids[truth].mean() - ids[~truth].mean()) < 0.25 * ids.std()


def test_rows_drawn_one_by_one_share_no_episode_or_time_with_labelled_ones():
    # A labelled row in nearly every target episode would give all of them away.
    timed = [
        dataclasses.replace(d, rows=dataclasses.replace(d.rows, time=np.arange(float(len(d)))))
        for d in (domain(4_000, 0), domain(9_000, 1))
    ]
    assert timed[0].episode is not None
    pool = make_split(*timed, rows=10_000, seed=0).pool
    assert (pool.episode, pool.time) == (None, None)


def test_the_clock_of_a_drawn_episode_starts_at_zero():
    timed = [
        dataclasses.replace(d, rows=dataclasses.replace(d.rows, time=start + np.arange(len(d))))
        for start, d in ((5e5, domain(4_000, 0)), (9e8, domain(9_000, 1)))
    ]
    split = make_split(*timed, rows=10_000, unit="episode", seed=0)
    np.testing.assert_array_equal(split.pool.time, split.pool.obs[:, 1] % 50)


def test_precision_does_not_tell_the_domains_apart():
    target, other = domain(4_000, 0), domain(9_000, 1)
    wide = {k: v.astype(np.float64) for k, v in other.rows.arrays().items() if v.dtype.kind == "f"}
    wide["obs"] = wide["obs"] + 1e-12
    other = dataclasses.replace(other, rows=dataclasses.replace(other.rows, **wide))
    pool = make_split(target, other, rows=10_000, seed=0).pool
    assert {pool.obs.dtype, pool.next_obs.dtype, pool.reward.dtype} == {np.dtype(np.float32)}
    assert any("precision" in note for note in pool.provenance.notes)


def test_labelled_episodes_do_not_depend_on_the_length_of_the_others():
    target = domain(4_000, 0)
    made = [
        make_split(
            target,
            domain(9_000, 1, length=length),
            rows=10_000,
            labelled_fraction=0.1,
            unit="episode",
            seed=0,
        )
        for length in (10, 50, 450)
    ]
    rows = [split.pool.obs[split.labelled].tolist() for split in made]
    assert len(rows[0]) == 1_000  # a tenth of the pool
    assert rows[0] == rows[1] == rows[2]


def test_a_split_cannot_be_changed():
    split = make_split(domain(4_000, 0), domain(9_000, 1), rows=1_000, seed=0)
    for array in (split.labelled, split.unlabelled_part, split.reveal("benchmark")):
        with pytest.raises(ValueError, match="read-only"):
            array[0] = 1
    with pytest.raises(TypeError):
        split.config["seed"] = 1


def test_columns_that_could_tell_domains_apart_stay_behind():
    target = domain(4_000, 0, columns={"site": np.full(4_000, "A")})
    other = domain(9_000, 1, columns={"site": np.full(9_000, "B")})
    assert not make_split(target, other, rows=10_000, seed=0).pool.columns


def test_episode_unit_draws_labels_and_folds_whole_episodes():
    target, other = domain(4_000, 0), domain(9_000, 1)
    split = make_split(target, other, rows=10_000, unit="episode", seed=0)
    assert len(split.pool) == 10_000  # lengths of 50 fit exactly
    labelled = np.unique(split.pool.episode[split.labelled])
    unlabelled = np.unique(split.pool.episode[split.unlabelled])
    assert len(labelled) == 5  # max(5, 1 % of 200 episodes)
    assert not set(labelled) & set(unlabelled)
    for ids, parts in (
        (split.pool.episode[split.labelled], split.labelled_part),
        (split.pool.episode[split.unlabelled], split.unlabelled_part),
    ):
        assert {len(set(parts[ids == e])) for e in np.unique(ids)} == {1}
        assert set(parts) == set(range(5))
    many = make_split(target, other, rows=10_000, labelled_fraction=0.1, unit="episode", seed=0)
    assert len(np.unique(many.pool.episode[many.labelled])) == 20
    with pytest.raises(ConfigError, match="folds"):
        split.part("train")


def test_rows_of_a_drawn_episode_keep_their_order():
    split = make_split(domain(4_000, 0), domain(9_000, 1), rows=5_000, unit="episode", seed=0)
    for e in np.unique(split.pool.episode):
        rows = split.pool.obs[split.pool.episode == e, 1]
        assert np.all(np.diff(rows) == 1)


def test_returns_come_from_whole_episodes_before_drawing():
    split = make_split(domain(4_000, 0), domain(9_000, 2), rows=1_000, seed=0)
    assert split.returns == (0.0, 100.0)  # 50 rows of reward 0, 50 rows of reward 2
    bare = Dataset.from_arrays(obs=np.arange(20.0)[:, None], action=np.zeros((20, 1)))
    mask = np.arange(len(bare)) < 5
    assert PUSplit.from_mask(bare, labelled=mask).returns is None


@pytest.mark.parametrize("unit", ["transition", "episode"])
def test_saved_split_comes_back_and_knows_its_data(tmp_path, unit):
    target, other = domain(4_000, 0), domain(9_000, 1)
    split = make_split(target, other, rows=10_000, unit=unit, seed=0)
    split.save(tmp_path / "s")
    back = PUSplit.load(tmp_path / "s", target, other)
    assert back.fingerprint == split.fingerprint
    assert (back.unit, back.sampling, back.returns, back.config) == (
        split.unit,
        split.sampling,
        split.returns,
        split.config,
    )
    np.testing.assert_array_equal(back.reveal("scoring"), split.reveal("scoring"))
    with pytest.raises(DataError, match="already exists"):
        split.save(tmp_path / "s")
    with pytest.raises(DataError, match="hash|other data"):
        PUSplit.load(tmp_path / "s", other, target)
    with pytest.raises(DataError, match="other data"):
        PUSplit.load(tmp_path / "s", target)


def test_other_rows_of_the_same_or_another_shape_are_refused(tmp_path):
    target, other = domain(4_000, 0), domain(9_000, 1)
    make_split(
        target, other, rows=10_000, seed=np.int64(0), labelled_fraction=np.float32(0.01)
    ).save(tmp_path / "s")
    with pytest.raises(DataError, match="made from other data"):
        PUSplit.load(tmp_path / "s", target, domain(9_000, 1, seed=1))
    wide = Dataset.from_arrays(obs=np.zeros((9_001, 3)), action=np.zeros((9_001, 1)))
    with pytest.raises(DataError, match="sizes of obs and action differ"):
        PUSplit.load(tmp_path / "s", target, wide)


def test_tampered_split_is_refused(tmp_path):
    target, other = domain(4_000, 0), domain(9_000, 1)
    split = make_split(target, other, rows=10_000, seed=0)
    split.save(tmp_path / "s")
    held = dict(np.load(tmp_path / "s" / "index.npz"))
    held["labelled_part"] = held["labelled_part"][::-1]
    np.savez(tmp_path / "s" / "index.npz", **held)
    with pytest.raises(DataError, match="hash"):
        PUSplit.load(tmp_path / "s", target, other)
    (tmp_path / "s" / "split.json").write_text(json.dumps({"puorl_split": 99}))
    with pytest.raises(DataError, match="version"):
        PUSplit.load(tmp_path / "s", target, other)


def test_from_mask_and_its_file(tmp_path):
    data = domain(1_000, 0, columns={"checked": (np.arange(1_000) % 10 == 0).astype(int)})
    split = PUSplit.from_mask(data, labelled="checked == 1", sampling="two", seed=1)
    assert (len(split.labelled), len(split.unlabelled), split.sampling) == (100, 900, "two")
    assert [len(split.part(n)[0]) for n in ("train", "validation", "test")] == [80, 10, 10]
    with pytest.raises(DataError, match="unknown"):
        split.reveal("oracle")
    split.save(tmp_path / "s")
    assert PUSplit.load(tmp_path / "s", data).fingerprint == split.fingerprint
    with pytest.raises(DataError, match="fingerprint"):
        PUSplit.load(tmp_path / "s", domain(1_000, 1))


def test_from_mask_by_episode_keeps_episodes_in_one_fold():
    data = domain(1_000, 0)
    mask = np.isin(data.episode, [0, 3, 7, 8, 11, 12])
    split = PUSplit.from_mask(data, labelled=mask, unit="episode")
    ids = data.episode[split.labelled]
    assert {len(set(split.labelled_part[ids == e])) for e in np.unique(ids)} == {1}
    assert set(split.labelled_part) == set(range(5))


@pytest.mark.parametrize(
    ("labelled", "message"),
    [
        (None, "label="),
        (np.zeros(100, bool), "need at least a few labelled rows, have none"),
        (np.ones(100, bool), "need unlabelled rows"),
        (np.ones(99, bool), "one a row"),
        (np.ones(100, int), "true/false"),
    ],
)
def test_bad_masks(labelled, message):
    with pytest.raises(DataError, match=message):
        PUSplit.from_mask(domain(100, 0), labelled=labelled)


@pytest.mark.parametrize(
    ("change", "error", "message"),
    [
        ({"rows": 100_000}, DataError, "only 4,000"),
        ({"rows": "many"}, ConfigError, "whole number"),
        ({"rows": "1e60"}, ConfigError, "whole number"),
        ({"target_fraction": 1.0}, ConfigError, "target_fraction"),
        ({"labelled_fraction": 0.5}, ConfigError, "labelled_fraction"),
        ({"labelled_fraction": 1e-6}, ConfigError, "no row"),
        ({"unit": "hour"}, ConfigError, "transition, episode"),
        ({"proportions": [1, 2]}, ConfigError, "1 positive"),
    ],
)
def test_impossible_splits(change, error, message):
    arguments = {"rows": 10_000, "seed": 0} | change
    with pytest.raises(error, match=message):
        make_split(domain(4_000, 0), domain(9_000, 1), **arguments)


def test_domains_of_other_shape_are_refused():
    wide = Dataset.from_arrays(obs=np.zeros((9_000, 3)), action=np.zeros((9_000, 1)))
    with pytest.raises(DataError, match="must share"):
        make_split(domain(4_000, 0), wide, rows=5_000, seed=0)
    with pytest.raises(ConfigError, match="at least one other"):
        make_split(domain(4_000, 0), [], rows=1_000, seed=0)


@settings(max_examples=40, deadline=None)
@given(
    rows=st.integers(200, 4_000),
    target_fraction=st.floats(0.2, 0.6),
    labelled_fraction=st.floats(0.01, 0.15),
    seed=st.integers(0, 2**31),
)
def test_any_split_adds_up(rows, target_fraction, labelled_fraction, seed):
    split = make_split(
        domain(4_000, 0),
        [domain(4_000, 1), domain(4_000, 2)],
        rows=rows,
        target_fraction=target_fraction,
        labelled_fraction=labelled_fraction,
        seed=seed,
    )
    source = split.reveal("benchmark")
    assert len(split.pool) == rows
    assert (source == 0).sum() == round(rows * target_fraction)
    assert len(split.labelled) == round(rows * labelled_fraction)
    assert (source[split.labelled] == 0).all()
    np.testing.assert_array_equal(split.pool.obs[:, 0], source)


def test_a_split_travels_between_processes():
    split = make_split(domain(400, 0), domain(900, 1), rows=1_000, seed=0)
    back = copy.deepcopy(split)  # goes the way of a message between processes
    assert back.pool.obs is not split.pool.obs
    assert back.fingerprint == split.fingerprint
    assert not back.pool.obs.flags.writeable
    assert back.config == split.config
    np.testing.assert_array_equal(back.reveal("scoring"), split.reveal("scoring"))


def test_damaged_settings_are_one_line(tmp_path):
    data = domain(1_000, 0)
    split = PUSplit.from_mask(data, np.arange(1_000) < 100)
    path = split.save(tmp_path / "s") / "split.json"
    good = json.loads(path.read_text())
    del good["file_hash"]
    needed = ("unit", "sampling", "returns", "config", "index", "origin", "pool", "fingerprint")
    for name in good:
        wrong = [{k: v for k, v in good.items() if k != name}]
        wrong += [{**good, name: value} for value in (math.nan, [], {"x": [math.nan]}, "x", -1)]
        if name in needed:  # with the right hash: not damaged, but not ours either
            forged = ({**good, name: value} for value in ([], "x", -1))
            wrong += [{**each, "hash": hashing.of_settings(_without_hash(each))} for each in forged]
        for content in wrong:
            path.write_text(json.dumps(content))
            with pytest.raises(DataError, match="split"):
                PUSplit.load(tmp_path / "s", data)


def _without_hash(content):
    return {name: value for name, value in content.items() if name != "hash"}
