"""The benchmark scripts of the filter run, at a size that says nothing about the filter."""

import json
import runpy
import sys
from dataclasses import replace
from pathlib import Path
from types import SimpleNamespace

import numpy as np
import pytest

from puorl.pu.alpha import alpha_estimate
from puorl.pu.config import PRESETS
from puorl.pu.filter import DomainFilter

ROOT = Path(__file__).parents[2]
FILTER, SPEED = ROOT / "benchmarks" / "filter", ROOT / "benchmarks" / "speed"
BENCH_PYTHON = ROOT / ".venv-bench" / "bin" / "python"


@pytest.fixture
def run(monkeypatch, tmp_path, capsys):
    """Run a script with a filter of one epoch; gives its rows and what it printed."""
    pytest.importorskip("mujoco")
    for name, config in PRESETS.items():
        short = replace(config, residuals=None, num_warm_up=1, num_main=0)
        monkeypatch.setitem(PRESETS, name, short)
    out = tmp_path / "rows.jsonl"

    def run(script, *options):
        monkeypatch.syspath_prepend(str(script.parent))
        monkeypatch.setattr(sys, "argv", [str(script), *options, "--out", str(out)])
        runpy.run_path(str(script), run_name="__main__")
        return [json.loads(line) for line in out.read_text().splitlines()], capsys.readouterr().out

    return run


def functions(script, monkeypatch):
    monkeypatch.syspath_prepend(str(script.parent))
    return SimpleNamespace(**runpy.run_path(str(script), run_name="benchmark"))


@pytest.mark.slow
def test_neighbours_compares_like_with_like(run):
    options = ("--rows", "10k", "--seeds", "1", "--bodies", "hopper", "--presets", "paper")
    rows, printed = run(FILTER / "neighbours.py", *options)
    [row] = rows
    shares = [
        row["measured"][protocol]["target_fraction"] for protocol in ("rows", "fresh", "episodes")
    ]
    assert shares == pytest.approx([row["measured"]["true_alpha"]] * 3, abs=0.005)
    assert row["measured"]["num_labelled_episodes"] == 5
    assert "hopper       paper" in printed
    # Nothing is measured twice; the table is printed from what is there.
    again, printed_again = run(FILTER / "neighbours.py", *options)
    assert again == rows
    assert printed_again in printed


def test_reward_shift_keeps_inputs_apart(run):
    options = ("--rows", "2k", "--seeds", "1", "--bodies", "halfcheetah")
    rows, printed = run(FILTER / "reward_shift.py", *options)
    assert [row["config"]["filter"]["features"]["inputs"] for row in rows] == ["sar", "sas"]
    assert {row["measured"]["origin"]["split"] for row in rows} == {
        rows[0]["measured"]["origin"]["split"]
    }
    assert rows[0]["measured"]["true_alpha"] == pytest.approx(29 / 99, abs=1e-3)
    assert len(printed.strip().splitlines()) == 6
    assert run(FILTER / "reward_shift.py", *options)[0] == rows


def test_coverage_of_real_draws(run, monkeypatch):
    def report(self, split, *, seed):
        measured = SimpleNamespace(value=0.5, low=0.0, high=1.0)
        return SimpleNamespace(
            alphas=(alpha_estimate(0.9, (0.8, 1.0), method="bbe"),),
            quality=SimpleNamespace(recall=measured, precision=measured, disputed=0.0),
            verdict="clear",
        )

    monkeypatch.setattr(DomainFilter, "report", report, raising=False)
    options = (
        "--rows",
        "2k",
        "--draws",
        "2",
        "--bodies",
        "halfcheetah",
        "--labelled-fraction",
        ".05",
    )
    rows, printed = run(FILTER / "coverage_real.py", *options)
    assert [row["config"]["seed"] for row in rows] == [0, 1]
    assert len({row["measured"]["origin"]["split"] for row in rows}) == 2
    table = {tuple(line.split()[1:-7]): line.split() for line in printed.splitlines()[-4:]}
    # The faked alpha is above the truth (5/19), its recall interval is all that there is.
    assert table[("report", "alpha")][4:7] == ["0.0%", "100.0%", "0.0%"]
    assert table[("recall",)][3:6] == ["100.0%", "100.0%", "100.0%"]
    # Without the report it is another measurement, not a part of this one.
    more, printed = run(FILTER / "coverage_real.py", *options, "--no-report")
    assert len(more) == 4
    assert "recall" not in printed


@pytest.mark.slow
def test_coverage_of_a_real_report(run):
    options = (
        "--rows",
        "4k",
        "--draws",
        "1",
        "--bodies",
        "halfcheetah",
        "--labelled-fraction",
        ".05",
    )
    [row], _ = run(FILTER / "coverage_real.py", *options)
    said = row["measured"]["intervals"]
    assert list(said) == ["alpha", "report alpha", "recall", "precision"]
    assert all(it["low"] <= it["value"] <= it["high"] for it in said.values())


def test_coverage_is_counted_as_defined(monkeypatch):
    line = functions(FILTER / "coverage_real.py", monkeypatch).line
    held = {"value": 0.3, "low": 0.2, "high": 0.4, "true": 0.25}
    missed_above = {"value": 0.3, "low": 0.28, "high": 0.32, "true": 0.5}
    missed_below = {"value": 0.3, "low": 0.28, "high": 0.34, "true": 0.1}
    nothing_kept = {"value": 0.3, "low": 0.1, "high": 0.9, "true": None}
    cells = line([held, held, missed_above, missed_below, nothing_kept]).split()
    # 4 draws count: 2 hold, 3 are below the upper end, 3 above the lower; widths .2 .2 .04 .06.
    assert cells[:5] == ["4", "50.0%", "75.0%", "75.0%", "0.1300"]
    assert float(cells[5]) == pytest.approx((0.05 + 0.05 - 0.2 + 0.2) / 4)
    assert line([nothing_kept]).split() == ["0"]


def test_a_row_is_found_by_all_of_its_config(monkeypatch, tmp_path):
    recorded_file = functions(FILTER / "recorded.py", monkeypatch).Recorded
    recorded = recorded_file(tmp_path / "rows.jsonl")
    assert recorded.find({"seed": 0}) is None
    recorded.add({"seed": 0, "hidden": (256, 256)}, {"accuracy": 0.9})
    for fresh in (recorded, recorded_file(tmp_path / "rows.jsonl")):
        found = fresh.find({"seed": 0, "hidden": (256, 256)})
        assert found is not None
        assert found["measured"] == {"accuracy": 0.9}
        assert fresh.find({"seed": 0, "hidden": (128, 128)}) is None
        assert fresh.find({"seed": 0}) is None


def test_grades_by_hand(monkeypatch):
    grade = functions(FILTER / "graded.py", monkeypatch).grade
    truth = np.array([1, 1, 1, 1, 0, 0, 0, 0, 0, 0], bool)
    kept = np.array([1, 1, 1, 0, 1, 1, 0, 0, 0, 0], bool)
    assert grade(kept, truth) == {
        "num_rows": 10,
        "target_fraction": 0.4,
        "accuracy": pytest.approx(0.7),
        "recall": 0.75,
        "specificity": pytest.approx(4 / 6),
        "precision": pytest.approx(3 / 5),
    }
    assert grade(np.zeros(10, bool), truth)["precision"] is None


def test_speed_of_ours(run):
    options = ("--rows", "2k", "--rounds", "1", "--labelled-fraction", ".05", "--preset", "paper")
    rows, printed = run(SPEED / "filter.py", *options, "--no-report", "--no-baseline", "--save")
    [row] = rows
    [ours] = row["measured"]["ours"]
    assert ours["num_scored"] == 1900
    # HalfCheetah: 17 + 6 + 17 numbers and a reward of 4 bytes, two flags of 1.
    assert ours["data"] == 2000 * (41 * 4 + 2)
    assert ours["peak"]["scored"] >= ours["peak"]["loaded"] > ours["data"]
    assert 0 < ours["seconds"]["score_again"] <= 1.5 * ours["seconds"]["score"]
    assert "released" not in printed


def test_an_epoch_in_the_released_style_counts_with_its_best_parts(monkeypatch):
    released_epoch = functions(SPEED / "filter.py", monkeypatch).released_epoch
    disturbed = {"rank": 90.0, "train": 0.5, "alpha": 9.0, "sliced_rank": 1.0}
    quiet = {"rank": 10.0, "train": 1.5, "alpha": 0.25, "sliced_rank": 2.0}
    for rounds in (
        [{"epochs": [disturbed, quiet]}],
        [{"epochs": [disturbed]}, {"epochs": [quiet]}],
    ):
        assert released_epoch(rounds, "rank") == (0.75, 10.75)
        assert released_epoch(rounds, "sliced_rank") == (0.75, 1.75)


@pytest.mark.slow
@pytest.mark.skipif(not BENCH_PYTHON.exists(), reason="needs make bench-setup")
def test_speed_of_the_released_style(run):
    options = ("--rows", "20k", "--rounds", "1", "--labelled-fraction", ".03", "--no-report")
    rows, printed = run(SPEED / "filter.py", *options, "--save")
    [theirs] = rows[0]["measured"]["released_style"]
    # 600 labelled rows: 480 train in two batches; 19,400 others, of which 15,520 are ranked.
    assert [epoch["num_updates"] for epoch in theirs["epochs"]] == [2, 2]
    assert theirs["num_ranked"] == 15_520
    assert 0 < theirs["alpha"] < 1
    assert "released style, row by row: 110 epochs" in printed
