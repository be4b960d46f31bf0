import dataclasses
import sys
from pathlib import Path

import pytest
import scipy.stats
from questions import Count, answers, difference_table, question_tables

from puorl.bench import Store, find_suite, make_plan
from puorl.bench.report import report_rows
from puorl.bench.results import Named, Reference, collect_results

sys.path.insert(0, str(Path(__file__).parents[1] / "bench"))
import synthetic_store
from synthetic_store import row

PAPER = Reference.load("paper")
ROOT = Path(__file__).parents[2]


def rows():
    found = {}
    for each in synthetic_store.rows():
        if each["run"] not in found or each["error"] is None:
            found[each["run"]] = each
    return list(found.values())


@pytest.fixture(scope="module")
def results():
    return collect_results(rows())


@pytest.fixture(scope="module")
def answered(results):
    return {each.number: each for each in answers(results, PAPER)}


def claim(answer, start):
    [found] = [each for each in answer.claims if each.text.startswith(start)]
    return found


def test_answers_are_what_the_store_was_made_with(answered):
    assert answered["i"].word == "yes"
    assert claim(answered["ii"], "PU is clearly above OLP").ours == (14, 14)
    assert claim(answered["ii"], "No other method").ours == (14, 14)
    assert answered["iii"].word == "yes"
    assert answered["iv"].word == "yes"
    gains = {c.text.split()[0]: c.word for c in answered["v"].claims}
    assert (gains, answered["v"].word) == ({"DARA": "yes", "IGDF": "no"}, "mixed")


def test_sizes_are_near_what_was_put_in(answered):
    detail = claim(answered["iii"], "Sharing-All clearly falls").detail
    assert -48 < float(detail.split()[1]) < -42  # 45 points
    detail = claim(answered["v"], "DARA").detail
    assert 9 < float(detail.split()[2]) < 15  # 12 points


def test_a_hole_is_no_setting(answered):
    assert claim(answered["iii"], "IGDF's mean").ours.of == 13


def test_oracles_interval_is_counted_as_in_the_tables(results, answered):
    inside = above = below = 0
    for task in results.tasks:
        pu, oracle = (results.summary(task, Named(m)) for m in ("pu", "oracle"))
        inside += oracle.estimate.low <= pu.mean <= oracle.estimate.high
        above += pu.mean > oracle.estimate.high
        below += pu.mean < oracle.estimate.low
    seen = claim(answered["ii"], "PU is inside Oracle's")
    assert seen.ours == (inside + above, inside + above + below)
    assert seen.detail.startswith(f"inside in {inside}, above in {above};")


def test_the_papers_numbers_take_the_same_test(results, answered):
    # By hand from its tables: HalfCheetah ME/R 80.4 is below 86.9 - 4.4 = 82.5, ...
    below = [
        task
        for task in results.tasks
        if PAPER.summary(task, Named("pu")).mean < PAPER.summary(task, Named("oracle")).estimate.low
    ]
    assert ("HalfCheetah ME/R", 0.01) in [(t.title, t.section.labelled_fraction) for t in below]
    seen = claim(answered["ii"], "PU is inside Oracle's").paper
    assert seen == (14 - len(below), 14)


def test_other_numbers_give_other_answers(results):
    def without(task, method):
        made = {"pu": "olp", "olp": "pu"}.get(method.name, method.name)
        return task, Named(made)

    turned = {without(task, method): cell for (task, method), cell in results.cells.items()}
    seen = {a.number: a for a in answers(dataclasses.replace(results, cells=turned), PAPER)}
    assert claim(seen["ii"], "PU is clearly above OLP").ours == (0, 14)
    assert claim(seen["ii"], "PU is clearly above OLP").word == "no"
    assert seen["ii"].word == "no"
    assert claim(seen["i"], "The filter").ours == (0, 0)


def test_without_rows_there_is_no_answer():
    [*seen] = answers(collect_results([row("body_mass", "hopper", "ME/ME", "olp", 0)]), PAPER)
    assert {each.word for each in seen} == {"not enough rows"}
    assert {c.ours for each in seen for c in each.claims} == {(0, 0)}


def test_without_the_questions_own_claim_there_is_no_answer():
    made = [
        row("body_mass", "hopper", "ME/ME", method, seed)
        for method in ("pu", "dara", "sharing_all")
        for seed in (0, 1)
    ]
    seen = {a.number: a for a in answers(collect_results(made), PAPER)}
    assert claim(seen["iii"], "DARA's mean").ours == (1, 1)
    assert seen["iii"].word == "not enough rows"


def test_one_seed_is_not_enough_to_say_clearly():
    made = [row("body_mass", "hopper", "ME/ME", method, 0) for method in ("olp", "pu")]
    seen = {a.number: a for a in answers(collect_results(made), PAPER)}
    assert claim(seen["ii"], "PU is clearly above OLP").ours == (0, 0)


@pytest.mark.parametrize("lift", [0.0, 60.0])
def test_of_a_single_setting_its_own_interval_says_whether_labels_help(lift):
    made = [
        row("body_mass", "hopper", "ME/ME", method, seed, share=share)
        for method in ("dara", "igdf")
        for seed in range(5)
        for share in (0.01, 0.03)
    ]
    for each in made:
        if each["setting"]["labelled_fraction"] == 0.03:
            each["scores"] = [score + lift for score in each["scores"]]
    results = collect_results(made)
    seen = claim({a.number: a for a in answers(results, PAPER)}["v"], "IGDF")
    few, more = (results.summary(task, Named("igdf")) for task in results.tasks)
    assert seen.ours == (int(lift > 0), 1)
    assert seen.word == ("yes" if lift else "no")
    assert seen.detail.startswith(f"gain {more.mean - few.mean:+.1f}; the paper's +20.7")


def test_poor_accuracy_is_a_no():
    made = [row("body_mass", "hopper", "ME/ME", "pu", 0)]
    made[0]["filter"] |= {"accuracy": 0.9, "alpha": 0.5}
    [first, *_] = answers(collect_results(made), PAPER)
    assert (first.word, first.claims[0].ours) == ("no", (0, 1))
    assert "lowest 90.00 %" in first.claims[0].detail
    assert "largest error 0.207" in first.claims[1].detail


def test_against_none_the_paper_is_not_counted(results):
    for each in answers(results, None):
        for one in each.claims:
            assert one.paper == (0, 0)
            assert "paper" not in one.detail


def test_small_runs_do_not_answer_for_large_ones(results):
    small = [each | {"steps": 500, "run": "s" + each["run"]} for each in rows()]
    assert answers(collect_results([*rows(), *small]), PAPER) == answers(results, PAPER)
    assert answers(collect_results(small), PAPER)[0].claims[0].ours.of == 14


@pytest.mark.parametrize(
    ("num", "of", "word"),
    [(0, 0, "not enough rows"), (3, 4, "yes"), (1, 4, "no"), (1, 2, "mixed"), (5, 8, "mixed")],
)
def test_words_of_counts(num, of, word):
    assert Count(num, of).word == word


def test_tables_of_questions_stand_in_order_and_only_where_there_are_answers(results):
    rule, tables = question_tables(report_rows(rows(), reference=PAPER))
    assert rule.startswith("A claim is counted")
    assert [each.name for each in tables] == [
        *(f"question-{n}" for n in ("i", "ii", "iii", "iv", "v")),
        "differences",
    ]
    assert tables[0].header == ("Claim", "holds", "settings", "paper's")
    _, alone = question_tables(report_rows(rows()))
    assert alone[0].header == ("Claim", "holds", "settings")
    # Rows that answer no question at all are shown without the questions.
    other = report_rows([row("body_mass", "hopper", "ME/ME", "olp", 0)])
    assert question_tables(other) == ("", ())


def test_differences_are_welchs_and_clear_ones_are_bold(results):
    table = difference_table(results)
    column = {name: i for i, name in enumerate(table.header)}
    task = next(t for t in results.tasks if results.summary(t, Named("olp")))
    [line] = [r for r in table.rows if r[0].text == f"{task.section.title}: {task.title}"]
    pu, olp = (results.summary(task, Named(name)) for name in ("pu", "olp"))
    cell = line[column["OLP"]]
    assert cell.text.startswith(f"{pu.mean - olp.mean:+.1f} (")
    low, high = map(float, cell.text.partition("(")[2].rstrip(")").split(" to "))
    spread = scipy.stats.ttest_ind_from_stats(
        pu.mean, pu.std, pu.num, olp.mean, olp.std, olp.num, equal_var=False
    ).pvalue
    assert cell.strong == (low > 0 or high < 0) == (spread < 0.05)
    assert {entry.strong for r in table.rows for entry in r[1:]} == {True, False}


def test_the_results_page_says_how_much_of_the_grid_is_measured():
    latest = Store(ROOT / "benchmarks/results/paper").latest()
    plan = make_plan(find_suite("paper"), seeds=5)
    has_row = {run.id for run in plan.runs if (latest.get(run.id) or {}).get("scores")}
    complete = [c for c in plan.cells if all(r.id in has_row for r in plan.runs_of(c))]
    assert len(plan.cells) == 78
    page = (ROOT / "docs/results.md").read_text(encoding="utf-8")
    assert f"{len(complete)} of the paper's 78 settings in full" in page
