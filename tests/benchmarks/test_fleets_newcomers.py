from types import SimpleNamespace

import newcomers
import numpy as np
import pytest
from draws import draw_fleet
from machines import dataset_of
from simulate import simulate

from puorl.pu.machines.findings import UnitTable

THREE_TYPES = next(seed for seed in range(20) if len(draw_fleet(seed).kinds) > 2)
TWO_TYPES = next(seed for seed in range(20) if len(draw_fleet(seed).kinds) == 2)


@pytest.mark.parametrize("seed", [TWO_TYPES, THREE_TYPES])
def test_some_units_of_each_type_are_fitted_and_one_type_of_several_others_is_left_out(seed):
    fleet = draw_fleet(seed)
    parts = newcomers.draw_parts(seed, fleet, simulate(fleet))
    assert (parts.unseen is None) == (seed == TWO_TYPES)
    for kind in fleet.kinds:
        own = parts.kind == kind.name
        fitted = 0 if kind.name == parts.unseen else max(round(0.6 * own.sum()), 3)
        assert parts.fitted[own].sum() == fitted
        assert not parts.fitted[own].all()
    of = np.isin(parts.units, parts.known)
    assert of.sum() == newcomers.NUM_KNOWN
    assert parts.fitted[of].all()
    assert set(parts.kind[of]) == {"ours"}


def test_what_is_named_kept_and_dropped_is_counted():
    fleet = draw_fleet(THREE_TYPES)
    table = simulate(fleet)
    parts = newcomers.draw_parts(THREE_TYPES, fleet, table)
    data = dataset_of(table, fleet)
    new = ~parts.fitted
    is_ours, unseen = (parts.kind == "ours")[new], (parts.kind == parts.unseen)[new]
    keep = is_ours.copy()
    keep[np.flatnonzero(unseen)[0]] = True
    cluster = np.where(keep, 0, np.where(unseen, -1, 1))
    cluster[np.flatnonzero(~unseen & ~is_ours)[0]] = -1
    n = int(new.sum())
    columns = dict.fromkeys(UnitTable._fields, np.zeros(n))
    columns |= {"name": parts.units[new], "probability": keep * 0.9, "keep": keep}
    asked = []

    def predict_units(rows):
        asked.extend(np.unique(rows.columns["unit"]))
        return UnitTable(**columns | {"cluster": cluster})

    flt = SimpleNamespace(predict_units=predict_units, verdict_="dynamics")
    rows = data[np.isin(np.asarray(data.columns["unit"]), parts.units[new])]
    measured = newcomers.judge(flt, rows, parts, "ours")
    assert asked == parts.units[new].tolist()
    text = newcomers.text([(fleet, measured)])
    num_unseen, num_old = int(unseen.sum()), int((~unseen).sum())
    assert f"ordinary, none of these: 1 of {num_old} " in text
    assert f"ordinary, ours or not right: {num_old} of {num_old} (100.0 %" in text
    assert f"unseen, none of these: {num_unseen - 1} of {num_unseen} " in text
    assert f"unseen, kept as ours: 1 of {num_unseen} " in text
    assert f"unseen, of another known type: 0 of {num_unseen} " in text
    assert text.startswith("all, 1 fleets")
    assert f"{fleet.machine.name}, 1 fleets" in text
