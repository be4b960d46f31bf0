"""The cases: their commands run on recorded rows, and what is said of them is computed rightly."""

import shutil
import sys
from pathlib import Path

import pytest

from puorl.core.files import read_json
from puorl.pu.config import PRESETS, FilterConfig, MachineConfig

ROOT = Path(__file__).parents[2]
sys.path.insert(0, str(ROOT / "examples" / "cases"))
import run  # noqa: E402

RECORDED = Path(__file__).parent / "recorded"
QUICK = FilterConfig(
    machines=MachineConfig(hidden=(16,), latent_sizes=(2,), num_seeds=1, num_steps=150)
)
TINY = run.Size(20, seeds=2, hidden="8", batch_size=16, judge_updates=20, episodes=1)


@pytest.mark.parametrize("name", run.CASES)
def test_a_case_runs_on_recorded_rows(name, tmp_path, monkeypatch):
    monkeypatch.setitem(PRESETS, "default", QUICK)
    case, do = run.CASES[name], run.Commands()
    shutil.copytree(RECORDED / name, tmp_path / "log")
    truth = tmp_path / "log" / run.TRUTH
    known = run.learn(case, TINY, tmp_path / "log" / run.LOG, truth, tmp_path, do)
    assert len(known) == case.num_known
    found = run.beside_truth(case, tmp_path / "ours", truth)
    assert found["num_asked"] + case.num_known == len(found["units"])
    assert 0 <= found["num_right"] <= found["num_asked"]
    compared = read_json(tmp_path / "compared" / "compare.json")
    assert [each["method"] for each in compared["outcomes"]] == list(run.METHODS)
    assert len(list((tmp_path / "policies").glob("*.onnx"))) == 2 * len(run.METHODS)
