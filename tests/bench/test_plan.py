import sys
from pathlib import Path

import pytest

sys.path.insert(0, str(Path(__file__).parent))
from small_suite import LEARNER, small

from puorl.bench.plan import CellBatch, make_plan, missing, plan_status
from puorl.bench.suites import LearnerChoice, find_suite
from puorl.core.errors import ConfigError


def trainings(plan):
    return len({run.expected_training for run in plan.runs})


def row(run, /, **changes):
    made = {
        "run": run.id,
        "method": run.method.name,
        "learner": run.cell.built_learner.name,
        "steps": run.cell.budget.steps,
        "error": None,
        "time": "2030",
        "hardware": {"device": "cpu: cpu"},
        "seconds": {"group": 4.0, "lanes": 2, "prepare": 0.5},
    }
    return made | changes


def look(plan, *rows, retry=(), **more):
    latest = {each["run"]: each for each in rows}
    return plan_status(plan, rows, latest, "cpu: cpu", retry=retry, **more)


def test_core_is_190_trainings_of_240_runs():
    plan = make_plan(find_suite("core"), seeds=5)
    assert (len(plan.cells), len(plan.runs), trainings(plan)) == (8, 240, 190)
    assert len({run.id for run in plan.runs}) == 240
    assert len({cell.id for cell in plan.cells}) == 8


def test_oracle_is_one_training_across_ratios_and_qualities_unless_rewards_are_scaled():
    plan = make_plan(find_suite("paper"), seeds=1, only="hopper td3_bc oracle")
    assert len(plan.runs) == 16  # two ratios, two shifts, four pairs of qualities
    assert trainings(plan) == 2  # medium-expert and medium
    plan = make_plan(find_suite("paper"), seeds=1, only="hopper td3_bc olp")
    assert trainings(plan) == 4  # other labels at another ratio
    plan = make_plan(find_suite("paper"), seeds=1, only="hopper iql")
    assert trainings(plan) == len(plan.runs) == 48


def test_only_takes_several_texts_with_commas_between():
    plan = make_plan(find_suite("paper"), seeds=1, only="entire_body td3_bc pu,hopper iql olp")
    apart = [
        make_plan(find_suite("paper"), seeds=1, only=words)
        for words in ("entire_body td3_bc pu", "hopper iql olp")
    ]
    assert {run.id for run in plan.runs} == {run.id for each in apart for run in each.runs}
    assert len(plan.runs) == sum(len(each.runs) for each in apart) > 0
    for slip in ("hopper iql,", ",", "hopper iql,walkr iql"):
        with pytest.raises(ConfigError, match="only: expected words"):
            make_plan(find_suite("paper"), seeds=1, only=slip)


def test_ids_depend_on_all_that_decides_a_run():
    base = small()
    ids = [run.id for run in make_plan(base, seeds=2).runs]
    assert ids == [run.id for run in make_plan(base, seeds=2).runs]
    others = [
        make_plan(base, seeds=2, steps=14),
        make_plan(small(learner=LearnerChoice("bc", settings={"hidden": (5,)})), seeds=2),
    ]
    seen = set(ids)
    for plan in others:
        assert seen.isdisjoint(run.id for run in plan.runs)
        seen |= {run.id for run in plan.runs}
    more = {run.id for run in make_plan(base, seeds=3, split_seeds=2).runs}
    assert set(ids) < more
    assert len(more) == 3 * len(ids)


def test_seeds_of_both_kinds():
    plan = make_plan(small(), seeds=2, split_seeds=3)
    assert len(plan.cells) == 6
    assert {(r.cell.setting.split_seed, r.seed) for r in plan.runs} == {
        (split, seed) for split in range(3) for seed in range(2)
    }
    # New labels for OLP; the Oracle's rows are the same whoever is labelled.
    olp, oracle = (
        {r.expected_training for r in plan.runs if r.method.name == name}
        for name in ("olp", "oracle")
    )
    assert (len(olp), len(oracle)) == (6, 2)
    assert len(plan.sources) == 3


def test_only_keeps_what_has_all_words():
    plan = make_plan(find_suite("paper"), seeds=1, only="walker2d mixture 0.03 pu")
    assert len(plan.runs) == 4
    assert {run.method.name for run in plan.runs} == {"pu"}
    with pytest.raises(ConfigError, match="got 'cow'; its settings: hopper/body_mass/ME-ME/0.05"):
        make_plan(small(), seeds=1, only="cow")


@pytest.mark.parametrize(
    ("numbers", "says"),
    [
        ({"seeds": 0}, "seeds: expected 1 or more, got 0"),
        ({"seeds": 1, "split_seeds": 0}, "split_seeds: expected 1 or more"),
        ({"seeds": 1, "steps": 0}, "steps: expected a multiple of 1"),
    ],
)
def test_numbers_that_make_no_sense(numbers, says):
    with pytest.raises(ConfigError, match=says):
        make_plan(small(), **numbers)


def test_unknown_methods_and_settings_are_refused_at_once():
    with pytest.raises(ConfigError, match="method: expected one of olp"):
        make_plan(small("magic"), seeds=1)
    with pytest.raises(ConfigError, match="expected settings among"):
        make_plan(small(learner=LearnerChoice("bc", settings={"hiden": 3})), seeds=1)


def test_what_is_missing():
    plan = make_plan(small(), seeds=1)
    first, second, *_ = plan.runs
    failed = row(second, error="no", time="2030-01-01")
    latest = {first.id: row(first), second.id: failed}
    assert first not in missing(plan.runs, latest)
    assert len(missing(plan.runs, latest)) == len(plan.runs) - 2
    again = missing(plan.runs, latest, retry={run.id for run in plan.runs})
    assert second in again
    assert first not in again
    assert second not in missing(plan.runs, latest, retry=())


def test_status_counts_and_guesses():
    plan = make_plan(small(), seeds=2)
    fresh = look(plan)
    assert (fresh.num_runs, fresh.num_done, fresh.num_trainings) == (12, 0, 8)
    assert fresh.lane_steps == 8 * 12
    assert not fresh.measured
    by_name = {(r.cell.setting.quality, r.method.name, r.seed): r for r in plan.runs}
    # One of two: the other run of the same training is copied from it.
    some = look(plan, row(by_name["ME/ME", "oracle", 0]))
    assert (some.num_done, some.num_trainings) == (1, 7)
    assert some.measured
    # 12 updates of 2 lanes took 4 seconds: 6 lane-steps a second; nothing else is prepared long.
    assert some.seconds == pytest.approx(7 * 12 / 6 + 0.5)
    done = look(plan, *(row(run) for run in plan.runs))
    assert (done.num_done, done.num_trainings, done.seconds) == (12, 0, 0.0)


def test_status_of_failures():
    plan = make_plan(small("sharing_all"), seeds=1)
    rows = [row(run, error="no", time="2030-01-01") for run in plan.runs]
    assert look(plan, *rows).num_failed == 2
    again = look(plan, *rows, retry={run.id for run in plan.runs})
    assert (again.num_failed, again.num_done, again.num_trainings) == (0, 0, 2)


def test_paces_of_other_devices_and_learners_are_not_taken():
    plan = make_plan(small(), seeds=1)
    slow = row(plan.runs[0], hardware={"device": "gpu: H200"}, run="x")
    other = row(plan.runs[0], learner="cql", run="y")
    assert not look(plan, slow, other).measured


def test_the_pace_is_that_of_a_group_of_about_as_many_lanes():
    plan = make_plan(small("sharing_all"), seeds=4)  # two settings of four trainings each
    # Lanes of groups, the last one twice, and the lane-steps a second that they did.
    done = ((1, 5), (3, 20), (100, 99), (7, 44), (7, 40))
    rows = [
        row(plan.runs[0], run=str(k), seconds={"group": 12 * lanes / pace, "lanes": lanes})
        for k, (lanes, pace) in enumerate(done)
    ]
    for more, pace in (
        ({}, 20),
        ({"batches": [CellBatch(plan.cells)]}, 40),
        ({"batches": [CellBatch(plan.cells)], "most_lanes": 1}, 5),
    ):
        assert look(plan, *rows, **more).seconds == pytest.approx(8 * 12 / pace)
    assert look(plan, rows[2]).seconds == pytest.approx(8 * 12 / 99)  # far, but measured


def test_learner_of_a_cell_is_as_chosen():
    [cell, _] = make_plan(small(), seeds=1).cells
    assert cell.config["hidden"] == [4]
    assert cell.title == f"hopper/body_mass/ME-ME/0.05 {LEARNER.name}"
