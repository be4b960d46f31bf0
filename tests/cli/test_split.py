"""Folders of `puorl split` and `puorl filter` where a path goes."""

import json
import re
import shutil

import numpy as np
import pytest

import puorl
from puorl.cli.main import main
from puorl.core.errors import DataError
from puorl.data.labels import read_split

pytestmark = pytest.mark.usefixtures("small")


@pytest.fixture
def split(here, rows):
    is_ours = rows.columns["ours"]
    puorl.save(rows[is_ours], "ours.npz")
    (here / "parts").mkdir()
    others = rows[~is_ours]
    puorl.save(others[:1_000], "parts/a.parquet")  # a folder of several files is one domain
    puorl.save(others[1_000:], "parts/b.parquet")
    words = ["--rows", "2000", "--target-fraction", "0.4", "--labelled-fraction", "0.1"]
    assert main(["split", "ours.npz", "--others", "parts", *words, "--out", "split0"]) == 0
    return here / "split0"


def test_filter_reads_a_split_and_compares_with_its_truth(split, here, capsys):
    capsys.readouterr()
    assert main(["filter", "split0", "--no-report", "--json", "--out", "found"]) == 0
    truth = json.loads(capsys.readouterr().out)["truth"]
    kept = puorl.load("found")  # the folder stands for its kept rows
    others = puorl.load("parts").obs
    is_other = np.isin(kept.obs[:, 0], others[:, 0])
    num_labelled, num_hidden = 200, 600
    num_kept = len(kept) - num_labelled
    assert truth["precision"] == pytest.approx(1 - is_other.sum() / num_kept)
    assert truth["recall"] == pytest.approx((num_kept - is_other.sum()) / num_hidden)
    assert truth["recall"] > 0.5 < truth["precision"]


def test_columns_without_usual_names_are_split_and_found_again(here, capsys):
    for name in ("a", "b"):
        lines = [f"{k % 7},{k % 3},{k // 20},{k}" for k in range(100)]
        (here / f"{name}.csv").write_text("\n".join(["temp,valve,run,at", *lines]) + "\n")
    columns = ["--obs", "temp", "--action", "valve", "--episode", "run", "--time", "at"]
    words = ["--rows", "60", "--labelled-fraction", "0.2", "--target-fraction", "0.5"]
    assert main(["split", "a.csv", "--others", "b.csv", *words, "--out", "s", *columns]) == 0
    capsys.readouterr()
    assert main(["inspect", "s", *columns, "--json"]) == 0
    assert json.loads(capsys.readouterr().out)["labels"]["num_rows"] == 12


def test_inspect_reads_splits_and_kept_rows(split, capsys):
    assert main(["inspect", "split0"]) == 0
    shown = capsys.readouterr().out
    assert re.search(r"labelled +200 rows \(10.00%\)", shown)
    assert re.search(r"rows +2,000", shown)


def test_a_split_is_found_from_elsewhere(split, here, monkeypatch, tmp_path_factory):
    found = read_split(split).split
    moved = tmp_path_factory.mktemp("moved")
    shutil.copytree(split, moved / "split0")
    monkeypatch.chdir(moved)
    assert read_split("split0").split.fingerprint == found.fingerprint
    (here / "ours.npz").unlink()
    with pytest.raises(DataError, match="drawn from ours.npz, which is not there any more"):
        read_split("split0")


def test_a_split_of_own_rows_is_read_without_its_labels_again(here, rows):
    np.savez("rows.npz", obs=rows.obs, action=rows.action, episode=rows.episode)
    data = puorl.load("rows.npz")
    mask = data.episode < 5
    made = puorl.PUSplit.from_mask(data, mask)
    made.save("own")
    read = read_split("own")
    assert read.split.fingerprint == made.fingerprint
    np.testing.assert_array_equal(read.mask, mask)


def test_other_commands_say_where_a_split_belongs(split, capsys):
    for words in (
        ["train", "split0", "--out", "x"],
        ["filter", "split0", "--labelled", "a == 1", "--out", "x"],
    ):
        assert main(words) == 2
        assert "which has its own labels: give it alone to puorl filter" in capsys.readouterr().err
