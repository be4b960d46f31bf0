import json

import pytest

from puorl.bench.group import curves
from puorl.bench.prepare import collect_all
from puorl.bench.settings import Source
from puorl.envs.collect import Cache


def test_curves_are_read_from_metrics(tmp_path):
    lines = [
        {"step": 1, "lane": "a", "loss": 1.0},
        {"step": 2, "lane": "a", "score": 3.0},
        {"step": 2, "lane": "b", "score": None},
        {"step": 4, "lane": "a", "score": 5.0},
    ]
    (tmp_path / "m").write_text("".join(json.dumps(line) + "\n" for line in lines))
    assert curves(tmp_path / "m") == {"a": [[2, 3.0], [4, 5.0]]}


@pytest.mark.parametrize("workers", [1, 2])
def test_collected_rows_are_in_the_cache(tmp_path, monkeypatch, workers):
    monkeypatch.setenv("PUORL_CACHE", str(tmp_path))
    sources = [Source("hopper", name, "random", 20, 0) for name in ("nominal", "body_mass")]
    collect_all(sources, workers=workers, show=False)
    assert len(list(Cache().folder.glob("*.hdf5"))) == 2
    before = {path: path.stat().st_mtime_ns for path in tmp_path.iterdir()}
    rows = sources[0].collect()
    assert len(rows) == 20
    assert {path: path.stat().st_mtime_ns for path in tmp_path.iterdir()} == before
