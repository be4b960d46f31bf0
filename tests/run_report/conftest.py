"""Make the helpers of other rooms' tests importable here."""

import sys
from pathlib import Path

TESTS = Path(__file__).parents[1]
for folder in (TESTS, TESTS / "bench", TESTS / "pu", TESTS / "cli", TESTS / "run_report"):
    sys.path.insert(0, str(folder))
