"""Make two pictures of the benchmark, one for README.md, from the rows in benchmarks/results.

    python docs/images/draw_results.py

The pictures are those of `puorl bench report --format html`, of its widest overview; here they only
get colours.
"""

from pathlib import Path

from sheet import write

from puorl.bench.report import IMPROVEMENT, IQM, make_report
from puorl.bench.report_page import aggregate_figure

ROWS = Path(__file__).parents[2] / "benchmarks" / "results" / "paper"


def main() -> None:
    """Aggregate, and write both pictures beside this file."""
    overview = max(make_report(ROWS).overviews, key=lambda each: each.num_settings)
    write("results-iqm.svg", "Middle half of all runs", aggregate_figure(IQM, overview), height=370)
    improvement = aggregate_figure(IMPROVEMENT, overview)
    write("results-improvement.svg", "PU against the others", improvement, height=370)


if __name__ == "__main__":
    main()
