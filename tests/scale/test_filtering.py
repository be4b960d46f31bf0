"""Scores of partitions, with a filter whose answers are known."""

from types import SimpleNamespace

import numpy as np
import pyarrow as pa
import pyarrow.parquet as pq
import pytest

import puorl
from puorl.core.errors import DataError
from puorl.pu.units import parse_unit, unusable_units
from puorl.scale import Workers, draw_sample, filtering


@pytest.mark.parametrize("finds_target", [True, False])
def test_nothing_is_kept_where_the_target_was_not_found(tmp_path, monkeypatch, finds_target):
    n = 30
    data = puorl.Dataset.from_arrays(
        obs=np.arange(2.0 * n).reshape(n, 2),
        action=np.linspace(0, 1, n)[:, None],
        episode=np.arange(n) // 10,
        columns={"checked": np.arange(n) < 5},
    )
    path = puorl.save(data, tmp_path / "rows.parquet")
    known = SimpleNamespace(
        unit="transition",
        predict_proba=lambda rows: np.linspace(0, 1, len(rows), dtype=np.float32),
        model_=SimpleNamespace(finds_target=finds_target),
    )
    monkeypatch.setattr(filtering, "_loaded", lambda folder: known)
    found = filtering.Scorer(puorl.open(path, label="checked == 1"), tmp_path).score(0)
    assert found.labelled.sum() == 5
    assert found.keep[found.labelled].all()
    assert found.keep[~found.labelled].any() == finds_target
    flt = puorl.DomainFilter()
    known.model_.alpha, known.model_.score_rows = SimpleNamespace(value=0.5), known.predict_proba
    flt.model_ = known.model_
    assert flt.predict(data).any() == finds_target


def test_a_sample_knows_what_partitions_without_usable_rows_left_out(tmp_path):
    n, unit = 40, parse_unit("column:pump")
    pump = np.where(np.arange(n) < 20, "P-1", "P-2")
    table = {"obs": np.arange(n) * 1.0, "act": np.ones(n), "clock": np.arange(n), "pump": pump}
    table["run"] = pump
    table["act"][20:] = np.nan
    for number in (0, 1):
        part = {name: values[20 * number : 20 * number + 20] for name, values in table.items()}
        pq.write_table(pa.table(part), tmp_path / f"{number}.parquet")
    fields = {"episode": "run", "time": "clock"}
    names = {"missing": "drop", "needed": "pump", "partition_rows": 15} | fields
    lazy = puorl.open(tmp_path, **names)
    assert [len(part) for part in lazy] == [19, 0]
    data = draw_sample(lazy, unit, tmp_path / "work", Workers(number=1)).data
    assert data.provenance.left_out == {"missing_rows": 20, "dropped_rows": 1}
    assert unusable_units(data, unit) == ["P-2"]
    assert data.used_columns == {"obs": ["obs"], "action": ["act"], **fields}
    lazy = puorl.open(tmp_path / "1.parquet", **names)
    says = "without missing cells and with a next state, got none of these in 20 rows"
    for read in (lazy.to_dataset, lambda: puorl.save(lazy, tmp_path / "copy")):
        with pytest.raises(DataError, match=says):
            read()
