"""Draw the pictures and the tables of docs/data.md from what datasets.py wrote down.

python benchmarks/behaviour/draw.py --rows benchmarks/results/datasets.jsonl
"""

import argparse
import json
from pathlib import Path

import matplotlib as mpl
import matplotlib.ticker
import numpy as np

from puorl.envs.collect import QUALITIES
from puorl.envs.evaluate import normalised_score

mpl.use("Agg")

from matplotlib import pyplot as plt

ROOT = Path(__file__).parents[2]
BEGIN, END = "<!-- datasets: begin -->", "<!-- datasets: end -->"
BODIES = {"hopper": "Hopper", "halfcheetah": "HalfCheetah", "walker2d": "Walker2d"}
DOMAINS = ("nominal", "body_mass", "joint_noise")

# Mean returns of D4RL's behaviour policies. It publishes none for the mixed qualities, and has no
# shifted domains.
D4RL = {
    ("hopper", "random"): 18,
    ("hopper", "medium"): 1420,
    ("hopper", "expert"): 3500,
    ("halfcheetah", "random"): -280,
    ("halfcheetah", "medium"): 4770,
    ("halfcheetah", "expert"): 10650,
    ("walker2d", "random"): 2,
    ("walker2d", "medium"): 2850,
    ("walker2d", "expert"): 4900,
}


def read(path: Path) -> dict[tuple[str, str, str], dict]:
    """The latest good line of each dataset."""
    return {(row["body"], row["domain"], row["quality"]): row for row in good_rows(path)}


def good_rows(path: Path) -> list[dict]:
    """All lines but those of failures."""
    lines = path.read_text(encoding="utf-8").splitlines()
    return [row for row in map(json.loads, lines) if row["error"] is None]


def section(body: str, rows: dict[tuple[str, str, str], dict]) -> str:
    """Table and picture of one body; a dataset that is missing is shown as missing."""
    lines = [
        f"### {BODIES[body]}",
        "",
        "| domain | quality | rows | episodes | mean return (std) | score | mean length "
        "| D4RL: return, score | content |",
        "|---|---|--:|--:|--:|--:|--:|--:|---|",
    ]
    for domain in DOMAINS:
        for quality in QUALITIES:
            row = rows.get((body, domain, quality))
            cells = ["–"] * 7 if row is None else numbers(row)
            lines.append(f"| {' | '.join([domain, quality, *cells])} |")
    picture = f"![Histograms of {BODIES[body]} returns](images/returns-{body}.png)"
    return "\n".join([*lines, "", picture])


def numbers(row: dict) -> list[str]:
    """What the table says of one dataset."""
    level = D4RL.get((row["body"], row["quality"])) if row["domain"] == "nominal" else None
    known = "–"
    if level is not None:
        known = f"{level:,}, {float(normalised_score(row['body'], level)):.1f}"
    return [
        f"{row['rows']:,}",
        f"{row['episodes']:,}",
        f"{row['return_mean']:,.0f} ({row['return_std']:,.0f})",
        f"{row['score']:.1f}",
        f"{row['length_mean']:.0f}",
        known,
        f"`{row['content'][:8]}`",
    ]


def insert(page: Path, text: str) -> None:
    """Put the text between its marks."""
    before, begin, rest = page.read_text(encoding="utf-8").partition(BEGIN)
    _, end, after = rest.partition(END)
    if not (begin and end):
        raise SystemExit(f"{page}: expected the marks {BEGIN} and {END}")
    page.write_text(f"{before}{BEGIN}\n\n{text}\n\n{END}{after}", encoding="utf-8")


def draw(body: str, rows: dict[tuple[str, str, str], dict], path: Path) -> None:
    """Histograms of returns: a row of panels for each domain, a column for each quality."""
    figure, axes = plt.subplots(
        len(DOMAINS), len(QUALITIES), figsize=(10, 4.4), sharex="col", layout="constrained"
    )
    for i, domain in enumerate(DOMAINS):
        for j, quality in enumerate(QUALITIES):
            axis = axes[i, j]
            row = rows.get((body, domain, quality))
            if row is None:
                axis.text(0.5, 0.5, "not made", transform=axis.transAxes, ha="center", color="0.5")
            else:
                shape = row["histogram"]
                edges = np.linspace(shape["low"], shape["high"], len(shape["counts"]) + 1)
                axis.stairs(shape["counts"], edges, fill=True, color="#3b6ea8")
                axis.axvline(row["return_mean"], color="#c8553d", linewidth=1.2)
            axis.spines[["top", "right", "left"]].set_visible(False)
            axis.tick_params(labelsize=7)
            axis.set_yticks([])
            axis.xaxis.set_major_locator(mpl.ticker.MaxNLocator(4))
            if i == 0:
                axis.set_title(quality, fontsize=9)
            if j == 0:
                axis.set_ylabel(domain, fontsize=9)
    figure.suptitle(f"{BODIES[body]}: returns of episodes", fontsize=11)
    figure.supxlabel("return (red: mean; each panel as high as its highest bin)", fontsize=9)
    path.parent.mkdir(parents=True, exist_ok=True)
    figure.savefig(path, dpi=110)
    plt.close(figure)


def main() -> None:
    """Draw everything."""
    parser = argparse.ArgumentParser(description=__doc__.partition("\n")[0])
    parser.add_argument("--rows", type=Path, default=ROOT / "benchmarks/results/datasets.jsonl")
    parser.add_argument("--page", type=Path, default=ROOT / "docs/data.md")
    chosen = parser.parse_args()
    rows = read(chosen.rows)
    insert(chosen.page, "\n\n".join(section(body, rows) for body in BODIES))
    for body in BODIES:
        draw(body, rows, chosen.page.parent / "images" / f"returns-{body}.png")
    # Of all versions of the policies: data made before stays known.
    contents = {row["recipe"]: row["content"] for row in good_rows(chosen.rows)}
    shipped = ROOT / "src/puorl/envs/contents.json"
    shipped.write_text(json.dumps(contents, indent=2) + "\n", encoding="utf-8")
    print(f"{len(rows)} datasets drawn into {chosen.page}")


if __name__ == "__main__":
    main()
