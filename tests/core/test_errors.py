import errno
import os

import pytest
from safetensors import SafetensorError

from puorl.core.errors import DataError, MissingExtraError, PuorlError, machine_fault, require


def test_present_module_is_returned():
    assert require("json.decoder", extra="x", purpose="y").__name__ == "json.decoder"


def test_missing_module_names_the_install_line():
    with pytest.raises(MissingExtraError) as caught:
        require("no_such_package.inner", extra="parquet", purpose="reading Parquet files")
    assert isinstance(caught.value, PuorlError)
    assert "reading Parquet files needs the package 'no_such_package'" in str(caught.value)
    assert "pip install 'puorl[parquet]'" in str(caught.value)


def test_faults_of_the_machine_are_told_from_others():
    full = OSError(errno.ENOSPC, os.strerror(errno.ENOSPC))
    wrapped = DataError("a.npz: expected a place")
    wrapped.__cause__ = full
    during = ValueError("closing failed")
    during.__context__ = full
    for error in (
        full,
        wrapped,
        during,
        SafetensorError(
            "Error while serializing: I/O error: No space left on device (os error 28)"
        ),
        RuntimeError("file write failed: errno = 28, error message = 'No space left on device'"),
        "train: SafetensorError: No space left on device",
    ):
        assert machine_fault(error) == "No space left on device"
    assert machine_fault(MemoryError()) == "Cannot allocate memory"
    for error in (ValueError("the disk of the robot"), FileNotFoundError(2, "No such file"), None):
        assert machine_fault(error) is None


def test_what_a_terminal_would_obey_is_spelled():
    assert str(DataError("a\x1b[2Jb\rc")) == r"a\x1b[2Jb c"
