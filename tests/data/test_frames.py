"""DataFrames where a path goes, and datasets as DataFrames."""

import datetime

import numpy as np
import pyarrow as pa
import pytest

import puorl
from puorl.core.errors import ConfigError, DataError, MissingExtraError

TABLE = {
    "run": ["a", "a", "a", "b", "b", "b"],
    "when": [datetime.datetime(2024, 1, 1, 0, 0, i % 3) for i in range(6)],
    "flow": [0.0, 1.0, 2.0, 3.0, 4.0, 5.0],
    "pressure": [0, 10, 20, 30, 40, 50],
    "speed": [0.5] * 6,
    "pump": ["P-07", "P-07", "P-07", "", "", ""],
}
NAMES = {"obs": ["flow", "pressure"], "action": "speed", "episode": "run", "time": "when"}


class Frame:
    """What all libraries of DataFrames have in common."""

    def __init__(self, table):
        self._table = table

    def __arrow_c_stream__(self, requested_schema=None):
        return self._table.__arrow_c_stream__(requested_schema)


def tables():
    yield pa.table(TABLE)
    yield Frame(pa.table(TABLE).set_column(5, "pump", pa.array(TABLE["pump"]).dictionary_encode()))
    try:
        import pandas
    except ImportError:
        pass
    else:
        frame = pandas.DataFrame(TABLE)
        yield frame.astype({"pump": "category"})
    try:
        import polars
    except ImportError:
        return
    yield polars.DataFrame(TABLE).with_columns(polars.col("pump").cast(polars.Categorical))


@pytest.mark.parametrize("frame", [*tables()], ids=lambda frame: type(frame).__module__)
def test_frames_go_where_a_path_goes(frame):
    data = puorl.load(frame, **NAMES, label="pump == 'P-07'", reward="-abs(flow - 1)")
    assert data.obs.tolist() == [[0, 0], [1, 10], [3, 30], [4, 40]]
    assert data.columns["pump"].tolist() == ["P-07", "P-07", "", ""]
    assert data.columns["labelled"].tolist() == [True, True, False, False]
    assert data.columns["run"].tolist() == ["a", "a", "b", "b"]
    assert np.diff(data.time).tolist() == [1.0, -1.0, 1.0]
    assert data.reward.tolist() == [-1.0, 0.0, -2.0, -3.0]
    assert (data.provenance.format, data.provenance.source) == ("frame", ("DataFrame",))


def test_the_same_as_from_a_file(tmp_path):
    import pyarrow.parquet as pq

    pq.write_table(pa.table(TABLE), tmp_path / "log.parquet")
    file = puorl.load(tmp_path / "log.parquet", **NAMES)
    assert puorl.load(pa.table(TABLE), **NAMES).fingerprint == file.fingerprint
    both = puorl.load([pa.table(TABLE), tmp_path / "log.parquet"], **NAMES)
    assert len(both) == 2 * len(file)
    assert both.num_episodes == 4


def test_what_is_refused():
    table = pa.table(TABLE)
    with pytest.raises(DataError, match="DataFrame: is named twice"):
        puorl.load([table, table], **NAMES)
    with pytest.raises(DataError, match="DataFrame: expected the column 'flw'"):
        puorl.load(table, **{**NAMES, "obs": "flw"})
    holes = table.set_column(2, "flow", pa.array([0.0, None, 2.0, 3.0, 4.0, 5.0]))
    with pytest.raises(DataError, match="DataFrame: .*row 1 is empty; 1 bad cell in all: flow 1"):
        puorl.load(holes, **NAMES)
    assert len(puorl.load(holes, **NAMES, missing="hold")) == 4
    for wrong in ({"obs": [1.0]}, np.zeros((3, 2)), None, 5):
        with pytest.raises(ConfigError, match="path: expected a path, a DataFrame or an Arrow"):
            puorl.load(wrong)


def test_and_back():
    data = puorl.load(pa.table(TABLE), **NAMES)
    table = data.to_arrow()
    assert table.column_names == [
        "flow", "pressure", "speed", "next_flow", "next_pressure", "terminal", "timeout", "episode",
        "time", "run", "pump", "source_row",
    ]  # fmt: skip
    again = puorl.load(table, **NAMES | {"time": "time", "episode": "episode"}, next_obs="next_*")
    np.testing.assert_array_equal(again.next_obs, data.next_obs)
    np.testing.assert_array_equal(again.obs, data.obs)
    assert again.columns["pump"].tolist() == data.columns["pump"].tolist()
    plain = puorl.Dataset.from_arrays(
        obs=np.zeros((3, 2)), action=np.zeros((3, 1)), columns={"obs_0": np.arange(3)}
    )
    assert plain.to_arrow().column_names[:3] == ["obs_0", "obs_1", "act_0"]
    assert "column/obs_0" in plain.to_arrow().column_names


@pytest.mark.parametrize("name", ["pandas", "polars"])
def test_libraries_that_may_be_there(name):
    data = puorl.load(pa.table(TABLE), **NAMES)
    convert = getattr(data, f"to_{name}")
    try:
        __import__(name)
    except ImportError:
        with pytest.raises(MissingExtraError, match=f"pip install {name}$"):
            convert()
        return
    frame = convert()
    assert list(frame.columns) == data.to_arrow().column_names
    assert frame["flow"].to_numpy().tolist() == data.obs[:, 0].tolist()
    assert puorl.load(frame, **NAMES | {"time": "time"}, next_obs="next_*").obs.tolist() == (
        data.obs.tolist()
    )
