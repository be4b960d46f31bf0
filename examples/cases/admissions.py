"""Whether single admissions of the sepsis case can be told: a classifier that is told the truth.

    .venv-cases/sepsis/bin/python -W ignore examples/cases/admissions.py LOG_FOLDER

prints a line of JSON. Boosted trees see a row (state, dose, change of the state, how it ended);
they are told the hospital of five wards in six and asked for the others. The evidence of an
admission is the sum over its rows.
"""

import json
import sys
from pathlib import Path

import numpy as np
import pandas as pd
from sklearn.ensemble import HistGradientBoostingClassifier

NUM_FOLDS = 6


def read_out(folder: Path, seed: int = 0) -> dict[str, float]:
    """Return the fractions of admissions and of wards that are told rightly."""
    log = pd.read_csv(folder / "log.csv.gz")
    ours = pd.read_csv(folder / "truth.csv").set_index("ward").ours
    names = [name for name in log if name.startswith("obs_")]
    state = log[names].to_numpy()
    change = log.groupby("run")[names].shift(-1).to_numpy() - state  # NaN at the end
    end = np.where(log.over == 1, 1 + log.survived, 0)
    x = np.column_stack([state, change, log.dose // 5, log.dose % 5, end])
    truth = log.ward.map(ours).to_numpy()
    rng, logit = np.random.default_rng(seed), np.zeros(len(log))
    mixed = [rng.permutation(ours.index[ours == kind]) for kind in (0, 1)]
    for fold in range(NUM_FOLDS):
        asked = log.ward.isin(np.concatenate([each[fold::NUM_FOLDS] for each in mixed])).to_numpy()
        trees = HistGradientBoostingClassifier(
            max_iter=150, learning_rate=0.06, max_leaf_nodes=15, l2_regularization=5.0,
            random_state=seed,
        )  # fmt: skip
        logit[asked] = trees.fit(x[~asked], truth[~asked]).decision_function(x[asked])
    rows = pd.DataFrame({"run": log.run, "ward": log.ward, "logit": logit, "truth": truth})
    right = {}
    for column in ("run", "ward"):
        found = rows.groupby(column).agg(logit=("logit", "sum"), truth=("truth", "first"))
        right[column] = float(np.mean((found.logit > 0) == (found.truth == 1)))
    tables = pd.read_csv(folder / "episodes.csv")
    by_tables = float(np.mean((tables.log_ratio > 0) == (tables.ours == 1)))
    return {
        "num_admissions": len(tables),
        "admissions_right": round(right["run"], 4),
        "wards_right": round(right["ward"], 4),
        "right_by_the_tables": round(by_tables, 4),
    }


if __name__ == "__main__":
    print(json.dumps({"folder": sys.argv[1], **read_out(Path(sys.argv[1]))}))
