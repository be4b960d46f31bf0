import sys
from pathlib import Path

sys.path.insert(0, str(Path(__file__).parents[2] / "benchmarks" / "behaviour"))
sys.path.insert(0, str(Path(__file__).parents[2] / "benchmarks" / "fleets"))
