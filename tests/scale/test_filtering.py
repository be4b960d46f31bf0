"""Scores of partitions, with a filter whose answers are known."""

from types import SimpleNamespace

import numpy as np
import pytest

import puorl
from puorl.scale import filtering


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
