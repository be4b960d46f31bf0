import sys
from pathlib import Path

BENCHMARKS = Path(__file__).parents[2] / "benchmarks"
for folder in ("behaviour", "paper"):
    sys.path.insert(0, str(BENCHMARKS / folder))
