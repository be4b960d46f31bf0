import sys
from pathlib import Path

import numpy as np
import pytest

from puorl.bench.results import Named, collect_results
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
    assert results.in_returns == {task.group}
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
    assert [task.group.num_steps for task in results.tasks] == [1_000_000, 500]


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
    titles = [task.group.learner.title for task in collect_results(rows).tasks]
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


def test_rows_of_something_else_are_said_and_skipped():
    results = collect_results([row(*PLACE, "pu", 0), {"run": "x", "setting": {}}], ["torn"])
    assert len(results.rows) == 1
    assert results.notes[0] == "torn"
    assert results.notes[1].startswith("x: not a row of the benchmark")


def test_nothing_readable_is_an_error():
    with pytest.raises(DataError, match="expected rows of puorl bench run"):
        collect_results([{"run": "x"}])
