"""JSON lines, and compressed text tables."""

import gzip
import json

import numpy as np
import pyarrow as pa
import pytest

from puorl.core.errors import DataError
from puorl.data.formats import load

NOTE = 'a\n"b'
ROWS = [
    {"run": f"r{i // 3}", "obs": [i, i / 2], "act": {"speed": -i}, "ok": i % 2 == 0, "note": NOTE}
    for i in range(6)
]
TEXT = "".join(json.dumps(row) + "\n" for row in ROWS)
CSV = "run,obs_0,obs_1,act.speed\n" + "".join(f"r{i // 3},{i},{i / 2},{-i}\n" for i in range(6))


def store(path, text):
    content = text.encode()
    if path.suffix.lower() == ".gz":
        content = gzip.compress(content)
    elif path.suffix.lower() == ".zst":
        sink = pa.BufferOutputStream()
        with pa.CompressedOutputStream(sink, "zstd") as stream:
            stream.write(text.encode())
        content = sink.getvalue().to_pybytes()
    path.write_bytes(content)
    return path


@pytest.mark.parametrize("name", ["log.jsonl", "log.ndjson", "log.jsonl.gz", "log.JSONL.zst"])
def test_objects_become_columns(tmp_path, name):
    data = load(store(tmp_path / name, TEXT))
    assert data.obs.tolist() == [[0, 0], [1, 0.5], [3, 1.5], [4, 2]]
    assert data.action.ravel().tolist() == [0, -1, -3, -4]
    assert data.provenance.action_names == ("act.speed",)
    assert data.columns["ok"].tolist() == [True, False, False, True]
    assert data.columns["note"].tolist() == ['a\n"b'] * 4
    assert data.columns["run"].tolist() == ["r0", "r0", "r1", "r1"]
    assert data.provenance.format == "jsonl"


@pytest.mark.parametrize("name", ["log.csv.gz", "log.tsv.zst", "log.CSV.GZ"])
def test_compressed_tables(tmp_path, name):
    text = CSV.replace(",", "\t") if "tsv" in name else CSV
    plain = load(store(tmp_path / "log.csv", CSV))
    assert load(store(tmp_path / name, text)).fingerprint == plain.fingerprint


@pytest.mark.parametrize("name", ["log.csv.gz", "log.csv.zst", "log.jsonl.gz"])
@pytest.mark.parametrize("cut", [0.3, 0.9])
def test_damaged_archives(tmp_path, name, cut):
    rng = np.random.default_rng(0)
    rows = [{"obs": float(a), "act": float(b)} for a, b in rng.normal(size=(2_000, 2))]
    text = "".join(json.dumps(row) + "\n" for row in rows)
    if "csv" in name:
        text = "obs,act\n" + "".join(f"{row['obs']},{row['act']}\n" for row in rows)
    path = store(tmp_path / name, text)
    path.write_bytes(path.read_bytes()[: int(cut * path.stat().st_size)])
    with pytest.raises(DataError, match=name):
        load(path)


@pytest.mark.parametrize(
    ("text", "says"),
    [
        ("", "expected one JSON object a line, got none"),
        ('{"obs": 1}\n[1, 2]\n', "line 2: expected one JSON object a line, got: a JSON list"),
        ('{"obs": 1\n', "line 1: expected one JSON object a line"),
        ('{"obs": ' + "[" * 100_000 + "\n", "line 1: expected one JSON object"),
        ('{"obs_0": 1, "obs": [2], "act": 1}\n', "two values for 'obs_0'"),
        ('{"obs": 1, "act": null}\n{"obs": 1}\n', r"row 0 \(line 1\).*2 bad cells in all: act 2"),
        ('{"obs": 1, "act": "x"}\n{"obs": 1, "act": 2}\n', "expected a number, got 'x'"),
    ],
)
def test_refused_with_a_reason(tmp_path, text, says):
    with pytest.raises(DataError, match=says):
        load(store(tmp_path / "log.jsonl", text))


def test_missing_keys_and_nulls(tmp_path):
    text = '{"obs": 1, "act": 0}\n{"obs": 2}\n{"obs": 3, "act": null}\n{"obs": 4, "act": 1}\n'
    data = load(store(tmp_path / "log.jsonl", text), missing="hold", discrete_actions=False)
    assert data.action.ravel().tolist() == [0, 0, 0]
    assert data.next_obs.ravel().tolist() == [2, 3, 4]
