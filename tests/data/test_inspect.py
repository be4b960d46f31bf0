import json
import time

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from hypothesis.extra import numpy as hnp

from puorl.core.errors import DataError
from puorl.data.dataset import Dataset
from puorl.data.inspect import inspect, profile_column
from puorl.data.transitions import Transitions


def walk(n=300, *, length=100, dim=3, seed=0, **fields):
    """Clean rows: random walks, every episode cut by a timeout."""
    rng = np.random.default_rng(seed)
    path = rng.normal(size=(n + 1, dim))
    last = np.arange(n) % length == length - 1
    given = {
        "obs": path[:-1].copy(),
        "action": rng.normal(size=(n, 2)),
        "reward": rng.normal(size=n),
        "next_obs": path[1:].copy(),
        "terminal": np.zeros(n, bool),
        "timeout": last,
        "episode": np.arange(n) // length,
    }
    return {**given, **fields}


def look(**fields):
    return inspect(Dataset.from_arrays(**fields))


def texts(seen, level):
    return [finding.text for finding in seen.findings if finding.level == level]


def column(seen, name):
    return next(c for c in seen.columns if c.name == name)


def test_clean_rows_have_no_findings():
    fields = walk(time=np.arange(300) * 0.1)
    seen = look(**fields)
    assert seen.findings == ()
    assert (seen.num_rows, seen.obs_dim, seen.action_dim, seen.dtype) == (300, 3, 2, "float64")
    assert seen.episodes is not None
    assert (seen.episodes.count, seen.episodes.shortest, seen.episodes.longest) == (3, 100, 100)
    first = column(seen, "obs[0]")
    assert first.mean == pytest.approx(fields["obs"][:, 0].mean())
    assert first.std == pytest.approx(fields["obs"][:, 0].std())
    assert (first.min, first.max) == (fields["obs"][:, 0].min(), fields["obs"][:, 0].max())
    assert seen.continuity is not None
    assert (seen.continuity.num_pairs, seen.continuity.num_different) == (297, 0)


def test_constant_and_stuck_columns():
    fields = walk()
    fields["obs"][:, 1] = fields["next_obs"][:, 1] = 7.0
    fields["obs"][40:65, 2] = fields["next_obs"][39:64, 2] = fields["obs"][40, 2]
    seen = look(**fields)
    assert column(seen, "obs[1]").constant
    stuck = column(seen, "obs[2]")
    assert stuck.stuck
    assert stuck.longest_run == 25
    assert stuck.stuck_fraction == pytest.approx(25 / 300)
    assert not column(seen, "obs[0]").stuck
    assert any("constant" in text and "obs[1]" in text for text in texts(seen, "warning"))
    assert any(
        "obs[2] seems stuck" in text and "25 rows" in text for text in texts(seen, "warning")
    )


def test_runs_do_not_cross_episodes_and_clipping_is_not_stuck():
    values = np.random.default_rng(1).normal(size=400)
    values[195:205] = 0.5  # ten equal values, five on each side of a border
    follows = np.ones(399, bool)
    follows[199] = False
    assert profile_column("x", values, follows).longest_run == 5
    clipped = np.random.default_rng(1).normal(size=400).clip(-1, 1)
    clipped[100:130] = 1.0
    seen = profile_column("x", clipped, np.ones(399, bool))
    assert not seen.stuck
    assert seen.bound_fraction == pytest.approx(np.mean(np.abs(clipped) == 1))


def test_choices_are_not_stuck():
    values = np.random.default_rng(2).integers(0, 2, 20_000).astype(float)
    values[500:600] = 1.0
    assert not profile_column("x", values, np.ones(len(values) - 1, bool)).stuck


@settings(max_examples=60, deadline=None, derandomize=True)
@given(
    decimals=st.integers(0, 4),
    dtype=st.sampled_from([np.float32, np.float64]),
    whole=hnp.arrays(np.int64, 50, elements=st.integers(-9_000, 9_000)),
)
def test_rounding_is_found(decimals, dtype, whole):
    whole[:2] = 1, 2  # at least one step of one, and not constant
    values = (whole / 10.0**decimals).astype(dtype)
    seen = profile_column("x", values, None)
    assert seen.decimals is not None
    assert seen.decimals <= decimals
    assert np.allclose(np.round(values.astype(float), seen.decimals), values, rtol=1e-6)
    assert seen.step == pytest.approx(10.0**-decimals)


@pytest.mark.parametrize("dtype", [np.float32, np.float64])
@pytest.mark.parametrize("size", [1e-6, 1.0, 1e6])
def test_full_precision_is_not_rounding(dtype, size):
    values = (np.random.default_rng(0).normal(size=2_000) * size).astype(dtype)
    assert profile_column("x", values, None).decimals is None


def test_steps_other_than_powers_of_ten():
    values = np.random.default_rng(0).integers(0, 99, 500) * 0.05
    seen = profile_column("x", values, None)
    assert (seen.decimals, seen.step) == (2, pytest.approx(0.05))


def test_unknown_and_infinite_values_of_extra_columns():
    extra = np.arange(300.0) ** 1.5
    extra[[3, 4]] = np.nan
    extra[5] = np.inf
    seen = look(**walk(columns={"temperature": extra, "none": np.full(300, np.nan)}))
    c = column(seen, "temperature")
    assert (c.num_unknown, c.num_infinite, c.min, c.max) == (2, 1, 0.0, extra[-1])
    assert column(seen, "none").num_unknown == 300
    assert any("temperature" in text for text in texts(seen, "warning"))


def test_text_and_flag_columns():
    names = np.array(["A", "B", "B"])[np.arange(300) % 3]
    seen = look(**walk(columns={"robot": names, "ok": np.arange(300) < 30}))
    robot, ok = column(seen, "robot"), column(seen, "ok")
    assert (robot.kind, robot.num_distinct, robot.common) == ("text", 2, ("B", "A"))
    assert (ok.kind, ok.mean) == ("flag", pytest.approx(0.1))


def test_clock():
    stamp = np.arange(300) * 0.1
    stamp[50:] += 5.0  # a gap inside episode 0
    stamp[120] = stamp[119]  # a duplicate, and a step of 0.2 after it
    stamp[250:] -= 3.0  # back
    seen = look(**walk(time=stamp))
    assert seen.clock is not None
    assert seen.clock.step_median == pytest.approx(0.1)
    assert (seen.clock.num_gaps, seen.clock.num_resets, seen.clock.num_duplicated) == (2, 1, 1)
    assert len(texts(seen, "warning")) == 3


def test_the_borders_of_episodes_are_no_gaps():
    stamp = np.arange(300) * 0.1 + 1000 * (np.arange(300) // 100)
    seen = look(**walk(time=stamp))
    assert seen.clock is not None
    assert (seen.clock.num_gaps, seen.clock.num_resets) == (0, 0)


def test_duplicated_rows_are_counted_exactly():
    base = walk()
    chosen = np.concatenate([np.arange(300), [7, 7, 8, 250]])
    rows = {k: v[chosen] for k, v in base.items() if k != "episode"}
    seen = inspect(Dataset(Transitions(**rows)))
    assert seen.num_duplicated_rows == 4
    assert any("4 rows are exact copies" in text for text in texts(seen, "warning"))


def test_rows_that_differ_in_one_number_are_no_duplicates():
    rows = walk(n=2)
    both = {k: np.concatenate([v[:1], v[:1]]) for k, v in rows.items()}
    for name in ("obs", "action", "next_obs", "reward"):
        changed = {k: v.copy() for k, v in both.items()}
        changed[name][1] += 1e-12
        assert inspect(Dataset(Transitions(**changed))).num_duplicated_rows == 0
    signed = {k: v.copy() for k, v in both.items()}
    signed["reward"][:] = [0.0, -0.0]
    assert inspect(Dataset(Transitions(**signed))).num_duplicated_rows == 1


def test_ends():
    fields = walk()
    fields["terminal"][[99, 150]] = True  # with a timeout; inside an episode
    fields["timeout"][199] = False
    fields["timeout"][220] = True
    fields["timeout"][299] = False
    fields["next_obs"][150] = np.nan
    seen = look(**fields)
    ends = seen.ends
    assert (ends.num_terminal, ends.num_timeout, ends.num_both) == (2, 2, 1)
    assert (ends.num_terminal_inside, ends.num_timeout_inside) == (1, 1)
    assert (ends.num_open, ends.num_next_unknown) == (2, 1)
    assert any("1 row is terminal but not the last" in text for text in texts(seen, "problem"))
    assert any("2 of 3 episodes end with neither" in text for text in texts(seen, "warning"))


def test_time_limits_marked_as_terminal_are_noticed():
    fields = walk(n=1_000)
    limits = fields["timeout"]
    seen = look(**{**fields, "terminal": limits, "timeout": np.zeros(1_000, bool)})
    assert any("look like time limits" in text for text in texts(seen, "warning"))
    assert not any("limits" in f.text for f in look(**fields).findings)
    early = limits.copy()
    early[30] = True  # one episode that really ended
    fields["episode"] = np.concatenate([[0], np.cumsum(early)[:-1]])
    seen = look(**{**fields, "terminal": early, "timeout": np.zeros(1_000, bool)})
    assert not any("limits" in f.text for f in seen.findings)


def test_next_states_that_are_not_the_following_states():
    fields = walk()
    fields["next_obs"][[10, 205], 1] += [0.5, -2.0]
    seen = look(**fields)
    joint = seen.continuity
    assert joint is not None
    assert (joint.num_far, joint.num_different, joint.first_far) == (2, 2, (10, 205))
    assert joint.largest == pytest.approx(2.0)
    assert any("2 of 297 steps" in text and "10, 205" in text for text in texts(seen, "problem"))


def test_rounding_of_next_states_is_only_mentioned():
    fields = walk()
    fields["next_obs"] = fields["next_obs"].astype(np.float32).astype(np.float64)
    seen = look(**fields)
    assert seen.continuity is not None
    assert (seen.continuity.num_far, seen.continuity.num_different) == (0, 297)
    assert texts(seen, "problem") == []
    assert any("differ by rounding" in text for text in texts(seen, "info"))


def test_interleaved_episodes_are_followed_one_by_one():
    fields = walk(n=200)
    order = np.arange(200).reshape(2, 100).T.ravel()  # a row of each episode in turn
    fields["next_obs"][150] += 1.0
    seen = look(**{k: v[order] for k, v in fields.items()})
    joint = seen.continuity
    assert joint is not None
    assert (joint.num_pairs, joint.num_far, joint.in_order) == (198, 1, True)
    assert [int(order[i]) for i in joint.first_far] == [150]


def test_rows_in_random_order_are_recognised():
    order = np.random.default_rng(0).permutation(300)
    seen = look(**{k: v[order] for k, v in walk().items()})
    assert seen.continuity is not None
    assert not seen.continuity.in_order
    assert seen.ends.num_open is None
    assert any("random order" in text for text in texts(seen, "warning"))
    assert texts(seen, "problem") == []


def test_missing_fields_are_named():
    fields = walk()
    seen = look(obs=fields["obs"], action=fields["action"], episode=fields["episode"])
    assert set(seen.missing) == {"reward", "next_obs", "terminal", "timeout"}
    said = " ".join(finding.text for finding in seen.findings)
    for words in ("no reward", "no terminal flags", "no timeout flags", "no next states"):
        assert words in said


def test_labels():
    labelled = np.arange(300) < 20
    seen = look(**walk(columns={"labelled": labelled}))
    assert seen.labels is not None
    assert (seen.labels.num_rows, seen.labels.num_episodes) == (20, 1)
    assert seen.labels.fraction == pytest.approx(20 / 300)
    nobody = look(**walk(columns={"labelled": np.zeros(300, bool)}))
    assert any("no row is labelled" in text for text in texts(nobody, "problem"))


def test_json_holds_no_nan():
    seen = look(**walk(columns={"x": np.full(300, np.nan)}))
    content = json.loads(json.dumps(seen.to_dict(), allow_nan=False))
    assert content["num_rows"] == 300
    assert {c["name"]: c["mean"] for c in content["columns"]}["x"] is None


@settings(max_examples=40, deadline=None, derandomize=True)
@given(
    n=st.integers(1, 40),
    dim=st.integers(1, 3),
    seed=st.integers(0, 10_000),
    kept=st.sets(st.sampled_from(["reward", "next_obs", "terminal", "timeout", "episode"])),
)
def test_any_dataset_can_be_inspected(n, dim, seed, kept):
    fields = walk(n=n + 1, length=7, dim=dim, seed=seed, time=np.arange(n + 1.0))
    needed = {"obs", "action", "time"} | kept
    seen = look(**{k: v for k, v in fields.items() if k in needed})
    assert json.dumps(seen.to_dict(), allow_nan=False)
    order = {"problem": 0, "warning": 1, "info": 2}
    levels = [order[f.level] for f in seen.findings]
    assert levels == sorted(levels)


def test_one_row_and_no_row():
    one = Dataset.from_arrays(**walk(n=1))
    assert inspect(one).num_rows == 1
    with pytest.raises(DataError, match="at least one row"):
        inspect(one[:0])


@pytest.mark.slow
def test_a_million_rows_take_seconds():
    dataset = Dataset.from_arrays(**walk(n=1_000_000, length=1_000, dim=17))
    start = time.perf_counter()
    seen = inspect(dataset)
    assert time.perf_counter() - start < 5
    assert seen.findings == ()


def test_rows_joined_without_any_key_are_a_warning():
    obs = np.random.default_rng(0).normal(size=(9, 2))
    guessed = inspect(Dataset.from_arrays(obs=obs, action=obs))
    known = inspect(Dataset.from_arrays(obs=obs, action=obs, episode=np.zeros(9, int)))
    text = "every row is taken to follow the row before it"
    assert [f.level for f in guessed.findings if text in f.text] == ["warning"]
    assert not [f for f in known.findings if text in f.text]
