"""Rows of a benchmark, stamped with when and on what they were made."""

import datetime
import json
import os
import platform
from importlib.metadata import version
from pathlib import Path
from typing import Any

from puorl import __version__


def append(path: Path, measured: dict[str, Any]) -> None:
    """Append one JSON row."""
    row = {
        "date": datetime.date.today().isoformat(),
        **measured,
        "cores": len(os.sched_getaffinity(0)),
        "versions": {"puorl": __version__}  # a source tree on the path has no metadata
        | {name: version(name) for name in ("jax", "mujoco", "numpy")}
        | {"python": platform.python_version()},
    }
    with open(path, "a", encoding="utf-8") as file:
        file.write(json.dumps(row) + "\n")
