"""Draw the pictures of docs/cases from the recorded rows.

    python docs/images/draw_cases.py

Maps show where the filter puts the units, marked by what it did not know. Scores are those of the
simulator. Distances over time are those of `puorl score --by-time`.
"""

import sys
from collections.abc import Mapping
from pathlib import Path
from typing import Any

from sheet import write

from puorl.core.stats import mean_estimate
from puorl.html import charts

sys.path.insert(0, str(Path(__file__).parents[2] / "examples" / "cases"))
from tables import METHODS, last_rows, scores


def draw_map(name: str, row: Mapping[str, Any]) -> None:
    """Draw the units by their true kind; the known ones have a name."""
    units = row["filter"]["units"]
    kinds = sorted({(not each["ours"], each["kind"]) for each in units})
    names = [kind for _, kind in kinds]
    count = {kind: sum(each["kind"] == kind for each in units) for kind in names}
    picture = charts.scatter(
        "Map with the truth",
        "; ".join(f"{kind}: {number} units" for kind, number in count.items()),
        points=[
            charts.ScatterPoint(
                each["unit"], each["x"], each["y"], 2 * each["spread"],
                names.index(each["kind"]), each["labelled"],
            )
            for each in units
        ],
        groups=[f"{kind} ({number})" for kind, number in count.items()],
        x_label="from ours to the nearest other type, in deviations",
        y_label="across, in deviations",
    )  # fmt: skip
    write(f"case-{name}-map.svg", "Truth on the filter's map", picture, height=400)


def draw_scores(name: str, row: Mapping[str, Any]) -> None:
    """Draw what each method's policies earn in the simulator."""
    dots = []
    for method, own in scores(row).items():
        mean = mean_estimate(own)
        text = f"{mean.value:.1f} ± {mean.half_width:.1f}"
        dots.append(charts.Dot(METHODS[method], mean, text))
    picture = charts.dots("Scores", dot=dots, x_label=LABELS[name])
    write(f"case-{name}-scores.svg", "In the simulator", picture)


LABELS = {
    "diabetes": "minus the risk of a day, 0 is best",
    "sepsis": "patients that survive, %",
    "wear": "minus bar off and current, 150 s",
    "actuator": "return of 300 steps",
    "road": "return of 200 steps",
}


def draw_drift(name: str, row: Mapping[str, Any]) -> None:
    """Draw how far watched units get from their own beginning, in units of their band."""
    chosen = {each["kind"]: each for each in row["drift"]}
    lines = []
    for kind, each in chosen.items():
        known = [k for k, distance in enumerate(each["distance"]) if distance is not None]
        far = [each["distance"][k] / each["band"] for k in known]
        lines.append(charts.Line(kind, [float(k) for k in known], far, end=f"{far[-1]:.1f}"))
    picture = charts.lines(
        "Distance from the beginning", line=lines, x_label="window", y_label="distance / band"
    )
    write(f"case-{name}-drift.svg", "Three watched units", picture, height=330)


def main() -> None:
    """Draw all."""
    for name, row in last_rows().items():
        draw_map(name, row)
        draw_scores(name, row)
        if row["drift"]:
            draw_drift(name, row)


if __name__ == "__main__":
    main()
