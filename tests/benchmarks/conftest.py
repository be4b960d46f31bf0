import sys
from pathlib import Path

for name in ("behaviour", "filter", "fleets", "paper", "reliability", "sharing"):
    sys.path.insert(0, str(Path(__file__).parents[2] / "benchmarks" / name))
