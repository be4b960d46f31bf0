import intervals
import numpy as np
from baseline import Recorded
from draws import draw_fleet
from machines import measure
from method import METHODS, Decision, Method
from simulate import simulate

from puorl.core.stats import Estimate


def test_rates_over_all_and_over_decidable_fleets(tmp_path, monkeypatch):
    def keep_all(_, data, tasks):
        units = np.unique(data.columns["unit"])
        one = np.ones(len(units))
        alpha, recall = Estimate(0.5, 0.0, 1.0), Estimate(0.4, 0.2, 0.6)
        made = Decision(units, one, one > 0, 0.0, probability=one, alpha=alpha, recall=recall)
        return [made for _ in tasks]

    monkeypatch.setitem(METHODS, "linear", keep_all)
    recorded, chosen = Recorded(tmp_path / "rows.jsonl"), Method("linear")
    fleets = [draw_fleet(seed) for seed in (2, 3)]
    for fleet, accuracy in zip(fleets, (1.0, 0.9), strict=True):
        measure(chosen, fleet, simulate(fleet), 3, 1, recorded)
        told = {"accuracy": accuracy, "auroc": 1.0}
        recorded.add(intervals.read_out_config(fleet), told)
    text = intervals.text(chosen, recorded, fleets, 3)
    assert "all fleets: 2 draws" in text
    assert "decidable fleets: 1 draws" in text
    assert "alpha held in 100.0 %, median width 1.000" in text
    # Every unit is kept: the true recall is 1.
    assert "recall held in 0.0 %, median width 0.400" in text
    assert "Read-out below 99 %, 1 of 2: draw-0003 (crane, 90.0 %)" in text
    first = fleets[0]
    asked = first.num_units - 3
    error = 1.0 - (first.kinds[0].count - 3) / asked
    assert f"decidable fleets: 1 draws; units right {100.0 - 100.0 * error:.2f} %" in text
    assert f"calibration error {error:.4f}" in text
