"""Runs of `puorl filter` that several files look at; nothing here loads JAX for other commands."""

import contextlib
import io
import sys
from pathlib import Path

import pytest

import puorl
from puorl.cli.main import main

sys.path.insert(0, str(Path(__file__).parent))


@pytest.fixture(scope="session")
def rows():
    import filter_runs

    return filter_runs.mixed_rows()


@pytest.fixture(scope="session")
def file(rows, tmp_path_factory):
    return str(puorl.save(rows, tmp_path_factory.mktemp("data") / "mixed.npz"))


@pytest.fixture
def small(monkeypatch):
    """The preset ``default`` is a small one."""
    import filter_runs

    from puorl.pu.config import PRESETS

    monkeypatch.setitem(PRESETS, "default", filter_runs.SMALL)


@pytest.fixture
def here(tmp_path, monkeypatch):
    """An empty folder to work in, so that arguments are the same in every test."""
    monkeypatch.chdir(tmp_path)
    monkeypatch.setenv("COLUMNS", "80")
    return tmp_path


@pytest.fixture(scope="session")
def undisturbed(file, tmp_path_factory):
    """The folder of a run that nobody disturbed, and what it printed."""
    import filter_runs

    from puorl.pu.config import PRESETS

    folder, printed = tmp_path_factory.mktemp("whole"), io.StringIO()
    with pytest.MonkeyPatch.context() as patch, contextlib.redirect_stdout(printed):
        patch.setitem(PRESETS, "default", filter_runs.SMALL)
        patch.setenv("COLUMNS", "80")
        patch.chdir(folder)
        assert main(filter_runs.words(file)) == 0
    return folder / "run", printed.getvalue()


@pytest.fixture(scope="session")
def whole(undisturbed):
    return undisturbed[0]


@pytest.fixture(scope="session")
def fleet(tmp_path_factory):
    """The folder of a run with one known machine, what it printed, and the rows."""
    import filter_runs

    from puorl.pu.config import PRESETS

    folder, printed = tmp_path_factory.mktemp("fleet"), io.StringIO()
    puorl.save(filter_runs.fleet_rows(), folder / "fleet.npz")
    command = filter_runs.words(
        "fleet.npz", "--unit", "column:machine", labelled="machine == 'M-01'"
    )
    with pytest.MonkeyPatch.context() as patch, contextlib.redirect_stdout(printed):
        patch.setitem(PRESETS, "default", filter_runs.SMALL)
        patch.setenv("COLUMNS", "80")
        patch.chdir(folder)
        assert main(command) == 0
    return folder, printed.getvalue()
