"""Rows at an address of an object store, read through pyarrow from a server of moto."""

import numpy as np
import pyarrow as pa
import pyarrow.parquet as pq
import pytest

import puorl
from puorl.core.errors import DataError


@pytest.fixture
def bucket(monkeypatch):
    server = pytest.importorskip("moto.server").ThreadedMotoServer(port=0)
    boto3 = pytest.importorskip("boto3")
    server.start()
    host, port = server.get_host_and_port()
    monkeypatch.setenv("AWS_ACCESS_KEY_ID", "any")
    monkeypatch.setenv("AWS_SECRET_ACCESS_KEY", "any")
    client = boto3.client("s3", endpoint_url=f"http://{host}:{port}", region_name="us-east-1")
    client.create_bucket(Bucket="fleet")
    yield client, f"?endpoint_override={host}%3A{port}&scheme=http&region=us-east-1"
    server.stop()


def test_the_same_rows_as_from_a_folder(bucket, tmp_path):
    client, options = bucket
    rng = np.random.default_rng(0)
    n = 90
    table = pa.table(
        {"obs_0": rng.normal(size=n), "act_0": rng.normal(size=n), "episode": np.arange(n) // 9}
    )
    for i, (start, stop) in enumerate(((0, 31), (31, n))):
        path = tmp_path / f"{i}.parquet"
        pq.write_table(table.slice(start, stop - start), path)
        client.upload_file(str(path), "fleet", f"rows/robot=A/{i}.parquet")
    lazy = puorl.open(f"s3://fleet/rows{options}", partition_rows=20)
    made, loaded = lazy.to_dataset(), puorl.open(tmp_path, partition_rows=20).to_dataset()
    np.testing.assert_array_equal(made.next_obs, loaded.next_obs)
    assert set(made.columns["robot"].tolist()) == {"A"}
    assert len(lazy) > 2
    assert lazy.fingerprint
    one = puorl.open(f"s3://fleet/rows/robot=A/0.parquet{options}")
    assert one.num_rows == 31
    named = puorl.open(f"s3://any:any@fleet/rows{options}", partition_rows=20)
    assert all("any:any@fleet/rows/" in source.path for source in named.sources)
    np.testing.assert_array_equal(named.to_dataset().next_obs, loaded.next_obs)
    with pytest.raises(DataError, match="found none there"):
        puorl.open(f"s3://fleet/nothing{options}")
