"""Cells that train together: who joins whom, and that joining changes nothing but the time."""

import dataclasses
import gc
import json
import sys
import weakref
from pathlib import Path

import numpy as np
import pytest

sys.path.insert(0, str(Path(__file__).parent))
from small_suite import BUDGET, LEARNER, killed_while_training, numbers, small

from puorl.bench import group as groups
from puorl.bench.batch import RunContext
from puorl.bench.plan import make_batches, make_plan, plan_status
from puorl.bench.runner import run
from puorl.bench.settings import Setting
from puorl.bench.store import Store
from puorl.bench.suites import LearnerChoice, MethodChoice, Part, Suite, find_suite
from puorl.core.errors import ConfigError
from puorl.rl import trainer


def sizes(plan, most_lanes):
    """Trainings of every batch that no earlier one has, and its cells."""
    seen, found = set(), []
    for batch in make_batches(plan, most_lanes):
        own = {r.expected_training for cell in batch.cells for r in plan.runs_of(cell)}
        found.append((len(own - seen), len(batch.cells)))
        seen |= own
    return found


def test_settings_of_one_shape_join_up_to_the_limit():
    plan = make_plan(find_suite("control+core"), seeds=5)
    assert sizes(plan, None) == [(n, 1) for n in (25, 30, 20, 30, 20, 30, 20, 20, 20)]
    assert sizes(plan, 80) == [(75, 3), (80, 3), (60, 3)]
    # Hopper's rows have another shape than those of the others.
    assert sizes(plan, 10_000) == [(75, 3), (140, 6)]
    assert [cell for batch in make_batches(plan, 80) for cell in batch.cells] == list(plan.cells)


def test_another_learner_is_another_batch():
    parts = tuple(
        Part(
            Setting("body_mass", "hopper", "ME/ME", 0.05, rows=600), learner, (MethodChoice("olp"),)
        )
        for learner in (LEARNER, LearnerChoice("bc", settings={"hidden": (8,), "batch_size": 8}))
    )
    batches = make_batches(make_plan(Suite("two", "", parts, BUDGET), seeds=1), 40)
    assert [len(batch.cells) for batch in batches] == [1, 1]


def test_a_setting_that_stands_twice_does_not_wait_for_itself():
    setting = Setting("body_mass", "hopper", "ME/ME", 0.05, rows=600)
    parts = tuple(Part(setting, LEARNER, (MethodChoice(name),)) for name in ("olp", "oracle"))
    batches = make_batches(make_plan(Suite("twice", "", parts, BUDGET), seeds=1), 40)
    assert [len(batch.cells) for batch in batches] == [1, 1]


def test_joined_suites_have_each_part_once():
    joined = find_suite("core+paper")
    assert joined.parts == find_suite("paper").parts
    assert joined.name == "core+paper"
    with pytest.raises(ConfigError, match="one budget"):
        find_suite("core+smoke")
    with pytest.raises(ConfigError, match="got 'nothing'"):
        find_suite("core+nothing")


# ------------------------------------------------------------------------------- trained together


def two_bodies():
    """HalfCheetah and Walker2d, whose rows have one shape, each with two kinds of others."""
    methods = tuple(MethodChoice(name) for name in ("olp", "sharing_all", "oracle"))
    settings = [
        Setting("body_mass", body, quality, 0.05, rows=600)
        for body in ("halfcheetah", "walker2d")
        for quality in ("ME/ME", "ME/R")
    ]
    return Suite("bodies", "", tuple(Part(s, LEARNER, methods) for s in settings), BUDGET)


@pytest.fixture(scope="module")
def apart(tmp_path_factory):
    """Every cell alone."""
    out = tmp_path_factory.mktemp("apart")
    plan = make_plan(two_bodies(), seeds=2)
    with pytest.MonkeyPatch.context() as patch:
        patch.setenv("PUORL_CACHE", str(tmp_path_factory.getbasetemp() / "puorl-cache"))
        run(plan, out)
    return out, plan


def close(ours, theirs):
    assert set(ours) == set(theirs)
    for key, row in ours.items():
        other = theirs[key]
        assert {n: row[n] for n in ("training", "error", "num_rows", "content_hash")} == {
            n: other[n] for n in ("training", "error", "num_rows", "content_hash")
        }
        np.testing.assert_allclose(row["scores"], other["scores"], rtol=1e-3, atol=1e-3)
        np.testing.assert_allclose(row["curve"], other["curve"], rtol=1e-3, atol=1e-3)


def test_together_they_learn_what_they_learn_apart(apart, tmp_path):
    reference, plan = apart
    done = run(plan, tmp_path, lanes=40)
    assert (done.num_trained, done.num_copied, done.num_failed) == (16, 8, 0)
    rows = Store(tmp_path).rows()
    assert {row["group"] for row in rows} == {make_batches(plan, 40)[0].id + "-001"}
    assert {row["seconds"]["lanes"] for row in rows} == {16}
    close(numbers(tmp_path), numbers(reference))
    policies = list(tmp_path.glob("groups/*/run/policies/*"))
    assert len(policies) == 16


def test_a_batch_larger_than_the_limit_trains_in_turns(apart, tmp_path):
    reference, plan = apart
    run(plan, tmp_path, lanes=6)
    assert {row["seconds"]["lanes"] for row in Store(tmp_path).rows()} == {6, 2}
    close(numbers(tmp_path), numbers(reference))


def test_a_killed_batch_goes_on_with_the_same_lanes(apart, tmp_path):
    reference, plan = apart
    with killed_while_training(after=6):
        run(plan, tmp_path, lanes=40)
    run(plan, tmp_path, lanes=40)
    [record] = [json.loads(p.read_text()) for p in tmp_path.glob("groups/*/run/record.json")]
    assert record["resumed"] == [{"group": 0, "step": 6, "resumed": "bitwise"}]
    close(numbers(tmp_path), numbers(reference))


def test_a_killed_batch_keeps_nobody_waiting_who_asks_for_less(apart, tmp_path):
    reference, plan = apart
    with killed_while_training():
        run(plan, tmp_path, lanes=40)
    run(plan, tmp_path)  # every cell alone: none of them can go on with the whole batch's group
    close(numbers(tmp_path), numbers(reference))


def test_a_broken_set_of_one_cell_leaves_the_others_alone(tmp_path, monkeypatch):
    from puorl.methods import METHODS, MethodEntry

    monkeypatch.setitem(METHODS, "unusable", MethodEntry("small_suite.Unusable"))
    plan = make_plan(small("olp", "unusable"), seeds=1)
    done = run(plan, tmp_path, lanes=40)
    assert (done.num_trained, done.num_copied, done.num_failed) == (1, 1, 2)


def test_settings_of_one_name_are_told_apart_by_the_whole_id(tmp_path):
    plan = make_plan(small("olp", qualities=("ME/ME",)), seeds=1, split_seeds=2)
    for number, cell in enumerate(plan.cells):
        vars(cell)["id"] = f"abcd{number:012d}"
    run(plan, tmp_path, lanes=40)
    first, second = Store(tmp_path).rows()
    assert first["group"] == second["group"]
    assert first["returns"] != second["returns"]
    assert len(list(tmp_path.glob("groups/*/run/policies/*"))) == 2


def test_a_group_begun_on_another_device_keeps_its_interval(tmp_path, monkeypatch):
    plan = make_plan(small("olp", qualities=("ME/ME",)), seeds=1)
    with killed_while_training():
        run(plan, tmp_path)
    monkeypatch.setattr(groups, "checkpoint_every", lambda learner, budget: budget.steps // 2)
    done = run(plan, tmp_path)
    assert (done.num_trained, done.num_failed) == (1, 0)
    [record] = [json.loads(p.read_text()) for p in tmp_path.glob("groups/*/run/record.json")]
    assert [each["step"] for each in record["resumed"]] == [2]


def test_what_a_failed_group_held_is_free_when_its_parts_train(tmp_path, monkeypatch):
    made, held = [], []
    prepared, trained = trainer.prepare, trainer.train

    def watched(*args):
        gc.collect()
        held.append(sum(work() is not None for work in made))
        work = prepared(*args)
        made.append(weakref.ref(work))
        return work

    def too_many(work, **settings):
        if len(work.lanes) > 1:
            raise ValueError("too many lanes")
        return trained(work, **settings)

    monkeypatch.setattr(trainer, "prepare", watched)
    monkeypatch.setattr(trainer, "train", too_many)
    done = run(make_plan(small("olp", "oracle", qualities=("ME/ME",)), seeds=1), tmp_path)
    assert (done.num_trained, done.num_failed) == (2, 0)
    assert held == [0, 0, 0]


def test_groups_that_vanish_or_are_of_another_version_are_nobodys(tmp_path, monkeypatch):
    plan = make_plan(small("olp"), seeds=1)
    [batch] = make_batches(plan, 40)
    group = groups.begin_group(
        tmp_path, batch, [groups.RunLane("r", plan.cells[0].id, "t", "olp", 0, None)]
    )
    assert groups.unfinished_groups(tmp_path, batch) == [group]
    read = groups.read_json

    def late(path):
        group.remove()
        return read(path)

    with monkeypatch.context() as patch:
        patch.setattr(groups, "read_json", late)
        assert groups.unfinished_groups(tmp_path, batch) == []
    (tmp_path / "old-001").mkdir()
    (tmp_path / "old-001" / "lanes.json").write_text('[{"run": "r", "method": "olp"}]')
    assert groups.unfinished_groups(tmp_path, batch) == []


def test_a_copy_says_nothing_about_the_pace_here():
    plan = make_plan(small("sharing_all"), seeds=1)
    row = {
        "method": "olp",
        "learner": LEARNER.name,
        "steps": 12,
        "seconds": {"group": 4.0, "lanes": 2, "prepare": 0.5},
        "hardware": {"device": "cpu: cpu"},
    }
    told = [
        plan_status(plan, [row | {"same_as": source}], {}, "cpu: cpu", retry=()).measured
        for source in (None, "another")
    ]
    assert told == [True, False]


def test_what_another_setting_has_is_not_trained_again_when_it_is_tried_again():
    plan = make_plan(small("olp"), seeds=1)
    [here, there] = plan.runs
    rows = {
        run.id: {"method": "olp", "learner": LEARNER.name, "error": error, "time": "2030-01-01"}
        for run, error in ((here, "data: no rows"), (there, None))
    }
    told = plan_status(
        plan, list(rows.values()), rows, "cpu: cpu", retry={run.id for run in plan.runs}
    )
    assert (told.num_done, told.num_trainings, told.lane_steps) == (1, 0, 0)


def test_a_batch_is_a_plain_value():
    plan = make_plan(small(), seeds=1)
    [batch] = make_batches(plan, 40)
    assert batch.title == f"{plan.cells[0].title} and 1 more"
    assert batch.cell(plan.cells[1].id) is plan.cells[1]
    turned = dataclasses.replace(plan, cells=plan.cells[::-1])
    assert make_batches(turned, 40)[0].id != batch.id
    assert make_batches(plan, None)[0].id == plan.cells[0].id


def test_no_lane_at_all_is_refused(tmp_path):
    with pytest.raises(ConfigError, match="lanes: expected 1 or more, got 0"):
        run(make_plan(small(), seeds=1), tmp_path, lanes=0)


def test_a_copy_names_the_machine_that_trained(tmp_path, monkeypatch):
    suite = small("olp")
    run(make_plan(suite, seeds=1, only="ME-ME"), tmp_path)
    monkeypatch.setattr("puorl.bench.batch.device", lambda: "gpu: another")
    run(make_plan(suite, seeds=1), tmp_path)
    trained, copied = Store(tmp_path).rows()
    assert copied["same_as"] == trained["run"]
    assert copied["hardware"] == trained["hardware"]
    assert copied["versions"] == trained["versions"]


def test_a_run_that_failed_again_is_not_to_be_retried_in_the_same_call(tmp_path):
    store = Store(tmp_path)
    store.append({"run": "a", "error": "before", "time": "2030-01-01"})
    context = RunContext(tmp_path, store, 1, frozenset({"a", "b"}), print)
    assert context.to_retry == {"a", "b"}
    store.append({"run": "a", "error": "again", "time": "1970-01-01"})  # the clock was set back
    assert context.to_retry == {"b"}
