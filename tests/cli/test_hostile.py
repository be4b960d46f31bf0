"""Every command with wrong, missing, empty and huge input: one clear line and exit code 2."""

import os
import re
import shlex
import tracemalloc
from pathlib import Path

import numpy as np
import pytest
from hostile_cases import CASES
from messages import message
from train_rows import names_in, train_rows

import puorl
from puorl.cli.main import main

FORMATS = ("csv", "tsv", "npz", "hdf5", "parquet", "txt", "jsonl", "safetensors")
HUGE = 200 * 10**9


@pytest.fixture(scope="module")
def folder(tmp_path_factory):
    """Rows, and all that may stand where rows are expected."""
    folder = tmp_path_factory.mktemp("hostile")
    puorl.save(train_rows(), folder / "rows.npz")
    puorl.save(train_rows(seed=1), folder / "b.npz")
    junk = np.random.default_rng(0).bytes(5000)
    for name in FORMATS:
        (folder / f"junk.{name}").write_bytes(junk)
        (folder / f"empty.{name}").touch()
        (folder / f"folder.{name}").mkdir()
        hole(folder / f"hole.{name}")
    (folder / "tail.csv").write_text("obs_0,act_0\n1,2\n")
    hole(folder / "tail.csv")
    (folder / "letter").write_text("precious")
    (folder / "hollow").mkdir()
    (folder / "torn").mkdir()
    hole(folder / "torn" / "run.json")
    return folder


def hole(path):
    """Lengthen a file by what takes no room on the disk, and reads as NUL bytes."""
    with open(path, "ab") as file:
        file.truncate(HUGE)


@pytest.fixture
def here(folder, monkeypatch):
    monkeypatch.chdir(folder)
    return folder


def refused(command, capsys):
    """The message in which a command says why it does not run; nothing is left of it."""
    before = names_in(Path.cwd())
    assert main(shlex.split(command)) == 2
    text = message(capsys.readouterr().err)
    assert names_in(Path.cwd()) == before
    return text


@pytest.mark.parametrize(
    ("command", "said"),
    CASES,
)
def test_refused_in_one_message(here, capsys, monkeypatch, command, said):
    monkeypatch.setattr("puorl.core.files.LONGEST_LINE", 2**16)
    monkeypatch.setattr("puorl.core.files._LONGEST_JSON", 2**16)
    assert said in refused(command, capsys)


def test_a_huge_file_is_refused_with_little_memory(here, capsys):
    tracemalloc.start()
    try:
        for name in ("hole.csv", "tail.csv"):
            assert "16,777,216 characters" in refused(f"inspect {name}", capsys)
        peak = tracemalloc.get_traced_memory()[1]
    finally:
        tracemalloc.stop()
    assert peak < 300e6


# ------------------------------------------------------------------------ too much for this machine


@pytest.mark.parametrize("name", ["csv", "npz", "hdf5", "parquet"])
def test_rows_that_do_not_fit_into_memory_are_refused_with_the_numbers(
    tmp_path, monkeypatch, capsys, name
):
    monkeypatch.chdir(tmp_path)
    if name == "csv":
        lines = ["obs_0,act_0,reward", *(f"{i},0.5,1.0" for i in range(300))]
        (tmp_path / "rows.csv").write_text("\n".join(lines))
    else:
        if name == "parquet":
            pytest.importorskip("pyarrow")
        puorl.save(train_rows(), f"rows.{name}")
    assert main(["inspect", f"rows.{name}"]) == 0
    monkeypatch.setattr("puorl.core.resources.free_memory", lambda: 1000)
    said = refused(f"inspect rows.{name}", capsys)
    assert f"rows.{name}: " in said
    assert re.search(r"need \d+\.\d kB of free memory, have 1\.0 kB", said)


def test_collecting_more_than_fits_is_refused_with_the_numbers(here, capsys, monkeypatch):
    command = "collect --env hopper --quality random --seed 0 --no-cache --rows 1M --out x.npz"
    monkeypatch.setattr("puorl.core.resources.free_memory", lambda: 200_000_000)
    said = refused(command, capsys)
    assert "need 228.0 MB of free memory, have 200.0 MB" in said
    monkeypatch.setattr("puorl.core.resources.free_disk", lambda path: 100_000_000)
    said = refused(command, capsys)
    assert "need 114.0 MB of free disk at x.npz, have 100.0 MB" in said


def test_training_more_than_fits_is_refused_with_the_numbers(here, capsys, monkeypatch):
    monkeypatch.setattr("puorl.core.resources.free_memory", lambda: 3_000_000)
    command = "train rows.npz --learner bc --steps 20 --out x"
    for more, most in (
        ("--set batch_size=1M hidden=8", "a batch"),
        ("--set batch_size=8 hidden=1k,1k", "networks"),
        ("--set batch_size=8 hidden=128,128 --seeds 100", "networks"),
    ):
        said = refused(f"{command} {more}", capsys)
        assert f"most of it for {most}: need " in said


def test_a_device_that_runs_out_of_memory_after_all_is_one_line(here, capsys, monkeypatch):
    def exhausted(*_, **__):
        raise RuntimeError("RESOURCE_EXHAUSTED: Out of memory allocating 1 bytes.\n<frames>")

    monkeypatch.setattr("puorl.cli.train.run", exhausted)
    said = refused("train rows.npz --learner bc --steps 20 --out x", capsys)
    assert "the device has not enough memory for this" in said
    monkeypatch.setattr("puorl.cli.inspect.inspect", lambda _: 1 // 0 or exhausted())
    with pytest.raises(ZeroDivisionError):  # a bug is no lack of memory
        main(["inspect", "rows.npz"])


# --------------------------------------------------------------------------- Ctrl-C, and no rights


@pytest.mark.parametrize(
    ("command", "where"),
    [
        ("inspect rows.npz", "puorl.cli.inspect.inspect"),
        ("collect --env hopper --seed 0 --out x.npz", "puorl.cli.collect.collect"),
        ("split rows.npz --others b.npz --seed 0 --out x", "puorl.cli.split.make_split"),
        ("filter rows.npz --labelled 'reward > 0' --out x", "puorl.cli.filter.read_labels"),
        ("train rows.npz --out x", "puorl.cli.train.read_training_set"),
        ("evaluate rows.npz --env hopper", "puorl.cli.evaluate.read_policies"),
        ("bench run smoke --out x", "puorl.bench.runner.run"),
        ("bench report hollow", "puorl.cli.bench.Store.latest"),
        ("bench list", "puorl.cli.bench.suite_names"),
        ("demo --out x", "puorl.demo.study.make_data"),
        ("doctor", "puorl.cli.doctor.examine"),
    ],
)
def test_interrupted_in_one_line(here, capsys, monkeypatch, command, where):
    def interrupted(*_, **__):
        raise KeyboardInterrupt

    monkeypatch.setattr(where, interrupted)
    before = names_in(here)
    assert main(shlex.split(command)) == 130
    err = capsys.readouterr().err
    assert err.startswith("puorl: interrupted")
    assert err.count("\n") == 1
    assert names_in(here) == before


@pytest.mark.skipif(os.geteuid() == 0, reason="root may read and write everything")
def test_files_and_folders_without_rights(tmp_path, capsys, monkeypatch):
    monkeypatch.chdir(tmp_path)
    puorl.save(train_rows(), "rows.npz")
    puorl.save(train_rows(), "closed.npz")
    (tmp_path / "closed.npz").chmod(0)
    (tmp_path / "locked").mkdir(mode=0o500)
    assert "closed.npz: expected a readable NPZ file" in refused("inspect closed.npz", capsys)
    for command in (
        "collect --env hopper --seed 0 --rows 200 --out locked/x.npz",
        "split rows.npz --others rows.npz --seed 0 --out locked/x",
        "filter rows.npz --labelled 'reward > 0' --out locked/x",
        "train rows.npz --out locked/x",
        "demo --out locked/x",
    ):
        assert "locked/x" in (said := refused(command, capsys))
        assert "expected a place that can be written" in said
