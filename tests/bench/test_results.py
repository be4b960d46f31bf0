import sys
from collections import Counter
from pathlib import Path

import numpy as np
import pytest

from puorl.bench.results import Named, Reference, collect_results
from puorl.core.errors import DataError

sys.path.insert(0, str(Path(__file__).parent))
from synthetic_store import BROKEN, failed, row

PLACE = ("body_mass", "hopper", "ME/ME")
PU = Named("pu")


def only(results):
    [task] = results.tasks
    return task


def test_a_run_is_the_mean_of_its_final_episodes():
    rows = [row(*PLACE, "pu", seed) for seed in range(3)]
    results = collect_results(rows)
    cell = results.cells[only(results), PU]
    assert [run.value for run in cell.runs] == [np.mean(r["scores"]) for r in rows]
    assert cell.summary.mean == pytest.approx(np.mean([r["scores"] for r in rows]))
    assert (cell.holes, results.notes) == ({}, ())
    assert cell.filter["alpha"] == 0.2905


def test_holes_are_named_failed_or_not_run():
    rows = [row(*PLACE, "olp", seed) for seed in range(4)]
    rows += [row(*PLACE, "pu", 0), failed(*PLACE, "pu", 1), failed(*PLACE, "pu", 2)]
    results = collect_results(rows)
    assert results.cells[only(results), PU].holes == {BROKEN: (1, 2), "not run": (3,)}


@pytest.mark.parametrize("scores", [None, [], [1.0, float("nan")], [1.0, None]])
def test_a_row_without_finite_scores_is_a_hole(scores):
    rows = [row(*PLACE, "pu", 0), row(*PLACE, "pu", 1, scores=scores)]
    results = collect_results(rows)
    assert results.cells[only(results), PU].holes == {"no finite score": (1,)}


def test_returns_stand_in_where_a_domain_has_no_score():
    rows = [row("reward", "hopper", "ME/ME", "pu", s, scores=None) for s in (0, 1)]
    results = collect_results(rows)
    task = only(results)
    assert results.in_returns == {task.section}
    assert results.cells[task, PU].runs[0].value == pytest.approx(np.mean(rows[0]["returns"]))


def test_tables_are_about_the_split_with_most_runs():
    rows = [row(*PLACE, "pu", seed, split_seed=7) for seed in range(3)]
    rows += [row(*PLACE, "pu", 0, split_seed=1)]
    results = collect_results(rows)
    cell = results.cells[only(results), PU]
    assert results.split_seed == 7
    assert len(cell.runs) == 3
    assert {split: len(values) for split, values in cell.on_splits.items()} == {1: 1, 7: 3}
    assert cell.spread.num_splits == 2


def test_sizes_are_never_mixed():
    small = row(*PLACE, "pu", 0, steps=500)
    results = collect_results([row(*PLACE, "pu", 0), small])
    assert [task.section.num_steps for task in results.tasks] == [1_000_000, 500]


def test_two_ways_of_one_method_in_one_setting_are_two_columns():
    usual = [row(*PLACE, "dara", seed, method_settings={"sampling": "union"}) for seed in (0, 1)]
    other = row(*PLACE, "dara", 0, run="other", method_settings={"sampling": "half"})
    results = collect_results([*usual, other])
    assert [m.title for m in results.methods] == ["DARA", "DARA (sampling=half)"]
    named = collect_results([*usual, other | {"variant": "half the batch"}])
    assert [m.title for m in named.methods] == ["DARA", "DARA (half the batch)"]


def test_settings_that_follow_the_setting_make_one_column():
    rows = [
        row(*PLACE, "pu", 0, method_settings={"inputs": "sas"}),
        row("entire_body", "halfcheetah", "ME/R", "pu", 0, method_settings={"inputs": "sar"}),
        row(*PLACE, "pu", 0, split_seed=1, method_settings={"inputs": "sas", "seed": 1}),
    ]
    assert collect_results(rows).methods == (PU,)


def test_two_configs_of_one_learner_are_two_tables():
    rows = [row(*PLACE, "pu", 0), row(*PLACE, "pu", 0, run="x", config={"q_weight": 5.0})]
    titles = [task.section.learner.title for task in collect_results(rows).tasks]
    assert titles == ["TD3+BC", "TD3+BC (hidden=none, q_weight=5.0)"]


def test_a_second_row_for_the_same_place_is_said():
    rows = [row(*PLACE, "pu", 0), row(*PLACE, "pu", 0, run="again", scores=[1.0])]
    results = collect_results(rows)
    assert results.cells[only(results), PU].summary.mean == 1
    assert "again: takes the place of an earlier run" in results.notes[0]


def test_order_is_the_papers():
    rows = [
        row("reward", "walker2d", "ME/R", "oracle", 0, learner="iql"),
        row("body_mass", "walker2d", "M/R", "own", 0),
        row("body_mass", "hopper", "M/M", "pu", 0),
        row("body_mass", "hopper", "ME/R", "olp", 0),
    ]
    results = collect_results(rows)
    assert [task.title for task in results.tasks] == [
        "Hopper ME/R", "Hopper M/M", "Walker2d M/R", "Walker2d ME/R",
    ]  # fmt: skip
    assert [m.title for m in results.methods] == ["OLP", "PU", "Oracle", "own"]


def test_rows_of_earlier_policies_are_settings_of_their_own():
    later, earlier = (row("body_mass", "walker2d", "M/R", "pu", 0) for _ in range(2))
    del earlier["setting"]["policy_version"]  # as rows were before there was a second version
    results = collect_results([later, earlier | {"run": "x"}])
    titles = ["Walker2d M/R (policies v1)", "Walker2d M/R"]
    assert [task.title for task in results.tasks] == titles
    assert len({task.setting for task in results.tasks}) == 1


def test_rows_of_something_else_are_said_and_skipped():
    results = collect_results([row(*PLACE, "pu", 0), {"run": "x", "setting": {}}], ["torn"])
    assert len(results.rows) == 1
    assert results.notes[0] == "torn"
    assert results.notes[1].startswith("x: not a row of the benchmark")


def test_nothing_readable_is_an_error():
    with pytest.raises(DataError, match="expected rows of puorl bench run"):
        collect_results([{"run": "x"}])


# ------------------------------------------------------------------------------------- reference


@pytest.fixture(scope="module")
def paper():
    return Reference.load("paper")


def test_every_published_accuracy_is_there_once(paper):
    places = [setting.split("/") for setting in paper.accuracies]
    assert Counter((shift, fraction) for _, shift, _, fraction in places) == {
        ("body_mass", "0.01"): 12,
        ("body_mass", "0.03"): 12,
        ("mixture", "0.01"): 12,
        ("mixture", "0.03"): 12,
        ("entire_body", "0.01"): 4,
        ("entire_body", "0.03"): 4,
    }
    assert {quality for _, _, quality, _ in places} == {"ME-ME", "ME-R", "M-M", "M-R"}
    assert {body for body, *_ in places} == {"hopper", "halfcheetah", "walker2d"}
    assert {body for body, shift, *_ in places if shift == "entire_body"} == {"halfcheetah"}
    # The paper says so of every cell.
    assert min(each.mean for each in paper.accuracies.values()) > 98
    assert {each.num for each in paper.accuracies.values()} == {5}


# Read off the printed tables by eye: corners, the lowest and the highest cell, the widest spread.
@pytest.mark.parametrize(
    ("setting", "printed"),
    [
        ("hopper/body_mass/ME-ME/0.01", (99.54, 0.06)),
        ("hopper/body_mass/M-R/0.03", (99.32, 0.05)),
        ("walker2d/body_mass/M-M/0.01", (98.36, 0.02)),
        ("walker2d/body_mass/M-R/0.03", (99.39, 0.08)),
        ("halfcheetah/body_mass/ME-R/0.03", (99.70, 0.10)),
        ("hopper/mixture/ME-ME/0.01", (98.92, 0.54)),
        ("walker2d/mixture/ME-R/0.01", (98.02, 0.16)),
        ("walker2d/mixture/M-R/0.03", (98.81, 0.25)),
        ("halfcheetah/entire_body/ME-ME/0.03", (99.98, 0.01)),
        ("halfcheetah/entire_body/M-R/0.03", (99.96, 0.21)),
    ],
)
def test_published_accuracies_are_as_printed(paper, setting, printed):
    assert (paper.accuracies[setting].mean, paper.accuracies[setting].std) == printed


def test_published_scores_are_complete_and_as_printed(paper):
    assert len(paper.scores) == 468
    # TD3+BC has both ratios, IQL one; each setting has six methods.
    assert Counter(learner for _, learner, _ in paper.scores) == {"td3_bc": 312, "iql": 156}
    assert set(Counter(method for *_, method in paper.scores).values()) == {78}
    ours = paper.scores["hopper/body_mass/ME-ME/0.01", "td3_bc", "pu"]
    assert (ours.mean, ours.num) == (98.3, 10)
    assert ours.half_width == pytest.approx(5.9, rel=1e-12)


def test_a_reference_of_ones_own_is_found_by_task(tmp_path):
    file = tmp_path / "ours.csv"
    file.write_text(
        "setting,learner,method,measure,mean,half_width,std,num\n"
        "hopper/body_mass/ME-ME/0.01,td3_bc,pu,score,50.0,2.0,,3\n"
        "hopper/body_mass/ME-ME/0.01,,pu,accuracy,90.0,,1.0,2\n"
    )
    task, reference = only(collect_results([row(*PLACE, "pu", 0)])), Reference.load(file)
    assert reference.name == "ours"
    assert reference.summary(task, PU).half_width == pytest.approx(2.0)
    assert reference.summary(task, Named("olp")) is None
    assert reference.accuracy(task) == 0.9


@pytest.mark.parametrize("text", ["a,b\n1,2\n", "setting,measure\nx,score\n", None])
def test_what_is_no_reference_is_refused(tmp_path, text):
    file = tmp_path / "reference.csv"
    if text is not None:
        file.write_text(text)
    with pytest.raises(DataError, match="expected a CSV file with the columns setting, learner"):
        Reference.load(file)
