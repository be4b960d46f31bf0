"""A method's decisions against the truth: units right, intervals that hold it, calibration."""

from collections.abc import Mapping, Sequence
from typing import Any

import numpy as np
from method import Decision
from readout import auroc

import puorl
from puorl.core.stats import Estimate

NUM_BINS = 10
"""Of the calibration error."""


def judge(
    decision: Decision, data: puorl.Dataset, ours: np.ndarray, known: np.ndarray
) -> dict[str, Any]:
    """All that is recorded of one decision, JSON-ready.

    Args:
        decision: Of a method.
        data: What it was made from; its rows weigh the true alpha.
        ours: (units,) bool. The truth, in the order of the units' names.
        known: (k,) str. Units that were known; they are not asked about.
    """
    asked = ~np.isin(decision.units, known)
    num_rows = np.unique(data.columns["unit"], return_counts=True)[1][asked]
    truth, called = ours[asked], decision.kept[asked]
    both = truth.any() and not truth.all()
    recall = float(called[truth].mean()) if truth.any() else None
    alpha = float(num_rows[truth].sum() / num_rows.sum())
    return {
        "num_asked": int(asked.sum()),
        "num_right": int((called == truth).sum()),
        "num_ours": int(truth.sum()),
        "num_ours_kept": int(called[truth].sum()),
        "num_others_kept": int(called[~truth].sum()),
        "auroc": auroc(decision.evidence[asked], truth) if both else None,
        "alpha": as_dict(decision.alpha),
        "true_alpha": alpha,
        "alpha_held": is_held(decision.alpha, alpha),
        "recall": as_dict(decision.recall),
        "true_recall": recall,
        "recall_held": None if recall is None else is_held(decision.recall, recall),
        "verdict": decision.verdict,
        "seconds": round(decision.seconds, 2),
        "known_units": np.asarray(known).tolist(),
        "units": {
            "name": decision.units[asked].tolist(),
            "ours": truth.astype(int).tolist(),
            "kept": called.astype(int).tolist(),
            "num_rows": num_rows.tolist(),
            "evidence": _rounded(decision.evidence[asked]),
            "probability": _rounded(decision.probability, asked),
            "cluster": None if decision.cluster is None else decision.cluster[asked].tolist(),
        },
    }


def as_dict(estimate: Estimate | None) -> dict[str, Any] | None:
    """An estimate, JSON-ready; None where there is none."""
    return None if estimate is None else estimate.to_dict()


def is_held(estimate: Estimate | None, truth: float) -> bool | None:
    """Whether the interval holds the truth; None where there is no interval."""
    if estimate is None or estimate.interval is None:
        return None
    low, high = estimate.interval
    # Alpha is a ratio of counts of rows: an end that is exact must not miss by a rounding.
    return low - 1e-6 <= truth <= high + 1e-6


def calibration_error(probability: np.ndarray, truth: np.ndarray) -> float:
    """Expected calibration error: |mean probability - rate of ours|, over bins of equal width.

    Args:
        probability: (n,) float in [0, 1].
        truth: (n,) bool or 0 and 1.
    """
    part = np.minimum((NUM_BINS * np.asarray(probability)).astype(int), NUM_BINS - 1)
    gap = np.bincount(part, probability, NUM_BINS) - np.bincount(part, truth, NUM_BINS)
    return float(np.abs(gap).sum() / len(part))


def summary(found: Sequence[Mapping[str, Any]]) -> dict[str, Any]:
    """Of many judged decisions: rates, coverage, median widths, calibration; None if not told."""
    right = sum(m["num_right"] for m in found) / sum(m["num_asked"] for m in found)
    told = [m["units"] for m in found if m["units"]["probability"] is not None]
    error = None
    if told:
        probability = np.concatenate([units["probability"] for units in told])
        error = calibration_error(probability, np.concatenate([units["ours"] for units in told]))
    made: dict[str, Any] = {"draws": len(found), "units_right": right, "calibration_error": error}
    for name in ("alpha", "recall"):
        held = [m[f"{name}_held"] for m in found if m[f"{name}_held"] is not None]
        width = [m[name]["high"] - m[name]["low"] for m in found if m[f"{name}_held"] is not None]
        made[f"{name}_coverage"] = float(np.mean(held)) if held else None
        made[f"{name}_width"] = float(np.median(width)) if held else None
    return made


def summary_text(made: Mapping[str, Any]) -> str:
    """A summary in one line; what the method does not tell is left out."""
    text = [f"{made['draws']} draws", f"units right {100.0 * made['units_right']:.2f} %"]
    for name in ("alpha", "recall"):
        if made[f"{name}_coverage"] is not None:
            held, width = 100.0 * made[f"{name}_coverage"], made[f"{name}_width"]
            text.append(f"{name} held in {held:.1f} %, median width {width:.3f}")
    if made["calibration_error"] is not None:
        text.append(f"calibration error {made['calibration_error']:.4f}")
    return "; ".join(text)


def _rounded(values: np.ndarray | None, chosen: np.ndarray | None = None) -> list[float] | None:
    if values is None:
        return None
    return [float(f"{v:.6g}") for v in (values if chosen is None else values[chosen])]
