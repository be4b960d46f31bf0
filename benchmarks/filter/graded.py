"""A fitted filter against the truth."""

from typing import Any

import numpy as np

import puorl


def is_target(split: puorl.PUSplit) -> np.ndarray:
    """(u,) bool. Which of the unlabelled rows are the target's."""
    return split.reveal("benchmark")[split.unlabelled] == 0


def grade(kept: np.ndarray, truth: np.ndarray) -> dict[str, float | None]:
    """Accuracy, share of the target's rows kept, share of the others' refused, precision.

    Args:
        kept: (n,) bool. What the filter keeps.
        truth: (n,) bool. What it should keep.
    """
    right = kept == truth
    return {
        "num_rows": len(truth),
        "target_fraction": float(truth.mean()),
        "accuracy": float(right.mean()),
        "recall": float(right[truth].mean()),
        "specificity": float(right[~truth].mean()),
        "precision": float(truth[kept].mean()) if kept.any() else None,
    }


def origin(split: puorl.PUSplit, *sources: puorl.Dataset) -> dict[str, Any]:
    """Fingerprints of all that was learnt from."""
    return {"content": [source.fingerprint for source in sources], "split": split.fingerprint}


def summary(values: list[float], *, percent: bool = True) -> str:
    """Mean and standard deviation over seeds, as a table shows them."""
    scale, digits = (100.0, 2) if percent else (1.0, 3)
    mean = f"{scale * float(np.mean(values)):.{digits}f}"
    if len(values) < 2:
        return mean
    return f"{mean} ± {scale * float(np.std(values, ddof=1)):.{digits}f}"
