"""Make the two pictures of the benchmark that README.md shows, from the rows in benchmarks/results.

    python docs/images/draw_results.py

The pictures are those of `puorl bench report --format html`, of its widest overview; here they only
get colours.
"""

from pathlib import Path

from puorl.bench.reporting.figures import improvement_picture, iqm_picture
from puorl.bench.reporting.report import make_report
from sheet import write

from puorl.bench.store import Store

ROWS = Path(__file__).parents[2] / "benchmarks" / "results" / "paper"


def main() -> None:
    """Aggregate, and write both pictures beside this file."""
    store = Store(ROWS)
    report = make_report(store.latest().values(), store.read().notes)
    overview = max(report.overview, key=lambda each: each.num_settings)
    write("results-iqm.svg", "Middle half of all runs", iqm_picture(overview), height=370)
    improvement = improvement_picture(overview)
    write("results-improvement.svg", "PU against the others", improvement, height=370)


if __name__ == "__main__":
    main()
