"""What a filter takes: rows and bytes as they are, times from rates, measured ones above zero."""

import json

import numpy as np
import pyarrow as pa
import pyarrow.parquet as pq
import pytest

from puorl.cli.main import main
from puorl.scale.sizing import Rates, Survey, make_plan, survey


@pytest.fixture
def log(tmp_path):
    rng = np.random.default_rng(0)
    for i in range(2):
        columns = {f"obs_{k}": rng.normal(size=3_000) for k in range(3)}
        columns |= {"act_0": rng.normal(size=3_000), "episode": np.arange(3_000) // 50 + 60 * i}
        pq.write_table(pa.table(columns), tmp_path / f"{i}.parquet")
    return tmp_path


def test_rows_are_counted_and_times_are_measured(log, capsys):
    found = survey(log)
    assert found.num_rows == 6_000
    assert found.is_exact
    assert found.num_bytes == sum(path.stat().st_size for path in log.iterdir())
    command = ["plan", str(log), "--json", "--workers", "4", "--price", "1"]
    assert main(command) == 0
    made = json.loads(capsys.readouterr().out)
    assert made["num_rows"] == 6_000
    assert made["num_files"] == 2
    assert all(seconds > 0 for seconds in made["seconds"].values())
    assert made["memory"] > 4 * made["rates"]["memory"] > 10**8
    assert made["price"] > 0


def test_times_follow_rows_and_workers():
    found = Survey(("a",), 10_000_000, 10**9, True)
    rates = Rates(1e-8, 1e-6, 3e-6, 5e-7, 4 * 10**8, 90.0, 30)
    one = make_plan(found, rates, workers=1, sample=1_000_000)
    ten = make_plan(found, rates, workers=10, sample=1_000_000)
    assert one.seconds["score"] == pytest.approx(45)
    assert ten.seconds["score"] == pytest.approx(4.5)
    assert ten.seconds["fit"] == one.seconds["fit"] == pytest.approx(66)
    assert ten.memory - one.memory == 9 * 4 * 10**8
    more = make_plan(Survey(("a",), 10**9, 10**11, True), rates, workers=10, sample=1_000_000)
    assert more.seconds["score"] == pytest.approx(100 * ten.seconds["score"])
    assert more.seconds["fit"] == ten.seconds["fit"]


def test_units_take_the_time_that_was_measured_for_them(log, capsys):
    rates = Rates(1e-8, 1e-6, 3e-6, 5e-7, 4 * 10**8, 90.0, 30)
    for num_rows, low, high in ((24_000, 24, 38), (10**6, 69, 102)):
        found = Survey(("a",), num_rows, 10**6, True)
        made = make_plan(found, rates, workers=2, sample=10**6, by_units=True)
        assert low < made.seconds["fit"] < high
    assert main(["plan", str(log / "0.parquet"), "--unit", "episode"]) == 0
    shown = " ".join(capsys.readouterr().out.split())
    assert "3,000 in 1 file of" in shown
    assert "fit 0:30, with the report, as measured on two cores elsewhere" in shown
    assert main(["plan", str(log), "--unit", "machine"]) == 2
    assert "unit: expected transition" in capsys.readouterr().err
