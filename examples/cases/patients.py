"""Whether the simulated patients' own parameters tell their ages: `simglucose`'s table, no log.

    .venv-cases/diabetes/bin/python -W ignore examples/cases/patients.py

prints lines of JSON. The read-out is that of `decidable.py`, told the truth of other patients. It
shows how little a failed read-out proves: insulin clearance, a product of three of the parameters,
tells all ages, and a regression on all 27 of them does not find that from 30 patients.
"""

import json
import sys
from pathlib import Path

import numpy as np
import pandas as pd
from simglucose.patient.t1dpatient import PATIENT_PARA_FILE

sys.path.insert(0, str(Path(__file__).parents[2] / "benchmarks" / "fleets"))
from readout import auroc, held_out_logits

GROUPS = ("adolescent", "adult", "child")
PARAMETERS = (
    "BW kabs kmax kmin b d Vg Vi Vmx Km0 k2 k1 p2u m1 m2 m4 m30 ki kp2 kp3 Vm0 kd ksc ka1 ka2 "
    "kp1 Ib"
).split()
"""Those of the model's equations that differ between patients; the first is the weight."""


def main() -> None:
    """Print how many of the 30 patients are told rightly, ours against both other ages."""
    table = pd.read_csv(PATIENT_PARA_FILE)
    kind = np.array([GROUPS.index(name.partition("#")[0]) for name in table.Name])
    seen = {"all": PARAMETERS, "all but the weight": PARAMETERS[1:], "the weight": PARAMETERS[:1]}
    values = {name: np.log(table[columns].to_numpy(float)) for name, columns in seen.items()}
    clearance = table.m2 * table.Vi * table.BW
    values["clearance, m2 x Vi x BW"] = np.log(clearance.to_numpy(float))[:, None]
    for name, value in values.items():
        logit = held_out_logits([(value - value.mean(axis=0)) / value.std(axis=0)], kind)
        kept = {group: int(np.sum(logit[kind == k] > 0)) for k, group in enumerate(GROUPS)}
        print(json.dumps({
            "told": name, "num_units": len(kind),
            "num_right": int(np.sum((logit > 0) == (kind == 0))),
            "auroc": auroc(logit, kind == 0), "called_ours": kept,
        }))  # fmt: skip


if __name__ == "__main__":
    main()
