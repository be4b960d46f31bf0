"""Every example runs, on a small size, and says something."""

import subprocess
import sys
from pathlib import Path

import pytest

EXAMPLES = Path(__file__).parents[1] / "examples"
SMALL = {"hide_a_domain.py": "4000", "your_own_domain.py": "1", "your_own_method.py": "4000"}


def test_every_example_is_run():
    assert {path.name for path in EXAMPLES.glob("*.py")} == set(SMALL)


@pytest.mark.parametrize("name", SMALL)
def test_example(name, tmp_path):
    run = subprocess.run(
        [sys.executable, EXAMPLES / name, SMALL[name]],
        capture_output=True,
        text=True,
        cwd=tmp_path,
        check=False,
    )
    assert (run.returncode, run.stderr) == (0, "")
    assert len(run.stdout.splitlines()) > 1
