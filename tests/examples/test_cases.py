"""The cases: their commands run on recorded rows, and what is said of them is computed rightly."""

import json
import shutil
import sys
from dataclasses import replace
from pathlib import Path

import numpy as np
import pytest

import puorl
from puorl.core.files import read_json
from puorl.pu.config import PRESETS, FilterConfig, MachineConfig, NetworkConfig

ROOT = Path(__file__).parents[2]
IMAGES = ROOT / "docs" / "images"
sys.path[:0] = [str(ROOT / "examples" / "cases"), str(IMAGES)]
import actuator  # noqa: E402
import decidable  # noqa: E402
import draw_cases  # noqa: E402
import run  # noqa: E402
import sheet  # noqa: E402
import simulator  # noqa: E402
import tables  # noqa: E402

RECORDED = Path(__file__).parent / "recorded"
QUICK = FilterConfig(
    residuals=None,
    network=NetworkConfig(hidden=(16,)),
    num_warm_up=1,
    num_main=2,
    machines=MachineConfig(
        hidden=(16,), latent_sizes=(2,), num_seeds=1, num_steps=100, num_lags=1, horizons=(1,)
    ),
)
TINY = run.Size(
    20, seeds=2, hidden="8", batch_size=16, judge_updates=20, model_updates=20, episodes=1
)


# With drift, and with episodes; the others run the same stages, ten seconds each.
ALWAYS = ("wear", "sepsis")


@pytest.mark.parametrize(
    "name",
    [pytest.param(case, marks=[] if case in ALWAYS else pytest.mark.slow) for case in run.CASES],
)
def test_a_case_runs_on_recorded_rows(name, tmp_path, monkeypatch):
    monkeypatch.setitem(PRESETS, "default", QUICK)
    case, do = run.CASES[name], run.Commands()
    if case.episodes_known:
        case = replace(case, episodes_known=0.5)  # the recorded rows are of few episodes
    shutil.copytree(RECORDED / name, tmp_path / "log")
    truth = tmp_path / "log" / run.TRUTH
    run.find(case, tmp_path / "log" / run.LOG, truth, tmp_path, do)
    run.find_episodes(case, tmp_path / "log" / run.LOG, tmp_path, do)
    run.compare(case, TINY, tmp_path / "log" / run.LOG, truth, tmp_path, do)
    assert len(run.known_units(case, truth)) == case.num_known
    found = run.beside_truth(case, tmp_path / "ours", truth)
    assert found["num_asked"] + case.num_known == len(found["units"])
    compared = read_json(tmp_path / "compared" / "compare.json")
    assert [each["method"] for each in compared["outcomes"]] == list(tables.METHODS)
    assert len(list((tmp_path / "policies").glob("*.onnx"))) == 2 * len(tables.METHODS)
    assert (tmp_path / "drift.csv").exists() == bool(case.window)
    if case.episodes_known:
        episodes = run._episodes(case, tmp_path, tmp_path / "log")
        assert (episodes["num_known"], episodes["num_asked"]) == (40, 120)
        # Who knows both tables errs in some admissions, and in fewer than half of them.
        assert 60 < episodes["num_right_by_truth"] < 120


def test_weak_legs_can_be_told_and_labels_at_random_cannot(monkeypatch):
    monkeypatch.setattr(decidable, "ORDERS", (1,))  # products of 37 columns take long
    log = RECORDED / "actuator" / run.LOG
    told = run.told_the_truth(run.CASES["actuator"], log, log.with_name(run.TRUTH))
    assert told["num_units"] == told["dynamics"]["num_right"]
    assert told["is_decidable"]
    data = puorl.load(log, episode="run", time="time", terminal="fell")
    names = sorted(set(data.columns["robot"]))
    mixed = [{"robot": name, "ours": str(k // 2 % 2), "kind": "any"}
             for k, name in enumerate(names)]  # fmt: skip
    assert not decidable.read_out(data, "robot", mixed)["is_decidable"]


@pytest.mark.slow  # up to ten minutes each on two cores
@pytest.mark.parametrize("name", run.CASES)
def test_a_case_at_small_size(name, tmp_path):
    if not (ROOT / ".venv-cases" / name / "bin" / "python").exists():
        pytest.skip(f"no environment; make case CASE={name} sets it up")
    row = run.run(run.CASES[name], "small", 0, tmp_path, run.STAGES)
    assert json.loads(json.dumps(row)) == row
    assert tables.summary(row)


def test_a_policy_walks_as_its_file_says(tmp_path):
    layers = [{"w": np.zeros((29, 8)), "b": np.linspace(-1, 1, 8)}]
    policy = puorl.Policy.of("tanh", layers, low=-np.ones(8), high=np.ones(8))
    (tmp_path / "policies").mkdir()
    policy.to_onnx(tmp_path / "policies" / "pu-seed-0.onnx")
    command = ["judge", str(tmp_path / "policies"), str(tmp_path / "returns.csv")]
    simulator.main(actuator.record, actuator.play, [*command, "--episodes", "2"])
    rows = run.read_table(tmp_path / "returns.csv")
    assert [(row["policy"], row["episode"]) for row in rows] == [
        ("pu-seed-0", "0"),
        ("pu-seed-0", "1"),
    ]
    assert dict(actuator.play(policy.act, 1))["return"] == pytest.approx(
        float(rows[1]["return"]), abs=2.0
    )


def test_a_log_is_the_same_bytes_for_the_same_seed(tmp_path, monkeypatch):
    monkeypatch.setitem(actuator.SIZES, "small", (2, 1, 5))
    for folder in ("one", "two"):
        simulator.main(
            actuator.record, actuator.play, ["log", "small", "3", str(tmp_path / folder)]
        )
    one, two = ((tmp_path / folder / simulator.LOG).read_bytes() for folder in ("one", "two"))
    assert one == two
    assert len(run.read_table(tmp_path / "one" / simulator.TRUTH)) == 2


def fabricated(true, judged):
    """A row in which each method has two policies with these means."""
    return {
        "log_judges": {"methods": [{"method": m, "scores": judged[m]} for m in tables.METHODS]},
        "simulator_judges": {
            f"{m}-seed-{k}": {"return": [value - 1, value + 1]}
            for m in tables.METHODS
            for k, value in enumerate(true[m])
        },
    }


TRUE = {"olp": [1, 1.1], "sharing_all": [5, 5.1], "pu": [9, 9.1], "oracle": [9, 9.2]}


def test_the_choice_of_the_log_is_right_if_nothing_is_clearly_better():
    first, right, rank = tables.choice(fabricated(TRUE, TRUE))
    assert (first, right) == ("pu", True)
    assert rank == pytest.approx(1.0, abs=0.05)
    wrong = TRUE | {"olp": [20.0, 21.0]}
    assert tables.choice(fabricated(TRUE, wrong))[:2] == ("olp", False)
    # Oracle cannot be chosen.
    assert tables.choice(fabricated(TRUE, TRUE | {"oracle": [50.0, 51.0]}))[0] == "pu"


def test_scores_and_differences():
    row = fabricated(TRUE, TRUE)
    assert tables.scores(row)["olp"] == [1.0, 1.1]
    assert tables.minus(row, "pu", "olp").value == pytest.approx(8.0)


def test_alarms_are_counted():
    def unit(changed, alarm):
        return {"changed": changed, "alarm": alarm}

    watched = [unit(5, 7), unit(5, None), unit(5, 3), unit(None, 4), unit(None, None)]
    assert tables.drift_text(watched) == (
        "1 of 3 changes seen, 2 windows after they began; 2 false alarms on 5 units"
    )


def test_an_interval_holds_the_truth_up_to_rounding():
    guess = {"value": 0.4, "low": 0.3, "high": 0.5}
    found = {"true": {"alpha": 0.5}, "estimated": {"alpha": guess}}
    assert tables.holds_truth(found, "alpha")
    assert not tables.holds_truth(found | {"true": {"alpha": 0.51}}, "alpha")


def test_the_pages_say_what_the_rows_say():
    for path, text in tables.texts().items():
        page = path.read_text(encoding="utf-8")
        assert page.count(tables.BEGIN) == page.count(tables.END) == 1
        assert tables.written(page, text) == page  # else: python examples/cases/tables.py


def test_the_pictures_show_the_rows(tmp_path, monkeypatch):
    monkeypatch.setattr(sheet, "HERE", tmp_path)
    draw_cases.main()
    drawn = {path.name: path.read_text(encoding="utf-8") for path in tmp_path.iterdir()}
    kept = {path.name: path.read_text(encoding="utf-8") for path in IMAGES.glob("case-*.svg")}
    assert drawn == kept  # else: python docs/images/draw_cases.py
