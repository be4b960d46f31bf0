import json
from dataclasses import replace

import numpy as np
import pytest

from puorl.pu.report import current_keys, make_report, score_histogram
from puorl.pu.units import Unit, parse_unit


def report(
    pool,
    draw,
    gap,
    *,
    behaviour_gap=0.3,
    seed=0,
    change=None,
    kept=None,
    weight=None,
    num_scattered=0,
    unit="transition",
    columns=None,
    inputs="sas",
    **settings,
):
    rng = np.random.default_rng(seed)
    size = settings.get("size")
    split = pool(
        rng,
        num_p=1000,
        num_t=3000,
        num_o=7000,
        shift=0.0,
        size=size,
        change=change,
        columns=columns,
    )
    judged = draw(rng, gap, num_p=1000, num_u=10_000, **settings).scores
    behaviour = draw(rng, behaviour_gap, num_p=1000, num_u=10_000, **settings).scores
    return make_report(
        split,
        judged,
        behaviour,
        kept=judged.kept_u if kept is None else kept,
        weight=weight,
        num_scattered=num_scattered,
        alpha_history=np.array([0.5, 0.3]),
        settings={"preset": "default", "inputs": inputs},
        unit=parse_unit(unit),
        rng=rng,
    )


def test_clear_case(pool, draw):
    made = report(pool, draw, 5)
    assert (made.verdict, made.warnings, made.columns) == ("clear", (), ())
    assert [alpha.method for alpha in made.alphas] == ["bbe", "dedpul"]
    assert made.alphas_agree
    assert made.alpha_history == (0.5, 0.3)
    assert made.quality.precision.low > 0.8


def test_cannot_tell_calls_the_precision_an_upper_estimate(pool, draw):
    made = report(pool, draw, 0.2)
    assert made.verdict == "cannot_tell"
    assert made.quality.precision_is_upper
    assert "add rewards to the inputs" in made.advice
    assert "add rewards" not in report(pool, draw, 0.2, inputs="sars").advice


def test_few_others_that_part_well_leave_the_precision_an_upper_estimate(pool, draw):
    made = report(pool, draw, 8, alpha=0.88)
    assert made.verdict == "doubtful"
    assert made.quality.precision_is_upper
    assert made.shortcut.auroc.value < 0.6


def test_behaviour(pool, draw):
    assert report(pool, draw, 5, behaviour_gap=5).verdict == "behaviour"


def test_spoilt_recording(pool, draw):
    def change(arrays, mask):
        arrays["action"][mask] = np.round(arrays["action"][mask], 2)

    made = report(pool, draw, 5, change=change)
    assert made.verdict == "doubtful"
    assert {column.column for column in made.columns} == {"action[0]", "action[1]"}


def test_groups_are_counted(pool, draw):
    made = report(pool, draw, 5, size=200)
    assert made.verdict == "doubtful"
    assert "5 episodes" in made.warnings[0]
    assert made.advice.startswith("The scores differ (AUROC 0.8")


def test_three_labelled_episodes_that_part_well_are_doubtful(pool, draw):
    made = report(pool, draw, 3, size=334)
    assert made.verdict == "doubtful"
    assert "3 labelled episodes are too few" in made.advice


def test_numbers_kept_are_the_filters_and_their_quality_the_held_out_networks(pool, draw):
    kept = np.arange(10_000) < 2000
    plain, other = report(pool, draw, 5), report(pool, draw, 5, kept=kept)
    quality = other.quality
    assert (quality.num_labelled, quality.num_unlabelled, quality.num_kept) == (1000, 10_000, 2000)
    for one, two in (
        (quality.recall, plain.quality.recall),
        (quality.precision, plain.quality.precision),
    ):
        assert one.value == two.value
        assert one.low < two.low  # networks that decide otherwise say less about the filter
    assert quality.disputed > 0.05 > plain.quality.disputed == 0
    expected = (1000 + quality.precision.value * 2000) / 3000
    assert quality.purity.value == pytest.approx(expected)
    assert quality.mean_weight is None


def test_all_rows_are_counted_also_those_that_cannot_be_judged(pool, draw):
    rng = np.random.default_rng(0)
    split = pool(rng, num_p=1200, num_t=3000, num_o=8000)
    judged = draw(rng, 5).scores
    kept = np.arange(11_000) < 3100
    made = make_report(
        split,
        judged,
        judged,
        kept=kept,
        alpha_history=(),
        settings={},
        unit=Unit("transition"),
        rng=rng,
    )
    counts = (made.quality.num_labelled, made.quality.num_unlabelled, made.quality.num_kept)
    assert counts == (1200, 11_000, 3100)


def test_nothing_kept_by_the_filter_has_no_precision(pool, draw):
    made = report(pool, draw, 5, kept=np.zeros(10_000, bool))
    assert made.verdict == "doubtful"
    assert made.warnings[0] == "No unlabelled row is kept."
    assert np.isnan(made.quality.precision.value)
    assert made.quality.purity.value == 1


def test_weights_are_summed_up(pool, draw):
    weight = np.linspace(1, 0, 10_000)
    made = report(pool, draw, 5, kept=weight >= 0.5, weight=weight)
    assert made.quality.mean_weight == pytest.approx(0.5)
    assert made.quality.num_kept == 5000
    assert made.advice.startswith("Train with the weights")


def test_scattered_labels_are_said(pool, draw):
    robot = np.arange(11_000) // 50
    made = report(pool, draw, 5, num_scattered=1234, unit="column:robot", columns={"robot": robot})
    assert made.verdict == "clear"
    [said] = made.warnings
    assert "1,234 unlabelled rows share their robot with labelled ones" in said


def test_same_generator_same_report(pool, draw):
    assert report(pool, draw, 3).to_dict() == report(pool, draw, 3).to_dict()


def test_json_ready_even_where_nothing_is_kept(pool, draw):
    rng = np.random.default_rng(0)
    split = pool(rng, num_p=1000, num_t=3000, num_o=7000)
    judged = draw(rng, 5).scores
    nothing = replace(judged, kept_u=np.zeros(10_000, bool))
    made = make_report(
        split,
        nothing,
        judged,
        kept=nothing.kept_u,
        alpha_history=(),
        settings={},
        unit=Unit("episode"),
        rng=rng,
    )
    content = json.loads(json.dumps(made.to_dict(), allow_nan=False))
    assert content["quality"]["precision"]["value"] is None
    assert content["verdict"] in ("doubtful", "behaviour")


def test_histogram_holds_all_rows(draw):
    judged = draw(np.random.default_rng(0), 3).scores
    found = score_histogram(judged)
    assert len(found.edge) == len(found.labelled) + 1 == len(found.unlabelled) + 1
    assert sum(found.labelled) == pytest.approx(1)
    assert sum(found.unlabelled) == pytest.approx(1)
    assert found.labelled[-1] == pytest.approx(np.mean(judged.score_p >= found.edge[-2]))


def test_stored_reports_of_version_0_1_have_todays_names(pool, draw):
    now = report(pool, draw, 3).to_dict()
    old = json.loads(json.dumps(now))
    old["alphas"] = [
        {"value": a["value"], "interval": [a["low"], a["high"]], "method": a["method"]}
        for a in now["alphas"]
    ]
    shortcut = now["shortcut"]
    old["shortcut"] = {
        "separation": shortcut["auroc"],
        "separation_behaviour": shortcut["auroc_behaviour"],
        "share": shortcut["fraction"],
        "is_shortcut": shortcut["is_shortcut"],
        "is_sure": shortcut["is_sure"],
    }
    old["selection"]["separation"] = old["selection"].pop("auroc")
    old["columns"] = [{"column": "a", "kind": "offset", "separation": 0.9, "sentence": ""}]
    old["doubtful"] = [{"episode": "1", "num_rows": 2, "mean_score": 0.5, "share_kept": 0.25}]
    expected = {
        **now,
        "columns": [{"column": "a", "kind": "offset", "auroc": 0.9, "sentence": ""}],
        "doubtful": [{"episode": "1", "num_rows": 2, "mean_score": 0.5, "kept_fraction": 0.25}],
    }
    assert current_keys(old) == expected
    assert current_keys(now) == now
    assert current_keys({"shortcut": None, "alphas": 3}) == {"shortcut": None, "alphas": 3}
