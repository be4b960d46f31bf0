"""A file of JSON rows that a benchmark adds to; a row that is there is not measured again."""

import datetime
import json
import os
import platform
from importlib.metadata import version
from pathlib import Path
from typing import Any

from puorl import __version__
from puorl.bench.settings import RENAMED_FIELDS, rename_fields

PACKAGES = ("jax", "numpy", "mujoco")
RESULTS = Path(__file__).parents[1] / "results"


class Recorded:
    """Rows known by their ``config``: all that decides a measurement, seed included.

    The settings of the filter belong into it, so that rows of an older preset do not stand in for
    those of a newer one.
    """

    def __init__(self, path: Path) -> None:
        self.path = path
        self.rows: list[dict[str, Any]] = []
        if path.exists():
            with open(path, encoding="utf-8") as file:
                self.rows = [_renamed(json.loads(line)) for line in file if line.strip()]

    def find(self, config: dict[str, Any]) -> dict[str, Any] | None:
        """The row of this config, the latest where there are several."""
        wanted = _as_json(config)
        return next((row for row in reversed(self.rows) if row["config"] == wanted), None)

    def add(self, config: dict[str, Any], measured: dict[str, Any]) -> dict[str, Any]:
        """Append a row, stamped with time, versions and cores; it is on disk when this returns."""
        row = {
            "config": _as_json(config),
            "measured": _as_json(measured),
            "time": datetime.datetime.now(datetime.UTC).isoformat(timespec="seconds"),
            "versions": {"puorl": __version__}  # a source tree on the path has no metadata
            | {name: version(name) for name in PACKAGES}
            | {"python": platform.python_version()},
            "machine": platform.machine(),
            "cores": len(os.sched_getaffinity(0)),
        }
        self.path.parent.mkdir(parents=True, exist_ok=True)
        with open(self.path, "a", encoding="utf-8") as file:
            file.write(json.dumps(row) + "\n")
        self.rows.append(row)
        return row


def _renamed(row: dict[str, Any]) -> dict[str, Any]:
    """Give fields of a config, which version 0.1.0 named otherwise, their present names."""
    return row | {"config": rename_fields(row["config"], RENAMED_FIELDS)}


def _as_json(content: dict[str, Any]) -> dict[str, Any]:
    """As it will be read back: tuples become lists, keys text."""
    return json.loads(json.dumps(content))
